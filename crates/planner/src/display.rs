//! Encrypted cells for people: what they are, never their bytes.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use veil_cells::CellType;

/// The batch with every encrypted cell as `⟨encrypted integer⟩`, or as its kind is called.
pub fn veiled(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let mut fields = Vec::with_capacity(schema.fields().len());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        match kind(field) {
            Some(kind) => {
                let text = format!("⟨encrypted {kind}⟩");
                let texts = (0..column.len()).map(|row| column.is_valid(row).then_some(text.as_str()));
                columns.push(Arc::new(texts.collect::<StringArray>()));
                fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
            }
            None => {
                columns.push(column.clone());
                fields.push(field.clone());
            }
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

/// What a field is called; `None` if it is clear. A damaged type is no reason to show bytes.
fn kind(field: &Field) -> Option<String> {
    match CellType::of_field(field) {
        Ok(Some(cell_type)) => Some(cell_type.kind.to_string()),
        Ok(None) => None,
        Err(_) => Some("value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{BinaryArray, Int64Array};
    use datafusion::arrow::util::pretty::pretty_format_batches;
    use veil_cells::{ColumnId, KeyId, Kind, Width};

    use super::*;

    #[test]
    fn cells_print_as_what_they_are() {
        let cell_type = CellType::new(Kind::Integer, Width::NARROWEST, 1, KeyId([1; 8]), ColumnId([2; 8]));
        let fields = vec![cell_type.field("age").unwrap(), Field::new("n", DataType::Int64, false)];
        let cells = BinaryArray::from_opt_vec(vec![Some(b"secret bytes"), None]);
        let columns: Vec<ArrayRef> = vec![Arc::new(cells), Arc::new(Int64Array::from(vec![1, 2]))];
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let text = pretty_format_batches(&[veiled(&batch).unwrap()]).unwrap().to_string();
        assert!(text.contains("| ⟨encrypted integer⟩ | 1 |") && text.contains("|                     | 2 |"), "{text}");
    }
}
