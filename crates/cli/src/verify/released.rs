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
use arrow::compute::{CastOptions, cast_with_options};
use arrow::csv;
use arrow::datatypes::{DataType, Schema};
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
        found.push(format!("{} {}", file.display(), shape(file, &signed.manifest, arguments.key.is_some())?));
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
    let received = opener.finish().map_err(in_file(sealed))?;
    match (compared, &arguments.file) {
        (Some(compared), Some(file)) => {
            compared.end(&received.schema)?;
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

/// The name of the flag of suppressed rows, which is not among a recipient's columns. A manifest does not say which column that is.
const FLAG: &str = "suppressed";

/// That a file has the columns of a release and as many rows, as far as its manifest tells. Where the sealed parts are `opened` later, they
/// tell which column was the flag, whatever its name.
fn shape(file: &Path, manifest: &Manifest, opened: bool) -> Result<String, Fault> {
    let right = |rows: u64| Ok(format!("has the columns of the release, and {rows} rows"));
    let differs = |what: String| Err(format!("{}: {what}: it is not what was released", file.display()).into());
    let mut reader = TableReader::open(file)?;
    let names: Vec<String> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
    let rows = reader.try_fold(0, |rows, batch| Ok::<u64, OwnerError>(rows + batch?.num_rows() as u64))?;
    // An empty CSV file has no columns.
    if rows == 0 && names.is_empty() && manifest.rows == manifest.suppressed.unwrap_or(0) {
        return right(0);
    }
    let (mut had, mut flag) = (names.iter().peekable(), false);
    for column in &manifest.columns {
        match had.next_if(|name| **name == column.name) {
            Some(_) => {}
            None if column.encrypted && column.kind == "boolean" && (opened || column.name == FLAG) && !flag => {
                flag = true
            }
            None if column.encrypted && column.kind == "boolean" && !flag && !opened => {
                return differs(format!(
                    "it has no column {} in its place, and whether that is the flag of suppressed rows only the sealed parts tell \
                     (--sealed and --key)",
                    column.name
                ));
            }
            None => return differs(format!("it has no column {} in its place", column.name)),
        }
    }
    if let Some(name) = had.next() {
        return differs(format!("column {name} is none of the release's"));
    }
    let sent = manifest.rows;
    match (flag, manifest.suppressed) {
        (true, None) if rows <= sent && opened => right(rows),
        (true, None) if rows <= sent => Ok(format!(
            "has the columns of the release, and {rows} rows of the {sent} that were sent; how many of these are suppressed the servers \
             do not know, so its manifest does not tell whether rows are missing"
        )),
        (true, Some(suppressed)) if rows == sent.saturating_sub(suppressed) => right(rows),
        (false, _) if rows == sent => right(rows),
        (true, suppressed) => {
            let most = sent.saturating_sub(suppressed.unwrap_or(0));
            differs(format!("it has {rows} rows, and the release has {most}"))
        }
        (false, _) => differs(format!("it has {rows} rows, and the release has {sent}")),
    }
}

/// The type whose values an array has, whatever their layout: only between these can values be compared after a cast.
fn layout(of: &DataType) -> &DataType {
    match of {
        DataType::Dictionary(_, values) => layout(values),
        DataType::Utf8 | DataType::Utf8View => &DataType::LargeUtf8,
        DataType::Binary | DataType::BinaryView => &DataType::LargeBinary,
        other => other,
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
                let name = part.schema_ref().field(column).name();
                let layout = layout(expected.data_type());
                if self::layout(found.data_type()) != layout {
                    let (found, expected) = (found.data_type(), expected.data_type());
                    return self.differs(&format!("column {name}, of type {found} and not {expected}"));
                }
                let exact = CastOptions { safe: false, ..CastOptions::default() };
                let cast = |array| cast_with_options(array, layout, &exact);
                let (expected, found) = (cast(expected)?, cast(found)?);
                if expected.as_ref() != found.as_ref() {
                    let at = |row: &usize| expected.slice(*row, 1).as_ref() != found.slice(*row, 1).as_ref();
                    let row = (0..expected.len()).find(at).unwrap_or(0) as u64;
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

    /// Whether the file has the columns, and no more than what was released.
    fn end(mut self, released: &Schema) -> Result<(), Fault> {
        if let From::Typed(reader, _) = &self.from {
            let names = |schema: &Schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
            let (released, found) = (names(released), names(reader.schema()));
            if let Some(name) = released.iter().find(|name| !found.contains(name)) {
                return self.differs(&format!("column {name}, which is missing"));
            }
            if released != found {
                return self.differs("the columns");
            }
        }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use veil_cells::KeyId;
    use veil_release::{Digest, MANIFEST_VERSION, ManifestColumn, NoiseBy, ReleaseId};

    use super::*;

    /// Of ten rows with these columns, all of them truth values but the first.
    fn manifest(names: &[&str], suppressed: Option<u64>) -> Manifest {
        // The base point of the curve is as good a key as any.
        let mut owner = [0x66; 32];
        owner[0] = 0x58;
        let column = |(at, name): (usize, &&str)| ManifestColumn {
            name: (*name).to_owned(),
            kind: if at == 0 { "integer" } else { "boolean" }.to_owned(),
            encrypted: true,
            epsilon: 0,
            noise: NoiseBy::Nobody,
        };
        Manifest {
            version: MANIFEST_VERSION,
            release: ReleaseId([9; 16]),
            key_set: KeyId([7; 8]),
            owner: VerifyingKey::from_bytes(&owner).unwrap(),
            recipient: "alice".to_owned(),
            query: "SELECT * FROM anon".to_owned(),
            created: "2026-11-18T01:02:03Z".to_owned(),
            software: BTreeMap::new(),
            protocols: BTreeMap::new(),
            columns: names.iter().enumerate().map(column).collect(),
            rows: 10,
            parcels: 1,
            classes: None,
            suppressed,
            spent: BTreeMap::new(),
            leakage: Vec::new(),
            header: Digest::of(b"header"),
            digests: BTreeMap::new(),
        }
    }

    #[test]
    fn only_the_flag_of_suppressed_rows_may_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, header: &str, rows: usize| {
            let file = folder.path().join(name);
            std::fs::write(&file, format!("{header}\n{}", "4,true\n".repeat(rows))).unwrap();
            file
        };
        let (all, less) = (file("all.csv", "age,smoker", 10), file("less.csv", "age,smoker", 8));
        let told = |file: &Path, names: &[&str], suppressed, opened| {
            shape(file, &manifest(names, suppressed), opened).unwrap_or_else(|refused| refused.to_string())
        };
        let flagged = ["age", "smoker", "suppressed"];
        assert_eq!(told(&all, &flagged[..2], None, false), "has the columns of the release, and 10 rows");
        assert_eq!(told(&less, &flagged, Some(2), false), "has the columns of the release, and 8 rows");
        assert!(told(&all, &flagged, Some(2), false).contains("it has 10 rows, and the release has 8"));
        assert!(told(&less, &flagged[..2], None, false).contains("it has 8 rows, and the release has 10"));
        let unknown = told(&less, &flagged, None, false);
        assert!(unknown.contains("8 rows of the 10 that were sent; how many of these are suppressed"), "{unknown}");
        // A truth value that was released and is not in the file; the sealed parts would tell whether it is a flag.
        for suppressed in [None, Some(2)] {
            let refused = told(&less, &["age", "smoker", "insured"], suppressed, false);
            assert!(refused.contains("it has no column insured in its place"), "{refused}");
            assert!(told(&less, &["age", "smoker", "insured"], suppressed, true).ends_with("8 rows"));
            let refused = told(&less, &["age", "smoker", "insured", "suppressed"], suppressed, true);
            assert!(refused.contains("it has no column suppressed in its place"), "{refused}");
        }
    }
}
