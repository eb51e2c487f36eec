//! `enc_sub(left, right)`: the difference of an encrypted number and another, encrypted or constant.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use datafusion::arrow::array::BinaryArray;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use veil_cells::{CellArray, CellError, Kind, add_cells, add_constant, negate_cells};

use super::enc_add::{ADDABLE, NOT_A_NUMBER, combined};
use crate::function::{DETERMINISTIC, document, external};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation};

/// The difference of two columns, row by row; NULL where either is.
pub fn enc_sub(left: CellArray<'_>, right: CellArray<'_>) -> Result<BinaryArray, CellError> {
    let negated = negate_cells(right)?;
    add_cells(left, CellArray::Binary(&negated))
}

#[derive(Debug)]
pub(crate) struct EncSub;

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Subtracts an encrypted number, or a constant, from an encrypted one. The difference of two dates is an integer, days; of \
         two timestamps of the same unit, steps.",
        "enc_sub(left, right)",
        "SELECT enc_sub(discharged, admitted) AS days FROM stays;",
        &[("left", "An encrypted number."), ("right", "An encrypted number, or a constant in the left one's unit.")],
    )
});

impl CellFunction for EncSub {
    fn name(&self) -> &'static str {
        "enc_sub"
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
            return left.clone().shifted(-arguments.amount(1, &left.cell_type, "right")?);
        }
        let right = arguments.encrypted(1)?;
        right.expect(self.name(), &ADDABLE, NOT_A_NUMBER)?;
        let moments = [Kind::Date, Kind::Timestamp];
        let (a, b) = (left.cell_type.kind, right.cell_type.kind);
        let between = moments.contains(&a) && a == b && left.cell_type.unit == right.cell_type.unit;
        if moments.contains(&b) && !between {
            return plan_err!("enc_sub: a {b} cannot be subtracted from a column of kind {a}, or of another unit");
        }
        if left.hides_nulls() {
            return plan_err!("enc_sub: subtracting columns that hide their NULLs would lose which rows are NULL");
        }
        let difference = |a: (i64, i64), b: (i64, i64)| (a.0.checked_sub(b.1), a.1.checked_sub(b.0));
        let mut result = combined(self.name(), left, &right, difference)?;
        if between {
            result = result.without_note();
            result.cell_type.kind = Kind::Integer;
        }
        Ok(result)
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        let arguments = &evaluation.arguments;
        match evaluation.second {
            Some(right) => enc_sub(evaluation.cells()?, CellArray::try_new(right).map_err(external)?),
            None => {
                let left = arguments.encrypted(0)?;
                add_constant(evaluation.cells()?, -arguments.amount(1, &left.cell_type, "right")?)
            }
        }
        .map_err(external)
    }
}
