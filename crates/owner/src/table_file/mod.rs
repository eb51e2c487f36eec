//! CSV, Parquet and Arrow IPC files, read and written batch by batch.

mod guard;
mod pipeline;
mod reader;
mod writer;

use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

pub(crate) use self::pipeline::transform;
pub use self::reader::TableReader;
pub use self::writer::TableWriter;
use crate::OwnerError;

/// Rows of a batch: eight chunks of a column with one lane.
pub(crate) const BATCH_ROWS: usize = 8 * veil_cells::POLYNOMIAL_SIZE;

/// What a file is, told by the ending of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Comma-separated values with a header.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// An Arrow IPC file, also called Feather.
    Arrow,
}

impl FileFormat {
    /// The format of a file's name.
    pub fn of_path(path: &Path) -> Result<Self, OwnerError> {
        let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        match ending.as_deref() {
            Some("csv") => Ok(Self::Csv),
            Some("parquet") => Ok(Self::Parquet),
            Some("arrow" | "ipc" | "feather") => Ok(Self::Arrow),
            _ => Err(OwnerError::UnknownFormat(path.to_owned())),
        }
    }
}

/// Where a result goes.
#[derive(Clone, Debug)]
pub struct Output {
    /// The file, or `-` for CSV on standard output.
    pub path: PathBuf,
    /// Whether a file that is there already may be replaced.
    pub force: bool,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Rows done.
    pub rows: u64,
    /// Of the input, in thousandths.
    pub per_mille: u64,
}

/// Hears how far a run is, and may break it off.
pub type Watch<'a> = &'a dyn Fn(Progress) -> ControlFlow<()>;

/// Watches nothing.
pub fn unwatched(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Reports progress, and ends the run if the watch says so.
pub(crate) fn report(watch: Watch<'_>, progress: Progress) -> Result<(), OwnerError> {
    match watch(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(OwnerError::Cancelled),
    }
}

/// A schema of nothing but text.
pub(crate) fn text_schema(names: &[String]) -> SchemaRef {
    let fields: Vec<Field> = names.iter().map(|name| Field::new(name, DataType::Utf8, true)).collect();
    Arc::new(Schema::new(fields))
}

/// Skips a byte-order mark.
pub(crate) fn skip_mark(mut reader: impl Read) -> std::io::Result<impl Read> {
    let mut start = Vec::with_capacity(3);
    reader.by_ref().take(3).read_to_end(&mut start)?;
    if start == b"\xef\xbb\xbf" {
        start.clear();
    }
    Ok(std::io::Cursor::new(start).chain(reader))
}
