//! The clear line above every batch: which round it belongs to, and a checksum.
//!
//! ```text
//!  "VEIL"  wire version (u8)  length of name (u8)  name of the protocol
//!  protocol version (u16)  session (16)  round (u32)  batch (u32)  key id (8)
//!  length of receipt (u16)  receipt  rows (u32)  checksum (u64)
//! ```
//! Little-endian. The receipt of a census is in questions only; an answer has an empty one. The checksum is XXH3-64 over all before it and over the rows; it finds damage. Forgery is kept out by
//! mutual TLS.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, UInt32Type};
use veil_cells::KeyId;
use xxhash_rust::xxh3::Xxh3;

use crate::ProtocolError;

/// The layout of headers and batches.
pub const WIRE_VERSION: u8 = 2;

/// Bytes of what is of one length between the name and the receipt.
const PLACE: usize = 2 + 16 + 4 + 4 + 8;

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
    /// The receipt of the census under which it is asked, or nothing.
    pub receipt: Arc<[u8]>,
}

impl Header {
    /// The same above the answer.
    #[must_use]
    pub fn answered(&self) -> Self {
        Self { receipt: Arc::default(), ..self.clone() }
    }

    /// The bytes of a header that say which batch it is: those of a question and of its answer are the same.
    pub fn place(bytes: &[u8]) -> Option<&[u8]> {
        let fixed = MAGIC.len() + 2;
        let name = usize::from(*bytes.get(fixed - 1)?);
        bytes.get(..fixed + name + PLACE)
    }

    /// Its bytes, with the checksum of the batch.
    pub fn seal(&self, batch: &RecordBatch) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64 + self.protocol.len() + self.receipt.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[WIRE_VERSION, self.protocol.len().min(255) as u8]);
        bytes.extend_from_slice(&self.protocol.as_bytes()[..self.protocol.len().min(255)]);
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.session);
        bytes.extend_from_slice(&self.round.to_le_bytes());
        bytes.extend_from_slice(&self.batch.to_le_bytes());
        bytes.extend_from_slice(&self.key_id.0);
        let receipt = self.receipt.get(..self.receipt.len().min(u16::MAX.into())).unwrap_or_default();
        bytes.extend_from_slice(&(receipt.len() as u16).to_le_bytes());
        bytes.extend_from_slice(receipt);
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
        let (length, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (receipt, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into()).ok_or_else(short)?;
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
            receipt: receipt.into(),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::UInt32Array;

    use super::*;

    fn header(receipt: &[u8]) -> Header {
        Header {
            protocol: "open".to_owned(),
            version: 258,
            session: [7; 16],
            round: 3,
            batch: 4,
            key_id: KeyId([9; 8]),
            receipt: receipt.into(),
        }
    }

    #[test]
    fn receipts_travel_with_questions_and_not_with_answers() {
        let batch = RecordBatch::try_from_iter([("a", Arc::new(UInt32Array::from(vec![1, 2])) as _)]).unwrap();
        for receipt in [vec![], vec![1], vec![5; 300], vec![6; 65_535]] {
            let (asked, bytes) = (header(&receipt), header(&receipt).seal(&batch));
            assert_eq!(Header::open(&bytes, &batch).unwrap(), asked);
            assert_eq!(asked.answered(), header(&[]));
            let answer = asked.answered().seal(&batch);
            assert_eq!(answer.len(), bytes.len() - receipt.len());
            assert_eq!(Header::place(&bytes).unwrap(), Header::place(&answer).unwrap());
            assert_eq!(Header::place(&bytes).unwrap().len(), 4 + 2 + 4 + 2 + 16 + 4 + 4 + 8);
            for length in (0..bytes.len()).step_by(bytes.len().div_ceil(64)) {
                assert!(Header::open(&bytes[..length], &batch).is_err(), "{length} bytes");
            }
            let mut changed = bytes.clone();
            changed[4 + 2 + 4 + 2 + 16 + 4 + 4 + 8] ^= 1;
            assert!(Header::open(&changed, &batch).is_err(), "another length of the receipt");
        }
        assert_eq!(Header::place(&[]), None);
        let mut old = header(&[]).seal(&batch);
        old[4] = 1;
        let refused = Header::open(&old, &batch).unwrap_err().to_string();
        assert!(refused.contains("the wire version does not match: expected 2, got 1"), "{refused}");
    }
}
