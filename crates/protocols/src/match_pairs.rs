//! How many other rows of a list share a row's value.
//!
//! ```text
//!  P1: r uniform, not zero      r (x_i - x_(i + shift))  for many shifts  -->
//!                                                                         <--  for every row, in how many of its pairs a zero is          P2
//! ```
//! Shifts go half way around, so that every pair of rows is compared once; P2 counts a zero at both of its rows. Slots that compare
//! nothing hold uniform numbers that are not zero: they look like rows that differ. P2 sees which pairs are equal, and of the others
//! nothing.

use std::cmp::Ordering;

use rand::CryptoRng;
use rayon::prelude::*;
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, L0, L1, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::message::message;
use crate::rotate::Blocks;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct MatchPairs;

message! {
    /// Blinded differences of rows.
    Query<C: Outbound => Inbound> {
        /// `r (x_i - x_(i + shift))`, one shift a block.
        differences: Vec<C>,
        /// How many rows the list has.
        rows: u32,
        /// The first shift.
        first: u32,
    }
}

message! {
    /// How many zeros there were.
    Answer<C: SeededSlots => Fresh> {
        /// For every row, in the first slots.
        zeros: C,
    }
}

impl Blocks {
    /// How many rows, from the first, are compared with the one so many further on: all, half way around the first half, beyond none.
    fn compared(self, shift: usize) -> usize {
        match (2 * shift).cmp(&self.rows) {
            Ordering::Less => self.rows,
            Ordering::Equal => shift,
            Ordering::Greater => 0,
        }
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let blocks = Blocks::checked(self.rows, self.first, self.differences.len());
        blocks.map_err(ProtocolError::Malformed).map(|_| 1)
    }
}

impl Protocol for MatchPairs {
    const NAME: &'static str = "match_pairs";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "how many other rows of a list share a row's value";
    const LEAKAGE: Leakage = Leakage {
        p1: "nothing",
        p2: "which pairs of rows are equal, in the order in which P1 sends them (a secret one after a shuffle)",
    };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let blocks = Blocks::checked(query.rows, query.first, query.differences.len());
        let blocks = blocks.map_err(ProtocolError::Malformed)?;
        let opened: Vec<_> = query.differences.into_par_iter().map(|difference| holder.open(difference)).collect();
        let shifted = opened.iter().flat_map(|slots| slots.chunks_exact(blocks.size)).zip(query.first as usize..);
        let mut zeros = Zeroizing::new(vec![0; blocks.rows]);
        for (block, shift) in shifted {
            let compared = block.iter().take(blocks.compared(shift)).enumerate();
            for (row, _) in compared.filter(|(_, difference)| **difference == 0) {
                zeros[row] += 1;
                zeros[(row + shift) % blocks.rows] += 1;
            }
        }
        Ok(Answer { zeros: holder.seal(&zeros, rng) })
    }
}

/// A list and some of its rotations.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// The list, repeated in every block.
    pub slots: Slots<L1>,
    /// The list under one shift after the other, from [`rotate`](crate::rotate).
    pub rotated: Vec<Slots<L0>>,
    /// How many rows the list has.
    pub rows: u32,
    /// The first shift.
    pub first: u32,
}

/// P1 blinds every difference.
pub fn ask(pairs: Pairs, asker: &mut Asker<'_>) -> Result<((), Query<Outbound>), ProtocolError> {
    let Pairs { slots, rotated, rows, first } = pairs;
    let blocks = Blocks::checked(rows, first, rotated.len()).map_err(ProtocolError::Misuse)?;
    let work: Vec<(Slots<L0>, Asker<'_>)> = rotated.into_iter().map(|rotated| (rotated, asker.fork())).collect();
    let blinded = |(vector, (rotated, mut asker)): (usize, (Slots<L0>, Asker<'_>))| {
        let (mut factor, mut filler) = (vec![0; DEGREE], vec![0; DEGREE]);
        let parts = factor.chunks_exact_mut(blocks.size).zip(filler.chunks_exact_mut(blocks.size));
        for ((factor, filler), shift) in parts.zip(first as usize + vector * blocks.count()..) {
            let compared = blocks.compared(shift);
            let random = factor.iter_mut().take(compared).chain(filler.iter_mut().skip(compared));
            random.for_each(|slot| *slot = plain::uniform_non_zero(&mut asker.rng));
        }
        let mut difference = slots.clone();
        difference.sub(&rotated.raised());
        asker.send(&difference.times(&Factor::new(&factor)), &filler)
    };
    let differences = work.into_par_iter().enumerate().map(blinded).collect::<Result<_, _>>()?;
    Ok(((), Query { differences, rows, first }))
}

/// P1 takes the counts as they are.
pub fn finish((): (), answer: Answer<Fresh>) -> Result<Slots<L0>, ProtocolError> {
    Ok(answer.zeros.into())
}

/// One round for many lists: for every row, with how many others of its pairs it is equal.
pub async fn match_pairs(session: &Session, lists: Vec<Pairs>) -> Result<Vec<Slots<L0>>, ProtocolError> {
    let most = lists.iter().map(|pairs| pairs.rotated.len()).max().unwrap_or(1);
    session.round::<MatchPairs, _, _, _>(lists, most, ask, finish).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    /// Every pair once, whether the list is odd or even.
    #[test]
    fn shifts_half_way_around_meet_every_pair_once() {
        for rows in 2..40 {
            let blocks = Blocks::of(rows);
            let mut met = vec![0; rows * rows];
            for shift in 1..rows {
                for row in 0..blocks.compared(shift) {
                    let other = (row + shift) % rows;
                    met[row.min(other) * rows + row.max(other)] += 1;
                }
            }
            let once = (0..rows * rows).map(|at| usize::from(at / rows < at % rows));
            assert!(met.into_iter().eq(once), "{rows} rows");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn zeros_are_counted_at_both_rows() {
        let mut parties = Parties::new(52);
        // Blocks of four; what lies beyond the three rows does not matter.
        let slots = parties.encrypt(&[9, 5, 9, 9].repeat(DEGREE / 4));
        let rotated = parties.keys.slot().seal(&[5, 9, 9, 9].repeat(DEGREE / 4), &mut parties.rng);
        let rotated = vec![rotated.expand().unwrap().into()];
        let pairs = Pairs { slots, rotated, rows: 3, first: 1 };
        let zeros = match_pairs(&parties.session, vec![pairs.clone()]).await.unwrap();
        let opened = parties.open(&zeros[0].raised());
        assert_eq!(opened[..3], [1, 0, 1]);
        assert!(opened[3..].iter().all(|slot| *slot == 0));
        let error = match_pairs(&parties.session, vec![Pairs { rows: 9000, ..pairs }]).await.unwrap_err();
        assert_eq!(error.to_string(), "no 1 vectors of shifts from 1 of 9000 rows");
    }
}
