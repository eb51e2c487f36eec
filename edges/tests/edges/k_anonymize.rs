//! k-anonymity of tables whose rows share a vector, fill it, and take several, against the same algorithm in the clear.

use veil_privacy::clusters::{self, Reassignment};
use veil_protocols::k_anonymize::{Comparison, MAX_POINTS, Settings};

use crate::Parties;
use crate::case::Case;
use crate::column::{Column, path};

fn columns(rows: usize) -> Vec<Column> {
    let number = |row: usize, by: usize, below: usize| (row * row * by + row) as i64 % below as i64;
    let values = |by: usize, below: usize| (0..rows).map(|row| number(row, by, below)).collect::<Vec<_>>();
    let codes = |row: usize| path(number(row, 5, 20), if row.is_multiple_of(4) { row % 3 } else { 0 });
    vec![
        Column::Numbers { values: values(7, 100), bounds: (0, 120), public: false },
        Column::Seen(values(3, 1000)),
        Column::Categories { codes: (0..rows).map(codes).collect(), generalised: true },
    ]
}

async fn check(rows: usize, centres: usize, strategy: Reassignment, comparison: Comparison) {
    let initial: Vec<usize> = (0..centres).map(|at| at * rows / centres).collect();
    let k = (rows / centres).clamp(2, rows);
    let clusters = clusters::Settings { k, rounds: 2, early_stop: true, suppress: 100_000, strategy };
    let columns = columns(rows);
    let case = Case { weights: vec![1, 2, 1], columns, initial, settings: Settings { clusters, comparison } };
    case.check(&mut Parties::new(100 + rows as u64)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_exact_comparisons() {
    for (rows, centres) in [(2, 1), (31, 4), (32, 3), (33, 3), (63, 2), (64, 5), (65, 2), (129, 3), (193, 2)] {
        check(rows, centres, Reassignment::ClusterToCluster, Comparison::Exact).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_blinded_comparisons_and_many_centres() {
    for (rows, centres) in [(31, 15), (33, 16), (64, 32), (65, 31), (129, 22), (193, 24), (321, 12), (800, 32)] {
        check(rows, centres, Reassignment::ClusterToCluster, Comparison::Blinded).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_by_row() {
    for (rows, centres) in [(31, 7), (32, 8), (33, 8), (64, 9), (65, 9), (193, 11)] {
        check(rows, centres, Reassignment::PointToCluster, Comparison::Blinded).await;
        if rows <= MAX_POINTS {
            check(rows, centres, Reassignment::PointToPoint, Comparison::Blinded).await;
        }
    }
}
