//! The shape of a category's hierarchy, without its labels.
//!
//! Choosing another category without seeing the true one takes the numbers that categories are encrypted as. They ride in the
//! field's metadata, unless the owner hides them; the labels stay sealed. Base64 of
//!
//! ```text
//!  byte 0     format version (1)
//!       1     levels
//!  then for every leaf and level: representative (u24, little-endian)
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::CellError;

/// The field metadata that carries it.
pub const SHAPE_METADATA_KEY: &str = "veil.shape";

const VERSION: u8 = 1;

/// Representatives of every leaf and its ancestors, leaf first, root last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CategoryShape {
    codes: Vec<Vec<i64>>,
}

impl CategoryShape {
    /// The most leaves that a shape is written for.
    pub const MAX_LEAVES: usize = 1023;

    /// From the lanes of every leaf; `None` if there are none or too many, or they are not representatives.
    pub fn new(codes: Vec<Vec<i64>>) -> Option<Self> {
        let levels = codes.first()?.len();
        let fits = |leaf: &Vec<i64>| leaf.len() == levels && leaf.iter().all(|code| (0..1 << 24).contains(code));
        let leaves: std::collections::HashSet<_> = codes.iter().filter_map(|leaf| leaf.first()).collect();
        let valid = (1..=255).contains(&levels) && leaves.len() == codes.len() && codes.iter().all(fits);
        (valid && codes.len() <= Self::MAX_LEAVES).then_some(Self { codes })
    }

    /// The lanes of every leaf.
    pub fn codes(&self) -> &[Vec<i64>] {
        &self.codes
    }

    /// The text for the field's metadata.
    pub fn to_metadata(&self) -> String {
        let mut bytes = vec![VERSION, self.codes.first().map_or(0, Vec::len) as u8];
        for code in self.codes.iter().flatten() {
            bytes.extend_from_slice(&code.to_le_bytes()[..3]);
        }
        STANDARD.encode(bytes)
    }

    /// Reads the text of the field's metadata.
    pub fn from_metadata(text: &str) -> Result<Self, CellError> {
        let damaged = || CellError::Malformed("the shape of the column's hierarchy is damaged".to_owned());
        let bytes = STANDARD.decode(text).map_err(|_| damaged())?;
        let ([version, levels], codes) = bytes.split_first_chunk::<2>().ok_or_else(damaged)?;
        if *version != VERSION {
            let what = "the shape of the column's hierarchy";
            return Err(CellError::FromTheFuture { what, found: *version, supported: VERSION });
        }
        let (codes, rest) = codes.as_chunks::<3>();
        let levels = usize::from(*levels);
        if levels == 0 || codes.len() % levels != 0 || !rest.is_empty() {
            return Err(damaged());
        }
        let codes = codes.iter().map(|[a, b, c]| i64::from(u32::from_le_bytes([*a, *b, *c, 0])));
        let codes: Vec<i64> = codes.collect();
        Self::new(codes.chunks_exact(levels).map(<[i64]>::to_vec).collect()).ok_or_else(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_damage_is_refused() {
        let shape = CategoryShape::new(vec![vec![0, 0, 0], vec![16384, 0, 0], vec![32767, 32767, 0]]).unwrap();
        let text = shape.to_metadata();
        assert_eq!(CategoryShape::from_metadata(&text).unwrap(), shape);
        for length in 0..text.len() {
            assert_ne!(CategoryShape::from_metadata(&text[..length]).ok(), Some(shape.clone()), "{length}");
        }
        assert!(CategoryShape::from_metadata(&STANDARD.encode([2, 1, 0, 0, 0])).is_err());
    }

    #[test]
    fn shapes_have_different_leaves() {
        assert!(CategoryShape::new(vec![vec![0, 0], vec![0, 0]]).is_none());
        assert!(CategoryShape::new(vec![vec![0, 0], vec![1]]).is_none());
        assert!(CategoryShape::new(vec![vec![-1]]).is_none());
        assert!(CategoryShape::new(Vec::new()).is_none());
    }
}
