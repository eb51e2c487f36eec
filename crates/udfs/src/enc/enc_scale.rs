//! `enc_scale(column, factor)`: an encrypted number times a small integer.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use datafusion::arrow::array::BinaryArray;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use veil_cells::{CellArray, CellError, Kind, scale_cells};

use super::enc_add::NOT_A_NUMBER;
use crate::encrypted::width_of;
use crate::function::{DETERMINISTIC, document, external};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation};

/// The largest factor that leaves the noise of a fresh cell within its budget.
const MOST: i64 = 4095;

/// Every cell times the same integer.
pub fn enc_scale(column: CellArray<'_>, factor: i64) -> Result<BinaryArray, CellError> {
    scale_cells(column, factor)
}

#[derive(Debug)]
pub(crate) struct EncScale;

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Multiplies an encrypted number by a whole number between -4095 and 4095. Each multiplication uses up part of a cell's \
         noise budget; a product that would exceed it is refused.",
        "enc_scale(column, factor)",
        "SELECT enc_scale(weekly_hours, 52) AS yearly_hours FROM staff;",
        &[("column", "An encrypted integer or decimal."), ("factor", "A constant whole number.")],
    )
});

impl CellFunction for EncScale {
    fn name(&self) -> &'static str {
        "enc_scale"
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
        let column = arguments.encrypted(0)?;
        column.expect(self.name(), &[Kind::Integer, Kind::Decimal], NOT_A_NUMBER)?;
        let factor = arguments.integer(1, "factor")?;
        if !(-MOST..=MOST).contains(&factor) {
            return plan_err!("enc_scale: factor is {factor}, and the noise budget allows -{MOST} to {MOST}");
        }
        // Where a lane is full by its type, every cell still knows whether its number fits.
        let reach = (1u64 << (column.cell_type.width.bits() - 1)) * factor.unsigned_abs();
        let bounds = column.cell_type.bounds;
        let mut result = column.unbounded();
        result.cell_type.width = width_of(reach.max(1));
        let ends = bounds.and_then(|(low, high)| low.checked_mul(factor).zip(high.checked_mul(factor)));
        result.cell_type.bounds = ends.map(|(a, b)| (a.min(b), a.max(b)));
        Ok(result)
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        enc_scale(evaluation.cells()?, evaluation.arguments.integer(1, "factor")?).map_err(external)
    }
}
