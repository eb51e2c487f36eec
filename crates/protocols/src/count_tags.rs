//! How many rows are in small classes, straight from cells: [`count_classes`](crate::count_classes) where P2 may know which rows are
//! equal. No slots, no shuffle, one round.
//!
//! ```text
//!  P1: c uniform, for every set             columns: seeds, indices
//!      u in [-2^14, 2^14), for every row    sets: sums of bodies + c 2^64/t + u  -->  takes masks off, counts equal tags
//!                                                                                <--  per set: is there a class of fewer
//!                                                                                     than k rows, or how many rows are       P2
//! ```
//! Tags are numbers modulo `t` in their lanes, so the sum of several columns' bodies decrypts to the sum of their tags: equal where
//! all columns are, and otherwise with probability `1/t`, as each column has tags of its own. P2 computes the masks of a column once
//! and adds them up for each set. Clear values and NULLs are labels that P1 adds; sets of clear columns alone it counts itself. The
//! noise of 64 columns (at most 8 each), their rounding and the flood stay below half a step, which is 32770.
//!
//! P2 sees, for each set, which rows are equal, by their places in the file, and how their sums of tags differ: it holds no key that
//! makes a tag of a value. Where it sees the sums of a set with and without a clear column, it can subtract them, and sees which rows
//! are equal in that column.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_cells::{POLYNOMIAL_SIZE, Seed, phase_of_tag, tag_of_phase};
use veil_slots::{KeyHolder, Sample, plain};
use zeroize::Zeroizing;

use crate::channel::blocking;
use crate::count_classes::{checked, in_small_classes};
use crate::lift_tags::flood;
use crate::limits::BATCH_CIPHERTEXTS;
use crate::message::message;
use crate::open::Purpose;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

mod table;

pub use table::{Source, TagTable};

/// The protocol.
#[derive(Debug)]
pub struct CountTags;

/// The most columns of a table.
pub const MAX_COLUMNS: usize = 64;

/// The most chunks of cells in one query.
pub const MAX_SEEDS: usize = u16::MAX as usize;

/// Bytes of bodies in one query, unless one set has more: some sets share the places that are sent.
const QUERY_BYTES: usize = 4 << 20;

/// Sets of one query, so that those of few rows are spread as well.
const QUERY_SETS: usize = 256;

/// Bytes of a sample's place.
const PLACE_BYTES: usize = 4;

/// The place where a column has no sample.
const NO_SAMPLE: (u16, u16) = (u16::MAX, u16::MAX);

message! {
    /// Samples of some columns, and for some sets of these columns the sums of their bodies.
    Query {
        /// Rows.
        rows: u32,
        /// Columns.
        columns: u32,
        /// The seeds, 16 bytes each.
        seeds: Vec<u8>,
        /// Column by column, for every row the number of its seed and its index, `u16` each; all ones where there is no sample.
        places: Vec<u8>,
        /// Sets of columns: bit 0 is the first.
        sets: Vec<u64>,
        /// Set by set, for every row the sum of the bodies.
        bodies: Vec<u64>,
        /// Classes of fewer rows are small.
        k: u32,
        /// 1 to count rows, 0 to say whether there are any.
        detail: u32,
    }
}

message! {
    /// What was found.
    Answer {
        /// One number a set.
        found: Vec<u64>,
    }
}

impl Workload for Query {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let malformed = |why: String| Err(ProtocolError::Malformed(why));
        let (rows, columns) = (self.rows as usize, self.columns as usize);
        if rows == 0 || !(1..=MAX_COLUMNS).contains(&columns) || self.sets.is_empty() {
            return malformed(format!("{rows} rows of {columns} columns are not a table"));
        }
        if rows > TagTable::max_rows(columns) {
            let limit = TagTable::max_rows(columns);
            return Err(ProtocolError::TooLarge { what: "a number of rows", found: rows, limit });
        }
        let (samples, bodies) = (rows.saturating_mul(columns), rows.saturating_mul(self.sets.len()));
        if self.places.len() != samples.saturating_mul(PLACE_BYTES) || self.bodies.len() != bodies {
            return malformed(format!("places and bodies are not those of {rows} rows and {columns} columns"));
        }
        if !self.seeds.len().is_multiple_of(16) || self.seeds.len() / 16 > MAX_SEEDS {
            return malformed(format!("{} bytes of seeds", self.seeds.len()));
        }
        if let Some(set) = self.sets.iter().find(|set| set.checked_shr(self.columns).unwrap_or_default() != 0) {
            return malformed(format!("set {set:#b} has a column beyond the {columns}"));
        }
        match self.detail {
            0 | 1 => Ok(1),
            detail => Err(ProtocolError::Unsupported(format!("nothing is found in detail {detail}"))),
        }
    }

    fn opens(&self) -> Option<(Purpose, u32)> {
        Some((Purpose::SmallClasses, self.sets.len() as u32))
    }
}

impl Protocol for CountTags {
    const NAME: &'static str = "count_tags";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "whether, or how many, rows are in classes of fewer than k equal tags";
    const LEAKAGE: Leakage = Leakage {
        p1: "whether some class of the asked columns is smaller than k; if asked, how many rows are in such classes",
        p2: "which rows of which samples are equal in the asked columns, and in clear ones of them alone; the differences of their tags; which rows are NULL",
    };
    const OPENS: Opens = Opens(&[Purpose::SmallClasses]);
    type Query = Query;
    type Received = Query;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query, holder: &dyn KeyHolder, _: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        let (rows, k, detail) = ((query.rows as usize).max(1), query.k, query.detail == 1);
        let seeds = query.seeds.as_chunks::<16>().0;
        let columns = query.places.as_chunks::<PLACE_BYTES>().0.par_chunks(rows);
        let opened = columns.map(|places| Ok(holder.open_samples(&without_bodies(places, seeds)?)));
        let masks: Vec<_> = opened.collect::<Result<_, ProtocolError>>()?;
        let mut phases = Zeroizing::new(query.bodies);
        let found = phases.par_chunks_mut(rows).zip(&query.sets).map(|(phases, set)| {
            add_columns(phases, *set, &masks);
            in_small_classes(tags_of(phases), k, detail)
        });
        Ok(Answer { found: found.collect() })
    }
}

/// A column's samples with zeros for bodies: what they open to is what the mask takes off. No sample opens to zero.
fn without_bodies(places: &[[u8; PLACE_BYTES]], seeds: &[[u8; 16]]) -> Result<Vec<Sample>, ProtocolError> {
    // A missing sample borrows a seed, so that none is expanded for it.
    let mut last = seeds.first().copied().unwrap_or_default();
    let sample = |[s0, s1, i0, i1]: &[u8; PLACE_BYTES]| {
        let (number, index) = (u16::from_le_bytes([*s0, *s1]), u16::from_le_bytes([*i0, *i1]));
        if (number, index) != NO_SAMPLE {
            let seed = seeds.get(usize::from(number)).filter(|_| usize::from(index) < POLYNOMIAL_SIZE);
            let beyond = || ProtocolError::Malformed("a sample points beyond its seeds or chunk".to_owned());
            last = *seed.ok_or_else(beyond)?;
        }
        Ok(Sample { seed: Seed(last), index, body: 0 })
    };
    places.iter().map(sample).collect()
}

/// Adds the columns of a set to the phases of all rows.
fn add_columns(phases: &mut [u64], set: u64, columns: &[impl AsRef<[u64]>]) {
    for (_, column) in columns.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1) {
        phases.iter_mut().zip(column.as_ref()).for_each(|(phase, added)| *phase = phase.wrapping_add(*added));
    }
}

/// Phases into tags, where they lie.
fn tags_of(phases: &mut [u64]) -> &mut [u64] {
    phases.iter_mut().for_each(|phase| *phase = tag_of_phase(*phase));
    phases
}

/// A table, and what its columns add to each row's phase in this run.
struct Run {
    table: Arc<TagTable>,
    phases: Vec<Vec<u64>>,
    k: u32,
    detail: bool,
}

/// What P1 asks at once.
pub struct Part {
    run: Arc<Run>,
    sets: Vec<u64>,
}

/// What P1 remembers: how many numbers it expects, and how large they can be.
pub struct Asked {
    sets: usize,
    rows: usize,
    detail: bool,
}

/// P1 adds up the bodies of every set, with a constant of the set and a flood of the row.
pub fn ask(part: Part, asker: &mut Asker<'_>) -> Result<(Asked, Query), ProtocolError> {
    let Part { run, sets } = part;
    let (rows, detail) = (run.table.rows(), run.detail);
    let used = sets.iter().fold(0, |used, set| used | set) & run.table.encrypted();
    let (seeds, places) = run.table.places(used)?;
    let mut bodies = vec![0; sets.len() * rows];
    let rngs: Vec<StdRng> = sets.iter().map(|_| StdRng::from_rng(&mut asker.rng)).collect();
    bodies.par_chunks_mut(rows.max(1)).zip(&sets).zip(rngs).for_each(|((bodies, set), mut rng)| {
        let constant = phase_of_tag(plain::uniform(&mut rng));
        bodies.iter_mut().for_each(|body| *body = constant.wrapping_add(flood(&mut rng)));
        add_columns(bodies, *set, &run.phases);
    });
    let asked = Asked { sets: sets.len(), rows, detail };
    let sets = sets.into_iter().map(|set| renumbered(set, used)).collect();
    let (columns, k) = (used.count_ones(), run.k);
    Ok((asked, Query { rows: rows as u32, columns, seeds, places, sets, bodies, k, detail: u32::from(detail) }))
}

/// The set among the columns that are used.
fn renumbered(set: u64, used: u64) -> u64 {
    let columns = (0..u64::BITS).filter(|column| used >> column & 1 == 1);
    columns.enumerate().map(|(at, column)| (set >> column & 1) << at).sum()
}

/// P1 takes the numbers.
pub fn finish(asked: Asked, answer: Answer) -> Result<Vec<u64>, ProtocolError> {
    checked(answer.found, asked.sets, asked.rows, asked.detail)
}

/// Sets of columns that share one query.
pub(crate) fn sets_at_once(rows: usize) -> usize {
    (QUERY_BYTES / (8 * rows.max(1))).clamp(1, QUERY_SETS)
}

/// One round for many sets of columns (bit 0 is the table's first): for each, how many rows are in classes of fewer than `k`, or
/// (without detail) 1 if any is.
pub async fn count_tags(
    session: &Session,
    table: Arc<TagTable>,
    sets: Vec<u64>,
    k: u32,
    detail: bool,
) -> Result<Vec<u64>, ProtocolError> {
    sets.iter().try_for_each(|set| table.check(*set))?;
    let (rows, encrypted) = (table.rows(), table.encrypted());
    let is_asked = move |set: u64| rows > 0 && set & encrypted != 0;
    let (asked, own): (Vec<u64>, Vec<u64>) = sets.iter().partition(|set| is_asked(**set));
    let mut rng = session.randomness().fork();
    let prepared = blocking(move || {
        let run = Run { phases: table.phases(&mut rng), table, k, detail };
        // What P1 can see by itself.
        let count = |set: u64| {
            let mut phases = vec![0; rows];
            add_columns(&mut phases, set, &run.phases);
            in_small_classes(tags_of(&mut phases), k, detail)
        };
        let own: Vec<u64> = own.into_par_iter().map(count).collect();
        (Arc::new(run), own)
    });
    let (run, own) = prepared.await?;
    let parts = asked.chunks(sets_at_once(rows)).map(|sets| Part { run: run.clone(), sets: sets.to_vec() }).collect();
    // One query a batch.
    let found = session.round::<CountTags, _, _, _>(parts, BATCH_CIPHERTEXTS, ask, finish).await?;
    let (mut found, mut own) = (found.into_iter().flatten(), own.into_iter());
    let next = |set: &u64| if is_asked(*set) { found.next() } else { own.next() };
    sets.iter().map(next).collect::<Option<Vec<_>>>().ok_or(ProtocolError::Cancelled)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::buffer::NullBuffer;
    use veil_cells::{CellArray, Nulls};

    use super::*;
    use crate::lift_tags::TagColumn;
    use crate::testing::Parties;

    impl Parties {
        /// An encrypted column with these tags, NULL where there is none.
        fn tags(&mut self, tags: &[Option<u64>], nulls: Nulls) -> Source {
            let present = NullBuffer::from_iter(tags.iter().map(Option::is_some));
            let tags: Vec<u64> = tags.iter().map(|tag| tag.unwrap_or(77)).collect();
            let present = (nulls == Nulls::Public).then_some(&present);
            let cells = self.tagged_cells(nulls, &tags, present);
            Source::Tags(TagColumn::read(CellArray::Binary(&cells), self.owner.key_id()).unwrap())
        }

        async fn count(&self, table: &Arc<TagTable>, sets: &[u64], k: u32, detail: bool) -> Vec<u64> {
            count_tags(&self.session, table.clone(), sets.to_vec(), k, detail).await.unwrap()
        }
    }

    /// Grouped in clear.
    fn expected(columns: &[Vec<Option<u64>>], rows: usize, set: u64, k: u32, detail: bool) -> u64 {
        let mut sizes: HashMap<Vec<Option<u64>>, u64> = HashMap::new();
        for row in 0..rows {
            let wanted = columns.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
            *sizes.entry(wanted.map(|(_, column)| column[row]).collect()).or_default() += 1;
        }
        let found: u64 = sizes.values().filter(|size| **size < u64::from(k)).sum();
        if detail { found } else { found.min(1) }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn counts_are_those_of_a_plain_group_by() {
        let mut parties = Parties::new(70);
        let rows = 3000;
        // Values, and for every column tags of its own; where there are NULLs, zero is one.
        let mut column = |values: u64, nulls: bool| -> (Vec<u64>, Vec<Option<u64>>) {
            let tags = plain::uniform_vec(values as usize, &mut parties.rng);
            let values: Vec<u64> = (0..rows).map(|_| plain::uniform_below(values, &mut parties.rng)).collect();
            let tag = |value: &u64| Some(tags[*value as usize]).filter(|_| !nulls || *value > 0);
            (values.clone(), values.iter().map(tag).collect())
        };
        let drawn = [column(3, false), column(7, true), column(4, true), column(5, false), column(40, false)];
        let (values, columns): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        let sources = vec![
            parties.tags(&columns[0], Nulls::Public),
            parties.tags(&columns[1], Nulls::Public),
            parties.tags(&columns[2], Nulls::Hidden),
            // Small numbers, whose sums would collide.
            Source::Clear(values[3].clone()),
            Source::Clear(values[4].clone()),
        ];
        let table = Arc::new(TagTable::new(sources, rows).unwrap());
        let sets: Vec<u64> = (0..32).collect();
        for (k, detail) in [(1, true), (5, true), (5, false), (20, true), (3001, true), (3001, false), (0, true)] {
            let wanted: Vec<u64> = sets.iter().map(|set| expected(&columns, rows, *set, k, detail)).collect();
            assert_eq!(parties.count(&table, &sets, k, detail).await, wanted, "k = {k}");
        }
        // One round each, but for what P1 can count itself.
        let rounds = parties.session.traffic().rounds();
        assert_eq!(parties.count(&table, &[0, 8, 24], 5, true).await.len(), 3);
        assert_eq!(parties.session.traffic().rounds(), rounds);
        assert_eq!(parties.count(&table, &[1; 400], 1001, false).await.len(), 400);
        assert_eq!(parties.session.traffic().rounds(), rounds + 1);
        assert!(parties.count(&table, &[], 5, true).await.is_empty());
    }

    /// All columns that there can be: their noise adds up, and a bit of it is in every place.
    #[tokio::test(flavor = "multi_thread")]
    async fn sixty_four_columns_add_up() {
        let mut parties = Parties::new(71);
        let column = |at: u64| -> Vec<Option<u64>> {
            let most = [0, 1, veil_slots::PLAIN_MODULUS - 1][at as usize % 3];
            (0..100).map(|row| Some(if row % 10 == at % 10 && row >= 50 { at } else { most })).collect()
        };
        let columns: Vec<Vec<Option<u64>>> = (0..64).map(column).collect();
        let sources = columns.iter().map(|column| parties.tags(column, Nulls::Public)).collect();
        let table = Arc::new(TagTable::new(sources, 100).unwrap());
        assert_eq!((table.columns(), table.rows()), (64, 100));
        let sets = [u64::MAX, 1 << 63, u64::MAX << 32, 0x8000_0000_0000_0001];
        for k in [6, 51] {
            let wanted = sets.map(|set| expected(&columns, 100, set, k, true));
            assert_eq!(parties.count(&table, &sets, k, true).await, wanted);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_no_table_is_refused() {
        let mut parties = Parties::new(72);
        let empty = Arc::new(TagTable::new(vec![parties.tags(&[], Nulls::Public)], 0).unwrap());
        assert_eq!(parties.count(&empty, &[0, 1], 5, true).await, [0, 0]);
        let nulls = Arc::new(TagTable::new(vec![parties.tags(&[None; 3], Nulls::Public)], 3).unwrap());
        assert_eq!(parties.count(&nulls, &[1], 4, true).await, [3]);
        assert_eq!(parties.count(&nulls, &[1], 3, true).await, [0]);
        let error = count_tags(&parties.session, nulls, vec![2], 5, true).await.unwrap_err();
        assert_eq!(error.to_string(), "set 0b10 has a column beyond the 1");

        let refused = |columns, rows| TagTable::new(columns, rows).unwrap_err().to_string();
        let sentence = "column 1 has 2 rows instead of 1";
        assert_eq!(refused(vec![Source::Clear(vec![1]), Source::Clear(vec![1, 2])], 1), sentence);
        let sentence = "rows are compared in at most 64 columns, not 65";
        assert_eq!(refused(vec![Source::Clear(vec![]); 65], 0), sentence);
        let most = TagTable::max_rows(0);
        assert!(refused(vec![Source::Clear(vec![0; most + 1])], most + 1).contains(&format!("up to {most} rows")));
        assert!(TagTable::max_rows(64) > 200_000 && TagTable::max_rows(8) > 1_500_000);

        let rows = MAX_SEEDS + 1;
        let seed = |row: usize| Seed((row as u128).to_le_bytes());
        let samples = (0..rows).map(|row| Some(Sample { seed: seed(row), index: 0, body: 0 })).collect();
        let table = TagTable::new(vec![Source::Tags(TagColumn { samples })], rows).unwrap();
        let error = count_tags(&parties.session, Arc::new(table), vec![1], 5, true).await.unwrap_err();
        assert!(error.to_string().contains("come from 65536 chunks, and P2 takes 65535 at once"), "{error}");
    }

    #[test]
    fn p2_refuses_what_does_not_fit() {
        let query = || Query {
            rows: 2,
            columns: 1,
            seeds: vec![0; 16],
            places: vec![0; 8],
            sets: vec![1],
            bodies: vec![0; 2],
            k: 2,
            detail: 0,
        };
        assert_eq!(query().answer_ciphertexts().unwrap(), 1);
        let cases = [
            Query { rows: 0, ..query() },
            Query { rows: u32::MAX, ..query() },
            Query { columns: 0, ..query() },
            Query { columns: 65, ..query() },
            Query { seeds: vec![0; 17], ..query() },
            Query { seeds: vec![0; 16 * (MAX_SEEDS + 1)], ..query() },
            Query { places: vec![0; 7], ..query() },
            Query { sets: vec![2], ..query() },
            Query { sets: vec![1, 1], ..query() },
            Query { bodies: vec![0; 3], ..query() },
            Query { detail: 2, ..query() },
        ];
        cases.iter().for_each(|query| assert!(query.answer_ciphertexts().is_err(), "{query:?}"));
        assert!(without_bodies(&[[0; 4], [0xff; 4]], &[[0; 16]]).is_ok());
        for place in [[1, 0, 0, 0], [0, 0, 0, 0x10], [0xff, 0xff, 0, 0]] {
            assert!(without_bodies(&[place], &[[0; 16]]).is_err());
        }
    }
}
