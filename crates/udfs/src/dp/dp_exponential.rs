//! `dp_exponential(column, epsilon [, utility])`: a category replaced by a similar one (McSherry, Talwar 2007).
//!
//! For every row the engine draws an answer for each category that the value might be; the lookup picks the one for the true
//! value, and neither server learns which ([`choose`](veil_protocols::choose)).

use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, BinaryArray};
use datafusion::common::{plan_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use futures::FutureExt;
use futures::future::BoxFuture;
use rand::CryptoRng;
use veil_cells::{CategoryShape, CellArray, Kind, Mechanism};
use veil_privacy::{CategoryError, ExponentialMechanism, Losses};
use veil_protocols::choose::{Categories, choose};
use veil_protocols::{ProtocolError, Randomness, Session};

use super::dp_laplace::refused;
use super::value_of_a_row;
use crate::function::{RANDOM, document};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation, Rounds, VeilContext};

/// What makes an answer useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Utility {
    /// A common ancestor low in the hierarchy.
    Hierarchy,
    /// A place nearby in the order of the leaves.
    Order,
    /// Being the true one.
    Equality,
}

impl Utility {
    /// How much an answer loses, for every true value.
    pub fn losses(self, shape: &CategoryShape) -> Result<Losses, CategoryError> {
        match self {
            Self::Hierarchy => Losses::hierarchy(shape.codes()),
            Self::Order => Losses::order(shape.codes().len()),
            Self::Equality => Losses::equality(shape.codes().len()),
        }
    }

    fn mechanism(self) -> Mechanism {
        match self {
            Self::Hierarchy => Mechanism::ExponentialHierarchy,
            Self::Order => Mechanism::ExponentialOrder,
            Self::Equality => Mechanism::ExponentialEquality,
        }
    }

    fn of(arguments: &Arguments<'_>) -> Result<Self> {
        if arguments.len() < 3 {
            return Ok(Self::Hierarchy);
        }
        match arguments.text(2, "utility")? {
            "hierarchy" => Ok(Self::Hierarchy),
            "order" => Ok(Self::Order),
            "equality" => Ok(Self::Equality),
            other => plan_err!("dp_exponential: utility is '{other}', and may be 'hierarchy', 'order' or 'equality'"),
        }
    }
}

/// Replaces every category as the mechanism draws.
pub async fn dp_exponential<R: CryptoRng + Send + 'static>(
    session: &Session,
    column: CellArray<'_>,
    categories: &Categories,
    mechanism: Arc<ExponentialMechanism>,
    mut rng: R,
) -> Result<BinaryArray, ProtocolError> {
    let leaves = categories.leaf_count();
    let answers = move |rows: std::ops::Range<usize>| {
        let mut drawn = vec![0; rows.len() * leaves];
        drawn.chunks_exact_mut(leaves.max(1)).for_each(|answers| mechanism.draw_all(answers, &mut rng));
        drawn
    };
    choose(session, column, categories, answers).await
}

#[derive(Debug)]
pub(crate) struct DpExponential(VeilContext);

impl DpExponential {
    pub(crate) fn new(context: &VeilContext) -> Self {
        Self(context.clone())
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Replaces every category by one drawn with probability proportional to exp(epsilon * utility / 2), exactly, in rounds with P2. The \
         engine knows the shape of the hierarchy, not its labels, and not which category a row has before or after.",
        "dp_exponential(column, epsilon [, utility])",
        "SELECT dp_exponential(education, 1.0) AS education FROM staff;",
        &[
            (
                "column",
                "An encrypted category of at most 1023 leaves whose owner did not hide the shape of the hierarchy.",
            ),
            ("epsilon", "The privacy budget, a constant above 0: smaller is more private. At most six decimal places."),
            (
                "utility",
                "'hierarchy' (the lower the common ancestor, the better; the default), 'order' (the nearer in the order of leaves, \
                 the better) or 'equality' (all others are alike).",
            ),
        ],
    )
});

impl CellFunction for DpExponential {
    fn name(&self) -> &'static str {
        "dp_exponential"
    }

    fn volatility(&self) -> Volatility {
        RANDOM
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn documentation(&self) -> &Documentation {
        &DOCUMENTATION
    }

    fn result(&self, arguments: &Arguments<'_>) -> Result<EncryptedField> {
        let column = category(arguments)?;
        let utility = Utility::of(arguments)?;
        utility.losses(&shape(arguments, &column)?).map_err(|error| refused(arguments, &error))?;
        column.noised(utility.mechanism(), arguments.epsilon(1)?, arguments.options())
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        plan_err!("{} needs rounds with P2", evaluation.arguments.function())
    }

    fn rounds(&self, arguments: &Arguments<'_>) -> Result<Option<Box<dyn Rounds>>> {
        let column = category(arguments)?;
        let shape = shape(arguments, &column)?;
        let losses = Utility::of(arguments)?.losses(&shape).map_err(|error| refused(arguments, &error))?;
        Ok(Some(Box::new(ExponentialRounds {
            categories: categories(arguments, &column, &shape)?,
            mechanism: Arc::new(ExponentialMechanism::new(losses, arguments.epsilon(1)?)),
            randomness: self.0.randomness(arguments.options()),
        })))
    }
}

/// The protocols that answer for every category.
pub(super) const CHOOSING: &[&str] = &["lift", "lookup", "lower"];

/// Draws for every category, and a ciphertext each way for every candidate.
pub(super) fn row_bytes(categories: &Categories) -> usize {
    200 + 70 * categories.leaf_count()
}

/// An encrypted category.
pub(super) fn category(arguments: &Arguments<'_>) -> Result<EncryptedField> {
    let column = value_of_a_row(arguments)?;
    let instead = "use dp_laplace for numbers, dp_binary for truth values and labels";
    column.expect(arguments.function(), &[Kind::Category], instead)?;
    Ok(column)
}

/// The shape of its hierarchy.
pub(super) fn shape(arguments: &Arguments<'_>, column: &EncryptedField) -> Result<CategoryShape> {
    column.shape()?.ok_or_else(|| {
        plan_datafusion_err!(
            "{}: the shape of this column's hierarchy is not known: encrypt the column without hide_shape, and with at most {} leaves",
            arguments.function(),
            CategoryShape::MAX_LEAVES
        )
    })
}

pub(super) fn categories(
    arguments: &Arguments<'_>,
    column: &EncryptedField,
    shape: &CategoryShape,
) -> Result<Categories> {
    Categories::new(shape.codes(), column.cell_type.width.bits()).map_err(|error| refused(arguments, &error))
}

#[derive(Debug)]
struct ExponentialRounds {
    categories: Categories,
    mechanism: Arc<ExponentialMechanism>,
    randomness: Randomness,
}

impl Rounds for ExponentialRounds {
    fn protocols(&self) -> &'static [&'static str] {
        CHOOSING
    }

    fn row_bytes(&self) -> usize {
        row_bytes(&self.categories)
    }

    fn evaluate<'a>(
        &'a self,
        session: &'a Session,
        column: ArrayRef,
    ) -> BoxFuture<'a, Result<BinaryArray, ProtocolError>> {
        async move {
            let cells = CellArray::try_new(&column)?;
            dp_exponential(session, cells, &self.categories, self.mechanism.clone(), self.randomness.fork()).await
        }
        .boxed()
    }
}
