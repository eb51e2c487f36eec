//! The clusters on integers against runs in floating point from the same initial rows, on public data.
//!
//! The runs lie beside the project and not in it; without them the tests pass and say so.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests panic on failure and say what they skipped")]

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;
use veil_privacy::Hierarchy;
use veil_privacy::clusters::{Classes, Points, Reassignment, Settings, Summary, anonymise, class_ancestors};

/// A run, and the columns of its table: cells row by row.
struct Golden {
    run: Value,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Golden {
    /// Of this name, over a table's first rows. `None` if it is not at hand.
    fn load(name: &str, table: &str, rows: usize) -> Option<Self> {
        let run = data().join("golden").join(name);
        let (Ok(run), Ok(table)) = (std::fs::read_to_string(run), std::fs::read_to_string(data().join(table))) else {
            eprintln!("skipped: {name} or its data are not at hand");
            return None;
        };
        let run: Value = serde_json::from_str(&run).unwrap();
        let columns: Vec<String> = run["columns"].as_array().unwrap().iter().map(text).collect();
        let mut lines = table.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let places: Vec<usize> =
            columns.iter().map(|column| header.iter().position(|name| name == column).unwrap()).collect();
        let rows = lines.take(rows).map(|cells| places.iter().map(|place| cells[*place].clone()).collect());
        Some(Self { rows: rows.collect(), run, columns })
    }

    fn numbers(&self, field: &str) -> Vec<usize> {
        self.run[field].as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as usize).collect()
    }

    fn column(&self, name: &str) -> Vec<&str> {
        let place = self.columns.iter().position(|column| column == name).unwrap();
        self.rows.iter().map(|row| row[place].as_str()).collect()
    }

    /// From coordinates column by column, on a grid of this many steps to one.
    fn anonymise(&self, columns: &[Vec<f64>], steps: f64) -> (Classes, Summary) {
        let row = |row: usize| columns.iter().map(move |column| (column[row] * steps).round() as i64);
        let points = Points::new((0..self.rows.len()).flat_map(row).collect(), vec![1; columns.len()]).unwrap();
        let field = |name: &str| self.run[name].as_u64().unwrap() as usize;
        let (k, rounds) = (field("k"), field("rounds"));
        let settings = Settings { k, rounds, early_stop: false, suppress: 0, strategy: Reassignment::ClusterToCluster };
        anonymise(&points, &self.numbers("init_rows_0based"), &settings).unwrap()
    }

    /// At least 98 % of the rows end in the same cluster; both number them alike. Where two centres are equally near, floating point goes by
    /// its rounding and the grid by its own.
    fn assert_same_groups(&self, classes: &Classes) {
        let expected = self.numbers("final_group");
        let found = classes.of_rows.iter().map(|class| classes.classes[class.unwrap()].cluster);
        let same = expected.iter().zip(found).filter(|(expected, found)| *expected == found).count();
        eprintln!("{same} of {} rows agree; {} classes", expected.len(), classes.classes.len());
        assert!(same * 100 >= expected.len() * 98, "{same} of {} rows agree", expected.len());
    }
}

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Mean 0 and population standard deviation 1.
fn standardised(column: &[f64]) -> Vec<f64> {
    let rows = column.len() as f64;
    let mean = column.iter().sum::<f64>() / rows;
    let deviation = (column.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / rows).sqrt();
    column.iter().map(|value| (value - mean) / deviation).collect()
}

/// 100 * SSE / SST of standardised columns.
fn information_loss(columns: &[Vec<f64>], classes: &Classes) -> f64 {
    let mut lost = 0.0;
    for column in columns {
        let mut means = vec![0.0; classes.classes.len()];
        let of_rows = || classes.of_rows.iter().map(|class| class.unwrap()).zip(column);
        of_rows().for_each(|(class, value)| means[class] += value / classes.classes[class].rows as f64);
        lost += of_rows().map(|(class, value)| (value - means[class]).powi(2)).sum::<f64>();
    }
    100.0 * lost / (columns.len() * classes.of_rows.len()) as f64
}

fn assert_within_a_percent(found: f64, expected: f64) {
    eprintln!("loss {found}, expected {expected}");
    assert!((found - expected).abs() <= expected / 100.0, "{found} is not within 1 % of {expected}");
}

fn numeric_run(name: &str, table: &str) {
    let Some(golden) = Golden::load(name, table, usize::MAX) else { return };
    let numbers =
        |column: &String| -> Vec<f64> { golden.column(column).into_iter().map(|cell| cell.parse().unwrap()).collect() };
    let columns: Vec<Vec<f64>> = golden.columns.iter().map(|column| standardised(&numbers(column))).collect();
    let (classes, _) = golden.anonymise(&columns, 2048.0);
    golden.assert_same_groups(&classes);
    assert_within_a_percent(information_loss(&columns, &classes), golden.run["IL_percent"].as_f64().unwrap());
}

#[test]
fn lsun_agrees_with_floating_point() {
    numeric_run("lsun_k10_th0.json", "lsun.csv");
}

#[test]
fn census_agrees_with_floating_point() {
    numeric_run("census_k3_th0.json", "census.csv");
}

#[test]
fn adult_agrees_with_floating_point() {
    let Some(golden) = Golden::load("adult_first1000_minmax_k5_th0.json", "adult.csv", 1000) else { return };
    let ages: Vec<f64> = golden.column("age").into_iter().map(|cell| cell.parse().unwrap()).collect();
    let (low, high) = ages.iter().fold((f64::MAX, f64::MIN), |(low, high), age| (low.min(*age), high.max(*age)));
    let mut columns = vec![ages.iter().map(|age| (age - low) / (high - low)).collect::<Vec<_>>()];
    let mut trees = HashMap::new();
    for column in golden.columns.iter().filter(|column| *column != "age") {
        let file = data().join(format!("hierarchies/adult_hierarchy_{column}.csv"));
        let rows = std::fs::read_to_string(file).unwrap();
        let mut rows: Vec<Vec<String>> =
            rows.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect();
        // The run numbered the leaves by the labels above them, from the root down.
        rows.sort_by(|one, other| one.iter().rev().cmp(other.iter().rev()));
        let tree = Hierarchy::from_rows(&rows).unwrap();
        let leaves: Vec<usize> = golden.column(column).into_iter().map(|label| tree.leaf(label).unwrap()).collect();
        columns.push(leaves.iter().map(|leaf| *leaf as f64 / (tree.leaf_count() - 1) as f64).collect());
        trees.insert(column.clone(), (tree, leaves));
    }
    let (classes, _) = golden.anonymise(&columns, 32_768.0);
    golden.assert_same_groups(&classes);
    // GCP: the mean over rows and columns of what a class spans of its column.
    let mut ranges = vec![(f64::MAX, f64::MIN); classes.classes.len()];
    for (class, age) in classes.of_rows.iter().zip(&ages) {
        let (low, high) = &mut ranges[class.unwrap()];
        (*low, *high) = (low.min(*age), high.max(*age));
    }
    let mut lost = 0.0;
    for (number, class) in classes.classes.iter().enumerate() {
        let (from, to) = ranges[number];
        lost += class.rows as f64 * (to - from) / (high - low);
    }
    for (tree, leaves) in trees.values() {
        for (node, class) in class_ancestors(&classes, leaves, tree).unwrap().into_iter().zip(&classes.classes) {
            let spanned = (tree.leaves_below(node).unwrap() - 1) as f64 / (tree.leaf_count() - 1) as f64;
            lost += class.rows as f64 * spanned;
        }
    }
    let expected = golden.run["metrics"]["GCP"].as_f64().unwrap();
    assert_within_a_percent(lost / (golden.rows.len() * golden.columns.len()) as f64, expected);
}
