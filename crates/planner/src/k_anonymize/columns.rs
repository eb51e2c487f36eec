//! What becomes of each column: quasi-identifiers are replaced, all others pass.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, TimeUnit as ArrowUnit};
use datafusion::common::{internal_err, plan_err};
use datafusion::error::Result;
use veil_cells::{CellType, ColumnId, KeyId, Kind, Role, Width};
use veil_privacy::clusters::GRID_BITS;
use veil_protocols::k_anonymize::{Bounds, Values};
use veil_protocols::lift;
use veil_udfs::EncryptedField;

use super::Request;

/// The column that tells which rows are suppressed.
pub(super) const SUPPRESSED: &str = "suppressed";

/// How a quasi-identifier takes part.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Encrypted numbers.
    Numbers { bits: u32, bounds: Bounds },
    /// Encrypted leaves of a hierarchy.
    Categories { levels: usize, bits: u32, generalised: bool },
    /// P1 sees it; read as whole numbers of this unit.
    Clear(Unit),
}

/// What one is, of a clear column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// One, a day, or true.
    One,
    /// A power of ten.
    Decimal,
    /// A second.
    Second,
}

/// A table as a run sees it.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// Whose keys it is encrypted with.
    pub(super) key: KeyId,
    /// A column that tells so.
    pub(super) key_place: usize,
    /// The quasi-identifiers: where they are, and how they take part.
    pub(super) quasi: Vec<(usize, Source)>,
    /// Their weights.
    pub(super) weights: Vec<u32>,
    /// All columns of the result, in order, the flag last.
    pub(super) fields: Vec<FieldRef>,
    /// For each but the flag, where it is in the input.
    pub(super) sources: Vec<usize>,
}

impl Columns {
    /// Of a table with these fields. Weights are in thousandths, where the query gives them.
    pub(super) fn of(fields: &[FieldRef], quasi: &[usize], weights: &[Option<u32>], request: &Request) -> Result<Self> {
        let encrypted = fields.iter().map(|field| EncryptedField::of(field)).collect::<Result<Vec<_>>>()?;
        refuse_withheld(&encrypted)?;
        let key_of = |place: usize| Some((place, encrypted.get(place)?.as_ref()?.cell_type.key));
        // Those of the quasi-identifiers, or else of any column.
        let found = quasi.iter().copied().chain(0..fields.len()).find_map(key_of);
        let Some((key_place, key)) = found else {
            return plan_err!(
                "no column of the table is encrypted, so that there are no keys to encrypt the result with: k_anonymize is for encrypted tables"
            );
        };
        if let Some((_, other)) = quasi.iter().filter_map(|place| key_of(*place)).find(|(_, other)| *other != key) {
            return plan_err!(
                "columns of different key sets ({key} and {other}) cannot be anonymised together: name those of one"
            );
        }
        let (mut taking_part, mut thousandths) = (Vec::with_capacity(quasi.len()), Vec::with_capacity(quasi.len()));
        let mut result: Vec<(usize, FieldRef)> = Vec::with_capacity(fields.len() + 1);
        for (place, weight) in quasi.iter().zip(weights) {
            let Some(field) = fields.get(*place) else { return internal_err!("VeilKAnonymize has no column {place}") };
            if CellType::is_only_named_in(field) {
                return plan_err!(
                    "{} is encrypted and has lost its type: read it through a session built with `with_veil`",
                    field.name()
                );
            }
            let (source, column) = match encrypted.get(*place).and_then(Option::as_ref) {
                Some(column) => (encrypted_source(field.name(), column)?, column.clone()),
                None => {
                    let (unit, cell_type) = clear_source(field, key)?;
                    (Source::Clear(unit), EncryptedField::new(cell_type, false))
                }
            };
            let own = column.cell_type.weight;
            let published = withheld(published(column), request).field(field.name())?;
            taking_part.push((*place, source));
            thousandths.push(weight.unwrap_or(own));
            result.push((*place, Arc::new(published)));
        }
        for (place, (field, column)) in fields.iter().zip(&encrypted).enumerate() {
            if !quasi.contains(&place) && passes(column.as_ref()) {
                let field = match column {
                    Some(column) => Arc::new(withheld(column.clone(), request).field(field.name())?),
                    None => field.clone(),
                };
                result.push((place, field));
            }
        }
        result.sort_by_key(|(place, _)| *place);
        let (sources, mut fields): (Vec<usize>, Vec<FieldRef>) = result.into_iter().unzip();
        fields.push(Arc::new(suppressed(key, request).field(SUPPRESSED)?));
        refuse_same_names(&fields)?;
        Ok(Self { key, key_place, quasi: taking_part, weights: reduced(&thousandths), fields, sources })
    }

    /// Value lanes of all categories together.
    pub(super) fn lanes(&self) -> usize {
        let lanes = |(_, source): &(usize, Source)| match source {
            Source::Categories { levels, .. } => *levels,
            _ => 0,
        };
        self.quasi.iter().map(lanes).sum()
    }
}

/// The smallest whole numbers with the same ratios.
fn reduced(thousandths: &[u32]) -> Vec<u32> {
    let divisor = thousandths.iter().copied().fold(0, |mut one, mut other| {
        while other != 0 {
            (one, other) = (other, one % other);
        }
        one
    });
    thousandths.iter().map(|weight| weight / divisor.max(1)).collect()
}

/// Whether a column that is no quasi-identifier passes. A flag of an earlier run, which suppressed nobody, gives way to this one's.
fn passes(column: Option<&EncryptedField>) -> bool {
    column.is_none_or(|column| column.cell_type.role != Role::Suppressed)
}

/// Refuses a table of which some rows are suppressed, whether their flag is among its columns or not.
fn refuse_withheld(columns: &[Option<EncryptedField>]) -> Result<()> {
    match columns.iter().flatten().any(|column| column.cell_type.withheld != 0) {
        false => Ok(()),
        true => plan_err!(
            "some rows of the table are suppressed, and nobody can see which, so that they would count as people: anonymise once, or \
             with suppress => 0 the first time"
        ),
    }
}

/// The same column, of a table of which rows may be suppressed.
fn withheld(mut column: EncryptedField, request: &Request) -> EncryptedField {
    column.cell_type.withheld = if request.suppress > 0 { request.run } else { 0 };
    column
}

fn refuse_same_names(fields: &[FieldRef]) -> Result<()> {
    for (at, field) in fields.iter().enumerate() {
        if fields.iter().take(at).any(|other| other.name() == field.name()) {
            return plan_err!(
                "the result of k_anonymize would have two columns {}: rename or leave out one in a subquery",
                field.name()
            );
        }
    }
    Ok(())
}

/// The type of the flag.
fn suppressed(key: KeyId, request: &Request) -> EncryptedField {
    let mut cell_type = CellType::new(Kind::Boolean, Width::NARROWEST, 1, key, column_id(SUPPRESSED));
    (cell_type.role, cell_type.computed) = (Role::Suppressed, true);
    cell_type.bounds = Some((0, i64::from(request.suppress > 0)));
    withheld(EncryptedField::new(cell_type, false), request)
}

/// What a quasi-identifier is published as: the same values, equal within a class, whose rows share a tag.
fn published(column: EncryptedField) -> EncryptedField {
    let mut published = column.untagged().with_nullable(false);
    published.cell_type.tag = true;
    published
}

fn encrypted_source(name: &str, column: &EncryptedField) -> Result<Source> {
    let cell_type = &column.cell_type;
    let bits = cell_type.width.bits();
    if column.hides_nulls() {
        return plan_err!(
            "{name} hides its NULLs, and a class needs values: leave it out of quasi, or drop => ({name})"
        );
    }
    match cell_type.kind {
        Kind::Text => {
            return plan_err!(
                "{name} is text, which has no distances: leave it out of quasi and mask it, or drop => ({name})"
            );
        }
        Kind::Category => {
            if bits > GRID_BITS + 1 {
                return plan_err!(
                    "the hierarchy of {name} has more than {} leaves, too many for distances: leave it out of quasi, or drop => ({name})",
                    1 << GRID_BITS
                );
            }
            let (levels, generalised) = (cell_type.lanes.into(), cell_type.computed);
            return Ok(Source::Categories { levels, bits, generalised });
        }
        _ => {}
    }
    let noisy = cell_type.spent > 0 && !matches!(cell_type.kind, Kind::Boolean | Kind::Binary);
    if cell_type.places > 0 || cell_type.fraction_bits > 0 || noisy {
        return plan_err!(
            "{name} carries noise or a fraction and may lie outside its bounds: k_anonymize first, and add noise or scale the result"
        );
    }
    let bounds = match (column.constants()?, cell_type.bounds) {
        (_, Some((lower, upper))) => Bounds::Public(lower, upper),
        (Some(constants), None) => Bounds::Encrypted(Arc::new(constants)),
        (None, None) => {
            return plan_err!(
                "{name} was computed and has no bounds to scale distances by: use the column that it was computed from"
            );
        }
    };
    if bits > lift::MAX_WIDTH {
        return plan_err!("{name} may have numbers of more than {} bits, too large for distances", lift::MAX_WIDTH);
    }
    Ok(Source::Numbers { bits, bounds })
}

/// How a clear column is read, and the type that its result has.
fn clear_source(field: &Field, key: KeyId) -> Result<(Unit, CellType)> {
    let (unit, kind, bits) = match field.data_type() {
        DataType::Boolean => (Unit::One, Kind::Boolean, 8),
        DataType::Int8 => (Unit::One, Kind::Integer, 8),
        DataType::UInt8 => (Unit::One, Kind::Integer, 12),
        DataType::Int16 => (Unit::One, Kind::Integer, 16),
        DataType::UInt16 => (Unit::One, Kind::Integer, 24),
        DataType::Int32 | DataType::UInt32 | DataType::Int64 | DataType::UInt64 => (Unit::One, Kind::Integer, 32),
        DataType::Date32 | DataType::Date64 => (Unit::One, Kind::Date, 32),
        DataType::Timestamp(..) => (Unit::Second, Kind::Timestamp, 32),
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale)
            if (0..=9).contains(scale) =>
        {
            (Unit::Decimal, Kind::Decimal, 32)
        }
        other => {
            return plan_err!(
                "{} is clear and of type {other}, which has no distances: cast it to a whole number, a DECIMAL or a DATE, leave it out of quasi, or \
                 drop => ({})",
                field.name(),
                field.name()
            );
        }
    };
    let width =
        Width::try_from(bits).map_err(|error| datafusion::common::DataFusionError::External(Box::new(error)))?;
    let mut cell_type = CellType::new(kind, width, 1, key, column_id(field.name()));
    if let (
        Unit::Decimal,
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale),
    ) = (unit, field.data_type())
    {
        cell_type.scale = scale.unsigned_abs();
    }
    Ok((unit, cell_type))
}

/// A public name for a column that no owner named: FNV-1a of what it is called.
fn column_id(name: &str) -> ColumnId {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    ColumnId(name.bytes().fold(0xcbf2_9ce4_8422_2325, step).to_be_bytes())
}

impl Source {
    /// How a column would take part, and the type of what it is published as.
    pub(crate) fn of(field: &Field) -> Result<(Self, CellType)> {
        match EncryptedField::of(field)? {
            Some(column) => Ok((encrypted_source(field.name(), &column)?, column.cell_type)),
            // Its key set does not matter to what it is.
            None => clear_source(field, KeyId([0; 8])).map(|(unit, cell_type)| (Self::Clear(unit), cell_type)),
        }
    }

    /// Whether P1 does not know between which numbers it lies.
    pub(crate) fn has_encrypted_bounds(&self) -> bool {
        matches!(self, Self::Numbers { bounds: Bounds::Encrypted(_), .. })
    }

    /// The column as the run takes it. No row may be NULL.
    pub(crate) fn values(&self, name: &str, array: ArrayRef) -> Result<Values> {
        if let Some(row) = array.logical_nulls().and_then(|nulls| nulls.iter().position(|valid| !valid)) {
            return plan_err!(
                "{name} is NULL in {} of the rows (row {} is the first), and a class needs values: leave these rows out with WHERE {name} IS NOT \
                 NULL, or leave {name} out of quasi",
                array.logical_null_count(),
                row + 1
            );
        }
        Ok(match self {
            Self::Numbers { bits, bounds } => Values::Numbers { cells: array, bits: *bits, bounds: bounds.clone() },
            Self::Categories { levels, bits, generalised } => {
                Values::Categories { cells: array, levels: *levels, bits: *bits, generalised: *generalised }
            }
            Self::Clear(unit) => Values::Clear(clear_numbers(name, *unit, &array)?.into()),
        })
    }
}

/// Clear values as whole numbers of their unit.
fn clear_numbers(name: &str, unit: Unit, array: &ArrayRef) -> Result<Vec<i64>> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let numbers = match (unit, array.data_type()) {
        (Unit::One, DataType::Date64) => {
            cast(&cast(&cast(array, &DataType::Date32)?, &DataType::Int32)?, &DataType::Int64)?
        }
        (Unit::One, DataType::Date32) => cast(&cast(array, &DataType::Int32)?, &DataType::Int64)?,
        (Unit::One, _) => cast_with_options(array, &DataType::Int64, &strict)?,
        (Unit::Second, _) => cast(&cast(array, &DataType::Timestamp(ArrowUnit::Second, None))?, &DataType::Int64)?,
        // Without its point: the number of its smallest steps.
        (
            Unit::Decimal,
            DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale),
        ) => {
            let wide = cast_with_options(array, &DataType::Decimal128(38, *scale), &strict)?;
            let steps = wide.as_primitive::<datafusion::arrow::datatypes::Decimal128Type>().clone();
            let steps = steps.with_precision_and_scale(38, 0)?;
            cast_with_options(&steps, &DataType::Int64, &strict)?
        }
        (Unit::Decimal, other) => return internal_err!("{name} is no decimal but {other}"),
    };
    let numbers: Vec<i64> = numbers.as_primitive::<Int64Type>().values().to_vec();
    match numbers.iter().position(|number| i32::try_from(*number).is_err()) {
        None => Ok(numbers),
        Some(row) => plan_err!(
            "{name} has numbers of more than 32 bits (row {} is the first), too large for distances: scale them down in a subquery",
            row + 1
        ),
    }
}
