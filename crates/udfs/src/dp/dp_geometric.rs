//! `dp_geometric(column, epsilon)`: two-sided geometric noise on whole numbers.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use datafusion::arrow::array::BinaryArray;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use rand::CryptoRng;
use veil_cells::{CellArray, CellError, Kind, Mechanism, add_constants_within};
use veil_privacy::GeometricMechanism;

use super::dp_laplace::{laplace_rounds, noised, refused};
use crate::function::{RANDOM, document, external};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation, Rounds, VeilContext};

/// Adds the noise of a mechanism to every cell of a column with public bounds.
pub fn dp_geometric<R: CryptoRng + ?Sized>(
    column: CellArray<'_>,
    mechanism: &GeometricMechanism,
    rng: &mut R,
) -> Result<BinaryArray, CellError> {
    let mut noise = vec![0; column.len()];
    mechanism.fill(&mut noise, rng);
    add_constants_within(column, &noise, mechanism.bound())
}

#[derive(Debug)]
pub(crate) struct DpGeometric(VeilContext);

impl DpGeometric {
    pub(crate) fn new(context: &VeilContext) -> Self {
        Self(context.clone())
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Adds two-sided geometric noise to every whole number, P(x) proportional to exp(-|x| epsilon / (upper bound - lower bound)): the \
         discrete twin of dp_laplace. Where the bounds are encrypted, both draw the same noise, in rounds with P2.",
        "dp_geometric(column, epsilon)",
        "SELECT dp_geometric(age, 0.5) AS age FROM patients;",
        &[
            ("column", "An encrypted integer, date or timestamp that still has its bounds."),
            ("epsilon", "The privacy budget, a constant above 0: smaller is more private. At most six decimal places."),
        ],
    )
});

impl CellFunction for DpGeometric {
    fn name(&self) -> &'static str {
        "dp_geometric"
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
        noised(arguments, &[Kind::Integer, Kind::Date, Kind::Timestamp], Mechanism::Geometric)
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        let arguments = &evaluation.arguments;
        let Some((low, high)) = arguments.encrypted(0)?.cell_type.bounds else {
            return plan_err!("dp_geometric: no public bounds");
        };
        let mechanism = GeometricMechanism::new(high.abs_diff(low), arguments.epsilon(1)?);
        let mechanism = mechanism.map_err(|error| refused(arguments, &error))?;
        let mut rng = self.0.randomness(arguments.options()).fork();
        dp_geometric(evaluation.cells()?, &mechanism, &mut rng).map_err(external)
    }

    fn rounds(&self, arguments: &Arguments<'_>) -> Result<Option<Box<dyn Rounds>>> {
        laplace_rounds(arguments, &self.0)
    }
}
