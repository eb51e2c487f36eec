//! `dp_binary(column, epsilon)`: truth values flipped with probability `1 / (1 + e^epsilon)`.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use datafusion::arrow::array::BinaryArray;
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use rand::CryptoRng;
use veil_cells::{Cell, CellArray, CellArrayBuilder, CellError, Kind, Mechanism};
use veil_privacy::BinaryMechanism;

use super::value_of_a_row;
use crate::function::{RANDOM, document, external};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation, VeilContext};

/// Flips some cells: `1 - d`, the paper's `u + l - d` for the codes 0 and 1. Headers of flipped and kept rows are alike.
pub fn dp_binary<R: CryptoRng + ?Sized>(
    column: CellArray<'_>,
    mechanism: &BinaryMechanism,
    rng: &mut R,
) -> Result<BinaryArray, CellError> {
    let mut cell = Cell::scratch();
    let mut builder = CellArrayBuilder::with_capacity(column.len(), 58);
    for row in 0..column.len() {
        let Some(bytes) = column.bytes(row) else {
            builder.push_null()?;
            continue;
        };
        cell.read(bytes)?;
        let flip = mechanism.flips(rng);
        if flip {
            cell.negate()?;
        }
        cell.add_constant_within(i64::from(flip), 1)?;
        builder.push(&cell)?;
    }
    builder.finish()
}

#[derive(Debug)]
pub(crate) struct DpBinary(VeilContext);

impl DpBinary {
    pub(crate) fn new(context: &VeilContext) -> Self {
        Self(context.clone())
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Flips every truth value, or swaps every label of a column with two, with probability 1 / (1 + e^epsilon), drawn exactly.",
        "dp_binary(column, epsilon)",
        "SELECT dp_binary(smoker, 1.0) AS smoker FROM patients;",
        &[
            ("column", "An encrypted boolean or binary column."),
            ("epsilon", "The privacy budget, a constant above 0: smaller is more private. At most six decimal places."),
        ],
    )
});

impl CellFunction for DpBinary {
    fn name(&self) -> &'static str {
        "dp_binary"
    }

    fn volatility(&self) -> Volatility {
        RANDOM
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn documentation(&self) -> &Documentation {
        &DOCUMENTATION
    }

    fn result(&self, arguments: &Arguments<'_>) -> Result<EncryptedField> {
        flipped(arguments, Mechanism::Binary)
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        flip(evaluation, &self.0)
    }
}

/// The type of a column that is flipped at times.
pub(super) fn flipped(arguments: &Arguments<'_>, mechanism: Mechanism) -> Result<EncryptedField> {
    let column = value_of_a_row(arguments)?;
    let instead = "use dp_laplace for numbers, dp_exponential for categories";
    column.expect(arguments.function(), &[Kind::Boolean, Kind::Binary], instead)?;
    column.noised(mechanism, arguments.epsilon(1)?, arguments.options())
}

pub(super) fn flip(evaluation: &Evaluation<'_>, context: &VeilContext) -> Result<BinaryArray> {
    let mechanism = BinaryMechanism::new(evaluation.arguments.epsilon(1)?);
    let mut rng = context.randomness(evaluation.arguments.options()).fork();
    dp_binary(evaluation.cells()?, &mechanism, &mut rng).map_err(external)
}
