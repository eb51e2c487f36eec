//! Public data. The files lie beside the project and not in it; without them the tests pass and say so.

use std::path::PathBuf;

use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_privacy::clusters::{cluster_count, draw_centres};
use veil_protocols::k_anonymize::Comparison;

use crate::case::Case;
use crate::column::Column;
use crate::{Parties, STRATEGIES, settings};

/// The first columns of a file, in units of this many to one. `None` if it is not at hand.
fn load(name: &str, columns: usize, units: f64) -> Option<Vec<Column>> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    let Ok(text) = std::fs::read_to_string(file) else {
        eprintln!("skipped: {name} is not at hand");
        return None;
    };
    let rows: Vec<Vec<i64>> = text
        .lines()
        .skip(1)
        .map(|line| {
            line.split(',').take(columns).map(|cell| (cell.parse::<f64>().unwrap() * units).round() as i64).collect()
        })
        .collect();
    let column = |column: usize| {
        let values: Vec<i64> = rows.iter().map(|row| row[column]).collect();
        let bounds = (*values.iter().min().unwrap(), *values.iter().max().unwrap());
        // Every second column has public bounds.
        Column::Numbers { values, bounds, public: column % 2 == 1 }
    };
    Some((0..columns).map(column).collect())
}

async fn agree(name: &str, columns: usize, units: f64, k: usize) {
    let Some(columns) = load(name, columns, units) else { return };
    let mut parties = Parties::new(480);
    let rows = columns[0].rows();
    for strategy in STRATEGIES {
        let initial = draw_centres(rows, cluster_count(rows, k).unwrap(), &mut StdRng::seed_from_u64(3)).unwrap();
        let mut settings = settings(k, strategy, Comparison::Blinded);
        settings.clusters.rounds = 2;
        let case = Case { weights: vec![1; columns.len()], columns: columns.clone(), initial, settings };
        let outcome = case.check(&mut parties).await;
        assert!(outcome.small_clusters > 0 && outcome.classes > 1, "{name}, {strategy:?}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn iris_agrees_with_the_clear() {
    agree("iris.csv", 4, 10.0, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lsun_agrees_with_the_clear() {
    agree("lsun.csv", 2, 1e6, 25).await;
}

/// One round of exact comparisons, after which rows of a small cluster move, each strategy its own way.
#[tokio::test(flavor = "multi_thread")]
async fn iris_agrees_with_exact_comparisons() {
    let Some(columns) = load("iris.csv", 4, 10.0) else { return };
    let mut parties = Parties::new(481);
    for strategy in STRATEGIES {
        let mut settings = settings(45, strategy, Comparison::Exact);
        settings.clusters.rounds = 1;
        let case = Case { weights: vec![1, 2, 3, 4], columns: columns.clone(), initial: vec![0, 50, 117], settings };
        let outcome = case.check(&mut parties).await;
        assert!(outcome.small_clusters > 0 && outcome.classes > 1, "{strategy:?}: {outcome:?}");
    }
}

/// Exact comparisons of more rows and centres, with small clusters that join as a whole or row by row.
#[tokio::test(flavor = "multi_thread")]
async fn lsun_agrees_with_exact_comparisons() {
    let Some(columns) = load("lsun.csv", 2, 1e6) else { return };
    let mut parties = Parties::new(482);
    for strategy in STRATEGIES {
        let initial = draw_centres(400, 10, &mut StdRng::seed_from_u64(3)).unwrap();
        let mut settings = settings(40, strategy, Comparison::Exact);
        settings.clusters.rounds = 1;
        let case = Case { weights: vec![1, 1], columns: columns.clone(), initial, settings };
        let outcome = case.check(&mut parties).await;
        assert!(outcome.small_clusters > 0 && outcome.classes > 1, "{strategy:?}: {outcome:?}");
    }
}
