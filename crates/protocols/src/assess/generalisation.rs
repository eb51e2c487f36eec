//! How far up its hierarchy a published category stands, added up over all rows.
//!
//! ```text
//!  lanes of a row       -1 below the level that it is published at, codes from there up to the root
//!  levels               sum over lanes of [lane = -1]                                          `lookup`
//!  leaves beneath       L + sum over lanes of D(lane),  D(x) = leaves(x) - leaves(parent(x)), D(-1) = 0
//!  over all rows        `slot_sum`, and `open`
//! ```
//! A suppressed row is -1 in all lanes below the root, and so counts as the root, which is what suppression costs. Where the shape of a hierarchy is
//! not known, levels are counted with `zero_test` and leaves are not.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use veil_cells::CellArray;
use veil_privacy::utility::NodeTables;
use veil_slots::{DEGREE, L0, L1, Offset, PLAIN_MODULUS, Slots, plain};

use super::{column_sums, opened, packed};
use crate::lift::lift_column;
use crate::lookup::{Question, Table, lookup};
use crate::zero_test::zero_test;
use crate::{ProtocolError, Session};

/// Vectors that are looked up at the same time.
pub(super) const WINDOW: usize = 4;

/// A column of published categories.
#[derive(Clone, Debug)]
pub struct Published {
    /// The cells, no row NULL.
    pub cells: ArrayRef,
    /// Levels of the hierarchy, which is lanes of a cell.
    pub levels: usize,
    /// The width of a lane.
    pub bits: u32,
    /// For every leaf the codes of itself and its ancestors, the root last, if they are known.
    pub shape: Option<Arc<[Vec<i64>]>>,
}

/// What became of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generalised {
    /// The sum over all rows of the levels between leaf and published node.
    pub levels: u64,
    /// The sum over all rows of the leaves beneath the published node, if the shape is known.
    pub leaves: Option<u64>,
}

/// A lane of a column; -1 in slots without a row, so that all slots are in its domain.
pub(super) async fn lane(session: &Session, column: &Published, lane: usize) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let rows = column.cells.len();
    let lifted = lift_column(session, CellArray::try_new(&column.cells)?, lane, column.bits).await?;
    let mut chunks = lifted.into_vectors();
    if let Some(last) = chunks.last_mut().filter(|_| !rows.is_multiple_of(DEGREE)) {
        let beyond: Vec<u64> = (0..DEGREE).map(|slot| u64::from(slot >= rows % DEGREE)).collect();
        last.sub_clear(&Offset::new(&beyond));
    }
    Ok(chunks)
}

/// Every column's levels and leaves.
pub async fn generalisation(
    session: &Session,
    columns: &[Published],
    done: &(dyn Fn(usize) + Send + Sync),
) -> Result<Vec<Generalised>, ProtocolError> {
    let mut sums: Vec<Slots<L0>> = Vec::with_capacity(2 * columns.len());
    for column in columns {
        sums.extend(column_sums(session, column.cells.len(), &counted(session, column).await?).await?);
        done(1);
    }
    let mut found = opened(session, packed(&sums, 1), sums.len()).await?.into_iter();
    let mut generalised = Vec::with_capacity(columns.len());
    for column in columns {
        let levels = found.next().ok_or(ProtocolError::Cancelled)?;
        let below = if column.shape.is_some() { found.next() } else { None };
        let number =
            |found: i64| u64::try_from(found).map_err(|_| ProtocolError::Malformed(format!("a sum is {found}")));
        let leaves = column.shape.as_ref().zip(below).map(|(shape, below)| {
            let all = i64::try_from(column.cells.len().saturating_mul(shape.len())).unwrap_or(i64::MAX);
            number(all.saturating_add(below))
        });
        generalised.push(Generalised { levels: number(levels)?, leaves: leaves.transpose()? });
    }
    Ok(generalised)
}

/// For every chunk of rows how many lanes are -1; then, with a shape, what is to be added to the number of all leaves.
async fn counted(session: &Session, column: &Published) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let chunks = column.cells.len().div_ceil(DEGREE);
    let mut counted = vec![vec![Slots::clear(&[]); chunks]; if column.shape.is_some() { 2 } else { 1 }];
    let tables = column.shape.as_ref().map(|shape| NodeTables::of(shape)).transpose();
    let tables = tables.map_err(|error| ProtocolError::Misuse(error.to_string()))?;
    for level in 0..column.levels.saturating_sub(1) {
        let lanes = lane(session, column, level).await?;
        for (window, slots) in lanes.chunks(WINDOW).enumerate() {
            let found = match tables.as_ref().and_then(|tables| tables.differences(level)) {
                Some(differences) => looked_up(session, differences, slots).await?,
                None => {
                    let mut plus_one = slots.to_vec();
                    plus_one.iter_mut().for_each(|code| code.add_constant(1));
                    zero_test(session, plus_one).await?.into_iter().map(|bit| vec![bit]).collect()
                }
            };
            for (chunk, found) in (window * WINDOW..).zip(found) {
                for (counted, found) in counted.iter_mut().zip(&found) {
                    counted.get_mut(chunk).ok_or(ProtocolError::Cancelled)?.add(found);
                }
            }
        }
    }
    Ok(counted)
}

/// Whether each slot is -1, and its difference of leaves. Slots without a row are masked later.
async fn looked_up(
    session: &Session,
    differences: &BTreeMap<i64, i64>,
    slots: &[Slots<L1>],
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let domain: Arc<[u64]> =
        [PLAIN_MODULUS - 1].into_iter().chain(differences.keys().map(|code| plain::from_signed(*code))).collect();
    let beyond: Arc<[u64]> = (0..domain.len()).map(|candidate| u64::from(candidate == 0)).collect();
    let leaves: Arc<[u64]> =
        [0].into_iter().chain(differences.values().map(|leaves| plain::from_signed(*leaves))).collect();
    let question = |slots: &Slots<L1>| Question {
        slots: slots.clone(),
        domain: domain.clone(),
        tables: vec![Table::Shared(beyond.clone()), Table::Shared(leaves.clone())],
    };
    lookup(session, slots.iter().map(question).collect()).await
}

#[cfg(test)]
pub(super) mod tests {
    use veil_cells::{CellType, ColumnId, Kind, Width};
    use veil_keys::encrypt_column;

    use super::*;
    use crate::testing::Parties;

    /// Five leaves in two groups of two and three, beneath one root.
    pub(in crate::assess) fn shape() -> Vec<Vec<i64>> {
        vec![vec![0, 0, 0], vec![10, 0, 0], vec![20, 40, 0], vec![30, 40, 0], vec![40, 40, 0]]
    }

    /// Rows published at changing levels.
    pub(in crate::assess) fn rows(count: usize) -> Vec<Vec<i64>> {
        let row = |row: usize| {
            let mut lanes = shape()[row % 5].clone();
            lanes[..row % 3].fill(-1);
            lanes
        };
        (0..count).map(row).collect()
    }

    pub(in crate::assess) fn cells(parties: &mut Parties, rows: &[Vec<i64>]) -> ArrayRef {
        let width = Width::of_range(-1, 40).unwrap();
        let cell_type = CellType::new(Kind::Category, width, 3, parties.owner.key_id(), ColumnId([7; 8]));
        Arc::new(encrypt_column(&parties.owner, &cell_type, &rows.concat(), None, &mut parties.rng).unwrap())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn levels_and_leaves_are_added_up() {
        let mut parties = Parties::new(630);
        for count in [7, 8200] {
            let rows = rows(count);
            let cells = cells(&mut parties, &rows);
            let (levels, bits) = (3, 8);
            let known = Published { cells, levels, bits, shape: Some(shape().into()) };
            let unknown = Published { shape: None, ..known.clone() };
            let found = generalisation(&parties.session, &[known, unknown], &|_| ()).await.unwrap();
            let moved: usize = rows.iter().flatten().filter(|lane| **lane == -1).count();
            let beneath = |row: &Vec<i64>| {
                let level = row.iter().position(|lane| *lane != -1).unwrap();
                shape().iter().filter(|leaf| leaf[level] == row[level]).count()
            };
            let leaves: usize = rows.iter().map(beneath).sum();
            let levels = moved as u64;
            assert_eq!(found[0], Generalised { levels, leaves: Some(leaves as u64) });
            assert_eq!(found[1], Generalised { levels, leaves: None });
        }
    }
}
