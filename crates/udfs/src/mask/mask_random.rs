//! `mask_random(column [, low, high])`: every value replaced by a random one that the engine draws.

use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, BinaryArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Documentation, Volatility};
use futures::FutureExt;
use futures::future::BoxFuture;
use rand::{CryptoRng, Rng};
use veil_cells::{CellArray, CellArrayBuilder, CellType, Kind, Lanes, TEXT_BYTES_PER_LANE, push_text};
use veil_protocols::zeros::{self, Rows, fresh_cells};
use veil_protocols::{ProtocolError, Randomness, Session};

use crate::encrypted::width_of;
use crate::function::{RANDOM, document};
use crate::{Arguments, CellFunction, EncryptedField, Evaluation, Rounds, VeilContext};

/// Rows that become one message of zeros.
const CHUNK: usize = zeros::MAX_ROWS;

/// Where random values come from.
#[derive(Clone, Debug)]
enum Source {
    /// Numbers in a range, in steps of the unit.
    Numbers(RangeInclusive<i64>),
    /// Letters and digits, as many as fit.
    Text,
    /// Any leaf of the hierarchy.
    Leaves(Arc<[Vec<i64>]>),
}

impl Source {
    /// Appends the lanes of one value.
    fn draw<R: CryptoRng + ?Sized>(&self, lanes: u8, messages: &mut Vec<i64>, rng: &mut R) {
        const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
        match self {
            Self::Numbers(range) => messages.push(rng.random_range(range.clone())),
            Self::Text => {
                let length = usize::from(lanes) * TEXT_BYTES_PER_LANE;
                let text: String =
                    (0..length).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])).collect();
                push_text(&text, lanes, messages);
            }
            Self::Leaves(codes) => messages.extend_from_slice(&codes[rng.random_range(0..codes.len())]),
        }
    }
}

/// Random values for as many rows, in a round that makes fresh zeros; NULL stays NULL.
async fn random_cells(
    session: &Session,
    rows: usize,
    nulls: Option<&NullBuffer>,
    of: &CellType,
    source: &Source,
    randomness: &Randomness,
) -> Result<BinaryArray, ProtocolError> {
    let shape = Lanes { tag: false, ..of.cell_lanes() };
    let magnitude = match source {
        Source::Numbers(range) => Some(range.start().unsigned_abs().max(range.end().unsigned_abs())),
        _ => None,
    };
    let mut rng = randomness.fork();
    let mut chunks = Vec::with_capacity(rows.div_ceil(CHUNK));
    for first in (0..rows).step_by(CHUNK) {
        let count = CHUNK.min(rows - first);
        let mut messages = Vec::with_capacity(count * shape.total());
        for _ in 0..count {
            source.draw(of.lanes, &mut messages, &mut rng);
            messages.extend(shape.nulls.then_some(0));
        }
        chunks.push(Rows { messages, shape, magnitude });
    }
    let cells = fresh_cells(session, chunks).await?;
    let mut builder = CellArrayBuilder::with_capacity(rows, 50);
    for row in 0..rows {
        match nulls.is_some_and(|nulls| nulls.is_null(row)) {
            true => builder.push_null()?,
            false => builder.push_bytes(cells[row / CHUNK].value(row % CHUNK))?,
        }
    }
    Ok(builder.finish()?)
}

/// Replaces every number by a random one in a range, in steps of the column's unit.
pub async fn mask_random(
    session: &Session,
    column: CellArray<'_>,
    of: &CellType,
    range: RangeInclusive<i64>,
    randomness: &Randomness,
) -> Result<BinaryArray, ProtocolError> {
    random_cells(session, column.len(), column.nulls(), of, &Source::Numbers(range), randomness).await
}

#[derive(Debug)]
pub(crate) struct MaskRandom(VeilContext);

impl MaskRandom {
    pub(crate) fn new(context: &VeilContext) -> Self {
        Self(context.clone())
    }

    /// Where the values of a call come from.
    fn source(&self, arguments: &Arguments<'_>, column: &EncryptedField) -> Result<Source> {
        let of = CellType { fraction_bits: 0, ..column.cell_type.clone() };
        let ranged = arguments.len() > 1;
        match of.kind {
            Kind::Text | Kind::Category | Kind::Boolean | Kind::Binary if ranged => {
                plan_err!("mask_random: low and high mean nothing for a column of kind {}: leave them out", of.kind)
            }
            Kind::Text => Ok(Source::Text),
            Kind::Boolean | Kind::Binary => Ok(Source::Numbers(0..=1)),
            Kind::Category => match column.shape()? {
                Some(shape) => Ok(Source::Leaves(shape.codes().into())),
                None => plan_err!(
                    "mask_random: the shape of this column's hierarchy is not known: use mask_redact, or encrypt the column without \
                     hide_shape"
                ),
            },
            _ => {
                let (low, high) = match (ranged, of.bounds) {
                    (true, _) => (arguments.value(1, &of, "low")?, arguments.value(2, &of, "high")?),
                    (false, Some(bounds)) => bounds,
                    (false, None) => {
                        return plan_err!("mask_random: the bounds of this column are not public: give low and high");
                    }
                };
                if low > high {
                    return plan_err!("mask_random: low lies above high: exchange them");
                }
                Ok(Source::Numbers(low..=high))
            }
        }
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::SECTION,
        "Replaces every value by a random one of its kind: a number between low and high, letters and digits, any category, either label. \
         The engine draws it and adds it to an encrypted zero that P2 makes. A visible NULL stays NULL, a hidden one is replaced too.",
        "mask_random(column [, low, high])",
        "SELECT mask_random(ssn) AS ssn, mask_random(zip, 10000, 99999) AS zip FROM patients;",
        &[
            ("column", "Any encrypted column."),
            ("low", "The smallest number, date or timestamp; by default the column's own, if that is public."),
            ("high", "The largest."),
        ],
    )
});

impl CellFunction for MaskRandom {
    fn name(&self) -> &'static str {
        "mask_random"
    }

    fn volatility(&self) -> Volatility {
        RANDOM
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=3
    }

    fn documentation(&self) -> &Documentation {
        &DOCUMENTATION
    }

    fn result(&self, arguments: &Arguments<'_>) -> Result<EncryptedField> {
        if arguments.len() == 2 {
            return plan_err!("mask_random takes low and high together: {}", DOCUMENTATION.syntax_example);
        }
        let column = arguments.encrypted(0)?;
        let source = self.source(arguments, &column)?;
        let mut result = column.replaced();
        if let Source::Numbers(range) = source {
            let reach = range.start().unsigned_abs().max(range.end().unsigned_abs()) + 1;
            result.cell_type.width = result.cell_type.width.max(width_of(reach));
            result.cell_type.bounds = Some((*range.start(), *range.end()));
        }
        Ok(result)
    }

    fn evaluate(&self, _: &Evaluation<'_>) -> Result<BinaryArray> {
        plan_err!("mask_random needs rounds with P2")
    }

    fn rounds(&self, arguments: &Arguments<'_>) -> Result<Option<Box<dyn Rounds>>> {
        let column = arguments.encrypted(0)?;
        Ok(Some(Box::new(RandomRounds {
            source: self.source(arguments, &column)?,
            of: column.cell_type,
            randomness: self.0.randomness(arguments.options()),
        })))
    }
}

#[derive(Debug)]
struct RandomRounds {
    source: Source,
    of: CellType,
    randomness: Randomness,
}

impl Rounds for RandomRounds {
    fn protocols(&self) -> &'static [&'static str] {
        &["zeros"]
    }

    fn draws_anew(&self) -> bool {
        true
    }

    fn evaluate<'a>(
        &'a self,
        session: &'a Session,
        column: ArrayRef,
    ) -> BoxFuture<'a, Result<BinaryArray, ProtocolError>> {
        async move {
            random_cells(session, column.len(), column.nulls(), &self.of, &self.source, &self.randomness).await
        }
        .boxed()
    }
}
