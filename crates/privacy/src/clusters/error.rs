//! What is refused, in a sentence each.

use super::points::{MAX_DISTANCE, MAX_ROWS, MAX_VALUE};

/// Why a table cannot be clustered or generalised. Rows and columns count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// Nothing to cluster.
    #[error("points need at least one row and one column: {values} values in {columns} columns are none")]
    NoPoints {
        /// Numbers given.
        values: usize,
        /// Columns, one weight each.
        columns: usize,
    },
    /// The last row is not whole.
    #[error("{values} values do not fill rows of {columns} columns: give every row one value a column")]
    Ragged {
        /// Numbers given.
        values: usize,
        /// Columns.
        columns: usize,
    },
    /// Products with so many would not stay below the plaintext modulus.
    #[error("{0} rows are too many to average exactly: cluster at most {MAX_ROWS} at a time")]
    TooManyRows(usize),
    /// A coordinate off the grid.
    #[error("row {row}, column {column}: {value} is off the grid: scale coordinates to at most {MAX_VALUE} either way")]
    OffGrid {
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// Its coordinate.
        value: i64,
    },
    /// A column that would count for nothing.
    #[error("column {0} has weight 0: leave it out, or give it at least 1")]
    NoWeight(usize),
    /// Distances that comparisons do not cover.
    #[error(
        "squared distances reach {0}, more than {MAX_DISTANCE}: use smaller weights, fewer columns or a coarser grid"
    )]
    TooFar(u128),
    /// No class can be large enough.
    #[error("k = {k} asks for classes larger than the table of {rows} rows: ask for 1 to {rows}")]
    ImpossibleK {
        /// Rows that a class must have.
        k: usize,
        /// Rows that there are.
        rows: usize,
    },
    /// Nothing would be assigned.
    #[error("0 rounds assign no row to a cluster: ask for at least 1")]
    NoRounds,
    /// No clusters, or more than rows.
    #[error("{centres} initial centres cannot be distinct rows of {rows}: give 1 to {rows}")]
    WrongCentres {
        /// Centres asked for.
        centres: usize,
        /// Rows that there are.
        rows: usize,
    },
    /// A centre that is no row.
    #[error("initial centre {row} is not one of the {rows} rows, which count from 0")]
    UnknownRow {
        /// The row that was named.
        row: usize,
        /// Rows that there are.
        rows: usize,
    },
    /// A centre twice.
    #[error("row {0} is named twice as an initial centre: name distinct rows")]
    RepeatedRow(usize),
    /// A share of more than all.
    #[error("{0} millionths of the rows cannot be suppressed: a share is at most 1000000")]
    ShareTooLarge(u32),
    /// A cluster without a centre.
    #[error("row {row}: cluster {cluster} is not one of the {clusters} that have a centre, which count from 0")]
    UnknownCluster {
        /// The row.
        row: usize,
        /// The cluster that was named.
        cluster: usize,
        /// Clusters that there are.
        clusters: usize,
    },
    /// A column of another length.
    #[error("the column has {found} rows where {expected} are expected: give one value a row")]
    WrongLength {
        /// Rows of the table.
        expected: usize,
        /// Values of the column.
        found: usize,
    },
    /// A category that the hierarchy does not have.
    #[error("row {row}: leaf {leaf} is not one of the hierarchy's {leaves}, which count from 0")]
    UnknownLeaf {
        /// The row.
        row: usize,
        /// The leaf that was named.
        leaf: usize,
        /// Leaves that there are.
        leaves: usize,
    },
}
