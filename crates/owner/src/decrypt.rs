//! Encrypted file in, clear file out: for the owner alone.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatchOptions};
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use rayon::prelude::*;
use veil_cells::{Cell, CellArray, CellError};
use veil_keys::{KeyError, OwnerKeys, decrypt_column};

use crate::suppressed::{self, without_suppressed};
use crate::table_file::{TableReader, TableWriter, transform};
use crate::{ColumnCodec, FileFormat, Output, OwnerError, Watch};

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecryptSummary {
    /// Rows written.
    pub rows: u64,
    /// Rows that were left out, since they are suppressed.
    pub suppressed: u64,
    /// Columns decrypted.
    pub decrypted: usize,
    /// Columns with noise of the engine alone: the release would have added the key holder's.
    pub awaiting_noise: Vec<String>,
}

/// Decrypts `input`.
pub fn decrypt_file(
    input: &Path,
    keys: &OwnerKeys,
    output: &Output,
    watch: Watch<'_>,
) -> Result<DecryptSummary, OwnerError> {
    if FileFormat::of_path(input)? == FileFormat::Csv {
        return Err(OwnerError::NotForCells(input.to_owned()));
    }
    let reader = TableReader::open(input)?;
    let mut codecs = Vec::new();
    let mut fields = Vec::new();
    let mut awaiting_noise = Vec::new();
    for field in reader.schema.fields() {
        let codec = ColumnCodec::of_field(keys, field).map_err(OwnerError::column(input, field.name()))?;
        if codec.as_ref().is_some_and(|codec| !codec.cell_type().awaits.is_empty()) {
            awaiting_noise.push(field.name().clone());
        }
        fields.push(match &codec {
            Some(codec) => codec.clear_field(field.name()),
            None => field.as_ref().clone(),
        });
        codecs.push(codec);
    }
    let decrypted = codecs.iter().flatten().count();
    if decrypted == 0 {
        let what = "no column is encrypted; is this a file that veil encrypt wrote?".to_owned();
        return Err(OwnerError::Mismatch { file: input.to_owned(), what });
    }
    let schema = Arc::new(Schema::new(fields));
    let flags = suppressed::flags(&codecs);
    let written = suppressed::without_flags(&schema, &flags).map_err(OwnerError::arrow(input))?;
    let writer = TableWriter::clear(output, Arc::new(written))?;
    let mut left_out = 0;
    let step = |batch: RecordBatch, before: usize| {
        let columns =
            codecs.par_iter().zip(batch.columns()).zip(schema.fields().par_iter()).map(|((codec, array), field)| {
                let Some(codec) = codec else {
                    return match holds_cells(array) {
                        false => Ok(array.clone()),
                        true => Err(OwnerError::Mismatch { file: input.to_owned(), what: lost_type(field.name()) }),
                    };
                };
                decrypt_array(codec, keys, array).map_err(|error| match error {
                    // The cell's place in the file, not in the batch.
                    KeyError::Row { row, source } => {
                        let source = KeyError::Row { row: before + row, source };
                        OwnerError::column(input, field.name())(source)
                    }
                    other => OwnerError::column(input, field.name())(other),
                })
            });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let all = RecordBatch::try_new_with_options(schema.clone(), columns, &options);
        let kept = all.and_then(|all| without_suppressed(all, &flags)).map_err(OwnerError::arrow(input))?;
        left_out += (batch.num_rows() - kept.num_rows()) as u64;
        Ok(kept)
    };
    let read = transform(reader, writer, step, watch)?;
    Ok(DecryptSummary { rows: read - left_out, suppressed: left_out, decrypted, awaiting_noise })
}

/// Decrypts a batch in memory. Clear columns stay as they are; rows that are suppressed are left out.
pub fn decrypt_batch(keys: &OwnerKeys, batch: &RecordBatch) -> Result<RecordBatch, KeyError> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    let schema = batch.schema();
    let codecs = schema.fields().iter().map(|field| ColumnCodec::of_field(keys, field));
    let codecs = codecs.collect::<Result<Vec<_>, _>>()?;
    for ((field, array), codec) in schema.fields().iter().zip(batch.columns()).zip(&codecs) {
        let (field, array) = match codec {
            Some(codec) => (codec.clear_field(field.name()), decrypt_array(codec, keys, array)?),
            None => (field.as_ref().clone(), array.clone()),
        };
        fields.push(field);
        columns.push(array);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let decrypted = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options);
    let flags = suppressed::flags(&codecs);
    Ok(decrypted.and_then(|all| without_suppressed(all, &flags)).map_err(CellError::from)?)
}

fn decrypt_array(codec: &ColumnCodec, keys: &OwnerKeys, array: &ArrayRef) -> Result<ArrayRef, KeyError> {
    let column = CellArray::try_new(array)?;
    let decrypted = decrypt_column(keys.cell(), keys.key_id(), codec.cell_type(), column)?;
    codec.decode(decrypted)
}

/// Whether a column without a type holds cells all the same: a tool between has dropped the metadata.
fn holds_cells(array: &ArrayRef) -> bool {
    let Ok(cells) = CellArray::try_new(array) else {
        return false;
    };
    (0..cells.len()).find_map(|row| cells.bytes(row)).is_some_and(|bytes| Cell::from_bytes(bytes).is_ok())
}

fn lost_type(column: &str) -> String {
    format!("column {column} holds cells but lost its type; in DataFusion use `SessionConfig::with_veil` to keep it")
}
