//! Tables that travel with a file beside its rows: pools of encrypted zeros, encrypted dictionaries.
//!
//! They are too large for metadata that query engines copy into every plan, and two files of one table must
//! not differ in metadata. So they are a section of bytes that other readers skip:
//!
//! * in **Parquet**, right behind the leading `PAR1`, before the first row group (the format addresses
//!   column chunks by offset and leaves gaps to writers);
//! * in **Arrow IPC** files, base64 in the footer's custom metadata under `veil.side`, which is not part of
//!   the schema.
//!
//! ```text
//!  "VEILSIDE"  version (u8)  length of what follows (u64)  XXH3-64 of what follows (u64)
//!  then for each table: length (u32) and bytes of its name, length (u64) and bytes of an Arrow IPC stream
//! ```

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use arrow::ipc::CompressionType;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow::record_batch::RecordBatch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use xxhash_rust::xxh3::xxh3_64;

use crate::CellError;

const MAGIC: &[u8; 8] = b"VEILSIDE";
const VERSION: u8 = 1;
const PREFIX: usize = 8 + 1 + 8 + 8;
const PARQUET_MAGIC: &[u8; 4] = b"PAR1";

/// Larger sections are refused, so that a damaged length cannot exhaust memory.
const MAX_LENGTH: u64 = 1 << 30;

/// Named record batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideTables {
    tables: BTreeMap<String, RecordBatch>,
}

impl SideTables {
    /// Footer metadata of Arrow IPC files.
    pub const IPC_METADATA_KEY: &str = "veil.side";

    /// The pool of encrypted zeros.
    pub const ZEROS: &str = "zeros";

    /// The name of an encrypted dictionary's table.
    pub fn dictionary(name: &str) -> String {
        format!("dictionary.{name}")
    }

    /// Adds a table.
    pub fn insert(&mut self, name: impl Into<String>, table: RecordBatch) {
        self.tables.insert(name.into(), table);
    }

    /// A table by name.
    pub fn get(&self, name: &str) -> Option<&RecordBatch> {
        self.tables.get(name)
    }

    /// All tables by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RecordBatch)> {
        self.tables.iter().map(|(name, table)| (name.as_str(), table))
    }

    /// The section's bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CellError> {
        let mut content = Vec::new();
        for (name, table) in &self.tables {
            content.extend_from_slice(&(name.len() as u32).to_le_bytes());
            content.extend_from_slice(name.as_bytes());
            let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))?;
            let mut writer = StreamWriter::try_new_with_options(Vec::new(), &table.schema(), options)?;
            writer.write(table)?;
            let stream = writer.into_inner()?;
            content.extend_from_slice(&(stream.len() as u64).to_le_bytes());
            content.extend_from_slice(&stream);
        }
        if content.len() as u64 > MAX_LENGTH {
            let text = "zero pool and dictionaries exceed 1 GiB; use a smaller zero_pool, pad_to or max_length";
            return Err(CellError::Unsupported(text.to_owned()));
        }
        let mut bytes = Vec::with_capacity(PREFIX + content.len());
        bytes.write_all(MAGIC)?;
        bytes.push(VERSION);
        bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&xxh3_64(&content).to_le_bytes());
        bytes.extend_from_slice(&content);
        Ok(bytes)
    }

    /// Reads a section's bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CellError> {
        let (prefix, content) = bytes.split_first_chunk::<PREFIX>().ok_or_else(damaged)?;
        if content.len() as u64 != content_length(prefix)? {
            return Err(damaged());
        }
        Self::from_content(prefix, content)
    }

    /// Reads the section of a Parquet file; a file without one has no side tables.
    pub fn read_parquet(file: &mut (impl Read + Seek)) -> Result<Self, CellError> {
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut head = [0; 4 + PREFIX];
        if length < head.len() as u64 {
            return Ok(Self::default());
        }
        file.read_exact(&mut head)?;
        let (parquet, prefix) = head.split_at(4);
        let Some(prefix) = prefix.first_chunk::<PREFIX>().filter(|prefix| prefix.starts_with(MAGIC)) else {
            return Ok(Self::default());
        };
        let content = content_length(prefix)?;
        if parquet != PARQUET_MAGIC || content > length - head.len() as u64 {
            return Err(damaged());
        }
        let mut bytes = vec![0; content as usize];
        file.read_exact(&mut bytes)?;
        Self::from_content(prefix, &bytes)
    }

    /// How much of a Parquet file tells whether it has side tables.
    pub const PARQUET_HEAD: u64 = (PARQUET_MAGIC.len() + PREFIX) as u64;

    /// Where the section of a Parquet file lies, from the file's [head](Self::PARQUET_HEAD); `None` if it has none.
    pub fn parquet_section(head: &[u8]) -> Result<Option<Range<u64>>, CellError> {
        let start = PARQUET_MAGIC.len();
        let prefix = head.strip_prefix(PARQUET_MAGIC).and_then(|head| head.first_chunk::<PREFIX>());
        match prefix.filter(|prefix| prefix.starts_with(MAGIC)) {
            Some(prefix) => Ok(Some(start as u64..Self::PARQUET_HEAD + content_length(prefix)?)),
            None => Ok(None),
        }
    }

    /// The value of the IPC footer metadata.
    pub fn to_ipc_metadata(&self) -> Result<String, CellError> {
        Ok(STANDARD.encode(self.to_bytes()?))
    }

    /// Reads the value of the IPC footer metadata.
    pub fn from_ipc_metadata(text: &str) -> Result<Self, CellError> {
        Self::from_bytes(&STANDARD.decode(text).map_err(|_| damaged())?)
    }

    fn from_content(prefix: &[u8; PREFIX], mut content: &[u8]) -> Result<Self, CellError> {
        if xxh3_64(content).to_le_bytes() != prefix[PREFIX - 8..] {
            return Err(damaged());
        }
        let mut tables = BTreeMap::new();
        while !content.is_empty() {
            let (length, rest) = content.split_first_chunk::<4>().ok_or_else(damaged)?;
            let (name, rest) = split(rest, u32::from_le_bytes(*length).into())?;
            let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
            let (stream, rest) = split(rest, u64::from_le_bytes(*length))?;
            content = rest;
            let name = String::from_utf8(name.to_vec()).map_err(|_| damaged())?;
            let mut batches = StreamReader::try_new(Cursor::new(stream), None)?;
            let table = batches.next().ok_or_else(damaged)??;
            tables.insert(name, table);
        }
        Ok(Self { tables })
    }
}

fn content_length(prefix: &[u8; PREFIX]) -> Result<u64, CellError> {
    let (magic, rest) = prefix.split_at(MAGIC.len());
    let (version, rest) = rest.split_at(1);
    if magic != MAGIC {
        return Err(damaged());
    }
    match version {
        [VERSION] => {}
        [found, ..] if *found > VERSION => {
            return Err(CellError::FromTheFuture {
                what: "the section of side tables",
                found: *found,
                supported: VERSION,
            });
        }
        _ => return Err(damaged()),
    }
    let length = rest.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
    length.filter(|length| *length <= MAX_LENGTH).ok_or_else(damaged)
}

fn split(bytes: &[u8], at: u64) -> Result<(&[u8], &[u8]), CellError> {
    usize::try_from(at).ok().and_then(|at| bytes.split_at_checked(at)).ok_or_else(damaged)
}

fn damaged() -> CellError {
    CellError::Malformed("the file's side tables are damaged".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryArray, RecordBatch};

    use super::*;

    fn tables() -> SideTables {
        let cells = Arc::new(BinaryArray::from_vec(vec![b"one", b"two", b"three"]));
        let mut tables = SideTables::default();
        tables.insert(SideTables::ZEROS, RecordBatch::try_from_iter([("cell", cells.clone() as _)]).unwrap());
        tables.insert(SideTables::dictionary("names"), RecordBatch::try_from_iter([("cell", cells as _)]).unwrap());
        tables
    }

    #[test]
    fn bytes_and_metadata_round_trip() {
        assert_eq!(SideTables::from_bytes(&tables().to_bytes().unwrap()).unwrap(), tables());
        assert_eq!(SideTables::from_ipc_metadata(&tables().to_ipc_metadata().unwrap()).unwrap(), tables());
    }

    #[test]
    fn a_plain_file_has_none() {
        for bytes in [&b""[..], b"PAR1", b"PAR1 and then some other bytes that are long enough"] {
            assert_eq!(SideTables::read_parquet(&mut Cursor::new(bytes)).unwrap(), SideTables::default());
        }
    }

    #[test]
    fn every_damage_is_an_error() {
        let bytes = tables().to_bytes().unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x21;
            assert!(SideTables::from_bytes(&damaged).is_err(), "byte {at}");
            assert!(SideTables::from_bytes(&bytes[..at]).is_err(), "{at} bytes");
        }
    }
}
