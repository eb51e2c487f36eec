//! Tables of awkward shapes.

use veil_privacy::clusters::Reassignment;
use veil_protocols::k_anonymize::{Comparison, Outcome, Settings};

use crate::case::Case;
use crate::column::Column;
use crate::{Parties, STRATEGIES, settings};

fn blinded(k: usize, strategy: Reassignment) -> Settings {
    let mut settings = settings(k, strategy, Comparison::Blinded);
    settings.clusters.rounds = 2;
    settings
}

/// Numbers between bounds that are encrypted.
fn numbers(values: &[i64], lower: i64, upper: i64) -> Column {
    Column::Numbers { values: values.to_vec(), bounds: (lower, upper), public: false }
}

async fn check(seed: u64, columns: Vec<Column>, initial: &[usize], settings: Settings) -> Outcome {
    let weights = vec![1; columns.len()];
    Case { columns, weights, initial: initial.to_vec(), settings }.check(&mut Parties::new(seed)).await
}

/// Equal rows all go to the first centre; a column without a range counts for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn equal_rows_are_one_class() {
    for (seed, strategy) in [STRATEGIES[0], STRATEGIES[2]].into_iter().enumerate() {
        let columns = vec![numbers(&[7; 9], 7, 7), Column::Seen(vec![-5; 9])];
        let outcome = check(420 + seed as u64, columns, &[8, 3, 5], blinded(3, strategy)).await;
        assert_eq!((outcome.clusters, outcome.classes, outcome.rounds_run), (1, 1, 1));
    }
}

/// Numbers of 32 bits, at both ends of their range.
#[tokio::test(flavor = "multi_thread")]
async fn two_far_groups_stay_apart() {
    let (low, high) = (i32::MIN.into(), i32::MAX.into());
    let values: Vec<i64> = (0..6).map(|row| low + row).chain((0..5).map(|row| high - row)).collect();
    let columns = vec![numbers(&values, low, high), Column::Numbers { values, bounds: (low, high), public: true }];
    let outcome = check(424, columns, &[0, 10, 1], blinded(4, STRATEGIES[0])).await;
    assert_eq!(outcome.classes, 2);
}

/// One outlier: suppressed, or taken in by whoever is near.
#[tokio::test(flavor = "multi_thread")]
async fn an_outlier_is_suppressed_or_taken_in() {
    let values: Vec<i64> = vec![-100, -99, -98, -97, 100, 0, 1, 2, 3];
    for (seed, (strategy, suppress)) in
        [(STRATEGIES[0], 120_000), (STRATEGIES[1], 120_000), (STRATEGIES[2], 120_000), (STRATEGIES[2], 0)]
            .into_iter()
            .enumerate()
    {
        let mut settings = blinded(3, strategy);
        settings.clusters.suppress = suppress;
        let outcome = check(430 + seed as u64, vec![Column::Seen(values.clone())], &[4, 0, 5], settings).await;
        assert_eq!((outcome.small_clusters, outcome.suppressed_rows), (1, usize::from(suppress > 0)));
        assert_eq!(outcome.classes, 2);
    }
}

/// k is all rows, more than half of them, and no divisor of their number; with as many centres as that, or too many.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_k_leaves_one_class() {
    for (seed, (rows, k, centres, strategy)) in
        [(5, 5, 1, 0), (7, 4, 5, 0), (7, 4, 7, 1), (7, 4, 7, 2), (10, 3, 3, 2)].into_iter().enumerate()
    {
        let values: Vec<i64> = (0..rows).map(|row| row * row % 11).collect();
        let columns = vec![Column::Seen(values)];
        let initial: Vec<usize> = (0..centres).collect();
        let outcome = check(440 + seed as u64, columns, &initial, blinded(k, STRATEGIES[strategy])).await;
        assert!(k <= 3 && rows == 10 || outcome.classes == 1, "{outcome:?}");
    }
}

/// Every distance is that of another one: the lowest wins, of centres and of rows.
#[tokio::test(flavor = "multi_thread")]
async fn ties_go_to_the_lowest() {
    // The corners of a square, each twice, and its middle.
    let x = [0, 0, 2, 2, 1, 0, 2, 0, 2];
    let y = [0, 2, 0, 2, 1, 0, 2, 2, 0];
    for (seed, strategy) in STRATEGIES.into_iter().enumerate() {
        let columns = vec![Column::Seen(x.to_vec()), Column::Seen(y.to_vec())];
        let outcome = check(450 + seed as u64, columns, &[4, 0, 1, 2, 3], blinded(2, strategy)).await;
        assert_eq!(outcome.small_clusters, 1, "the middle");
    }
}

/// One row a class is what came in, but for the grid.
#[tokio::test(flavor = "multi_thread")]
async fn one_row_is_a_class_if_k_is_one() {
    let columns = vec![numbers(&[-3], -8, 8), Column::Seen(vec![5])];
    assert_eq!(check(460, columns, &[0], blinded(1, STRATEGIES[0])).await.classes, 1);
}
