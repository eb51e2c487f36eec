//! Against runs in floating point from the same initial rows, on public data beside the project; without it the tests pass and say so.

#![allow(clippy::print_stderr, reason = "tests say what they skipped")]

use std::path::{Path, PathBuf};

use serde_json::Value;
use veil_privacy::Hierarchy;
use veil_privacy::clusters::{Reassignment, Settings};

use super::sample::{Column, Sample, smallest_class};
use crate::sql::world::World;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data")
}

/// A run, and its table.
struct Golden {
    run: Value,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Golden {
    fn load(name: &str, table: &str, rows: usize) -> Option<Self> {
        let run = std::fs::read_to_string(data().join("golden").join(name)).ok();
        let table = std::fs::read_to_string(data().join(table)).ok();
        let (Some(run), Some(table)) = (run, table) else {
            eprintln!("skipped: {name} or its data are not at hand");
            return None;
        };
        let mut lines = table.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let header = lines.next().unwrap();
        Some(Self { run: serde_json::from_str(&run).unwrap(), header, rows: lines.take(rows).collect() })
    }

    fn columns(&self) -> Vec<String> {
        self.run["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    fn numbers(&self, field: &str) -> Vec<usize> {
        self.run[field].as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as usize).collect()
    }

    fn texts(&self, column: &str) -> Vec<&str> {
        let place = self.header.iter().position(|name| name == column).unwrap();
        self.rows.iter().map(|row| row[place].as_str()).collect()
    }

    /// Runs it over ciphertexts and compares it with the clear algorithm, row by row, and that with the run in floating point.
    async fn check(&self, seed: u64, sample: Sample, loss: impl Fn(&[usize]) -> f64, expected_loss: f64) {
        let world = World::new(seed).await;
        sample.add_to(&world, "golden").await;
        let (initial, k) = (self.numbers("init_rows_0based"), self.run["k"].as_u64().unwrap() as usize);
        let rounds = self.run["rounds"].as_u64().unwrap() as usize;
        let strategy = Reassignment::ClusterToCluster;
        let settings = Settings { k, rounds, early_stop: true, suppress: 0, strategy };
        let weights = vec![1; sample.columns.len()];
        let rows: Vec<String> = initial.iter().map(usize::to_string).collect();
        let sql = format!(
            "SELECT * FROM k_anonymize(golden, k => {k}, comparison => 'blinded', quasi => ({}), rounds => {rounds}, init => 'rows', init_rows => ({}))",
            sample.quasi(),
            rows.join(", ")
        );
        let found = sample.found(&world.reveal(&sql).await.unwrap());
        assert!(smallest_class(&found) >= k);
        assert_eq!(found, sample.published(&weights, &initial, &settings).0);
        // Groups, up to rows that are equally near to two centres.
        let (_, classes, _) = sample.classes(&weights, &initial, &settings);
        let groups: Vec<usize> = classes.of_rows.iter().map(|class| classes.classes[class.unwrap()].cluster).collect();
        let expected = self.numbers("final_group");
        let same = groups.iter().zip(&expected).filter(|(group, expected)| group == expected).count();
        assert!(same * 100 >= expected.len() * 98, "{same} of {} rows are in the same group", expected.len());
        let found_loss = loss(&groups);
        assert!((found_loss - expected_loss).abs() <= expected_loss / 100.0, "{found_loss}, expected {expected_loss}");
    }
}

/// Mean 0 and population standard deviation 1, in steps of 1/10000; all columns with the same bounds, so that they weigh alike.
async fn standardised(seed: u64, name: &str, table: &str, reach: i64) {
    let Some(golden) = Golden::load(name, table, usize::MAX) else { return };
    let scores = |column: &String| {
        let values: Vec<f64> = golden.texts(column).iter().map(|text| text.parse().unwrap()).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        values.iter().map(|value| (value - mean) / deviation).collect::<Vec<f64>>()
    };
    let columns: Vec<Vec<f64>> = golden.columns().iter().map(scores).collect();
    let column = |(name, values): (String, &Vec<f64>)| {
        let values = values.iter().map(|value| (value * 10_000.0).round() as i64).collect();
        (name, Column::Number { values, places: 4, bounds: (-reach * 10_000, reach * 10_000), public: false })
    };
    let rows = golden.rows.len();
    let sample = Sample { columns: golden.columns().into_iter().zip(&columns).map(column).collect(), rows };
    // 100 SSE / SST.
    let loss = |groups: &[usize]| {
        let lost = |column: &Vec<f64>| {
            let mut sums = std::collections::HashMap::new();
            for (group, value) in groups.iter().zip(column) {
                let (sum, count) = sums.entry(*group).or_insert((0.0, 0.0));
                (*sum, *count) = (*sum + value, *count + 1.0);
            }
            groups.iter().zip(column).map(|(group, value)| (value - sums[group].0 / sums[group].1).powi(2)).sum::<f64>()
        };
        100.0 * columns.iter().map(lost).sum::<f64>() / (columns.len() * rows) as f64
    };
    golden.check(seed, sample, loss, golden.run["IL_percent"].as_f64().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lsun_as_in_floating_point() {
    standardised(210, "lsun_k10_th0.json", "lsun.csv", 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn census_as_in_floating_point() {
    standardised(211, "census_k3_th0.json", "census.csv", 16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adult_as_in_floating_point() {
    let Some(golden) = Golden::load("adult_first1000_minmax_k5_th0.json", "adult.csv", 1000) else { return };
    let ages: Vec<i64> = golden.texts("age").iter().map(|age| age.parse().unwrap()).collect();
    let bounds = (*ages.iter().min().unwrap(), *ages.iter().max().unwrap());
    let mut columns = Vec::new();
    for name in golden.columns() {
        if name == "age" {
            columns.push((name, Column::Number { values: ages.clone(), places: 0, bounds, public: false }));
            continue;
        }
        let text = std::fs::read_to_string(data().join(format!("hierarchies/adult_hierarchy_{name}.csv"))).unwrap();
        let mut paths: Vec<Vec<String>> =
            text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect();
        // The run numbered the leaves by the labels above them, from the root down.
        paths.sort_by(|one, other| one.iter().rev().cmp(other.iter().rev()));
        let hierarchy = Hierarchy::from_rows(&paths).unwrap();
        let leaves = golden.texts(&name).iter().map(|label| hierarchy.leaf(label).unwrap()).collect();
        columns.push((name, Column::Category { leaves, hierarchy }));
    }
    let sample = Sample { columns, rows: 1000 };
    let span = (bounds.1 - bounds.0) as f64;
    // GCP: what classes span of their columns, on average.
    let lost = sample.columns.iter().map(|(_, column)| match column {
        Column::Category { leaves, hierarchy } => Some((leaves.clone(), hierarchy.clone())),
        _ => None,
    });
    let trees: Vec<_> = lost.flatten().collect();
    let loss = |groups: &[usize]| {
        let mut members = std::collections::HashMap::<usize, Vec<usize>>::new();
        groups.iter().enumerate().for_each(|(row, group)| members.entry(*group).or_default().push(row));
        let of_class = |rows: &Vec<usize>| {
            let own: Vec<i64> = rows.iter().map(|row| ages[*row]).collect();
            let numbers = (own.iter().max().unwrap() - own.iter().min().unwrap()) as f64 / span;
            let categories = trees.iter().map(|(leaves, tree)| {
                let level = (0..tree.level_count()).find(|level| {
                    rows.iter().all(|row| tree.ancestor(leaves[*row], *level) == tree.ancestor(leaves[rows[0]], *level))
                });
                let node = tree.ancestor(leaves[rows[0]], level.unwrap()).unwrap();
                (tree.leaves_below(node).unwrap() - 1) as f64 / (tree.leaf_count() - 1) as f64
            });
            rows.len() as f64 * (numbers + categories.sum::<f64>())
        };
        members.values().map(of_class).sum::<f64>() / (1000 * 8) as f64
    };
    golden.check(212, sample, loss, golden.run["metrics"]["GCP"].as_f64().unwrap()).await;
}
