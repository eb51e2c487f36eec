//! What becomes of each column.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use veil_cells::{
    CONSTANTS_METADATA_KEY, CategoryShape, CellType, KeyId, Kind, Mechanism, Role, SEALED_METADATA_KEY,
    SHAPE_METADATA_KEY,
};
use veil_protocols::lift::MAX_WIDTH;
use veil_protocols::release::seal_parcel::MAX_LANES;
use veil_release::{AskedColumn, Content, ROW_KEY_LANES};
use veil_udfs::EncryptedField;

/// The result: a release, a part's number, and what P2 and P1 sealed; at the end the manifest.
pub(super) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("release", DataType::Utf8, false),
        Field::new("number", DataType::UInt32, false),
        Field::new("from_p2", DataType::LargeBinary, true),
        Field::new("from_p1", DataType::LargeBinary, true),
        Field::new("manifest", DataType::Utf8, true),
    ]))
}

/// A table to release.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// Whose keys it is encrypted with.
    pub(super) key: KeyId,
    /// The fields, as they are.
    pub(super) fields: Vec<FieldRef>,
    /// The encrypted ones by their places.
    pub(super) encrypted: Vec<(usize, EncryptedColumn)>,
    /// Which of these tells what rows are suppressed.
    pub(super) flag: Option<usize>,
}

/// An encrypted column.
#[derive(Clone, Debug)]
pub(super) struct EncryptedColumn {
    /// Its name.
    pub(super) name: String,
    /// Its type.
    pub(super) cell_type: CellType,
    /// The shape of its hierarchy.
    pub(super) shape: Option<CategoryShape>,
}

impl EncryptedColumn {
    /// Whether its numbers may be too large for slots: sums and averages are, and some that were computed.
    pub(super) fn is_wide(&self) -> bool {
        self.cell_type.kind.is_number() && self.cell_type.width.bits() > MAX_WIDTH
    }

    /// Lanes that are sealed.
    pub(super) fn lanes(&self) -> usize {
        let lanes = self.cell_type.cell_lanes();
        usize::from(lanes.value) + usize::from(lanes.nulls)
    }

    /// Noise that is drawn again, value by value, before the release; other noise is added by it.
    pub(super) fn draws(&self) -> Vec<(Mechanism, u64)> {
        let drawn = self.cell_type.awaits.iter().filter(|noise| !is_added(noise.mechanism));
        drawn.map(|noise| (noise.mechanism, noise.epsilon)).collect()
    }
}

/// P2 can add noise to values whose bounds are known, and draw truth values and categories again: not to what was computed from such values.
fn refuse_noise_on_computed(name: &str, column: &EncryptedField) -> Result<()> {
    let of = &column.cell_type;
    let is_bounded = of.bounds.is_some() || column.constants()?.is_some();
    let is_drawn = matches!(of.kind, Kind::Boolean | Kind::Binary | Kind::Category);
    let is_possible = |mechanism: Mechanism| if is_added(mechanism) { is_bounded } else { is_drawn };
    match of.awaits.iter().all(|noise| is_possible(noise.mechanism)) {
        true => Ok(()),
        false => plan_err!(
            "{name} is computed from values that await P2's noise, which is drawn value by value: release the values, or compute with noise of P1 alone \
             (SET veil.noise = 'single')"
        ),
    }
}

fn is_added(mechanism: Mechanism) -> bool {
    matches!(mechanism, Mechanism::Laplace | Mechanism::Geometric)
}

impl Columns {
    /// Of a table with these fields.
    pub(super) fn of(fields: &[FieldRef]) -> Result<Self> {
        let (mut encrypted, mut flag) = (Vec::new(), None);
        for (place, field) in fields.iter().enumerate() {
            let name = field.name();
            if CellType::is_only_named_in(field) {
                return plan_err!(
                    "{name} is encrypted and has lost its type: read it through a session built with `with_veil`"
                );
            }
            let Some(column) = EncryptedField::of(field)? else { continue };
            refuse_noise_on_computed(name, &column)?;
            let (shape, cell_type) = (column.shape()?, column.cell_type);
            if fields.iter().take(place).any(|other| other.name() == name) {
                return plan_err!("the release would have two columns {name}: rename or leave out one in a subquery");
            }
            if cell_type.role == Role::Suppressed && cell_type.withheld != 0 {
                if flag.is_some() {
                    return plan_err!(
                        "two columns tell which rows are suppressed, {name} is the second: release the rows of one k_anonymize at a time"
                    );
                }
                flag = Some((place, cell_type.withheld));
            }
            encrypted.push((place, EncryptedColumn { name: name.clone(), cell_type, shape }));
        }
        let Some((_, EncryptedColumn { cell_type: CellType { key, .. }, .. })) = encrypted.first() else {
            return plan_err!("no column of the table is encrypted: release is for encrypted tables");
        };
        let key = *key;
        if let Some((_, other)) = encrypted.iter().find(|(_, column)| column.cell_type.key != key) {
            return plan_err!(
                "columns of different key sets ({key} and {}) cannot be released together: name those of one",
                other.cell_type.key
            );
        }
        let run = flag.map_or(0, |(_, run)| run);
        let is_lost = |of: &CellType| of.withheld != 0 && of.withheld != run;
        if let Some((_, lost)) = encrypted.iter().find(|(_, column)| is_lost(&column.cell_type)) {
            return plan_err!(
                "some rows of {} are suppressed, and the column that tells which is missing: release suppressed along with it",
                lost.name
            );
        }
        for (_, column) in encrypted.iter().filter(|(_, column)| column.is_wide()) {
            let name = &column.name;
            if flag.is_some() {
                return plan_err!(
                    "{name} is a sum or average, or may have more than 32 bits, and rows beside it may be suppressed, which it could not be hidden with: \
                     release it without them"
                );
            }
            if column.cell_type.fraction_bits > 0 {
                return plan_err!(
                    "{name} has places below its unit and may have more than 32 bits, so that it cannot be rounded before it leaves: release the rows \
                     that it is of, or mask less of them"
                );
            }
        }
        let lanes: usize = encrypted.iter().map(|(_, column)| column.cell_type.cell_lanes().total()).sum();
        let lanes = lanes + flag.map_or(0, |_| ROW_KEY_LANES);
        if lanes > MAX_LANES {
            return plan_err!(
                "the release would have {lanes} lanes, and {MAX_LANES} fit a parcel: release long texts and deep categories one after the other"
            );
        }
        Ok(Self { key, fields: fields.to_vec(), encrypted, flag: flag.map(|(place, _)| place) })
    }

    /// As P2 is asked about them. Places below the unit are rounded away before.
    pub(super) fn asked(&self) -> Vec<AskedColumn> {
        let asked = |(place, field): (usize, &FieldRef)| {
            let get = |key: &str| field.metadata().get(key).cloned();
            let content = match self.encrypted.iter().find(|(other, _)| *other == place) {
                Some((_, column)) => Content::Encrypted {
                    cell_type: CellType { fraction_bits: 0, ..column.cell_type.clone() },
                    sealed: get(SEALED_METADATA_KEY),
                    constants: get(CONSTANTS_METADATA_KEY),
                    shape: get(SHAPE_METADATA_KEY),
                },
                None => Content::Clear { data_type: field.data_type().to_string() },
            };
            AskedColumn { name: field.name().clone(), content }
        };
        self.fields.iter().enumerate().map(asked).collect()
    }
}
