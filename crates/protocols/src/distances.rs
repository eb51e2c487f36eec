//! How far rows are from centres, for comparisons: squares of the rows themselves are left out, as every centre has them in common.
//!
//! ```text
//!  P1: R, S uniform             U = T + R of every column,  V = C + S packed, weights w  -->
//!                                                <--  U,  W = sum_l w_l (V_l^2 - 2 U_l V_l) of some tiles          P2
//!  P1: sum_l w_l (C_l^2 - 2 T_l C_l)  =  W + sum_l w_l (2 (R_l - S_l) C_l + 2 S_l U_l - S_l^2)
//! ```
//! `C` in tiles comes from [`broadcast`](crate::broadcast), once for all chunks of rows. Slots without a row or a centre are zero: what
//! follows must not compare centres with each other in slots that P2 knows. One round for a chunk of `d` columns: for every sixteen tiles `d` ciphertexts and the packed centres go up, `16 + d` come back. A slot is a pair
//! of a row and a centre; with three columns and one packed vector it takes 7 bytes up and 32 down.

use std::ops::Range;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, L0, L1, Offset, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::broadcast::{GROUP, Wanted, mask};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Tiles, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Distances;

message! {
    /// Masked rows and centres, and which tiles are wanted.
    Query<C: Outbound => Inbound> {
        /// `U`, a vector a column.
        rows: Vec<C>,
        /// `V`, all packed vectors.
        packed: Vec<C>,
        /// `w`, one a column, below `2^32`.
        weights: Vec<u64>,
        /// How many centres there are.
        centres: u32,
        /// Slots of a block.
        block: u32,
        /// How many of them hold a row, from the first.
        filled: u32,
        /// The first tile.
        first: u32,
        /// How many tiles.
        count: u32,
    }
}

message! {
    /// The rows, fresh, and distances.
    Answer<C: SeededSlots => Fresh> {
        /// `U`.
        rows: Vec<C>,
        /// `W`, one a tile.
        distances: Vec<C>,
    }
}

impl Query<Inbound> {
    fn wanted(&self) -> Result<Wanted, ProtocolError> {
        let (columns, weights) = (self.rows.len(), self.weights.len());
        if columns != weights || self.weights.iter().any(|weight| *weight > u32::MAX.into()) {
            let text = format!("{columns} columns have {weights} weights, or some weight is 2^32 or more");
            return Err(ProtocolError::Malformed(text));
        }
        if self.filled > self.block {
            let text = format!("a block of {} slots has no {} rows", self.block, self.filled);
            return Err(ProtocolError::Malformed(text));
        }
        let columns = u32::try_from(columns).unwrap_or(u32::MAX);
        Wanted::received([columns, self.centres, self.block, self.first, self.count], self.packed.len())
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.wanted().map(|wanted| wanted.columns + wanted.count)
    }
}

impl Protocol for Distances {
    const NAME: &'static str = "distances";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "squared distances of rows to centres, without the squares of the rows";
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
        let rows: Vec<_> = query.rows.into_par_iter().map(|rows| holder.open(rows)).collect();
        let packed: Vec<_> = query.packed.into_par_iter().map(|packed| holder.open(packed)).collect();
        let mut rngs = |count: usize| (0..count).map(|_| StdRng::from_rng(&mut rng)).collect::<Vec<_>>();
        let (row_rngs, tile_rngs) = (rngs(wanted.columns), rngs(wanted.count));
        let tile = |sums: &mut Zeroizing<Vec<u64>>, (tile, mut rng): (usize, StdRng)| {
            sums.fill(0);
            for (column, (u, weight)) in rows.iter().zip(&query.weights).enumerate() {
                let blocks = sums.chunks_exact_mut(wanted.block()).zip(u.chunks_exact(wanted.block()));
                for ((sums, u), v) in blocks.zip(wanted.numbers(&packed, tile, column)) {
                    let Some(v) = v else { continue };
                    let weighted = plain::mul(*weight, v);
                    for (sum, u) in sums.iter_mut().zip(u).take(query.filled as usize) {
                        let difference = plain::sub(v, plain::add(*u, *u));
                        *sum = plain::add(*sum, plain::mul(weighted, difference));
                    }
                }
            }
            holder.seal(sums, &mut rng)
        };
        let distances = tile_rngs.into_par_iter().enumerate().map_init(|| Zeroizing::new(vec![0; DEGREE]), tile);
        let distances = distances.collect();
        let rows = rows.par_iter().zip(row_rngs).map(|(rows, mut rng)| holder.seal(rows, &mut rng)).collect();
        Ok(Answer { rows, distances })
    }
}

/// A chunk of rows, and some tiles of centres.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// Where rows and centres lie.
    pub tiles: Tiles,
    /// The weight of every column.
    pub weights: Arc<[u32]>,
    /// Which chunk of rows it is.
    pub chunk: usize,
    /// Its rows, a vector a column: repeated in every block.
    pub rows: Vec<Slots<L1>>,
    /// The packed centres.
    pub packed: Vec<Slots<L1>>,
    /// The first tile.
    pub first: usize,
    /// All columns of the centres of every wanted tile: up to sixteen.
    pub centres: Vec<Vec<Slots<L0>>>,
}

/// What P1 remembers: its masks, and what it asked for.
pub struct Asked {
    wanted: Wanted,
    /// Rows of a block.
    filled: usize,
    weights: Arc<[u32]>,
    centres: Vec<Vec<Slots<L0>>>,
    r: Vec<Vec<u64>>,
    s: Vec<Vec<u64>>,
}

/// P1 masks rows and centres.
pub fn ask(pairs: Pairs, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Pairs { tiles, weights, chunk, rows, packed, first, centres } = pairs;
    let columns = rows.len();
    if weights.len() != columns || centres.iter().any(|tile| tile.len() != columns) {
        return Err(ProtocolError::Misuse(format!(
            "{columns} columns of rows need as many weights and columns of centres"
        )));
    }
    let wanted = Wanted { tiles, columns, first, count: centres.len() };
    let wanted = wanted.check(packed.len()).map_err(ProtocolError::Misuse)?;
    let filled = (0..wanted.block()).take_while(|slot| tiles.row_of(chunk, *slot).is_some()).count();
    let ((r, rows), (s, packed)) = (mask(&rows, asker)?, mask(&packed, asker)?);
    let query = Query {
        rows,
        packed,
        weights: weights.iter().copied().map(u64::from).collect(),
        centres: tiles.centres() as u32,
        block: wanted.block() as u32,
        filled: filled as u32,
        first: wanted.first as u32,
        count: wanted.count as u32,
    };
    Ok((Asked { wanted, filled, weights, centres, r, s }, query))
}

impl Asked {
    /// For a column of a tile: `2 w (R - S)`, to multiply centres by, and `2 w S`, to multiply rows by. Adds `w S^2` to the squares.
    fn factors(&self, tile: usize, column: usize, weight: u32, buffers: &mut Buffers) -> (Factor, Factor) {
        let Buffers { of_centres, of_rows, squares } = buffers;
        let twice = 2 * u64::from(weight);
        let r = self.r.get(column).map(Vec::as_slice).unwrap_or_default();
        let block = self.wanted.block();
        let blocks = of_centres.chunks_exact_mut(block).zip(of_rows.chunks_exact_mut(block));
        let blocks = blocks.zip(squares.chunks_exact_mut(block)).zip(r.chunks_exact(block));
        for ((((of_centres, of_rows), squares), r), s) in blocks.zip(self.wanted.numbers(&self.s, tile, column)) {
            of_centres.fill(0);
            of_rows.fill(0);
            let Some(s) = s else { continue };
            let (of_row, square) = (plain::mul(twice, s), plain::mul(plain::mul(weight.into(), s), s));
            of_rows.iter_mut().take(self.filled).for_each(|slot| *slot = of_row);
            squares.iter_mut().take(self.filled).for_each(|sum| *sum = plain::add(*sum, square));
            let centres = of_centres.iter_mut().zip(r).take(self.filled);
            centres.for_each(|(slot, r)| *slot = plain::mul(twice, plain::sub(*r, s)));
        }
        (Factor::new(of_centres), Factor::new(of_rows))
    }
}

/// Clear vectors on their way.
struct Buffers {
    of_centres: Vec<u64>,
    of_rows: Vec<u64>,
    squares: Vec<u64>,
}

/// P1 takes the masks off: one vector a tile.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let found = (answer.rows.len(), answer.distances.len());
    let expected = (asked.wanted.columns, asked.wanted.count);
    if found != expected {
        return Err(ProtocolError::Malformed(format!("{found:?} columns and tiles instead of {expected:?}")));
    }
    let rows = answer.rows;
    let unmask = |(tile, distances): (usize, Fresh)| {
        let zeros = || vec![0; DEGREE];
        let mut buffers = Buffers { of_centres: zeros(), of_rows: zeros(), squares: zeros() };
        let weights = asked.weights.iter().enumerate();
        let factors = weights.map(|(column, weight)| asked.factors(tile, column, *weight, &mut buffers));
        let (of_centres, of_rows): (Vec<Factor>, Vec<Factor>) = factors.unzip();
        let centres = asked.centres.get(tile).into_iter().flatten();
        let mut sum = distances.raised();
        let crossed = [Slots::dot_any(centres.zip(&of_centres)), Slots::dot(rows.iter().zip(&of_rows))];
        crossed.iter().flatten().for_each(|part| sum.add(part));
        sum.sub_clear(&Offset::new(&buffers.squares));
        sum
    };
    Ok(answer.distances.into_par_iter().enumerate().map(unmask).collect())
}

/// For every tile of `groups`, `sum_l w_l (C_l^2 - 2 T_l C_l)` of every pair of a row of a chunk and a centre, in one round. `rows` are
/// the columns of chunk number `chunk`, `centres` are packed, `broadcast` has them in the tiles of `groups`.
#[allow(clippy::too_many_arguments, reason = "rows, centres and where they lie are what a distance is of")]
pub async fn distances(
    session: &Session,
    tiles: &Tiles,
    weights: &[u32],
    chunk: usize,
    rows: &[Slots<L1>],
    centres: &[Slots<L1>],
    broadcast: &[Vec<Slots<L0>>],
    groups: Range<usize>,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    if broadcast.len() != groups.len() {
        let (found, expected) = (broadcast.len(), groups.len());
        return Err(ProtocolError::Misuse(format!("{expected} tiles need as many of centres, and there are {found}")));
    }
    let weights: Arc<[u32]> = weights.into();
    let pairs = |(first, tile): (usize, &[Vec<Slots<L0>>])| Pairs {
        tiles: *tiles,
        weights: weights.clone(),
        chunk,
        rows: rows.to_vec(),
        packed: centres.to_vec(),
        first,
        centres: tile.to_vec(),
    };
    let pairs = groups.step_by(GROUP).zip(broadcast.chunks(GROUP)).map(pairs).collect();
    let weight = rows.len() + centres.len().max(broadcast.len().min(GROUP));
    let made = session.round::<Distances, _, _, _>(pairs, weight, ask, finish).await?;
    Ok(made.into_iter().flatten().collect())
}

/// Rows and centres in the clear and encrypted, for tests here and of what follows.
#[cfg(test)]
pub(crate) mod example {
    use super::*;
    use crate::broadcast::broadcast;
    use crate::testing::Parties;

    pub(crate) struct Example {
        pub(crate) tiles: Tiles,
        pub(crate) rows: Vec<Vec<i64>>,
        pub(crate) centres: Vec<Vec<i64>>,
        pub(crate) weights: Vec<u32>,
    }

    impl Example {
        /// Numbers within `-bound ..= bound`; the last centre is the first one again.
        pub(crate) fn new(parties: &mut Parties, shape: (usize, usize, usize), bound: i64) -> Self {
            let (rows, centres, columns) = shape;
            let mut draw = |count: usize| -> Vec<Vec<i64>> {
                let mut number = || plain::uniform_below(2 * bound as u64 + 1, &mut parties.rng) as i64 - bound;
                (0..count).map(|_| (0..columns).map(|_| number()).collect()).collect()
            };
            let (tiles, rows, mut centres) = (Tiles::new(rows, centres), draw(rows), draw(centres));
            *centres.last_mut().unwrap() = centres[0].clone();
            Self { tiles, rows, centres, weights: (1..=columns as u32).collect() }
        }

        /// `sum_l w_l (C_l^2 - 2 T_l C_l)`.
        pub(crate) fn distance(&self, row: usize, centre: usize) -> i64 {
            let pairs = self.rows[row].iter().zip(&self.centres[centre]).zip(&self.weights);
            pairs.map(|((t, c), w)| i64::from(*w) * (c * c - 2 * t * c)).sum()
        }

        /// The distances of every chunk.
        pub(crate) async fn measured(&self, parties: &mut Parties) -> Vec<Vec<Slots<L1>>> {
            let numbers = self.centres.concat();
            let packed: Vec<Slots<L1>> = numbers.chunks(DEGREE).map(|part| parties.encrypt_signed(part)).collect();
            let (tiles, columns, groups) = (&self.tiles, self.weights.len(), 0..self.tiles.groups());
            let centres = broadcast(&parties.session, tiles, columns, &packed, groups.clone()).await.unwrap();
            let mut measured = Vec::new();
            for chunk in 0..tiles.chunks() {
                let slot = |column: usize, slot| tiles.row_of(chunk, slot).map_or(99, |row| self.rows[row][column]);
                let values = |column: usize| (0..DEGREE).map(|at| slot(column, at)).collect::<Vec<_>>();
                let rows: Vec<_> = (0..columns).map(|column| parties.encrypt_signed(&values(column))).collect();
                let session = &parties.session;
                let found =
                    distances(session, tiles, &self.weights, chunk, &rows, &packed, &centres, groups.clone()).await;
                measured.push(found.unwrap());
            }
            measured
        }
    }
}

#[cfg(test)]
mod tests {
    use super::example::Example;
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn distances_are_exact() {
        let mut parties = Parties::new(72);
        for shape in [(3, 2, 1), (100, 7, 3), (1000, 33, 2), (9000, 5, 2), (4097, 17, 1)] {
            let example = Example::new(&mut parties, shape, 1 << 15);
            let (tiles, measured) = (example.tiles, example.measured(&mut parties).await);
            assert_eq!(measured.len(), tiles.chunks());
            for (chunk, measured) in measured.iter().enumerate() {
                assert_eq!(measured.len(), tiles.groups());
                for (group, measured) in measured.iter().enumerate() {
                    let opened: Vec<i64> = parties.open(measured).into_iter().map(plain::centred).collect();
                    for (slot, found) in opened.into_iter().enumerate() {
                        let expected = match (tiles.row_of(chunk, slot), tiles.centre_of(group, slot)) {
                            (Some(row), Some(centre)) => example.distance(row, centre),
                            _ => 0,
                        };
                        assert_eq!(found, expected, "{shape:?}, slot {slot} of tile {group} of chunk {chunk}");
                    }
                }
            }
        }
    }

    /// The most columns leave room for the difference of two distances, multiplied once more.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_most_columns_can_be_compared() {
        let mut parties = Parties::new(73);
        let example = Example::new(&mut parties, (3, 2, crate::broadcast::MAX_COLUMNS), 100);
        let measured = example.measured(&mut parties).await.remove(0).remove(0);
        let mut difference = measured.clone();
        difference.sub(&measured);
        let twice = difference.times(&Factor::new(&[1; DEGREE]));
        twice.noise().checked_for_flooding().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_does_not_fit_together_is_refused() {
        let mut parties = Parties::new(74);
        let (slots, tiles) = (parties.encrypt(&[1]), Tiles::new(5, 3));
        let (one, centres): (_, Vec<Slots<L0>>) = ([slots], vec![Slots::clear(&[])]);
        let session = &parties.session;
        let error =
            distances(session, &tiles, &[1, 1], 0, &one, &one, std::slice::from_ref(&centres), 0..1).await.unwrap_err();
        assert_eq!(error.to_string(), "1 columns of rows need as many weights and columns of centres");
        let error =
            distances(session, &tiles, &[1], 0, &one, &one, std::slice::from_ref(&centres), 1..2).await.unwrap_err();
        assert_eq!(error.to_string(), "no 1 tiles from 1 of 1");
        let error = distances(session, &tiles, &[1], 0, &one, &one, &[centres], 0..2).await.unwrap_err();
        assert_eq!(error.to_string(), "2 tiles need as many of centres, and there are 1");
    }
}
