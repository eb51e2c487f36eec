//! A fetched file against what was released.
//!
//! ```text
//!  manifest            both servers signed it: digests of the sealed parts, columns, rows
//!  sealed parts        have these digests; with the recipient's key they open
//!  file                has the columns and as many rows; and what came out of the sealed parts, value for value
//! ```

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use arrow::array::{Array, RecordBatch};
use arrow::compute::cast;
use arrow::csv;
use veil_keys::RecipientKey;
use veil_owner::{FileFormat, OwnerError, TableReader};
use veil_recipient::{Opener, RecipientError, SealedReader, check_seals};
use veil_release::{Manifest, OwnerPublic, SignedManifest, VerifyingKey};

use super::Arguments;
use crate::progress::{RunProgress, is_interrupted};

type Fault = Box<dyn std::error::Error>;

/// Checks what there is to check; a line for everything that was found to be right.
pub(super) fn check(arguments: &Arguments, signed: &SignedManifest, owner: VerifyingKey) -> Result<Vec<String>, Fault> {
    let mut found = Vec::new();
    if let Some(file) = &arguments.file {
        let rows = shape(file, &signed.manifest)?;
        found.push(format!("{} has the columns of the release, and {rows} rows", file.display()));
    }
    let Some(sealed) = &arguments.sealed else {
        found.extend(arguments.file.as_deref().map(|file| {
            format!(
                "warning: whether the values of {} are those that were released, only its sealed parts tell; fetch with \
                 --keep-sealed, and give --sealed and --key",
                file.display()
            )
        }));
        return Ok(found);
    };
    let parts = || SealedReader::open(sealed).map_err(in_file(sealed));
    check_seals(parts()?, signed).map_err(in_file(sealed))?;
    found.push(format!("{} has all the parts that both servers signed, and no others", sealed.display()));
    let Some(key) = &arguments.key else {
        found.extend(arguments.file.as_deref().map(|file| {
            format!(
                "warning: the values of {} were not compared, which takes the recipient's key: give --key",
                file.display()
            )
        }));
        return Ok(found);
    };
    let owner = OwnerPublic { key_set: signed.manifest.key_set, key: owner };
    let mut opener = Opener::new(RecipientKey::load(key)?).with_owner(owner);
    let mut compared = arguments.file.as_deref().map(Compared::open).transpose()?;
    let progress = RunProgress::counting("Checking", false);
    let (mut rows, mut bytes) = (0, 0);
    for batch in parts()? {
        let batch = batch?;
        bytes += batch.get_array_memory_size() as u64;
        for clear in opener.open(&[batch]).map_err(in_file(sealed))? {
            if is_interrupted() {
                return Err(OwnerError::Cancelled.into());
            }
            rows += clear.num_rows() as u64;
            if let Some(compared) = &mut compared {
                compared.next(&clear).inspect_err(|_| progress.clear())?;
            }
        }
        progress.count(rows, bytes);
    }
    progress.clear();
    opener.finish().map_err(in_file(sealed))?;
    match (compared, &arguments.file) {
        (Some(compared), Some(file)) => {
            compared.end()?;
            found.push(format!("{} is what was released: {rows} rows, value for value", file.display()));
        }
        _ => found.push(format!("{} opens with this key: {rows} rows", sealed.display())),
    }
    Ok(found)
}

fn in_file(file: &Path) -> impl Fn(RecipientError) -> String + '_ {
    move |error| match error {
        RecipientError::NoSealedFile { .. } => error.to_string(),
        error => format!("{}: {error}", file.display()),
    }
}

/// The rows of a file that has the columns of a release and as many rows. The column that tells which rows are suppressed is not among a recipient's.
fn shape(file: &Path, manifest: &Manifest) -> Result<u64, Fault> {
    let differs = |what: String| Err(format!("{}: {what}: it is not what was released", file.display()).into());
    let mut reader = TableReader::open(file)?;
    let names: Vec<String> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
    let rows = reader.try_fold(0, |rows, batch| Ok::<u64, OwnerError>(rows + batch?.num_rows() as u64))?;
    // An empty CSV file has no columns.
    if rows == 0 && names.is_empty() && manifest.rows == manifest.suppressed.unwrap_or(0) {
        return Ok(0);
    }
    let (mut had, mut flag) = (names.iter().peekable(), false);
    for column in &manifest.columns {
        match had.next_if(|name| **name == column.name) {
            Some(_) => {}
            None if column.encrypted && column.kind == "boolean" && !flag => flag = true,
            None => return differs(format!("it has no column {} in its place", column.name)),
        }
    }
    if let Some(name) = had.next() {
        return differs(format!("column {name} is none of the release's"));
    }
    let (most, least) = match (flag, manifest.suppressed) {
        (false, _) => (manifest.rows, manifest.rows),
        (true, Some(suppressed)) => {
            (manifest.rows.saturating_sub(suppressed), manifest.rows.saturating_sub(suppressed))
        }
        (true, None) => (manifest.rows, 0),
    };
    match (least..=most).contains(&rows) {
        true => Ok(rows),
        false => differs(format!("it has {rows} rows, and the release has {most}")),
    }
}

/// A file that is read along with what was released.
struct Compared {
    path: PathBuf,
    rows: u64,
    from: From,
}

enum From {
    /// Byte for byte: texts have no types that could be compared.
    Csv(BufReader<File>),
    Typed(Box<TableReader>, Option<RecordBatch>),
}

impl Compared {
    fn open(path: &Path) -> Result<Self, Fault> {
        let from = match FileFormat::of_path(path)? {
            FileFormat::Csv => {
                let file = File::open(path).map_err(|source| OwnerError::Io { file: path.to_owned(), source })?;
                From::Csv(BufReader::with_capacity(1 << 20, file))
            }
            FileFormat::Parquet | FileFormat::Arrow => From::Typed(Box::new(TableReader::open(path)?), None),
        };
        Ok(Self { path: path.to_owned(), rows: 0, from })
    }

    fn differs<T>(&self, place: &str) -> Result<T, Fault> {
        Err(format!("{}, {place}: it is not what was released; the file was changed", self.path.display()).into())
    }

    /// Whether the next rows of the file are these.
    fn next(&mut self, released: &RecordBatch) -> Result<(), Fault> {
        if let From::Csv(file) = &mut self.from {
            let mut expected = Vec::new();
            csv::WriterBuilder::new().with_header(self.rows == 0).build(&mut expected).write(released)?;
            let mut found = Vec::with_capacity(expected.len());
            let io = |source| OwnerError::Io { file: self.path.clone(), source };
            file.by_ref().take(expected.len() as u64).read_to_end(&mut found).map_err(io)?;
            let same = expected.iter().zip(&found).take_while(|(expected, found)| expected == found).count();
            if same < expected.len() {
                let lines = expected.iter().take(same).filter(|byte| **byte == b'\n').count() as u64;
                let before = self.rows + u64::from(self.rows > 0);
                return self.differs(&format!("line {}", before + lines + 1));
            }
            self.rows += released.num_rows() as u64;
            return Ok(());
        }
        let mut done = 0;
        while done < released.num_rows() {
            let Some(rows) = self.rows_of_file(released.num_rows() - done)? else {
                return self.differs(&format!("row {}, which is missing", self.rows + 1));
            };
            let part = released.slice(done, rows.num_rows());
            for (column, (expected, found)) in part.columns().iter().zip(rows.columns()).enumerate() {
                let cast = cast(found, expected.data_type()).unwrap_or_else(|_| found.clone());
                if expected.as_ref() != cast.as_ref() {
                    let at = |row: &usize| expected.slice(*row, 1).as_ref() != cast.slice(*row, 1).as_ref();
                    let row = (0..expected.len()).find(at).unwrap_or(0) as u64;
                    let name = part.schema_ref().field(column).name().clone();
                    return self.differs(&format!("row {}, column {name}", self.rows + row + 1));
                }
            }
            done += rows.num_rows();
            self.rows += rows.num_rows() as u64;
        }
        Ok(())
    }

    /// The next rows of a file with types, at most so many.
    fn rows_of_file(&mut self, most: usize) -> Result<Option<RecordBatch>, Fault> {
        let From::Typed(reader, left) = &mut self.from else { return Ok(None) };
        let Some(batch) = left.take().map(Ok).or_else(|| reader.next()).transpose()? else { return Ok(None) };
        let count = most.min(batch.num_rows());
        *left = Some(batch.slice(count, batch.num_rows() - count)).filter(|rest| rest.num_rows() > 0);
        Ok(Some(batch.slice(0, count)))
    }

    /// Whether the file has no more than what was released.
    fn end(mut self) -> Result<(), Fault> {
        let more = match &mut self.from {
            From::Csv(file) => {
                let io = |source| OwnerError::Io { file: self.path.clone(), source };
                file.take(1).read_to_end(&mut Vec::new()).map_err(io)? > 0
            }
            From::Typed(..) => self.rows_of_file(1)?.is_some(),
        };
        if more { self.differs(&format!("after row {}", self.rows)) } else { Ok(()) }
    }
}
