//! Tables of several vectors, and of many clusters.

use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_protocols::k_anonymize::Comparison;
use veil_slots::plain;

use crate::case::Case;
use crate::column::{Column, path};
use crate::{Parties, STRATEGIES, settings};

/// Three far groups, the last of few rows.
fn long_table(rows: usize, small: usize) -> Case {
    let mut rng = StdRng::seed_from_u64(rows as u64);
    let mut below = |bound: u64| plain::uniform_below(bound, &mut rng) as i64;
    let group = |row: usize| if row % (rows / small) == 1 { 2 } else { row % 2 };
    let ages = (0..rows).map(|row| [0, 40, 95][group(row)] + below(5)).collect();
    let codes = (0..rows).map(|row| path([1, 4, 8][group(row)] - i64::from(row % 5 == 0), 0)).collect();
    let columns = vec![
        Column::Numbers { values: ages, bounds: (0, 100), public: true },
        Column::Categories { codes, generalised: false },
    ];
    Case {
        columns,
        weights: vec![3, 1],
        initial: vec![1, 2, 3],
        settings: settings(100, STRATEGIES[0], Comparison::Blinded),
    }
}

/// More rows than fit in half a vector, so that every tile has one centre.
#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_rows_agree() {
    let mut case = long_table(5000, 40);
    case.settings.clusters.strategy = STRATEGIES[1];
    case.settings.clusters.rounds = 2;
    let outcome = case.check(&mut Parties::new(470)).await;
    assert_eq!((outcome.small_clusters, outcome.classes), (1, 2));
}

/// More rows than fit in a vector, with rows of every chunk suppressed.
#[tokio::test(flavor = "multi_thread")]
async fn nine_thousand_rows_agree() {
    let mut case = long_table(9000, 40);
    case.settings.clusters.suppress = 10_000;
    case.settings.clusters.rounds = 1;
    let outcome = case.check(&mut Parties::new(471)).await;
    assert!(outcome.suppressed_rows >= 40 && outcome.classes == 2, "{outcome:?}");
}
