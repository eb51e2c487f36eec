//! The numbers of one centre, for all centres: which one, P1 alone knows.
//!
//! ```text
//!  P1: rho uniform              x + rho, packed; x is zero but for the numbers of one centre  -->
//!                                                 <--  for every centre and column, the sum over all centres          P2
//!  P1: minus the sums of rho
//! ```
//! Numbers of centre `j`, column `l` of `d` are in slot `j d + l`, counted through the vectors. As many ciphertexts up as down.

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L0, Level, Offset, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::block_sums::{MAX_PACKED, mask};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct FewPick;

message! {
    /// The masked numbers.
    Query<C: Outbound => Inbound> {
        /// `x + rho`.
        masked: Vec<C>,
        /// How many centres there are.
        centres: u32,
        /// How many columns there are.
        columns: u32,
    }
}

message! {
    /// The sums.
    Answer<C: SeededSlots => Fresh> {
        /// Packed as the numbers were.
        spread: Vec<C>,
    }
}

/// How numbers of centres are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    pub(crate) centres: usize,
    pub(crate) columns: usize,
}

impl Packing {
    /// Of numbers from outside. Says what is wrong with them.
    pub(crate) fn checked(centres: u32, columns: u32, vectors: usize) -> Result<Self, String> {
        let (most, packing) = ((MAX_PACKED * DEGREE) as u64, format!("{centres} centres of {columns} columns"));
        if !(1..=most).contains(&(u64::from(centres) * u64::from(columns))) {
            return Err(format!("{packing} do not fit {MAX_PACKED} vectors"));
        }
        let packed = Self { centres: centres as usize, columns: columns as usize };
        match packed.vectors() == vectors {
            true => Ok(packed),
            false => Err(format!("{packing} take {} vectors, and there are {vectors}", packed.vectors())),
        }
    }

    /// Numbers of all centres.
    pub(crate) fn numbers(self) -> usize {
        self.centres * self.columns
    }

    /// Vectors of all centres.
    pub(crate) fn vectors(self) -> usize {
        self.numbers().div_ceil(DEGREE)
    }

    /// Of every column, the sum over the centres, for every centre.
    fn spread<V: AsRef<[u64]>>(self, vectors: &[V]) -> Zeroizing<Vec<u64>> {
        let mut sums = Zeroizing::new(vec![0; self.columns]);
        let numbers = vectors.iter().flat_map(|vector| vector.as_ref()).take(self.numbers());
        for (at, number) in numbers.enumerate() {
            let sum = &mut sums[at % self.columns];
            *sum = plain::add(*sum, *number);
        }
        Zeroizing::new(sums.repeat(self.centres))
    }
}

impl Query<Inbound> {
    fn packing(&self) -> Result<Packing, ProtocolError> {
        Packing::checked(self.centres, self.columns, self.masked.len()).map_err(ProtocolError::Malformed)
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.packing().map(Packing::vectors)
    }
}

impl Protocol for FewPick {
    const NAME: &'static str = "few_pick";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "the numbers of one centre, for all centres";
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
        let packing = query.packing()?;
        let opened: Vec<_> = query.masked.into_par_iter().map(|masked| holder.open(masked)).collect();
        let sums = packing.spread(&opened);
        let work: Vec<(&[u64], StdRng)> =
            sums.chunks(DEGREE).map(|vector| (vector, StdRng::from_rng(&mut rng))).collect();
        let seal = |(vector, mut rng): (&[u64], StdRng)| holder.seal(vector, &mut rng);
        Ok(Answer { spread: work.into_par_iter().map(seal).collect() })
    }
}

/// Numbers to pick from.
#[derive(Clone, Debug)]
pub struct Picks<L: Level> {
    /// Packed; zero but for those of one centre.
    pub vectors: Vec<Slots<L>>,
    /// How many centres there are.
    pub centres: usize,
    /// How many columns there are.
    pub columns: usize,
}

/// What P1 remembers: the sums of its mask.
pub struct Asked(Zeroizing<Vec<u64>>);

/// P1 masks every slot.
pub fn ask<L: Level>(picks: Picks<L>, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Picks { vectors, centres, columns } = picks;
    let [centres, columns] = [centres, columns].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let packing = Packing::checked(centres, columns, vectors.len()).map_err(ProtocolError::Misuse)?;
    let (masked, masks) = mask(vectors, asker)?;
    Ok((Asked(packing.spread(&masks)), Query { masked, centres, columns }))
}

/// P1 takes the mask off.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Vec<Slots<L0>>, ProtocolError> {
    let (found, expected) = (answer.spread.len(), asked.0.len().div_ceil(DEGREE));
    if found != expected {
        return Err(ProtocolError::Malformed(format!("{found} packed vectors instead of {expected}")));
    }
    let unmask = |(reply, sums): (Fresh, &[u64])| {
        let mut slots: Slots<L0> = reply.into();
        slots.sub_clear(&Offset::new(sums));
        slots
    };
    Ok(answer.spread.into_iter().zip(asked.0.chunks(DEGREE)).map(unmask).collect())
}

/// One round for many lists of packed numbers.
pub async fn few_pick<L: Level>(session: &Session, lists: Vec<Picks<L>>) -> Result<Vec<Vec<Slots<L0>>>, ProtocolError> {
    let weight = lists.iter().map(|list| list.vectors.len()).max().unwrap_or(1);
    session.round::<FewPick, _, _, _>(lists, weight, ask, finish).await
}

/// One for the numbers of a centre and zero for all others, in one of the packed vectors.
pub(crate) fn indicator(packing: Packing, centre: usize, vector: usize) -> Vec<u64> {
    let own = centre * packing.columns..(centre + 1) * packing.columns;
    (vector * DEGREE..(vector + 1) * DEGREE).map(|slot| u64::from(own.contains(&slot))).collect()
}

#[cfg(test)]
mod tests {
    use veil_slots::{Factor, L1};

    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn all_centres_get_the_numbers_of_one() {
        let mut parties = Parties::new(510);
        for (centres, columns, chosen) in [(1, 1, 0), (5, 3, 4), (3000, 3, 2730), (8192, 1, 17)] {
            let packing = Packing { centres, columns };
            let numbers = plain::uniform_vec(centres * columns, &mut parties.rng);
            let vectors: Vec<Slots<L1>> = numbers.chunks(DEGREE).map(|vector| parties.encrypt(vector)).collect();
            let one =
                |(vector, slots): (usize, &Slots<L1>)| slots.times(&Factor::new(&indicator(packing, chosen, vector)));
            let vectors = vectors.iter().enumerate().map(one).collect();
            let found = few_pick(&parties.session, vec![Picks { vectors, centres, columns }]).await.unwrap();
            let found: Vec<u64> = found[0].iter().flat_map(|slots| parties.open(&slots.raised())).collect();
            let expected = numbers[chosen * columns..][..columns].repeat(centres);
            assert!(found[..expected.len()] == expected && found[expected.len()..].iter().all(|slot| *slot == 0));
        }
    }
}
