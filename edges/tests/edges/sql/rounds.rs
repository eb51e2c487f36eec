//! Functions that ask P2 in batches, and sums.

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;

use super::people::{ILLNESSES, add_people, partitioned};
use super::world::World;
use crate::EDGES;

fn numbers(batch: &RecordBatch, column: &str) -> Vec<Option<i64>> {
    let column = cast(batch.column_by_name(column).unwrap(), &DataType::Int64).unwrap();
    column.as_primitive::<Int64Type>().iter().collect()
}

/// Batches of a vector, a row more, and no multiple of one.
#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_every_batch_is_answered() {
    let world = World::new(6).await;
    for (at, rows) in EDGES.into_iter().enumerate() {
        let people = add_people(&world, rows).await;
        world.run(&format!("SET veil.batch_rows = {}", [64, 65, 100, 1000][at % 4])).await.unwrap();
        for table in partitioned(rows) {
            // With so large an epsilon nothing changes.
            let sql = format!(
                "SELECT id, mask_random(age, 40, 50) AS age, dp_exponential(illness, 40.0) AS illness, dp_binary(married, 40.0) AS married, \
                 dp_randomized_response(illness, 40.0) AS again, job, mask_random(job) AS other FROM {table} ORDER BY id"
            );
            let batch = world.reveal(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(numbers(&batch, "id"), (0..rows as i64).map(Some).collect::<Vec<_>>(), "{rows} rows");
            assert!(numbers(&batch, "age").iter().all(|age| age.is_some_and(|age| (40..=50).contains(&age))));
            let text =
                |column: &str, row: usize| array_value_to_string(batch.column_by_name(column).unwrap(), row).unwrap();
            for (row, person) in people.iter().enumerate() {
                let illness = ILLNESSES[person.illness][0];
                assert_eq!(
                    (text("illness", row).as_str(), text("again", row).as_str()),
                    (illness, illness),
                    "row {row} of {rows}"
                );
                assert_eq!(text("married", row), person.married.to_string(), "row {row} of {rows}");
                let is_null = |column: &str| batch.column_by_name(column).unwrap().is_null(row);
                assert_eq!((is_null("job"), is_null("other")), (person.job.is_none(), person.job.is_none()));
            }
            let sql = format!("SELECT region, enc_sum(age) AS total, count(job) AS jobs FROM {table} GROUP BY region");
            let batch = world.reveal(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
            let regions = batch.column_by_name("region").unwrap();
            let (totals, jobs) = (numbers(&batch, "total"), numbers(&batch, "jobs"));
            for row in 0..batch.num_rows() {
                let region = regions.is_valid(row).then(|| array_value_to_string(regions, row).unwrap());
                let own = people.iter().filter(|person| person.region.map(|of| format!("region {of}")) == region);
                let total = own.clone().map(|person| person.age).sum::<i64>();
                let with_job = own.filter(|person| person.job.is_some()).count() as i64;
                assert_eq!((totals[row], jobs[row]), (Some(total), Some(with_job)), "{region:?} of {rows} rows");
            }
        }
    }
}
