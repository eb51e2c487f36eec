//! Risk, class sizes, utility and sweeps.

use std::collections::{BTreeMap, HashMap};

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use veil_cells::Width;
use veil_privacy::ClassSizes;
use veil_privacy::clusters::coordinate;
use veil_privacy::utility::{EntropyLoss, RangeLoss, SquaredErrors, ratio_value};

use super::people::{COLUMNS, ILLNESSES, Person, add_people, classes, histogram, partitioned};
use super::world::World;
use crate::EDGES;

/// Measures by their names and columns.
type Measures = HashMap<(String, String), f64>;

fn measures(batch: &RecordBatch) -> Measures {
    let text = |name: &str, row: usize| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        if column.is_null(row) { String::new() } else { column.value(row).to_owned() }
    };
    let values = batch.column_by_name("value").unwrap().as_primitive::<Float64Type>();
    let of_row = |row: usize| ((text("measure", row), text("column_name", row)), values.value(row));
    (0..batch.num_rows()).filter(|row| values.is_valid(*row)).map(of_row).collect()
}

fn value(found: &Measures, measure: &str, column: &str) -> f64 {
    *found.get(&(measure.to_owned(), column.to_owned())).unwrap_or_else(|| panic!("{measure} of {column}"))
}

async fn run(world: &World, sql: &str) -> RecordBatch {
    world.run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn risk_and_class_sizes_are_those_of_the_clear_rows() {
    let world = World::new(2).await;
    for rows in EDGES {
        let people = add_people(&world, rows).await;
        let sets = [&COLUMNS[..], &["age", "job"], &["age"], &["zip", "illness"], &["region"]];
        for (at, columns) in sets.into_iter().enumerate() {
            let classes = classes(&people, columns);
            let table = &partitioned(rows)[at % 2];
            let quasi = columns.join(", ");
            let found = run(&world, &format!("SELECT * FROM class_sizes({table}, quasi => ({quasi}))")).await;
            let column = |at: usize| found.column(at).as_primitive::<Int64Type>().values().iter().map(|of| *of as u64);
            let sizes: BTreeMap<u64, u64> = column(0).zip(column(1)).collect();
            assert_eq!(sizes, histogram(&classes), "{rows} rows, {quasi}");

            let found = measures(&run(&world, &format!("SELECT * FROM risk({table}, quasi => ({quasi}))")).await);
            let smallest = *classes.values().min().unwrap();
            assert_eq!(value(&found, "rows", ""), rows as f64, "{quasi}");
            assert_eq!(value(&found, "classes", ""), classes.len() as f64, "{rows} rows, {quasi}");
            assert_eq!(value(&found, "smallest_class", ""), smallest as f64, "{rows} rows, {quasi}");
            assert_eq!(value(&found, "prosecutor_max", ""), 1.0 / smallest as f64, "{rows} rows, {quasi}");
            let share = |k: u64| classes.values().filter(|size| **size < k).sum::<u64>() as f64 / rows as f64;
            assert_eq!(value(&found, "share_below_2", ""), share(2), "{rows} rows, {quasi}");
            assert_eq!(value(&found, "share_below_10", ""), share(10), "{rows} rows, {quasi}");
        }
    }
}

/// Published values as the owner reads them, by id: age, zip, illness.
async fn published(world: &World, table: &str) -> BTreeMap<usize, [String; 3]> {
    let batch = world.reveal(&format!("SELECT id, age, zip, illness, suppressed FROM {table}")).await.unwrap();
    let ids = batch.column(0).as_primitive::<Int64Type>();
    let text = |column: usize, row: usize| array_value_to_string(batch.column(column), row).unwrap();
    (0..batch.num_rows()).map(|row| (ids.value(row) as usize, [1, 2, 3].map(|column| text(column, row)))).collect()
}

fn level(label: &str) -> usize {
    (0..3).find(|level| ILLNESSES.iter().any(|path| path[*level] == label)).unwrap()
}

/// Every measure of a table, from its clear rows.
fn expected(people: &[Person], after: &BTreeMap<usize, [String; 3]>) -> Measures {
    let (rows, of_row) = (people.len(), |id: usize| after.get(&id));
    let gone: Vec<bool> = (0..rows).map(|id| of_row(id).is_none()).collect();
    let mut expected = Measures::new();
    let mut tell = |measure: &str, column: &str, value: f64| {
        expected.insert((measure.to_owned(), column.to_owned()), value);
    };
    let sizes = ClassSizes::from_labels(after.values());
    let suppressed = (rows - after.len()) as u64;
    let sizes = ClassSizes::new(sizes.counts().collect::<Vec<_>>(), suppressed);
    tell("discernibility", "", sizes.discernibility() as f64);
    tell("discernibility_star", "", sizes.discernibility_star() as f64);
    tell("average_class", "", sizes.average());
    let classes: Vec<Option<&[String; 3]>> = (0..rows).map(of_row).collect();
    for (at, name, upper) in [(0, "age", 120), (1, "zip", 99_999)] {
        let original: Vec<i64> = people.iter().map(|person| [person.age, person.zip][at]).collect();
        let published = (0..rows).map(|id| of_row(id).map_or(0, |row| row[at].parse().unwrap()));
        let grid = |values: &[i64]| values.iter().map(|value| coordinate(*value, 0, upper)).collect::<Vec<_>>();
        let errors = SquaredErrors::of(&grid(&original), &grid(&published.collect::<Vec<_>>()), &gone).unwrap();
        tell("information_loss", name, 100.0 * ratio_value(errors.all_ratio()));
        tell("information_loss_retained", name, 100.0 * ratio_value(errors.retained_ratio()));
        let steps = RangeLoss::of(&original, &classes).unwrap().steps(Width::of_range(0, upper).unwrap().bits());
        tell("range_loss", name, (ratio_value(steps) * after.len() as f64 + suppressed as f64) / rows as f64);
    }
    // Suppressed rows count as the root.
    let nodes: Vec<(usize, &str)> =
        (0..rows).map(|id| of_row(id).map_or((2, "*"), |row| (level(&row[2]), row[2].as_str()))).collect();
    let levels: usize = nodes.iter().map(|(level, _)| level).sum();
    tell("precision_loss", "illness", levels as f64 / (2 * rows) as f64);
    let leaves = |(level, label): &(usize, &str)| ILLNESSES.iter().filter(|path| path[*level] == *label).count();
    let beneath: usize = nodes.iter().map(leaves).sum();
    tell("generalised_loss", "illness", (beneath - rows) as f64 / (4 * rows) as f64);
    let rows_of = |level: usize, label: &str| {
        people.iter().filter(|person| ILLNESSES[person.illness][level] == label).count() as u64
    };
    let of_leaves: Vec<u64> = ILLNESSES.iter().map(|path| rows_of(0, path[0])).collect();
    let bits = EntropyLoss::of(&of_leaves, nodes.iter().map(|(level, label)| (1, rows_of(*level, label))), 0).unwrap();
    tell("entropy_loss", "illness", ratio_value(bits.steps(rows as u64)));
    expected
}

#[tokio::test(flavor = "multi_thread")]
async fn utility_is_that_of_the_clear_rows() {
    let world = World::new(3).await;
    for rows in [31, 32, 33, 64, 65, 129, 193, 321] {
        let people = add_people(&world, rows).await;
        let suppress = if rows % 2 == 0 { 0.0 } else { 0.3 };
        let [whole, parts] = partitioned(rows);
        world
            .run(&format!(
                "CREATE TABLE anon_{rows} AS SELECT * FROM k_anonymize({whole}, k => 4, quasi => (age, zip, illness), rounds => 2, suppress => {suppress}, \
                 centres => 7, seed => 3, comparison => 'blinded')"
            ))
            .await
            .unwrap();
        let after = published(&world, &format!("anon_{rows}")).await;
        let sql = format!("SELECT * FROM utility({parts}, anon_{rows}, k => 4, ranges => true)");
        let found = measures(&run(&world, &sql).await);
        for ((measure, column), expected) in expected(&people, &after) {
            assert_eq!(value(&found, &measure, &column), expected, "{measure} of {column}, {rows} rows");
        }
        let risk = measures(&run(&world, &format!("SELECT * FROM risk(anon_{rows})")).await);
        assert_eq!(value(&risk, "suppressed_rows", ""), (rows - after.len()) as f64, "{rows} rows");
        let mut sizes: HashMap<&[String; 3], u64> = HashMap::new();
        after.values().for_each(|row| *sizes.entry(row).or_default() += 1);
        assert_eq!(value(&risk, "smallest_class", ""), *sizes.values().min().unwrap() as f64, "{rows} rows");
        assert_eq!(value(&risk, "classes", ""), sizes.len() as f64, "{rows} rows");
    }
}

/// What a sweep tells of each k is what the functions tell that were checked above.
#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_tells_what_each_k_tells() {
    let world = World::new(4).await;
    for rows in [33, 65, 193] {
        add_people(&world, rows).await;
        // Clusters begin at rows by their order, so that it must be the same.
        let [whole, _] = partitioned(rows);
        let arguments = "quasi => (age, zip, illness), rounds => 2, centres => 5, seed => 3, comparison => 'blinded'";
        let swept =
            run(&world, &format!("SELECT * FROM sweep({whole}, {arguments}, k => (3, 6), ranges => true)")).await;
        for (at, k) in [3, 6].into_iter().enumerate() {
            let anon = format!("(SELECT * FROM k_anonymize({whole}, {arguments}, k => {k}))");
            let utility = format!("SELECT * FROM utility({whole}, {anon}, ranges => true)");
            let (utility, risk) = (
                measures(&run(&world, &utility).await),
                measures(&run(&world, &format!("SELECT * FROM risk({anon})")).await),
            );
            let column = |name: &str| swept.column_by_name(name).unwrap().as_primitive::<Float64Type>().value(at);
            for name in ["classes", "average_class", "information_loss", "precision_loss", "entropy_loss", "range_loss"]
            {
                assert_eq!(column(name), value(&utility, name, ""), "{name} for k = {k}, {rows} rows");
            }
            assert_eq!(column("smallest_class"), value(&risk, "smallest_class", ""), "k = {k}, {rows} rows");
            assert!(column("smallest_class") >= f64::from(k));
        }
    }
}
