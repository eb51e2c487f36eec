//! Risk and utility of a table, from ciphertexts: only the measures themselves are opened (the paper's 5.5).
//!
//! ```text
//!  classes             sizes of classes                          identifiers, size_histogram            risk, AECS, discernibility
//!  ancestors           whether categories were moved up          multiply, slot_sum, few                what follows
//!  generalisation      how far up categories were moved          lookup, slot_sum                       precision, generalised loss
//!  entropy             how much categories no longer tell        lookup, lookup_long, ratio             non-uniform entropy
//!  information_loss    how far numbers were moved                truncate, multiply, ratio              SSE / SST
//!  ratio               a quotient of two secrets                 few, fold, multiply
//!  ranges, ends        how wide classes of numbers are           group, gather, few, multiply, ratio    range-based NCP, on request
//! ```
//! Sums are of whole numbers and exact, and so equal what `veil_privacy::utility` computes in clear, to the last bit.

mod ancestors;
mod classes;
mod cost;
mod ends;
mod entropy;
mod generalisation;
mod information_loss;
mod ranges;
mod ratio;

use veil_slots::{DEGREE, Factor, L0, L1, L2, Slots};

pub use ancestors::ancestors;
pub use classes::{Suppressed, class_sizes};
pub use cost::Shape;
pub use entropy::{Frequencies, MAX_NODES, entropy};
pub use generalisation::{Generalised, Published, generalisation};
pub use information_loss::{Loss, MAX_ROWS, Numbers, information_loss};
pub use ranges::{Classes, ranges, width_bits};

use crate::open::{Aggregate, Purpose, open};
use crate::slot_sum::slot_sum;
use crate::{ProtocolError, Session};

/// Ones in the slots of a chunk that hold rows.
fn rows_of_chunk(rows: usize, chunk: usize) -> Factor {
    Factor::new(&vec![1; rows.saturating_sub(chunk * DEGREE).min(DEGREE)])
}

/// The sum of a vector's chunks over all rows, on its way to P2.
fn over_rows(rows: usize, chunks: &[Slots<L1>]) -> Option<Slots<L2>> {
    let masked = chunks.iter().enumerate().map(|(chunk, slots)| slots.times(&rows_of_chunk(rows, chunk)));
    masked.reduce(|mut sum, slots| {
        sum.add(&slots);
        sum
    })
}

/// For each of these columns of numbers its sum over all rows, in every slot.
async fn column_sums(
    session: &Session,
    rows: usize,
    columns: &[Vec<Slots<L1>>],
) -> Result<Vec<Slots<L0>>, ProtocolError> {
    let sums = columns.iter().map(|chunks| over_rows(rows, chunks)).collect::<Option<Vec<_>>>();
    let sums = sums.ok_or_else(|| ProtocolError::Misuse("a column without rows has no sum".to_owned()))?;
    slot_sum(session, sums).await
}

/// Numbers that are in every slot of their vectors, one a slot, each times a clear number.
fn packed<'a>(numbers: impl IntoIterator<Item = &'a Slots<L0>>, times: u64) -> Slots<L1> {
    let numbers: Vec<&Slots<L0>> = numbers.into_iter().collect();
    let own = |place: usize| {
        let mut only = vec![0; place];
        only.push(times);
        Factor::new(&only)
    };
    let indicators: Vec<Factor> = (0..numbers.len()).map(own).collect();
    Slots::dot_any(numbers.into_iter().zip(&indicators)).unwrap_or_else(|| Slots::clear(&[]))
}

/// Shows P1 the first numbers of a vector: measures, which a query declares that it asks for.
async fn opened(session: &Session, slots: Slots<L1>, count: usize) -> Result<Vec<i64>, ProtocolError> {
    let aggregate = Aggregate { slots, count: count as u32, purpose: Purpose::Metric };
    open(session, vec![aggregate]).await?.pop().ok_or(ProtocolError::Cancelled)
}
