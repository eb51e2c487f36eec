//! Packed centres into tiles: in every slot the number of that slot's centre.
//!
//! ```text
//!  P1: S uniform                C + S, packed  -->
//!                                              <--  for some tiles and every column, C + S of each slot's centre          P2
//!  P1: minus S, arranged alike
//! ```
//! The number of centre `j`, column `l` of `d` is number `j d + l` of the packed vectors, 8192 a vector; where it goes is said by
//! [`Tiles`]. Slots without a centre are zero. One round. A query has all packed vectors, an answer `d` vectors a tile: 27 bytes
//! down for a slot and column, and 27 bytes up for a packed slot and query.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L0, L1, Offset, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Tiles, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Broadcast;

/// The most columns: more would add up to noise that leaves no room for a comparison.
pub const MAX_COLUMNS: usize = 64;

/// The most tiles of one question.
pub(crate) const GROUP: usize = 16;

message! {
    /// The masked centres, and which tiles are wanted.
    Query<C: Outbound => Inbound> {
        /// `C + S`, all packed vectors.
        masked: Vec<C>,
        /// Numbers of a centre.
        columns: u32,
        /// How many centres there are.
        centres: u32,
        /// Slots of a block.
        block: u32,
        /// The first tile.
        first: u32,
        /// How many tiles.
        count: u32,
    }
}

message! {
    /// The masked centres in tiles.
    Answer<C: SeededSlots => Fresh> {
        /// All columns of a tile, then those of the next.
        vectors: Vec<C>,
    }
}

/// Packed centres and the tiles that are wanted of them, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) tiles: Tiles,
    pub(crate) columns: usize,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl Wanted {
    /// Says what is wrong with a question about so many packed vectors.
    pub(crate) fn check(self, packed: usize) -> Result<Self, String> {
        let Self { tiles, columns, first, count } = self;
        let centres = tiles.centres();
        if !(1..=MAX_COLUMNS).contains(&columns) {
            return Err(format!("centres have 1 to {MAX_COLUMNS} columns, and not {columns}"));
        }
        let expected = centres.saturating_mul(columns).div_ceil(DEGREE);
        if packed != expected {
            return Err(format!(
                "{centres} centres of {columns} columns take {expected} vectors, and there are {packed}"
            ));
        }
        if !(1..=GROUP).contains(&count) || first.saturating_add(count) > tiles.groups() {
            return Err(format!("no {count} tiles from {first} of {}", tiles.groups()));
        }
        Ok(self)
    }

    /// The same for numbers from outside.
    pub(crate) fn received(
        [columns, centres, block, first, count]: [u32; 5],
        packed: usize,
    ) -> Result<Self, ProtocolError> {
        if !block.is_power_of_two() || block as usize > DEGREE {
            return Err(ProtocolError::Malformed(format!("no block of a tile has {block} slots")));
        }
        let [columns, centres, block, first, count] = [columns, centres, block, first, count].map(|n| n as usize);
        // Whether there are fewer rows than a block has slots does not matter here.
        let wanted = Self { tiles: Tiles::new(block, centres), columns, first, count };
        wanted.check(packed).map_err(ProtocolError::Malformed)
    }

    /// Slots of a block.
    pub(crate) fn block(self) -> usize {
        DEGREE / self.tiles.centres_per_tile()
    }

    /// For every block of a tile, the number of its centre in a column; `None` where there is no centre.
    pub(crate) fn numbers<'a, P: AsRef<[u64]>>(
        self,
        packed: &'a [P],
        tile: usize,
        column: usize,
    ) -> impl Iterator<Item = Option<u64>> + 'a {
        (0..DEGREE).step_by(self.block()).map(move |slot| {
            let at = self.tiles.centre_of(self.first + tile, slot)? * self.columns + column;
            packed.get(at / DEGREE)?.as_ref().get(at % DEGREE).copied()
        })
    }

    /// One column of a tile.
    fn arrange<P: AsRef<[u64]>>(self, packed: &[P], tile: usize, column: usize, vector: &mut [u64]) {
        for (block, number) in vector.chunks_exact_mut(self.block()).zip(self.numbers(packed, tile, column)) {
            block.fill(number.unwrap_or_default());
        }
    }
}

impl Query<Inbound> {
    fn wanted(&self) -> Result<Wanted, ProtocolError> {
        Wanted::received([self.columns, self.centres, self.block, self.first, self.count], self.masked.len())
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.wanted().map(|wanted| wanted.count * wanted.columns)
    }
}

impl Protocol for Broadcast {
    const NAME: &'static str = "broadcast";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "packed numbers of centres into the slots of their rows";
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
        let wanted = query.wanted()?;
        let opened: Vec<_> = query.masked.into_par_iter().map(|masked| holder.open(masked)).collect();
        let rngs: Vec<StdRng> = (0..wanted.count * wanted.columns).map(|_| StdRng::from_rng(&mut rng)).collect();
        let seal = |vector: &mut Zeroizing<Vec<u64>>, (at, mut rng): (usize, StdRng)| {
            wanted.arrange(&opened, at / wanted.columns, at % wanted.columns, vector);
            holder.seal(vector, &mut rng)
        };
        let work = rngs.into_par_iter().enumerate();
        Ok(Answer { vectors: work.map_init(|| Zeroizing::new(vec![0; DEGREE]), seal).collect() })
    }
}

/// Packed centres, and some tiles to be made of them.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The centres.
    pub vectors: Vec<Slots<L1>>,
    /// Numbers of a centre.
    pub columns: usize,
    /// Where they go.
    pub tiles: Tiles,
    /// The tiles that are wanted, up to sixteen.
    pub groups: Range<usize>,
}

/// What P1 remembers: its masks, and what it asked for.
pub struct Asked {
    masks: Vec<Vec<u64>>,
    wanted: Wanted,
}

/// Masks every slot of vectors, and sends them.
pub(crate) fn mask(
    vectors: &[Slots<L1>],
    asker: &mut Asker<'_>,
) -> Result<(Vec<Vec<u64>>, Vec<Outbound>), ProtocolError> {
    let work: Vec<(&Slots<L1>, Asker<'_>)> = vectors.iter().map(|vector| (vector, asker.fork())).collect();
    let masked = work.into_par_iter().map(|(vector, mut asker)| {
        let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
        let sent = asker.send(vector, &mask)?;
        Ok((mask, sent))
    });
    let masked: Vec<(Vec<u64>, Outbound)> = masked.collect::<Result<_, ProtocolError>>()?;
    Ok(masked.into_iter().unzip())
}

/// P1 masks.
pub fn ask(packed: Packed, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Packed { vectors, columns, tiles, groups } = packed;
    let wanted = Wanted { tiles, columns, first: groups.start, count: groups.len() };
    let wanted = wanted.check(vectors.len()).map_err(ProtocolError::Misuse)?;
    let (masks, masked) = mask(&vectors, asker)?;
    let query = Query {
        masked,
        columns: columns as u32,
        centres: tiles.centres() as u32,
        block: wanted.block() as u32,
        first: wanted.first as u32,
        count: wanted.count as u32,
    };
    Ok((Asked { masks, wanted }, query))
}

/// P1 takes the masks off: all columns of every tile.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Vec<Vec<Slots<L0>>>, ProtocolError> {
    let Asked { masks, wanted } = asked;
    let (found, expected) = (answer.vectors.len(), wanted.count * wanted.columns);
    if found != expected {
        return Err(ProtocolError::Malformed(format!("{found} vectors of tiles instead of {expected}")));
    }
    let unmask = |arranged: &mut Vec<u64>, (at, vector): (usize, Fresh)| {
        wanted.arrange(&masks, at / wanted.columns, at % wanted.columns, arranged);
        let mut slots: Slots<L0> = vector.into();
        slots.sub_clear(&Offset::new(arranged));
        slots
    };
    let work = answer.vectors.into_par_iter().enumerate();
    let vectors: Vec<Slots<L0>> = work.map_init(|| vec![0; DEGREE], unmask).collect();
    Ok(vectors.chunks(wanted.columns).map(<[_]>::to_vec).collect())
}

/// Some tiles of packed centres, in one round: for every tile all columns.
pub async fn broadcast(
    session: &Session,
    tiles: &Tiles,
    columns: usize,
    packed: &[Slots<L1>],
    groups: Range<usize>,
) -> Result<Vec<Vec<Slots<L0>>>, ProtocolError> {
    // So few tiles a question that its answer fills a batch.
    let step = (GROUP / columns.max(1)).max(1);
    let question = |first: usize| Packed {
        vectors: packed.to_vec(),
        columns,
        tiles: *tiles,
        groups: first..(first + step).min(groups.end),
    };
    let questions: Vec<Packed> = groups.clone().step_by(step).map(question).collect();
    let weight = packed.len().max(step * columns);
    let made = session.round::<Broadcast, _, _, _>(questions, weight, ask, finish).await?;
    Ok(made.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_slot_has_the_number_of_its_centre() {
        let mut parties = Parties::new(70);
        for (rows, centres, columns) in [(3, 2, 1), (1000, 33, 2), (9000, 5, 20), (2, 5000, 3)] {
            let tiles = Tiles::new(rows, centres);
            let numbers = plain::uniform_vec(centres * columns, &mut parties.rng);
            let packed: Vec<Slots<L1>> = numbers.chunks(DEGREE).map(|numbers| parties.encrypt(numbers)).collect();
            let groups = tiles.groups() / 2..tiles.groups();
            let made = broadcast(&parties.session, &tiles, columns, &packed, groups.clone()).await.unwrap();
            assert_eq!(made.len(), groups.len());
            for (group, made) in groups.zip(made) {
                assert_eq!(made.len(), columns);
                for (column, made) in made.iter().enumerate() {
                    let number =
                        |slot| tiles.centre_of(group, slot).map_or(0, |centre| numbers[centre * columns + column]);
                    assert_eq!(parties.open(&made.raised()), (0..DEGREE).map(number).collect::<Vec<_>>());
                }
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tiles_that_do_not_exist_are_refused() {
        let mut parties = Parties::new(71);
        let packed = vec![parties.encrypt(&[7])];
        let tiles = Tiles::new(9000, 20);
        let cases = [
            (0, 0..1, "centres have 1 to 64 columns, and not 0"),
            (65, 0..1, "centres have 1 to 64 columns, and not 65"),
            (2, 19..21, "no 2 tiles from 19 of 20"),
            (2, 0..17, "no 17 tiles from 0 of 20"),
        ];
        for (columns, groups, sentence) in cases {
            let packed = Packed { vectors: packed.clone(), columns, tiles, groups };
            let outcome = parties.session.round::<Broadcast, _, _, _>(vec![packed], 16, ask, finish).await;
            assert_eq!(outcome.unwrap_err().to_string(), sentence);
        }
        let error = broadcast(&parties.session, &tiles, 2, &[], 0..1).await.unwrap_err().to_string();
        assert_eq!(error, "20 centres of 2 columns take 1 vectors, and there are 0");
        // P2 checks too.
        let refused = |numbers, packed| Wanted::received(numbers, packed).unwrap_err().to_string();
        assert_eq!(refused([1, 1, 3, 0, 1], 1), "malformed message: no block of a tile has 3 slots");
        assert_eq!(refused([1, 1, 16384, 0, 1], 1), "malformed message: no block of a tile has 16384 slots");
        assert_eq!(refused([1, 0, 8192, 0, 1], 0), "malformed message: no 1 tiles from 0 of 0");
        assert_eq!(
            refused([2, 5, 4, u32::MAX, u32::MAX], 1),
            format!("malformed message: no {0} tiles from {0} of 1", u32::MAX)
        );
    }
}
