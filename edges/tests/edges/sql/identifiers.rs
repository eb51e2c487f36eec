//! Which columns identify people, by every method.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::record_batch::RecordBatch;

use super::people::{COLUMNS, Person, add_people, classes, partitioned};
use super::world::World;
use crate::EDGES;

/// Sets of columns, each with its rows at risk, in an order of their own.
type Found = Vec<(Vec<String>, i64)>;

fn found(batch: &RecordBatch) -> Found {
    let columns = batch.column_by_name("columns").unwrap().as_list::<i32>();
    let at_risk = batch.column_by_name("rows_at_risk").unwrap().as_primitive::<Int64Type>();
    let row = |row: usize| {
        let names = columns.value(row);
        let mut names: Vec<String> = names.as_string::<i32>().iter().flatten().map(str::to_owned).collect();
        names.sort_unstable();
        (names, at_risk.value(row))
    };
    let mut found: Found = (0..batch.num_rows()).map(row).collect();
    found.sort();
    found
}

/// The sets that have classes smaller than k while none of their subsets has.
fn expected(people: &[Person], columns: &[&str], k: u64) -> Found {
    let mut sets: Vec<Vec<&str>> = (1..1usize << columns.len())
        .map(|set| columns.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, name)| *name).collect())
        .collect();
    sets.sort_by_key(Vec::len);
    let mut minimal: Found = Vec::new();
    for set in sets {
        let small: u64 = classes(people, &set).values().filter(|size| **size < k).sum();
        let mut names: Vec<String> = set.iter().map(|name| (*name).to_owned()).collect();
        names.sort_unstable();
        let includes = |(other, _): &(Vec<String>, i64)| other.iter().all(|name| names.contains(name));
        if small > 0 && !minimal.iter().any(includes) {
            minimal.push((names, small as i64));
        }
    }
    minimal.sort();
    minimal
}

async fn check(world: &World, people: &[Person], table: &str, columns: &[&str], method: &str) {
    for k in [2, 4] {
        let sql = format!(
            "SELECT * FROM identifiers({table}, columns => ({}), k => {k}, max_size => 5, rows_at_risk => true, {method})",
            columns.join(", ")
        );
        let batch = world.run(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(found(&batch), expected(people, columns, k), "{} rows: {sql}", people.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_found_is_what_grouping_finds() {
    let world = World::new(1).await;
    for rows in EDGES {
        let people = add_people(&world, rows).await;
        let [whole, parts] = partitioned(rows);
        for table in [&whole, &parts] {
            check(&world, &people, table, &COLUMNS, "shuffle => true").await;
        }
        // Columns of a kind alone, and kinds that go with tags.
        for columns in [&["age", "job"][..], &["zip", "illness"], &["region"], &["job"], &["illness"]] {
            check(&world, &people, &whole, columns, "shuffle => true").await;
        }
        for table in [&whole, &parts] {
            check(&world, &people, table, &["age", "job", "region"], "shuffle => false").await;
        }
        if rows <= 64 {
            check(&world, &people, &parts, &COLUMNS, "method => 'pairwise', shuffle => true").await;
            check(&world, &people, &whole, &["age", "zip", "region"], "method => 'pairwise', shuffle => false").await;
        }
    }
}
