//! Columns of cells into messages.
//!
//! Every term of a cell reads coefficients of `A(X) * S(X)` for its chunk's mask `A`. Terms are grouped by
//! chunk, so that each chunk costs one ring product whatever order its rows come in.

use std::sync::atomic::{AtomicU64, Ordering};

use arrow::buffer::NullBuffer;
use rayon::prelude::*;
use veil_cells::{Cell, CellArray, CellError, CellType, KeyId, Seed, message_of_phase};

use crate::cell_key::MaskProduct;
use crate::{CellKey, KeyError};

/// Messages of a column, without tags.
pub struct DecryptedColumn {
    /// Messages, row by row.
    pub messages: Vec<i64>,
    /// Messages a row: the value's lanes, and the hidden-NULL lane if there is one.
    pub lanes: usize,
    /// Which rows are Arrow nulls.
    pub nulls: Option<NullBuffer>,
}

/// One row's share in a chunk.
struct Use {
    seed: Seed,
    index: u16,
    coefficient: i16,
    row: u32,
}

/// Decrypts the value and the hidden-NULL lane of each cell; tags stay closed.
pub fn decrypt_column(
    key: &CellKey,
    key_id: KeyId,
    cell_type: &CellType,
    column: CellArray<'_>,
) -> Result<DecryptedColumn, KeyError> {
    let expected = cell_type.cell_lanes();
    let lanes = expected.total() - usize::from(expected.tag);
    if cell_type.key != key_id {
        return Err(CellError::WrongKey {
            expected: key_id,
            found: cell_type.key,
        }
        .into());
    }
    let mut phases: Vec<AtomicU64> = Vec::with_capacity(column.len() * lanes);
    let mut uses: Vec<Use> = Vec::with_capacity(column.len());
    let mut cell = Cell::scratch();
    for row in 0..column.len() {
        let Some(bytes) = column.bytes(row) else {
            phases.extend((0..lanes).map(|_| AtomicU64::new(0)));
            continue;
        };
        cell.read(bytes)?;
        if cell.key_id() != key_id {
            return Err(CellError::WrongKey {
                expected: key_id,
                found: cell.key_id(),
            }
            .into());
        }
        if cell.lanes().value != expected.value || cell.lanes().nulls != expected.nulls {
            let text = format!("row {row} has other lanes than its column's type says");
            return Err(CellError::Malformed(text).into());
        }
        uses.extend(cell.terms().iter().map(|term| Use {
            seed: term.seed,
            index: term.index,
            coefficient: term.coefficient,
            row: row as u32,
        }));
        phases.extend(cell.bodies().iter().take(lanes).enumerate().map(|(lane, body)| {
            let dense = cell.dense_mask(lane).map_or(0, |mask| key.inner_product(mask));
            AtomicU64::new(body.wrapping_sub(dense))
        }));
    }

    // Cells in their original order come grouped already; after a shuffle, sorting saves ring products.
    if uses.chunk_by(|a, b| a.seed == b.seed).count() > column.len() / 256 + 1 {
        uses.par_sort_unstable_by_key(|u| u.seed);
    }
    let groups: Vec<&[Use]> = uses.chunk_by(|a, b| a.seed == b.seed).collect();
    groups.par_iter().for_each(|group| {
        let product = MaskProduct::new(key, group[0].seed, group.len() * lanes);
        for u in *group {
            let row = u.row as usize * lanes;
            for (lane, phase) in phases[row..row + lanes].iter().enumerate() {
                let share = product
                    .at(usize::from(u.index) + lane)
                    .wrapping_mul(u.coefficient as u64);
                phase.fetch_sub(share, Ordering::Relaxed);
            }
        }
    });
    let messages = phases
        .into_iter()
        .map(|phase| message_of_phase(phase.into_inner()))
        .collect();
    Ok(DecryptedColumn {
        messages,
        lanes,
        nulls: column.nulls().cloned(),
    })
}
