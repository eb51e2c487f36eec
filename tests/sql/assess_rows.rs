//! Which rows of an original and its anonymised table belong together, however they are stored.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::MemTable;

use crate::sql::assess::{ANON, ROWS, measures, world};
use crate::sql::world::World;

/// The quasi-identifiers and nothing else.
const BARE: &str = "age, wage, illness";

/// The rows of a table in pieces of seven, dealt out in their order.
async fn pieces(world: &World, table: &str) -> Vec<RecordBatch> {
    let rows = world.run(&format!("SELECT * FROM {table} ORDER BY id")).await.unwrap();
    (0..rows.num_rows()).step_by(7).map(|at| rows.slice(at, 7.min(rows.num_rows() - at))).collect()
}

/// A table in memory, of three partitions.
async fn in_memory(world: &World, from: &str, name: &str) {
    let pieces = pieces(world, from).await;
    let partitions = pieces.chunks(pieces.len().div_ceil(3)).map(<[RecordBatch]>::to_vec).collect();
    let table = MemTable::try_new(pieces[0].schema(), partitions).unwrap();
    world.context.register_table(name, Arc::new(table)).unwrap();
}

/// A table of nine files, which cores take from each other.
async fn in_files(world: &World, from: &str, name: &str) {
    for (at, piece) in pieces(world, from).await.into_iter().enumerate() {
        world.context.register_batch("piece", piece).unwrap();
        let file = world.at(&format!("{name}/{at}.parquet"));
        world.run(&format!("COPY piece TO '{}'", file.display())).await.unwrap();
        world.context.deregister_table("piece").unwrap();
    }
    world.create(name, &world.at(&format!("{name}/"))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_keep_their_order_through_partitions_and_files() {
    let world = world(710).await;
    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    let known = measures(&world.run("SELECT * FROM utility(patients, anon)").await.unwrap());
    for (table, anon) in [("patients", "anon"), ("patients_parts", "anon_parts"), ("patients_files", "anon_files")] {
        if table == "patients_parts" {
            in_memory(&world, "patients", table).await;
            in_memory(&world, "anon", anon).await;
        } else if table == "patients_files" {
            in_files(&world, "patients", table).await;
            in_files(&world, "anon", anon).await;
        }
        // A filter is what rows are dealt out to cores for.
        let bare = format!("(SELECT {BARE} FROM {table} WHERE id % 100 >= 0)");
        let published = format!("(SELECT {BARE}, suppressed FROM {anon} WHERE id % 100 >= 0)");
        let sql = format!("SELECT * FROM utility({bare}, {published}, by_order => true)");
        world.veil.take_notes();
        for run in 0..3 {
            assert_eq!(measures(&world.run(&sql).await.unwrap()), known, "{table}, run {run}");
        }
        let notes = world.veil.take_notes();
        assert_eq!(notes.iter().filter(|note| note.contains("taken in their order")).count(), 3, "{notes:?}");
        // What is anonymised is in the order of what it was made from: the same run, and the same losses.
        let made = format!(
            "k_anonymize({bare}, k => 5, comparison => 'blinded', quasi => ({BARE}), rounds => 4, suppress => 0.2, seed => 3)"
        );
        let sql = format!("SELECT * FROM utility({bare}, {made}, by_order => true)");
        assert_eq!(measures(&world.run(&sql).await.unwrap()), known, "{table}");
    }
}

/// Files are read one after the other, and their rows are known.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_tells_the_rows_of_many_files() {
    let world = world(713).await;
    in_files(&world, "patients", "patients_files").await;
    let rows = format!("(SELECT {BARE}, name FROM patients_files)");
    let sql = format!("EXPLAIN SELECT * FROM k_anonymize({rows}, k => 5, quasi => ({BARE}))");
    let explained = world.run(&sql).await.unwrap();
    let plan = explained.column(1).as_string::<i32>().value(1).to_owned();
    assert!(plan.contains("VeilInOrderExec") && plan.contains(&format!("for {ROWS} rows and 12 centres")), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_left_out_are_noted_and_rows_that_stand_twice_refused() {
    let world = world(714).await;
    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    world.run("SELECT * FROM utility(patients, (SELECT * FROM anon WHERE id < 40))").await.unwrap();
    let notes = world.veil.take_notes().join("\n");
    assert!(notes.contains("20 rows of the original are not in the anonymised table"), "{notes}");
    let twice = "(SELECT a.* FROM anon a CROSS JOIN (VALUES (1), (2)) WHERE a.id < 40 OR column1 = 1)";
    let refused = world.refusal(&format!("SELECT * FROM utility(patients, {twice})")).await;
    assert!(refused.contains("hold the same row of an encrypted file"), "{refused}");
}

/// Cells that are elsewhere say that rows do not belong together, whatever their order.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_not_taken_against_what_cells_say() {
    let world = world(715).await;
    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    let halves = |columns: &str| {
        format!(
            "SELECT * FROM utility((SELECT {columns} FROM patients WHERE id < 30), (SELECT {columns}, suppressed FROM anon WHERE id >= 30), by_order => true)"
        )
    };
    let found = world.refusal(&halves("name, age, wage, illness")).await;
    assert!(found.contains("name is encrypted in both tables, and 30 of 30 rows of the anonymised one"), "{found}");
    // Without it nobody knows, and the query says so. Other people's categories are no ancestors.
    world.run(&halves(BARE)).await.unwrap();
    let notes = world.veil.take_notes().join("\n");
    assert!(notes.contains("taken in their order") && notes.contains("illness was left out"), "{notes}");
}

/// Rows that a sort takes for equal come in any order.
#[tokio::test(flavor = "multi_thread")]
async fn a_sort_must_tell_rows_apart() {
    let world = world(716).await;
    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    in_memory(&world, "patients", "patients_parts").await;
    in_memory(&world, "anon", "anon_parts").await;
    let sorted = |by: &str| {
        format!(
            "SELECT * FROM utility((SELECT {BARE} FROM patients_parts ORDER BY {by}), (SELECT {BARE}, suppressed FROM anon_parts ORDER BY {by}), by_order => true)"
        )
    };
    for by in ["id % 9", "id / 2 DESC", "id % 7 LIMIT 3", "id % 9, id % 3"] {
        let found = world.refusal(&sorted(by)).await;
        assert!(found.contains("rows are sorted by") && found.contains("in which some are equal"), "{by}: {found}");
    }
    let known = measures(&world.run("SELECT * FROM utility(patients, anon)").await.unwrap());
    for by in ["id DESC", "id % 9, id", "id % 9, id % 5, id % 7"] {
        assert_eq!(measures(&world.run(&sorted(by)).await.unwrap()), known, "{by}");
    }
    // Who sorts needs no other order.
    world.run("CREATE TABLE turned AS SELECT * FROM anon ORDER BY id % 7, id").await.unwrap();
    let of_turned = sorted("id").replace("anon_parts", "turned");
    assert_eq!(measures(&world.run(&of_turned).await.unwrap()), known);
    let part = "SELECT * FROM utility((SELECT * FROM patients WHERE id < 20), (SELECT * FROM anon WHERE id < 20))";
    let known = measures(&world.run(part).await.unwrap());
    assert_eq!(measures(&world.run(&sorted("id LIMIT 20")).await.unwrap()), known);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clear_column_tells_which_rows_belong_together_if_it_can() {
    let world = world(711).await;
    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    let known = measures(&world.run("SELECT * FROM utility(patients, anon)").await.unwrap());
    assert!(world.veil.take_notes().iter().all(|note| !note.contains("belong together")));
    let turned = format!(
        "SELECT * FROM utility((SELECT id, {BARE} FROM patients ORDER BY id DESC), (SELECT id, {BARE}, suppressed FROM anon ORDER BY id % 7, id))"
    );
    assert_eq!(measures(&world.run(&turned).await.unwrap()), known);
    assert_eq!(world.veil.take_notes(), ["rows belong together by their value of id"]);
    // One that has a value twice cannot, nor one with NULLs, nor one that is in one table only.
    for (ours, theirs) in [("id / 2 AS id", "id / 2 AS id"), ("nullif(id, 5) AS id", "id"), ("id", "id AS other")] {
        let sql = format!(
            "SELECT * FROM utility((SELECT {ours}, {BARE} FROM patients), (SELECT {theirs}, {BARE}, suppressed FROM anon))"
        );
        let found = world.refusal(&sql).await;
        assert!(found.contains("no column tells which rows of the two tables belong together"), "{ours}: {found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_nobody_keeps_is_not_relied_on() {
    let world = world(712).await;
    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    let published = format!("(SELECT {BARE}, suppressed FROM anon)");
    let joined = "(SELECT p.age, p.wage, p.illness FROM patients p JOIN anon a ON p.id = a.id)";
    let found = world.refusal(&format!("SELECT * FROM utility({joined}, {published}, by_order => true)")).await;
    assert!(found.contains("rows come through HashJoinExec, which keeps no order"), "{found}");
    let few = format!("(SELECT {BARE}, suppressed FROM anon WHERE id < 40)");
    let sql = format!("SELECT * FROM utility((SELECT {BARE} FROM patients), {few}, by_order => true)");
    assert!(world.refusal(&sql).await.contains(&format!("has {ROWS} rows and the anonymised one 40")));
    // Without being told to, nobody takes rows in their order.
    let found = world.refusal(&format!("SELECT * FROM utility((SELECT {BARE} FROM patients), {published})")).await;
    assert!(found.contains("say by_order => true"), "{found}");
    assert!(world.veil.assessments().is_empty());
    // Who sorts has an order.
    let sorted = |columns: &str, table: &str| format!("(SELECT {columns} FROM {table} ORDER BY id DESC)");
    let sql = format!(
        "SELECT * FROM utility({}, {}, by_order => true)",
        sorted(BARE, "patients"),
        sorted(&format!("{BARE}, suppressed"), "anon")
    );
    let known = measures(&world.run("SELECT * FROM utility(patients, anon)").await.unwrap());
    assert_eq!(measures(&world.run(&sql).await.unwrap()), known);
}
