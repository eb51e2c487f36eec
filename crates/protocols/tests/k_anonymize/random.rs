//! Small random tables of all kinds of columns, with all settings. The same cases each time.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_privacy::clusters::{self, MILLION, Reassignment, draw_centres};
use veil_protocols::k_anonymize::{Comparison, Settings};
use veil_slots::plain;

use crate::case::Case;
use crate::column::{Column, path};
use crate::{Parties, STRATEGIES};

/// What a column is made of.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Encrypted,
    Public,
    Category,
    Generalised,
    Seen,
}

const KINDS: [Kind; 5] = [Kind::Encrypted, Kind::Public, Kind::Category, Kind::Generalised, Kind::Seen];

/// A column whose numbers lie `from` up, over so many; few of them, so that many are equal, if the range is small.
fn column(kind: Kind, rows: usize, from: i64, range: u64, rng: &mut StdRng) -> Column {
    let mut below = |bound: u64| plain::uniform_below(bound, rng) as i64;
    match kind {
        Kind::Encrypted | Kind::Public => {
            let values = (0..rows).map(|_| from + below(range)).collect();
            let bounds = (from, from + range as i64 - 1);
            Column::Numbers { values, bounds, public: matches!(kind, Kind::Public) }
        }
        Kind::Category => {
            let leaves = range.clamp(1, 20);
            let codes = (0..rows).map(|_| path(below(leaves), 0)).collect();
            Column::Categories { codes, generalised: false }
        }
        Kind::Generalised => {
            let codes = (0..rows).map(|_| path(below(9), below(3) as usize)).collect();
            Column::Categories { codes, generalised: true }
        }
        Kind::Seen => Column::Seen((0..rows).map(|_| from + below(range)).collect()),
    }
}

prop_compose! {
    fn columns(most: usize)(
        columns in prop::collection::vec(
            (prop::sample::select(&KINDS), prop_oneof![Just(-1_000_000_000i64), Just(-3), Just(17)],
                prop_oneof![Just(1u64), 2..6u64, Just(100), Just(2_000_000_000)], 1..4u32),
            1..=most,
        ),
    ) -> Vec<(Kind, i64, u64, u32)> {
        columns
    }
}

prop_compose! {
    fn cases(most_rows: usize, most_columns: usize, comparison: Comparison)(
        rows in 4..=most_rows, columns in columns(most_columns), k in 1..6usize, early_stop: bool, rounds in 1..4usize,
        suppress in prop_oneof![Just(0), Just(150_000), 0..=MILLION], more in any::<bool>(),
        strategy in prop::sample::select(&STRATEGIES), seed: u64,
    ) -> Case {
        let mut rng = StdRng::seed_from_u64(seed);
        let k = k.min(rows);
        // More centres than classes have room leave small clusters behind.
        let centres = if more { (2 * rows / k).min(rows / 2 + 1) } else { rows / k };
        let initial = draw_centres(rows, centres, &mut rng).unwrap();
        let weights = columns.iter().map(|(.., weight)| *weight).collect();
        let columns = columns.into_iter().map(|(kind, from, range, _)| column(kind, rows, from, range, &mut rng)).collect();
        let clusters = clusters::Settings { k, rounds, early_stop, suppress, strategy };
        Case { columns, weights, initial, settings: Settings { clusters, comparison } }
    }
}

/// How many of the cases met what they are for.
#[derive(Debug, Default)]
struct Met {
    merged: usize,
    suppressed: usize,
}

fn agree(cases: impl Strategy<Value = Case>, count: u32, seed: u64) -> Met {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let mut parties = Parties::new(seed);
    let config = Config { cases: count, failure_persistence: None, max_shrink_iters: 8, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let met = std::sync::Mutex::new(Met::default());
    let parties = std::sync::Mutex::new(&mut parties);
    let outcome = runner.run(&cases, |case| {
        let mut parties = parties.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let outcome = runtime.block_on(case.check(&mut parties));
        let mut met = met.lock().unwrap();
        met.merged += usize::from(outcome.small_clusters > outcome.suppressed_clusters);
        met.suppressed += usize::from(outcome.suppressed_rows > 0);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    met.into_inner().unwrap()
}

#[test]
fn random_tables_agree() {
    let met = agree(cases(40, 4, Comparison::Blinded), 10, 410);
    assert!(met.merged >= 2 && met.suppressed >= 2, "{met:?}");
}

#[test]
fn random_tables_agree_with_exact_comparisons() {
    let met = agree(cases(12, 2, Comparison::Exact), 4, 411);
    assert!(met.merged >= 1 && met.suppressed >= 1, "{met:?}");
}

/// All strategies on one table: each of them moves rows, and each its own way.
#[tokio::test(flavor = "multi_thread")]
async fn all_strategies_agree() {
    let mut parties = Parties::new(400);
    for strategy in STRATEGIES {
        let mut rng = StdRng::seed_from_u64(1);
        let (rows, k) = (37, 4);
        let initial = draw_centres(rows, rows / k, &mut rng).unwrap();
        let kinds = [
            (Kind::Encrypted, 17, 74),
            (Kind::Category, 0, 9),
            (Kind::Public, -1_000_000_000, 2_000_000_000),
            (Kind::Seen, -25, 50),
        ];
        let columns = kinds.map(|(kind, from, range)| column(kind, rows, from, range, &mut rng)).to_vec();
        let settings = crate::settings(k, strategy, Comparison::Blinded);
        let outcome = Case { columns, weights: vec![1, 2, 1, 1], initial, settings }.check(&mut parties).await;
        assert!(outcome.small_clusters > 0 && outcome.classes > 1, "{strategy:?}: {outcome:?}");
    }
}

/// Rows that P1 moves one by one in exact mode too.
#[tokio::test(flavor = "multi_thread")]
async fn rows_move_to_points_with_exact_comparisons() {
    let mut parties = Parties::new(412);
    let columns = vec![Column::Seen(vec![0, 1, 2, 40, 90, 91, 92])];
    let mut settings = crate::settings(3, Reassignment::PointToPoint, Comparison::Exact);
    settings.clusters.rounds = 1;
    let outcome = Case { columns, weights: vec![1], initial: vec![0, 3, 5], settings }.check(&mut parties).await;
    assert_eq!((outcome.small_clusters, outcome.classes), (1, 2));
}
