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
use crate::lift_tags::{TagColumn, lift_tag_columns};
use crate::lists::together;
use crate::relabel::{Combination, Label, relabel};
use crate::truncate::{Dividend, Rounding, truncate};
use crate::{ColumnVectors, ProtocolError, Session, lift, lift_wide};

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
    /// One number a row; nothing of a clear column.
    numbers: Option<ColumnVectors>,
    /// Random, so that sums are equal only where all columns are, even if the same column is there twice, as in a join of a table
    /// with itself.
    coefficient: u64,
    /// What P1 adds to every row: the label of a clear value, or of a NULL.
    clear: Option<Vec<u64>>,
}

/// Columns on their way.
struct Lifted {
    lanes: Vec<ColumnVectors>,
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
        let mut tags = lifted_tags(&session, &columns).await?.into_iter();
        let mut lifted = Vec::with_capacity(columns.len());
        for column in columns {
            lifted.push(match column {
                Column::Clear(labels) => Lifted { lanes: Vec::new(), clear: Some(labels), finished: true },
                Column::Tags(cells) => {
                    let tags = tags.next().ok_or(ProtocolError::Cancelled)?;
                    let finished = layout.lists_per_vector() == 1;
                    Lifted { lanes: vec![tags], clear: null_labels(&cells, &mut rng), finished }
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
            (SlotColumn { numbers: Some(numbers), clear: None, .. }, None) => numbers.first().cloned(),
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
            // The last vectors of a list may have none of its rows, and no column has anything for them.
            let slots = column.numbers.as_ref().and_then(|numbers| numbers.get(vector));
            terms.extend(slots.map(|slots| (slots.clone(), coefficients)));
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

/// The tags of all columns that have them, column by column, in one round.
async fn lifted_tags(session: &Session, columns: &[Column]) -> Result<Vec<ColumnVectors>, ProtocolError> {
    let cells = columns.iter().filter_map(|column| match column {
        Column::Tags(cells) => Some(cells.clone()),
        _ => None,
    });
    let (cells, key_id): (Vec<ArrayRef>, _) = (cells.collect(), session.key_id());
    let read = move || {
        let read = |cells: &ArrayRef| TagColumn::read(CellArray::try_new(cells)?, key_id);
        cells.iter().map(read).collect::<Result<Vec<TagColumn>, ProtocolError>>()
    };
    lift_tag_columns(session, blocking(read).await??).await
}

/// Values in slots, lane by lane.
async fn lift_values(session: &Session, cells: &ArrayRef, values: Values) -> Result<Vec<ColumnVectors>, ProtocolError> {
    let column = CellArray::try_new(cells)?;
    let mut lanes = Vec::with_capacity(values.lanes);
    for lane in 0..values.lanes {
        let mut numbers = match values.bits > lift::MAX_WIDTH {
            true => lift_wide::lift_wide_column(session, column, lane).await?,
            false => lift::lift_column(session, column, lane, values.bits).await?,
        };
        if values.fraction_bits > 0 {
            let (rows, vectors) = (numbers.rows(), numbers.into_vectors());
            let dividends = vectors.into_iter().map(|mut slots| {
                // Not below zero, so that the quotient is what a release rounds to.
                slots.add_constant(1 << (values.bits - 1));
                Dividend { slots, shift: values.fraction_bits, rounding: Rounding::Nearest }
            });
            numbers = ColumnVectors::new(rows, truncate(session, dividends.collect()).await?)?;
        }
        lanes.push(numbers);
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
                combinations.push(labelled(lanes, clear, last, layout, rng));
            }
        }
        let (combinations, lengths) = together(combinations);
        let labels = lengths.apart(relabel(session, combinations).await?)?;
        let mut labels = labels.into_iter().map(|vectors| ColumnVectors::new(layout.rows(), vectors));
        for column in columns.iter_mut().filter(|column| !column.finished) {
            let of_lanes = column.lanes.chunks(LANES_AT_ONCE).map(|_| labels.next().ok_or(ProtocolError::Cancelled)?);
            let labels = of_lanes.collect::<Result<Vec<_>, ProtocolError>>()?;
            column.finished = labels.len() <= 1;
            if column.finished {
                column.clear = None;
            }
            column.lanes = labels;
        }
    }
    let column = |column: Lifted| SlotColumn {
        numbers: column.lanes.into_iter().next(),
        coefficient: plain::uniform_non_zero(rng),
        clear: column.clear,
    };
    Ok(columns.into_iter().map(column).collect())
}

/// Lanes into one label a row; the last time NULLs come in, and the rows of a short table are repeated in every block.
fn labelled(
    lanes: &[ColumnVectors],
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
    (0..layout.rows().div_ceil(DEGREE)).map(combination).collect()
}
