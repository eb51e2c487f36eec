//! Runs tests/slt: the behaviour of every function, in SQL.
//!
//! Every file has a fresh session with the tables of `tables`. A plain statement shows encrypted cells as what they are; after
//! the word `REVEAL` it shows what the owner decrypts. `statement error` is followed by a part of the sentence, as a regular
//! expression. With `VEIL_COMPLETE=1` in the environment the expected results in the files are written anew, for a review.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};

use super::tables::add_tables;
use super::world::{World, sentence};

#[tokio::test(flavor = "multi_thread")]
async fn every_file_of_statements_gives_its_results() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "slt"));
    files.sort();
    assert!(!files.is_empty());
    let complete = std::env::var_os("VEIL_COMPLETE").is_some();
    let mut failures = Vec::new();
    for file in files {
        let world = World::new(7).await;
        add_tables(&world).await;
        let mut world = Some(world);
        let mut runner = Runner::new(|| {
            let world = world.take().expect("one connection a file");
            async move { Ok(Database(world)) }
        });
        runner.with_column_validator(sqllogictest::strict_column_validator);
        let outcome = match complete {
            true => {
                let validator = sqllogictest::default_validator;
                let normalizer = sqllogictest::default_normalizer;
                let columns = sqllogictest::strict_column_validator;
                let updated = runner.update_test_file(&file, " ", validator, normalizer, columns).await;
                updated.map_err(|error| error.to_string())
            }
            false => runner.run_file_async(&file).await.map_err(|error| error.display(false).to_string()),
        };
        failures.extend(outcome.err().map(|error| format!("{}: {error}", file.display())));
    }
    assert!(failures.is_empty(), "{} files fail\n\n{}", failures.len(), failures.join("\n\n"));
}

/// A world as sqllogictest sees it.
struct Database(World);

/// The sentence of an error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Sentence(String);

#[async_trait]
impl AsyncDB for Database {
    type Error = Sentence;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Sentence> {
        let Self(world) = self;
        let sql = sql.replace("FOLDER", &world.folder().display().to_string());
        let batch = match sql.strip_prefix("REVEAL ") {
            Some(sql) => world.reveal(sql).await,
            None => world.run(&sql).await.and_then(|batch| Ok(veilfusion::veiled(&batch)?)),
        };
        let batch = batch.map_err(|error| Sentence(self.without_paths(&sentence(&error))))?;
        if batch.num_columns() == 0 {
            return Ok(DBOutput::StatementComplete(batch.num_rows() as u64));
        }
        let types = batch.columns().iter().map(|column| column_type(column.data_type())).collect();
        let rows = rows(&batch).into_iter().map(|row| row.iter().map(|cell| self.without_paths(cell)).collect());
        Ok(DBOutput::Rows { types, rows: rows.collect() })
    }

    async fn shutdown(&mut self) {}
}

impl Database {
    /// Where the files are is nobody's expectation. Plans leave out the first slash.
    fn without_paths(&self, text: &str) -> String {
        let folder = self.0.folder().display().to_string();
        text.replace(&folder, "FOLDER").replace(folder.trim_start_matches('/'), "FOLDER")
    }
}

fn column_type(data_type: &DataType) -> DefaultColumnType {
    match data_type {
        kind if kind.is_integer() => DefaultColumnType::Integer,
        kind if kind.is_floating() || kind.is_decimal() => DefaultColumnType::FloatingPoint,
        kind if kind.is_string() => DefaultColumnType::Text,
        _ => DefaultColumnType::Any,
    }
}

fn rows(batch: &RecordBatch) -> Vec<Vec<String>> {
    let rows = (0..batch.num_rows())
        .map(|row| batch.columns().iter().map(|column| cell(column, row)).collect::<Vec<String>>());
    rows.flat_map(lines).collect()
}

/// A plan is as many rows as it has lines, numbered, with its indentation in characters that count.
fn lines(row: Vec<String>) -> Vec<Vec<String>> {
    let [kind, plan] = row.as_slice() else { return vec![row] };
    if !plan.contains('\n') && !kind.ends_with("_plan") {
        return vec![row];
    }
    let numbered = plan.lines().enumerate().map(|(at, line)| {
        let text = line.trim_start();
        vec![format!("{:02}){}{text}", at + 1, "-".repeat(line.len() - text.len()))]
    });
    std::iter::once(vec![kind.clone()]).chain(numbered).collect()
}

fn cell(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "NULL".to_owned();
    }
    let options = FormatOptions::default();
    let text = ArrayFormatter::try_new(column.as_ref(), &options).unwrap().value(row).to_string();
    if text.is_empty() { "(empty)".to_owned() } else { text }
}
