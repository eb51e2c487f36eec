//! Writes a table batch by batch, whole or not at all: into a temporary file beside the target, renamed when it is complete.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use arrow::csv;
use arrow::datatypes::SchemaRef;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use tempfile::NamedTempFile;
use veil_cells::{CellType, SideTables};

use super::{FileFormat, Output};
use crate::OwnerError;

/// Rows of a Parquet row group.
const ROW_GROUP_ROWS: usize = 4 * super::BATCH_ROWS;

/// A table on its way to a file.
pub struct TableWriter {
    output: Output,
    format: Format,
    /// What will become the file; standard output has none.
    temporary: Option<NamedTempFile>,
}

type Sink = BufWriter<Box<dyn Write + Send>>;

enum Format {
    Csv(Box<csv::Writer<Sink>>),
    Parquet(Box<ArrowWriter<Sink>>),
    Arrow(Box<FileWriter<Sink>>),
}

impl TableWriter {
    /// An encrypted table: readable by whom the system's defaults allow.
    pub(crate) fn encrypted(output: &Output, schema: SchemaRef, side: &SideTables) -> Result<Self, OwnerError> {
        match FileFormat::of_path(&output.path)? {
            FileFormat::Csv => Err(OwnerError::NotForCells(output.path.clone())),
            format => Self::create(output, format, schema, Some(side)),
        }
    }

    /// A clear table: personal data, so a file is readable by its owner alone.
    pub fn clear(output: &Output, schema: SchemaRef) -> Result<Self, OwnerError> {
        let format = match output.path.as_os_str().to_str() {
            Some("-") => FileFormat::Csv,
            _ => FileFormat::of_path(&output.path)?,
        };
        Self::create(output, format, schema, None)
    }

    fn create(
        output: &Output,
        format: FileFormat,
        schema: SchemaRef,
        side: Option<&SideTables>,
    ) -> Result<Self, OwnerError> {
        let path = &output.path;
        let (temporary, sink): (_, Box<dyn Write + Send>) = if path.as_os_str() == "-" {
            (None, Box::new(std::io::stdout()))
        } else {
            if path.exists() && !output.force {
                return Err(OwnerError::Exists(path.clone()));
            }
            let temporary = temporary_beside(path, side.is_some()).map_err(OwnerError::io(path))?;
            let file: File = temporary.reopen().map_err(OwnerError::io(path))?;
            (Some(temporary), Box::new(file))
        };
        let sink = BufWriter::with_capacity(1 << 20, sink);
        let format = match format {
            FileFormat::Csv => Format::Csv(Box::new(csv::WriterBuilder::new().with_header(true).build(sink))),
            FileFormat::Parquet => {
                let properties = parquet_properties(&schema);
                let mut writer =
                    ArrowWriter::try_new(sink, schema, Some(properties)).map_err(OwnerError::parquet(path))?;
                if let Some(side) = side {
                    let bytes = side.to_bytes().map_err(OwnerError::cell(path))?;
                    writer.write_all(&bytes).map_err(OwnerError::io(path))?;
                }
                Format::Parquet(Box::new(writer))
            }
            FileFormat::Arrow => {
                let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD));
                let options = options.map_err(OwnerError::arrow(path))?;
                let mut writer =
                    FileWriter::try_new_with_options(sink, &schema, options).map_err(OwnerError::arrow(path))?;
                if let Some(side) = side {
                    let text = side.to_ipc_metadata().map_err(OwnerError::cell(path))?;
                    writer.write_metadata(SideTables::IPC_METADATA_KEY, text);
                }
                Format::Arrow(Box::new(writer))
            }
        };
        Ok(Self { output: output.clone(), format, temporary })
    }

    /// Appends a batch.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), OwnerError> {
        let path = &self.output.path;
        match &mut self.format {
            Format::Csv(writer) => writer.write(batch).map_err(OwnerError::arrow(path)),
            Format::Parquet(writer) => writer.write(batch).map_err(OwnerError::parquet(path)),
            Format::Arrow(writer) => writer.write(batch).map_err(OwnerError::arrow(path)),
        }
    }

    /// Completes the file and puts it in its place.
    pub fn finish(self) -> Result<(), OwnerError> {
        let path = &self.output.path;
        let mut sink = match self.format {
            Format::Csv(writer) => writer.into_inner(),
            Format::Parquet(writer) => writer.into_inner().map_err(OwnerError::parquet(path))?,
            Format::Arrow(writer) => writer.into_inner().map_err(OwnerError::arrow(path))?,
        };
        sink.flush().map_err(OwnerError::io(path))?;
        drop(sink);
        let Some(temporary) = self.temporary else { return Ok(()) };
        temporary.as_file().sync_all().map_err(OwnerError::io(path))?;
        let persisted = match self.output.force {
            true => temporary.persist(path),
            false => temporary.persist_noclobber(path),
        };
        match persisted {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(OwnerError::Exists(path.clone()))
            }
            Err(error) => Err(OwnerError::io(path)(error.error)),
        }
    }
}

fn temporary_beside(path: &Path, public: bool) -> std::io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".veil-");
    #[cfg(unix)]
    if public {
        use std::os::unix::fs::PermissionsExt;
        // The process's umask still applies.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    #[cfg(not(unix))]
    let _ = public;
    builder.tempfile_in(folder)
}

/// Ciphertexts have no dictionary and no statistics worth keeping.
fn parquet_properties(schema: &SchemaRef) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS));
    for field in schema.fields() {
        if matches!(CellType::of_field(field), Ok(Some(_))) {
            let column = ColumnPath::from(vec![field.name().clone()]);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column.clone(), Encoding::PLAIN)
                .set_column_statistics_enabled(column, EnabledStatistics::None);
        }
    }
    properties.build()
}
