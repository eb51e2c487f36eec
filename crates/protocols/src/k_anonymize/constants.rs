//! What numbers are scaled by, in every slot.
//!
//! ```text
//!  `lift_wide`:  lower, upper and R of every column, once a run
//!  `broadcast`:  each in every slot
//!  S = 2^7 R + floor((2^40 - R D) R / 2^33),  D = upper - lower          `multiply`, `few`, `broadcast`
//! ```
//! A number that was lifted many times would be masked less well, as masks of `lift` are a little short of uniform; so bounds are lifted
//! once, with uniform masks.

use veil_cells::{ColumnConstants, phase_of_message};
use veil_privacy::clusters::{RECIPROCAL_BITS, REFINED_SHIFT, SCALE_BITS, scale_of_range};
use veil_slots::{DEGREE, Factor, L0, L1, Offset, Sample, Slots, plain};

use crate::broadcast::broadcast;
use crate::few::truncate_half;
use crate::laplace_scale::sample_of;
use crate::lift::{MAX_WIDTH, Rows};
use crate::lift_wide::lift_wide;
use crate::multiply::multiply;
use crate::truncate::{Dividend, Rounding};
use crate::{ProtocolError, Session, Tiles};

/// Added to bounds, so that none is negative.
const HALF: u64 = 1 << (MAX_WIDTH - 1);

/// Numbers of a column, each in every slot.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// The lower bound.
    pub(crate) lower: Slots<L0>,
    /// How far the upper one is from it.
    pub(crate) range: Slots<L0>,
    /// `2^47` by the range.
    pub(crate) scale: Slots<L0>,
}

impl Scale {
    /// Of bounds that P1 knows.
    pub(crate) fn public(lower: i64, upper: i64) -> Self {
        let everywhere = |number: i64| Slots::clear(&[plain::from_signed(number); DEGREE]);
        let range = upper.saturating_sub(lower);
        Self { lower: everywhere(lower), range: everywhere(range), scale: everywhere(scale_of_range(range)) }
    }

    /// Of encrypted bounds.
    pub(crate) async fn encrypted(session: &Session, columns: &[&ColumnConstants]) -> Result<Vec<Self>, ProtocolError> {
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let count = columns.len();
        let mut numbers = everywhere(session, lifted(session, columns).await?, 3 * count).await?;
        let (reciprocals, mut ranges) = (numbers.split_off(2 * count), numbers.split_off(count));
        ranges.iter_mut().zip(&numbers).for_each(|(upper, lower)| upper.sub(lower));
        let scales = refined(session, count, &in_a_row(&reciprocals), &in_a_row(&ranges)).await?;
        let scales = everywhere(session, scales, count).await?;
        let all = numbers.into_iter().zip(ranges).zip(scales);
        Ok(all.map(|((lower, range), scale)| Self { lower, range, scale }).collect())
    }
}

/// All lower bounds, then all upper ones, then all reciprocals, one a slot.
async fn lifted(session: &Session, columns: &[&ColumnConstants]) -> Result<Slots<L1>, ProtocolError> {
    let bounds = columns.iter().map(|constants| &constants.lower).chain(columns.iter().map(|of| &of.upper));
    let mut samples = bounds.map(|cell| sample_of(cell, session.key_id())).collect::<Result<Vec<Sample>, _>>()?;
    samples.iter_mut().for_each(|sample| sample.body = sample.body.wrapping_add(phase_of_message(HALF as i64)));
    for constants in columns {
        samples.push(sample_of(&constants.reciprocal, session.key_id())?);
    }
    let rows = Rows { samples, present: None, width: MAX_WIDTH };
    let mut lifted = lift_wide(session, vec![rows]).await?.pop().ok_or(ProtocolError::Cancelled)?;
    lifted.sub_clear(&Offset::new(&vec![HALF; 2 * columns.len()]));
    Ok(lifted)
}

/// The first numbers of a vector, each in every slot.
async fn everywhere(session: &Session, numbers: Slots<L1>, count: usize) -> Result<Vec<Slots<L0>>, ProtocolError> {
    Ok(broadcast(session, &Tiles::new(DEGREE, count), 1, &[numbers], 0..count).await?.concat())
}

/// One number of every vector, one a slot.
fn in_a_row(vectors: &[Slots<L0>]) -> Slots<L1> {
    let indicators: Vec<Factor> = (0..vectors.len()).map(super::indicator).collect();
    Slots::dot_any(vectors.iter().zip(&indicators)).unwrap_or_else(|| Slots::clear(&[]))
}

/// `2^7 R + floor((2^40 - R D) R / 2^33)`.
async fn refined(
    session: &Session,
    columns: usize,
    reciprocal: &Slots<L1>,
    range: &Slots<L1>,
) -> Result<Slots<L1>, ProtocolError> {
    let one = |mut slots: Vec<Slots<L1>>| slots.pop().ok_or(ProtocolError::Cancelled);
    let product = one(multiply(session, vec![(reciprocal.clone(), range.clone())]).await?)?;
    let mut rest = Slots::clear(&[1 << RECIPROCAL_BITS; DEGREE]);
    rest.sub(&product);
    let product = one(multiply(session, vec![(rest, reciprocal.clone())]).await?)?;
    let dividend = Dividend { slots: product, shift: REFINED_SHIFT, rounding: Rounding::Floor };
    // The rest is below the range, so its product with the reciprocal is at most 2^40.
    let mut scale = one(truncate_half(session, columns, vec![dividend]).await?)?;
    let mut coarse = reciprocal.clone();
    coarse.scale(1 << (SCALE_BITS - RECIPROCAL_BITS));
    scale.add(&coarse);
    Ok(scale)
}
