//! Results for people and programs. Encrypted cells are shown as what they are, in every format.

use std::io::{BufWriter, IsTerminal, Stdout, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatchOptions, StringArray};
use arrow::csv;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::json::writer::{JsonArray, LineDelimited, Writer, WriterBuilder};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches_with_options;
use clap::ValueEnum;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::config::FormatOptions as Options;
use veil_planner::veiled;

use crate::progress::say;

/// Rows that a table shows: the widths of its columns need all of them at once.
const TABLE_ROWS: usize = 10_000;

/// How results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Boxes
    Table,
    /// Comma-separated, with a header
    Csv,
    /// Tab-separated, with a header
    Tsv,
    /// One array of objects a statement
    Json,
    /// One object a line
    NdJson,
    /// A table on a terminal, csv elsewhere
    Automatic,
}

impl Format {
    pub(crate) fn is_table(self) -> bool {
        self.resolved() == Self::Table
    }

    fn resolved(self) -> Self {
        match self {
            Self::Automatic if std::io::stdout().is_terminal() => Self::Table,
            Self::Automatic => Self::Csv,
            format => format,
        }
    }
}

type Output = BufWriter<Stdout>;

/// Prints the batches of one result.
pub(crate) struct Printer {
    writer: Writing,
    schema: SchemaRef,
    options: Options,
    rows: usize,
}

enum Writing {
    /// The rows to show, until they are shown.
    Table(Option<Vec<RecordBatch>>),
    Csv(Box<csv::Writer<Output>>),
    Json(Writer<Output, JsonArray>),
    NdJson(Writer<Output, LineDelimited>),
    /// A statement without a result.
    Nothing,
}

impl Printer {
    pub(crate) fn new(format: Format, schema: SchemaRef, options: Options) -> Result<Self, String> {
        let output = || BufWriter::new(std::io::stdout());
        let separated = |by| Box::new(csv::WriterBuilder::new().with_header(true).with_delimiter(by).build(output()));
        // A key that is missing where a value is NULL makes programs stumble.
        let json = || WriterBuilder::new().with_explicit_nulls(true);
        let writer = match format.resolved() {
            _ if schema.fields().is_empty() => Writing::Nothing,
            Format::Csv => Writing::Csv(separated(b',')),
            Format::Tsv => Writing::Csv(separated(b'\t')),
            Format::Json => Writing::Json(json().build(output())),
            Format::NdJson => Writing::NdJson(json().build(output())),
            Format::Table | Format::Automatic => Writing::Table(Some(Vec::new())),
        };
        let mut printer = Self { writer, schema, options, rows: 0 };
        // The header stands there even without rows.
        printer.write(&RecordBatch::new_empty(printer.schema.clone()))?;
        Ok(printer)
    }

    /// Whether rows are printed as they come.
    pub(crate) fn is_streaming(&self) -> bool {
        !matches!(self.writer, Writing::Table(_))
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let batch = veiled(batch).map_err(|error| error.to_string())?;
        self.rows += batch.num_rows();
        match &mut self.writer {
            Writing::Table(Some(shown)) => {
                let room = TABLE_ROWS.saturating_sub(self.rows - batch.num_rows());
                shown.push(batch.slice(0, batch.num_rows().min(room)));
                if self.rows > TABLE_ROWS {
                    self.show_table()?;
                }
                Ok(())
            }
            Writing::Table(None) | Writing::Nothing => Ok(()),
            Writing::Csv(writer) => {
                flat(&batch).and_then(|batch| writer.write(&batch)).map_err(|error| error.to_string())
            }
            Writing::Json(writer) => writer.write(&batch).map_err(|error| error.to_string()),
            Writing::NdJson(writer) => writer.write(&batch).map_err(|error| error.to_string()),
        }
    }

    /// Ends the result: how many rows it had, if it could have any.
    pub(crate) fn finish(mut self) -> Result<Option<usize>, String> {
        self.show_table()?;
        let finished = match self.writer {
            Writing::Nothing => return Ok(None),
            Writing::Table(_) => {
                if self.rows > TABLE_ROWS {
                    let more = self.rows - TABLE_ROWS;
                    say(&format!("{more} more rows are not shown: add LIMIT, or take --format csv for all"));
                }
                Ok(())
            }
            Writing::Csv(writer) => writer.into_inner().flush(),
            Writing::Json(mut writer) => {
                writer.finish().map_err(std::io::Error::other).and_then(|()| writer.into_inner().write_all(b"\n"))
            }
            Writing::NdJson(mut writer) => writer.finish().map_err(std::io::Error::other),
        };
        finished.map_err(|error| error.to_string())?;
        Ok(Some(self.rows))
    }

    /// Shows the rows so far, once.
    fn show_table(&mut self) -> Result<(), String> {
        let Writing::Table(shown) = &mut self.writer else { return Ok(()) };
        let Some(shown) = shown.take() else { return Ok(()) };
        show(&shown, &self.options)
    }
}

/// Lists and structures as text: separated values have no other form for them.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let options = FormatOptions::default();
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if !field.data_type().is_nested() {
            fields.push(field.clone());
            columns.push(column.clone());
            continue;
        }
        let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
        let text = |row: usize| column.is_valid(row).then(|| formatter.value(row).to_string());
        columns.push(Arc::new((0..column.len()).map(text).collect::<StringArray>()));
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

/// Shows batches as one table.
pub(crate) fn show(batches: &[RecordBatch], options: &Options) -> Result<(), String> {
    let options = FormatOptions::try_from(options).map_err(|error| error.to_string())?;
    let table = pretty_format_batches_with_options(batches, &options).map_err(|error| error.to_string())?;
    writeln!(std::io::stdout(), "{table}").map_err(|error| error.to_string())
}
