//! Cells of 48 bits into slots: the lanes of texts.
//!
//! ```text
//!  P1: rho uniform in [0, 2^48)     seeds, indices, bodies + 2^16 rho  -->  w = x + rho mod 2^48
//!                                                                      <--  w mod t, thermometers of the digits of w        P2
//!  P1: picks from every digit (see the module `digits`);  four rounds of `and`: b = [w < rho], whether the mask wrapped
//!  one round of `lookup`: 2^48 b - rho mod t, which makes w into x
//! ```
//! What P2 decrypts is exactly uniform. The result is `x mod t`: as `t = 2^48 - 16383`, a message below 16383 and the one that is `t`
//! above it become the same number. All other messages stay different.
//!
//! As in [`lift`](crate::lift), P2 sees which rows of a file take part and which are NULL, and NULLs become zero. Numbers of up to
//! 32 bits go through `lift`, which takes one ciphertext instead of a hundred.

use std::sync::Arc;

use rand::{CryptoRng, RngCore};
use veil_cells::{CellArray, MESSAGE_BITS, NOISE_BITS, phase_of_message};
use veil_slots::{DEGREE, Factor, Fresh, KeyHolder, L1, PLAIN_MODULUS, SeededSlots, Slots, plain};

use crate::digits::{self, Folding, Order};
use crate::lift::{self, Chunk, Rows};
use crate::lookup::{Question, Table, lookup};
use crate::message::message;
use crate::{Asker, ColumnVectors, Leakage, Opens, Protocol, ProtocolError, Session, Workload, samples};

/// The protocol.
#[derive(Debug)]
pub struct LiftWide;

/// `2^48` modulo `t`.
const WRAP: u64 = (1 << MESSAGE_BITS) - PLAIN_MODULUS;

/// Chunks under way at the same time: the digits of one take 16 MB.
const WINDOW: usize = 8;

message! {
    /// Up to 8192 samples with masked bodies.
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
    /// The same numbers in slots, and their digits.
    Answer<C: SeededSlots => Fresh> {
        /// `w mod t`.
        masked: C,
        /// Thermometers of `w`, most significant digit first.
        digits: Vec<C>,
    }
}

impl Workload for Query {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        samples::check(&self.seeds, &self.places, &self.bodies).map(|()| 1 + digits::ciphertexts(MESSAGE_BITS))
    }
}

impl Protocol for LiftWide {
    const NAME: &'static str = "lift_wide";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "cells of 48 bits into slots";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "which samples of a file take part and which rows are NULL; values are masked uniformly",
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
        let samples = samples::decode(&query.seeds, &query.places, &query.bodies)?;
        let mut values = holder.open_samples(&samples);
        for value in values.iter_mut() {
            *value = value.wrapping_add(1 << (NOISE_BITS - 1)) >> NOISE_BITS;
        }
        let digits = digits::thermometers(&values, MESSAGE_BITS, holder, rng);
        values.iter_mut().for_each(|value| *value = reduced(*value));
        Ok(Answer { masked: holder.seal(&values, rng), digits })
    }
}

/// A message modulo `t`.
fn reduced(message: u64) -> u64 {
    if message >= PLAIN_MODULUS { message - PLAIN_MODULUS } else { message }
}

/// What P1 remembers: its masks.
pub struct Asked {
    mask: Vec<u64>,
    present: Option<Vec<bool>>,
}

/// P1 masks every body. Messages are of 48 bits, whatever the rows' width says.
pub fn ask(rows: Rows, asker: &mut Asker<'_>) -> Result<(Asked, Query), ProtocolError> {
    let Rows { mut samples, present, .. } = rows;
    if samples.len() > DEGREE {
        return Err(ProtocolError::Misuse(format!("{} texts cannot be lifted at once", samples.len())));
    }
    let mut mask = Vec::with_capacity(samples.len());
    for (row, sample) in samples.iter_mut().enumerate() {
        let rho = plain::uniform_below(1 << MESSAGE_BITS, &mut asker.rng);
        if present.as_ref().is_some_and(|present| !present.get(row).copied().unwrap_or_default()) {
            sample.body = asker.rng.next_u64();
        }
        sample.body = sample.body.wrapping_add(phase_of_message(rho as i64));
        mask.push(rho);
    }
    let (seeds, places, bodies) = samples::encode(&samples);
    Ok((Asked { mask, present }, Query { seeds, places, bodies }))
}

/// A chunk of which P1 does not know yet where its mask wrapped.
pub(crate) struct Masked {
    /// `w`, zero where there is no value.
    slots: Slots<L1>,
    /// How the digits of `w` compare with those of `rho`, yet to be folded.
    orders: Vec<Order>,
    /// What takes the mask off where it did not wrap, and where it did.
    corrections: Table,
}

/// P1 picks from the digits.
pub(crate) fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Masked, ProtocolError> {
    let Asked { mask, present } = asked;
    if answer.digits.len() != digits::ciphertexts(MESSAGE_BITS) {
        return Err(ProtocolError::Malformed(format!("{} digits", answer.digits.len())));
    }
    let orders = digits::orders(&mask, MESSAGE_BITS, &answer.digits)?;
    let bits: Option<Vec<u64>> = present.map(|present| present.into_iter().map(u64::from).collect());
    let slots = match &bits {
        Some(bits) => answer.masked.times(&Factor::new(bits)),
        None => answer.masked.raised(),
    };
    let correction = |wrap: u64| -> Vec<u64> {
        let minus = mask.iter().map(|rho| plain::sub(wrap, reduced(*rho)));
        match &bits {
            Some(bits) => minus.zip(bits).map(|(correction, bit)| correction * bit).collect(),
            None => minus.collect(),
        }
    };
    Ok(Masked { slots, orders, corrections: Table::PerSlot(Arc::new([correction(0), correction(WRAP)])) })
}

/// Lifts one lane of a column of texts, 8192 rows a vector.
pub async fn lift_wide_column(
    session: &Session,
    column: CellArray<'_>,
    lane: usize,
) -> Result<ColumnVectors, ProtocolError> {
    let mut chunks = Vec::with_capacity(column.len().div_ceil(DEGREE));
    for start in (0..column.len()).step_by(DEGREE) {
        match lift::rows_of(&column, start, lane, MESSAGE_BITS, session.key_id())? {
            Chunk::Plain(rows) => chunks.push(rows),
            Chunk::Affine(_) => {
                return Err(ProtocolError::Misuse("texts that were computed with cannot be lifted".to_owned()));
            }
        }
    }
    ColumnVectors::new(column.len(), lift_wide(session, chunks).await?)
}

/// Lifts many chunks of rows.
pub async fn lift_wide(session: &Session, chunks: Vec<Rows>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let weight = 1 + digits::ciphertexts(MESSAGE_BITS);
    let domain: Arc<[u64]> = Arc::new([0, 1]);
    let mut lifted = Vec::with_capacity(chunks.len());
    let mut chunks = chunks.into_iter();
    while chunks.len() > 0 {
        let window = chunks.by_ref().take(WINDOW).collect();
        let (mut slots, mut foldings, mut tables) = (Vec::new(), Vec::new(), Vec::new());
        for masked in session.round::<LiftWide, _, _, _>(window, weight, ask, finish).await? {
            slots.push(masked.slots);
            foldings.push(Folding::new(masked.orders, false));
            tables.push(masked.corrections);
        }
        // 2^48 times the bit would be too noisy to be multiplied again; what a lookup returns is as good as fresh.
        let wrapped = digits::fold(session, foldings).await?.into_iter().zip(tables);
        let question =
            |(order, table): (Order, _)| Question { slots: order.less, domain: domain.clone(), tables: vec![table] };
        let corrections = lookup(session, wrapped.map(question).collect()).await?;
        for (mut slots, corrections) in slots.into_iter().zip(corrections) {
            slots.add(corrections.first().ok_or(ProtocolError::Cancelled)?);
            lifted.push(slots);
        }
    }
    Ok(lifted)
}

#[cfg(test)]
mod tests {
    use veil_slots::{OUTBOUND_BYTES, SEEDED_BYTES, Sample};

    use super::*;
    use crate::testing::Parties;

    /// So many messages, in chunks of 4096 as a file has them.
    fn rows(parties: &mut Parties, messages: &[u64]) -> Rows {
        let mut samples = Vec::new();
        for chunk in messages.chunks(veil_cells::POLYNOMIAL_SIZE) {
            let (seed, bodies) = parties.keys.seal_samples(chunk, &mut parties.rng);
            samples.extend(bodies.iter().zip(0..).map(|(body, index)| Sample { seed, index, body: *body }));
        }
        Rows { samples, present: None, width: 0 }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn messages_of_all_48_bits_lift_modulo_t() {
        let mut parties = Parties::new(57);
        let mut messages = parties.numbers_below(1 << 48);
        let t = PLAIN_MODULUS;
        let extremes = [0, 1, 16382, 16383, t - 1, t, t + 1, (1 << 47) - 1, 1 << 47, (1 << 48) - 2, (1 << 48) - 1];
        messages[..extremes.len()].copy_from_slice(&extremes);
        let full = rows(&mut parties, &messages);
        let mut sparse = rows(&mut parties, &messages[..300]);
        let present: Vec<bool> = (0..300).map(|row| row % 7 != 3).collect();
        sparse.present = Some(present.clone());
        let lifted = lift_wide(&parties.session, vec![full, sparse]).await.unwrap();
        let expected: Vec<u64> = messages.iter().map(|message| message % t).collect();
        assert_eq!(parties.open(&lifted[0]), expected);
        let opened = parties.open(&lifted[1]);
        let kept: Vec<u64> =
            expected.iter().zip(present).map(|(message, present)| message * u64::from(present)).collect();
        assert_eq!(opened[..300], kept);
        assert!(opened[300..].iter().all(|slot| *slot == 0));
        // One and 112 digits, 15 times `and`, one lookup, each twice; bodies and places are less than one ciphertext.
        let traffic = parties.session.traffic();
        assert_eq!(traffic.rounds(), 6);
        assert_eq!(traffic.bytes_up() as usize / OUTBOUND_BYTES, 2 * 16);
        assert_eq!(traffic.bytes_down() as usize / SEEDED_BYTES, 2 * (113 + 67 + 2));
        // Level one, with room for another factor and a sum.
        for slots in lifted {
            slots.times(&Factor::new(&[1])).noise().scaled(16).checked_for_flooding().unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_chunk_is_a_vector() {
        let mut parties = Parties::new(58);
        let mut long = rows(&mut parties, &[5]);
        long.samples = vec![long.samples[0]; DEGREE + 1];
        let error = lift_wide(&parties.session, vec![long]).await.unwrap_err();
        assert_eq!(error.to_string(), "8193 texts cannot be lifted at once");
        assert!(lift_wide(&parties.session, Vec::new()).await.unwrap().is_empty());
    }
}
