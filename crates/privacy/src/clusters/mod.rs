//! k-anonymity by clustering: every published row shares its values with at least k - 1 others.
//!
//! The algorithm of Kesarwani et al. ("Secure k-anonymization"), in clear. It is what the encrypted one must agree with to the last
//! bit, so all of it is on integers that fit the plaintext modulus, and every tie is decided.
//!
//! ```text
//! scale        numbers as coordinates of a grid, and back
//! points       rows on a grid, each column with its weight
//! cluster      rounds of: every row to its nearest centre (assign), centres to the mean of their rows (centres)
//! small        clusters of fewer than k rows; the smallest are suppressed, as far as that is allowed
//! reassign     the others join what is near, as a whole or row by row
//! generalise   a class publishes the centre of its numbers and the common ancestor of its categories
//! ```

mod assign;
mod centres;
mod error;
mod generalise;
mod points;
mod reassign;
mod scale;
mod small;

use rand::CryptoRng;

pub use assign::assign;
use centres::Totals;
pub use centres::{CENTRE_FRACTION, CENTRE_OFFSET, centre_coordinate, reciprocal};
pub use error::ClusterError;
pub use generalise::{class_ancestors, class_centres};
pub use points::{MAX_DISTANCE, MAX_ROWS, MAX_VALUE, Points};
pub use reassign::{Reassignment, reassign};
pub use scale::{
    GRID_BITS, RECIPROCAL_BITS, REFINED_SHIFT, SCALE_BITS, coordinate, scale_of_range, value_of_coordinate,
};
pub use small::{MILLION, small_clusters, suppressed_clusters};

/// What is asked of the classes, and how they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The least rows of a class.
    pub k: usize,
    /// The most rounds of clustering.
    pub rounds: usize,
    /// Whether clustering ends with the first round that moves no centre.
    pub early_stop: bool,
    /// The most rows to suppress, in millionths of all.
    pub suppress: u32,
    /// What becomes of small clusters that are not suppressed.
    pub strategy: Reassignment,
}

/// Rows in clusters of any size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clustering {
    /// The cluster of every row, from the last round.
    pub assignment: Vec<usize>,
    /// The means of these clusters, cluster by cluster; of an empty one, where it was.
    pub centres: Vec<i64>,
    /// Rows of every cluster.
    pub sizes: Vec<usize>,
    /// Rounds until the end.
    pub rounds_run: usize,
}

/// A class that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// The cluster that it came from, or that the others joined.
    pub cluster: usize,
    /// Its rows: at least k.
    pub rows: usize,
}

/// The classes, in the order of their clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Each with its size.
    pub classes: Vec<Class>,
    /// The class of every row, by its place among the classes; nothing for a row that is suppressed.
    pub of_rows: Vec<Option<usize>>,
}

/// What became of the clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Rounds of clustering.
    pub rounds_run: usize,
    /// Clusters with rows, after clustering.
    pub clusters: usize,
    /// Those of fewer than k rows.
    pub small_clusters: usize,
    /// Their rows.
    pub small_rows: usize,
    /// Small clusters that were suppressed.
    pub suppressed_clusters: usize,
    /// Their rows.
    pub suppressed_rows: usize,
    /// Rows that went to another cluster, so that none is small.
    pub moved_rows: usize,
    /// Rows of the smallest class.
    pub smallest: usize,
    /// Rows of the largest class.
    pub largest: usize,
}

/// How many clusters can have k rows each: the number of rows by k, rounded down.
pub fn cluster_count(rows: usize, k: usize) -> Result<usize, ClusterError> {
    match rows.checked_div(k) {
        None | Some(0) => Err(ClusterError::ImpossibleK { k, rows }),
        Some(clusters) => Ok(clusters),
    }
}

/// Distinct rows to begin with, all sets of them as likely, in the order of the draw.
pub fn draw_centres<R: CryptoRng + ?Sized>(
    rows: usize,
    centres: usize,
    rng: &mut R,
) -> Result<Vec<usize>, ClusterError> {
    if !(1..=rows).contains(&centres) {
        return Err(ClusterError::WrongCentres { centres, rows });
    }
    // The beginning of a shuffle.
    let mut drawn: Vec<usize> = (0..rows).collect();
    for at in 0..centres {
        let other = at + crate::uniform_below((rows - at) as u64, rng) as usize;
        drawn.swap(at, other);
    }
    drawn.truncate(centres);
    Ok(drawn)
}

/// Rounds of assigning every row to its nearest centre and moving the centres to the means of their rows. The centres begin at distinct rows.
///
/// With `early_stop`, a round that moves no centre is the last. Further rounds would change nothing.
pub fn cluster(
    points: &Points,
    initial: &[usize],
    rounds: usize,
    early_stop: bool,
) -> Result<Clustering, ClusterError> {
    check_initial(points.rows(), initial)?;
    let mut centres: Vec<i64> = initial.iter().flat_map(|row| points.row(*row)).copied().collect();
    let (mut last, mut rounds_run) = (None, 0);
    while rounds_run < rounds {
        rounds_run += 1;
        let before = centres.clone();
        let assignment = assign(points, &centres);
        recompute(points, &assignment, &mut centres);
        last = Some(assignment);
        if early_stop && centres == before {
            break;
        }
    }
    let assignment = last.ok_or(ClusterError::NoRounds)?;
    let sizes = Totals::of(points, initial.len(), assignment.iter().copied().map(Some)).counts;
    Ok(Clustering { assignment, centres, sizes, rounds_run })
}

fn recompute(points: &Points, assignment: &[usize], centres: &mut [i64]) {
    let clusters = centres.len() / points.columns();
    let totals = Totals::of(points, clusters, assignment.iter().copied().map(Some));
    (0..clusters).for_each(|cluster| totals.recompute(cluster, centres));
}

/// Refuses initial rows that are none, or are named twice.
pub fn check_initial(rows: usize, initial: &[usize]) -> Result<(), ClusterError> {
    if !(1..=rows).contains(&initial.len()) {
        return Err(ClusterError::WrongCentres { centres: initial.len(), rows });
    }
    let mut named = vec![false; rows];
    for row in initial.iter().copied() {
        match named.get_mut(row) {
            None => return Err(ClusterError::UnknownRow { row, rows }),
            Some(named) if *named => return Err(ClusterError::RepeatedRow(row)),
            Some(named) => *named = true,
        }
    }
    Ok(())
}

/// Classes of at least k rows: clusters around the initial rows, of which the small ones are suppressed or join others.
pub fn anonymise(points: &Points, initial: &[usize], settings: &Settings) -> Result<(Classes, Summary), ClusterError> {
    let (k, rows) = (settings.k, points.rows());
    cluster_count(rows, k)?;
    let clustering = cluster(points, initial, settings.rounds, settings.early_stop)?;
    let sizes = &clustering.sizes;
    let small = small_clusters(sizes, k);
    let suppressed = suppressed_clusters(sizes, k, settings.suppress)?;
    let mut kept = vec![true; sizes.len()];
    suppressed.iter().for_each(|cluster| kept[*cluster] = false);
    let of_rows: Vec<_> = clustering.assignment.iter().map(|cluster| kept[*cluster].then_some(*cluster)).collect();
    let reassigned = reassign(points, &clustering.centres, &of_rows, k, settings.strategy)?;
    let classes = number_classes(sizes.len(), &reassigned);
    let rows_of = |clusters: &[usize]| clusters.iter().map(|cluster| sizes[*cluster]).sum();
    let class_sizes = || classes.classes.iter().map(|class| class.rows);
    let summary = Summary {
        rounds_run: clustering.rounds_run,
        clusters: sizes.iter().filter(|size| **size > 0).count(),
        small_clusters: small.len(),
        small_rows: rows_of(&small),
        suppressed_clusters: suppressed.len(),
        suppressed_rows: rows_of(&suppressed),
        moved_rows: of_rows.iter().zip(&reassigned).filter(|(before, after)| before != after).count(),
        smallest: class_sizes().min().unwrap_or(0),
        largest: class_sizes().max().unwrap_or(0),
    };
    Ok((classes, summary))
}

/// Clusters that have rows become classes.
fn number_classes(clusters: usize, of_rows: &[Option<usize>]) -> Classes {
    let mut sizes = vec![0; clusters];
    of_rows.iter().flatten().for_each(|cluster| sizes[*cluster] += 1);
    let mut numbers = vec![None; clusters];
    let mut classes = Vec::new();
    for (cluster, rows) in sizes.into_iter().enumerate().filter(|(_, rows)| *rows > 0) {
        numbers[cluster] = Some(classes.len());
        classes.push(Class { cluster, rows });
    }
    Classes { classes, of_rows: of_rows.iter().map(|cluster| numbers[(*cluster)?]).collect() }
}

#[cfg(test)]
mod tests;
