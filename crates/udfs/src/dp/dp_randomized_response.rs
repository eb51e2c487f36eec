//! `dp_randomized_response(column, epsilon)`: the truth most of the time, any other answer otherwise.

use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, BinaryArray};
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use futures::FutureExt;
use futures::future::BoxFuture;
use rand::CryptoRng;
use veil_cells::{CellArray, Kind, Mechanism};
use veil_privacy::RandomizedResponse;
use veil_protocols::choose::{Categories, choose};
use veil_protocols::{ProtocolError, Randomness, Session};

use super::dp_binary::{flip, flipped};
use super::dp_exponential::{CHOOSING, categories, category, row_bytes, shape};
use super::dp_laplace::refused;
use crate::function::{RANDOM, document};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation, Rounds, VeilContext};

/// Replaces some categories by another. One draw a row answers for every category that it might be.
pub async fn dp_randomized_response<R: CryptoRng + Send + 'static>(
    session: &Session,
    column: CellArray<'_>,
    categories: &Categories,
    mechanism: Arc<RandomizedResponse>,
    mut rng: R,
) -> Result<BinaryArray, ProtocolError> {
    let leaves = categories.leaf_count();
    let answers = move |rows: std::ops::Range<usize>| {
        let mut drawn = Vec::with_capacity(rows.len() * leaves);
        for _ in rows {
            let response = mechanism.draw(&mut rng);
            drawn.extend((0..leaves).map(|truth| response.answer(truth) as u32));
        }
        drawn
    };
    choose(session, column, categories, answers).await
}

#[derive(Debug)]
pub(crate) struct DpRandomizedResponse(VeilContext);

impl DpRandomizedResponse {
    pub(crate) fn new(context: &VeilContext) -> Self {
        Self(context.clone())
    }

    fn mechanism(arguments: &Arguments<'_>, categories: usize) -> Result<RandomizedResponse> {
        RandomizedResponse::new(categories, arguments.epsilon(1)?).map_err(|error| refused(arguments, &error))
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Keeps every category with probability e^epsilon / (e^epsilon + k - 1), for k categories, and otherwise replaces it by any other \
         with the same probability. On truth values and labels it is dp_binary, without rounds.",
        "dp_randomized_response(column, epsilon)",
        "SELECT dp_randomized_response(diagnosis, 2.0) AS diagnosis FROM patients;",
        &[
            ("column", "An encrypted category, as dp_exponential takes it, or an encrypted boolean or binary column."),
            ("epsilon", "The privacy budget, a constant above 0: smaller is more private. At most six decimal places."),
        ],
    )
});

impl CellFunction for DpRandomizedResponse {
    fn name(&self) -> &'static str {
        "dp_randomized_response"
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
        if is_binary(arguments)? {
            return flipped(arguments, Mechanism::Binary);
        }
        let column = category(arguments)?;
        Self::mechanism(arguments, shape(arguments, &column)?.codes().len())?;
        column.noised(Mechanism::RandomizedResponse, arguments.epsilon(1)?, arguments.options())
    }

    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<BinaryArray> {
        flip(evaluation, &self.0)
    }

    fn rounds(&self, arguments: &Arguments<'_>) -> Result<Option<Box<dyn Rounds>>> {
        if is_binary(arguments)? {
            return Ok(None);
        }
        let column = category(arguments)?;
        let shape = shape(arguments, &column)?;
        Ok(Some(Box::new(ResponseRounds {
            categories: categories(arguments, &column, &shape)?,
            mechanism: Arc::new(Self::mechanism(arguments, shape.codes().len())?),
            randomness: self.0.randomness(arguments.options()),
        })))
    }
}

fn is_binary(arguments: &Arguments<'_>) -> Result<bool> {
    Ok(matches!(arguments.encrypted(0)?.cell_type.kind, Kind::Boolean | Kind::Binary))
}

#[derive(Debug)]
struct ResponseRounds {
    categories: Categories,
    mechanism: Arc<RandomizedResponse>,
    randomness: Randomness,
}

impl Rounds for ResponseRounds {
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
            let (cells, rng) = (CellArray::try_new(&column)?, self.randomness.fork());
            dp_randomized_response(session, cells, &self.categories, self.mechanism.clone(), rng).await
        }
        .boxed()
    }
}
