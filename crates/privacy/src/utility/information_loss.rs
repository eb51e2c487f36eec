//! Information loss of numbers: the squared errors of what is published, of those of the mean (Domingo-Ferrer and Torra 2005).
//!
//! `IL = 100 SSE / SST` over columns scaled to unit variance, which is the mean over columns of each one's own ratio: scaling a column
//! changes both of its sums alike. So it is computed column by column on the grid of clusters, `0 ..= 2^15`, without a variance:
//!
//! ```text
//! R            = round(2^31 / N)
//! m            = floor((sum z * R + 2^30) / 2^31)      the mean; at most 2^46 + N 2^14 below the plaintext modulus for N <= 2^24
//! SST          = sum (z - m)^2
//! SSE retained = sum over published rows of (z - z')^2
//! SSE all      = SSE retained + sum over suppressed rows of (z - m)^2
//! q            = SSE / SST in steps of 2^-20                  see `ratio`
//! ```
//! Where SST < N, numbers are on average less than a step from their mean: the grid shows rounding and not what they lost, so that nothing is told.

use super::ratio::{ratio_of, ratio_value};
use crate::clusters::reciprocal;

/// Bits of the fraction of the reciprocal of the number of rows.
pub const MEAN_FRACTION: u32 = 31;

/// Squared errors of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SquaredErrors {
    /// Of the mean: SST.
    pub total: u128,
    /// Of what is published, over published rows: SSE retained.
    pub retained: u128,
    /// With suppressed rows at the mean: SSE all.
    pub all: u128,
    /// Rows, published or not.
    pub rows: u64,
}

impl SquaredErrors {
    /// From original and published coordinates, and which rows are suppressed. Nothing if they are not of the same rows.
    pub fn of(original: &[i64], published: &[i64], suppressed: &[bool]) -> Option<Self> {
        if original.len() != published.len() || original.len() != suppressed.len() {
            return None;
        }
        let mean = grid_mean(original.iter().copied().map(i128::from).sum(), original.len() as u64);
        let square = |one: i64, other: i64| u128::from(one.abs_diff(other)).pow(2);
        let mut errors = Self { rows: original.len() as u64, ..Self::default() };
        for ((z, published), suppressed) in original.iter().zip(published).zip(suppressed) {
            let from_mean = square(*z, mean);
            errors.total += from_mean;
            if *suppressed {
                errors.all += from_mean;
            } else {
                errors.retained += square(*z, *published);
            }
        }
        errors.all += errors.retained;
        Some(errors)
    }

    /// Whether the grid tells the numbers apart, without which their ratios say nothing.
    pub fn varies(&self) -> bool {
        self.total >= least_variation(self.rows).into()
    }

    /// The ratio q over published rows.
    pub fn retained_ratio(&self) -> u64 {
        ratio_of(self.retained, self.total, total_bits(self.rows))
    }

    /// The ratio q over all rows.
    pub fn all_ratio(&self) -> u64 {
        ratio_of(self.all, self.total, total_bits(self.rows))
    }
}

/// The mean of so many coordinates with this sum, by a rounded reciprocal; zero for none.
pub fn grid_mean(sum: i128, rows: u64) -> i64 {
    let product = sum * i128::from(reciprocal(rows, MEAN_FRACTION));
    ((product + (1 << (MEAN_FRACTION - 1))) >> MEAN_FRACTION) as i64
}

/// Below this, SST of so many rows is of numbers that vary by less than a step.
pub fn least_variation(rows: u64) -> u64 {
    rows.max(1)
}

/// SST is at most two to this: a variance is at most a quarter of the squared range, and the rounded mean adds a quarter of a step.
pub fn total_bits(rows: u64) -> u32 {
    rows.max(1).next_power_of_two().ilog2() + 29
}

/// Information loss in percent, from the ratio q of every column; zero for none.
pub fn information_loss(ratios: &[u64]) -> f64 {
    let sum: f64 = ratios.iter().map(|ratio| ratio_value(*ratio)).sum();
    if ratios.is_empty() { 0.0 } else { 100.0 * sum / ratios.len() as f64 }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;
    use crate::clusters::coordinate;

    #[test]
    fn by_hand() {
        // Mean 40 of 10, 20, 30, 100: 900 + 400 + 100 + 3600. Published 15, 15, 30; the last row is suppressed.
        let suppressed = [false, false, false, true];
        let errors = SquaredErrors::of(&[10, 20, 30, 100], &[15, 15, 30, 0], &suppressed).unwrap();
        assert_eq!(errors, SquaredErrors { total: 5000, retained: 50, all: 3650, rows: 4 });
        assert_eq!((errors.retained_ratio(), errors.all_ratio()), (10_484, 765_383));
        assert_eq!(information_loss(&[1 << 20, 0]), 50.0);
        assert_eq!(SquaredErrors::of(&[1], &[1, 2], &[false]), None);
        assert_eq!(SquaredErrors::of(&[], &[], &[]), Some(SquaredErrors::default()));
        assert_eq!(information_loss(&[]), 0.0);
    }

    /// One value in all rows, or values that the grid takes for one: what they lost is not told.
    #[test]
    fn what_does_not_vary_on_the_grid_has_no_loss() {
        let constant = SquaredErrors::of(&[7; 9], &[7; 9], &[false; 9]).unwrap();
        assert_eq!((constant.total, constant.retained, constant.all_ratio(), constant.varies()), (0, 0, 0, false));
        let varies = |range: i64| {
            let grid: Vec<i64> = (0..=30_000).map(|x| coordinate(x, 0, range)).collect();
            SquaredErrors::of(&grid, &vec![0; grid.len()], &vec![false; grid.len()]).unwrap().varies()
        };
        // A standard deviation of 8660: a step of the smallest range is 7629, and of the largest two 65,536 and 15,259.
        assert_eq!([(1 << 31) - 1, 500_000_000, 250_000_000].map(varies), [false, false, true]);
    }

    /// The mean is within a step of the true one for as many rows as clusters may have.
    #[test]
    fn means_of_many_rows() {
        for rows in [1u64, 3, 7, 1000, 150_001, 1 << 20, (1 << 24) - 1, 1 << 24] {
            for z in [0i64, 1, 12_345, 1 << 15] {
                let sum = i128::from(z) * i128::from(rows);
                assert!((grid_mean(sum, rows) - z).abs() <= 1 + (rows >> 17) as i64, "{z} {rows}");
                let product = sum * i128::from(reciprocal(rows, MEAN_FRACTION)) + (1 << 30);
                assert!(product < (1 << 48) - 16383);
            }
        }
        assert_eq!((grid_mean(0, 0), grid_mean(10, 4), grid_mean(9, 4)), (0, 3, 2));
    }

    /// z-scores in floating point: groups of five neighbours publish their means, every twentieth group is suppressed.
    #[test]
    fn agrees_with_z_scores() {
        let mut rng = StdRng::seed_from_u64(8);
        for (rows, spread, base) in [(1080usize, 60_000f64, 1_000f64), (150, 36.0, 43.0), (4000, 1e6, -5e5)] {
            // Skewed as incomes are, in whole units.
            let mut values: Vec<i64> =
                (0..rows).map(|_| (base + spread * rng.random::<f64>().powi(3)) as i64).collect();
            values.sort_unstable();
            let (lower, upper) = (values[0], values[rows - 1]);
            let suppressed: Vec<bool> = (0..rows).map(|row| row / 5 % 20 == 7).collect();
            let group_mean = |values: &[f64], row: usize| {
                let group = &values[row / 5 * 5..(row / 5 * 5 + 5).min(rows)];
                group.iter().sum::<f64>() / group.len() as f64
            };

            let mean = values.iter().sum::<i64>() as f64 / rows as f64;
            let deviation = (values.iter().map(|x| (*x as f64 - mean).powi(2)).sum::<f64>() / rows as f64).sqrt();
            let scores: Vec<f64> = values.iter().map(|x| (*x as f64 - mean) / deviation).collect();
            let retained: f64 = (0..rows)
                .filter(|row| !suppressed[*row])
                .map(|row| (scores[row] - group_mean(&scores, row)).powi(2))
                .sum();
            let all = retained + (0..rows).filter(|row| suppressed[*row]).map(|row| scores[row].powi(2)).sum::<f64>();

            // Published values come from the rows, not from the grid, so that both measure the same table.
            let grid: Vec<i64> = values.iter().map(|x| coordinate(*x, lower, upper)).collect();
            let on_grid: Vec<f64> = grid.iter().map(|z| *z as f64).collect();
            let published: Vec<i64> = (0..rows).map(|row| group_mean(&on_grid, row).round() as i64).collect();
            let errors = SquaredErrors::of(&grid, &published, &suppressed).unwrap();
            for (ratio, exact) in [(errors.retained_ratio(), retained), (errors.all_ratio(), all)] {
                let (found, exact) = (information_loss(&[ratio]), 100.0 * exact / rows as f64);
                // A thousandth of it, and what rounding to the grid and to 2^-20 can add to a tiny loss.
                assert!((found - exact).abs() < 1e-3 * exact + 2e-4, "{rows}: {found} {exact}");
            }
        }
    }
}
