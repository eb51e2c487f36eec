//! What a recipient gets: a header, parcels of rows in two parts, and a manifest.
//!
//! ```text
//!  header      P2: JSON, names, types and notes of all columns
//!  parcel n    P2: masked messages of the encrypted columns     P1: the seed of the masks, and all that P1 sees
//!
//!  P2's part   version (1)  rows (u32)  columns (u16), for each: modulus (u8)  words (u32); then all words, 6 bytes each
//!  P1's part   version (1)  seed (32)  an Arrow stream of one batch
//! ```
//! Numbers are little-endian. Words stand column by column and, in a column, lane by lane; in a column from cells, visible NULLs have none. P1's batch has a
//! column `clear.I` for every clear column, and `present.I` and `divisor.I` where column I of the header has visible NULLs or quotients. Both parts are
//! sealed on their own, with release, party and number as associated data: none can be taken for another.

use std::io::Cursor;

use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use veil_cells::{CellType, caught};
use veil_protocols::release::masks::Modulus;
use zeroize::Zeroizing;

use crate::{Party, ReleaseError, ReleaseId};

/// What every seal of a release is for.
pub const SEAL_INFO: &[u8] = b"veil release v1";

/// The number of the header.
pub const HEADER_NUMBER: u32 = 0;

/// Rows of a parcel, but for the last.
pub const PARCEL_ROWS: usize = 8192;

const VERSION: u8 = 1;
/// Bytes of a masked message.
pub const WORD: usize = 6;

/// What a seal is bound to.
pub fn associated(release: ReleaseId, party: Party, number: u32) -> Vec<u8> {
    let party = match party {
        Party::P1 => 1,
        Party::P2 => 2,
    };
    [&release.0[..], &[party], &number.to_le_bytes()].concat()
}

/// What the parcels hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The version of this object.
    pub version: u8,
    /// The release.
    pub release: ReleaseId,
    /// Whom it is for.
    pub recipient: String,
    /// The columns, in their order.
    pub columns: Vec<HeaderColumn>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderColumn {
    /// Its name.
    pub name: String,
    /// Its type and the owner's note about it; nothing if P1 sees it.
    pub encrypted: Option<(CellType, serde_json::Value)>,
}

impl Header {
    /// Of a release.
    pub fn new(release: ReleaseId, recipient: String, columns: Vec<HeaderColumn>) -> Self {
        Self { version: VERSION, release, recipient, columns }
    }

    /// Its bytes, before they are sealed.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ReleaseError> {
        serde_json::to_vec(self).map_err(|error| wrong("the header of a release", &error))
    }

    /// Reads what was sealed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReleaseError> {
        let header: Self = serde_json::from_slice(bytes).map_err(|error| wrong("the header of a release", &error))?;
        supported("the header of a release", header.version)?;
        Ok(header)
    }
}

fn wrong(what: &'static str, why: &dyn ToString) -> ReleaseError {
    ReleaseError::Malformed { what, why: why.to_string() }
}

fn supported(what: &'static str, found: u8) -> Result<(), ReleaseError> {
    match found {
        VERSION => Ok(()),
        found => Err(ReleaseError::FromTheFuture { what, found, supported: VERSION }),
    }
}

/// P2's part of a parcel, as it is written.
pub struct MaskedValues {
    /// Rows.
    pub rows: u32,
    /// For every encrypted column what its masks wrap at, and its words.
    pub columns: Vec<(Modulus, Zeroizing<Vec<u64>>)>,
}

impl MaskedValues {
    /// Its bytes, before they are sealed.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let words: usize = self.columns.iter().map(|(_, words)| words.len()).sum();
        let mut bytes = Zeroizing::new(Vec::with_capacity(7 + 5 * self.columns.len() + WORD * words));
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.rows.to_le_bytes());
        bytes.extend_from_slice(&(self.columns.len() as u16).to_le_bytes());
        for (modulus, words) in &self.columns {
            bytes.push(modulus.to_byte());
            bytes.extend_from_slice(&(words.len() as u32).to_le_bytes());
        }
        for word in self.columns.iter().flat_map(|(_, words)| words.iter()) {
            let [a, b, c, d, e, f, ..] = word.to_le_bytes();
            bytes.extend_from_slice(&[a, b, c, d, e, f]);
        }
        bytes
    }
}

/// P2's part of a parcel, as it is read.
pub struct MaskedWords<'a> {
    /// Rows.
    pub rows: u32,
    /// For every encrypted column what its masks wrap at, and its words as they stand.
    pub columns: Vec<(Modulus, &'a [[u8; WORD]])>,
}

/// The number that a word is.
pub fn word_of([a, b, c, d, e, f]: [u8; WORD]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

impl<'a> MaskedWords<'a> {
    /// Reads what was sealed.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ReleaseError> {
        const WHAT: &str = "a parcel of the key holder";
        let short = || wrong(WHAT, &"it is too short");
        let (version, bytes) = bytes.split_first().ok_or_else(short)?;
        supported(WHAT, *version)?;
        let (rows, bytes) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
        let (count, mut bytes) = bytes.split_first_chunk::<2>().ok_or_else(short)?;
        let mut lengths = Vec::new();
        for _ in 0..u16::from_le_bytes(*count) {
            let ([modulus, length @ ..], rest) = bytes.split_first_chunk::<5>().ok_or_else(short)?;
            let modulus = Modulus::from_byte(*modulus).ok_or_else(|| wrong(WHAT, &"a column comes from nowhere"))?;
            lengths.push((modulus, u32::from_le_bytes(*length) as usize));
            bytes = rest;
        }
        let mut columns = Vec::with_capacity(lengths.len());
        for (modulus, length) in lengths {
            let own = length.checked_mul(WORD).and_then(|length| bytes.split_at_checked(length));
            let (own, rest) = own.ok_or_else(short)?;
            columns.push((modulus, own.as_chunks::<WORD>().0));
            bytes = rest;
        }
        match bytes.is_empty() {
            true => Ok(Self { rows: u32::from_le_bytes(*rows), columns }),
            false => Err(wrong(WHAT, &"it is too long")),
        }
    }
}

/// P1's part of a parcel.
pub struct SeenValues {
    /// What the masks are drawn from.
    pub seed: Zeroizing<[u8; 32]>,
    /// What P1 sees.
    pub batch: RecordBatch,
}

impl SeenValues {
    /// Its bytes, before they are sealed.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, ReleaseError> {
        const WHAT: &str = "a parcel of the engine";
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(self.seed.as_slice());
        let written = StreamWriter::try_new(&mut bytes, self.batch.schema_ref()).and_then(|mut writer| {
            writer.write(&self.batch)?;
            writer.finish()
        });
        written.map_err(|error| wrong(WHAT, &error))?;
        Ok(Zeroizing::new(bytes))
    }

    /// Reads what was sealed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReleaseError> {
        const WHAT: &str = "a parcel of the engine";
        let short = || wrong(WHAT, &"it is too short");
        let (version, bytes) = bytes.split_first().ok_or_else(short)?;
        supported(WHAT, *version)?;
        let (seed, bytes) = bytes.split_first_chunk::<32>().ok_or_else(short)?;
        // Arrow's reader panics on some bytes that were made to.
        let read = caught(|| {
            let mut reader = StreamReader::try_new(Cursor::new(bytes), None)?;
            reader.next().transpose()
        });
        let batch = read.map_err(|_| wrong(WHAT, &"its stream is damaged"))?.map_err(|error| wrong(WHAT, &error))?;
        let batch = batch.ok_or_else(|| wrong(WHAT, &"it has no rows"))?;
        Ok(Self { seed: Zeroizing::new(*seed), batch })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn masked_values_come_back_and_damage_is_an_error() {
        let columns = vec![
            (Modulus::Cells, Zeroizing::new(vec![0, 1, (1 << 48) - 1])),
            (Modulus::Slots, Zeroizing::new(vec![5])),
        ];
        let bytes = MaskedValues { rows: 3, columns }.to_bytes();
        assert_eq!(bytes.len(), 7 + 2 * 5 + 4 * 6);
        let read = MaskedWords::parse(&bytes).unwrap();
        assert_eq!(read.rows, 3);
        let words = |words: &[[u8; WORD]]| words.iter().map(|word| word_of(*word)).collect::<Vec<_>>();
        let columns: Vec<_> = read.columns.iter().map(|(modulus, column)| (*modulus, words(column))).collect();
        assert_eq!(columns, [(Modulus::Cells, vec![0, 1, (1 << 48) - 1]), (Modulus::Slots, vec![5])]);
        for length in 0..bytes.len() {
            assert!(MaskedWords::parse(&bytes[..length]).is_err(), "{length}");
        }
        assert!(MaskedWords::parse(&[&bytes[..], &[0]].concat()).is_err());
        let later = MaskedWords::parse(&[&[2], &bytes[1..]].concat()).err().unwrap().to_string();
        assert_eq!(
            later,
            "a parcel of the key holder has format version 2, this program reads up to 1; use a newer veil"
        );
    }

    #[test]
    fn seen_values_come_back_and_damage_never_panics() {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("clear.0", column)]).unwrap();
        let bytes = SeenValues { seed: Zeroizing::new([3; 32]), batch: batch.clone() }.to_bytes().unwrap();
        let read = SeenValues::parse(&bytes).unwrap();
        assert_eq!((*read.seed, &read.batch), ([3; 32], &batch));
        for length in 0..bytes.len() {
            if let Ok(read) = SeenValues::parse(&bytes[..length]) {
                assert_eq!(read.batch, batch, "{length}");
            }
        }
    }

    #[test]
    fn seals_are_bound_to_release_party_and_number() {
        let id = ReleaseId([1; 16]);
        let all = [associated(id, Party::P1, 1), associated(id, Party::P2, 1), associated(id, Party::P1, 2)];
        assert!(all[0] != all[1] && all[0] != all[2]);
        assert_ne!(all[0], associated(ReleaseId([2; 16]), Party::P1, 1));
    }
}
