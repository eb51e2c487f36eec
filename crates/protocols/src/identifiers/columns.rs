//! Columns in slots.
//!
//! ```text
//!  tags      lift_tags ───────────────────────────┬─ in long tables as they are
//!  values    lift, lift_wide, (truncate) ── lanes ┴─ else relabel: one label a row, repeated in every block
//! ```
//! Values are few and easy to guess, so each column of values becomes labels of a secret function once, before the sums of sets become
//! labels again: what P2 sees in the end depends on secrets in more than one place. In a short table, the same round repeats the rows
//! in all blocks of a vector, so that each sample is lifted once however many lists there are.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use rand::CryptoRng;
use veil_cells::CellArray;
use veil_slots::{DEGREE, L1, Slots, plain};

use super::{Column, Method, Values};
use crate::channel::blocking;
use crate::layout::Layout;
use crate::lift_tags::{self, TagColumn, lift_tags};
use crate::relabel::{Combination, Label, relabel};
use crate::truncate::{Dividend, Rounding, truncate};
use crate::{ProtocolError, Session, lift, lift_wide};

/// Lanes that become one label at a time: their products stay within the noise that the way out allows.
const LANES_AT_ONCE: usize = 64;

/// Every column as vectors, each list of rows in its block.
pub(super) struct SlotTable {
    pub(super) session: Session,
    pub(super) method: Method,
    pub(super) layout: Layout,
    columns: Vec<SlotColumn>,
}

impl fmt::Debug for SlotTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotTable({:?}, {} columns)", self.layout, self.columns.len())
    }
}

/// One column.
struct SlotColumn {
    /// One number a row; none in a clear column.
    vectors: Vec<Slots<L1>>,
    /// Random, so that sums are equal only where all columns are, even if the same column is there twice, as in a join of a table
    /// with itself.
    coefficient: u64,
    /// What P1 adds to every row: the label of a clear value, or of a NULL.
    clear: Option<Vec<u64>>,
}

/// Columns on their way: vectors of every lane.
struct Lifted {
    lanes: Vec<Vec<Slots<L1>>>,
    clear: Option<Vec<u64>>,
    /// Whether the numbers are what a row is compared by.
    finished: bool,
}

impl SlotTable {
    pub(super) async fn prepare(
        session: Session,
        method: Method,
        rows: usize,
        columns: Vec<Column>,
    ) -> Result<Self, ProtocolError> {
        let layout = Layout::new(rows);
        let mut rng = session.randomness().fork();
        let mut tags = lift_all_tags(&session, &columns).await?.into_iter();
        let mut lifted = Vec::with_capacity(columns.len());
        for column in columns {
            lifted.push(match column {
                Column::Clear(labels) => Lifted { lanes: Vec::new(), clear: Some(labels), finished: true },
                Column::Tags(cells) => {
                    let vectors = tags.by_ref().take(layout.vectors_per_list()).collect();
                    let finished = layout.lists_per_vector() == 1;
                    Lifted { lanes: vec![vectors], clear: null_labels(&cells, &mut rng), finished }
                }
                Column::Values(cells, values) => {
                    let lanes = lift_values(&session, &cells, values).await?;
                    Lifted { lanes, clear: null_labels(&cells, &mut rng), finished: false }
                }
            });
        }
        let columns = finish(&session, layout, lifted, &mut rng).await?;
        Ok(Self { session, method, layout, columns })
    }

    fn of_set(&self, set: u64) -> impl Iterator<Item = &SlotColumn> {
        self.columns.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, column)| column)
    }

    /// The vectors in which these sets are added up, each list with a new label: those of one set, or of one vector's worth of sets.
    pub(super) fn combinations(&self, sets: &[u64]) -> Vec<Combination> {
        let mut rng = self.session.randomness().fork();
        let labels: Vec<Arc<Label>> = sets.iter().map(|_| Arc::new(Label::draw(&mut rng))).collect();
        let sums: Vec<Option<Vec<u64>>> = sets.iter().map(|set| self.clear_sums(*set)).collect();
        let combination = |vector: usize| Combination {
            terms: self.terms(sets, vector),
            clear: self.spread(&sums, vector).map(Arc::new),
            labels: labels.clone(),
            block: self.layout.block(),
            repeated: false,
        };
        (0..self.layout.vectors_per_list()).map(combination).collect()
    }

    /// The vector as it is, if the set has no more than one and P1 has nothing to add to it.
    pub(super) fn single(&self, set: u64) -> Option<Slots<L1>> {
        let mut columns = self.of_set(set);
        match (columns.next()?, columns.next()) {
            (SlotColumn { vectors, clear: None, .. }, None) => vectors.first().cloned(),
            _ => None,
        }
    }

    fn terms(&self, sets: &[u64], vector: usize) -> Vec<(Slots<L1>, Vec<u64>)> {
        let mut terms = Vec::new();
        for (at, column) in self.columns.iter().enumerate() {
            if sets.iter().all(|set| set >> at & 1 == 0) {
                continue;
            }
            let coefficients = sets.iter().map(|set| column.coefficient * (set >> at & 1)).collect();
            terms.extend(column.vectors.get(vector).map(|slots| (slots.clone(), coefficients)));
        }
        terms
    }

    /// What P1 adds to the rows of a set.
    fn clear_sums(&self, set: u64) -> Option<Vec<u64>> {
        let mut columns = self.of_set(set).filter_map(|column| column.clear.as_ref());
        let mut sums = columns.next()?.clone();
        for column in columns {
            sums.iter_mut().zip(column).for_each(|(sum, label)| *sum = plain::add(*sum, *label));
        }
        Some(sums)
    }

    /// The same, in the places of one vector.
    fn spread(&self, sums: &[Option<Vec<u64>>], vector: usize) -> Option<Vec<u64>> {
        sums.iter().find(|sums| sums.is_some())?;
        let block = self.layout.block();
        let mut spread = vec![0; DEGREE];
        // What lies behind the last list is as that is: rows that are compared in pairs are repeated in all blocks.
        for list in 0..self.layout.lists_per_vector() {
            let sums = sums.get(list).or_else(|| sums.last()).and_then(Option::as_ref);
            let rows = sums.into_iter().flatten().skip(vector * DEGREE);
            spread.iter_mut().skip(list * block).zip(rows).for_each(|(slot, sum)| *slot = *sum);
        }
        Some(spread)
    }
}

/// The tags of all columns that have them, in one round, 8192 rows a vector.
async fn lift_all_tags(session: &Session, columns: &[Column]) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let cells = columns.iter().filter_map(|column| match column {
        Column::Tags(cells) => Some(cells.clone()),
        _ => None,
    });
    let (cells, key_id): (Vec<ArrayRef>, _) = (cells.collect(), session.key_id());
    let read = move || {
        let mut chunks = Vec::new();
        for cells in cells {
            let tags = TagColumn::read(CellArray::try_new(&cells)?, key_id)?;
            chunks.extend(tags.samples.chunks(DEGREE).map(|rows| lift_tags::Rows::new(rows.iter().copied())));
        }
        Ok::<_, ProtocolError>(chunks)
    };
    let chunks = blocking(read).await??;
    let vectors = lift_tags(session, chunks).await?;
    Ok(vectors)
}

/// Values in slots, lane by lane.
async fn lift_values(
    session: &Session,
    cells: &ArrayRef,
    values: Values,
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let column = CellArray::try_new(cells)?;
    let mut lanes = Vec::with_capacity(values.lanes);
    for lane in 0..values.lanes {
        let mut vectors = match values.bits > lift::MAX_WIDTH {
            true => lift_wide::lift_wide_column(session, column, lane).await?,
            false => lift::lift_column(session, column, lane, values.bits).await?,
        };
        if values.fraction_bits > 0 {
            let dividends = vectors.into_iter().map(|mut slots| {
                // Not below zero, so that the quotient is what a release rounds to.
                slots.add_constant(1 << (values.bits - 1));
                Dividend { slots, shift: values.fraction_bits, rounding: Rounding::Nearest }
            });
            vectors = truncate(session, dividends.collect()).await?;
        }
        lanes.push(vectors);
    }
    Ok(lanes)
}

/// A label for all NULLs of a column, where it has any.
fn null_labels(cells: &ArrayRef, rng: &mut impl CryptoRng) -> Option<Vec<u64>> {
    let nulls = cells.nulls().filter(|nulls| nulls.null_count() > 0)?;
    let label = plain::uniform_non_zero(rng);
    Some(nulls.iter().map(|present| if present { 0 } else { label }).collect())
}

/// Makes one number a row of all columns that have several, or numbers that could be guessed.
async fn finish(
    session: &Session,
    layout: Layout,
    mut columns: Vec<Lifted>,
    rng: &mut impl CryptoRng,
) -> Result<Vec<SlotColumn>, ProtocolError> {
    while columns.iter().any(|column| !column.finished) {
        let mut combinations = Vec::new();
        for column in columns.iter().filter(|column| !column.finished) {
            let last = column.lanes.len() <= LANES_AT_ONCE;
            for lanes in column.lanes.chunks(LANES_AT_ONCE) {
                let clear = column.clear.as_ref().filter(|_| last);
                combinations.extend(labelled(lanes, clear, last, layout, rng));
            }
        }
        let mut made = relabel(session, combinations).await?.into_iter();
        for column in columns.iter_mut().filter(|column| !column.finished) {
            let chunks = column.lanes.len().div_ceil(LANES_AT_ONCE);
            column.finished = chunks <= 1;
            if column.finished {
                column.clear = None;
            }
            column.lanes = (0..chunks).map(|_| made.by_ref().take(layout.vectors_per_list()).collect()).collect();
        }
    }
    let column = |column: Lifted| SlotColumn {
        vectors: column.lanes.into_iter().next().unwrap_or_default(),
        coefficient: plain::uniform_non_zero(rng),
        clear: column.clear,
    };
    Ok(columns.into_iter().map(column).collect())
}

/// Lanes into one label a row; the last time NULLs come in, and the rows of a short table are repeated in every block.
fn labelled(
    lanes: &[Vec<Slots<L1>>],
    clear: Option<&Vec<u64>>,
    last: bool,
    layout: Layout,
    rng: &mut impl CryptoRng,
) -> Vec<Combination> {
    let (label, block) = (Arc::new(Label::draw(rng)), layout.block().min(DEGREE));
    let coefficients: Vec<u64> = lanes.iter().map(|_| plain::uniform_non_zero(rng)).collect();
    let combination = |vector: usize| {
        let lanes = lanes.iter().zip(&coefficients);
        let terms = lanes.filter_map(|(lane, coefficient)| Some((lane.get(vector)?.clone(), vec![*coefficient])));
        let clear = clear.map(|clear| clear.iter().skip(vector * DEGREE).take(DEGREE).copied().collect());
        Combination {
            terms: terms.collect(),
            clear: clear.map(Arc::new),
            labels: vec![label.clone()],
            block,
            repeated: last && block < DEGREE,
        }
    };
    (0..layout.vectors_per_list()).map(combination).collect()
}
