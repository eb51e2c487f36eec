//! A list of rows, rotated by one shift after the other.
//!
//! ```text
//!  P1: a uniform                x + a  -->  w; its first rows are the list
//!                                      <--  w rotated by first, by first + 1, ..                P2
//!  P1: minus a, rotated alike
//! ```
//! A vector is cut into blocks, the smallest powers of two that hold the list. Each block of an answer is the list under the next
//! shift: place `i` holds row `i + shift`, modulo the number of rows; places beyond the rows are zero.

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L0, L1, Offset, Outbound, SeededSlots, Slots, plain};

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Rotate;

/// The longest list: one that fills a vector.
pub const MAX_ROWS: usize = DEGREE;

/// Vectors of one answer.
pub(crate) const GROUP: usize = 16;

message! {
    /// The masked list, and which shifts are wanted.
    Query<C: Outbound => Inbound> {
        /// `x + a`.
        masked: C,
        /// How many rows the list has.
        rows: u32,
        /// The first shift.
        first: u32,
        /// How many vectors of shifts.
        vectors: u32,
    }
}

message! {
    /// The masked list under every shift.
    Answer<C: SeededSlots => Fresh> {
        /// One shift a block.
        rotated: Vec<C>,
    }
}

/// How vectors hold a list under one shift after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    pub(crate) rows: usize,
    /// Slots of a block.
    pub(crate) size: usize,
}

impl Blocks {
    /// Of a list of 1 to [`MAX_ROWS`] rows.
    pub(crate) fn of(rows: usize) -> Self {
        Self { rows, size: rows.next_power_of_two() }
    }

    /// The same for numbers from outside. Says what is wrong with them.
    pub(crate) fn checked(rows: u32, first: u32, vectors: usize) -> Result<Self, String> {
        if rows as usize > MAX_ROWS || !(1..rows).contains(&first) || !(1..=GROUP).contains(&vectors) {
            return Err(format!("no {vectors} vectors of shifts from {first} of {rows} rows"));
        }
        Ok(Self::of(rows as usize))
    }

    /// Blocks of a vector.
    pub(crate) fn count(self) -> usize {
        DEGREE / self.size
    }

    /// One vector of a list: rotated by `shift` in the first block, by one more in the next.
    fn rotated(self, list: &[u64], shift: usize) -> Vec<u64> {
        let mut vector = vec![0; DEGREE];
        for (block, shift) in vector.chunks_exact_mut(self.size).zip(shift..) {
            let (last, first) = list.split_at(shift % list.len().max(1));
            block.iter_mut().zip(first.iter().chain(last)).for_each(|(slot, value)| *slot = *value);
        }
        vector
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let vectors = self.vectors as usize;
        Blocks::checked(self.rows, self.first, vectors).map_err(ProtocolError::Malformed).map(|_| vectors)
    }
}

impl Protocol for Rotate {
    const NAME: &'static str = "rotate";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "a list of rows under many rotations";
    const LEAKAGE: Leakage = Leakage::NOTHING;
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        mut rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let vectors = query.vectors as usize;
        let blocks = Blocks::checked(query.rows, query.first, vectors).map_err(ProtocolError::Malformed)?;
        let opened = holder.open(query.masked);
        let list = opened.get(..blocks.rows).unwrap_or_default();
        let rngs: Vec<StdRng> = (0..vectors).map(|_| StdRng::from_rng(&mut rng)).collect();
        let seal = |(vector, mut rng): (usize, StdRng)| {
            holder.seal(&blocks.rotated(list, query.first as usize + vector * blocks.count()), &mut rng)
        };
        Ok(Answer { rotated: rngs.into_par_iter().enumerate().map(seal).collect() })
    }
}

/// A list, and which of its rotations are wanted.
#[derive(Clone, Debug)]
pub struct Rotations {
    /// `x`: its first slots are the list.
    pub slots: Slots<L1>,
    /// How many rows the list has.
    pub rows: u32,
    /// The first shift, at least one.
    pub first: u32,
    /// How many vectors of shifts, up to sixteen.
    pub vectors: u32,
}

/// What P1 remembers: the mask of the list, and what it asked for.
pub struct Asked {
    mask: Vec<u64>,
    blocks: Blocks,
    first: usize,
    vectors: usize,
}

/// P1 masks every slot, those that hold no list too.
pub fn ask(rotations: Rotations, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Rotations { slots, rows, first, vectors } = rotations;
    let blocks = Blocks::checked(rows, first, vectors as usize).map_err(ProtocolError::Misuse)?;
    let mut mask = plain::uniform_vec(DEGREE, &mut asker.rng);
    let query = Query { masked: asker.send(&slots, &mask)?, rows, first, vectors };
    mask.truncate(blocks.rows);
    Ok((Asked { mask, blocks, first: first as usize, vectors: vectors as usize }, query))
}

/// P1 takes the rotated masks off.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Vec<Slots<L0>>, ProtocolError> {
    let Asked { mask, blocks, first, vectors } = asked;
    if answer.rotated.len() != vectors {
        return Err(ProtocolError::Malformed(format!("{} rotations instead of {vectors}", answer.rotated.len())));
    }
    let unmask = |(vector, rotated): (usize, Fresh)| {
        let mut slots: Slots<L0> = rotated.into();
        slots.sub_clear(&Offset::new(&blocks.rotated(&mask, first + vector * blocks.count())));
        slots
    };
    Ok(answer.rotated.into_par_iter().enumerate().map(unmask).collect())
}

/// One round for many lists.
pub async fn rotate(session: &Session, lists: Vec<Rotations>) -> Result<Vec<Vec<Slots<L0>>>, ProtocolError> {
    let most = lists.iter().map(|rotations| rotations.vectors).max().unwrap_or(1);
    session.round::<Rotate, _, _, _>(lists, most as usize, ask, finish).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_block_holds_the_next_shift() {
        let mut parties = Parties::new(50);
        let values = parties.numbers();
        let slots = parties.encrypt(&values);
        for (rows, first, vectors) in [(2, 1, 1), (5, 3, 2), (1500, 700, 2), (8192, 8191, 1), (4097, 4, 2)] {
            let rotations = Rotations { slots: slots.clone(), rows, first, vectors };
            let rotated = rotate(&parties.session, vec![rotations]).await.unwrap().remove(0);
            let opened: Vec<u64> = rotated.iter().flat_map(|slots| parties.open(&slots.raised())).collect();
            assert_eq!(opened.len(), vectors as usize * DEGREE);
            let (rows, first) = (rows as usize, first as usize);
            for (block, shift) in opened.chunks(rows.next_power_of_two()).zip(first..) {
                let expected = (0..rows).map(|row| values[(row + shift) % rows]);
                assert!(block[..rows].iter().copied().eq(expected), "{rows} rows, shift {shift}");
                assert!(block[rows..].iter().all(|slot| *slot == 0));
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn shifts_that_do_not_exist_are_refused() {
        let mut parties = Parties::new(51);
        let slots = parties.encrypt(&[7]);
        for (rows, first, vectors) in [(0, 0, 1), (1, 1, 1), (8193, 1, 1), (5, 0, 1), (5, 5, 1), (5, 1, 0), (5, 1, 17)]
        {
            let rotations = Rotations { slots: slots.clone(), rows, first, vectors };
            let error = rotate(&parties.session, vec![rotations]).await.unwrap_err().to_string();
            assert_eq!(error, format!("no {vectors} vectors of shifts from {first} of {rows} rows"));
        }
    }
}
