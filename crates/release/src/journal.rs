//! A file of lines that only grows: what `append` has returned for is on the disk.
//!
//! ```text
//!  {"version":1,"sum":"<32 hexadecimal digits>","entry":{..}}
//! ```
//! The sum is the first half of SHA-256 over the sum before (zeros at first) and the entry's text, so that a line cannot be
//! changed, moved or taken out from between others. A last line without its end was never answered for, and is cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::LedgerError;
use crate::text_form::unhex;

const VERSION: u8 = 1;
const BEFORE_VERSION: &str = "{\"version\":";
const BEFORE_SUM: &str = ",\"sum\":\"";
const BEFORE_ENTRY: &str = "\",\"entry\":";

type Sum = [u8; 16];

/// The open file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    sum: Sum,
    length: u64,
    /// A write failed: what the disk has is uncertain until the file is read again.
    broken: bool,
}

impl Journal {
    /// Opens the file or makes it, and hands every entry's text to `replay`.
    pub(crate) fn open(path: &Path, mut replay: impl FnMut(&str) -> Result<(), String>) -> Result<Self, LedgerError> {
        let io = |source| LedgerError::Io { path: path.to_owned(), source };
        let is_new = !path.exists();
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        if is_new {
            file.sync_all().map_err(io)?;
            sync_folder(path)?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let mut journal = Self { file, path: path.to_owned(), sum: Sum::default(), length: 0, broken: false };
        for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let Some(line) = line.strip_suffix(b"\n") else { break };
            let damaged = |why: String| LedgerError::Damaged { path: path.to_owned(), line: at + 1, why };
            let (sum, entry) = journal.check(line).map_err(damaged)?;
            replay(entry).map_err(damaged)?;
            journal.sum = sum;
            journal.length += line.len() as u64 + 1;
        }
        if journal.length < bytes.len() as u64 {
            journal.file.set_len(journal.length).and_then(|()| journal.file.sync_all()).map_err(io)?;
        }
        journal.file.seek(SeekFrom::Start(journal.length)).map_err(io)?;
        Ok(journal)
    }

    /// Adds an entry; it is on the disk when this returns.
    pub(crate) fn append(&mut self, entry: &str) -> Result<(), LedgerError> {
        if self.broken {
            return Err(LedgerError::Broken(self.path.clone()));
        }
        let sum = chained(&self.sum, entry);
        let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("{BEFORE_VERSION}{VERSION}{BEFORE_SUM}{hex}{BEFORE_ENTRY}{entry}}}\n");
        if let Err(source) = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data()) {
            // After a failed write or sync nobody knows what the disk has, until it is read again.
            self.broken = true;
            let _ = self.file.set_len(self.length);
            return Err(LedgerError::Io { path: self.path.clone(), source });
        }
        self.sum = sum;
        self.length += line.len() as u64;
        Ok(())
    }

    fn check<'a>(&self, line: &'a [u8]) -> Result<(Sum, &'a str), String> {
        let shape = || "it is not an entry".to_owned();
        let line = std::str::from_utf8(line).map_err(|_| shape())?;
        let (version, rest) =
            line.strip_prefix(BEFORE_VERSION).and_then(|rest| rest.split_once(BEFORE_SUM)).ok_or_else(shape)?;
        match version.parse::<u8>() {
            Ok(VERSION) => {}
            Ok(found) => return Err(format!("it has version {found}, this program reads {VERSION}; use a newer veil")),
            Err(_) => return Err(shape()),
        }
        let (sum, rest) = rest.split_once(BEFORE_ENTRY).ok_or_else(shape)?;
        let entry = rest.strip_suffix('}').ok_or_else(shape)?;
        match unhex::<16>(sum) {
            Some(sum) if sum == chained(&self.sum, entry) => Ok((sum, entry)),
            _ => Err("its checksum does not match".to_owned()),
        }
    }
}

fn chained(before: &Sum, entry: &str) -> Sum {
    let digest = Sha256::new().chain_update(before).chain_update(entry).finalize();
    let mut sum = Sum::default();
    sum.iter_mut().zip(digest).for_each(|(byte, of)| *byte = of);
    sum
}

/// Makes a new file's name durable.
fn sync_folder(path: &Path) -> Result<(), LedgerError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    #[cfg(unix)]
    fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| LedgerError::Io { path: folder.to_owned(), source })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Result<Vec<String>, LedgerError> {
        let mut entries = Vec::new();
        Journal::open(path, |entry| {
            entries.push(entry.to_owned());
            Ok(())
        })?;
        Ok(entries)
    }

    /// Three entries, and where each line ends.
    fn three(path: &Path) -> Vec<usize> {
        let mut journal = Journal::open(path, |_| Ok(())).unwrap();
        let add = |entry| {
            journal.append(entry).unwrap();
            fs::read(path).unwrap().len()
        };
        ["{\"a\":1}", "{\"b\":\"x}\"}", "{\"c\":3}"].map(add).to_vec()
    }

    #[test]
    fn a_torn_last_line_is_cut_off_at_every_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let ends = three(&path);
        let whole = fs::read(&path).unwrap();
        assert_eq!(read(&path).unwrap(), ["{\"a\":1}", "{\"b\":\"x}\"}", "{\"c\":3}"]);
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let expected = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(read(&path).unwrap().len(), expected, "{length} bytes");
            let kept = fs::read(&path).unwrap();
            assert_eq!(kept.len(), expected.checked_sub(1).map_or(0, |last| ends[last]), "{length} bytes");
            // What follows a cut is read as well.
            if length % 16 == 0 {
                Journal::open(&path, |_| Ok(())).unwrap().append("{}").unwrap();
                assert_eq!(read(&path).unwrap().len(), expected + 1, "{length} bytes");
            }
        }
    }

    #[test]
    fn other_damage_is_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("j");
        let ends = three(&path);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() - 1 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let error = read(&path).unwrap_err().to_string();
            let line = ends.iter().filter(|end| **end <= at).count() + 1;
            assert!(error.contains(&format!("line {line}")), "byte {at}: {error}");
            assert_eq!(fs::read(&path).unwrap(), damaged, "a damaged ledger must stay as it is");
        }
        // Lines that were taken out or moved.
        let (first, second, third) = (&whole[..ends[0]], &whole[ends[0]..ends[1]], &whole[ends[1]..]);
        for lines in [[second, third].concat(), [first, third].concat(), [second, first, third].concat()] {
            fs::write(&path, lines).unwrap();
            assert!(read(&path).is_err());
        }
        let future = String::from_utf8(whole).unwrap().replacen("\"version\":1", "\"version\":2", 1);
        fs::write(&path, future).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("use a newer veil"));
    }
}
