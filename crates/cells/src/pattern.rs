//! What of a row is in a value.
//!
//! ```text
//!  one sample      column, lane                    | column, lane, factor            as they are, so that no two are alike
//!  several         H(its parts' columns, in order) | H(its parts, in order)          H: the first half of SHA-256, under a name for every use
//! ```
//! The left half is the same whatever the factors are, and its last three bytes are always column and lane if there is but one, so that a value can
//! be held against the column that it is said to be of. Whoever writes a query chooses columns and factors, and must not find two choices of one
//! pattern: a sum that weights one row otherwise than all others would pass for an even one. So parts are hashed and not added up, sums of hashes
//! being easy to bring to any value where there are many to choose from (Wagner: A generalized birthday problem, CRYPTO 2002).

use sha2::{Digest, Sha256};

use crate::cell::Term;
use crate::{CellError, ChunkRows, ColumnId};

/// Bytes of a pattern.
pub(crate) const PATTERN: usize = 32;

/// Marks what is hashed.
const HASHED: u128 = 1 << 127;

/// The bits that say of which column and lane it is.
const COLUMN: u128 = 0xff_ffff;

/// What stands there of several.
const SEVERAL: u128 = 0xff_ffff;

/// And of a row itself, where what was made has nothing of its encrypted columns.
const ROW: u128 = 0xff_fffe;

/// How far from its own number a column's may be: those before it in a file may have taken that.
const NEIGHBOURS: u16 = 8;

/// Which columns of a row are in a value, with which factors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern {
    columns: u128,
    weighted: u128,
}

impl Pattern {
    /// A lane of a column with a factor.
    pub fn of(column: u16, lane: u8, factor: i64) -> Self {
        let columns = u128::from(column) << 8 | u128::from(lane);
        Self { columns, weighted: columns << 64 | u128::from(factor as u64) }
    }

    /// A row of one of several files that were joined.
    pub(crate) fn of_row(at: u16) -> Self {
        let columns = u128::from(at) << 24 | ROW;
        Self { columns, weighted: columns << 64 | 1 }
    }

    /// Whether it is of no other column than this.
    pub fn is_of(self, column: ColumnId) -> bool {
        match self.columns & COLUMN {
            ROW => true,
            SEVERAL => false,
            one => ((one >> 8) as u16).wrapping_sub(column.number()) < NEIGHBOURS,
        }
    }

    /// A sample of a row of a file.
    #[inline]
    pub(crate) fn of_sample(rows: &ChunkRows, term: &Term) -> Self {
        let lane = term.index % u16::from(rows.samples.max(1));
        Self::of(rows.column, lane as u8, term.coefficient.into())
    }

    /// Both at once. Of several it does not matter which two are put together first, if they ascend.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = |a: u128, b: u128| hash("and", a.min(b), &a.max(b).to_le_bytes());
        let [ours, theirs] = [self, other].map(|pattern| pattern.columns & COLUMN);
        let column = if ours == theirs { ours } else { SEVERAL };
        let columns = both(self.columns, other.columns) & !COLUMN | column;
        Self { columns, weighted: both(self.weighted, other.weighted) }
    }

    /// The same columns, whatever their factors are.
    #[must_use]
    pub fn unweighted(self) -> Self {
        Self { weighted: 0, ..self }
    }

    /// A value that was made anew of one with this pattern.
    #[must_use]
    pub fn made(self, by: &str) -> Self {
        let made = |before| hash("made", before, by.as_bytes());
        let columns = made(self.columns) & !COLUMN | self.columns & COLUMN;
        Self { columns, weighted: made(self.weighted) }
    }

    /// All of it times a factor.
    #[must_use]
    pub(crate) fn times(self, factor: i64) -> Self {
        match factor {
            1 => self,
            _ => Self { weighted: hash("times", self.weighted, &factor.to_le_bytes()), ..self },
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; PATTERN] {
        let mut bytes = [0; PATTERN];
        let (columns, weighted) = bytes.split_at_mut(PATTERN / 2);
        columns.copy_from_slice(&self.columns.to_le_bytes());
        weighted.copy_from_slice(&self.weighted.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; PATTERN]) -> Result<Self, CellError> {
        match bytes.as_chunks::<{ PATTERN / 2 }>().0 {
            [columns, weighted] => {
                Ok(Self { columns: u128::from_le_bytes(*columns), weighted: u128::from_le_bytes(*weighted) })
            }
            _ => Err(CellError::Malformed("the rows that it is of are not understood".to_owned())),
        }
    }
}

fn hash(name: &str, first: u128, second: &[u8]) -> u128 {
    let digest = Sha256::new()
        .chain_update([name.len() as u8])
        .chain_update(name)
        .chain_update(first.to_le_bytes())
        .chain_update(second)
        .finalize();
    let mut half = [0; 16];
    half.iter_mut().zip(digest).for_each(|(byte, of)| *byte = of);
    HASHED | u128::from_le_bytes(half)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn columns_lanes_and_factors_are_told_apart() {
        let mut all = HashSet::new();
        for column in [0, 1, 255, 256, u16::MAX] {
            for lane in [0, 1, 254] {
                for factor in [1, -1, 2, 4095, i64::MIN] {
                    let one = Pattern::of(column, lane, factor);
                    for pattern in [one, one.times(3), one.times(-1), one.made("a"), one.made("b"), one.and(one)] {
                        assert!(all.insert(pattern), "{column} {lane} {factor}");
                        assert_eq!(Pattern::from_bytes(&pattern.to_bytes()).unwrap(), pattern);
                    }
                }
            }
        }
    }

    #[test]
    fn values_are_held_against_their_column() {
        let column = ColumnId([1, 44, 9, 9, 9, 9, 9, 9]);
        let own = Pattern::of(300, 2, 5);
        for pattern in [own, Pattern::of(307, 0, 1), own.made("x").times(3), own.and(own), Pattern::of_row(4).made("x")]
        {
            assert!(pattern.is_of(column), "{pattern:?}");
        }
        for pattern in [Pattern::of(299, 0, 1), Pattern::of(308, 0, 1), own.and(Pattern::of(301, 2, 1)).made("x")] {
            assert!(!pattern.is_of(column), "{pattern:?}");
        }
    }

    #[test]
    fn factors_are_left_out_where_they_do_not_matter() {
        let [a, b] = [Pattern::of(1, 0, 1), Pattern::of(2, 0, 1)];
        let with = |factor: i64| Pattern::of(1, 0, factor).unweighted();
        assert_eq!(with(1), with(-700));
        assert_eq!(a.times(9).unweighted(), a.unweighted());
        assert_eq!(a.and(b), b.and(a));
        assert_eq!(a.and(Pattern::of(2, 0, 5)).unweighted(), a.and(b).unweighted());
        for other in [a, b, a.and(a), a.made("x"), a.and(b).made("x"), a.and(b).and(a)] {
            assert_ne!(a.and(b).unweighted(), other.unweighted());
        }
    }
}
