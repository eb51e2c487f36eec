//! The centres of clusters (the paper's RecomputeClusterCentres), by multiplication with a rounded reciprocal.
//!
//! Ciphertexts cannot be divided, so the mean of a cluster is its sum times a reciprocal of its count, which comes from a table, without
//! the fraction. All of it is non-negative and below the plaintext modulus t = 2^48 - 16383:
//!
//! ```text
//! sum'   = sum + count * 2^16                       at most count * 2^17
//! R      = floor((2^30 + floor(count / 2)) / count) at most 2^30 / count + 1/2
//! centre = floor((sum' * R + 2^29) / 2^30) - 2^16
//!
//! sum' * R + 2^29 <= 2^47 + count * 2^16 + 2^29 < t for count <= 2^24
//! ```
//!
//! The rounded reciprocal moves a mean by at most sum' / 2^31 <= count / 2^14: a centre is the true mean rounded to nearest, and off by
//! one only where the mean lies that near to a half, for clusters of up to 2^13 rows.

use super::Points;

/// Bits of the fraction of a reciprocal of a count.
pub const CENTRE_FRACTION: u32 = 30;

/// Added to coordinates so that none is negative.
pub const CENTRE_OFFSET: i64 = 1 << 16;

/// 2^fraction / count, rounded to nearest; zero for an empty cluster. Fractions here have at most 30 bits.
pub fn reciprocal(count: u64, fraction: u32) -> u64 {
    ((1u64 << fraction) + count / 2).checked_div(count).unwrap_or(0)
}

/// number * reciprocal without its fraction, rounded to nearest.
fn times_reciprocal(number: u64, reciprocal: u64, fraction: u32) -> u64 {
    (number * reciprocal + (1 << (fraction - 1))) >> fraction
}

/// The mean of so many coordinates of the grid with this sum. Nothing for none.
pub fn centre_coordinate(sum: i64, count: u64) -> Option<i64> {
    let reciprocal = (count > 0).then(|| reciprocal(count, CENTRE_FRACTION))?;
    // Non-negative: no coordinate is below the offset.
    let shifted = (sum + count as i64 * CENTRE_OFFSET).unsigned_abs();
    Some(times_reciprocal(shifted, reciprocal, CENTRE_FRACTION) as i64 - CENTRE_OFFSET)
}

/// How far a rounded centre of so many rows can lie outside the range of its column.
pub(super) fn drift(rows: usize) -> i64 {
    ((rows + (1 << 13)) >> 14) as i64
}

/// Counts and sums of clusters, from which their centres follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) counts: Vec<usize>,
    /// Cluster by cluster, one a column.
    sums: Vec<i64>,
}

impl Totals {
    /// Of the rows that are in a cluster.
    pub(super) fn of(points: &Points, clusters: usize, of_rows: impl Iterator<Item = Option<usize>>) -> Self {
        let mut totals = Self { counts: vec![0; clusters], sums: vec![0; clusters * points.columns()] };
        for (row, cluster) in of_rows.enumerate() {
            let Some(cluster) = cluster else { continue };
            totals.counts[cluster] += 1;
            let sums = totals.sums.iter_mut().skip(cluster * points.columns());
            sums.zip(points.row(row)).for_each(|(sum, value)| *sum += value);
        }
        totals
    }

    /// Adds a cluster to another and empties it.
    pub(super) fn merge(&mut self, cluster: usize, into: usize) {
        let columns = self.sums.len() / self.counts.len();
        self.counts[into] += std::mem::take(&mut self.counts[cluster]);
        for column in 0..columns {
            self.sums[into * columns + column] += std::mem::take(&mut self.sums[cluster * columns + column]);
        }
    }

    /// Moves the centre of a cluster to the mean of its rows; an empty one stays where it is.
    pub(super) fn recompute(&self, cluster: usize, centres: &mut [i64]) {
        let (columns, count) = (self.sums.len() / self.counts.len(), self.counts[cluster] as u64);
        let coordinates = centres.iter_mut().zip(&self.sums).skip(cluster * columns).take(columns);
        coordinates.for_each(|(centre, sum)| *centre = centre_coordinate(*sum, count).unwrap_or(*centre));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::points::{MAX_ROWS, MAX_VALUE};
    use super::*;

    #[test]
    fn means_round_to_nearest_and_halves_as_the_reciprocal_does() {
        assert_eq!(centre_coordinate(0, 0), None);
        assert_eq!([-7, 0, 7].map(|sum| centre_coordinate(sum, 1)), [Some(-7), Some(0), Some(7)]);
        // Halves go up where the reciprocal is exact.
        assert_eq!([-3, -1, 1, 3].map(|sum| centre_coordinate(sum, 2)), [Some(-1), Some(0), Some(1), Some(2)]);
        assert_eq!([10, 11, 12, 13].map(|sum| centre_coordinate(sum, 3)), [Some(3), Some(4), Some(4), Some(4)]);
        // 2^30 / 6 = 178956970.67 is rounded up, so 2.5 comes out as 3; 2^30 / 12 is rounded down.
        assert_eq!((reciprocal(6, 30), centre_coordinate(15, 6)), (178_956_971, Some(3)));
        assert_eq!((reciprocal(12, 30), centre_coordinate(30, 12)), (89_478_485, Some(2)));
    }

    /// Worst cases of sum and count stay below the modulus, and centres on the grid.
    #[test]
    fn nothing_reaches_the_plaintext_modulus() {
        const MODULUS: u64 = 281_474_976_694_273;
        let extreme = (MAX_VALUE + CENTRE_OFFSET) as u64;
        let counts = (0..=24).flat_map(|bits| [1u64 << bits, (1 << bits) - 1, (1 << bits) + 1, (1 << bits) / 3]);
        for count in counts.filter(|count| (1..=MAX_ROWS as u64).contains(count)) {
            let product = count * extreme * reciprocal(count, CENTRE_FRACTION) + (1 << (CENTRE_FRACTION - 1));
            assert!(product < MODULUS, "{count}: {product}");
            for value in [-MAX_VALUE, 0, MAX_VALUE] {
                let centre = centre_coordinate(value * count as i64, count).unwrap();
                assert!((centre - value).abs() <= drift(count as usize) && centre.abs() < 1 << 16, "{count}: {centre}");
            }
        }
    }

    #[test]
    fn an_empty_cluster_keeps_its_centre() {
        let points = Points::new(vec![1, 2, 3, 6, 100, 100], vec![1, 1]).unwrap();
        let mut totals = Totals::of(&points, 3, [Some(0), Some(0), None].into_iter());
        let mut centres = vec![9, 9, 8, 8, 7, 7];
        (0..3).for_each(|cluster| totals.recompute(cluster, &mut centres));
        assert_eq!((&totals.counts, &centres), (&vec![2, 0, 0], &vec![2, 4, 8, 8, 7, 7]));
        totals.merge(0, 2);
        (0..3).for_each(|cluster| totals.recompute(cluster, &mut centres));
        assert_eq!((&totals.counts, &centres), (&vec![0, 0, 2], &vec![2, 4, 8, 8, 2, 4]));
    }

    proptest! {
        #[test]
        fn a_centre_is_the_mean_but_for_the_rounding(mean in -64_512.0..64_512f64, count in 1u64..1 << 24) {
            let sum = (mean * count as f64) as i64;
            let centre = centre_coordinate(sum, count).unwrap();
            let off = (centre as f64 - sum as f64 / count as f64).abs();
            prop_assert!(off <= 0.5 + count as f64 / 16_384.0, "off by {}", off);
        }
    }
}
