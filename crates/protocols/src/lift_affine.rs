//! Cells that combine samples with secret factors, into slots: P2 never sees the factors.
//!
//! A cell is `body = sum_j c_j <A_j, s> + 2^16 x + e` modulo `2^64`; only the sum of the samples' bodies is left of them. P1 splits it
//! into bodies `beta_j` of its own choice, random but for one, such that `sum_j c_j beta_j = body + 2^16 pad + u` (`u` uniform
//! below `2^16`, `pad` as in [`lift`](crate::lift)). P2 decrypts every sample to a uniform 64-bit number `p_j` and returns its halves:
//!
//! ```text
//!  P1: beta_j                             seeds, indices, beta_j   (one row a term)  -->
//!                                                                                    <--  h_j = p_j >> 32,  l_j = p_j mod 2^32      P2
//!  P1: H = sum_j c_j h_j,  L = sum_j c_j l_j - u + 2^15       (a negative c_j counts as |c_j| (2^64 - p_j))
//!  `truncate`:  C = floor(L / 2^16),  D = floor(L / 2^32)
//!  `truncate`:  K = floor((H + D) / 2^32)
//!  P1: x = 2^16 H + C - 2^48 K - pad,  as  2^32 H + L = 2^16 (x + pad) + e + 2^15  modulo 2^64
//!  `multiply`:  by one where there is a row, by zero elsewhere
//! ```
//! P2 learns the places of the samples and how many each row combines; values and factors are masked to within `2^(w-48)` of uniform.

use rand::CryptoRng;
use veil_cells::{CellView, MESSAGE_BITS, NOISE_BITS, phase_of_message};
use veil_slots::{Factor, Fresh, KeyHolder, L1, Offset, PLAIN_MODULUS, Sample, SeededSlots, Slots, plain};

use crate::channel::blocking;
use crate::lift::MAX_WIDTH;
use crate::lists::together;
use crate::message::message;
use crate::multiply::multiply;
use crate::truncate::{Dividend, Rounding, truncate};
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload, samples};

/// The protocol.
#[derive(Debug)]
pub struct LiftAffine;

message! {
    /// Up to 8192 samples with random bodies.
    Query {
        /// The seeds, 16 bytes each.
        seeds: Vec<u8>,
        /// For every sample the number of its seed and its index, `u16` each.
        places: Vec<u8>,
        /// For every sample its body.
        bodies: Vec<u64>,
    }
}

message! {
    /// The phases in two halves.
    Answer<C: SeededSlots => Fresh> {
        /// `p >> 32`.
        high: C,
        /// `p mod 2^32`.
        low: C,
    }
}

impl Workload for Query {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        samples::check(&self.seeds, &self.places, &self.bodies).map(|()| 2)
    }
}

impl Protocol for LiftAffine {
    const NAME: &'static str = "lift_affine";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "cells that combine samples with secret factors, into slots";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "which samples of a file take part, how many a row combines, and which rows are NULL; values and factors are masked to within 2^(w-48) of uniform",
    };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query;
    type Received = Query;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let phases = holder.open_samples(&samples::decode(&query.seeds, &query.places, &query.bodies)?);
        let high: Vec<u64> = phases.iter().map(|phase| phase >> 32).collect();
        let low: Vec<u64> = phases.iter().map(|phase| phase & 0xffff_ffff).collect();
        Ok(Answer { high: holder.seal(&high, rng), low: holder.seal(&low, rng) })
    }
}

/// A row's combination.
#[derive(Clone, Debug)]
struct Row {
    /// Factor and sample; the bodies are yet to be chosen.
    terms: Vec<(i16, Sample)>,
    /// The sum of all bodies.
    body: u64,
}

/// Up to 8192 rows of one lane of a column.
#[derive(Clone, Debug)]
pub struct Rows {
    /// `None` is a NULL.
    rows: Vec<Option<Row>>,
    width: u32,
}

impl Rows {
    /// From cells with the body of the lane; `None` is a NULL.
    pub fn from_cells<'a>(
        cells: impl Iterator<Item = Option<(CellView<'a>, u64)>>,
        lane: usize,
        width: u32,
    ) -> Result<Self, ProtocolError> {
        if !(1..=MAX_WIDTH).contains(&width) {
            return Err(ProtocolError::Misuse(format!("numbers of {width} bits cannot be lifted")));
        }
        let row = |cell: Option<(CellView<'a>, u64)>| {
            let Some((cell, body)) = cell else { return Ok(None) };
            let sample = |term: veil_cells::Term| {
                (term.coefficient, Sample { seed: term.seed, index: term.index + lane as u16, body: 0 })
            };
            let terms: Vec<_> = cell.terms().map(sample).collect();
            match terms.is_empty() {
                true => Err(ProtocolError::Misuse("a sum over many rows cannot go into a round".to_owned())),
                false => Ok(Some(Row { terms, body })),
            }
        };
        Ok(Self { rows: cells.map(row).collect::<Result<_, _>>()?, width })
    }

    /// The most samples that a row combines.
    fn most_terms(&self) -> usize {
        self.rows.iter().flatten().map(|row| row.terms.len()).max().unwrap_or(1)
    }
}

/// The rows with bodies chosen: one query a term, and what P1 remembers.
struct Split {
    queries: Vec<Vec<Sample>>,
    /// `c_j`, one vector a term.
    factors: Vec<Vec<i16>>,
    pad: Vec<u64>,
    low_pad: Vec<u64>,
    present: Vec<bool>,
}

fn split(rows: &Rows, rng: &mut impl CryptoRng) -> Split {
    let (terms, count) = (rows.most_terms(), rows.rows.len());
    let any = rows.rows.iter().flatten().find_map(|row| row.terms.first()).map(|(_, sample)| *sample);
    let spare = any.unwrap_or(Sample { seed: veil_cells::Seed([0; 16]), index: 0, body: 0 });
    let mut split = Split {
        queries: vec![Vec::with_capacity(count); terms],
        factors: vec![Vec::with_capacity(count); terms],
        pad: Vec::with_capacity(count),
        low_pad: Vec::with_capacity(count),
        present: Vec::with_capacity(count),
    };
    let room = (1u64 << MESSAGE_BITS) - (1 << rows.width);
    for row in &rows.rows {
        let pad = plain::uniform_below(room, rng) + (1 << (rows.width - 1));
        let mut low_pad = rng.next_u64() & ((1 << NOISE_BITS) - 1);
        let known: &[(i16, Sample)] = row.as_ref().map_or(&[], |row| &row.terms);
        // The term with the oddest factor is solved for, the others are random.
        let pivot = (0..known.len()).min_by_key(|at| known[*at].0.trailing_zeros()).unwrap_or(0);
        let mut target = row.as_ref().map_or(0, |row| row.body).wrapping_add(phase_of_message(pad as i64));
        let mut bodies: Vec<u64> = (0..terms).map(|_| rng.next_u64()).collect();
        if let Some((factor, _)) = known.get(pivot) {
            let zeros = factor.trailing_zeros();
            let others = (0..known.len()).filter(|at| *at != pivot);
            let sum = others.fold(0u64, |sum, at| sum.wrapping_add((known[at].0 as u64).wrapping_mul(bodies[at])));
            // All factors are multiples of 2^zeros, so the target must be one too: u sees to it.
            let remainder = target.wrapping_neg() & ((1 << zeros) - 1);
            low_pad = low_pad & !((1 << zeros) - 1) | remainder;
            target = target.wrapping_add(low_pad).wrapping_sub(sum);
            let odd = (i64::from(*factor) >> zeros) as u64;
            let solved = (target >> zeros).wrapping_mul(inverse_of_odd(odd));
            // The quotient is free in its topmost bits.
            let free = if zeros == 0 { 0 } else { bodies[pivot] << (64 - zeros) };
            bodies[pivot] = solved & (u64::MAX >> zeros) | free;
        }
        for (at, body) in bodies.into_iter().enumerate() {
            let (factor, sample) =
                known.get(at).copied().unwrap_or((0, known.first().map_or(spare, |(_, sample)| *sample)));
            split.queries[at].push(Sample { body, ..sample });
            split.factors[at].push(factor);
        }
        let present = row.is_some();
        split.pad.push(if present { pad } else { 0 });
        split.low_pad.push(if present { low_pad } else { 0 });
        split.present.push(present);
    }
    split
}

/// Newton's iteration: each step doubles the number of right bits.
fn inverse_of_odd(odd: u64) -> u64 {
    (0..5).fold(odd, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

/// `H`, `2^16 H` and `L`, of one chunk.
fn combine(split: &Split, answers: &[(Fresh, Fresh)]) -> Result<[Slots<L1>; 3], ProtocolError> {
    let dot = |scale: u64, half: fn(&(Fresh, Fresh)) -> &Fresh| {
        let factor = |factors: &Vec<i16>| {
            Factor::new(&factors.iter().map(|c| plain::mul(plain::from_signed((*c).into()), scale)).collect::<Vec<_>>())
        };
        let factors: Vec<Factor> = split.factors.iter().map(factor).collect();
        Slots::dot(answers.iter().map(half).zip(&factors)).ok_or(ProtocolError::Cancelled)
    };
    let (mut high, mut shifted, mut low) =
        (dot(1, |answer| &answer.0)?, dot(1 << 16, |answer| &answer.0)?, dot(1, |answer| &answer.1)?);
    let count = split.present.len();
    // |c| (2^64 - p) for negative factors; then 2^32 is lent from H to L, so that L - u stays positive, and 2^64 is added.
    let (mut high_offset, mut low_offset) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for row in 0..count {
        let negative: u64 = split.factors.iter().map(|factors| u64::from((-factors[row].min(0)) as u16)).sum();
        high_offset.push((negative << 32) - negative + (1 << 32) - 1);
        low_offset.push((negative << 32) + (1 << 32) - split.low_pad[row] + (1 << (NOISE_BITS - 1)));
    }
    high.add_clear(&Offset::new(&high_offset));
    let shifted_offset: Vec<u64> = high_offset.iter().map(|offset| plain::mul(*offset, 1 << 16)).collect();
    shifted.add_clear(&Offset::new(&shifted_offset));
    low.add_clear(&Offset::new(&low_offset));
    Ok([high, shifted, low])
}

/// Many chunks of rows.
pub async fn lift_affine(session: &Session, chunks: Vec<Rows>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    if chunks.is_empty() {
        return Ok(Vec::new());
    }
    let mut rng = session.randomness().fork();
    let splits: Vec<Split> = blocking(move || chunks.iter().map(|rows| split(rows, &mut rng)).collect()).await?;
    let (queries, lengths) = together(splits.iter().map(|split| split.queries.clone()));
    let ask = |samples: Vec<Sample>, _: &mut Asker<'_>| {
        let (seeds, places, bodies) = samples::encode(&samples);
        Ok(((), Query { seeds, places, bodies }))
    };
    let finish = |(), answer: Answer<Fresh>| Ok((answer.high, answer.low));
    let answers = lengths.apart(session.round::<LiftAffine, _, _, _>(queries, 2, ask, finish).await?)?;
    let combined = blocking(move || {
        let combine_one = |(split, answers): (Split, Vec<(Fresh, Fresh)>)| Ok((combine(&split, &answers)?, split));
        splits.into_iter().zip(answers).map(combine_one).collect::<Result<Vec<_>, ProtocolError>>()
    });
    let combined = combined.await??;

    let floor = |slots: &Slots<L1>, shift| Dividend { slots: slots.clone(), shift, rounding: Rounding::Floor };
    let lows = combined.iter().flat_map(|([_, _, low], _)| [floor(low, NOISE_BITS), floor(low, 32)]).collect();
    let lows = truncate(session, lows).await?;
    let (carries, _) = lows.as_chunks::<2>();
    let highs = combined.iter().zip(carries).map(|(([high, ..], _), [_, carry])| {
        let mut high = high.clone();
        high.add(carry);
        floor(&high, 32)
    });
    let wraps = truncate(session, highs.collect()).await?;

    let mut lifted = Vec::with_capacity(combined.len());
    for ((([_, mut slots, _], split), [low, _]), mut wraps) in combined.into_iter().zip(carries).zip(wraps) {
        // 2^48 modulo t is small. The factor raises noise, which the product with the rows' presence takes away again.
        wraps.scale((1i64 << MESSAGE_BITS).rem_euclid(PLAIN_MODULUS as i64) as i32);
        slots.sub(&wraps);
        slots.add(low);
        let pad: Vec<u64> = split.pad.iter().map(|pad| plain::from_signed(*pad as i64)).collect();
        slots.sub_clear(&Offset::new(&pad));
        lifted.push((slots, split.present));
    }
    zero_the_missing(session, lifted).await
}

/// Slots beyond the rows, and NULLs, hold nothing of meaning yet.
async fn zero_the_missing(
    session: &Session,
    lifted: Vec<(Slots<L1>, Vec<bool>)>,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let mask = |present: &Vec<bool>| {
        let bits: Vec<u64> = present.iter().map(|present| u64::from(*present)).collect();
        Slots::clear(&bits)
    };
    multiply(session, lifted.into_iter().map(|(slots, present)| (slots, mask(&present))).collect()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_numbers_invert() {
        for odd in [1, 3, 5, u64::MAX, 4095, (-127i64) as u64] {
            assert_eq!(odd.wrapping_mul(inverse_of_odd(odd)), 1, "{odd}");
        }
    }
}
