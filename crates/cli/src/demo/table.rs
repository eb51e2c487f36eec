//! Tables of text: CSV files that the owner and the recipient can read, and what is shown of them.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow::csv::reader::Format;
use arrow::csv::{ReaderBuilder, Writer};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::parties::write_secret;

/// Columns with names, rows of text. What is NULL is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) names: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

type Failure = Box<dyn std::error::Error>;

impl Table {
    pub(super) fn new(names: &[&str], rows: Vec<Vec<String>>) -> Self {
        Self { names: names.iter().map(|name| (*name).to_owned()).collect(), rows }
    }

    /// The first rows of a CSV file, and whether there are more.
    pub(super) fn read(file: &Path, most: usize) -> Result<(Self, bool), Failure> {
        let named = |error: &dyn std::fmt::Display| -> Failure { format!("{}: {error}", file.display()).into() };
        let open = || File::open(file).map_err(|error| named(&error));
        let (header, _) =
            Format::default().with_header(true).infer_schema(open()?, Some(1)).map_err(|error| named(&error))?;
        let fields: Vec<Field> =
            header.fields().iter().map(|field| Field::new(field.name(), DataType::Utf8, true)).collect();
        let names = fields.iter().map(|field| field.name().clone()).collect();
        let reader = ReaderBuilder::new(Arc::new(Schema::new(fields))).with_header(true).with_batch_size(8192);
        let mut table = Self { names, rows: Vec::new() };
        for batch in reader.build(open()?).map_err(|error| named(&error))? {
            table.add(&batch.map_err(|error| named(&error))?)?;
            if table.rows.len() > most {
                table.rows.truncate(most);
                return Ok((table, true));
            }
        }
        Ok((table, false))
    }

    /// Of rows in memory.
    pub(super) fn of(batches: &[RecordBatch]) -> Result<Self, Failure> {
        let names =
            batches.first().map(|batch| batch.schema().fields().iter().map(|field| field.name().clone()).collect());
        let mut table = Self { names: names.unwrap_or_default(), rows: Vec::new() };
        batches.iter().try_for_each(|batch| table.add(batch))?;
        Ok(table)
    }

    fn add(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        let options = FormatOptions::default();
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let cell = |(column, array): (&ArrayFormatter<'_>, &ArrayRef)| match array.is_valid(row) {
                true => column.value(row).to_string(),
                false => String::new(),
            };
            self.rows.push(columns.iter().zip(batch.columns()).map(cell).collect());
        }
        Ok(())
    }

    /// As a CSV file with a header, which its owner alone can read.
    pub(super) fn write(&self, file: &Path) -> Result<(), Failure> {
        let column = |at: usize| -> ArrayRef {
            let value = |row: &Vec<String>| row.get(at).filter(|text| !text.is_empty()).cloned();
            Arc::new(self.rows.iter().map(value).collect::<StringArray>())
        };
        let fields: Vec<Field> = self.names.iter().map(|name| Field::new(name, DataType::Utf8, true)).collect();
        let columns = (0..self.names.len()).map(column).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let mut text = Vec::new();
        Writer::new(&mut text).write(&batch)?;
        write_secret(file, &text)
    }

    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|other| other == name)
    }

    /// Some columns of a row, in this order; what is not there is empty.
    pub(super) fn values(&self, row: &[String], columns: &[String]) -> Vec<String> {
        let value = |name: &String| self.place(name).and_then(|at| row.get(at)).cloned().unwrap_or_default();
        columns.iter().map(value).collect()
    }

    /// Rows by their values in some columns.
    pub(super) fn by(&self, columns: &[String]) -> HashMap<Vec<String>, Vec<usize>> {
        let mut found: HashMap<Vec<String>, Vec<usize>> = HashMap::new();
        for (at, row) in self.rows.iter().enumerate() {
            found.entry(self.values(row, columns)).or_default().push(at);
        }
        found
    }

    /// Some columns of the first rows.
    pub(super) fn head(&self, columns: &[String], rows: usize) -> Self {
        let rows = self.rows.iter().take(rows).map(|row| self.values(row, columns)).collect();
        Self { names: columns.to_vec(), rows }
    }

    /// In boxes. Columns give way from the widest on until all fit; those that do not fit at all are left out at the end.
    pub(super) fn text(&self, width: usize) -> String {
        const LEAST: usize = 6;
        let mut shown = self.names.len();
        while shown > 1 && 1 + shown * (LEAST + 3) > width {
            shown -= 1;
        }
        let length = |text: &String| text.chars().count();
        let longest = |at: usize| self.rows.iter().filter_map(|row| row.get(at)).map(length).max().unwrap_or(0);
        let mut widths: Vec<usize> =
            self.names.iter().take(shown).enumerate().map(|(at, name)| longest(at).max(length(name))).collect();
        while 1 + widths.iter().map(|column| column + 3).sum::<usize>() > width {
            match widths.iter_mut().max() {
                Some(widest) if *widest > LEAST => *widest -= 1,
                _ => break,
            }
        }
        let rule = widths.iter().map(|column| "-".repeat(column + 2)).collect::<Vec<_>>().join("+");
        let line = |row: &[String]| {
            let cells = widths.iter().enumerate().map(|(at, column)| {
                let text = row.get(at).map(|text| shortened(text, *column)).unwrap_or_default();
                format!(" {text}{} ", " ".repeat(column - length(&text)))
            });
            format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
        };
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("+{rule}+\n{}+{rule}+\n{rows}+{rule}+", line(&self.names))
    }
}

/// At most so many letters, with dots where some are missing. Control characters stay out of the terminal.
fn shortened(text: &str, most: usize) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    match text.chars().count() > most {
        true => text.chars().take(most.saturating_sub(2)).map(plain).collect::<String>() + "..",
        false => text.chars().map(plain).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str], rows: &[&[&str]]) -> Table {
        Table::new(names, rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect())
    }

    #[test]
    fn tables_fit_the_width() {
        let table = table(&["name", "what"], &[&["Ada", "a very long text that does not fit"], &["Zoë", "x"]]);
        let text = table.text(30);
        assert!(text.lines().all(|line| line.chars().count() == 30), "{text}");
        assert!(text.contains("| Zoë  | x "), "{text}");
        assert!(text.contains(".. |"), "{text}");
    }

    #[test]
    fn files_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(&["a", "b"], &[&["1,5", "x"], &["", "two\nlines"], &["3", "y"]]);
        let file = folder.path().join("t.csv");
        table.write(&file).unwrap();
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(Table::read(&file, 10).unwrap(), (table.clone(), false));
        let (first, more) = Table::read(&file, 2).unwrap();
        assert_eq!((first.rows.as_slice(), more), (&table.rows[..2], true));
        assert_eq!(table.by(&["b".to_owned()])[&vec!["y".to_owned()]], [2]);
        assert!(Table::read(&folder.path().join("absent.csv"), 2).unwrap_err().to_string().contains("absent.csv"));
    }
}
