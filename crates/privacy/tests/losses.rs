//! Losses against those of runs in another language, on public data.
//!
//! The runs lie beside the project and not in it; without them the tests pass and say so.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests panic on failure and say what they skipped")]

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;
use veil_privacy::clusters::coordinate;
use veil_privacy::utility::{NodeTables, RangeLoss, SquaredErrors, information_loss, precision_loss, total_loss};
use veil_privacy::{ClassSizes, Hierarchy, Spacing};

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data")
}

/// A run, its table by columns, and the group of every row.
struct Golden {
    run: Value,
    columns: HashMap<String, Vec<String>>,
    groups: Vec<u64>,
}

fn load(name: &str, table: &str) -> Option<Golden> {
    let files = [data().join("golden").join(name), data().join(table)].map(std::fs::read_to_string);
    let [Ok(run), Ok(table)] = files else {
        eprintln!("skipped: {name} or its data are not at hand");
        return None;
    };
    let run: Value = serde_json::from_str(&run).unwrap();
    let groups: Vec<u64> = run["final_group"].as_array().unwrap().iter().map(|group| group.as_u64().unwrap()).collect();
    let mut lines = table.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let rows: Vec<Vec<String>> = lines.take(groups.len()).collect();
    let column = |at: usize| rows.iter().map(|row| row[at].clone()).collect();
    let columns = header.into_iter().enumerate().map(|(at, name)| (name, column(at))).collect();
    Some(Golden { run, columns, groups })
}

/// SSE / SST on the grid is that of z-scores in floating point.
fn numeric(name: &str, table: &str) {
    let Some(golden) = load(name, table) else { return };
    let mut ratios = Vec::new();
    for column in golden.run["columns"].as_array().unwrap() {
        let values: Vec<f64> =
            golden.columns[column.as_str().unwrap()].iter().map(|cell| cell.parse().unwrap()).collect();
        // In millionths, so that fractions are whole numbers too.
        let whole: Vec<i64> = values.iter().map(|value| (value * 1e6).round() as i64).collect();
        let (lower, upper) = (*whole.iter().min().unwrap(), *whole.iter().max().unwrap());
        let mut sums: HashMap<u64, (f64, f64)> = HashMap::new();
        for (value, group) in whole.iter().zip(&golden.groups) {
            let sum = sums.entry(*group).or_default();
            *sum = (sum.0 + *value as f64, sum.1 + 1.0);
        }
        let mean = |group: &u64| (sums[group].0 / sums[group].1).round() as i64;
        let grid = |value: i64| coordinate(value, lower, upper);
        let original: Vec<i64> = whole.iter().map(|value| grid(*value)).collect();
        let published: Vec<i64> = golden.groups.iter().map(|group| grid(mean(group))).collect();
        ratios.push(SquaredErrors::of(&original, &published, &vec![false; whole.len()]).unwrap().all_ratio());
    }
    let (found, expected) = (information_loss(&ratios), golden.run["IL_percent"].as_f64().unwrap());
    assert!((found - expected).abs() < 1e-3 * expected, "{found} {expected}");
}

#[test]
fn lsun_loses_as_much_as_in_floating_point() {
    numeric("lsun_k10_th0.json", "lsun.csv");
}

#[test]
fn census_loses_as_much_as_in_floating_point() {
    numeric("census_k3_th0.json", "census.csv");
}

#[test]
fn adult_loses_as_much_as_elsewhere() {
    let Some(golden) = load("adult_first1000_minmax_k5_th0.json", "adult.csv") else { return };
    let metrics = &golden.run["metrics"];
    let expected = |name: &str| metrics[name].as_f64().unwrap();
    let sizes = ClassSizes::from_labels(&golden.groups);
    assert!((sizes.average() - expected("AECS")).abs() < 1e-9);
    assert!((sizes.average_by_k(5) - expected("C_AVG")).abs() < 1e-9);
    assert_eq!(sizes.discernibility() as f64, expected("DM"));
    assert_eq!((sizes.smallest() as f64, sizes.classes() as f64), (expected("minEC"), expected("ECs")));
    let per = |name: &str| metrics["per"][name].as_f64().unwrap();
    let of_rows: Vec<Option<u64>> = golden.groups.iter().copied().map(Some).collect();
    let (mut losses, mut precisions) = (Vec::new(), Vec::new());
    for name in golden.run["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
        let cells = &golden.columns[name];
        if name == "age" {
            let ages: Vec<i64> = cells.iter().map(|cell| cell.parse().unwrap()).collect();
            // The run divides by the range of the whole census.
            let loss = RangeLoss { range: 73, ..RangeLoss::of(&ages, &of_rows).unwrap() };
            assert!((loss.mean() - per(name)).abs() < 1e-3, "{name}: {} {}", loss.mean(), per(name));
            losses.push(loss.published_loss());
            continue;
        }
        let file = std::fs::read_to_string(data().join(format!("hierarchies/adult_hierarchy_{name}.csv"))).unwrap();
        let paths: Vec<Vec<String>> =
            file.lines().map(|line| line.split(',').map(|label| label.trim().to_owned()).collect()).collect();
        let tree = Hierarchy::from_rows(&paths).unwrap();
        let representatives = tree.representatives(Spacing::Even).unwrap();
        let code = |leaf: usize, level: usize| representatives.of(tree.ancestor(leaf, level).unwrap()).unwrap();
        let codes: Vec<Vec<i64>> = (0..tree.leaf_count())
            .map(|leaf| (0..tree.level_count()).map(|level| code(leaf, level)).collect())
            .collect();
        let tables = NodeTables::of(&codes).unwrap();
        let leaves: Vec<usize> = cells.iter().map(|cell| tree.leaf(cell).unwrap()).collect();
        let top = tables.levels() - 1;
        let (mut at_level, mut below) = (vec![0; top + 1], 0);
        for (leaf, group) in leaves.iter().zip(&golden.groups) {
            let alike = || leaves.iter().zip(&golden.groups).filter(|(_, of)| *of == group).map(|(leaf, _)| *leaf);
            let level =
                (0..=top).find(|level| alike().all(|other| codes[other][*level] == codes[*leaf][*level])).unwrap();
            at_level[level] += 1;
            below += tables.leaves(level).unwrap()[&codes[*leaf][level]] as u64;
        }
        let (rows, mean) = (cells.len() as u64, tables.loss(below, cells.len() as u64, 0));
        assert!((mean - per(name)).abs() < 1e-3, "{name}: {mean} {}", per(name));
        losses.push(mean * rows as f64);
        precisions.push(precision_loss(&at_level, 0));
    }
    let found = total_loss(&losses, golden.groups.len() as u64, 0);
    assert!((found - expected("GCP")).abs() < 1e-9, "{found}");
    let precision = precisions.iter().sum::<f64>() / precisions.len() as f64;
    assert!((precision - expected("CatPrecLoss")).abs() < 1e-3, "{precision}");
}
