//! Reads a table in batches of [`BATCH_ROWS`].

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::FileReader;
use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;
use veil_cells::SideTables;

use super::guard::guarded;
use super::{BATCH_ROWS, FileFormat, skip_mark, text_schema};
use crate::OwnerError;

/// An open table, batch by batch.
pub struct TableReader {
    pub(crate) path: PathBuf,
    pub(crate) format: FileFormat,
    pub(crate) schema: SchemaRef,
    pub(crate) side_tables: SideTables,
    /// Of a Parquet file.
    pub(crate) parquet: Option<Arc<ParquetMetaData>>,
    batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>,
    /// A large batch on its way in parts.
    parts: VecDeque<RecordBatch>,
    done: Arc<AtomicU64>,
    total: u64,
    rows: u64,
}

impl TableReader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, OwnerError> {
        let format = FileFormat::of_path(path)?;
        let file = File::open(path).map_err(OwnerError::io(path))?;
        guarded(path, || match format {
            FileFormat::Csv => Self::csv(path, file),
            FileFormat::Parquet => Self::parquet(path, file),
            FileFormat::Arrow => Self::arrow(path, file),
        })
    }

    /// Its columns; those of a CSV file are texts.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the input has types of its own.
    pub(crate) fn is_typed(&self) -> bool {
        self.format != FileFormat::Csv
    }

    /// How far the reading is, in thousandths.
    pub(crate) fn per_mille(&self) -> u64 {
        let done = self.done.load(Ordering::Relaxed).max(if self.parquet.is_some() { self.rows } else { 0 });
        (done * 1000).checked_div(self.total).unwrap_or(1000).min(1000)
    }

    fn csv(path: &Path, file: File) -> Result<Self, OwnerError> {
        let total = file.metadata().map_err(OwnerError::io(path))?.len();
        let again = File::open(path).and_then(skip_mark).map_err(OwnerError::io(path))?;
        let header = Format::default().with_header(true).infer_schema(again, Some(0));
        let (header, _) = header.map_err(OwnerError::arrow(path))?;
        let names: Vec<String> = header.fields().iter().map(|field| field.name().clone()).collect();
        if names.is_empty() {
            return Err(OwnerError::Unreadable { file: path.to_owned(), why: "it has no header line".to_owned() });
        }
        let schema = text_schema(&names);
        let done = Arc::new(AtomicU64::new(0));
        let counted = skip_mark(Counted { inner: file, done: done.clone() }).map_err(OwnerError::io(path))?;
        let reader = ReaderBuilder::new(schema.clone()).with_header(true).with_batch_size(BATCH_ROWS);
        let batches = Box::new(reader.build(counted).map_err(OwnerError::arrow(path))?);
        Self::new(path, FileFormat::Csv, schema, batches, done, total)
    }

    fn parquet(path: &Path, mut file: File) -> Result<Self, OwnerError> {
        let side_tables = SideTables::read_parquet(&mut file).map_err(OwnerError::cell(path))?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(OwnerError::parquet(path))?;
        let metadata = builder.metadata().clone();
        let total = metadata.file_metadata().num_rows().max(0) as u64;
        let schema = builder.schema().clone();
        let batches = Box::new(builder.with_batch_size(BATCH_ROWS).build().map_err(OwnerError::parquet(path))?);
        let mut reader = Self::new(path, FileFormat::Parquet, schema, batches, Arc::default(), total)?;
        reader.parquet = Some(metadata);
        reader.side_tables = side_tables;
        Ok(reader)
    }

    fn arrow(path: &Path, file: File) -> Result<Self, OwnerError> {
        let reader = FileReader::try_new(BufReader::new(file), None).map_err(OwnerError::arrow(path))?;
        let side_tables = match reader.custom_metadata().get(SideTables::IPC_METADATA_KEY) {
            Some(text) => SideTables::from_ipc_metadata(text).map_err(OwnerError::cell(path))?,
            None => SideTables::default(),
        };
        let (schema, total) = (reader.schema(), reader.num_batches() as u64);
        let done = Arc::new(AtomicU64::new(0));
        let count = done.clone();
        let batches = Box::new(reader.inspect(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        let mut reader = Self::new(path, FileFormat::Arrow, schema, batches, done, total)?;
        reader.side_tables = side_tables;
        Ok(reader)
    }

    fn new(
        path: &Path,
        format: FileFormat,
        schema: SchemaRef,
        batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>,
        done: Arc<AtomicU64>,
        total: u64,
    ) -> Result<Self, OwnerError> {
        let mut names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let why = format!("the column `{}` appears twice; rename one", pair[0]);
            return Err(OwnerError::Unreadable { file: path.to_owned(), why });
        }
        let path = path.to_owned();
        let (side_tables, parts) = (SideTables::default(), VecDeque::new());
        Ok(Self { path, format, schema, side_tables, parquet: None, batches, parts, done, total, rows: 0 })
    }
}

impl Iterator for TableReader {
    type Item = Result<RecordBatch, OwnerError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.parts.is_empty() {
            let (path, batches) = (&self.path, &mut self.batches);
            match guarded(path, || batches.next().transpose().map_err(OwnerError::arrow(path))) {
                Ok(Some(batch)) => {
                    let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
                    let parts = starts.map(|at| batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at)));
                    self.parts.extend(parts);
                }
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        let part = self.parts.pop_front()?;
        self.rows += part.num_rows() as u64;
        Some(Ok(part))
    }
}

/// Counts the bytes that pass.
struct Counted<R> {
    inner: R,
    done: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.done.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
