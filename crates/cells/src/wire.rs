//! The bytes of a cell.
//!
//! ```text
//!  byte  0      format version (2; 1 of cells that do not tell whose rows they are of)
//!        1      flags: 1 dense, 2 hidden-NULL lane, 4 tag lane, 8 not a number, 16 quotient, 32 rows (of version 2); the rest zero
//!        2      lanes, at least one
//!        3      terms (0 in a dense cell)
//!        4..12  key id
//!       12..18  largest absolute value of the number, 48 bits; zero if it is not a number
//!       18..    rows:   see `provenance`: of whose rows it is made, where its samples do not tell
//!               affine: terms, each seed (16), coefficient (i16), index (u16), sorted by seed and index
//!               dense:  sum |c| (u64), sum c^2 (u64), then 4096 mask words a lane
//!               bodies, one u64 a lane
//!               quotient: divisor (u32), at least two
//!               checksum: low 32 bits of XXH3-64 over all bytes before
//! ```
//! All integers are little-endian. The checksum finds damage, not forgery: who may write the file may
//! write any cell.

use xxhash_rust::xxh3::xxh3_64;

use crate::cell::{Mask, RowsOf, fits_chunk};
use crate::view::{MaskView, RowsView};
use crate::{Cell, CellError, CellView, KeyId, Lanes, Provenance};

/// The format that this program writes.
pub const CELL_VERSION: u8 = 2;

/// The format of cells that do not tell whose rows they are of: older ones, and those that P2 has just made.
pub(crate) const VERSION_WITHOUT_ROWS: u8 = 1;

pub(crate) const DENSE: u8 = 1;
pub(crate) const NULLS: u8 = 2;
pub(crate) const TAG: u8 = 4;
pub(crate) const OPAQUE: u8 = 8;
pub(crate) const QUOTIENT: u8 = 16;
pub(crate) const ROWS: u8 = 32;
pub(crate) const HEADER: usize = 18;
pub(crate) const TERM: usize = 20;
pub(crate) const CHECKSUM: usize = 4;

impl Cell {
    /// Reads a cell.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CellError> {
        let mut cell = Self::scratch();
        cell.read(bytes)?;
        Ok(cell)
    }

    /// The cell's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        bytes
    }

    /// A cell to [`read`](Self::read) into, so that a loop over a column allocates once.
    pub fn scratch() -> Self {
        Self {
            key_id: KeyId::default(),
            lanes: Lanes::NUMBER,
            magnitude: None,
            mask: Mask::Affine(Vec::new()),
            bodies: Vec::new(),
            divisor: 1,
            rows: RowsOf::Unknown,
        }
    }

    /// Replaces this cell by the one in `bytes`. After an error its content is unspecified.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), CellError> {
        let view = CellView::parse(bytes)?;
        (self.key_id, self.lanes, self.magnitude) = (view.key_id, view.lanes, view.magnitude);
        self.divisor = view.divisor;
        self.rows = match view.rows {
            RowsView::Unknown => RowsOf::Unknown,
            RowsView::Samples => RowsOf::Samples,
            RowsView::Listed(rows) => RowsOf::Listed(Provenance::read(rows)?),
        };
        match (&view.mask, &mut self.mask) {
            (MaskView::Affine(_), Mask::Affine(terms)) => {
                terms.clear();
                terms.extend(view.terms());
            }
            (MaskView::Affine(_), mask) => *mask = Mask::Affine(view.terms().collect()),
            (MaskView::Dense { noise, words }, mask) => {
                *mask =
                    Mask::Dense { noise: *noise, words: words.iter().map(|word| u64::from_le_bytes(*word)).collect() };
            }
        }
        self.bodies.clear();
        self.bodies.extend(view.bodies());
        Ok(())
    }

    /// Appends the cell's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let (kind, terms) = match &self.mask {
            Mask::Affine(terms) => (0, terms.len() as u8),
            Mask::Dense { .. } => (DENSE, 0),
        };
        let set = |flag: u8, on: bool| if on { flag } else { 0 };
        let lanes = self.lanes;
        let flags = kind | set(NULLS, lanes.nulls) | set(TAG, lanes.tag) | set(OPAQUE, self.magnitude.is_none());
        let flags = flags | set(QUOTIENT, self.divisor != 1) | set(ROWS, matches!(self.rows, RowsOf::Listed(_)));
        let version = if self.rows == RowsOf::Unknown { VERSION_WITHOUT_ROWS } else { CELL_VERSION };
        out.extend_from_slice(&[version, flags, lanes.total() as u8, terms]);
        out.extend_from_slice(&self.key_id.0);
        out.extend_from_slice(&self.magnitude.unwrap_or(0).to_le_bytes()[..6]);
        if let RowsOf::Listed(rows) = &self.rows {
            rows.write(out);
        }
        match &self.mask {
            Mask::Affine(terms) => {
                for term in terms {
                    out.extend_from_slice(&term.seed.0);
                    out.extend_from_slice(&term.coefficient.to_le_bytes());
                    out.extend_from_slice(&term.index.to_le_bytes());
                }
            }
            Mask::Dense { noise, words } => {
                out.reserve(16 + 8 * words.len());
                out.extend_from_slice(&noise.absolute.to_le_bytes());
                out.extend_from_slice(&noise.squares.to_le_bytes());
                words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
            }
        }
        for body in &self.bodies {
            out.extend_from_slice(&body.to_le_bytes());
        }
        if self.divisor != 1 {
            out.extend_from_slice(&self.divisor.to_le_bytes());
        }
        let checksum = checksum_of(&out[start..]);
        out.extend_from_slice(&checksum);
    }
}

pub(crate) fn checksum_of(content: &[u8]) -> [u8; CHECKSUM] {
    (xxh3_64(content) as u32).to_le_bytes()
}

/// Writes the cells of a chunk, which differ in index and bodies only.
pub struct FreshCells {
    template: Vec<u8>,
    lanes: Lanes,
}

impl FreshCells {
    /// For cells like this fresh one.
    pub fn like(cell: &Cell) -> Result<Self, CellError> {
        match cell.terms() {
            [_] if cell.divisor == 1 && !matches!(cell.rows, RowsOf::Listed(_)) => {
                Ok(Self { template: cell.to_bytes(), lanes: cell.lanes })
            }
            _ => Err(CellError::Unsupported("only a fresh cell has neighbours in its chunk".to_owned())),
        }
    }

    /// Appends the cell at `index`.
    pub fn write(&self, index: usize, bodies: &[u64], out: &mut Vec<u8>) -> Result<(), CellError> {
        let place = u16::try_from(index).ok().filter(|index| fits_chunk(*index, self.lanes));
        let Some(place) = place.filter(|_| bodies.len() == self.lanes.total()) else {
            return Err(CellError::Unsupported(format!("no cell of {} lanes fits at index {index}", bodies.len())));
        };
        let start = out.len();
        out.extend_from_slice(&self.template);
        let cell = &mut out[start..];
        let (content, checksum) = cell.split_at_mut(self.template.len() - CHECKSUM);
        content[HEADER + TERM - 2..HEADER + TERM].copy_from_slice(&place.to_le_bytes());
        for (word, body) in content[HEADER + TERM..].as_chunks_mut::<8>().0.iter_mut().zip(bodies) {
            *word = body.to_le_bytes();
        }
        checksum.copy_from_slice(&checksum_of(content));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Seed;

    fn sample(lanes: Lanes) -> Cell {
        let bodies: Vec<u64> = (0..lanes.total() as u64).map(|l| 0x0123_4567_89ab_cdef ^ l).collect();
        let magnitude = (lanes.value == 1).then_some(128);
        Cell::fresh(KeyId([7; 8]), lanes, magnitude, Seed([9; 16]), 40, &bodies).unwrap()
    }

    #[test]
    fn a_number_with_tag_fits_its_size() {
        let cell = sample(Lanes { value: 1, nulls: false, tag: true });
        // Arrow adds four bytes of offset.
        assert_eq!(cell.to_bytes().len() + 4, 62);
    }

    #[test]
    fn bytes_round_trip() {
        for nulls in [false, true] {
            for tag in [false, true] {
                for value in [1, 4, 253] {
                    let cell = sample(Lanes { value, nulls, tag });
                    assert_eq!(Cell::from_bytes(&cell.to_bytes()).unwrap(), cell);
                }
            }
        }
    }

    #[test]
    fn every_single_byte_corruption_is_an_error() {
        let bytes = sample(Lanes { value: 1, nulls: true, tag: true }).to_bytes();
        for at in 0..bytes.len() {
            for flip in 1..=255u8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                assert!(Cell::from_bytes(&damaged).is_err(), "byte {at} xor {flip:#04x}");
            }
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = sample(Lanes { value: 3, nulls: false, tag: true }).to_bytes();
        for length in 0..bytes.len() {
            assert!(Cell::from_bytes(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_version_from_the_future_is_named() {
        let mut bytes = sample(Lanes::NUMBER).to_bytes();
        bytes[0] = 3;
        let error = Cell::from_bytes(&bytes).unwrap_err();
        assert!(matches!(error, CellError::FromTheFuture { found: 3, .. }), "{error}");
    }

    /// Behind a valid checksum the parser itself must hold: whatever it accepts, it writes back.
    fn read_with_checksum(mut content: Vec<u8>) -> Option<Cell> {
        let checksum = checksum_of(&content);
        content.extend_from_slice(&checksum);
        let cell = Cell::from_bytes(&content).ok()?;
        assert_eq!(cell.to_bytes(), content);
        Some(cell)
    }

    /// One byte of a valid cell changed, and the checksum made to match.
    #[test]
    fn forged_cells_never_panic() {
        let mut two_terms = sample(Lanes::NUMBER);
        two_terms.add(&Cell::fresh(KeyId([7; 8]), Lanes::NUMBER, Some(1), Seed([3; 16]), 4095, &[1]).unwrap()).unwrap();
        let mut dense = sample(Lanes::NUMBER);
        dense.make_dense().unwrap();
        let text = sample(Lanes { value: 2, nulls: true, tag: true });
        for (name, cell) in [("two terms", two_terms), ("dense", dense), ("text", text)] {
            let bytes = cell.to_bytes();
            let content = &bytes[..bytes.len() - CHECKSUM];
            let (mut accepted, mut refused) = (0, 0);
            for at in (0..content.len().min(120)).chain((120..content.len()).step_by(4001)) {
                for value in 0..=255 {
                    let mut forged = content.to_vec();
                    forged[at] = value;
                    match read_with_checksum(forged) {
                        Some(_) => accepted += 1,
                        None => refused += 1,
                    }
                }
            }
            assert!(accepted > 1000 && refused > 500, "{name}: {accepted} accepted, {refused} refused");
        }
    }

    proptest! {
        #[test]
        fn forged_lengths_never_panic(
            header in proptest::collection::vec(0u8..12, 4),
            rest in proptest::collection::vec(any::<u8>(), 0..160),
        ) {
            let mut content = header;
            content[0] = CELL_VERSION;
            content.extend(rest);
            read_with_checksum(content);
        }

        #[test]
        fn random_bytes_are_refused(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Cell::from_bytes(&content).is_err());
        }
    }
}
