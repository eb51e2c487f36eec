//! Categorical precision: how far up its hierarchy a published category stands (Sweeney 2002).
//!
//! ```text
//! loss = (1/N) sum over rows of level / (levels - 1)      a leaf is 0, the root and a suppressed row are 1
//! ```

/// The loss of a column, from its published rows at each level, leaves first, root last. Zero for no rows.
pub fn precision_loss(rows_at_level: &[u64], suppressed: u64) -> f64 {
    let published: u128 = rows_at_level.iter().copied().map(u128::from).sum();
    let rows = published + u128::from(suppressed);
    let top = rows_at_level.len().saturating_sub(1).max(1) as u128;
    let steps: u128 = rows_at_level.iter().enumerate().map(|(level, rows)| level as u128 * u128::from(*rows)).sum();
    if rows == 0 { 0.0 } else { (steps + u128::from(suppressed) * top) as f64 / (rows * top) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // Four levels: (5 * 0 + 2 * 1/3 + 1 * 2/3 + 1 * 1 + 1 suppressed) / 10.
        assert!((precision_loss(&[5, 2, 1, 1], 1) - (2.0 / 3.0 + 2.0 / 3.0 + 2.0) / 10.0).abs() < 1e-15);
        assert_eq!(
            (precision_loss(&[7, 0], 0), precision_loss(&[0, 7], 0), precision_loss(&[0, 0], 7)),
            (0.0, 1.0, 1.0)
        );
        assert_eq!(precision_loss(&[3, 0, 0], 1), 0.25);
    }

    #[test]
    fn nothing_is_lost_of_nothing() {
        assert_eq!((precision_loss(&[], 0), precision_loss(&[0, 0], 0), precision_loss(&[], 2)), (0.0, 0.0, 1.0));
        // A hierarchy of one level cannot generalise.
        assert_eq!(precision_loss(&[4], 0), 0.0);
    }
}
