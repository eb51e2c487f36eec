//! A column in slots, which knows how many rows it has.
//!
//! ```text
//!  a column of 20,000 rows     | 0 .. | 8192 .. | 16384 ..      0 |              a vector for every 8192 rows
//!  a list of 20,000 rows       | 0 .. | 8192 .. | 16384 ..      0 |       0 |    a power of two of them, as `Layout` has it
//! ```
//! The two differ wherever the number of vectors is no power of two. So nothing but this type turns the one into the other, and lists of vectors of several columns are
//! put together and cut apart by [`lists`](crate::lists) alone, which has their lengths from the lists that went in.

use std::ops::Deref;

use veil_slots::{DEGREE, L1, Offset, Slots};

use crate::{Layout, ProtocolError};

/// The numbers of a column's rows, 8192 a vector. What stands behind the last row means nothing. It derefs to its vectors.
#[derive(Clone, Debug)]
pub struct ColumnVectors {
    rows: usize,
    vectors: Vec<Slots<L1>>,
}

impl ColumnVectors {
    /// Of so many rows. Refuses more or fewer vectors than they take.
    pub fn new(rows: usize, vectors: Vec<Slots<L1>>) -> Result<Self, ProtocolError> {
        let (expected, found) = (rows.div_ceil(DEGREE), vectors.len());
        match found == expected {
            true => Ok(Self { rows, vectors }),
            false => Err(ProtocolError::Misuse(format!("{rows} rows take {expected} vectors, and there are {found}"))),
        }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A vector for every 8192 rows.
    pub fn into_vectors(self) -> Vec<Slots<L1>> {
        self.vectors
    }

    /// Adds a clear number to every row, modulo `t`. Numbers that are missing are zero.
    pub fn add_clear(&mut self, numbers: &[u64]) {
        let parts = self.vectors.iter_mut().zip(numbers.chunks(DEGREE));
        parts.for_each(|(slots, numbers)| slots.add_clear(&Offset::new(numbers)));
    }

    /// As many vectors as a list of these rows takes: behind the column's own there are zeros.
    pub fn into_list(self, layout: Layout) -> Result<Vec<Slots<L1>>, ProtocolError> {
        let Self { rows, mut vectors } = self;
        if rows != layout.rows() {
            let text = format!("a column of {rows} rows is no list of {}", layout.rows());
            return Err(ProtocolError::Misuse(text));
        }
        vectors.resize(layout.vectors_per_list(), Slots::clear(&[]));
        Ok(vectors)
    }
}

impl Deref for ColumnVectors {
    type Target = [Slots<L1>];

    fn deref(&self) -> &[Slots<L1>] {
        &self.vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_a_vector_for_every_8192_rows_and_a_list_a_power_of_two() {
        let lists = [0, 1, DEGREE, DEGREE + 1, 2 * DEGREE + 1, 4 * DEGREE, 4 * DEGREE + 1, 5 * DEGREE].map(|rows| {
            let vectors = vec![Slots::clear(&[1]); rows.div_ceil(DEGREE)];
            let column = ColumnVectors::new(rows, vectors).unwrap();
            assert_eq!(column.rows(), rows);
            (column.len(), column.into_list(Layout::new(rows)).unwrap().len())
        });
        assert_eq!(lists, [(0, 1), (1, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (5, 8)]);
    }

    #[test]
    fn vectors_that_are_not_those_of_the_rows_are_refused() {
        let new = |rows: usize, vectors: usize| ColumnVectors::new(rows, vec![Slots::clear(&[]); vectors]);
        let error = new(2 * DEGREE + 1, 4).unwrap_err();
        assert_eq!(error.to_string(), format!("{} rows take 3 vectors, and there are 4", 2 * DEGREE + 1));
        assert!(new(2 * DEGREE, 3).is_err() && new(0, 1).is_err() && new(1, 0).is_err());
        let error = new(7, 1).unwrap().into_list(Layout::new(8)).unwrap_err();
        assert_eq!(error.to_string(), "a column of 7 rows is no list of 8");
    }
}
