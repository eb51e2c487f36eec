//! `mask_redact(column [, value])`: every value replaced by the same one.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use datafusion::arrow::array::{Array, BinaryArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use veil_cells::{Cell, CellArrayBuilder, CellError, CellType, Kind, Lanes, phase_of_message, push_text};

use crate::encrypted::width_of;
use crate::function::{DETERMINISTIC, document, external};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation, VeilContext};

/// The same cell for every row; NULL stays NULL. That all rows are the same is no secret.
pub fn mask_redact(rows: usize, nulls: Option<&NullBuffer>, cell: &Cell) -> Result<BinaryArray, CellError> {
    let bytes = cell.to_bytes();
    let mut builder = CellArrayBuilder::with_capacity(rows, bytes.len());
    for row in 0..rows {
        match nulls.is_some_and(|nulls| nulls.is_null(row)) {
            true => builder.push_null()?,
            false => builder.push_bytes(&bytes)?,
        }
    }
    builder.finish()
}

#[derive(Debug)]
pub(crate) struct MaskRedact(VeilContext);

impl MaskRedact {
    pub(crate) fn new(context: &VeilContext) -> Self {
        Self(context.clone())
    }

    /// The value's messages, one a lane.
    fn messages(&self, arguments: &Arguments<'_>, of: &CellType) -> Result<Vec<i64>> {
        let given = arguments.len() > 1;
        let mut messages = Vec::new();
        match of.kind {
            Kind::Text => {
                let text = if given { arguments.text(1, "value")? } else { "" };
                if !push_text(text, of.lanes, &mut messages) {
                    return plan_err!(
                        "mask_redact: '{text}' is longer than the column's texts may be: use a shorter one"
                    );
                }
            }
            // Generalised beyond every level but the root, which stands for everything.
            Kind::Category if given => {
                return plan_err!(
                    "mask_redact: a category is redacted to the root of its hierarchy: leave out the value"
                );
            }
            Kind::Category => messages.extend((1..of.lanes).map(|_| -1).chain([0])),
            Kind::Integer | Kind::Decimal if !given => messages.push(0),
            kind if !given => {
                return plan_err!("mask_redact: a column of kind {kind} needs a value: mask_redact(column, value)");
            }
            Kind::Binary | Kind::Boolean => {
                let value = arguments.value(1, of, "value")?;
                if !(0..=1).contains(&value) {
                    return plan_err!("mask_redact: value is {value}, and a column of kind {} has 0 and 1", of.kind);
                }
                messages.push(value);
            }
            _ => messages.push(arguments.value(1, of, "value")?),
        }
        Ok(messages)
    }

    /// The cell that all rows get.
    fn cell(&self, arguments: &Arguments<'_>, of: &CellType) -> Result<Cell> {
        let lanes = Lanes { tag: false, ..of.cell_lanes() };
        let zero = self.0.zero(of.key, lanes)?;
        let messages = self.messages(arguments, of)?;
        let magnitude = (lanes.value == 1 && of.kind.is_number()).then(|| messages[0].unsigned_abs());
        let bodies =
            zero.bodies().iter().enumerate().map(|(lane, body)| {
                body.wrapping_add(phase_of_message(messages.get(lane).copied().unwrap_or_default()))
            });
        let bodies: Vec<u64> = bodies.collect();
        zero.with_bodies(magnitude, &bodies).map_err(external)
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Replaces every value by the same one: the empty text, zero, the root of a hierarchy, or a value of your choice. A \
         visible NULL stays NULL, a hidden one is replaced too. The cell is one of the encrypted zeros that the owner shipped with the file, plus the value.",
        "mask_redact(column [, value])",
        "SELECT mask_redact(email) AS email, mask_redact(name, 'withheld') AS name FROM patients;",
        &[
            ("column", "Any encrypted column."),
            (
                "value",
                "A constant of the column's kind; dates as '2024-01-31', 0 or 1 for the labels of a binary column.",
            ),
        ],
    )
});

impl CellFunction for MaskRedact {
    fn name(&self) -> &'static str {
        "mask_redact"
    }

    fn volatility(&self) -> Volatility {
        DETERMINISTIC
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=2
    }

    fn documentation(&self) -> &Documentation {
        &DOCUMENTATION
    }

    fn result(&self, arguments: &Arguments<'_>) -> Result<EncryptedField> {
        let mut result = arguments.encrypted(0)?.replaced();
        let cell = self.cell(arguments, &result.cell_type)?;
        let reach = cell.magnitude().map_or(0, |magnitude| magnitude + 1);
        result.cell_type.width = result.cell_type.width.max(width_of(reach));
        Ok(result)
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        let of = evaluation.arguments.encrypted(0)?.replaced().cell_type;
        let cell = self.cell(&evaluation.arguments, &of)?;
        mask_redact(evaluation.column.len(), evaluation.column.nulls(), &cell).map_err(external)
    }
}
