//! Which rows of which files take part, as they cross the wire.
//!
//! ```text
//!  a file: its name (9)   occurrences (u64)   length of the bitmap (u32)   the bitmap, in Roaring's portable format      ascending by name
//! ```
//! Little-endian. A bitmap says which rows of the file take part, `occurrences` how often: where these are more than the bitmap has rows, one of
//! them is there twice. What comes from outside is bounded before anything is done with it: a few bytes of a bitmap can stand for 65,536 rows.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use veil_cells::{AnchorSet, FileId};

use crate::ProtocolError;

/// The most files of a census or of a parcel.
pub const MAX_FILES: usize = 1024;

/// The most bytes of the bitmaps of a census or of a parcel.
pub const MAX_BITMAP_BYTES: usize = 32 << 20;

/// The most rows that the bitmaps of a census or of a parcel have together: 2^26 take P2 about a second.
pub const MAX_ANCHORS: u64 = 1 << 26;

/// What refuses a row that is there twice.
pub const REPEATED: &str = "a row of an encrypted file occurs in several rows of what is asked, after a join, a union or a repetition: anonymise before joining";

/// The rows of a file that take part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileRows {
    /// Their numbers.
    pub rows: RoaringBitmap,
    /// How often they take part, all together: one for every row of a question or parcel and every row of the file that it is made of.
    pub occurrences: u64,
}

/// The rows of all files that take part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Anchors(pub BTreeMap<FileId, FileRows>);

impl Anchors {
    /// Adds the rows that one row of a question or parcel is made of.
    pub fn add(&mut self, row: &AnchorSet) {
        match row {
            AnchorSet::Few(few) => {
                for anchor in few {
                    let file = self.0.entry(anchor.file).or_default();
                    file.rows.insert(anchor.row);
                    file.occurrences += 1;
                }
            }
            AnchorSet::Many(many) => {
                for (id, rows) in many {
                    let file = self.0.entry(*id).or_default();
                    file.rows |= rows;
                    file.occurrences += rows.len();
                }
            }
        }
    }

    /// How many rows take part, repeated ones once.
    pub fn rows(&self) -> u64 {
        self.0.values().map(|file| file.rows.len()).sum()
    }

    /// How often rows take part, all together.
    pub fn occurrences(&self) -> u64 {
        self.0.values().fold(0, |sum, file| sum.saturating_add(file.occurrences))
    }

    /// Refuses rows that are there twice.
    pub fn occur_once(&self) -> Result<(), ProtocolError> {
        match self.0.values().all(|file| file.occurrences == file.rows.len()) {
            true => Ok(()),
            false => Err(ProtocolError::Denied(REPEATED.to_owned())),
        }
    }

    /// For the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (file, FileRows { rows, occurrences }) in &self.0 {
            let mut rows = rows.clone();
            rows.optimize();
            bytes.extend_from_slice(&file.0);
            bytes.extend_from_slice(&occurrences.to_le_bytes());
            bytes.extend_from_slice(&(rows.serialized_size() as u32).to_le_bytes());
            // Writing to memory does not fail.
            let _ = rows.serialize_into(&mut bytes);
        }
        bytes
    }

    /// Checks what is too much, from outside, before it is read.
    pub(crate) fn check_size(bytes: &[u8]) -> Result<(), ProtocolError> {
        match bytes.len() {
            found if found > MAX_BITMAP_BYTES => {
                Err(ProtocolError::TooLarge { what: "a set of rows", found, limit: MAX_BITMAP_BYTES })
            }
            _ => Ok(()),
        }
    }

    /// Reads and checks what came from outside.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProtocolError> {
        Self::check_size(bytes)?;
        let damaged = || ProtocolError::Malformed("the rows that take part cannot be read".to_owned());
        let (mut files, mut all, mut rest) = (BTreeMap::new(), 0u64, bytes);
        while !rest.is_empty() {
            let (name, behind) = rest.split_first_chunk().ok_or_else(damaged)?;
            let (occurrences, behind) = behind.split_first_chunk().ok_or_else(damaged)?;
            let (length, behind) = behind.split_first_chunk().ok_or_else(damaged)?;
            let (mut bitmap, behind) =
                behind.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(damaged)?;
            // This checks what it reads, and takes memory only for what is there.
            let rows = RoaringBitmap::deserialize_from(&mut bitmap).map_err(|_| damaged())?;
            let file = FileId(*name);
            let ascends = files.last_key_value().is_none_or(|(last, _)| *last < file);
            if !bitmap.is_empty() || rows.is_empty() || !ascends {
                return Err(damaged());
            }
            all = all.saturating_add(rows.len());
            if all > MAX_ANCHORS {
                let (found, limit) = (all as usize, MAX_ANCHORS as usize);
                return Err(ProtocolError::TooLarge { what: "a number of rows that take part", found, limit });
            }
            files.insert(file, FileRows { rows, occurrences: u64::from_le_bytes(*occurrences) });
            if files.len() > MAX_FILES {
                return Err(ProtocolError::TooLarge {
                    what: "a number of files",
                    found: files.len(),
                    limit: MAX_FILES,
                });
            }
            rest = behind;
        }
        Ok(Self(files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use veil_cells::Anchor;

    fn file(number: u8) -> FileId {
        FileId([number; 9])
    }

    fn of(files: &[(u8, std::ops::Range<u32>)]) -> Anchors {
        let of = |(number, rows): &(u8, std::ops::Range<u32>)| {
            let rows: RoaringBitmap = rows.clone().collect();
            (file(*number), FileRows { occurrences: rows.len(), rows })
        };
        Anchors(files.iter().map(of).collect())
    }

    /// Containers have 65,536 rows each, and change their form at 4096.
    #[test]
    fn rows_come_back_at_every_size() {
        assert_eq!(Anchors::from_bytes(&[]).unwrap(), Anchors::default());
        for count in [1u32, 2, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_073] {
            for files in 1..=3u8 {
                let mut anchors = of(&(0..files).map(|number| (number, 0..count)).collect::<Vec<_>>());
                // Some that no run has.
                anchors.0.entry(file(9)).or_default().rows.extend((0..count).map(|row| row * 7));
                let read = Anchors::from_bytes(&anchors.to_bytes()).unwrap();
                assert_eq!(read, anchors, "{count} rows of {files} files");
                assert_eq!(read.rows(), u64::from(count) * u64::from(files + 1));
            }
        }
    }

    #[test]
    fn a_row_that_is_there_twice_is_refused() {
        let row = |number: u8, row: u32| Anchor { file: file(number), row };
        let mut anchors = Anchors::default();
        // A joined row is of one row of each file.
        anchors.add(&[row(1, 5), row(2, 7)].into_iter().collect());
        anchors.add(&[row(1, 7), row(2, 5)].into_iter().collect());
        anchors.add(&(100..600).map(|at| row(1, at)).collect());
        anchors.occur_once().unwrap();
        assert_eq!((anchors.rows(), anchors.occurrences()), (504, 504));
        for again in [row(1, 5), row(2, 7), row(1, 599)] {
            let mut anchors = anchors.clone();
            anchors.add(&[again].into_iter().collect());
            assert_eq!(anchors.occur_once().unwrap_err().to_string(), REPEATED);
            assert!(matches!(anchors.occur_once(), Err(ProtocolError::Denied(_))));
            let mut many = anchors.clone();
            many.add(&(500..700).map(|at| row(1, at)).collect());
            assert!(many.occur_once().is_err());
        }
    }

    /// Bytes from outside end in an error, and neither in a panic nor in memory that they have not sent.
    #[test]
    fn hostile_bitmaps_are_refused() {
        let sound = of(&[(1, 0..5000), (2, 3..4)]).to_bytes();
        for length in 1..sound.len() {
            // Cut between two files it is whole.
            let cut = Anchors::from_bytes(&sound[..length]);
            assert!(cut.is_err() || cut.is_ok_and(|read| read.0.len() == 1), "{length} bytes");
        }
        for at in 0..sound.len() {
            for bit in 0..8 {
                let mut changed = sound.clone();
                changed[at] ^= 1 << bit;
                let _ = Anchors::from_bytes(&changed);
            }
        }
        let entry = |name: u8, bitmap: &[u8]| {
            let length = (bitmap.len() as u32).to_le_bytes();
            [&[name; 9][..], &1u64.to_le_bytes(), &length, bitmap].concat()
        };
        // 65,536 containers said and none there; with runs and without.
        for cookie in [[58u8, 48, 0, 0, 255, 255, 255, 255], [58, 48, 0, 0, 0, 0, 1, 0], [59, 48, 255, 255, 0, 0, 0, 0]]
        {
            assert!(Anchors::from_bytes(&entry(1, &cookie)).is_err(), "{cookie:?}");
        }
        let [mut one, mut other] = [(); 2].map(|()| Vec::new());
        RoaringBitmap::from_iter([7]).serialize_into(&mut one).unwrap();
        RoaringBitmap::new().serialize_into(&mut other).unwrap();
        assert!(Anchors::from_bytes(&entry(1, &one)).is_ok());
        assert!(Anchors::from_bytes(&entry(1, &other)).is_err(), "a file without rows");
        assert!(Anchors::from_bytes(&[entry(2, &one), entry(1, &one)].concat()).is_err(), "order");
        assert!(Anchors::from_bytes(&[entry(1, &one), entry(1, &one)].concat()).is_err(), "twice");
        assert!(Anchors::from_bytes(&entry(1, &[one, vec![0]].concat())).is_err(), "a byte more");
        // 800 kB that stand for all 2^32 rows.
        let mut all = Vec::new();
        RoaringBitmap::full().serialize_into(&mut all).unwrap();
        let refused = Anchors::from_bytes(&entry(1, &all)).unwrap_err();
        assert!(matches!(refused, ProtocolError::TooLarge { limit: 0x400_0000, .. }), "{refused}");
        let many: Vec<u8> = (0..=MAX_FILES as u32)
            .flat_map(|number| {
                let of = Anchors(
                    [(FileId([&[0; 5][..], &number.to_be_bytes()].concat().try_into().unwrap()), {
                        FileRows { rows: [1].into_iter().collect(), occurrences: 1 }
                    })]
                    .into(),
                );
                of.to_bytes()
            })
            .collect();
        let refused = Anchors::from_bytes(&many).unwrap_err();
        assert!(matches!(refused, ProtocolError::TooLarge { found: 1025, limit: 1024, .. }), "{refused}");
        let refused = Anchors::from_bytes(&vec![0; MAX_BITMAP_BYTES + 1]).unwrap_err();
        assert!(matches!(refused, ProtocolError::TooLarge { .. }), "{refused}");
    }
}
