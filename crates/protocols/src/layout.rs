//! How rows lie in vectors.
//!
//! ```text
//!  rows <= 4096     | list 0 .. | list 1 .. | list 2 .. | ..  one vector      each list in a block, the next power of two
//!  rows >  4096     | list ..            | | .. list ..            |          one list in 1, 2, 4, .. vectors
//! ```

use veil_slots::DEGREE;

use crate::shuffle::stages::Network;

/// How the rows of lists of one length lie in vectors: each list in a block whose length is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    rows: usize,
    block: usize,
}

impl Layout {
    /// For lists of so many rows. A list without rows lies where a single row would.
    pub fn new(rows: usize) -> Self {
        Self { rows, block: rows.checked_next_power_of_two().unwrap_or(1 << (usize::BITS - 1)) }
    }

    /// Rows of a list.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Places of a list.
    pub fn block(&self) -> usize {
        self.block
    }

    /// Lists side by side in one vector; one if a list fills it.
    pub fn lists_per_vector(&self) -> usize {
        (DEGREE / self.block).max(1)
    }

    /// Vectors of one list; one if lists share it.
    pub fn vectors_per_list(&self) -> usize {
        (self.block / DEGREE).max(1)
    }

    /// Rounds of a shuffle.
    pub fn rounds(&self) -> usize {
        Network::new(self.bits()).stages.len()
    }

    /// Ciphertexts that a shuffle sends to P2, for each vector: one a round.
    pub fn uploads_per_vector(&self) -> usize {
        self.rounds()
    }

    /// Ciphertexts that a shuffle gets back, for each vector.
    pub fn arrangements_per_vector(&self) -> usize {
        Network::new(self.bits()).stages.iter().map(|stage| 1 << stage.bits.len()).sum()
    }

    /// Bits of a place in a block.
    pub(crate) fn bits(&self) -> u32 {
        self.block.ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lists_share_a_vector_and_long_ones_take_several() {
        let seen = |rows: usize| {
            let layout = Layout::new(rows);
            assert_eq!(layout.rows(), rows);
            (layout.block(), layout.lists_per_vector(), layout.vectors_per_list())
        };
        assert_eq!(seen(0), (1, 8192, 1));
        assert_eq!(seen(1), (1, 8192, 1));
        assert_eq!(seen(3), (4, 2048, 1));
        assert_eq!(seen(4096), (4096, 2, 1));
        assert_eq!(seen(4097), (8192, 1, 1));
        assert_eq!(seen(8193), (16384, 1, 2));
        assert_eq!(seen(30162), (32768, 1, 4));
        assert_eq!(seen(usize::MAX).1, 1);
    }

    /// Rounds, and ciphertexts in both directions.
    #[test]
    fn the_cost_of_a_shuffle_is_known_before_it() {
        let cost = |rows: usize| {
            let layout = Layout::new(rows);
            (layout.rounds(), layout.uploads_per_vector(), layout.arrangements_per_vector())
        };
        assert_eq!([0, 1].map(cost), [(0, 0, 0); 2]);
        assert_eq!([2, 4, 8].map(cost), [(1, 1, 2), (1, 1, 4), (1, 1, 8)]);
        assert_eq!([16, 32, 1000].map(cost), [(3, 3, 12), (3, 3, 16), (9, 9, 36)]);
        assert_eq!([4096, 8192, 8193, 32768].map(cost), [(11, 11, 44), (11, 11, 48), (11, 11, 48), (11, 11, 48)]);
    }
}
