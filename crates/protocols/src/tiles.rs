//! Where pairs of a row and a centre lie in vectors.
//!
//! ```text
//!  rows <= 4096     | rows, centre 0 | rows, centre G | rows, centre 2 G | ..   a tile: one centre a block, G tiles
//!  rows >  4096     | rows 0 .. 8191, centre 0 |                                a tile a centre, for every 8192 rows
//! ```
//! Block `b` of tile `g` belongs to centre `b G + g`. So a tournament between tiles first and between blocks afterwards always has
//! the lower centre on one side, and a tie can go to it.

use veil_slots::DEGREE;

use crate::Layout;

/// How the pairs of rows and centres lie in tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    layout: Layout,
    centres: usize,
}

impl Tiles {
    /// For so many rows and centres.
    pub fn new(rows: usize, centres: usize) -> Self {
        Self { layout: Layout::new(rows), centres }
    }

    /// Rows of the table.
    pub fn rows(&self) -> usize {
        self.layout.rows()
    }

    /// How many centres there are.
    pub fn centres(&self) -> usize {
        self.centres
    }

    /// Chunks of rows: one if rows share a vector with copies of themselves.
    pub fn chunks(&self) -> usize {
        self.layout.rows().div_ceil(DEGREE).max(1)
    }

    /// Tiles of a chunk.
    pub fn groups(&self) -> usize {
        self.centres.div_ceil(self.centres_per_tile())
    }

    /// Blocks of a tile.
    pub fn centres_per_tile(&self) -> usize {
        self.layout.lists_per_vector()
    }

    /// The centre that a slot of a tile belongs to.
    pub fn centre_of(&self, group: usize, slot: usize) -> Option<usize> {
        let block = slot / (DEGREE / self.centres_per_tile());
        let centre = block.checked_mul(self.groups())?.checked_add(group)?;
        (group < self.groups() && slot < DEGREE && centre < self.centres).then_some(centre)
    }

    /// The row that a slot of a chunk belongs to.
    pub fn row_of(&self, chunk: usize, slot: usize) -> Option<usize> {
        let row = chunk.checked_mul(DEGREE)?.checked_add(slot % (DEGREE / self.centres_per_tile()))?;
        (slot < DEGREE && row < self.layout.rows()).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every pair of a row and a centre has one slot.
    #[test]
    fn every_pair_lies_in_one_slot() {
        for (rows, centres) in [(1, 3), (3, 2), (100, 7), (1000, 33), (4097, 3), (9000, 5), (4, 2500)] {
            let tiles = Tiles::new(rows, centres);
            let mut seen = vec![0; rows * centres];
            for (chunk, group) in (0..tiles.chunks()).flat_map(|chunk| (0..tiles.groups()).map(move |g| (chunk, g))) {
                for slot in 0..DEGREE {
                    if let (Some(row), Some(centre)) = (tiles.row_of(chunk, slot), tiles.centre_of(group, slot)) {
                        seen[row * centres + centre] += 1;
                    }
                }
            }
            assert!(seen.iter().all(|times| *times == 1), "{rows} rows, {centres} centres");
            assert_eq!((tiles.centre_of(tiles.groups(), 0), tiles.row_of(tiles.chunks(), 0)), (None, None));
            assert_eq!((tiles.centre_of(0, DEGREE), tiles.row_of(0, DEGREE)), (None, None));
        }
    }

    #[test]
    fn short_tables_have_many_centres_a_tile_and_long_ones_one() {
        let seen = |rows, centres| {
            let tiles = Tiles::new(rows, centres);
            (tiles.chunks(), tiles.groups(), tiles.centres_per_tile())
        };
        assert_eq!([seen(0, 1), seen(5, 3), seen(1000, 33)], [(1, 1, 8192), (1, 1, 1024), (1, 5, 8)]);
        assert_eq!([seen(4097, 3), seen(8192, 3), seen(40_000, 2)], [(1, 3, 1), (1, 3, 1), (5, 2, 1)]);
        // In the second block the centres go on where those of the first blocks of all tiles end.
        assert_eq!(Tiles::new(1000, 33).centre_of(4, 1024), Some(9));
    }
}
