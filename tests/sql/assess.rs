//! Risk and utility over ciphertexts are those of the clear tables.

use std::collections::HashMap;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use veil_cells::Width;
use veil_privacy::ClassSizes;
use veil_privacy::clusters::coordinate;
use veil_privacy::risk::{PopulationUniqueness, Risk};
use veil_privacy::utility::{EntropyLoss, RangeLoss, SquaredErrors, ratio_value};

use crate::sql::world::World;

const PATIENTS: &str = r#"
[table]
name = "patients"
[column.id]
kind = "clear"
type = "Int64"
[column.name]
kind = "text"
max_length = 12
[column.age]
kind = "integer"
range = [0, 120]
identifier = true
[column.wage]
kind = "decimal"
scale = 2
range = [0, 5000]
[column.illness]
kind = "category"
hierarchy = "illness.csv"
identifier = true
"#;

/// Leaf, group, root.
const ILLNESSES: [[&str; 3]; 5] = [
    ["asthma", "lungs", "*"],
    ["bronchitis", "lungs", "*"],
    ["angina", "heart", "*"],
    ["infarct", "heart", "*"],
    ["arrhythmia", "heart", "*"],
];

pub(crate) const ROWS: usize = 60;

/// Age, wage in cents, illness.
pub(crate) fn row(id: usize) -> (i64, i64, usize) {
    let group = id / 7;
    ((20 + 7 * group + id % 3) as i64, (100_000 + 3_000 * group * group + 17 * id) as i64, (id * id + group) % 5)
}

pub(crate) async fn world(seed: u64) -> World {
    let world = World::new(seed).await;
    world.write("illness.csv", &ILLNESSES.map(|path| path.join(",")).join("\n"));
    let line = |id: usize| {
        let (age, wage, illness) = row(id);
        format!("{id},person {id},{age},{}.{:02},{}\n", wage / 100, wage % 100, ILLNESSES[illness][0])
    };
    let lines: String = (0..ROWS).map(line).collect();
    world.table("patients", &format!("id,name,age,wage,illness\n{lines}"), PATIENTS).await;
    world
}

/// The measures of a result, by name and column.
pub(crate) fn measures(batch: &RecordBatch) -> HashMap<(String, String), f64> {
    let text = |name: &str, row: usize| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        if column.is_null(row) { String::new() } else { column.value(row).to_owned() }
    };
    let values = batch.column_by_name("value").unwrap().as_primitive::<Float64Type>();
    let of_row = |row: usize| {
        assert!(!text("meaning", row).is_empty(), "{}", text("measure", row));
        ((text("measure", row), text("column_name", row)), values.value(row))
    };
    (0..batch.num_rows()).filter(|row| values.is_valid(*row)).map(of_row).collect()
}

pub(crate) fn value(found: &HashMap<(String, String), f64>, measure: &str, column: &str) -> f64 {
    *found.get(&(measure.to_owned(), column.to_owned())).unwrap_or_else(|| panic!("{measure} of {column}"))
}

/// Published rows as the owner reads them: age, wage, illness by id.
async fn published(world: &World, table: &str) -> HashMap<usize, [String; 3]> {
    let batch = world.reveal(&format!("SELECT id, age, wage, illness, suppressed FROM {table}")).await.unwrap();
    let ids = batch.column(0).as_primitive::<Int64Type>();
    let text = |column: usize, row: usize| array_value_to_string(batch.column(column), row).unwrap();
    (0..batch.num_rows()).map(|row| (ids.value(row) as usize, [1, 2, 3].map(|column| text(column, row)))).collect()
}

fn sizes(published: &HashMap<usize, [String; 3]>, columns: &[usize]) -> ClassSizes {
    let label = |id: usize| published.get(&id).map(|row| columns.iter().map(|at| row[*at].clone()).collect::<Vec<_>>());
    let labels: Vec<Option<Vec<String>>> = (0..ROWS).map(label).collect();
    let suppressed = labels.iter().filter(|label| label.is_none()).count() as u64;
    let of_rows = ClassSizes::from_labels(labels.into_iter().flatten());
    ClassSizes::new(of_rows.counts().collect::<Vec<_>>(), suppressed)
}

pub(crate) const ANON: &str = "SELECT * FROM k_anonymize(patients, k => 5, comparison => 'blinded', quasi => (age, wage, illness), rounds => 4, suppress => 0.2, seed => 3)";

#[tokio::test(flavor = "multi_thread")]
async fn risk_is_that_of_the_clear_rows_before_and_after() {
    let world = world(700).await;
    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    let after = published(&world, "anon").await;
    assert!(after.len() < ROWS, "nobody is suppressed");
    let originals: HashMap<usize, [String; 3]> = (0..ROWS)
        .map(|id| {
            let (age, wage, illness) = row(id);
            (id, [age.to_string(), wage.to_string(), illness.to_string()])
        })
        .collect();
    for (table, rows) in [("anon", &after), ("patients", &originals)] {
        let sql = format!("SELECT * FROM risk({table}, quasi => (age, wage, illness), population => 900)");
        let found = measures(&world.run(&sql).await.unwrap());
        let all = sizes(rows, &[0, 1, 2]);
        let (risk, uniques) = (Risk::of(&all, Some(900)), PopulationUniqueness::of(&all, 900));
        for (name, expected) in [
            ("rows", all.rows() as f64),
            ("suppressed_rows", all.suppressed() as f64),
            ("classes", all.classes() as f64),
            ("smallest_class", all.smallest() as f64),
            ("average_class", all.average()),
            ("prosecutor_max", risk.prosecutor_max),
            ("prosecutor_average", risk.prosecutor_average),
            ("journalist_max", risk.journalist_max),
            ("journalist_average", risk.journalist_average),
            ("marketer", risk.marketer),
            ("share_below_2", risk.share_below_2),
            ("share_below_5", risk.share_below_5),
            ("share_below_10", risk.share_below_10),
        ] {
            assert_eq!(value(&found, name, ""), expected, "{name} of {table}");
        }
        for (name, expected) in [
            ("uniques_zayatz", uniques.zayatz),
            ("uniques_chen", uniques.chen),
            ("uniques_hoshino", uniques.hoshino),
            ("uniques", uniques.best().map(|(_, share)| share)),
        ] {
            assert_eq!(found.get(&(name.to_owned(), String::new())).copied(), expected, "{name} of {table}");
        }
        for (at, column) in ["age", "wage", "illness"].into_iter().enumerate() {
            let others: Vec<usize> = (0..3).filter(|other| *other != at).collect();
            let without = Risk::of(&sizes(rows, &others), None);
            assert_eq!(value(&found, "prosecutor_max_without", column), without.prosecutor_max, "{column} of {table}");
            let expected = 1.0 - without.prosecutor_average / risk.prosecutor_average;
            assert_eq!(value(&found, "contribution", column), expected, "{column} of {table}");
        }
        let batch =
            world.run(&format!("SELECT * FROM class_sizes({table}, quasi => (age, wage, illness))")).await.unwrap();
        let column = |at: usize| batch.column(at).as_primitive::<Int64Type>().values().to_vec();
        let expected: (Vec<i64>, Vec<i64>) = all.counts().map(|(size, classes)| (size as i64, classes as i64)).unzip();
        assert_eq!((column(0), column(1)), expected);
    }
    // The quasi-identifiers of an anonymised table are known.
    let found = measures(&world.run("SELECT * FROM risk(anon)").await.unwrap());
    assert_eq!(value(&found, "classes", ""), sizes(&after, &[0, 1, 2]).classes() as f64);
    assert!(value(&found, "prosecutor_max", "") <= 0.2);
}

fn node(label: &str) -> (usize, &str) {
    let level = (0..3).find(|level| ILLNESSES.iter().any(|path| path[*level] == label)).unwrap();
    (level, label)
}

#[tokio::test(flavor = "multi_thread")]
async fn utility_is_that_of_the_clear_rows_in_whatever_order() {
    let world = world(701).await;
    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    let after = published(&world, "anon").await;
    let asked = "SELECT * FROM utility(patients, anon, k => 5, ranges => true)";
    let found = measures(&world.run(asked).await.unwrap());
    assert!(world.veil.take_notes().iter().all(|note| !note.contains("order")));

    let all = sizes(&after, &[0, 1, 2]);
    assert_eq!(value(&found, "discernibility", ""), all.discernibility() as f64);
    assert_eq!(value(&found, "discernibility_star", ""), all.discernibility_star() as f64);
    assert_eq!(value(&found, "average_class", ""), all.average());
    assert_eq!(value(&found, "average_class_by_k", ""), all.average() / 5.0);
    ranges_are_those_of_the_rows(&found, &after);

    // Suppressed rows count as the root.
    let nodes: Vec<(usize, &str)> = (0..ROWS).map(|id| after.get(&id).map_or((2, "*"), |row| node(&row[2]))).collect();
    let levels: usize = nodes.iter().map(|(level, _)| level).sum();
    assert_eq!(value(&found, "precision_loss", "illness"), levels as f64 / (2 * ROWS) as f64);
    let leaves = |(level, label): &(usize, &str)| ILLNESSES.iter().filter(|path| path[*level] == *label).count();
    let beneath: usize = nodes.iter().map(leaves).sum();
    let expected = (beneath - ROWS) as f64 / (4 * ROWS) as f64;
    assert_eq!(value(&found, "generalised_loss", "illness"), expected);
    let rows_of =
        |level: usize, label: &str| (0..ROWS).filter(|id| ILLNESSES[row(*id).2][level] == label).count() as u64;
    let of_leaves: Vec<u64> = ILLNESSES.iter().map(|path| rows_of(0, path[0])).collect();
    let bits = EntropyLoss::of(&of_leaves, nodes.iter().map(|(level, label)| (1, rows_of(*level, label))), 0).unwrap();
    assert_eq!(value(&found, "entropy_loss", "illness"), ratio_value(bits.steps(ROWS as u64)));

    let suppressed: Vec<bool> = (0..ROWS).map(|id| !after.contains_key(&id)).collect();
    let number = |text: &str| text.replace('.', "").parse::<i64>().unwrap();
    let mut total = 0.0;
    for (at, name, upper) in [(0, "age", 120), (1, "wage", 500_000)] {
        let original: Vec<i64> = (0..ROWS).map(|id| [row(id).0, row(id).1][at]).collect();
        let grid = |values: Vec<i64>| values.into_iter().map(|x| coordinate(x, 0, upper)).collect::<Vec<_>>();
        let values = (0..ROWS).map(|id| after.get(&id).map_or(0, |row| number(&row[at]))).collect();
        let errors = SquaredErrors::of(&grid(original), &grid(values), &suppressed).unwrap();
        assert_eq!(value(&found, "information_loss", name), 100.0 * ratio_value(errors.all_ratio()), "{name}");
        assert_eq!(value(&found, "information_loss_retained", name), 100.0 * ratio_value(errors.retained_ratio()));
        total += 100.0 * ratio_value(errors.all_ratio()) / 2.0;
    }
    assert!((value(&found, "information_loss", "") - total).abs() < 1e-9);

    // Less is told without being asked, and the same otherwise.
    let mut found = found;
    let plain = measures(&world.run("SELECT * FROM utility(patients, anon)").await.unwrap());
    found.retain(|(name, _), _| !["range_loss", "certainty_penalty", "average_class_by_k"].contains(&name.as_str()));
    assert_eq!(plain, found);

    // Cells that both tables share tell which rows belong together.
    let turned =
        "SELECT * FROM utility((SELECT * FROM patients ORDER BY id DESC), (SELECT * FROM anon ORDER BY id % 7, id))";
    assert_eq!(measures(&world.run(turned).await.unwrap()), found);
    let part = "SELECT * FROM utility(patients, (SELECT * FROM anon WHERE id < 40))";
    let part = measures(&world.run(part).await.unwrap());
    let kept = (0..40).filter(|id| after.contains_key(id)).count();
    assert_eq!(value(&part, "suppressed_rows", ""), (40 - kept) as f64);
    // Nothing was done, nothing was lost.
    let same =
        measures(&world.run("SELECT * FROM utility(patients, patients, quasi => (age, wage, illness))").await.unwrap());
    for name in ["precision_loss", "generalised_loss", "entropy_loss", "information_loss"] {
        assert_eq!(value(&same, name, ""), 0.0, "{name}");
    }
}

/// Widths of classes, row by row, as the definition is written; and exactly, as they are divided.
fn ranges_are_those_of_the_rows(found: &HashMap<(String, String), f64>, after: &HashMap<usize, [String; 3]>) {
    let classes: Vec<Option<&[String; 3]>> = (0..ROWS).map(|id| after.get(&id)).collect();
    let width = |values: Vec<i64>| (values.iter().max().unwrap() - values.iter().min().unwrap()) as f64;
    let (published, gone) = (after.len() as f64, (ROWS - after.len()) as f64);
    let mut penalty = value(found, "generalised_loss", "illness");
    for (at, name, upper) in [(0, "age", 120), (1, "wage", 500_000)] {
        let original: Vec<i64> = (0..ROWS).map(|id| [row(id).0, row(id).1][at]).collect();
        let loss = RangeLoss::of(&original, &classes).unwrap();
        let steps = loss.steps(Width::of_range(0, upper).unwrap().bits());
        let expected = (ratio_value(steps) * published + gone) / ROWS as f64;
        assert_eq!(value(found, "range_loss", name), expected, "{name}");
        let of_row = |class: &Option<&[String; 3]>| match class {
            None => 1.0,
            class => {
                let alike = classes.iter().zip(&original).filter(|(of, _)| *of == class).map(|(_, value)| *value);
                width(alike.collect()) / width(original.clone())
            }
        };
        let mean = classes.iter().map(of_row).sum::<f64>() / ROWS as f64;
        assert!((expected - mean).abs() < 1e-5 && mean > gone / ROWS as f64, "{name}: {expected} {mean}");
        penalty += expected;
    }
    assert!((value(found, "certainty_penalty", "") - penalty / 3.0).abs() < 1e-12);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_tells_each_k() {
    let world = world(702).await;
    let sql = "SELECT * FROM sweep(patients, comparison => 'blinded', quasi => (age, wage, illness), k => (3, 12), rounds => 3, seed => 3, population => 900, ranges => true)";
    let batch = world.run(sql).await.unwrap();
    let column = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Float64Type>().values().to_vec();
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().values().to_vec(), [3, 12]);
    assert!(column("smallest_class")[0] >= 3.0 && column("smallest_class")[1] >= 12.0);
    assert!(column("prosecutor_average")[0] > column("prosecutor_average")[1]);
    assert!(column("information_loss")[0] < column("information_loss")[1]);
    assert!(column("certainty_penalty")[0] < column("certainty_penalty")[1]);
    assert!(column("average_class_by_k").iter().all(|average| *average >= 1.0));
    for (at, k) in [3, 12].into_iter().enumerate() {
        let anon = format!(
            "k_anonymize(patients, k => {k}, comparison => 'blinded', quasi => (age, wage, illness), rounds => 3, seed => 3)"
        );
        let alone = async |sql: String| measures(&world.run(&sql).await.unwrap());
        let utility = alone(format!("SELECT * FROM utility(patients, (SELECT * FROM {anon}), ranges => true)")).await;
        let risk = alone(format!("SELECT * FROM risk((SELECT * FROM {anon}), population => 900)")).await;
        for name in [
            "classes",
            "average_class",
            "suppressed_rows",
            "discernibility",
            "precision_loss",
            "generalised_loss",
            "entropy_loss",
            "information_loss",
            "range_loss",
            "certainty_penalty",
        ] {
            assert_eq!(column(name)[at], value(&utility, name, ""), "{name} for k = {k}");
        }
        for name in ["smallest_class", "prosecutor_max", "prosecutor_average", "marketer", "share_below_5", "uniques"] {
            assert_eq!(column(name)[at], value(&risk, name, ""), "{name} for k = {k}");
        }
    }
    let runs = world.veil.assessments();
    assert_eq!(runs.len(), 5);
    assert!(runs.iter().all(|run| run.rows == ROWS && run.rounds > 10 && run.bytes_sent > 0));
}

/// Two hierarchies of which nobody is told the shape are noted once each, not once for every k.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_notes_what_is_left_out_once() {
    let world = World::new(705).await;
    world.write("illness.csv", &ILLNESSES.map(|path| path.join(",")).join("\n"));
    let column = |name: &str| {
        format!(
            "[column.{name}]\nkind = \"category\"\nhierarchy = \"illness.csv\"\nhide_shape = true\nidentifier = true\n"
        )
    };
    let declaration = format!("[table]\nname = \"hidden\"\n{}{}", column("first"), column("second"));
    let line = |id: usize| format!("{},{}\n", ILLNESSES[id % 5][0], ILLNESSES[id / 5 % 5][0]);
    let lines: String = (0..20).map(line).collect();
    world.table("hidden", &format!("first,second\n{lines}"), &declaration).await;
    world
        .run("SELECT * FROM sweep(hidden, comparison => 'blinded', quasi => (first, second), k => (2, 5), rounds => 1)")
        .await
        .unwrap();
    let run = world.veil.assessments().pop().unwrap();
    let names: Vec<&str> = run.left_out.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_assessed_is_left_out_or_refused() {
    let world = world(703).await;
    world.run(&format!("CREATE TABLE anon AS {ANON}")).await.unwrap();
    let refused = [
        ("SELECT * FROM risk((SELECT age, wage FROM anon))", "select `suppressed` along with the others"),
        ("SELECT * FROM risk(patients, quasi => (height))", "No field named height"),
        ("SELECT * FROM risk(patients, k => 3)", "risk has no argument k: it takes quasi, population, contributions"),
        ("SELECT * FROM utility(patients)", "utility compares two tables, the original one first"),
        ("SELECT * FROM risk(patients, anon)", "risk does not take anon"),
        ("SELECT * FROM sweep(patients)", "sweep needs the columns by which people could be recognised"),
        ("SELECT * FROM sweep(patients, quasi => (age), k => (1, 5))", "whole numbers of at least 2"),
        ("SELECT * FROM risk((SELECT wage FROM patients))", "found no column with an equality tag"),
    ];
    for (sql, part) in refused {
        let found = world.refusal(sql).await;
        assert!(found.contains(part), "{sql}: {found}");
    }
    // Noise lies anywhere, texts have no distances: both are told, the rest is measured.
    let by_age = "CREATE TABLE by_age AS SELECT * FROM k_anonymize(patients, k => 3, quasi => (age), rounds => 1, comparison => 'blinded')";
    world.run(by_age).await.unwrap();
    let sql = "SELECT * FROM utility(patients, (SELECT id, name, age, dp_laplace(wage, 1.0) AS wage, illness, suppressed FROM by_age), \
               quasi => (age, wage, name))";
    let found = measures(&world.run(sql).await.unwrap());
    assert!(found.contains_key(&("information_loss".to_owned(), "age".to_owned())));
    assert!(!found.contains_key(&("information_loss".to_owned(), "wage".to_owned())));
    let notes = world.veil.take_notes().join("\n");
    assert!(notes.contains("wage carries noise") && notes.contains("name is neither numbers"), "{notes}");
    // What was masked afterwards may lie anywhere too, and then nothing is told of all columns together.
    let sql = "SELECT * FROM utility(patients, (SELECT id, name, age, mask_shift(wage, 10) AS wage, illness, suppressed FROM anon), \
               quasi => (age, wage, illness), ranges => true)";
    let found = measures(&world.run(sql).await.unwrap());
    assert!(found.contains_key(&("range_loss".to_owned(), "age".to_owned())));
    assert!(!found.contains_key(&("certainty_penalty".to_owned(), String::new())));
    let notes = world.veil.take_notes().join("\n");
    assert!(notes.contains("wage was computed with after anonymising"), "{notes}");
    // Nobody is in an empty table, and clear columns need no P2.
    let empty = measures(
        &world.run("SELECT * FROM risk((SELECT * FROM patients WHERE id < 0), quasi => (age))").await.unwrap(),
    );
    assert_eq!((value(&empty, "rows", ""), value(&empty, "prosecutor_max", "")), (0.0, 0.0));
    let clear = World::without_p2(704).await;
    let sql = "SELECT * FROM risk((SELECT column1 AS zip FROM (VALUES (1), (1), (2))), quasi => (zip))";
    let clear = measures(&clear.run(sql).await.unwrap());
    assert_eq!((value(&clear, "classes", ""), value(&clear, "smallest_class", "")), (2.0, 1.0));
    assert_eq!(value(&clear, "prosecutor_max_without", "zip"), 1.0 / 3.0);
}
