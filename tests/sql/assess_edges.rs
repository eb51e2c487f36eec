//! Risk and utility where tables are tiny, masked, moved or suppressed, and where their quasi-identifiers are clear.

use std::collections::{HashMap, HashSet};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use veilfusion::VeilSessionState;

use crate::sql::assess::{ANON, ROWS, measures, row, value, world};
use crate::sql::world::{World, run};

type Found = HashMap<(String, String), f64>;

fn is_told(found: &Found, measure: &str, column: &str) -> bool {
    found.contains_key(&(measure.to_owned(), column.to_owned()))
}

async fn found(world: &World, sql: &str) -> Found {
    measures(&world.run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")))
}

fn numbers(batch: &RecordBatch, column: &str) -> Vec<Option<f64>> {
    batch.column_by_name(column).unwrap().as_primitive::<Float64Type>().iter().collect()
}

/// Masked at random, categories look as if they had lost nothing. Redacted, they are the root.
#[tokio::test(flavor = "multi_thread")]
async fn categories_are_measured_where_they_stand_above_the_original_ones() {
    let world = world(720).await;
    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    let published = |illness: &str| format!("(SELECT id, name, age, wage, {illness} AS illness, suppressed FROM anon)");
    let masked = "(SELECT id, name, age, wage, mask_random(illness) AS illness FROM patients)";
    let again = format!(
        "k_anonymize({masked}, k => 2, comparison => 'blinded', quasi => (age, wage, illness), rounds => 2, seed => 3)"
    );
    for anonymised in [published("mask_random(illness)"), again] {
        let sql =
            format!("SELECT * FROM utility(patients, {anonymised}, quasi => (age, wage, illness), ranges => true)");
        let found = found(&world, &sql).await;
        assert!(is_told(&found, "information_loss", "age"), "{anonymised}");
        for measure in ["precision_loss", "generalised_loss", "entropy_loss"] {
            assert!(!is_told(&found, measure, "illness") && !is_told(&found, measure, ""), "{measure} of {anonymised}");
        }
        assert!(!is_told(&found, "certainty_penalty", ""), "{anonymised}");
        let notes = world.veil.take_notes().join("\n");
        let expected = "illness was left out: published categories are not ancestors of the original ones";
        assert!(notes.contains(expected), "{anonymised}: {notes}");
    }
    // Of rows alone that are masked.
    let sql = format!("SELECT * FROM utility(patients, {}, quasi => (illness))", published("mask_redact(illness)"));
    let found = found(&world, &sql).await;
    for measure in ["precision_loss", "generalised_loss"] {
        assert_eq!(value(&found, measure, "illness"), 1.0, "{measure}");
    }
    assert!((value(&found, "entropy_loss", "illness") - 1.0).abs() < 1e-5);
    assert!(world.veil.take_notes().iter().all(|note| !note.contains("left out")));
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_with_other_bounds_than_before_are_left_out() {
    let world = world(721).await;
    let moved = "(SELECT id, name, enc_add(age, 1000) AS age, wage FROM patients)";
    let anon =
        format!("k_anonymize({moved}, k => 5, comparison => 'blinded', quasi => (age, wage), rounds => 2, seed => 3)");
    let found =
        found(&world, &format!("SELECT * FROM utility(patients, {anon}, quasi => (age, wage), ranges => true)")).await;
    assert!(is_told(&found, "information_loss", "wage") && is_told(&found, "range_loss", "wage"));
    assert!(!is_told(&found, "information_loss", "age") && !is_told(&found, "range_loss", "age"));
    let notes = world.veil.take_notes().join("\n");
    assert!(notes.contains("age has other bounds after anonymising and was not measured"), "{notes}");
}

/// The grid has 32768 steps of the declared range: one of 65536 here, for data up to 30000.
#[tokio::test(flavor = "multi_thread")]
async fn what_varies_by_less_than_a_step_of_its_range_has_no_loss() {
    const DECLARATION: &str = r#"
[table]
name = "accounts"
[column.name]
kind = "text"
max_length = 12
[column.worth]
kind = "integer"
range = [0, 2147483647]
[column.age]
kind = "integer"
range = [0, 120]
"#;
    let world = World::new(722).await;
    let lines: String = (0..24).map(|id| format!("person {id},{},{}\n", 30_000 * id / 23, 20 + id)).collect();
    world.table("accounts", &format!("name,worth,age\n{lines}"), DECLARATION).await;
    let anon = "k_anonymize(accounts, k => 4, comparison => 'blinded', quasi => (worth, age), rounds => 3, seed => 3)";
    let sql = format!("SELECT * FROM utility(accounts, {anon}, quasi => (worth, age))");
    let batch = world.run(&sql).await.unwrap();
    let found = measures(&batch);
    let of_age = value(&found, "information_loss", "age");
    assert!(of_age > 0.1 && of_age < 100.0, "{of_age}");
    assert_eq!(value(&found, "information_loss", ""), of_age);
    assert_eq!(value(&found, "information_loss_retained", ""), value(&found, "information_loss_retained", "age"));
    assert!(!is_told(&found, "information_loss", "worth"));
    // It is a row without a value, and there is a note.
    let names = batch.column_by_name("column_name").unwrap().as_string::<i32>();
    assert_eq!(names.iter().filter(|name| *name == Some("worth")).count(), 2);
    let notes = world.veil.take_notes().join("\n");
    assert!(notes.contains("worth varies by less than a step of its declared range"), "{notes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_and_rows_that_are_all_suppressed() {
    let world = world(723).await;
    let one = "(SELECT * FROM patients WHERE id = 7)";
    let risk = found(&world, &format!("SELECT * FROM risk({one}, quasi => (age, illness), population => 10)")).await;
    for (measure, expected) in
        [("rows", 1.0), ("classes", 1.0), ("prosecutor_max", 1.0), ("journalist_max", 0.1), ("share_below_2", 1.0)]
    {
        assert_eq!(value(&risk, measure, ""), expected, "{measure}");
    }
    let sql = format!("SELECT * FROM utility({one}, {one}, quasi => (age, illness), k => 1, ranges => true)");
    let utility = found(&world, &sql).await;
    for (measure, expected) in
        [("classes", 1.0), ("discernibility", 1.0), ("precision_loss", 0.0), ("entropy_loss", 0.0), ("range_loss", 0.0)]
    {
        assert_eq!(value(&utility, measure, ""), expected, "{measure}");
    }
    // One number does not vary.
    assert!(!is_told(&utility, "information_loss", "") && !is_told(&utility, "information_loss", "age"));

    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    let kept = world.reveal("SELECT id, suppressed FROM anon").await.unwrap();
    let kept: HashSet<i64> = kept.column(0).as_primitive::<Int64Type>().values().iter().copied().collect();
    let gone: Vec<String> = (0..ROWS as i64).filter(|id| !kept.contains(id)).map(|id| id.to_string()).collect();
    assert!(gone.len() > 2, "{gone:?}");
    let all = gone.len() as f64;
    let [before, after] =
        ["patients", "anon"].map(|table| format!("(SELECT * FROM {table} WHERE id IN ({}))", gone.join(", ")));
    let risk = found(&world, &format!("SELECT * FROM risk({after})")).await;
    for (measure, expected) in
        [("rows", 0.0), ("suppressed_rows", all), ("classes", 0.0), ("smallest_class", 0.0), ("prosecutor_max", 0.0)]
    {
        assert_eq!(value(&risk, measure, ""), expected, "{measure}");
    }
    let utility = found(&world, &format!("SELECT * FROM utility({before}, {after}, k => 5, ranges => true)")).await;
    for (measure, expected) in [
        ("suppressed_rows", all),
        ("average_class", 0.0),
        ("discernibility", all * all),
        ("discernibility_star", 0.0),
        ("precision_loss", 1.0),
        ("generalised_loss", 1.0),
        ("information_loss_retained", 0.0),
        ("range_loss", 1.0),
        ("certainty_penalty", 1.0),
    ] {
        assert_eq!(value(&utility, measure, ""), expected, "{measure}");
    }
    assert!((value(&utility, "information_loss", "") - 100.0).abs() < 1e-3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_k_beyond_the_table_has_a_row_of_its_own() {
    let world = world(724).await;
    let sql = "SELECT * FROM sweep((SELECT * FROM patients WHERE id < 12), comparison => 'blinded', quasi => (age, illness), rounds => 1, seed => 3)";
    let batch = world.run(sql).await.unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().values().to_vec(), [2, 5, 10, 25, 50]);
    for column in ["classes", "prosecutor_max", "discernibility", "information_loss", "precision_loss"] {
        let told: Vec<bool> = numbers(&batch, column).iter().map(Option::is_some).collect();
        assert_eq!(told, [true, true, true, false, false], "{column}");
    }
    let notes = world.veil.take_notes().join("\n");
    for k in [25, 50] {
        assert!(notes.contains(&format!("k = {k} is more than the 12 rows that there are")), "{notes}");
    }
    assert!(!notes.contains("k = 10 is"), "{notes}");
}

/// Keys come from a column that is no quasi-identifier.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_over_clear_quasi_identifiers() {
    let world = world(725).await;
    let table = "(SELECT id, id / 5 AS ward, id % 7 AS shift, name FROM patients)";
    let sql = format!(
        "SELECT * FROM sweep({table}, comparison => 'blinded', quasi => (ward, shift), k => (4, 10), rounds => 2, seed => 3)"
    );
    let batch = world.run(&sql).await.unwrap();
    for (at, k) in [4, 10].into_iter().enumerate() {
        let anon = format!(
            "k_anonymize({table}, k => {k}, comparison => 'blinded', quasi => (ward, shift), rounds => 2, seed => 3)"
        );
        let alone = found(&world, &format!("SELECT * FROM utility({table}, {anon}, quasi => (ward, shift))")).await;
        for measure in ["classes", "discernibility", "information_loss"] {
            assert_eq!(numbers(&batch, measure)[at], Some(value(&alone, measure, "")), "{measure} for k = {k}");
        }
        assert!(value(&alone, "information_loss", "") > 0.0);
    }
}

/// Of clear tables sizes of classes are known, and P2 is not there.
#[tokio::test(flavor = "multi_thread")]
async fn of_clear_tables_classes_are_told() {
    let world = World::without_p2(726).await;
    let rows = |zip: &str| format!("(SELECT column1 AS id, {zip} AS zip FROM (VALUES (1), (2), (3), (4)))");
    let sql = format!("SELECT * FROM utility({}, {}, quasi => (zip), k => 2)", rows("column1"), rows("column1 / 3"));
    let clear = found(&world, &sql).await;
    for (measure, expected) in [("classes", 2.0), ("average_class", 2.0), ("discernibility", 8.0)] {
        assert_eq!(value(&clear, measure, ""), expected, "{measure}");
    }
    assert!(!is_told(&clear, "information_loss", ""));
    let notes = world.veil.take_notes().join("\n");
    assert!(notes.contains("zip is not encrypted after anonymising and was not measured"), "{notes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_population_smaller_than_the_table_is_told() {
    let world = world(727).await;
    let sql = |population: usize| format!("SELECT * FROM risk(patients, quasi => (age), population => {population})");
    let (few, alone) = (found(&world, &sql(10)).await, found(&world, &sql(ROWS)).await);
    assert_eq!(value(&few, "marketer", ""), value(&alone, "marketer", ""));
    let notes = world.veil.take_notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("a population of 10 is smaller than the 60 published rows"), "{notes:?}");
}

/// By hand: no code of the crates under test.
#[tokio::test(flavor = "multi_thread")]
async fn simple_risks_by_hand() {
    let world = world(728).await;
    let mut classes: HashMap<(i64, usize), f64> = HashMap::new();
    (0..ROWS).map(row).for_each(|(age, _, illness)| *classes.entry((age, illness)).or_default() += 1.0);
    let (rows, people) = (ROWS as f64, 1200.0);
    let sizes: Vec<f64> = classes.into_values().collect();
    let smallest = sizes.iter().copied().fold(f64::INFINITY, f64::min);
    let share_below = |k: f64| sizes.iter().filter(|size| **size < k).sum::<f64>() / rows;
    // Everybody of a class is found with 1 / its size; in the population it is as many times larger as that is.
    let found_in = |times: f64| sizes.iter().map(|size| size / (size * times)).sum::<f64>() / rows;
    let found = found(&world, "SELECT * FROM risk(patients, quasi => (age, illness), population => 1200)").await;
    for (measure, expected) in [
        ("rows", rows),
        ("classes", sizes.len() as f64),
        ("smallest_class", smallest),
        ("average_class", rows / sizes.len() as f64),
        ("prosecutor_max", 1.0 / smallest),
        ("prosecutor_average", found_in(1.0)),
        ("journalist_max", 1.0 / (smallest * people / rows)),
        ("journalist_average", found_in(people / rows)),
        ("marketer", found_in(people / rows)),
        ("share_below_2", share_below(2.0)),
        ("share_below_5", share_below(5.0)),
        ("share_below_10", share_below(10.0)),
    ] {
        assert!((value(&found, measure, "") - expected).abs() < 1e-12, "{measure}: {expected}");
    }
    assert!(sizes.len() > 10 && share_below(2.0) > 0.0 && share_below(2.0) < 1.0, "{sizes:?}");
}

/// What one k took is free again for the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_takes_memory_for_one_k_at_a_time() {
    let world = world(729).await;
    let limited = async |bytes: usize| {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0).build_arc().unwrap();
        let config = SessionConfig::new().with_target_partitions(2);
        let state = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime).with_veil(&world.veil);
        let context = SessionContext::new_with_state(state.build());
        let file = world.at("patients.veil.parquet");
        let sql = format!("CREATE EXTERNAL TABLE patients STORED AS PARQUET LOCATION '{}'", file.display());
        context.sql(&sql).await.unwrap();
        context
    };
    let sweep = |k: &str| {
        format!(
            "SELECT * FROM sweep(patients, comparison => 'blinded', quasi => (age), k => ({k}), rounds => 1, seed => 3)"
        )
    };
    let context = limited(600 << 20).await;
    assert_eq!(run(&context, &sweep("20")).await.unwrap().num_rows(), 1);
    assert_eq!(run(&context, &sweep("20, 21, 22, 23, 24, 25")).await.unwrap().num_rows(), 6);
    let error = run(&limited(50 << 20).await, &sweep("20")).await.unwrap_err().to_string();
    assert!(error.contains("Resources exhausted") || error.contains("MiB"), "{error}");
}

/// A join may be taken for any number of rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_very_many_rows_is_told_at_once() {
    let world = world(730).await;
    let joined = |tables: usize| {
        let tables: Vec<String> = (0..tables).map(|at| format!("patients p{at}")).collect();
        format!("(SELECT p0.* FROM {})", tables.join(" CROSS JOIN "))
    };
    let explained = async |tables: usize| {
        let joined = joined(tables);
        let sql = format!("EXPLAIN SELECT * FROM utility({joined}, {joined}, quasi => (age, illness), ranges => true)");
        let batch = world.run(&sql).await.unwrap();
        batch.column(1).as_string::<i32>().iter().flatten().collect::<Vec<_>>().join("\n")
    };
    let numbers = "without losses of numbers, which are told for up to 131072 rows";
    let (few, many) = (explained(2).await, explained(3).await);
    assert!(few.contains("3600 rows") && !few.contains(numbers), "{few}");
    assert!(many.contains("216000 rows") && many.contains(numbers), "{many}");
    assert!(explained(9).await.contains(numbers));
    let sql = format!("EXPLAIN SELECT * FROM k_anonymize({}, quasi => (age))", joined(9));
    let batch = world.run(&sql).await.unwrap();
    assert!(batch.column(1).as_string::<i32>().value(1).contains("67108864 rows"));
}
