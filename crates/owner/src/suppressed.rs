//! Rows that are not to be published: an encrypted flag tells which, and whoever decrypts leaves them out.

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use veil_cells::Role;

use crate::ColumnCodec;

/// Which columns are such flags.
pub fn flags(codecs: &[Option<ColumnCodec>]) -> Vec<usize> {
    let is_flag =
        |codec: &Option<ColumnCodec>| codec.as_ref().is_some_and(|codec| codec.cell_type().role == Role::Suppressed);
    codecs.iter().enumerate().filter(|(_, codec)| is_flag(codec)).map(|(place, _)| place).collect()
}

/// All columns but the flags.
pub fn without_flags(schema: &Schema, flags: &[usize]) -> Result<Schema, ArrowError> {
    schema.project(&others(schema.fields().len(), flags))
}

fn others(columns: usize, flags: &[usize]) -> Vec<usize> {
    (0..columns).filter(|place| !flags.contains(place)).collect()
}

/// A decrypted batch without the rows that are suppressed, and without the flags.
pub fn without_suppressed(batch: RecordBatch, flags: &[usize]) -> Result<RecordBatch, ArrowError> {
    if flags.is_empty() {
        return Ok(batch);
    }
    let mut keep = vec![true; batch.num_rows()];
    for column in flags.iter().filter_map(|place| batch.columns().get(*place)) {
        let Some(flag) = column.as_boolean_opt() else {
            let text = format!("a flag of suppressed rows is of type {}", column.data_type());
            return Err(ArrowError::InvalidArgumentError(text));
        };
        // A row of which nobody knows whether it may be published stays out.
        keep.iter_mut().enumerate().for_each(|(row, keep)| *keep &= flag.is_valid(row) && !flag.value(row));
    }
    let rest = batch.project(&others(batch.num_columns(), flags))?;
    filter_record_batch(&rest, &BooleanArray::from(keep))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn batch(flag: Vec<Option<bool>>) -> RecordBatch {
        let flag: ArrayRef = Arc::new(BooleanArray::from(flag));
        let rows: ArrayRef = Arc::new(Int64Array::from_iter_values(0..flag.len() as i64));
        RecordBatch::try_from_iter([("flag", flag), ("row", rows)]).unwrap()
    }

    #[test]
    fn rows_with_a_flag_are_left_out_and_so_is_the_flag() {
        let left = without_suppressed(batch(vec![Some(false), Some(true), None, Some(false)]), &[0]).unwrap();
        assert_eq!(left.num_columns(), 1);
        assert_eq!(left.column(0).as_primitive::<Int64Type>().values(), &[0, 3]);
        let all = batch(vec![Some(true)]);
        assert_eq!(without_suppressed(all.clone(), &[]).unwrap(), all);
        assert!(without_suppressed(all, &[1]).unwrap_err().to_string().contains("is of type Int64"));
    }
}
