//! Which rows of an original and its anonymised table belong together.
//!
//! A cell is unlike every other cell, and a column that k_anonymize did not touch passes as it is. So a column that both tables share says which
//! rows are the same, without saying what is in them. Where there is none, rows are taken in their order.

use std::collections::HashMap;

use datafusion::arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::exec_err;
use datafusion::error::Result;
use veil_cells::{CellArray, Role};
use veil_udfs::EncryptedField;

use super::table::place;

/// An encrypted column that both tables have, is no quasi-identifier and was not computed: its places in both. One without NULLs, if there is one.
pub(super) fn shared_column(
    original: &[FieldRef],
    anonymised: &[FieldRef],
    quasi: &[String],
) -> Result<Option<(usize, usize)>> {
    let mut found = None;
    for (at, field) in original.iter().enumerate() {
        let (Some(column), Ok(other)) = (EncryptedField::of(field)?, place("", anonymised, field.name())) else {
            continue;
        };
        let Some(there) = anonymised.get(other).map(|field| EncryptedField::of(field)).transpose()?.flatten() else {
            continue;
        };
        let (ours, theirs) = (&column.cell_type, &there.cell_type);
        let same = (ours.column, ours.key, ours.lanes) == (theirs.column, theirs.key, theirs.lanes);
        let as_it_was = !ours.computed && !theirs.computed && ours.role == Role::Data && theirs.role == Role::Data;
        if same && as_it_was && !quasi.contains(field.name()) && place("", original, field.name()).is_ok() {
            if !column.nullable {
                return Ok(Some((at, other)));
            }
            found = found.or(Some((at, other)));
        }
    }
    Ok(found)
}

/// The rows of the original in the order of the anonymised table; and whether nothing but their order told it.
pub(super) fn aligned(
    original: RecordBatch,
    anonymised: &RecordBatch,
    shared: Option<(usize, usize)>,
) -> Result<(RecordBatch, bool)> {
    if let Some((ours, theirs)) = shared
        && let Some(order) = order(original.column(ours), anonymised.column(theirs))?
    {
        let in_order = order.values().iter().enumerate().all(|(at, row)| at == *row as usize);
        let is_whole = original.num_rows() == order.len();
        let taken = if in_order && is_whole { original } else { take_record_batch(&original, &order)? };
        return Ok((taken, false));
    }
    match original.num_rows() == anonymised.num_rows() {
        true => Ok((original, true)),
        false => exec_err!(
            "the original table has {} rows and the anonymised one {}, and no encrypted column that both share tells which belong together: keep one \
             beside the quasi-identifiers, or compare with the rows that were anonymised",
            original.num_rows(),
            anonymised.num_rows()
        ),
    }
}

/// For every row of the second column, where the same cell is in the first; nothing if some is not there.
fn order(original: &ArrayRef, anonymised: &ArrayRef) -> Result<Option<UInt32Array>> {
    let external = |error: veil_cells::CellError| datafusion::common::DataFusionError::External(Box::new(error));
    let (ours, theirs) =
        (CellArray::try_new(original).map_err(external)?, CellArray::try_new(anonymised).map_err(external)?);
    let mut known: HashMap<&[u8], u32> = HashMap::with_capacity(ours.len());
    for row in 0..ours.len() {
        let Some(cell) = ours.bytes(row) else { return Ok(None) };
        // The same row twice, as a join makes them: nobody can tell which is which.
        if known.insert(cell, row as u32).is_some() {
            return Ok(None);
        }
    }
    let place = |row: usize| known.get(theirs.bytes(row)?).copied();
    Ok((0..theirs.len()).map(place).collect::<Option<Vec<u32>>>().map(UInt32Array::from))
}
