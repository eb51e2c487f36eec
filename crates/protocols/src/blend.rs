//! Every row gets the values of the centre that it belongs to.
//!
//! ```text
//!  P1: m, S uniform             J = I + m  (tiles),  W = V + S  (packed)  -->
//!                                                                         <--  J,  sum_j J_j W_j of every column         P2
//!  P1: Y = sum_j (m_j V_j + S_j J_j)
//!  P1: sum_j I_j V_j = sum_j J_j W_j - Y;   in short tables `fold` of Y
//! ```
//! `I` is one where a row belongs to a centre and zero elsewhere, `V` are numbers of centres, and `V` in tiles comes from
//! [`broadcast`](crate::broadcast), once for all chunks of rows. P2 adds over all tiles of a question and over all blocks of a tile. `Y` has a part in each
//! block, so [`fold`](crate::fold) adds these up; and it makes `Y` fresh where the tiles are so many that their noise adds up.
//!
//! Tiles go in windows of up to sixteen, so that the broadcast vectors of one take 64 megabytes at most: two rounds a window, and one
//! at the end. For `d` columns, each tile takes `d` ciphertexts down, and for every chunk one up and `1 + d/16` down; each window also takes
//! the packed numbers up, once and for every chunk. With eight columns and one chunk a slot takes 27 bytes up and 257 down.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, L0, L1, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::broadcast::{GROUP, Wanted, broadcast, mask};
use crate::lists::together;
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Tiles, Workload, fold};

/// The protocol.
#[derive(Debug)]
pub struct Blend;

/// Broadcast vectors that P1 holds at once, of half a megabyte each.
const HELD: usize = 128;

/// So many of the vectors that P1 hands back can be multiplied and added up.
const SPARE: i64 = 4;

message! {
    /// Masked tiles of a chunk, and masked numbers of all centres.
    Query<C: Outbound => Inbound> {
        /// `J`.
        tiles: Vec<C>,
        /// `W`, all packed vectors.
        packed: Vec<C>,
        /// Numbers of a centre.
        columns: u32,
        /// How many centres there are.
        centres: u32,
        /// Slots of a block.
        block: u32,
        /// How many of them hold a row, from the first.
        filled: u32,
        /// The first tile.
        first: u32,
    }
}

message! {
    /// The tiles, fresh, and the sums of their products.
    Answer<C: SeededSlots => Fresh> {
        /// `J`.
        tiles: Vec<C>,
        /// `sum_j J_j W_j`, one a column, the same in every block.
        sums: Vec<C>,
    }
}

impl Query<Inbound> {
    fn wanted(&self) -> Result<Wanted, ProtocolError> {
        if self.filled > self.block {
            let text = format!("a block of {} slots has no {} rows", self.block, self.filled);
            return Err(ProtocolError::Malformed(text));
        }
        let count = u32::try_from(self.tiles.len()).unwrap_or(u32::MAX);
        Wanted::received([self.columns, self.centres, self.block, self.first, count], self.packed.len())
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.wanted().map(|wanted| wanted.columns + wanted.count)
    }
}

impl Protocol for Blend {
    const NAME: &'static str = "blend";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "packed numbers of centres for the rows that belong to them";
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
        let (block, filled) = (wanted.block(), query.filled as usize);
        let open = |masked: Vec<Inbound>| -> Vec<Zeroizing<Vec<u64>>> {
            masked.into_par_iter().map(|masked| holder.open(masked)).collect()
        };
        let (tiles, packed) = (open(query.tiles), open(query.packed));
        let mut rngs = |count: usize| (0..count).map(|_| StdRng::from_rng(&mut rng)).collect::<Vec<_>>();
        let (tile_rngs, column_rngs) = (rngs(wanted.count), rngs(wanted.columns));
        let sum = |(column, mut rng): (usize, StdRng)| {
            let mut sums = Zeroizing::new(vec![0; block]);
            for (tile, j) in tiles.iter().enumerate() {
                for (j, w) in j.chunks_exact(block).zip(wanted.numbers(&packed, tile, column)) {
                    let Some(w) = w else { continue };
                    let rows = sums.iter_mut().zip(j).take(filled);
                    rows.for_each(|(sum, j)| *sum = plain::add(*sum, plain::mul(*j, w)));
                }
            }
            holder.seal(&Zeroizing::new(sums.repeat(DEGREE / block)), &mut rng)
        };
        let sums = column_rngs.into_par_iter().enumerate().map(sum).collect();
        let tiles = tiles.par_iter().zip(tile_rngs).map(|(tile, mut rng)| holder.seal(tile, &mut rng)).collect();
        Ok(Answer { tiles, sums })
    }
}

/// Some tiles of a chunk, and the numbers of all centres.
#[derive(Clone, Debug)]
pub struct Belonging {
    /// Where rows and centres lie.
    pub tiles: Tiles,
    /// Numbers of a centre.
    pub columns: usize,
    /// Which chunk of rows it is.
    pub chunk: usize,
    /// The first tile.
    pub first: usize,
    /// Which rows belong to which centres: up to sixteen tiles.
    pub assignment: Vec<Slots<L1>>,
    /// The packed numbers.
    pub packed: Vec<Slots<L1>>,
    /// All columns of the centres of every one of these tiles.
    pub centres: Arc<Vec<Vec<Slots<L0>>>>,
}

/// What P1 remembers: its masks, and what it asked for.
pub struct Asked {
    wanted: Wanted,
    /// Rows of a block.
    filled: usize,
    centres: Arc<Vec<Vec<Slots<L0>>>>,
    m: Vec<Vec<u64>>,
    s: Vec<Vec<u64>>,
}

/// P1 masks tiles and packed numbers.
pub fn ask(belonging: Belonging, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Belonging { tiles, columns, chunk, first, assignment, packed, centres } = belonging;
    let count = assignment.len();
    let wanted = Wanted { tiles, columns, first, count }.check(packed.len()).map_err(ProtocolError::Misuse)?;
    if centres.len() != count || centres.iter().any(|tile| tile.len() != columns) {
        return Err(ProtocolError::Misuse(format!("{count} tiles need {columns} columns of centres each")));
    }
    let filled = (0..wanted.block()).take_while(|slot| tiles.row_of(chunk, *slot).is_some()).count();
    let ((m, tiles), (s, packed)) = (mask(&assignment, asker)?, mask(&packed, asker)?);
    let query = Query {
        tiles,
        packed,
        columns: columns as u32,
        centres: wanted.tiles.centres() as u32,
        block: wanted.block() as u32,
        filled: filled as u32,
        first: first as u32,
    };
    Ok((Asked { wanted, filled, centres, m, s }, query))
}

impl Asked {
    /// `S` of a column of a tile, in the slots that have a row and a centre.
    fn factor_of_tile(&self, tile: usize, column: usize) -> Factor {
        let mut factor = vec![0; DEGREE];
        let blocks = factor.chunks_exact_mut(self.wanted.block());
        for (slots, s) in blocks.zip(self.wanted.numbers(&self.s, tile, column)) {
            slots.iter_mut().take(self.filled).for_each(|slot| *slot = s.unwrap_or_default());
        }
        Factor::new(&factor)
    }

    /// `m` of a tile, in the same slots.
    fn factor_of_centres(&self, tile: usize, mut m: Vec<u64>) -> Factor {
        let blocks = m.chunks_exact_mut(self.wanted.block());
        for (slots, s) in blocks.zip(self.wanted.numbers(&self.s, tile, 0)) {
            slots.iter_mut().skip(if s.is_some() { self.filled } else { 0 }).for_each(|slot| *slot = 0);
        }
        Factor::new(&m)
    }
}

/// What is known of a chunk's rows after some tiles, column by column.
#[derive(Clone, Debug)]
pub struct Partial {
    /// `sum_j J_j W_j`, in every block.
    sums: Vec<Slots<L0>>,
    /// `Y`, a part of it in each block. Zero in slots that are no row's, as are the sums.
    cross: Vec<Slots<L1>>,
}

/// P1 makes what it has to take off.
pub fn finish(mut asked: Asked, answer: Answer<Fresh>) -> Result<Partial, ProtocolError> {
    let Wanted { columns, count, .. } = asked.wanted;
    let (found, expected) = ((answer.tiles.len(), answer.sums.len()), (count, columns));
    if found != expected {
        return Err(ProtocolError::Malformed(format!("{found:?} tiles and columns instead of {expected:?}")));
    }
    let masks = std::mem::take(&mut asked.m).into_par_iter().enumerate();
    let m: Vec<Factor> = masks.map(|(tile, mask)| asked.factor_of_centres(tile, mask)).collect();
    let tiles = answer.tiles;
    let of_column = |column: usize| {
        let s: Vec<Factor> = (0..count).map(|tile| asked.factor_of_tile(tile, column)).collect();
        let centres = asked.centres.iter().filter_map(|tile| tile.get(column));
        let mut cross = Slots::dot_any(centres.zip(&m))?;
        cross.add(&Slots::dot(tiles.iter().zip(&s))?);
        Some(cross)
    };
    let cross = (0..columns).into_par_iter().map(of_column).collect::<Option<Vec<_>>>();
    Ok(Partial {
        sums: answer.sums.into_iter().map(Slots::from).collect(),
        cross: cross.ok_or(ProtocolError::Cancelled)?,
    })
}

impl Partial {
    fn nothing(columns: usize) -> Self {
        Self { sums: vec![Slots::clear(&[]); columns], cross: vec![Slots::clear(&[]); columns] }
    }

    fn add(&mut self, other: &Self) {
        self.sums.iter_mut().zip(&other.sums).for_each(|(sum, other)| sum.add(other));
        self.cross.iter_mut().zip(&other.cross).for_each(|(sum, other)| sum.add(other));
    }
}

/// For every chunk and column `sum_j I_ij V_j`: the number of the centre that row `i` belongs to, the same in every block, and zero in slots
/// that are no row's. `packed` has the number of centre `j`, column `l` of `d` in slot `j d + l`. `assignment` has the tiles of every chunk;
/// their slots without a row or centre may hold anything.
pub async fn blend(
    session: &Session,
    tiles: &Tiles,
    columns: usize,
    packed: &[Slots<L1>],
    assignment: &[Vec<Slots<L1>>],
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let (chunks, groups) = (tiles.chunks(), tiles.groups());
    if assignment.len() != chunks || assignment.iter().any(|chunk| chunk.len() != groups) {
        return Err(ProtocolError::Misuse(format!("a table of {chunks} chunks has {groups} tiles in each")));
    }
    Wanted { tiles: *tiles, columns, first: 0, count: 1 }.check(packed.len()).map_err(ProtocolError::Misuse)?;
    let mut totals = vec![Partial::nothing(columns); chunks];
    let step = (HELD / columns).clamp(1, GROUP);
    for first in (0..groups).step_by(step) {
        let count = step.min(groups - first);
        let centres = Arc::new(broadcast(session, tiles, columns, packed, first..first + count).await?);
        let belonging = assignment.iter().enumerate().map(|(chunk, assignment)| Belonging {
            tiles: *tiles,
            columns,
            chunk,
            first,
            assignment: assignment.iter().skip(first).take(count).cloned().collect(),
            packed: packed.to_vec(),
            centres: centres.clone(),
        });
        let (items, weight) = (belonging.collect(), count + columns.max(packed.len()));
        let partial = session.round::<Blend, _, _, _>(items, weight, ask, finish).await?;
        totals.iter_mut().zip(&partial).for_each(|(total, partial)| total.add(partial));
    }
    without_cross(session, tiles, totals).await
}

/// Takes off what P2 could not, all blocks together.
async fn without_cross(
    session: &Session,
    tiles: &Tiles,
    totals: Vec<Partial>,
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let (sums, cross): (Vec<_>, Vec<_>) = totals.into_iter().map(|total| (total.sums, total.cross)).unzip();
    let (cross, lengths) = together(cross);
    let mut cross = fold::fold(session, tiles, cross).await?;
    // Noise is that of the number of tiles, so whether there is a round more tells nothing else.
    let is_noisy = |slots: &Slots<L1>| slots.noise().scaled(SPARE).times_clear::<L1>().checked_for_flooding().is_err();
    if cross.iter().any(is_noisy) {
        cross = fold::refresh(session, cross).await?;
    }
    let less = |(sum, cross): (Slots<L0>, &Slots<L1>)| {
        let mut sum = sum.raised();
        sum.sub(cross);
        sum
    };
    let of_chunk = |(sums, cross): (Vec<Slots<L0>>, Vec<Slots<L1>>)| sums.into_iter().zip(&cross).map(less).collect();
    Ok(sums.into_iter().zip(lengths.apart(cross)?).map(of_chunk).collect())
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::testing::Parties;

    /// Tiles of one chunk: one where a row belongs to a centre, anything where there is no row or no centre.
    fn encrypt(parties: &mut Parties, tiles: &Tiles, of_row: &[Option<usize>]) -> Vec<Vec<Slots<L1>>> {
        let mut tile = |chunk: usize, group: usize| {
            let mut values = parties.numbers();
            for (slot, value) in values.iter_mut().enumerate() {
                if let (Some(row), Some(centre)) = (tiles.row_of(chunk, slot), tiles.centre_of(group, slot)) {
                    *value = u64::from(of_row[row] == Some(centre));
                }
            }
            parties.encrypt(&values)
        };
        (0..tiles.chunks()).map(|chunk| (0..tiles.groups()).map(|group| tile(chunk, group)).collect()).collect()
    }

    /// Opens what was blended and compares it with the clear.
    fn expect(parties: &Parties, tiles: &Tiles, numbers: &[u64], of_row: &[Option<usize>], blended: &[Vec<Slots<L1>>]) {
        let columns = numbers.len() / tiles.centres();
        assert_eq!(blended.len(), tiles.chunks());
        for (chunk, blended) in blended.iter().enumerate() {
            assert_eq!(blended.len(), columns);
            for (column, blended) in blended.iter().enumerate() {
                let number = |slot| {
                    let centre = tiles.row_of(chunk, slot).and_then(|row| of_row[row]);
                    centre.map_or(0, |centre| numbers[centre * columns + column])
                };
                let expected: Vec<u64> = (0..DEGREE).map(number).collect();
                assert!(parties.open(blended) == expected, "column {column} of chunk {chunk}, {tiles:?}");
                blended.noise().times_clear::<L1>().checked_for_flooding().unwrap();
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_get_the_numbers_of_their_centres() {
        let mut parties = Parties::new(330);
        for (rows, centres, columns) in
            [(3, 2, 1), (100, 7, 3), (1000, 33, 2), (9000, 5, 2), (5, 6000, 2), (1, 1, 64), (4097, 3, 60)]
        {
            let tiles = Tiles::new(rows, centres);
            let numbers = plain::uniform_vec(centres * columns, &mut parties.rng);
            // One row in so many belongs to no centre.
            let mut draw = || plain::uniform_below(centres as u64 + 1, &mut parties.rng) as usize;
            let of_row: Vec<Option<usize>> = (0..rows).map(|_| Some(draw()).filter(|j| *j < centres)).collect();
            let packed: Vec<Slots<L1>> = numbers.chunks(DEGREE).map(|part| parties.encrypt(part)).collect();
            let assignment = encrypt(&mut parties, &tiles, &of_row);
            let before = parties.session.traffic().rounds();
            let blended = blend(&parties.session, &tiles, columns, &packed, &assignment).await.unwrap();
            let windows = tiles.groups().div_ceil((HELD / columns).clamp(1, GROUP)) as u64;
            let rounds = 2 * windows + u64::from(tiles.centres_per_tile() > 1);
            assert_eq!(parties.session.traffic().rounds() - before, rounds);
            expect(&parties, &tiles, &numbers, &of_row, &blended);
        }
    }

    /// The noise of so many tiles would leave no room for a product: it takes a round more.
    #[tokio::test(flavor = "multi_thread")]
    async fn many_tiles_leave_little_noise() {
        let mut parties = Parties::new(331);
        let tiles = Tiles::new(4097, 800);
        let numbers = plain::uniform_vec(800, &mut parties.rng);
        let of_row: Vec<Option<usize>> = (0..4097).map(|row| Some(row % 2 * 799)).collect();
        let packed = vec![parties.encrypt(&numbers)];
        let few =
            encrypt(&mut parties, &Tiles::new(4097, 3), &(0..4097).map(|row| Some(row % 2 * 2)).collect::<Vec<_>>());
        let tile = |group: usize| {
            few[0][match group {
                0 => 0,
                799 => 2,
                _ => 1,
            }]
            .clone()
        };
        let assignment = vec![(0..800).map(tile).collect()];
        let blended = blend(&parties.session, &tiles, 1, &packed, &assignment).await.unwrap();
        assert_eq!(parties.session.traffic().rounds(), 2 * 50 + 1);
        expect(&parties, &tiles, &numbers, &of_row, &blended);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tables_of_the_wrong_shape_are_refused() {
        let mut parties = Parties::new(332);
        let slots = parties.encrypt(&[1]);
        let one = vec![vec![slots.clone()]];
        let packed = vec![slots.clone()];
        let ask = async |tiles: Tiles, columns, packed: &[Slots<L1>], assignment: &[Vec<Slots<L1>>]| {
            blend(&parties.session, &tiles, columns, packed, assignment).await.unwrap_err().to_string()
        };
        let text = ask(Tiles::new(9000, 1), 1, &packed, &one).await;
        assert_eq!(text, "a table of 2 chunks has 1 tiles in each");
        let text = ask(Tiles::new(9, 1), 1, &packed, &[vec![slots.clone(); 2]]).await;
        assert_eq!(text, "a table of 1 chunks has 1 tiles in each");
        assert_eq!(ask(Tiles::new(9, 0), 1, &[], &[vec![]]).await, "no 1 tiles from 0 of 0");
        let text = ask(Tiles::new(9, 1), 0, &[], &one).await;
        assert_eq!(text, "centres have 1 to 64 columns, and not 0");
        let text = ask(Tiles::new(9, 1), 1, &[], &one).await;
        assert_eq!(text, "1 centres of 1 columns take 1 vectors, and there are 0");
    }

    /// What someone does to a question.
    type Forge = fn(&mut Query<Outbound>);

    #[tokio::test(flavor = "multi_thread")]
    async fn forged_questions_are_refused() {
        let mut parties = Parties::new(333);
        let (slots, tiles) = (parties.encrypt(&[1]), Tiles::new(9, 3));
        let centres = Arc::new(broadcast(&parties.session, &tiles, 1, slice::from_ref(&slots), 0..1).await.unwrap());
        let (assignment, packed) = (vec![slots.clone()], vec![slots]);
        let question = Belonging { tiles, columns: 1, chunk: 0, first: 0, assignment, packed, centres };
        let forged: [(Forge, &str); 4] = [
            (|query| query.filled = 17, "a block of 16 slots has no 17 rows"),
            (|query| query.first = 1, "no 1 tiles from 1 of 1"),
            (|query| query.block = 48, "no block of a tile has 48 slots"),
            (|query| query.columns = 2, "(1, 2) tiles and columns instead of (1, 1)"),
        ];
        for (forge, sentence) in forged {
            let forged = move |question, asker: &mut Asker<'_>| {
                let (asked, mut query) = ask(question, asker)?;
                forge(&mut query);
                Ok((asked, query))
            };
            let outcome = parties.session.round::<Blend, _, _, _>(vec![question.clone()], 2, forged, finish).await;
            assert_eq!(outcome.unwrap_err().to_string(), format!("malformed message: {sentence}"));
        }
        let wrong = Belonging { columns: 2, ..question };
        let outcome = parties.session.round::<Blend, _, _, _>(vec![wrong], 2, ask, finish).await;
        assert_eq!(outcome.unwrap_err().to_string(), "1 tiles need 2 columns of centres each");
    }
}
