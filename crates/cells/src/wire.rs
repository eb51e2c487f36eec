//! The bytes of a cell.
//!
//! ```text
//!  byte  0      format version (1)
//!        1      flags: 1 dense, 2 hidden-NULL lane, 4 tag lane; the rest must be zero
//!        2      lanes, at least one
//!        3      terms (0 in a dense cell)
//!        4..12  key id
//!       12..18  largest absolute value of the number, 48 bits
//!       18..    affine: terms, each seed (16), coefficient (i16), index (u16), sorted by seed and index
//!               dense:  sum |c| (u64), sum c^2 (u64), then 4096 mask words a lane
//!               bodies, one u64 a lane
//!               checksum: low 32 bits of XXH3-64 over all bytes before
//! ```
//! All integers are little-endian. The checksum finds damage, not forgery: who may write the file may
//! write any cell.

use xxhash_rust::xxh3::xxh3_64;

use crate::cell::{Mask, fits_chunk};
use crate::parameters::{MAX_MAGNITUDE, POLYNOMIAL_SIZE};
use crate::{Cell, CellError, KeyId, Lanes, MAX_TERMS, Noise, Seed, Term};

/// The format that this program writes.
pub const CELL_VERSION: u8 = 1;

const DENSE: u8 = 1;
const NULLS: u8 = 2;
const TAG: u8 = 4;
const HEADER: usize = 18;
const TERM: usize = 20;
const CHECKSUM: usize = 4;

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
            magnitude: 0,
            mask: Mask::Affine(Vec::new()),
            bodies: Vec::new(),
        }
    }

    /// Replaces this cell by the one in `bytes`. After an error its content is unspecified.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), CellError> {
        let Some((content, checksum)) = bytes.split_last_chunk::<CHECKSUM>() else {
            return malformed(format!("{} bytes are too few", bytes.len()));
        };
        let Some((header, rest)) = content.split_first_chunk::<HEADER>() else {
            return malformed(format!("{} bytes are too few", bytes.len()));
        };
        let [version, flags, lanes, terms, ..] = *header;
        if version != CELL_VERSION {
            return match version {
                0 => malformed("format version 0".to_owned()),
                found => Err(CellError::FromTheFuture { what: "the cell", found, supported: CELL_VERSION }),
            };
        }
        if checksum_of(content) != *checksum {
            return malformed("its checksum does not match".to_owned());
        }
        if flags & !(DENSE | NULLS | TAG) != 0 {
            return malformed(format!("unknown flags {flags:#04x}"));
        }
        let (nulls, tag) = (flags & NULLS != 0, flags & TAG != 0);
        let Some(value) = lanes.checked_sub(u8::from(nulls) + u8::from(tag)).filter(|value| *value > 0) else {
            return malformed(format!("{lanes} lanes are too few for its flags"));
        };
        self.lanes = Lanes { value, nulls, tag };
        self.key_id = KeyId(array_at(header, 4));
        let mut magnitude = [0; 8];
        magnitude[..6].copy_from_slice(&header[12..]);
        self.magnitude = u64::from_le_bytes(magnitude);
        if self.magnitude > MAX_MAGNITUDE {
            return malformed("its magnitude exceeds the message space".to_owned());
        }
        let (mask, bodies) = match rest.len().checked_sub(8 * usize::from(lanes)) {
            Some(at) => rest.split_at(at),
            None => return malformed(format!("{} bytes are too few for {lanes} lanes", bytes.len())),
        };
        if flags & DENSE == 0 {
            self.read_terms(mask, usize::from(terms))?;
        } else {
            self.read_dense(mask, terms)?;
        }
        self.bodies.clear();
        self.bodies.extend(words(bodies));
        self.noise().checked().map(|_| ()).or_else(|_| malformed("its noise exceeds the budget".to_owned()))
    }

    fn read_terms(&mut self, bytes: &[u8], count: usize) -> Result<(), CellError> {
        let mut terms = match std::mem::replace(&mut self.mask, Mask::Affine(Vec::new())) {
            Mask::Affine(terms) => terms,
            Mask::Dense { .. } => Vec::new(),
        };
        terms.clear();
        if count > MAX_TERMS || bytes.len() != count * TERM {
            return malformed(format!("{} bytes do not hold {count} terms", bytes.len()));
        }
        let mut positive = 0;
        for (seed, rest) in bytes.as_chunks::<TERM>().0.iter().map(|term| term.split_at(16)) {
            let term = Term {
                seed: Seed(array_at(seed, 0)),
                coefficient: i16::from_le_bytes(array_at(rest, 0)),
                index: u16::from_le_bytes(array_at(rest, 2)),
            };
            if term.coefficient == 0 || !fits_chunk(term.index, self.lanes) {
                return malformed("a term is out of range".to_owned());
            }
            if terms.last().is_some_and(|last: &Term| last.place() >= term.place()) {
                return malformed("its terms are out of order".to_owned());
            }
            positive += usize::from(term.coefficient > 0);
            terms.push(term);
        }
        if self.lanes.nulls && positive != 0 && positive != count {
            return malformed("terms of both signs would cancel hidden NULLs".to_owned());
        }
        self.mask = Mask::Affine(terms);
        Ok(())
    }

    fn read_dense(&mut self, bytes: &[u8], terms: u8) -> Result<(), CellError> {
        let expected = 16 + 8 * POLYNOMIAL_SIZE * self.lanes.total();
        if bytes.len() != expected || terms != 0 {
            return malformed(format!("a dense mask of {} bytes should have {expected}", bytes.len()));
        }
        let (norms, mask) = bytes.split_at(16);
        self.mask = Mask::Dense {
            noise: Noise {
                absolute: u64::from_le_bytes(array_at(norms, 0)),
                squares: u64::from_le_bytes(array_at(norms, 8)),
            },
            words: words(mask).collect(),
        };
        Ok(())
    }

    /// Appends the cell's bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let (kind, terms) = match &self.mask {
            Mask::Affine(terms) => (0, terms.len() as u8),
            Mask::Dense { .. } => (DENSE, 0),
        };
        let flags = kind | if self.lanes.nulls { NULLS } else { 0 } | if self.lanes.tag { TAG } else { 0 };
        out.extend_from_slice(&[CELL_VERSION, flags, self.lanes.total() as u8, terms]);
        out.extend_from_slice(&self.key_id.0);
        out.extend_from_slice(&self.magnitude.to_le_bytes()[..6]);
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
        let checksum = checksum_of(&out[start..]);
        out.extend_from_slice(&checksum);
    }
}

fn checksum_of(content: &[u8]) -> [u8; CHECKSUM] {
    (xxh3_64(content) as u32).to_le_bytes()
}

/// `N` bytes at a place that the caller has checked to exist.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

fn malformed<T>(why: String) -> Result<T, CellError> {
    Err(CellError::Malformed(why))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(lanes: Lanes) -> Cell {
        let bodies: Vec<u64> = (0..lanes.total() as u64).map(|l| 0x0123_4567_89ab_cdef ^ l).collect();
        Cell::fresh(KeyId([7; 8]), lanes, 128, Seed([9; 16]), 40, &bodies).unwrap()
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
        bytes[0] = 2;
        let error = Cell::from_bytes(&bytes).unwrap_err();
        assert!(matches!(error, CellError::FromTheFuture { found: 2, .. }), "{error}");
    }

    /// Any header behind a valid checksum: the parser itself must hold.
    fn with_checksum(mut content: Vec<u8>) -> Vec<u8> {
        let checksum = checksum_of(&content);
        content.extend_from_slice(&checksum);
        content
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(
            flags in 0u8..8,
            lanes in 0u8..6,
            terms in 0u8..4,
            mut content in proptest::collection::vec(any::<u8>(), 18..160),
        ) {
            content[..4].copy_from_slice(&[CELL_VERSION, flags, lanes, terms]);
            let bytes = with_checksum(content);
            if let Ok(cell) = Cell::from_bytes(&bytes) {
                prop_assert_eq!(cell.to_bytes(), bytes);
            }
        }

        #[test]
        fn random_bytes_are_refused(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Cell::from_bytes(&content).is_err());
        }
    }
}
