//! Whose row a value is of.
//!
//! What tells rows apart is a row's **anchor**: the file that the owner encrypted, and the number of the row in it. The owner writes it
//! into the seed of every chunk, so each sample leads to its row, whatever is computed with it:
//!
//! ```text
//!  seed    file (9 bytes)   column (u16)   samples a row (u8)   first row (u32)          big-endian; row = first row + index / samples a row
//!          0xFE ..          constants of the owner's: zero pools, dictionaries, bounds   no row
//!          0xFF ..          made by P2 for values that P1 sent masked                    no row of its own: the cell says which
//! ```
//! A value that no longer has the samples of its rows (drawn anew, taken through slots, or collapsed into one long sum) carries a set of
//! anchors beside them, in the cell. Cells whose rows nobody knows (of an older format, or fresh from P2) say that, and whatever is added
//! up with them says it too.

use std::collections::BTreeMap;
use std::fmt;

use roaring::RoaringBitmap;

use crate::{CellError, Seed};

/// The first byte of seeds of constants.
const CONSTANT: u8 = 0xfe;

/// The first byte of seeds that P2 draws.
const MADE: u8 = 0xff;

/// Bytes of a file's name.
const FILE: usize = 9;

/// Bytes of an anchor.
pub(crate) const ANCHOR: usize = FILE + 4;

/// The most anchors that are listed one by one.
pub(crate) const MAX_LISTED: usize = 16;

/// Names a file of encrypted rows. Drawn at random for each file, it says nothing about it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub [u8; FILE]);

impl FileId {
    /// A name for a new file, from random bytes.
    pub fn of_random(mut name: [u8; FILE]) -> Self {
        // Two values begin other seeds; a bit less of 72 keeps clear of them.
        name[0] &= 0x7f;
        Self(name)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId({self})")
    }
}

/// A row of a file of encrypted rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Anchor {
    /// The file.
    pub file: FileId,
    /// The row, from zero.
    pub row: u32,
}

/// Where the samples of a chunk come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Rows of a file.
    Rows(ChunkRows),
    /// Constants of the owner's.
    Constant,
    /// Values that P2 encrypted.
    Made,
}

/// The rows of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRows {
    /// Their file.
    pub file: FileId,
    /// The column: no two of a file have one number, and all files of a table have the same ([`ColumnId::number`](crate::ColumnId::number)).
    pub column: u16,
    /// How many samples each row has.
    pub samples: u8,
    /// The first row.
    pub first_row: u32,
}

impl ChunkRows {
    /// The row of a sample.
    pub fn anchor(&self, index: u16) -> Anchor {
        let row = u32::from(index) / u32::from(self.samples.max(1));
        Anchor { file: self.file, row: self.first_row.saturating_add(row) }
    }
}

impl Seed {
    /// The seed of a chunk of rows.
    pub fn of_rows(rows: ChunkRows) -> Self {
        let ChunkRows { file, column, samples, first_row } = rows;
        let mut seed = [0; 16];
        seed[..FILE].copy_from_slice(&file.0);
        seed[FILE..FILE + 2].copy_from_slice(&column.to_be_bytes());
        seed[FILE + 2] = samples;
        seed[FILE + 3..].copy_from_slice(&first_row.to_be_bytes());
        Self(seed)
    }

    /// A seed of constants, from random bytes.
    pub fn of_constants(random: [u8; 16]) -> Self {
        Self::marked(CONSTANT, random)
    }

    /// A seed of P2's, from random bytes.
    pub fn of_made(random: [u8; 16]) -> Self {
        Self::marked(MADE, random)
    }

    fn marked(mark: u8, mut bytes: [u8; 16]) -> Self {
        bytes[0] = mark;
        Self(bytes)
    }

    /// Where its samples come from. Seeds of before there were anchors are taken for rows: who has the cell knows by its version.
    pub fn origin(&self) -> Origin {
        let [f0, f1, f2, f3, f4, f5, f6, f7, f8, c0, c1, samples, r0, r1, r2, r3] = self.0;
        match f0 {
            CONSTANT => Origin::Constant,
            MADE => Origin::Made,
            _ => Origin::Rows(ChunkRows {
                file: FileId([f0, f1, f2, f3, f4, f5, f6, f7, f8]),
                column: u16::from_be_bytes([c0, c1]),
                samples,
                first_row: u32::from_be_bytes([r0, r1, r2, r3]),
            }),
        }
    }

    /// The row that a sample is of, if it is of one.
    #[inline]
    pub fn anchor(&self, index: u16) -> Option<Anchor> {
        match self.origin() {
            Origin::Rows(rows) => Some(rows.anchor(index)),
            Origin::Constant | Origin::Made => None,
        }
    }
}

/// Rows that a value is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum AnchorSet {
    /// Up to sixteen, sorted.
    Few(Vec<Anchor>),
    /// More than sixteen, by their files.
    Many(BTreeMap<FileId, RoaringBitmap>),
}

impl Default for AnchorSet {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Eq for AnchorSet {}

impl FromIterator<Anchor> for AnchorSet {
    fn from_iter<I: IntoIterator<Item = Anchor>>(anchors: I) -> Self {
        let mut set = Self::default();
        set.extend(anchors);
        set
    }
}

impl Extend<Anchor> for AnchorSet {
    fn extend<I: IntoIterator<Item = Anchor>>(&mut self, anchors: I) {
        anchors.into_iter().for_each(|anchor| self.insert(anchor));
    }
}

impl AnchorSet {
    /// How many there are.
    pub fn len(&self) -> u64 {
        match self {
            Self::Few(few) => few.len() as u64,
            Self::Many(many) => many.values().map(RoaringBitmap::len).sum(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a row is among them.
    pub fn contains(&self, anchor: Anchor) -> bool {
        match self {
            Self::Few(few) => few.binary_search(&anchor).is_ok(),
            Self::Many(many) => many.get(&anchor.file).is_some_and(|rows| rows.contains(anchor.row)),
        }
    }

    /// Rows that ascend.
    pub(crate) fn of_sorted(anchors: impl ExactSizeIterator<Item = Anchor>) -> Self {
        if anchors.len() <= MAX_LISTED {
            return Self::Few(anchors.collect());
        }
        let mut files: BTreeMap<FileId, RoaringBitmap> = BTreeMap::new();
        for Anchor { file, row } in anchors {
            files.entry(file).or_default().insert(row);
        }
        Self::Many(files)
    }

    /// Whether there is a row in both.
    pub fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Few(few), other) | (other, Self::Few(few)) => few.iter().any(|anchor| other.contains(*anchor)),
            (Self::Many(ours), Self::Many(theirs)) => {
                ours.iter().any(|(file, rows)| theirs.get(file).is_some_and(|others| !rows.is_disjoint(others)))
            }
        }
    }

    /// Adds a row.
    pub fn insert(&mut self, anchor: Anchor) {
        match self {
            Self::Few(few) => {
                if let Err(at) = few.binary_search(&anchor) {
                    few.insert(at, anchor);
                }
                if few.len() > MAX_LISTED {
                    *self = Self::of_sorted(few.drain(..));
                }
            }
            Self::Many(many) => {
                many.entry(anchor.file).or_default().insert(anchor.row);
            }
        }
    }

    /// Adds the rows of another set.
    pub fn union(&mut self, other: &Self) {
        match (&mut *self, other) {
            (_, Self::Few(few)) => self.extend(few.iter().copied()),
            (Self::Few(few), Self::Many(many)) => {
                let mut all = many.clone();
                few.iter().for_each(|anchor| {
                    all.entry(anchor.file).or_default().insert(anchor.row);
                });
                *self = Self::Many(all);
            }
            (Self::Many(ours), Self::Many(theirs)) => {
                for (file, rows) in theirs {
                    *ours.entry(*file).or_default() |= rows;
                }
            }
        }
    }

    /// Every row, by files.
    pub fn iter(&self) -> Box<dyn Iterator<Item = Anchor> + '_> {
        match self {
            Self::Few(few) => Box::new(few.iter().copied()),
            Self::Many(many) => {
                Box::new(many.iter().flat_map(|(file, rows)| rows.iter().map(|row| Anchor { file: *file, row })))
            }
        }
    }

    /// Appends the set's bytes: a list of at most sixteen, or bitmaps. Bitmaps of one set are the same bytes, however it was made.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Few(few) => {
                for anchor in few {
                    out.extend_from_slice(&anchor.file.0);
                    out.extend_from_slice(&anchor.row.to_le_bytes());
                }
            }
            Self::Many(many) => {
                for (file, rows) in many {
                    let mut rows = rows.clone();
                    rows.optimize();
                    out.extend_from_slice(&file.0);
                    out.extend_from_slice(&(rows.serialized_size() as u32).to_le_bytes());
                    // Writing to memory does not fail.
                    let _ = rows.serialize_into(&mut *out);
                }
            }
        }
    }

    /// Reads a list. Each set has one form.
    pub(crate) fn read_list(bytes: &[u8]) -> Result<Self, CellError> {
        let (anchors, rest) = bytes.as_chunks::<ANCHOR>();
        let few: Vec<Anchor> = anchors.iter().map(anchor_of).collect();
        match rest.is_empty() && few.len() <= MAX_LISTED && few.is_sorted_by(|a, b| a < b) {
            true => Ok(Self::Few(few)),
            false => Err(CellError::Malformed("the rows that it is of are not understood".to_owned())),
        }
    }

    /// Reads bitmaps. Each set has one form.
    pub(crate) fn read_bitmaps(bytes: &[u8]) -> Result<Self, CellError> {
        let set = Self::parse_bitmaps(bytes)?;
        let mut written = Vec::with_capacity(bytes.len());
        set.write(&mut written);
        match written == bytes {
            true => Ok(set),
            false => Err(CellError::Malformed("the rows that it is of are written in another way".to_owned())),
        }
    }

    fn parse_bitmaps(mut bytes: &[u8]) -> Result<Self, CellError> {
        let malformed = || CellError::Malformed("the rows that it is of are not understood".to_owned());
        let (mut many, mut last) = (BTreeMap::new(), None);
        while let Some((file, rest)) = bytes.split_first_chunk::<FILE>() {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
            let length = u32::from_le_bytes(*length) as usize;
            let (content, rest) = rest.split_at_checked(length).ok_or_else(malformed)?;
            let rows = RoaringBitmap::deserialize_from(content).map_err(|_| malformed())?;
            if rows.is_empty() || last.is_some_and(|last| last >= *file) {
                return Err(malformed());
            }
            last = Some(*file);
            many.insert(FileId(*file), rows);
            bytes = rest;
        }
        let set = Self::Many(many);
        match bytes.is_empty() && set.len() > MAX_LISTED as u64 {
            true => Ok(set),
            false => Err(malformed()),
        }
    }
}

/// One anchor of a list.
pub(crate) fn anchor_of(bytes: &[u8; ANCHOR]) -> Anchor {
    let [f0, f1, f2, f3, f4, f5, f6, f7, f8, r0, r1, r2, r3] = *bytes;
    Anchor { file: FileId([f0, f1, f2, f3, f4, f5, f6, f7, f8]), row: u32::from_le_bytes([r0, r1, r2, r3]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(file: u8, row: u32) -> Anchor {
        Anchor { file: FileId([file; FILE]), row }
    }

    #[test]
    fn seeds_lead_to_rows() {
        for (samples, index, row) in
            [(1, 0, 100), (1, 4095, 4195), (3, 0, 100), (3, 2, 100), (3, 3, 101), (255, 4095, 116)]
        {
            let rows = ChunkRows { file: FileId([7; FILE]), column: 513, samples, first_row: 100 };
            let seed = Seed::of_rows(rows);
            assert_eq!(seed.origin(), Origin::Rows(rows));
            assert_eq!(seed.anchor(index), Some(anchor(7, row)), "{samples} samples a row, sample {index}");
        }
        assert_eq!(Seed::of_constants([7; 16]).origin(), Origin::Constant);
        assert_eq!(Seed::of_made([7; 16]).origin(), Origin::Made);
        assert_eq!((Seed::of_constants([7; 16]).anchor(3), Seed::of_made([7; 16]).anchor(3)), (None, None));
        // Nothing panics on seeds of others.
        let strange = ChunkRows { file: FileId([0; FILE]), column: 0, samples: 0, first_row: u32::MAX };
        assert_eq!(Seed::of_rows(strange).anchor(u16::MAX).unwrap().row, u32::MAX);
    }

    /// Sets agree with a plain set of the standard library, in either form and across the border between them.
    #[test]
    fn sets_are_sets_in_either_form() {
        for count in [0u32, 1, 2, 15, 16, 17, 33, 5000] {
            let rows: Vec<Anchor> = (0..count).map(|at| anchor((at % 3) as u8, at * 7919 % 100_003)).collect();
            let set: AnchorSet = rows.iter().rev().chain(&rows).copied().collect();
            let expected: std::collections::BTreeSet<Anchor> = rows.iter().copied().collect();
            assert_eq!(set.len(), expected.len() as u64);
            assert!(set.iter().eq(expected.iter().copied()));
            assert_eq!(matches!(set, AnchorSet::Few(_)), count <= 16);
            assert!(rows.iter().all(|row| set.contains(*row)) && !set.contains(anchor(9, 0)));
            for other in [0u32, 1, 16, 17, 40] {
                let others: Vec<Anchor> =
                    (0..other).map(|at| anchor((at % 2) as u8, at * 7919 % 100_003 + at % 5)).collect();
                let mut union = set.clone();
                union.union(&others.iter().copied().collect());
                let expected: std::collections::BTreeSet<Anchor> = rows.iter().chain(&others).copied().collect();
                assert!(union.iter().eq(expected), "{count} and {other}");
            }
        }
    }
}
