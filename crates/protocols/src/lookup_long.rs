//! `f(x)` for few `x` in a long range `0 .. m`: one number a centre.
//!
//! ```text
//!  P1: rho uniform below t - m            x + rho  for every centre, m  -->  w, without wrapping
//!                                                                       <--  [w mod m = p]  for every centre and p, as tiles      P2
//!  P1: [w mod m = p] f(p - rho mod m),  over all chunks
//!  `block_sums`:  f(x), in all columns of its centre
//! ```
//! [`lookup_range`](crate::lookup_range) takes a ciphertext for every number of its range, whether it has one `x` or 8192. Here the
//! range lies in the slots: centres and numbers share vectors as centres and rows do in [`Tiles`]. `w` is within `m / t`, below
//! `2^-27`, of uniform. The rows of one question share `rho`, so that it is that near to uniform in all of them together.
//!
//! Two rounds. For `c` chunks of `g` tiles (of `m` numbers and all centres): `c g` ciphertexts down, a packed vector up for every
//! sixteen of them; then for every table `g` up and a packed vector down for every sixteen of these.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{
    DEGREE, Factor, Fresh, Inbound, KeyHolder, L0, L1, Outbound, PLAIN_MODULUS, SeededSlots, Slots, plain,
};
use zeroize::Zeroizing;

use crate::block_sums::{self, GROUP, Part, Shape};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Tiles, Workload};

/// The protocol.
#[derive(Debug)]
pub struct LookupLong;

/// The longest range: the sizes of clusters of up to 2^20 rows.
pub const MAX_NUMBERS: usize = (1 << 20) + 1;

message! {
    /// The masked numbers, packed, and which tiles are wanted.
    Query<C: Outbound => Inbound> {
        /// `x + rho`: that of a centre is in the slot of its first column.
        masked: Vec<C>,
        /// `m`.
        numbers: u32,
        /// How many centres there are.
        centres: u32,
        /// How many columns there are.
        of: u32,
        /// The first tile, counted through the chunks of one, then those of the next.
        first: u32,
        /// How many tiles.
        count: u32,
    }
}

message! {
    /// Which residue it is.
    Answer<C: SeededSlots => Fresh> {
        /// One tile of bits each.
        hits: Vec<C>,
    }
}

/// Tiles of numbers and centres, and how centres are packed. Says what is wrong with numbers from outside.
fn checked(numbers: u32, centres: u32, columns: u32) -> Result<(Tiles, Shape), String> {
    if !(1..=MAX_NUMBERS).contains(&(numbers as usize)) {
        return Err(format!("a long lookup takes a range of 1 to {MAX_NUMBERS} numbers, not {numbers}"));
    }
    // How long a block is does not matter to how numbers are packed.
    let shape = Shape::checked([1, 1, centres, columns])?;
    Ok((Tiles::new(numbers as usize, centres as usize), shape))
}

impl Query<Inbound> {
    fn shape(&self) -> Result<Tiles, ProtocolError> {
        let checked = checked(self.numbers, self.centres, self.of);
        let (tiles, shape) = checked.map_err(ProtocolError::Malformed)?;
        let (first, count, all) = (self.first as usize, self.count as usize, tiles.chunks() * tiles.groups());
        if !(1..=GROUP).contains(&count) || first.saturating_add(count) > all {
            return Err(ProtocolError::Malformed(format!("no {count} tiles from {first} of {all}")));
        }
        if self.masked.len() != shape.packed() {
            let text = format!("{} packed vectors instead of {}", self.masked.len(), shape.packed());
            return Err(ProtocolError::Malformed(text));
        }
        Ok(tiles)
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.shape().map(|_| self.count as usize)
    }
}

impl Protocol for LookupLong {
    const NAME: &'static str = "lookup_long";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "a function over a long public range, for few numbers";
    const LEAKAGE: Leakage = Leakage { p1: "nothing", p2: "nothing: values are masked to within 2^-27 of uniform" };
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
        let tiles = query.shape()?;
        let (columns, numbers) = (query.of as usize, u64::from(query.numbers.max(1)));
        let opened: Vec<_> = query.masked.into_par_iter().map(|masked| holder.open(masked)).collect();
        let firsts = opened.iter().flat_map(|vector| vector.iter()).step_by(columns.max(1)).take(tiles.centres());
        let residues: Vec<usize> = firsts.map(|w| (w % numbers) as usize).collect();
        let block = DEGREE / tiles.centres_per_tile();
        let work: Vec<(usize, StdRng)> = (query.first as usize..)
            .take(query.count as usize)
            .map(|tile| (tile, StdRng::from_rng(&mut rng)))
            .collect();
        let seal = |(tile, mut rng): (usize, StdRng)| {
            let (group, chunk) = (tile / tiles.chunks(), tile % tiles.chunks());
            let mut hits = vec![0; DEGREE];
            for (start, hits) in (0..DEGREE).step_by(block).zip(hits.chunks_exact_mut(block)) {
                let residue = tiles.centre_of(group, start).and_then(|centre| residues.get(centre));
                let here = residue.filter(|residue| **residue / DEGREE == chunk);
                if let Some(hit) = here.and_then(|residue| hits.get_mut(residue % DEGREE)) {
                    *hit = 1;
                }
            }
            holder.seal(&hits, &mut rng)
        };
        Ok(Answer { hits: work.into_par_iter().map(seal).collect() })
    }
}

/// What to look up.
#[derive(Clone)]
pub struct Question {
    /// `x`, packed: that of a centre is in the slot of its first column.
    pub slots: Vec<Slots<L1>>,
    /// How many centres there are.
    pub centres: usize,
    /// How many columns there are.
    pub columns: usize,
    /// The functions: for every number of the range, from zero, one below `t`. All are answered by the same rounds.
    pub tables: Vec<Arc<[u64]>>,
}

/// A question with what its rows share.
struct Shared {
    question: Question,
    tiles: Tiles,
    /// For every centre, `rho` modulo `m`.
    residues: Vec<u64>,
    /// All of it, packed.
    mask: Zeroizing<Vec<u64>>,
}

/// Some tiles of a question.
pub struct Row {
    shared: Arc<Shared>,
    first: usize,
    count: usize,
}

/// A group of tiles, and for every table what its hits weigh.
pub type Weighed = (usize, Vec<Slots<L1>>);

/// P1 masks.
pub fn ask(row: Row, asker: &mut Asker<'_>) -> Result<(Row, Query<Outbound>), ProtocolError> {
    let Shared { question, tiles, mask, .. } = &*row.shared;
    let numbers = tiles.rows();
    let masked = question.slots.iter().zip(mask.chunks_exact(DEGREE)).map(|(slots, mask)| asker.send(slots, mask));
    let query = Query {
        masked: masked.collect::<Result<_, _>>()?,
        numbers: numbers as u32,
        centres: question.centres as u32,
        of: question.columns as u32,
        first: row.first as u32,
        count: row.count as u32,
    };
    Ok((row, query))
}

/// P1 weighs the hits with each table: for every group of tiles, one vector a table.
pub fn finish(row: Row, answer: Answer<Fresh>) -> Result<Vec<Weighed>, ProtocolError> {
    if answer.hits.len() != row.count {
        return Err(ProtocolError::Malformed(format!("{} of {} tiles", answer.hits.len(), row.count)));
    }
    let Shared { question, tiles, residues, .. } = &*row.shared;
    let chunks = tiles.chunks();
    // The number of the range that each slot stands for.
    let numbers = |tile: usize| -> Vec<Option<usize>> {
        let number = |slot| {
            let (place, centre) = (tiles.row_of(tile % chunks, slot)?, tiles.centre_of(tile / chunks, slot)?);
            Some((place + tiles.rows() - *residues.get(centre)? as usize) % tiles.rows())
        };
        (0..DEGREE).map(number).collect()
    };
    let tiles_of_row: Vec<(usize, &Fresh)> = (row.first..).zip(&answer.hits).collect();
    let weigh = |run: &[(usize, &Fresh)]| {
        let numbers: Vec<Vec<Option<usize>>> = run.par_iter().map(|(tile, _)| numbers(*tile)).collect();
        let weighed = |table: &Arc<[u64]>| {
            let value = |number: &Option<usize>| number.and_then(|number| table.get(number)).copied().unwrap_or(0);
            let factor = |numbers: &Vec<Option<usize>>| Factor::new(&numbers.iter().map(value).collect::<Vec<_>>());
            let factors: Vec<Factor> = numbers.par_iter().map(factor).collect();
            Slots::dot(run.iter().map(|(_, hits)| *hits).zip(&factors)).ok_or(ProtocolError::Cancelled)
        };
        let group = run.first().map_or(0, |(tile, _)| tile / chunks);
        Ok((group, question.tables.iter().map(weighed).collect::<Result<Vec<_>, ProtocolError>>()?))
    };
    tiles_of_row.chunk_by(|(a, _), (b, _)| a / chunks == b / chunks).map(weigh).collect()
}

/// `rho` with these residues, below `t - m`; uniform in slots that hold no number.
fn mask(question: &Question, numbers: u64, residues: &[u64], rng: &mut StdRng) -> Zeroizing<Vec<u64>> {
    let multiples = (PLAIN_MODULUS - numbers) / numbers;
    let mut mask = Zeroizing::new(plain::uniform_vec(question.slots.len() * DEGREE, rng));
    for (mask, residue) in mask.iter_mut().step_by(question.columns.max(1)).zip(residues) {
        *mask = residue + numbers * plain::uniform_below(multiples, rng);
    }
    mask
}

/// For every table its values, packed, in all columns of a centre. Numbers beyond the range become zero.
pub async fn lookup_long(session: &Session, question: Question) -> Result<Vec<Vec<Slots<L0>>>, ProtocolError> {
    let range = question.tables.first().map_or(0, |table| table.len());
    let [numbers, centres, columns] =
        [range, question.centres, question.columns].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    let (tiles, shape) = checked(numbers, centres, columns).map_err(ProtocolError::Misuse)?;
    if question.slots.len() != shape.packed() || question.tables.iter().any(|table| table.len() != range) {
        let text = format!("a long lookup takes tables of {range} values and {} packed vectors", shape.packed());
        return Err(ProtocolError::Misuse(text));
    }
    question.tables.iter().try_for_each(|table| plain::checked(table))?;
    let (tables, columns) = (question.tables.len(), question.columns);
    let mut rng = session.randomness().fork();
    let residues: Vec<u64> = (0..tiles.centres()).map(|_| plain::uniform_below(range as u64, &mut rng)).collect();
    let mask = mask(&question, range as u64, &residues, &mut rng);
    let shared = Arc::new(Shared { question, tiles, residues, mask });
    let all = tiles.chunks() * tiles.groups();
    let row = |first| Row { shared: shared.clone(), first, count: GROUP.min(all - first) };
    let rows: Vec<Row> = (0..all).step_by(GROUP).map(row).collect();
    let found = session.round::<LookupLong, _, _, _>(rows, GROUP.max(shape.packed()), ask, finish).await?;

    // Chunks of one group follow each other, in the same row or the next.
    let mut lists: Vec<Vec<Part>> = vec![Vec::new(); tables];
    for (group, weighed) in found.into_iter().flatten() {
        for (list, slots) in lists.iter_mut().zip(weighed) {
            match list.last_mut() {
                Some(last) if last.group == group => last.slots.add(&slots),
                _ => list.push(Part { slots, group, column: None }),
            }
        }
    }
    block_sums::block_sums(session, &tiles, columns, lists).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_number_of_the_range_is_found() {
        let mut parties = Parties::new(320);
        for (range, centres, columns) in [(1, 3usize, 1usize), (4, 7, 3), (1025, 40, 2), (20_000, 18, 3), (3, 5000, 2)]
        {
            let square: Arc<[u64]> = (0..range).map(|x| plain::mul(x, x) + 1).collect();
            let is_zero: Arc<[u64]> = (0..range).map(|x| u64::from(x == 0)).collect();
            let mut numbers: Vec<u64> = (0..centres).map(|_| plain::uniform_below(range, &mut parties.rng)).collect();
            numbers[..2].copy_from_slice(&[0, range - 1]);
            // What is in the slots of other columns does not matter.
            let mut packed = parties.numbers().repeat((centres * columns).div_ceil(DEGREE));
            packed.iter_mut().step_by(columns).zip(&numbers).for_each(|(slot, number)| *slot = *number);
            let slots = packed.chunks(DEGREE).map(|vector| parties.encrypt(vector)).collect();
            let tables = vec![square.clone(), is_zero.clone()];
            let found = lookup_long(&parties.session, Question { slots, centres, columns, tables }).await.unwrap();
            for (found, table) in found.iter().zip([square, is_zero]) {
                let found: Vec<u64> = found.iter().flat_map(|slots| parties.open(&slots.raised())).collect();
                let expected = numbers.iter().flat_map(|number| vec![table[*number as usize]; columns]);
                let expected: Vec<u64> = expected.chain(std::iter::repeat(0)).take(found.len()).collect();
                assert!(found == expected, "{centres} of {range} numbers");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn impossible_questions_are_refused() {
        let mut parties = Parties::new(321);
        let slots = vec![parties.encrypt(&[1])];
        for (range, centres, columns) in [(0, 1, 1), (MAX_NUMBERS + 1, 1, 1), (2, 0, 1), (2, 8193, 1), (2, 1 << 20, 1)]
        {
            let tables = vec![vec![0; range].into()];
            let question = Question { slots: slots.clone(), centres, columns, tables };
            let error = lookup_long(&parties.session, question).await.unwrap_err();
            assert!(matches!(error, ProtocolError::Misuse(_)), "{centres} of {range} numbers");
        }
        let tables: Vec<Arc<[u64]>> = vec![vec![1, 2].into(), vec![1].into()];
        let question = Question { slots, centres: 1, columns: 1, tables };
        assert!(lookup_long(&parties.session, question).await.is_err());
    }
}
