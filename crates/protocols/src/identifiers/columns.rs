//! Columns in slots.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use rand::CryptoRng;
use veil_cells::CellArray;
use veil_slots::{DEGREE, L1, Slots, plain};

use super::{Column, Method, Values};
use crate::layout::Layout;
use crate::lift_tags::{self, TagColumn, lift_tags};
use crate::relabel::{Combination, Label};
use crate::truncate::{Dividend, Rounding, truncate};
use crate::{ProtocolError, Session, lift, lift_wide};

/// Every column as vectors, each list of rows in its block.
#[derive(Debug)]
pub(super) struct SlotTable {
    pub(super) session: Session,
    pub(super) method: Method,
    pub(super) layout: Layout,
    columns: Vec<SlotColumn>,
}

/// One column.
#[derive(Debug)]
struct SlotColumn {
    lanes: Vec<Lane>,
    /// What P1 adds to every row: the label of a clear value, or of a NULL.
    clear: Option<Vec<u64>>,
}

/// Numbers in slots.
#[derive(Debug)]
struct Lane {
    vectors: Vec<Slots<L1>>,
    /// Random, so that sums are equal where all columns are: values are small numbers, and the same column may be there twice, as
    /// in a join of a table with itself.
    coefficient: u64,
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
        let mut tags = lift_all_tags(&session, layout, &columns).await?.into_iter();
        let mut prepared = Vec::with_capacity(columns.len());
        for column in columns {
            prepared.push(match column {
                Column::Clear(labels) => SlotColumn { lanes: Vec::new(), clear: Some(labels) },
                Column::Tags(cells) => {
                    let vectors = tags.by_ref().take(layout.vectors_per_list()).collect();
                    let lane = Lane { vectors, coefficient: plain::uniform_non_zero(&mut rng) };
                    SlotColumn { lanes: vec![lane], clear: null_labels(&cells, &mut rng) }
                }
                Column::Values(cells, values) => {
                    let lanes = lift_values(&session, layout, &cells, values, &mut rng).await?;
                    SlotColumn { lanes, clear: null_labels(&cells, &mut rng) }
                }
            });
        }
        Ok(Self { session, method, layout, columns: prepared })
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
        };
        (0..self.layout.vectors_per_list()).map(combination).collect()
    }

    /// The vector as it is, if the set has no more than one and P1 has nothing to add to it.
    pub(super) fn single(&self, set: u64) -> Option<Slots<L1>> {
        let mut columns = self.of_set(set);
        match (columns.next()?, columns.next()) {
            (SlotColumn { lanes, clear: None }, None) => match lanes.as_slice() {
                [lane] => lane.vectors.first().cloned(),
                _ => None,
            },
            _ => None,
        }
    }

    fn terms(&self, sets: &[u64], vector: usize) -> Vec<(Slots<L1>, Vec<u64>)> {
        let mut terms = Vec::new();
        for (at, column) in self.columns.iter().enumerate() {
            if sets.iter().all(|set| set >> at & 1 == 0) {
                continue;
            }
            for lane in &column.lanes {
                let coefficients = sets.iter().map(|set| lane.coefficient * (set >> at & 1)).collect();
                terms.extend(lane.vectors.get(vector).map(|slots| (slots.clone(), coefficients)));
            }
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

/// For every vector of a column, the row of each slot: the rows of a list, repeated in every block.
fn places(layout: Layout) -> impl Iterator<Item = impl Iterator<Item = Option<usize>>> {
    let (rows, block) = (layout.rows(), layout.block());
    (0..layout.vectors_per_list()).map(move |vector| {
        (0..DEGREE).map(move |slot| Some((vector * DEGREE + slot) % block).filter(|row| *row < rows))
    })
}

/// The tags of all columns that have them, in one round.
async fn lift_all_tags(session: &Session, layout: Layout, columns: &[Column]) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let mut chunks = Vec::new();
    for column in columns {
        let Column::Tags(cells) = column else { continue };
        let tags = TagColumn::read(CellArray::try_new(cells)?, session.key_id())?;
        let sample = |row: Option<usize>| row.and_then(|row| tags.samples.get(row).copied().flatten());
        chunks.extend(places(layout).map(|places| lift_tags::Rows::new(places.map(sample))));
    }
    lift_tags(session, chunks).await
}

/// A label for all NULLs of a column, where it has any.
fn null_labels(cells: &ArrayRef, rng: &mut impl CryptoRng) -> Option<Vec<u64>> {
    let nulls = cells.nulls().filter(|nulls| nulls.null_count() > 0)?;
    let label = plain::uniform_non_zero(rng);
    Some(nulls.iter().map(|present| if present { 0 } else { label }).collect())
}

/// Values in slots, lane by lane.
async fn lift_values(
    session: &Session,
    layout: Layout,
    cells: &ArrayRef,
    values: Values,
    rng: &mut impl CryptoRng,
) -> Result<Vec<Lane>, ProtocolError> {
    let rows = places(layout).flatten().map(|row| row.and_then(|row| u32::try_from(row).ok()));
    let placed = take(cells, &rows.collect::<UInt32Array>(), None)
        .map_err(|error| ProtocolError::Internal(error.to_string()))?;
    let column = CellArray::try_new(&placed)?;
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
        lanes.push(Lane { vectors, coefficient: plain::uniform_non_zero(rng) });
    }
    Ok(lanes)
}
