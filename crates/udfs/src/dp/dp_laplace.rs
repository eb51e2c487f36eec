//! `dp_laplace(column, epsilon)`: Laplace noise of scale diameter / epsilon.
//!
//! With public bounds the engine draws discrete Laplace noise in steps of the column's unit and adds it to the bodies, without a
//! round. With encrypted bounds it draws steps of a grid, and P2, which knows the diameter, turns them into steps of the unit
//! without seeing them ([`add_laplace`](veil_protocols::add_laplace)).

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use datafusion::arrow::array::{ArrayRef, BinaryArray};
use datafusion::common::{plan_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use futures::FutureExt;
use futures::future::BoxFuture;
use rand::CryptoRng;
use tokio::sync::OnceCell;
use veil_cells::{CellArray, CellError, ColumnConstants, Kind, Mechanism, add_constants_within};
use veil_privacy::{GridLaplace, LaplaceMechanism};
use veil_protocols::add_laplace::{self, add_laplace};
use veil_protocols::laplace_scale::{EncryptedScale, scale as encrypted_scale};
use veil_protocols::{ProtocolError, Randomness, Session};

use super::value_of_a_row;
use crate::encrypted::width_of;
use crate::function::{RANDOM, document, external};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation, Rounds, VeilContext};

/// Adds the noise of a mechanism to every cell of a column with public bounds.
pub fn dp_laplace<R: CryptoRng + ?Sized>(
    column: CellArray<'_>,
    mechanism: &LaplaceMechanism,
    rng: &mut R,
) -> Result<BinaryArray, CellError> {
    let mut noise = vec![0; column.len()];
    mechanism.fill(&mut noise, rng);
    add_constants_within(column, &noise, mechanism.bound())
}

/// Adds noise to every cell of a column with encrypted bounds, in one round with P2.
pub async fn dp_laplace_encrypted<R: CryptoRng + ?Sized>(
    session: &Session,
    column: CellArray<'_>,
    scale: &EncryptedScale,
    mechanism: &GridLaplace,
    rng: &mut R,
) -> Result<BinaryArray, ProtocolError> {
    let mut steps = vec![0; column.len()];
    mechanism.fill(&mut steps, rng);
    add_laplace(session, scale, column, steps, mechanism.bound()).await
}

#[derive(Debug)]
pub(crate) struct DpLaplace(VeilContext);

impl DpLaplace {
    pub(crate) fn new(context: &VeilContext) -> Self {
        Self(context.clone())
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Adds Laplace noise of scale (upper bound - lower bound) / epsilon to every value, drawn exactly, in steps of the column's unit. \
         The declared bounds are the owner's; where they are encrypted, the noise is made in rounds with P2.",
        "dp_laplace(column, epsilon)",
        "SELECT dp_laplace(salary, 1.0) AS salary FROM staff;",
        &[
            ("column", "An encrypted integer, decimal, date or timestamp that still has its bounds."),
            ("epsilon", "The privacy budget, a constant above 0: smaller is more private. At most six decimal places."),
        ],
    )
});

impl CellFunction for DpLaplace {
    fn name(&self) -> &'static str {
        "dp_laplace"
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
        let kinds = [Kind::Integer, Kind::Decimal, Kind::Date, Kind::Timestamp];
        noised(arguments, &kinds, Mechanism::Laplace)
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        let mechanism = public_mechanism(&evaluation.arguments)?;
        let mut rng = self.0.randomness(evaluation.arguments.options()).fork();
        dp_laplace(evaluation.cells()?, &mechanism, &mut rng).map_err(external)
    }

    fn rounds(&self, arguments: &Arguments<'_>) -> Result<Option<Box<dyn Rounds>>> {
        laplace_rounds(arguments, &self.0)
    }
}

/// The type of a column with noise of this family.
pub(super) fn noised(arguments: &Arguments<'_>, kinds: &[Kind], mechanism: Mechanism) -> Result<EncryptedField> {
    let column = value_of_a_row(arguments)?;
    let instead = "use dp_binary for truth values and labels, dp_exponential for categories";
    column.expect(arguments.function(), kinds, instead)?;
    let epsilon = arguments.epsilon(1)?;
    let noise = match column.cell_type.bounds {
        Some(_) => public_mechanism(arguments)?.bound(),
        None => {
            let (width, steps) = (width(&bounds(arguments, &column)?), grid(arguments)?.bound());
            if steps > add_laplace::MAX_STEP_BOUND {
                return plan_err!(
                    "{}: noise of epsilon {epsilon} is too wide to be hidden from P2: use a larger epsilon, or encrypt the column with \
                     public_range",
                    arguments.function()
                );
            }
            add_laplace::noise_bound(width, steps)
        }
    };
    column.widened(noise)?.noised(mechanism, epsilon, arguments.options())
}

/// The mechanism of a column with public bounds.
pub(super) fn public_mechanism(arguments: &Arguments<'_>) -> Result<LaplaceMechanism> {
    let (column, epsilon) = (arguments.encrypted(0)?, arguments.epsilon(1)?);
    let Some((low, high)) = column.cell_type.bounds else {
        return plan_err!("{}: no public bounds", arguments.function());
    };
    LaplaceMechanism::new(high.abs_diff(low), epsilon).map_err(|error| refused(arguments, &error))
}

fn grid(arguments: &Arguments<'_>) -> Result<GridLaplace> {
    Ok(GridLaplace::new(arguments.epsilon(1)?))
}

pub(super) fn refused(arguments: &Arguments<'_>, error: &dyn std::fmt::Display) -> datafusion::common::DataFusionError {
    plan_datafusion_err!("{}: {error}", arguments.function())
}

fn bounds(arguments: &Arguments<'_>, column: &EncryptedField) -> Result<ColumnConstants> {
    match column.constants()? {
        Some(constants) => Ok(constants),
        None => plan_err!(
            "{}: the bounds of this column are not known any more: add noise to the column itself first, and compute with the \
             result",
            arguments.function()
        ),
    }
}

/// Bits of the distance between the bounds. The column itself may have grown by noise since.
fn width(constants: &ColumnConstants) -> u32 {
    let reach = constants.lower.magnitude().max(constants.upper.magnitude()).unwrap_or_default();
    width_of(reach).bits()
}

/// Noise with encrypted bounds; `None` if they are public.
pub(super) fn laplace_rounds(arguments: &Arguments<'_>, context: &VeilContext) -> Result<Option<Box<dyn Rounds>>> {
    let column = arguments.encrypted(0)?;
    if column.cell_type.bounds.is_some() {
        return Ok(None);
    }
    let constants = bounds(arguments, &column)?;
    Ok(Some(Box::new(LaplaceRounds {
        width: width(&constants),
        constants,
        mechanism: grid(arguments)?,
        randomness: context.randomness(arguments.options()),
        scale: OnceCell::new(),
    })))
}

struct LaplaceRounds {
    constants: ColumnConstants,
    width: u32,
    mechanism: GridLaplace,
    randomness: Randomness,
    /// Asked for once.
    scale: OnceCell<EncryptedScale>,
}

impl std::fmt::Debug for LaplaceRounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LaplaceRounds")
    }
}

impl Rounds for LaplaceRounds {
    fn protocols(&self) -> &'static [&'static str] {
        &["laplace_scale", "add_laplace"]
    }

    fn evaluate<'a>(
        &'a self,
        session: &'a Session,
        column: ArrayRef,
    ) -> BoxFuture<'a, Result<BinaryArray, ProtocolError>> {
        async move {
            let scale = self.scale.get_or_try_init(|| encrypted_scale(session, &self.constants, self.width)).await?;
            let mut rng = self.randomness.fork();
            dp_laplace_encrypted(session, CellArray::try_new(&column)?, scale, &self.mechanism, &mut rng).await
        }
        .boxed()
    }
}
