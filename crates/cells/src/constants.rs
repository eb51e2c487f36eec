//! Encrypted constants of a column of numbers: its declared bounds and the reciprocal of their distance.
//!
//! They are cells, so that the engine can compute with them: `u* + l* - d*` flips a binary value, and
//! `(d* - l*) * reciprocal* / 2^40` maps a value to `[0, 1]`. They ride in the field's metadata, base64 of
//!
//! ```text
//!  byte 0     format version (1)
//!  then three times, for lower, upper, reciprocal: length (u16, little-endian), cell
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::{Cell, CellError};

/// The field metadata that carries them.
pub const CONSTANTS_METADATA_KEY: &str = "veil.constants";

/// The reciprocal is `floor(2^40 / (upper - lower))`, or zero if the bounds coincide.
pub const RECIPROCAL_BITS: u32 = 40;

const VERSION: u8 = 1;

/// The constants of one column, each a cell with a single lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnConstants {
    /// The smallest value that the owner declared.
    pub lower: Cell,
    /// The largest value that the owner declared.
    pub upper: Cell,
    /// `floor(2^40 / (upper - lower))`.
    pub reciprocal: Cell,
}

impl ColumnConstants {
    /// The text for the field's metadata.
    pub fn to_metadata(&self) -> String {
        let mut bytes = vec![VERSION];
        for cell in [&self.lower, &self.upper, &self.reciprocal] {
            let cell = cell.to_bytes();
            bytes.extend_from_slice(&(cell.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&cell);
        }
        STANDARD.encode(bytes)
    }

    /// Reads the text of the field's metadata.
    pub fn from_metadata(text: &str) -> Result<Self, CellError> {
        let damaged = || CellError::Malformed("the column's constants are damaged".to_owned());
        let bytes = STANDARD.decode(text).map_err(|_| damaged())?;
        let (version, mut rest) = bytes.split_first().ok_or_else(damaged)?;
        if *version != VERSION {
            return Err(CellError::FromTheFuture {
                what: "the column's constants",
                found: *version,
                supported: VERSION,
            });
        }
        let mut next = || {
            let (length, after) = rest.split_first_chunk::<2>().ok_or_else(damaged)?;
            let (cell, after) = after.split_at_checked(u16::from_le_bytes(*length).into()).ok_or_else(damaged)?;
            rest = after;
            Cell::from_bytes(cell)
        };
        let constants = Self { lower: next()?, upper: next()?, reciprocal: next()? };
        if rest.is_empty() { Ok(constants) } else { Err(damaged()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyId, Lanes, Seed};

    fn constants() -> ColumnConstants {
        let cell = |index| Cell::fresh(KeyId([1; 8]), Lanes::NUMBER, Some(128), Seed([2; 16]), index, &[3]).unwrap();
        ColumnConstants { lower: cell(0), upper: cell(1), reciprocal: cell(2) }
    }

    #[test]
    fn text_round_trips() {
        assert_eq!(ColumnConstants::from_metadata(&constants().to_metadata()).unwrap(), constants());
    }

    #[test]
    fn damaged_text_is_refused() {
        let text = constants().to_metadata();
        for length in 0..text.len() {
            assert!(ColumnConstants::from_metadata(&text[..length]).is_err(), "{length}");
        }
        assert!(ColumnConstants::from_metadata(&format!("{text}AAAA")).is_err());
    }
}
