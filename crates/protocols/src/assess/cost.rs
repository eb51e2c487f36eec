//! What an assessment takes, before it begins.

use veil_slots::DEGREE;

use super::ratio::{MAX_NUMBERS, block_of};
use crate::Layout;
use crate::k_anonymize::Cost;
use crate::k_anonymize::cost::{Shape as Clusters, Tally};
use crate::shuffle::stages::Network;

/// Memory of a vector that P1 keeps: two components of four primes.
const VECTOR_MEMORY: usize = 2 * 4 * 8 * DEGREE;

/// What the cost follows from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Rows of the table.
    pub rows: usize,
    /// Quasi-identifiers that are compared by tags.
    pub tagged: usize,
    /// Lanes of each quasi-identifier that is compared by its values.
    pub valued: Vec<usize>,
    /// Sets of quasi-identifiers whose classes are counted.
    pub sets: usize,
    /// Whether some rows are suppressed.
    pub suppressed: bool,
    /// Categories that are measured: for every level below the root how many codes it has; zero if that is not known.
    pub categories: Vec<Vec<usize>>,
    /// Which of them are held against the original ones.
    pub held: Vec<Vec<usize>>,
    /// Which of them lose entropy: those whose frequencies are counted.
    pub counted: Vec<Vec<usize>>,
    /// Widths of the columns of numbers that are measured.
    pub numbers: Vec<u32>,
    /// Whether their bounds are encrypted.
    pub encrypted_bounds: bool,
    /// Whether widths of classes are measured.
    pub ranges: bool,
}

impl Shape {
    /// The most that it takes, but for how large classes are, which nobody knows before.
    pub fn cost(&self) -> Cost {
        let mut tally = Tally::default();
        if self.rows == 0 {
            return tally.into();
        }
        tally.add_times(1, self.prepared());
        tally.add_times(1, self.classes());
        tally.add_times(1, self.held());
        tally.add_times(1, self.generalised());
        tally.add_times(1, self.entropy());
        if !self.numbers.is_empty() {
            tally.add_times(1, self.information_loss());
            if self.ranges {
                tally.add_times(1, self.widths());
            }
        }
        tally.into()
    }

    /// Memory of P1 at its peak, beside the table itself.
    pub fn memory(&self) -> usize {
        let (chunks, vectors) = (self.chunks(), Layout::new(self.rows).vectors_per_list());
        // The digits of whole vectors that are divided at the same time.
        let dividing = match (self.numbers.is_empty(), self.rows < DEGREE / 2) {
            (true, _) => 0,
            (false, true) => 128,
            (false, false) => 1000 + 128 * chunks.min(8),
        };
        let codes = self.categories.iter().flatten().copied().max().unwrap_or(0);
        let ranges = if self.ranges { 12 * (self.numbers.len() + 1) * vectors } else { 0 };
        let lanes = self.tagged + self.valued.iter().sum::<usize>();
        let classes = 2 * lanes * vectors + 3 * vectors.max(64);
        (dividing.max(4 * codes) + ranges + classes).saturating_mul(VECTOR_MEMORY)
    }

    /// Vectors of a lane.
    fn chunks(&self) -> usize {
        self.rows.div_ceil(DEGREE)
    }

    /// Lanes of cells into slots: a cell takes about half of what a slot does.
    fn lifted(&self, lanes: usize) -> Tally {
        let mut tally = Tally::default();
        tally.add(lanes, lanes * self.chunks().div_ceil(2), lanes * self.chunks());
        tally
    }

    /// Columns as labels of their values.
    fn prepared(&self) -> Tally {
        let layout = Layout::new(self.rows);
        let lanes: usize = self.valued.iter().sum();
        let mut tally = self.lifted(lanes);
        if self.tagged > 0 {
            tally.add(1, self.tagged * self.chunks().div_ceil(2), self.tagged * self.chunks());
        }
        let repeated = if layout.lists_per_vector() > 1 { self.tagged } else { 0 };
        let labelled = (self.valued.len() + repeated) * layout.vectors_per_list();
        if labelled > 0 {
            tally.add(1, labelled, 3 * labelled);
        }
        if self.suppressed {
            tally.add_times(1, self.lifted(1));
            if layout.lists_per_vector() > 1 {
                tally.add(1, 1, 1);
            }
        }
        tally
    }

    /// Class sizes of all sets.
    fn classes(&self) -> Tally {
        let (layout, mut tally) = (Layout::new(self.rows), Tally::default());
        let per_list = layout.vectors_per_list();
        let vectors = self.sets.div_ceil(layout.lists_per_vector()) * per_list;
        let windows = vectors.div_ceil((64 / per_list).max(1) * per_list);
        let (rounds, arrangements) = (layout.rounds(), layout.arrangements_per_vector());
        tally.add(windows * (2 + rounds), vectors * (2 + rounds), vectors * (3 + arrangements));
        if self.suppressed {
            tally.add(windows, 2 * vectors, 3 * vectors);
        }
        tally
    }

    /// How far up categories went.
    fn generalised(&self) -> Tally {
        let (mut tally, chunks) = (Tally::default(), self.chunks());
        for levels in &self.categories {
            tally.add_times(1, self.lifted(levels.len()));
            for codes in levels {
                match codes {
                    0 => tally.add(6 * chunks.div_ceil(4), 10 * chunks, 170 * chunks),
                    codes => tally.add(chunks.div_ceil(4), (codes + 1) * chunks, (codes + 1) * chunks),
                }
            }
            tally.add(1, 2, 2);
        }
        if !self.categories.is_empty() {
            tally.add(1, 1, 0);
        }
        tally
    }

    /// Whether they were moved up: both lanes of a level and their product.
    fn held(&self) -> Tally {
        let (mut tally, chunks) = (Tally::default(), self.chunks());
        for levels in &self.held {
            for _ in levels {
                tally.add_times(2, self.lifted(1));
                tally.add(chunks.div_ceil(4), 2 * chunks, 3 * chunks);
            }
            tally.add(1, levels.len(), levels.len());
        }
        if !self.held.is_empty() {
            tally.quotient(1, self.held.len(), 48, 1);
            tally.add(1, 1, 0);
        }
        tally
    }

    /// What categories no longer tell.
    fn entropy(&self) -> Tally {
        let (mut tally, chunks) = (Tally::default(), self.chunks());
        for levels in &self.counted {
            for codes in levels.first().into_iter().chain(levels) {
                tally.add_times(1, self.lifted(1));
                tally.add(chunks, (codes + 1) * chunks, (codes + 1) * chunks);
                tally.add(1, *codes, *codes);
            }
            let nodes = levels.iter().sum::<usize>() + 1;
            tally.add_times(1, Clusters { rows: self.rows, centres: nodes, columns: 1, lanes: 0 }.looking_up(1, 1));
            tally.multiply(2);
            tally.add(1, 2, 2);
        }
        if !self.counted.is_empty() {
            tally.add_times(1, divided(self.counted.len(), true));
        }
        tally
    }

    /// How far numbers were moved.
    fn information_loss(&self) -> Tally {
        let (mut tally, chunks, numbers) = (Tally::default(), self.chunks(), self.numbers.len());
        if self.encrypted_bounds {
            tally.add_times(1, scaled(numbers));
        }
        let mut column = self.lifted(2);
        column.add_times(2, self.on_grid());
        column.multiply(2 * chunks);
        if self.suppressed {
            column.multiply(3 * chunks);
            column.add(0, 2, 2);
        }
        column.add(1, 3, 3);
        tally.add_times(numbers, column);
        let twice = if self.suppressed { 2 } else { 1 };
        tally.quotient(1, twice * numbers, 31, 2);
        tally.multiply(1);
        if self.suppressed {
            tally.add(1, 1, 1);
            tally.multiply(1);
            tally.multiply(1);
        }
        tally.quotient(1, twice * numbers, 46, 2);
        tally.multiply(1);
        tally.add_times(1, divided(twice * numbers, self.rows > 1 << 10));
        tally
    }

    /// Numbers to places on the grid.
    fn on_grid(&self) -> Tally {
        let (mut tally, chunks) = (Tally::default(), self.chunks());
        for (windows, vectors) in [(chunks / 8, 8), (usize::from(!chunks.is_multiple_of(8)), chunks % 8)] {
            let mut window = Tally::default();
            window.multiply(vectors);
            window.quotient(vectors, self.rows.min(DEGREE), 32, 3);
            tally.add_times(windows, window);
        }
        tally
    }

    /// How wide classes are.
    fn widths(&self) -> Tally {
        let (layout, numbers) = (Layout::new(self.rows), self.numbers.len());
        let (vectors, rounds) = (layout.vectors_per_list(), layout.rounds());
        let mut tally = self.prepared();
        tally.add_times(1, self.lifted(numbers));
        if self.encrypted_bounds {
            tally.add_times(1, scaled(numbers));
        }
        tally.add(1, vectors, 3 * vectors);
        if self.suppressed {
            tally.multiply(vectors);
        }
        let lists = (numbers + 1) * vectors;
        tally.add(rounds, rounds * lists, layout.arrangements_per_vector() * lists);
        for stage in Network::new(layout.bits()).stages {
            let ways = 1 << (stage.bits.len() + stage.vector_bits.len());
            tally.add(1, lists, (ways - 1 + numbers) * vectors);
        }
        let bits = self.numbers.iter().copied().max().unwrap_or(1) as usize;
        // As if all rows were one class; several take as many comparisons, in a few more rounds.
        let mut left = self.rows;
        while left > 1 {
            let (pairs, ends) = (left / 2, if left == self.rows { 1 } else { 2 });
            let of_list = pairs.div_ceil(DEGREE);
            let used = if of_list == 1 { pairs } else { DEGREE };
            tally.add(1, ends * numbers * (2 * of_list).min(vectors + 1), ends * numbers * 2 * of_list);
            tally.quotient(ends * numbers * of_list, used, bits, 2);
            tally.multiply(ends * numbers * of_list);
            left = left.div_ceil(2);
        }
        tally.add(2, 6 * numbers, 6 * numbers);
        tally.add_times(1, divided(numbers, true));
        tally
    }
}

/// Scales of columns with encrypted bounds.
fn scaled(numbers: usize) -> Tally {
    let mut tally = Tally::default();
    tally.add(5, 16, 188);
    tally.add(1, 1, 3 * numbers);
    tally.multiply(1);
    tally.multiply(1);
    tally.quotient(1, numbers, 33, 2);
    tally.add(1, 1, numbers);
    tally
}

/// Quotients of so many numbers, and their opening.
fn divided(numbers: usize, shortened: bool) -> Tally {
    let mut tally = Tally::default();
    for first in (0..numbers).step_by(MAX_NUMBERS) {
        let block = block_of(MAX_NUMBERS.min(numbers - first));
        if shortened {
            tally.quotient(2, block, 8, 3);
        }
        tally.add(1, 2, 2);
        for digit in 0..6 {
            tally.quotient(if digit == 0 { 2 } else { 1 }, 17 * block, 45, 2);
            tally.add(1, 1, 1);
            tally.multiply(1);
        }
        tally.add(1, 1, 1);
        tally.multiply(1);
        tally.add(1, 1, 0);
    }
    tally
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::ArrayRef;
    use veil_cells::{CellType, ColumnId, Kind, Nulls, Width};
    use veil_keys::{encrypt_column, encrypt_constants};

    use super::super::generalisation::tests::{cells, rows, shape};
    use super::super::{
        Classes, Frequencies, Numbers, Published, Suppressed, ancestors, class_sizes, entropy, generalisation,
        information_loss, ranges,
    };
    use super::*;
    use crate::identifiers::Column;
    use crate::k_anonymize::{Bounds, Values};
    use crate::testing::Parties;

    /// Rounds and bytes of whole assessments are within two fifths of what was foretold.
    #[tokio::test(flavor = "multi_thread")]
    async fn assessments_cost_what_was_foretold() {
        let mut parties = Parties::new(695);
        for count in [300usize, 9000] {
            let tags: Vec<u64> = (0..count as u64).map(|row| 100 + row / 12).collect();
            let tagged: ArrayRef = Arc::new(parties.tagged_cells(Nulls::default(), &tags, None));
            let cell_type =
                |width: Width| CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([3; 8]));
            let (flag, number) = (cell_type(Width::NARROWEST), cell_type(Width::of_range(0, 999).unwrap()));
            let gone: Vec<i64> = (0..count).map(|row| i64::from(row % 50 == 7)).collect();
            let values: Vec<i64> = (0..count).map(|row| (row * 7919 % 1000) as i64).collect();
            let mut seal = |of: &CellType, values: &[i64]| -> ArrayRef {
                Arc::new(encrypt_column(&parties.owner, of, values, None, &mut parties.rng).unwrap())
            };
            let (flags, numbers) = (seal(&flag, &gone), seal(&number, &values));
            let bounds = Bounds::Encrypted(Arc::new(encrypt_constants(&parties.owner, &number, 0, 999).unwrap()));
            let bits = number.width.bits();
            let original = Values::Numbers { cells: numbers.clone(), bits, bounds };
            let numbers = [Numbers { original, published: numbers, bits }];
            let published = rows(count);
            let leaves: Vec<Vec<i64>> = (0..count).map(|row| shape()[row % 5].clone()).collect();
            let mut category = |rows: &[Vec<i64>]| {
                let cells = cells(&mut parties, rows);
                Published { cells, levels: 3, bits: 8, shape: Some(shape().into()) }
            };
            let frequencies = [Frequencies { original: category(&leaves), published: category(&published) }];
            let (session, columns) = (parties.session.clone(), vec![Column::Tags(tagged)]);
            let traffic = session.traffic();
            let before = [traffic.rounds(), traffic.bytes_up(), traffic.bytes_down()];
            let suppressed = Suppressed::lift(&session, &flags).await.unwrap();
            let gone = Some(&suppressed);
            let sizes = class_sizes(Some(&session), count, columns.clone(), gone, &[1, 1], &|_| ()).await.unwrap();
            assert_eq!(ancestors(&session, &frequencies).await.unwrap(), [true]);
            generalisation(&session, &[frequencies[0].published.clone()], &|_| ()).await.unwrap();
            entropy(&session, &frequencies, &|_| ()).await.unwrap();
            information_loss(&session, count, &numbers, gone, &|_| ()).await.unwrap();
            let classes = Classes { columns, suppressed: gone, sizes: &sizes[0] };
            ranges(&session, count, classes, &numbers, &|_| ()).await.unwrap();
            let after = [traffic.rounds(), traffic.bytes_up(), traffic.bytes_down()];
            let cost = Shape {
                rows: count,
                tagged: 1,
                sets: 2,
                suppressed: true,
                categories: vec![vec![5, 2]],
                held: vec![vec![5, 2]],
                counted: vec![vec![5, 2]],
                numbers: vec![bits],
                encrypted_bounds: true,
                ranges: true,
                ..Shape::default()
            };
            let cost = cost.cost();
            let foretold = [cost.rounds, cost.bytes_up, cost.bytes_down];
            let real: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
            for (real, foretold) in real.iter().zip(foretold) {
                let share = foretold as f64 / *real as f64;
                assert!((0.7..=1.4).contains(&share), "{count} rows: {foretold} foretold, and {real}");
            }
        }
    }
}
