//! The type of an encrypted column, and what travels along in its field's metadata.

use datafusion::arrow::datatypes::Field;
use datafusion::common::{DataFusionError, plan_err};
use datafusion::error::Result;
use veil_cells::{
    CONSTANTS_METADATA_KEY, CategoryShape, CellType, ColumnConstants, JointNoise, Kind, Mechanism, Nulls, Role,
    SEALED_METADATA_KEY, SHAPE_METADATA_KEY, Width,
};
use veil_privacy::Epsilon;

use crate::function::external;
use crate::{NoiseMode, VeilOptions};

/// An encrypted column as the planner knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptedField {
    /// Its public type.
    pub cell_type: CellType,
    /// Whether rows may be visibly NULL.
    pub nullable: bool,
    constants: Option<String>,
    sealed: Option<String>,
    shape: Option<String>,
}

impl EncryptedField {
    /// A column with nothing travelling along.
    pub fn new(cell_type: CellType, nullable: bool) -> Self {
        Self { cell_type, nullable, constants: None, sealed: None, shape: None }
    }

    /// Reads a field; `None` if it is clear, or if its type is yet to be restored: a union of different types keeps the name
    /// that they have in common and drops the rest.
    pub fn of(field: &Field) -> Result<Option<Self>> {
        if CellType::is_only_named_in(field) {
            return Ok(None);
        }
        let Some(cell_type) = CellType::of_field(field).map_err(external)? else { return Ok(None) };
        let get = |key: &str| field.metadata().get(key).cloned();
        Ok(Some(Self {
            cell_type,
            nullable: field.is_nullable(),
            constants: get(CONSTANTS_METADATA_KEY),
            sealed: get(SEALED_METADATA_KEY),
            shape: get(SHAPE_METADATA_KEY),
        }))
    }

    /// The field.
    pub fn field(&self, name: &str) -> Result<Field> {
        let mut field = self.cell_type.field(name).map_err(external)?.with_nullable(self.nullable);
        let mut metadata = field.metadata().clone();
        let entries = [
            (CONSTANTS_METADATA_KEY, &self.constants),
            (SEALED_METADATA_KEY, &self.sealed),
            (SHAPE_METADATA_KEY, &self.shape),
        ];
        for (key, value) in entries {
            if let Some(value) = value {
                metadata.insert(key.to_owned(), value.clone());
            }
        }
        field.set_metadata(metadata);
        Ok(field)
    }

    /// The same column, in which rows may be visibly NULL or not.
    #[must_use]
    pub fn with_nullable(self, nullable: bool) -> Self {
        Self { nullable, ..self }
    }

    /// The encrypted bounds.
    pub fn constants(&self) -> Result<Option<ColumnConstants>> {
        self.constants.as_deref().map(ColumnConstants::from_metadata).transpose().map_err(external)
    }

    /// Whether the bounds of both are the same, clear or encrypted.
    pub fn has_bounds_of(&self, other: &Self) -> bool {
        (self.cell_type.bounds, &self.constants) == (other.cell_type.bounds, &other.constants)
    }

    /// The shape of a category's hierarchy.
    pub fn shape(&self) -> Result<Option<CategoryShape>> {
        self.shape.as_deref().map(CategoryShape::from_metadata).transpose().map_err(external)
    }

    /// The values have changed: tags no longer match, and nobody is suppressed by them.
    #[must_use]
    pub fn untagged(mut self) -> Self {
        (self.cell_type.tag, self.cell_type.computed, self.cell_type.role) = (false, true, Role::Data);
        self
    }

    /// The values are others altogether: nothing that was known about them holds.
    #[must_use]
    pub fn unbounded(mut self) -> Self {
        (self.cell_type.bounds, self.constants) = (None, None);
        self.untagged()
    }

    /// The values have nothing to do with the column's own: neither bounds nor noise are left of it.
    #[must_use]
    pub fn replaced(mut self) -> Self {
        (self.cell_type.fraction_bits, self.cell_type.places) = (0, 0);
        (self.cell_type.spent, self.cell_type.mixed, self.cell_type.awaits) = (0, false, Vec::new());
        self.unbounded()
    }

    /// The meaning of the numbers has changed: the owner's note about them no longer fits.
    #[must_use]
    pub fn without_note(mut self) -> Self {
        (self.sealed, self.shape) = (None, None);
        self
    }

    /// Numbers up to so many steps of the unit further out, in lanes as wide as it takes.
    pub fn widened(mut self, by: u64) -> Result<Self> {
        let reach = (1u64 << (self.cell_type.width.bits() - 1)).saturating_add(by);
        self.cell_type.width = width_of(reach);
        if reach >= 1 << 47 {
            return plan_err!("the result could exceed 48 bits: use a smaller constant, factor or noise");
        }
        Ok(self)
    }

    /// All values shifted alike.
    pub fn shifted(mut self, by: i64) -> Result<Self> {
        if self.cell_type.places > 0 {
            return plan_err!("an average cannot be computed with: compute before averaging");
        }
        if let Some((low, high)) = self.cell_type.bounds {
            self.cell_type.bounds = low.checked_add(by).zip(high.checked_add(by));
        }
        if let Some(mut constants) = self.constants()? {
            constants.lower.add_constant(by).map_err(external)?;
            constants.upper.add_constant(by).map_err(external)?;
            self.constants = Some(constants.to_metadata());
        }
        match self.cell_type.width {
            // The lane is full by its type; whether the number still fits is known to every cell.
            Width::FULL => Ok(self.untagged()),
            _ => self.untagged().widened(by.unsigned_abs()),
        }
    }

    /// Noise of a mechanism was added.
    pub fn noised(mut self, mechanism: Mechanism, epsilon: Epsilon, options: &VeilOptions) -> Result<Self> {
        let epsilon = epsilon.millionths();
        // Whatever they were before, all values have noise now.
        (self.cell_type.spent, self.cell_type.mixed) = (self.cell_type.spent.saturating_add(epsilon), false);
        if options.noise_mode()? == NoiseMode::Joint {
            self.cell_type.awaits.push(JointNoise { mechanism, epsilon });
        }
        Ok(self.untagged())
    }

    /// Refuses columns of other kinds.
    pub fn expect(&self, function: &str, kinds: &[Kind], instead: &str) -> Result<()> {
        if self.cell_type.places > 0 {
            return plan_err!("{function}: an average cannot be computed with: compute before averaging");
        }
        if kinds.contains(&self.cell_type.kind) {
            return Ok(());
        }
        let names: Vec<String> = kinds.iter().map(Kind::to_string).collect();
        plan_err!(
            "{function} works on columns of kind {}, and this one is of kind {}: {instead}",
            names.join(", "),
            self.cell_type.kind
        )
    }

    /// The one type of rows that come from either column, as CASE and coalesce make them.
    pub fn or(mut self, other: &Self) -> Result<Self> {
        let (ours, theirs) = (&self.cell_type, &other.cell_type);
        if ours.key != theirs.key {
            return plan_err!(
                "columns of different key sets ({} and {}) cannot be mixed: encrypt both with the same keys",
                ours.key,
                theirs.key
            );
        }
        let same = |left: &CellType, right: &CellType| {
            (left.kind, left.scale, left.unit, left.fraction_bits, left.lanes, left.nulls, left.places)
                == (right.kind, right.scale, right.unit, right.fraction_bits, right.lanes, right.nulls, right.places)
        };
        let sealed = matches!(ours.kind, Kind::Binary | Kind::Category);
        if !same(ours, theirs) || sealed && ours.column != theirs.column {
            return plan_err!(
                "columns of kind {} and {} that are encrypted differently cannot be mixed in one column: bring them to the \
                 same kind, scale and NULLs first",
                ours.kind,
                theirs.kind
            );
        }
        let same_column = ours.column == theirs.column;
        let merged = CellType {
            width: ours.width.max(theirs.width),
            // Tags of classes are others than the owner's.
            tag: ours.tag && theirs.tag && same_column && ours.computed == theirs.computed,
            // Flags of two runs are a flag of neither.
            role: if (ours.role, ours.withheld) == (theirs.role, theirs.withheld) { ours.role } else { Role::Data },
            withheld: CellType::withheld_in(ours.withheld, theirs.withheld),
            computed: ours.computed || theirs.computed,
            bounds: ours.bounds.zip(theirs.bounds).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))),
            spent: ours.spent.max(theirs.spent),
            mixed: CellType::mixes_noise(ours, theirs),
            awaits: at_least_both(&ours.awaits, &theirs.awaits),
            ..ours.clone()
        };
        self.cell_type = merged;
        self.nullable |= other.nullable;
        if self.constants != other.constants {
            self.constants = None;
        }
        if !same_column {
            self = self.without_note();
        }
        Ok(self)
    }

    /// Whether rows are hidden NULLs.
    pub fn hides_nulls(&self) -> bool {
        self.cell_type.nulls == Nulls::Hidden
    }
}

/// What P2 adds to rows that come from either column: no less than to each of them.
fn at_least_both(ours: &[JointNoise], theirs: &[JointNoise]) -> Vec<JointNoise> {
    let mut both = ours.to_vec();
    let mut single: Vec<usize> = (0..ours.len()).collect();
    for noise in theirs {
        match single.iter().position(|at| ours[*at].mechanism == noise.mechanism) {
            Some(found) => {
                let at = single.swap_remove(found);
                both[at].epsilon = both[at].epsilon.min(noise.epsilon);
            }
            None => both.push(*noise),
        }
    }
    both
}

/// Lanes wide enough for numbers up to this absolute value.
pub(crate) fn width_of(reach: u64) -> Width {
    let reach = i64::try_from(reach).unwrap_or(i64::MAX);
    Width::of_range(-reach, reach.saturating_sub(1)).unwrap_or(Width::FULL)
}

impl From<&EncryptedField> for String {
    fn from(field: &EncryptedField) -> Self {
        format!("encrypted {}", field.cell_type.kind)
    }
}

/// The sentence for a column that is not encrypted.
pub(crate) fn not_encrypted(function: &str, column: &str) -> DataFusionError {
    DataFusionError::Plan(format!(
        "{function} works on encrypted columns, and {column} has lost its type or never had one: read encrypted files through a \
         session that was built with `with_veil`"
    ))
}
