//! What anyone may know about an encrypted file. Needs no key and shows no value.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use arrow::array::Array;
use serde::Serialize;
use veil_cells::{
    CELL_VERSION, CONSTANTS_METADATA_KEY, Cell, CellArray, CellError, CellType, KeyId, Noise, SEALED_METADATA_KEY, Seed,
};
use veil_keys::KeyError;

use crate::table_file::{TableReader, report};
use crate::{OwnerError, Progress, Watch};

/// A file.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// Bytes on disk.
    pub file_bytes: u64,
    /// Rows.
    pub rows: u64,
    /// The format of its cells.
    pub cell_version: u8,
    /// The columns in order.
    pub columns: Vec<ColumnInspection>,
    /// Tables that travel along.
    pub side_tables: Vec<SideTableInspection>,
}

/// A column.
#[derive(Clone, Debug, Serialize)]
pub struct ColumnInspection {
    /// Its name.
    pub name: String,
    /// The kind of an encrypted column, the Arrow type of a clear one.
    pub kind: String,
    /// Whether it is encrypted; the rest is about encrypted columns.
    pub encrypted: bool,
    /// The public type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell_type: Option<CellType>,
    /// Rows that are visibly NULL.
    pub nulls: u64,
    /// Chunks that share a seed.
    pub chunks: usize,
    /// Bytes of a cell in Arrow, offset included, on average.
    pub arrow_bytes: f64,
    /// Bytes of a row in the Parquet file, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parquet_bytes: Option<f64>,
    /// The largest noise bound of a cell.
    pub noise: u64,
    /// Where values break.
    pub noise_limit: u64,
    /// Whether encrypted bounds travel along.
    pub bounds: bool,
    /// Whether a sealed note travels along.
    pub note: bool,
}

/// A table beside the rows.
#[derive(Clone, Debug, Serialize)]
pub struct SideTableInspection {
    /// Its name.
    pub name: String,
    /// Its entries.
    pub entries: usize,
}

/// Reads every cell of a file and counts.
pub fn inspect_file(input: &Path, watch: Watch<'_>) -> Result<Inspection, OwnerError> {
    let file_bytes = fs::metadata(input).map_err(OwnerError::io(input))?.len();
    let mut reader = TableReader::open(input)?;
    let mut counts = Vec::new();
    for field in reader.schema.fields() {
        let cell_type = CellType::of_field(field).map_err(OwnerError::column(input, field.name()))?;
        counts.push(cell_type.map(Count::new));
    }
    let mut rows = 0;
    while let Some(batch) = reader.next() {
        let batch = batch?;
        for ((column, count), field) in batch.columns().iter().zip(&mut counts).zip(batch.schema().fields()) {
            if let Some(count) = count {
                count.add(column, rows).map_err(OwnerError::column(input, field.name()))?;
            }
        }
        rows += batch.num_rows();
        report(watch, Progress { rows: rows as u64, per_mille: reader.per_mille() })?;
    }
    let side_tables = reader.side_tables.iter();
    let side_tables =
        side_tables.map(|(name, table)| SideTableInspection { name: name.to_owned(), entries: table.num_rows() });
    let columns = reader.schema.fields().iter().zip(counts).enumerate().map(|(at, (field, count))| {
        let stored = reader.parquet.as_ref().filter(|_| rows > 0).map(|metadata| {
            let bytes =
                metadata.row_groups().iter().filter_map(|group| Some(group.columns().get(at)?.compressed_size()));
            bytes.sum::<i64>() as f64 / rows as f64
        });
        let has = |key: &str| field.metadata().contains_key(key);
        let cells = count.as_ref().map_or(0, |count| count.cells);
        ColumnInspection {
            name: field.name().clone(),
            kind: count
                .as_ref()
                .map_or_else(|| field.data_type().to_string(), |count| count.cell_type.kind.to_string()),
            encrypted: count.is_some(),
            nulls: count.as_ref().map_or(0, |count| count.nulls),
            chunks: count.as_ref().map_or(0, |count| count.seeds.len()),
            arrow_bytes: count.as_ref().map_or(0.0, |count| count.bytes as f64 / cells.max(1) as f64),
            parquet_bytes: stored,
            noise: count.as_ref().map_or(0, |count| count.noise),
            noise_limit: Noise::LIMIT - 1,
            bounds: has(CONSTANTS_METADATA_KEY),
            note: has(SEALED_METADATA_KEY),
            cell_type: count.map(|count| count.cell_type),
        }
    });
    Ok(Inspection {
        file_bytes,
        rows: rows as u64,
        cell_version: CELL_VERSION,
        columns: columns.collect(),
        side_tables: side_tables.collect(),
    })
}

struct Count {
    cell_type: CellType,
    scratch: Cell,
    seeds: HashSet<Seed>,
    cells: u64,
    nulls: u64,
    bytes: u64,
    noise: u64,
}

impl Count {
    fn new(cell_type: CellType) -> Self {
        Self { cell_type, scratch: Cell::scratch(), seeds: HashSet::new(), cells: 0, nulls: 0, bytes: 0, noise: 0 }
    }

    fn add(&mut self, array: &dyn Array, before: usize) -> Result<(), KeyError> {
        let cells = CellArray::try_new(array)?;
        for row in 0..cells.len() {
            let Some(bytes) = cells.bytes(row) else {
                self.nulls += 1;
                continue;
            };
            let fault = |source| KeyError::Row { row: before + row, source };
            self.scratch.read(bytes).map_err(fault)?;
            let (expected, found): (KeyId, KeyId) = (self.cell_type.key, self.scratch.key_id());
            if expected != found {
                return Err(fault(CellError::WrongKey { expected, found }));
            }
            self.seeds.extend(self.scratch.terms().iter().map(|term| term.seed));
            self.noise = self.noise.max(self.scratch.noise().bound());
            self.cells += 1;
            self.bytes += bytes.len() as u64 + 4;
        }
        Ok(())
    }
}
