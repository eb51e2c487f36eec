//! Tables whose number of vectors is no power of two, at full length. `edges` has all other sizes, functions and kinds of columns, with short vectors.

use std::collections::HashMap;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;

use super::world::World;

const DECLARATION: &str = r#"
[table]
name = "many"
[column.id]
kind = "clear"
type = "Int64"
[column.age]
kind = "integer"
range = [0, 120]
identifier = true
[column.zip]
kind = "integer"
range = [0, 99999]
identifier = true
"#;

/// The largest takes thirteen vectors.
const ROWS: i64 = 100_003;

/// The first row is alone in both columns together, and in neither by itself.
fn row(id: i64) -> (i64, i64) {
    if id == 0 { (20, 10_006) } else { (20 + id % 7, 10_000 + id % 7 + 10 * (id % 4)) }
}

/// Class sizes, with how many classes have them.
fn histogram(rows: i64) -> Vec<(i64, i64)> {
    let (mut classes, mut sizes) = (HashMap::new(), HashMap::new());
    (0..rows).for_each(|id| *classes.entry(row(id)).or_insert(0) += 1);
    classes.into_values().for_each(|size| *sizes.entry(size).or_insert(0) += 1);
    let mut sizes: Vec<(i64, i64)> = sizes.into_iter().collect();
    sizes.sort_unstable();
    sizes
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_alone_is_found_among_many() {
    let world = World::new(95).await;
    let line = |id: i64| format!("{id},{},{}\n", row(id).0, row(id).1);
    world.table("many", &format!("id,age,zip\n{}", (0..ROWS).map(line).collect::<String>()), DECLARATION).await;
    for rows in [16_385, 24_577, 40_961, ROWS] {
        let some = format!("(SELECT * FROM many WHERE id < {rows})");
        let sizes = world.run(&format!("SELECT * FROM class_sizes({some}, quasi => (age, zip))")).await.unwrap();
        let column = |at: usize| sizes.column(at).as_primitive::<Int64Type>().values().iter().copied();
        assert_eq!(column(0).zip(column(1)).collect::<Vec<_>>(), histogram(rows), "{rows} rows");
        if rows == ROWS {
            continue;
        }
        let sql = format!("SELECT value FROM risk({some}, quasi => (age, zip)) WHERE measure = 'prosecutor_max'");
        let risk = world.run(&sql).await.unwrap();
        assert_eq!(risk.column(0).as_primitive::<datafusion::arrow::datatypes::Float64Type>().value(0), 1.0);
        let sql = format!(
            "SELECT columns, rows_at_risk FROM identifiers({some}, columns => (age, zip), k => 10, rows_at_risk => true)"
        );
        let found = world.run(&sql).await.unwrap();
        assert_eq!((found.num_rows(), found.column(1).as_primitive::<Int64Type>().value(0)), (1, 1), "{rows} rows");
        assert_eq!(found.column(0).as_list::<i32>().value(0).len(), 2, "{rows} rows");
    }
}
