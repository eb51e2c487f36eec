//! `enc_add(left, right)`: the sum of an encrypted number and another, encrypted or constant.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use datafusion::arrow::array::BinaryArray;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use veil_cells::{CellArray, CellError, CellType, Kind, add_cells, add_constant};

use crate::encrypted::width_of;
use crate::function::{DETERMINISTIC, document, external};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation};

/// The sum of two columns, row by row; NULL where either is.
pub fn enc_add(left: CellArray<'_>, right: CellArray<'_>) -> Result<BinaryArray, CellError> {
    add_cells(left, right)
}

#[derive(Debug)]
pub(crate) struct EncAdd;

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Adds two encrypted numbers, or a constant to one. Both must have the same scale and come from the same key set; an \
         integer may be added to a date (days) or timestamp (steps).",
        "enc_add(left, right)",
        "SELECT enc_add(salary, bonus) AS income FROM staff;",
        &[("left", "An encrypted number."), ("right", "An encrypted number, or a constant in the left one's unit.")],
    )
});

impl CellFunction for EncAdd {
    fn name(&self) -> &'static str {
        "enc_add"
    }

    fn volatility(&self) -> Volatility {
        DETERMINISTIC
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn documentation(&self) -> &Documentation {
        &DOCUMENTATION
    }

    fn result(&self, arguments: &Arguments<'_>) -> Result<EncryptedField> {
        let left = arguments.encrypted(0)?;
        left.expect(self.name(), &ADDABLE, NOT_A_NUMBER)?;
        if !arguments.is_encrypted(1) {
            return left.clone().shifted(arguments.amount(1, &left.cell_type, "right")?);
        }
        let right = arguments.encrypted(1)?;
        right.expect(self.name(), &[Kind::Integer, Kind::Decimal], "only the left one may be a date or timestamp")?;
        combined(self.name(), left, &right, |a, b| (a.0.checked_add(b.0), a.1.checked_add(b.1)))
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        let arguments = &evaluation.arguments;
        match evaluation.second {
            Some(right) => enc_add(evaluation.cells()?, CellArray::try_new(right).map_err(external)?),
            None => {
                let left = arguments.encrypted(0)?;
                add_constant(evaluation.cells()?, arguments.amount(1, &left.cell_type, "right")?)
            }
        }
        .map_err(external)
    }
}

pub(super) const ADDABLE: [Kind; 4] = [Kind::Integer, Kind::Decimal, Kind::Date, Kind::Timestamp];
pub(super) const NOT_A_NUMBER: &str = "arithmetic needs numbers";

/// The type of a sum or difference. What was known of the bounds in clear is known of the result's.
pub(super) fn combined(
    function: &str,
    left: EncryptedField,
    right: &EncryptedField,
    bounds: impl Fn((i64, i64), (i64, i64)) -> (Option<i64>, Option<i64>),
) -> Result<EncryptedField> {
    let (a, b) = (&left.cell_type, &right.cell_type);
    if a.key != b.key {
        return plan_err!(
            "{function}: the columns belong to different key sets ({} and {}): encrypt both with the same keys",
            a.key,
            b.key
        );
    }
    let scale = |of: &CellType| if of.kind == Kind::Decimal { of.scale } else { 0 };
    if (scale(a), a.fraction_bits) != (scale(b), b.fraction_bits) {
        return plan_err!(
            "{function}: the columns have {} and {} decimal places: bring one to the other's with enc_scale",
            scale(a),
            scale(b)
        );
    }
    if a.nulls != b.nulls {
        return plan_err!("{function}: one column hides its NULLs and the other does not: encrypt both alike");
    }
    let known = a.bounds.zip(b.bounds).map(|(a, b)| bounds(a, b));
    // Where a lane is full by its type, every cell still knows whether its number fits.
    let reach = (1u64 << (a.width.bits() - 1)) + (1u64 << (b.width.bits() - 1));
    let (spent, nullable) = (a.spent.saturating_add(b.spent), left.nullable || right.nullable);
    // Noise of one operand is scaled to that one, and hides the other only by chance.
    let mixed = CellType::mixes_noise(a, b);
    let awaits = [a.awaits.as_slice(), b.awaits.as_slice()].concat();
    let withheld = CellType::withheld_in(a.withheld, b.withheld);
    let mut result = left.unbounded();
    (result.nullable, result.cell_type.withheld) = (nullable, withheld);
    result.cell_type.width = width_of(reach);
    result.cell_type.bounds = known.and_then(|(low, high)| low.zip(high));
    (result.cell_type.spent, result.cell_type.mixed, result.cell_type.awaits) = (spent, mixed, awaits);
    Ok(result)
}
