//! Reads a generalisation hierarchy: no header, leaf first, root last, separated by commas or semicolons.

use std::fs;
use std::path::Path;

use arrow::array::AsArray;
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format;
use veil_privacy::Hierarchy;

use crate::OwnerError;
use crate::table_file::text_schema;

/// Reads the file and checks that it is a tree.
pub(crate) fn read_hierarchy(file: &Path) -> Result<Hierarchy, OwnerError> {
    let text = fs::read_to_string(file).map_err(OwnerError::io(file))?;
    let first = text.lines().next().unwrap_or_default();
    let delimiter = if first.contains(';') { b';' } else { b',' };
    let format = Format::default().with_delimiter(delimiter);
    let (schema, _) = format.infer_schema(text.as_bytes(), Some(1)).map_err(OwnerError::arrow(file))?;
    let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let reader = ReaderBuilder::new(text_schema(&names)).with_delimiter(delimiter).build(text.as_bytes());
    let mut rows: Vec<Vec<String>> = Vec::new();
    for batch in reader.map_err(OwnerError::arrow(file))? {
        let batch = batch.map_err(OwnerError::arrow(file))?;
        for row in 0..batch.num_rows() {
            let cell = |column: &arrow::array::ArrayRef| column.as_string::<i32>().value(row).to_owned();
            rows.push(batch.columns().iter().map(cell).collect());
        }
    }
    Hierarchy::from_rows(&rows).map_err(|error| OwnerError::Attachment {
        file: file.to_owned(),
        what: format!("the hierarchy is not a tree: {error}"),
    })
}
