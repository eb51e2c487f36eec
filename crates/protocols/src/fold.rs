//! The blocks of a vector added up, and the sum in every block.
//!
//! ```text
//!  P1: rho uniform              x + rho  -->
//!                                        <--  in every block, the sum of all blocks          P2
//!  P1: minus the sums of rho
//! ```
//! In short tables the parts of a row's number lie in the blocks of a vector, one for each centre of a tile ([`Tiles`]); this brings
//! them together. A vector of one block comes back as it is, but fresh: sums of many vectors lose their noise so.
//!
//! One ciphertext up and one down: 54 bytes a slot.

use rand::CryptoRng;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L0, L1, Offset, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Tiles, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Fold;

message! {
    /// The masked vector.
    Query<C: Outbound => Inbound> {
        /// `x + rho`.
        masked: C,
        /// Slots of a block, a power of two.
        block: u32,
    }
}

message! {
    /// The masked sums.
    Answer<C: SeededSlots => Fresh> {
        /// In every block.
        folded: C,
    }
}

impl Query<Inbound> {
    fn block(&self) -> Result<usize, ProtocolError> {
        check(self.block as usize).map_err(ProtocolError::Malformed)
    }
}

/// Says what is wrong with the length of a block.
fn check(block: usize) -> Result<usize, String> {
    match block.is_power_of_two() && block <= DEGREE {
        true => Ok(block),
        false => Err(format!("no vector is folded in blocks of {block} slots")),
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.block().map(|_| 1)
    }
}

impl Protocol for Fold {
    const NAME: &'static str = "fold";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "the sum of the blocks of a vector, in every block";
    const LEAKAGE: Leakage = Leakage::NOTHING;
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
        let block = query.block()?;
        let values = holder.open(query.masked);
        Ok(Answer { folded: holder.seal(&folded(&values, block), rng) })
    }
}

/// The sum of a vector's blocks, in every block. P2 takes it of what it opens, P1 of its mask.
fn folded(values: &[u64], block: usize) -> Zeroizing<Vec<u64>> {
    let mut sums = Zeroizing::new(vec![0; block]);
    for values in values.chunks(block) {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = plain::add(*sum, *value));
    }
    Zeroizing::new(sums.repeat(DEGREE / block))
}

/// A vector and its blocks.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// The vector.
    pub slots: Slots<L1>,
    /// Slots of a block, a power of two.
    pub block: usize,
}

/// What P1 remembers: its mask, folded.
pub struct Asked(Zeroizing<Vec<u64>>);

/// P1 masks every slot.
pub fn ask(blocks: Blocks, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Blocks { slots, block } = blocks;
    let block = check(block).map_err(ProtocolError::Misuse)?;
    let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
    let masked = asker.send(&slots, &mask)?;
    Ok((Asked(folded(&mask, block)), Query { masked, block: block as u32 }))
}

/// P1 takes the mask off.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Slots<L0>, ProtocolError> {
    let mut slots: Slots<L0> = answer.folded.into();
    slots.sub_clear(&Offset::new(&asked.0));
    Ok(slots)
}

/// The sum of every vector's blocks, in each of its blocks, in one round. In tables whose tiles have one block there is nothing to add:
/// the vectors themselves, without a round.
pub async fn fold(session: &Session, tiles: &Tiles, vectors: Vec<Slots<L1>>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    match tiles.centres_per_tile() {
        1 => Ok(vectors),
        blocks => Ok(raised(in_blocks(session, DEGREE / blocks, vectors).await?)),
    }
}

/// The same numbers with the noise of fresh ones, in one round: for sums of so many vectors that they could not be multiplied any more.
pub async fn refresh(session: &Session, vectors: Vec<Slots<L1>>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    Ok(raised(in_blocks(session, DEGREE, vectors).await?))
}

fn raised(vectors: Vec<Slots<L0>>) -> Vec<Slots<L1>> {
    vectors.iter().map(Slots::raised).collect()
}

/// The sum of every vector's blocks of so many slots, in each of them, fresh.
pub(crate) async fn in_blocks(
    session: &Session,
    block: usize,
    vectors: Vec<Slots<L1>>,
) -> Result<Vec<Slots<L0>>, ProtocolError> {
    let blocks = vectors.into_iter().map(|slots| Blocks { slots, block }).collect();
    session.round::<Fold, _, _, _>(blocks, 1, ask, finish).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_block_has_the_sum_of_all() {
        let mut parties = Parties::new(320);
        for rows in [1, 3, 100, 1000, 4096] {
            let tiles = Tiles::new(rows, 2);
            let values = [parties.numbers(), parties.numbers()];
            let vectors = values.iter().map(|values| parties.encrypt(values)).collect();
            let found = fold(&parties.session, &tiles, vectors).await.unwrap();
            assert_eq!(found.len(), 2);
            let block = rows.next_power_of_two();
            for (values, found) in values.iter().zip(&found) {
                let sum = |slot: usize| {
                    values.iter().skip(slot % block).step_by(block).fold(0, |sum, value| plain::add(sum, *value))
                };
                assert_eq!(parties.open(found), (0..DEGREE).map(sum).collect::<Vec<_>>(), "{rows} rows");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_block_stays_as_it_is_and_is_fresh_if_wanted() {
        let mut parties = Parties::new(321);
        let values = parties.numbers();
        let mut noisy = parties.encrypt(&values);
        let twice = noisy.clone();
        (0..9).for_each(|_| noisy.add(&twice));
        let expected: Vec<u64> = values.iter().map(|value| plain::mul(10, *value)).collect();
        let same = fold(&parties.session, &Tiles::new(5000, 2), vec![noisy.clone()]).await.unwrap();
        assert_eq!((parties.session.traffic().rounds(), same[0].noise()), (0, noisy.noise()));
        let fresh = refresh(&parties.session, vec![noisy.clone()]).await.unwrap();
        assert_eq!((parties.session.traffic().rounds(), parties.open(&fresh[0])), (1, expected));
        assert!(fresh[0].noise() < noisy.noise());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn blocks_that_do_not_exist_are_refused() {
        let mut parties = Parties::new(322);
        let slots = parties.encrypt(&[7]);
        for block in [0, 3, 2 * DEGREE] {
            let sentence = format!("no vector is folded in blocks of {block} slots");
            let wrong = vec![Blocks { slots: slots.clone(), block }];
            let outcome = parties.session.round::<Fold, _, _, _>(wrong, 1, ask, finish).await;
            assert_eq!(outcome.unwrap_err().to_string(), sentence);
            // P2 checks too.
            let forge = move |blocks, asker: &mut Asker<'_>| {
                let (asked, query) = ask(blocks, asker)?;
                Ok((asked, Query { block: block as u32, ..query }))
            };
            let right = vec![Blocks { slots: slots.clone(), block: 4 }];
            let outcome = parties.session.round::<Fold, _, _, _>(right, 1, forge, finish).await;
            assert_eq!(outcome.unwrap_err().to_string(), format!("malformed message: {sentence}"));
        }
    }
}
