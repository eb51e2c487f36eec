//! Adding constants to a whole column where it lies.
//!
//! A plain number keeps its length when a constant is added: magnitude, body and checksum change, nothing moves. So a column is
//! copied once and changed in place, at the cost of two checksums a cell.

use arrow::array::{Array, BinaryArray};
use arrow::buffer::{Buffer, OffsetBuffer};

use crate::cell::fits_chunk;
use crate::parameters::{checked_magnitude, phase_of_message};
use crate::view::{MaskView, RowsView};
use crate::wire::{CHECKSUM, HEADER, TERM, checksum_of};
use crate::{CellError, CellView, Lanes};

/// Header, seed and coefficient: what the fresh cells of a chunk have in common.
const SHARED: usize = HEADER + TERM - 2;

/// Adds a constant of at most `bound` to each row. `None` if a cell is not a plain fresh number: then nothing was done, and
/// [`Cell::add_constant_within`](crate::Cell::add_constant_within) has to be asked cell by cell.
pub(crate) fn shift_column(
    column: &BinaryArray,
    bound: u64,
    constant: impl Fn(usize) -> i64,
) -> Result<Option<BinaryArray>, CellError> {
    let offsets = column.value_offsets();
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return Ok(None) };
    let mut values = column.value_data()[*first as usize..*last as usize].to_vec();
    let mut known: Option<([u8; SHARED], [u8; 6])> = None;
    for (row, ends) in offsets.windows(2).enumerate() {
        if column.nulls().is_some_and(|nulls| nulls.is_null(row)) {
            continue;
        }
        let cell = &mut values[(ends[0] - first) as usize..(ends[1] - first) as usize];
        let magnitude = match &known {
            Some((shared, magnitude)) if is_like(cell, shared) => *magnitude,
            _ => {
                let view = CellView::parse(cell)?;
                let (MaskView::Affine([_]), Lanes::NUMBER, Some(magnitude), 1, RowsView::Samples | RowsView::Unknown) =
                    (view.mask, view.lanes, view.magnitude, view.divisor, view.rows)
                else {
                    return Ok(None);
                };
                let [a, b, c, d, e, f, ..] = checked_magnitude(magnitude.checked_add(bound))?.to_le_bytes();
                let mut shared = [0; SHARED];
                shared.copy_from_slice(&cell[..SHARED]);
                known = Some((shared, [a, b, c, d, e, f]));
                [a, b, c, d, e, f]
            }
        };
        let constant = constant(row);
        if constant.unsigned_abs() > bound {
            return Ok(None);
        }
        shift_cell(cell, constant, magnitude);
    }
    let offsets = OffsetBuffer::new(offsets.iter().map(|offset| offset - first).collect());
    Ok(Some(BinaryArray::try_new(offsets, Buffer::from_vec(values), column.nulls().cloned())?))
}

/// Whether these bytes are a valid cell that shares its beginning with a plain fresh number.
#[inline]
fn is_like(cell: &[u8], shared: &[u8; SHARED]) -> bool {
    let Some((content, checksum)) = cell.split_last_chunk::<CHECKSUM>() else { return false };
    let Some((beginning, [i0, i1, _, _, _, _, _, _, _, _])) = content.split_first_chunk::<SHARED>() else {
        return false;
    };
    beginning == shared
        && fits_chunk(u16::from_le_bytes([*i0, *i1]), Lanes::NUMBER)
        && checksum_of(content) == *checksum
}

/// Changes a plain fresh number, whose layout the caller has checked.
#[inline]
fn shift_cell(cell: &mut [u8], constant: i64, magnitude: [u8; 6]) {
    let Some((content, checksum)) = cell.split_last_chunk_mut::<CHECKSUM>() else { return };
    content[12..HEADER].copy_from_slice(&magnitude);
    if let Some(body) = content.last_chunk_mut::<8>() {
        *body = u64::from_le_bytes(*body).wrapping_add(phase_of_message(constant)).to_le_bytes();
    }
    *checksum = checksum_of(content);
}
