//! How much memory the rows of a batch take.
//!
//! A batch is often a slice of a larger one, whose buffers it shares with all other slices. Asked for its memory, Arrow tells that of whole buffers: a
//! table in a hundred slices would then count a hundred times.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;

/// Bytes of the batch's own rows.
pub(crate) fn row_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(column_bytes).fold(0, usize::saturating_add)
}

fn column_bytes(column: &ArrayRef) -> usize {
    // Arrow leaves out what views point to.
    let behind_views = match column.data_type() {
        DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
        DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
        _ => 0,
    };
    let own = column.to_data().get_slice_memory_size();
    own.map_or_else(|_| column.get_array_memory_size(), |own| own.saturating_add(behind_views))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{BinaryArray, BinaryViewArray, Int64Array};

    use super::*;

    #[test]
    fn slices_take_what_all_rows_take_together() {
        let cells: Vec<Vec<u8>> = (0..1000u32).map(|row| vec![row as u8; 60]).collect();
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from_iter_values(0..1000)) as ArrayRef),
            ("cells", Arc::new(BinaryArray::from_iter_values(&cells)) as ArrayRef),
            ("views", Arc::new(BinaryViewArray::from_iter_values(&cells)) as ArrayRef),
        ])
        .unwrap();
        let all = row_bytes(&batch);
        // Numbers, offsets, cells; views, cells.
        assert_eq!(all, 8000 + 4 * 1001 + 60_000 + 16_000 + 60_000);
        let slices: usize = (0..1000).step_by(10).map(|at| row_bytes(&batch.slice(at, 10))).sum();
        assert_eq!(slices, all + 4 * 99);
    }
}
