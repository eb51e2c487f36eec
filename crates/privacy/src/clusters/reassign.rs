//! What becomes of the rows of small clusters (the paper's ReAssignClusters), so that every cluster left has at least k.
//!
//! Ties go to the lowest number everywhere. Suppressed rows are in no cluster and take no part.

use super::{ClusterError, Points, assign::nearest, centres::Totals, small::small_clusters};

/// Where the rows of a small cluster go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reassignment {
    /// Together, to the cluster with the nearest centre, whose centre moves. Small clusters may grow so, and stay.
    #[default]
    ClusterToCluster,
    /// Each to the nearest centre of a cluster that is large enough. Centres stay.
    PointToCluster,
    /// Each to the cluster of its nearest row among those of clusters that are large enough.
    PointToPoint,
}

/// The cluster of every row once none is too small. There must be k rows that are in clusters, or they all end in one that is too small.
///
/// Centres are those of the clusters, row by row.
pub fn reassign(
    points: &Points,
    centres: &[i64],
    of_rows: &[Option<usize>],
    k: usize,
    strategy: Reassignment,
) -> Result<Vec<Option<usize>>, ClusterError> {
    let clusters = centres.len() / points.columns();
    if of_rows.len() != points.rows() {
        return Err(ClusterError::WrongLength { expected: points.rows(), found: of_rows.len() });
    }
    if let Some((row, cluster)) =
        of_rows.iter().enumerate().find_map(|(row, of)| Some((row, of.filter(|of| *of >= clusters)?)))
    {
        return Err(ClusterError::UnknownCluster { row, cluster, clusters });
    }
    let totals = Totals::of(points, clusters, of_rows.iter().copied());
    if small_clusters(&totals.counts, k).is_empty() {
        return Ok(of_rows.to_vec());
    }
    Ok(match strategy {
        Reassignment::ClusterToCluster => cluster_to_cluster(points, centres.to_vec(), totals, of_rows, k),
        Reassignment::PointToCluster => {
            let large = large_enough(&totals.counts, k);
            let centres = || centres.chunks_exact(points.columns()).enumerate().filter(|(cluster, _)| large[*cluster]);
            move_rows(of_rows, &large, |row| nearest(points, points.row(row), centres()))
        }
        Reassignment::PointToPoint => {
            let large = large_enough(&totals.counts, k);
            let settled: Vec<usize> =
                (0..points.rows()).filter(|row| of_rows[*row].is_some_and(|cluster| large[cluster])).collect();
            let rows = || settled.iter().map(|row| (*row, points.row(*row)));
            move_rows(of_rows, &large, |row| of_rows[nearest(points, points.row(row), rows())?])
        }
    })
}

/// One pass in the order of the clusters suffices. A cluster that is live and was passed is large enough, because clusters only grow, and
/// the last one finds another to go to unless it has all the rows.
fn cluster_to_cluster(
    points: &Points,
    mut centres: Vec<i64>,
    mut totals: Totals,
    of_rows: &[Option<usize>],
    k: usize,
) -> Vec<Option<usize>> {
    let columns = points.columns();
    let mut receivers: Vec<usize> = (0..totals.counts.len()).collect();
    for cluster in 0..receivers.len() {
        if !(1..k).contains(&totals.counts[cluster]) {
            continue;
        }
        let others = centres.chunks_exact(columns).enumerate();
        let live = others.filter(|(other, _)| *other != cluster && totals.counts[*other] > 0);
        let Some(receiver) = nearest(points, &centres[cluster * columns..][..columns], live) else { break };
        totals.merge(cluster, receiver);
        totals.recompute(receiver, &mut centres);
        receivers[cluster] = receiver;
    }
    // A receiver may have been merged later on. It ends, because what received was live then.
    let last = |mut cluster: usize| {
        while receivers[cluster] != cluster {
            cluster = receivers[cluster];
        }
        cluster
    };
    of_rows.iter().map(|cluster| cluster.map(last)).collect()
}

/// Which clusters rows can go to: those of at least k rows, or else the largest one.
fn large_enough(sizes: &[usize], k: usize) -> Vec<bool> {
    let largest = sizes.iter().copied().max().unwrap_or(0);
    if largest >= k {
        return sizes.iter().map(|size| *size >= k).collect();
    }
    let first = sizes.iter().position(|size| *size == largest);
    (0..sizes.len()).map(|cluster| Some(cluster) == first).collect()
}

/// Rows of clusters that are large enough stay.
fn move_rows(
    of_rows: &[Option<usize>],
    large: &[bool],
    receiver: impl Fn(usize) -> Option<usize>,
) -> Vec<Option<usize>> {
    let of_row = |(row, cluster): (usize, &Option<usize>)| match cluster {
        Some(cluster) if !large[*cluster] => receiver(row),
        _ => *cluster,
    };
    of_rows.iter().enumerate().map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Reassignment; 3] =
        [Reassignment::ClusterToCluster, Reassignment::PointToCluster, Reassignment::PointToPoint];

    /// On a line, with the centres of the clusters as they are.
    fn line(values: &[i64], of_rows: &[Option<usize>], k: usize, strategy: Reassignment) -> Vec<Option<usize>> {
        let points = Points::new(values.to_vec(), vec![1]).unwrap();
        let clusters = of_rows.iter().flatten().max().unwrap() + 1;
        let totals = Totals::of(&points, clusters, of_rows.iter().copied());
        let mut centres = vec![0; clusters];
        (0..clusters).for_each(|cluster| totals.recompute(cluster, &mut centres));
        reassign(&points, &centres, of_rows, k, strategy).unwrap()
    }

    fn some(clusters: &[usize]) -> Vec<Option<usize>> {
        clusters.iter().copied().map(Some).collect()
    }

    #[test]
    fn strategies_differ() {
        // Cluster 0: 0, 10, 11 around 7; cluster 1: 18, 29 around 24; cluster 2: 40, 41, 42.
        let (values, of_rows) = ([0, 10, 11, 18, 29, 40, 41, 42], some(&[0, 0, 0, 1, 1, 2, 2, 2]));
        let to = |strategy| line(&values, &of_rows, 3, strategy);
        // 24 lies 17 from both 7 and 41.
        assert_eq!(to(Reassignment::ClusterToCluster), some(&[0, 0, 0, 0, 0, 2, 2, 2]));
        // 18 is nearer to 7, 29 to 41.
        assert_eq!(to(Reassignment::PointToCluster), some(&[0, 0, 0, 0, 2, 2, 2, 2]));
        assert_eq!(to(Reassignment::PointToPoint), some(&[0, 0, 0, 0, 2, 2, 2, 2]));
        // The centre of 0, 0, 30 is 10, the row 30 is nearer.
        let (values, of_rows) = ([0, 0, 30, 32, 48, 48, 48], some(&[0, 0, 0, 1, 2, 2, 2]));
        assert_eq!(line(&values, &of_rows, 3, Reassignment::PointToCluster)[3], Some(2));
        assert_eq!(line(&values, &of_rows, 3, Reassignment::PointToPoint)[3], Some(0));
    }

    #[test]
    fn small_clusters_grow_together_and_their_centre_moves() {
        // 0 joins 4 and makes a cluster of two around 2, too small still; from there 9 is nearer than -6, which 0 was nearer to than 9.
        let (values, of_rows) = ([0, 4, 9, 9, 9, -6, -6, -6], some(&[0, 1, 2, 2, 2, 3, 3, 3]));
        assert_eq!(line(&values, &of_rows, 3, Reassignment::ClusterToCluster), some(&[2, 2, 2, 2, 2, 3, 3, 3]));
        // With k = 2 the pair is large enough and stays.
        assert_eq!(line(&values, &of_rows, 2, Reassignment::ClusterToCluster), some(&[1, 1, 2, 2, 2, 3, 3, 3]));
    }

    #[test]
    fn ties_go_to_the_lowest_number() {
        let (values, of_rows) = ([10, 10, 5, 0, 0], some(&[0, 0, 1, 2, 2]));
        for strategy in ALL {
            assert_eq!(line(&values, &of_rows, 2, strategy), some(&[0, 0, 0, 2, 2]), "{strategy:?}");
        }
        // Rows count by their own numbers, whatever cluster they are in.
        let of_rows = some(&[2, 2, 1, 0, 0]);
        assert_eq!(line(&values, &of_rows, 2, Reassignment::PointToPoint), some(&[2, 2, 2, 0, 0]));
        assert_eq!(line(&values, &of_rows, 2, Reassignment::PointToCluster), some(&[2, 2, 0, 0, 0]));
    }

    #[test]
    fn without_a_large_cluster_all_go_to_the_largest() {
        let (values, of_rows) = ([0, 5, 5, 9, 9], some(&[0, 1, 1, 2, 2]));
        assert_eq!(line(&values, &of_rows, 4, Reassignment::PointToCluster), some(&[1; 5]));
        assert_eq!(line(&values, &of_rows, 4, Reassignment::PointToPoint), some(&[1; 5]));
        assert_eq!(line(&values, &of_rows, 4, Reassignment::ClusterToCluster), some(&[2; 5]));
    }

    #[test]
    fn clusters_that_are_not_there_are_named() {
        let points = Points::new(vec![1, 2], vec![1]).unwrap();
        let refused = |of_rows: &[Option<usize>]| reassign(&points, &[1, 2], of_rows, 2, ALL[0]).unwrap_err();
        assert_eq!(refused(&some(&[0])), ClusterError::WrongLength { expected: 2, found: 1 });
        assert_eq!(refused(&some(&[0, 2])), ClusterError::UnknownCluster { row: 1, cluster: 2, clusters: 2 });
    }

    #[test]
    fn suppressed_rows_take_no_part() {
        let (values, of_rows) = ([0, 1, 2, 2, 9, 9], [None, Some(0), Some(1), Some(1), Some(3), Some(3)]);
        for strategy in ALL {
            let reassigned = line(&values, &of_rows, 2, strategy);
            assert_eq!(reassigned, [None, Some(1), Some(1), Some(1), Some(3), Some(3)], "{strategy:?}");
        }
    }
}
