//! `mask_shift(column, amount)`: every value moved by the same amount.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use datafusion::arrow::array::BinaryArray;
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use veil_cells::{CellArray, CellError, Kind, add_constant};

use crate::function::{DETERMINISTIC, document, external};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation};

/// Adds `amount`, in steps of the column's unit, to every cell: only bodies change, no round.
pub fn mask_shift(column: CellArray<'_>, amount: i64) -> Result<BinaryArray, CellError> {
    add_constant(column, amount)
}

#[derive(Debug)]
pub(crate) struct MaskShift;

pub(crate) const NUMBERS: [Kind; 4] = [Kind::Integer, Kind::Decimal, Kind::Date, Kind::Timestamp];

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Moves every value of an encrypted number, date or timestamp by the same amount. The amount is no secret of the engine: \
         whoever knows one value before and after knows all.",
        "mask_shift(column, amount)",
        "SELECT mask_shift(age, 3) AS age FROM patients;",
        &[
            ("column", "An encrypted integer, decimal, date or timestamp."),
            ("amount", "A constant in the column's unit; days for a date, steps of its unit for a timestamp."),
        ],
    )
});

impl CellFunction for MaskShift {
    fn name(&self) -> &'static str {
        "mask_shift"
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
        column.expect(self.name(), &NUMBERS, "use mask_dictionary, mask_random or mask_redact")?;
        let amount = arguments.amount(1, &column.cell_type, "amount")?;
        column.shifted(amount)
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        let column = evaluation.arguments.encrypted(0)?;
        let amount = evaluation.arguments.amount(1, &column.cell_type, "amount")?;
        mask_shift(evaluation.cells()?, amount).map_err(external)
    }
}
