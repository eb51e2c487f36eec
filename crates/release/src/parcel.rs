//! What a recipient gets: a header, parcels of rows in two parts, and a manifest.
//!
//! ```text
//!  header      P2: JSON, names, types and notes of all columns
//!  parcel n    P2: masked messages of the encrypted columns     P1: the seed of the masks, and all that P1 sees
//!
//!  P2's part   version (1)  rows (u32)  columns (u16), for each: modulus (u8)  words (u32); then all words, 6 bytes each
//!  P1's part   version (1)  seed (32)  an Arrow stream of one batch
//!             version (2)  seed (32)  length (u32) and an Arrow stream of one batch  record's length (u32)  records  an Arrow stream without batches
//! ```
//! Numbers are little-endian. Words stand column by column and, in a column, lane by lane; in a column from cells, visible NULLs have none. P1's batch has a
//! column `clear.I` for every clear column, and `present.I` and `divisor.I` where column I of the header has visible NULLs or quotients. Where rows may be suppressed
//! (version 2), these are in the records, each under the key of its row, and the last stream has their types; P2's part then has the keys as one more
//! column of three lanes. Both parts are sealed on their own, with release, party and number as associated data: none can be taken for another.

use std::io::Cursor;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use veil_cells::{CellType, caught};
use veil_protocols::release::masks::Modulus;
use zeroize::Zeroizing;

use crate::{HiddenRows, Party, ReleaseError, ReleaseId};

/// What every seal of a release is for.
pub const SEAL_INFO: &[u8] = b"veil release v1";

/// The number of the header.
pub const HEADER_NUMBER: u32 = 0;

/// Rows of a parcel, but for the last: those of a vector.
pub const PARCEL_ROWS: usize = veil_slots::DEGREE;

const VERSION: u8 = 1;
/// Of P1's part, where rows are hidden.
const HIDDEN_VERSION: u8 = 2;
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
    supported_up_to(what, found, VERSION)
}

fn supported_up_to(what: &'static str, found: u8, supported: u8) -> Result<(), ReleaseError> {
    match found {
        VERSION => Ok(()),
        found => Err(ReleaseError::FromTheFuture { what, found, supported }),
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
    /// What it sees of rows that may be suppressed.
    pub hidden: Option<HiddenRows>,
}

impl SeenValues {
    /// Its bytes, before they are sealed.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, ReleaseError> {
        let mut bytes = Zeroizing::new(vec![if self.hidden.is_some() { HIDDEN_VERSION } else { VERSION }]);
        bytes.extend_from_slice(self.seed.as_slice());
        let Some(hidden) = &self.hidden else {
            write_stream(&mut bytes, self.batch.schema_ref(), Some(&self.batch))?;
            return Ok(bytes);
        };
        let mut stream = Zeroizing::new(Vec::new());
        write_stream(&mut stream, self.batch.schema_ref(), Some(&self.batch))?;
        bytes.extend_from_slice(&(stream.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&stream);
        let (schema, width, records) = hidden.parts();
        bytes.extend_from_slice(&(width as u32).to_le_bytes());
        bytes.extend_from_slice(records);
        write_stream(&mut bytes, schema, None)?;
        Ok(bytes)
    }

    /// Reads what was sealed.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReleaseError> {
        let short = || wrong(SEEN, &"it is too short");
        let (version, bytes) = bytes.split_first().ok_or_else(short)?;
        if *version != HIDDEN_VERSION {
            supported_up_to(SEEN, *version, HIDDEN_VERSION)?;
        }
        let (seed, bytes) = bytes.split_first_chunk::<32>().ok_or_else(short)?;
        let seed = Zeroizing::new(*seed);
        let none = || wrong(SEEN, &"it has no rows");
        if *version == VERSION {
            let (_, batch) = read_stream(bytes)?;
            return Ok(Self { seed, batch: batch.ok_or_else(none)?, hidden: None });
        }
        let (length, bytes) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
        let (stream, bytes) = bytes.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
        let batch = read_stream(stream)?.1.ok_or_else(none)?;
        let (width, bytes) = bytes.split_first_chunk::<4>().ok_or_else(short)?;
        let width = u32::from_le_bytes(*width) as usize;
        let records = width.checked_mul(batch.num_rows()).and_then(|length| bytes.split_at_checked(length));
        let (records, stream) = records.ok_or_else(short)?;
        let hidden = HiddenRows::from_parts(read_stream(stream)?.0, width, records.to_vec())?;
        Ok(Self { seed, batch, hidden: Some(hidden) })
    }
}

const SEEN: &str = "a parcel of the engine";

fn write_stream(bytes: &mut Vec<u8>, schema: &Schema, batch: Option<&RecordBatch>) -> Result<(), ReleaseError> {
    let written = StreamWriter::try_new(bytes, schema).and_then(|mut writer| {
        batch.map_or(Ok(()), |batch| writer.write(batch))?;
        writer.finish()
    });
    written.map_err(|error| wrong(SEEN, &error))
}

/// The schema and the first batch of a stream. Arrow's reader panics on some bytes that were made to.
fn read_stream(bytes: &[u8]) -> Result<(SchemaRef, Option<RecordBatch>), ReleaseError> {
    let read = caught(|| -> Result<_, ArrowError> {
        let mut reader = StreamReader::try_new(Cursor::new(bytes), None)?;
        Ok((reader.schema(), reader.next().transpose()?))
    });
    let read = read.map_err(|_| wrong(SEEN, &"its stream is damaged"))?;
    read.map_err(|error| wrong(SEEN, &error))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Array, ArrayRef, AsArray, BooleanArray, DictionaryArray, Float64Array, Int64Array, RecordBatchOptions,
        StringArray,
    };
    use arrow::datatypes::{Field, Int32Type};

    use super::*;
    use crate::RowKey;

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
        let bytes =
            SeenValues { seed: Zeroizing::new([3; 32]), batch: batch.clone(), hidden: None }.to_bytes().unwrap();
        let read = SeenValues::parse(&bytes).unwrap();
        assert_eq!((*read.seed, &read.batch), ([3; 32], &batch));
        for length in 0..bytes.len() {
            if let Ok(read) = SeenValues::parse(&bytes[..length]) {
                assert_eq!(read.batch, batch, "{length}");
            }
        }
    }

    /// Rows that are kept come back, whatever their types; others need no key, and without it show nothing.
    #[test]
    fn hidden_rows_come_back_under_their_keys_alone() {
        let texts = StringArray::from(vec![Some("a"), None, Some("a longer text than the others")]);
        let days: DictionaryArray<Int32Type> = vec![Some("mo"), Some("tu"), None].into_iter().collect();
        let columns: [(&str, ArrayRef); 4] = [
            ("clear.0", Arc::new(texts)),
            ("clear.1", Arc::new(days)),
            ("clear.2", Arc::new(Float64Array::from(vec![-0.0, f64::NAN, 1.5]))),
            ("present.3", Arc::new(BooleanArray::from(vec![true, false, true]))),
        ];
        let fields = columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(schema, columns.map(|(_, column)| column).to_vec()).unwrap();
        let keys = [[1, 2, 3], [4, 5, 6], [7, 8, 9]];
        let hidden = HiddenRows::seal(&batch, &keys).unwrap();
        let options = RecordBatchOptions::new().with_row_count(Some(3));
        let visible = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
        let seen = SeenValues { seed: Zeroizing::new([3; 32]), batch: visible, hidden: Some(hidden) };
        let bytes = seen.to_bytes().unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"longer"), "nothing is readable without a key");
        let read = SeenValues::parse(&bytes).unwrap();
        let hidden = read.hidden.unwrap();
        assert_eq!((read.batch.num_rows(), hidden.len()), (3, 3));
        assert_eq!(format!("{:?}", hidden.open(&keys, |_| true).unwrap().columns()), format!("{:?}", batch.columns()));
        // The second is suppressed: its key is any.
        let some = hidden.open(&[keys[0], [0, 0, 0], keys[2]], |row| row != 1).unwrap();
        assert!(some.columns().iter().all(|column| column.is_null(1)));
        assert_eq!(some.column(0).as_string::<i32>().value(2), "a longer text than the others");
        assert_eq!(hidden.open(&keys, |_| false).unwrap().column(1).null_count(), 3);
        // With a wrong key a row is none, or another one; nothing panics.
        for wrong in 0..200 {
            if let Ok(read) = hidden.open(&[keys[0], keys[1], [wrong, 0, 0]], |_| true) {
                assert_ne!(format!("{:?}", read.columns()), format!("{:?}", batch.columns()));
            }
        }
        for length in 0..bytes.len() {
            if let Ok(read) = SeenValues::parse(&bytes[..length]) {
                // What is cut off is the end mark of the last stream.
                assert!(bytes.len() - length <= 8 && read.hidden.unwrap().open(&keys, |_| true).is_ok(), "{length}");
            }
        }
        let later = SeenValues::parse(&[&[3], &bytes[1..]].concat()).err().unwrap().to_string();
        assert!(later.contains("format version 3, this program reads up to 2"), "{later}");
        assert!(hidden.open(&keys[..2], |_| true).is_err() && HiddenRows::seal(&batch, &keys[..2]).is_err());
    }

    /// All rows are as long as the longest, within bounds.
    #[test]
    fn lengths_of_hidden_rows_do_not_show() {
        let sealed = |texts: Vec<String>| {
            let keys: Vec<RowKey> = (0..texts.len() as u64).map(|row| [row, 1, 2]).collect();
            let column: ArrayRef = Arc::new(StringArray::from(texts));
            HiddenRows::seal(&RecordBatch::try_from_iter([("clear.0", column)]).unwrap(), &keys)
        };
        let length = |texts: [&str; 3]| sealed(texts.map(str::to_owned).to_vec()).unwrap().parts().2.len();
        assert_eq!(length(["", "", "abcdef"]), length(["abcdef", "a", "abc"]));
        let long = sealed(vec!["x".repeat(5000)]).err().unwrap().to_string();
        assert!(long.starts_with("column clear.0: clear values of "), "{long}");
    }

    #[test]
    fn seals_are_bound_to_release_party_and_number() {
        let id = ReleaseId([1; 16]);
        let all = [associated(id, Party::P1, 1), associated(id, Party::P2, 1), associated(id, Party::P1, 2)];
        assert!(all[0] != all[1] && all[0] != all[2]);
        assert_ne!(all[0], associated(ReleaseId([2; 16]), Party::P1, 1));
    }
}
