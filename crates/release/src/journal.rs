//! A file of lines that only grows. A line is written first, and synced later, so that many can share the wait for the disk.
//!
//! ```text
//!  {"version":1,"sum":"<32 hexadecimal digits>","entry":{..}}
//! ```
//! The sum is the first half of SHA-256 over the sum before (zeros at first) and the entry's text, so that a line cannot be
//! changed, moved or taken out from between others. A last line without its end was never answered for, and is cut off.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    file: Arc<File>,
    path: PathBuf,
    sum: Sum,
    /// Bytes that were written.
    length: u64,
    /// Bytes of these that are known to be on the disk.
    durable: u64,
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
        let (file, path_of) = (Arc::new(file), path.to_owned());
        let mut journal = Self { file, path: path_of, sum: Sum::default(), length: 0, durable: 0, broken: false };
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
        journal.file.as_ref().seek(SeekFrom::Start(journal.length)).map_err(io)?;
        // Lines that a P2 has written and not synced before it ended count, so they must be on the disk before anything follows from them.
        journal.file.sync_data().map_err(io)?;
        journal.durable = journal.length;
        Ok(journal)
    }

    /// Adds an entry, which is not on the disk yet.
    pub(crate) fn write(&mut self, entry: &str) -> Result<(), LedgerError> {
        self.is_sound()?;
        let sum = chained(&self.sum, entry);
        let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("{BEFORE_VERSION}{VERSION}{BEFORE_SUM}{hex}{BEFORE_ENTRY}{entry}}}\n");
        if let Err(source) = self.file.as_ref().write_all(line.as_bytes()) {
            return Err(self.failed(source));
        }
        self.sum = sum;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Bytes that were written so far.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Whether so many bytes are on the disk.
    pub(crate) fn is_durable(&self, length: u64) -> Result<bool, LedgerError> {
        self.is_sound().map(|()| self.durable >= length)
    }

    /// The file, to be synced while others write.
    pub(crate) fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Takes in what a sync of the file has come to, which began when so many bytes had been written.
    pub(crate) fn synced(&mut self, length: u64, outcome: std::io::Result<()>) -> Result<(), LedgerError> {
        match outcome {
            Ok(()) => {
                self.durable = self.durable.max(length);
                Ok(())
            }
            Err(source) => Err(self.failed(source)),
        }
    }

    fn is_sound(&self) -> Result<(), LedgerError> {
        if self.broken { Err(LedgerError::Broken(self.path.clone())) } else { Ok(()) }
    }

    /// After a failed write or sync nobody knows what the disk has, until it is read again.
    fn failed(&mut self, source: std::io::Error) -> LedgerError {
        self.broken = true;
        let _ = self.file.set_len(self.durable);
        LedgerError::Io { path: self.path.clone(), source }
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
            journal.write(entry).unwrap();
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
                Journal::open(&path, |_| Ok(())).unwrap().write("{}").unwrap();
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
