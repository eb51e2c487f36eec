//! Rows as points of a grid.

use super::{ClusterError, centres::drift};

/// The largest coordinate, either way: 2^16 less a margin, so that centres stay below 2^16 however they are rounded, and what they
/// are computed from stays below the plaintext modulus.
pub const MAX_VALUE: i64 = (1 << 16) - (1 << 10);

/// The most rows.
pub const MAX_ROWS: usize = 1 << 24;

/// The largest squared distance.
pub const MAX_DISTANCE: u64 = 1 << 37;

/// Rows as points of a grid, and how much each column counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Points {
    rows: usize,
    columns: usize,
    /// Row by row.
    values: Vec<i64>,
    weights: Vec<u32>,
}

impl Points {
    /// From values row by row, one weight a column. Checked so that no distance between a row and a centre is above
    /// [`MAX_DISTANCE`].
    pub fn new(values: Vec<i64>, weights: Vec<u32>) -> Result<Self, ClusterError> {
        let columns = weights.len();
        if values.is_empty() || columns == 0 {
            return Err(ClusterError::NoPoints { values: values.len(), columns });
        }
        if !values.len().is_multiple_of(columns) {
            return Err(ClusterError::Ragged { values: values.len(), columns });
        }
        let rows = values.len() / columns;
        if rows > MAX_ROWS {
            return Err(ClusterError::TooManyRows(rows));
        }
        if let Some(at) = values.iter().position(|value| !(-MAX_VALUE..=MAX_VALUE).contains(value)) {
            return Err(ClusterError::OffGrid { row: at / columns, column: at % columns, value: values[at] });
        }
        if let Some(column) = weights.iter().position(|weight| *weight == 0) {
            return Err(ClusterError::NoWeight(column));
        }
        let points = Self { rows, columns, values, weights };
        let farthest = points.farthest();
        if farthest > u128::from(MAX_DISTANCE) {
            return Err(ClusterError::TooFar(farthest));
        }
        Ok(points)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How much each column counts.
    pub fn weights(&self) -> &[u32] {
        &self.weights
    }

    /// The coordinates of a row; none if there is no such row.
    pub fn row(&self, row: usize) -> &[i64] {
        let first = row.saturating_mul(self.columns);
        self.values.get(first..first.saturating_add(self.columns)).unwrap_or_default()
    }

    /// The squared distance of two points of the grid: the sum of weight * difference^2 over the columns.
    pub fn distance(&self, one: &[i64], other: &[i64]) -> u64 {
        let pairs = one.iter().zip(other).zip(&self.weights);
        pairs.map(|((one, other), weight)| u64::from(*weight) * (one - other).unsigned_abs().pow(2)).sum()
    }

    /// No row is farther from a centre: a centre lies within the range of each column, but for its rounding.
    fn farthest(&self) -> u128 {
        let of_column = |(column, weight): (usize, &u32)| {
            let of_rows = || self.values.iter().skip(column).step_by(self.columns);
            let span = of_rows().max().zip(of_rows().min()).map_or(0, |(high, low)| high - low);
            u128::from(*weight) * u128::from((span + drift(self.rows)).unsigned_abs()).pow(2)
        };
        self.weights.iter().enumerate().map(of_column).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_grid_is_named() {
        let refused = |values: Vec<i64>, weights: Vec<u32>| Points::new(values, weights).unwrap_err();
        assert_eq!(refused(vec![], vec![1]), ClusterError::NoPoints { values: 0, columns: 1 });
        assert_eq!(refused(vec![1], vec![]), ClusterError::NoPoints { values: 1, columns: 0 });
        assert_eq!(refused(vec![1, 2, 3], vec![1, 1]), ClusterError::Ragged { values: 3, columns: 2 });
        assert_eq!(refused(vec![1, 2], vec![1, 0]), ClusterError::NoWeight(1));
        let off = refused(vec![0, 0, 0, -64513], vec![1, 1]);
        assert_eq!(off, ClusterError::OffGrid { row: 1, column: 1, value: -64513 });
        assert_eq!(
            off.to_string(),
            "row 1, column 1: -64513 is off the grid: scale coordinates to at most 64512 either way"
        );
        assert!(matches!(refused(vec![i64::MIN], vec![1]), ClusterError::OffGrid { .. }));
        assert_eq!(refused(vec![0; MAX_ROWS + 1], vec![1]), ClusterError::TooManyRows(MAX_ROWS + 1));
    }

    #[test]
    fn distances_have_a_limit() {
        // 8 * 131072^2 would be 2^37; the grid is a little smaller.
        let corners = vec![-MAX_VALUE, MAX_VALUE];
        let points = Points::new(corners.clone(), vec![8]).unwrap();
        assert_eq!(points.distance(points.row(0), points.row(1)), 8 * 129_024 * 129_024);
        assert_eq!(Points::new(corners.clone(), vec![9]).unwrap_err(), ClusterError::TooFar(9 * 129_024 * 129_024));
        assert!(matches!(Points::new(corners, vec![u32::MAX]), Err(ClusterError::TooFar(_))));
    }

    #[test]
    fn weights_count_and_rows_beyond_the_last_are_empty() {
        let points = Points::new(vec![0, 0, 3, -4], vec![1, 2]).unwrap();
        assert_eq!((points.rows(), points.columns(), points.weights()), (2, 2, &[1, 2][..]));
        assert_eq!(points.distance(points.row(0), points.row(1)), 9 + 2 * 16);
        assert!(points.row(2).is_empty() && points.row(usize::MAX).is_empty());
    }
}
