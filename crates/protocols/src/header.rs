//! The clear line above every batch: which round it belongs to, and a checksum.
//!
//! ```text
//!  "VEIL"  wire version (u8)  length of name (u8)  name of the protocol
//!  protocol version (u16)  session (16)  round (u32)  batch (u32)  key id (8)  rows (u32)  checksum (u64)
//! ```
//! Little-endian. The checksum is XXH3-64 over all before it and over the rows; it finds damage. Forgery is kept out by
//! mutual TLS.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, UInt32Type};
use veil_cells::KeyId;
use xxhash_rust::xxh3::Xxh3;

use crate::ProtocolError;

/// The layout of headers and batches.
pub const WIRE_VERSION: u8 = 1;

const MAGIC: &[u8; 4] = b"VEIL";

/// Which batch this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name of the protocol.
    pub protocol: String,
    /// Its version.
    pub version: u16,
    /// The run that it belongs to: drawn at random by P1.
    pub session: [u8; 16],
    /// The round within the session.
    pub round: u32,
    /// The batch within the round.
    pub batch: u32,
    /// The key set.
    pub key_id: KeyId,
}

impl Header {
    /// Its bytes, with the checksum of the batch.
    pub fn seal(&self, batch: &RecordBatch) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.protocol.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[WIRE_VERSION, self.protocol.len().min(255) as u8]);
        bytes.extend_from_slice(&self.protocol.as_bytes()[..self.protocol.len().min(255)]);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.session);
        bytes.extend_from_slice(&self.round.to_le_bytes());
        bytes.extend_from_slice(&self.batch.to_le_bytes());
        bytes.extend_from_slice(&self.key_id.0);
        bytes.extend_from_slice(&(batch.num_rows() as u32).to_le_bytes());
        let checksum = checksum(&bytes, batch);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header and checks that it goes with the batch.
    pub fn open(bytes: &[u8], batch: &RecordBatch) -> Result<Self, ProtocolError> {
        let damaged = |why: &str| ProtocolError::Malformed(format!("{why}; the message was damaged on its way"));
        let short = || damaged("its header is too short");
        let (content, found) = bytes.split_last_chunk::<8>().ok_or_else(short)?;
        let (magic, rest) = content.split_first_chunk::<4>().ok_or_else(short)?;
        let ([wire, length], rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
        if magic != MAGIC {
            return Err(ProtocolError::Malformed("it does not begin as a message of veil".to_owned()));
        }
        if *wire != WIRE_VERSION {
            return Err(ProtocolError::Mismatch {
                what: "the wire version",
                expected: WIRE_VERSION.to_string(),
                found: wire.to_string(),
                advice: "run the same version of veil on both sides",
            });
        }
        let (name, rest) = rest.split_at_checked((*length).into()).ok_or_else(short)?;
        let (version, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (session, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (round, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (number, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (key_id, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let rows = <[u8; 4]>::try_from(rest).map_err(|_| short())?;
        if checksum(content, batch) != u64::from_le_bytes(*found)
            || u32::from_le_bytes(rows) as usize != batch.num_rows()
        {
            return Err(damaged("its checksum does not match"));
        }
        Ok(Self {
            protocol: String::from_utf8(name.to_vec()).map_err(|_| damaged("its name is not text"))?,
            version: u16::from_le_bytes(*version),
            session: *session,
            round: u32::from_le_bytes(*round),
            batch: u32::from_le_bytes(*number),
            key_id: KeyId(*key_id),
        })
    }
}

/// Over the header and every value with its length. Columns of a type that no message has count as their type's name.
fn checksum(header: &[u8], batch: &RecordBatch) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(header);
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        hash.update(field.name().as_bytes());
        match column.data_type() {
            DataType::LargeBinary => {
                for value in column.as_binary::<i64>().iter() {
                    hash.update(&value.map_or(u64::MAX, |value| value.len() as u64).to_le_bytes());
                    hash.update(value.unwrap_or_default());
                }
            }
            DataType::UInt32 => {
                for value in column.as_primitive::<UInt32Type>().iter() {
                    hash.update(&value.map_or(u64::MAX, u64::from).to_le_bytes());
                }
            }
            other => hash.update(other.to_string().as_bytes()),
        }
    }
    hash.digest()
}
