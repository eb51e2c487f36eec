//! Clusters that are too small (the paper's Non-kClusters), and which of them are given up (SuppressClusters).

use super::ClusterError;

/// A whole, in the unit in which shares of rows are given.
pub const MILLION: u32 = 1_000_000;

/// Clusters with some rows, but fewer than k. An empty cluster is no cluster any more.
pub fn small_clusters(sizes: &[usize], k: usize) -> Vec<usize> {
    sizes.iter().enumerate().filter(|(_, size)| (1..k).contains(*size)).map(|(cluster, _)| cluster).collect()
}

/// The small clusters whose rows are suppressed: the smallest first, of equal ones the lowest, while all of them together have at most the
/// given share of the rows, in millionths, rounded down.
///
/// At least k rows are kept: fewer could not be published at all.
pub fn suppressed_clusters(sizes: &[usize], k: usize, share: u32) -> Result<Vec<usize>, ClusterError> {
    if share > MILLION {
        return Err(ClusterError::ShareTooLarge(share));
    }
    let rows: usize = sizes.iter().sum();
    let allowed = (rows as u128 * u128::from(share) / u128::from(MILLION)) as usize;
    let most = allowed.min(rows.saturating_sub(k));
    let mut clusters = small_clusters(sizes, k);
    clusters.sort_by_key(|cluster| (sizes[*cluster], *cluster));
    let mut suppressed = 0;
    let fits = |cluster: &usize| {
        suppressed += sizes[*cluster];
        suppressed <= most
    };
    Ok(clusters.into_iter().take_while(fits).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_clusters_are_not_small() {
        assert_eq!(small_clusters(&[0, 1, 3, 2, 4, 0], 3), [1, 3]);
        assert!(small_clusters(&[0, 1, 2], 1).is_empty());
    }

    #[test]
    fn the_smallest_go_first_and_ties_by_number() {
        let sizes = [3, 2, 10, 1, 2, 0, 2];
        let of = |share| suppressed_clusters(&sizes, 4, share).unwrap();
        // Of 20 rows, 5 % are one.
        assert!(of(0).is_empty() && of(49_999).is_empty());
        assert_eq!((of(50_000), of(149_999), of(150_000)), (vec![3], vec![3], vec![3, 1]));
        assert_eq!((of(349_999), of(350_000)), (vec![3, 1, 4], vec![3, 1, 4, 6]));
        assert_eq!(of(MILLION), [3, 1, 4, 6, 0]);
        assert_eq!(suppressed_clusters(&sizes, 4, MILLION + 1), Err(ClusterError::ShareTooLarge(1_000_001)));
    }

    #[test]
    fn enough_rows_for_a_class_are_kept() {
        // All are small; of 10 rows at least 5 must stay.
        assert_eq!(suppressed_clusters(&[4, 4, 2], 5, MILLION).unwrap(), [2]);
        assert!(suppressed_clusters(&[1, 2], 3, MILLION).unwrap().is_empty());
    }
}
