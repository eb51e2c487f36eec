//! What P1 sees of rows that may be suppressed: each row under a key of its own.
//!
//! ```text
//!  row key    three numbers below t, drawn by P1. They reach the recipient as values do: k + f u + rho through P2, rho from P1, so as noise if f = 1
//!  record     length of the row (u32), the row, zeros up to the longest of the parcel;  xor ChaCha20 of SHA-256("veil row key v1", row key)
//!  row        the columns in Arrow's row format (`arrow-row` 59), ascending, NULLs first
//! ```
//! All records of a parcel are equally long, so that no length is told but that of the longest. P1's part is sealed as a whole; here nothing is authenticated again.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;
use sha2::{Digest, Sha256};
use veil_cells::{CellType, Role, caught};
use zeroize::{Zeroize, Zeroizing};

use crate::ReleaseError;

/// Lanes of a row's key.
pub const ROW_KEY_LANES: usize = 3;

/// A row's key: numbers below `t`, 144 bits.
pub type RowKey = [u64; ROW_KEY_LANES];

/// The longest record.
const MAX_RECORD: usize = 4096;

/// Records have lengths that are multiples of this.
const STEP: usize = 16;

const DOMAIN: &[u8] = b"veil row key v1";
const WHAT: &str = "what the engine sealed of rows";

/// Whether rows of a table with such columns may be suppressed, so that their clear values are under keys.
pub fn hides_rows<'a>(mut types: impl Iterator<Item = &'a CellType>) -> bool {
    types.any(|of| of.role == Role::Suppressed && of.withheld != 0)
}

/// Rows under their keys.
pub struct HiddenRows {
    schema: SchemaRef,
    width: usize,
    records: Vec<u8>,
}

impl HiddenRows {
    /// Hides every row of a batch under its key.
    pub fn seal(batch: &RecordBatch, keys: &[RowKey]) -> Result<Self, ReleaseError> {
        let schema = batch.schema();
        if keys.len() != batch.num_rows() {
            return Err(wrong(&format!("{} keys are not those of {} rows", keys.len(), batch.num_rows())));
        }
        if let Some(field) = schema.fields().iter().find(|field| cannot_be_hidden(field)) {
            let why = format!(
                "clear values of type {} cannot be hidden for rows that are suppressed: leave the column out",
                field.data_type()
            );
            return Err(ReleaseError::Column { column: field.name().clone(), why });
        }
        let rows = match batch.num_columns() {
            0 => None,
            _ => Some(converter(&schema)?.convert_columns(batch.columns()).map_err(|error| wrong(&error))?),
        };
        let row = |at: usize| rows.as_ref().map(|rows| rows.row(at));
        let length = |at: usize| row(at).map_or(0, |row| row.as_ref().len());
        let longest = (0..keys.len()).map(length).max().unwrap_or(0);
        let width = (4 + longest).next_multiple_of(STEP);
        if width > MAX_RECORD {
            let why = format!(
                "clear values of {longest} bytes in a row cannot be hidden for rows that are suppressed, and {} are the most: leave out or encrypt \
                 long texts",
                MAX_RECORD - 4
            );
            return Err(ReleaseError::Column { column: longest_column(batch), why });
        }
        let mut records = vec![0; width * keys.len()];
        let mut stream = Zeroizing::new(vec![0; width]);
        for (at, (record, key)) in records.chunks_exact_mut(width).zip(keys).enumerate() {
            if let Some(row) = row(at) {
                let row = row.as_ref();
                record[..4].copy_from_slice(&(row.len() as u32).to_le_bytes());
                record[4..4 + row.len()].copy_from_slice(row);
            }
            mask(record, key, &mut stream);
        }
        Ok(Self { schema, width, records })
    }

    /// What P1 wrote.
    pub(crate) fn from_parts(schema: SchemaRef, width: usize, records: Vec<u8>) -> Result<Self, ReleaseError> {
        if let Some(field) = schema.fields().iter().find(|field| cannot_be_hidden(field)) {
            return Err(wrong(&format!("column {} cannot be of type {}", field.name(), field.data_type())));
        }
        match (4..=MAX_RECORD).contains(&width) && records.len().is_multiple_of(width) {
            true => Ok(Self { schema, width, records }),
            false => Err(wrong(&format!("records of {width} bytes cannot be"))),
        }
    }

    pub(crate) fn parts(&self) -> (&Schema, usize, &[u8]) {
        (&self.schema, self.width, &self.records)
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.records.len() / self.width
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The rows that are kept, all NULL in the place of others: their keys are noise.
    pub fn open(&self, keys: &[RowKey], kept: impl Fn(usize) -> bool) -> Result<RecordBatch, ReleaseError> {
        // Arrow's reader of rows panics on what is none.
        caught(|| self.read(keys, kept)).unwrap_or_else(|_| Err(wrong(&"a row is damaged")))
    }

    fn read(&self, keys: &[RowKey], kept: impl Fn(usize) -> bool) -> Result<RecordBatch, ReleaseError> {
        let rows = self.len();
        if keys.len() != rows {
            return Err(wrong(&format!("{} keys are not those of {rows} rows", keys.len())));
        }
        let mut records = Zeroizing::new(self.records.clone());
        let mut stream = Zeroizing::new(vec![0; self.width]);
        let (mut places, mut found) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for (at, (record, key)) in records.chunks_exact_mut(self.width).zip(keys).enumerate() {
            places.push(kept(at).then_some(found.len() as u32));
            if !kept(at) {
                continue;
            }
            mask(record, key, &mut stream);
            let row = record.split_first_chunk::<4>();
            let row = row.and_then(|(length, rest)| rest.get(..u32::from_le_bytes(*length) as usize));
            found.push(row.ok_or_else(|| wrong(&"a row is longer than its record"))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        if self.schema.fields().is_empty() {
            return RecordBatch::try_new_with_options(self.schema.clone(), vec![], &options).map_err(|e| wrong(&e));
        }
        let converter = converter(&self.schema)?;
        let parser = converter.parser();
        let arrays =
            converter.convert_rows(found.iter().map(|row| parser.parse(row))).map_err(|error| wrong(&error))?;
        let (places, none) = (UInt32Array::from(places), found.is_empty());
        let spread = |(array, field): (ArrayRef, &FieldRef)| match none {
            true => Ok(new_null_array(field.data_type(), rows)),
            // Dictionaries come back as their values.
            false => cast(&take(&array, &places, None)?, field.data_type()),
        };
        let arrays = arrays.into_iter().zip(self.schema.fields()).map(spread).collect::<Result<Vec<_>, _>>();
        let nullable = self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        let batch = arrays.and_then(|arrays| RecordBatch::try_new_with_options(schema, arrays, &options));
        batch.map_err(|error| wrong(&error))
    }
}

/// Types that have no rows, or whose NULLs alone could be longer than a row may be.
fn cannot_be_hidden(field: &FieldRef) -> bool {
    fn is_long(data_type: &DataType) -> bool {
        match data_type {
            DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).map_or(true, |bytes| bytes > MAX_RECORD),
            DataType::FixedSizeList(..) | DataType::RunEndEncoded(..) => true,
            DataType::Struct(fields) => fields.iter().any(|field| is_long(field.data_type())),
            DataType::Dictionary(_, values) => is_long(values),
            _ => false,
        }
    }
    is_long(field.data_type()) || !RowConverter::supports_fields(&[SortField::new(field.data_type().clone())])
}

fn converter(schema: &Schema) -> Result<RowConverter, ReleaseError> {
    let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
    RowConverter::new(fields.collect()).map_err(|error| wrong(&error))
}

/// Adds or takes off what hides a record. The stream is room for as many bytes.
fn mask(record: &mut [u8], key: &RowKey, stream: &mut [u8]) {
    let mut hash = Sha256::new();
    hash.update(DOMAIN);
    key.iter().for_each(|lane| hash.update(lane.to_le_bytes()));
    let mut seed: [u8; 32] = hash.finalize().into();
    ChaCha20Rng::from_seed(seed).fill_bytes(stream);
    seed.zeroize();
    record.iter_mut().zip(stream).for_each(|(byte, stream)| *byte ^= *stream);
}

/// Which column is to blame.
fn longest_column(batch: &RecordBatch) -> String {
    let size = |at: &usize| batch.column(*at).get_array_memory_size();
    let longest = (0..batch.num_columns()).max_by_key(size);
    longest.map_or_else(String::new, |at| batch.schema_ref().field(at).name().clone())
}

fn wrong(why: &dyn ToString) -> ReleaseError {
    ReleaseError::Malformed { what: WHAT, why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Int64Array};

    use super::*;

    /// Recipients have older and newer programs than servers: neither the row format nor the stream may change. The records were computed apart, from the
    /// description of the row format and RFC 8439.
    #[test]
    fn records_are_pinned() {
        let columns: [(&str, ArrayRef); 2] = [
            ("clear.0", Arc::new(Int64Array::from(vec![Some(5), None]))),
            ("present.1", Arc::new(BooleanArray::from(vec![true, false]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let hidden = HiddenRows::seal(&batch, &[[1, 2, 3], [(1 << 48) - 16384, 5, 6]]).unwrap();
        let records: String = hidden.records.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            records,
            "5d251ab82f79f0671623a39957cb1960\
             aa8f790729a244513ea021f1785a53c2"
        );
    }
}
