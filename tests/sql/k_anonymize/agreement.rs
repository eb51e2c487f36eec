//! Against the same algorithm in clear.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use veil_privacy::Hierarchy;
use veil_privacy::clusters::{MILLION, Reassignment, Settings, draw_centres};

use super::sample::{Column, Sample, smallest_class};
use crate::sql::world::World;

/// People: ages and wages with encrypted bounds, a score with public ones, heights that the engine sees, and a city.
fn people(rows: usize, seed: u64) -> Sample {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut numbers = |lower: i64, upper: i64| (0..rows).map(|_| rng.random_range(lower..=upper)).collect::<Vec<_>>();
    let number = |values, places, bounds, public| Column::Number { values, places, bounds, public };
    let ages = number(numbers(17, 90), 0, (0, 120), false);
    let wages = number(numbers(0, 900_000), 2, (0, 25_000_000), false);
    let scores = number(numbers(-40, 40), 0, (-50, 50), true);
    let heights = Column::Clear(numbers(150, 199));
    let leaves = numbers(0, 8).into_iter().map(|leaf| leaf as usize).collect();
    let path = |leaf: usize| vec![format!("city{leaf}"), format!("state{}", leaf / 3), "*".to_owned()];
    let hierarchy = Hierarchy::from_rows(&(0..9).map(path).collect::<Vec<_>>()).unwrap();
    let columns = [
        ("age", ages),
        ("wage", wages),
        ("city", Column::Category { leaves, hierarchy }),
        ("score", scores),
        ("height", heights),
    ];
    Sample { columns: columns.into_iter().map(|(name, column)| (name.to_owned(), column)).collect(), rows }
}

fn list(rows: &[usize]) -> String {
    rows.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Every strategy, with and without suppression, with weights: the same rows, values and labels.
#[tokio::test(flavor = "multi_thread")]
async fn the_owner_decrypts_what_the_clear_algorithm_publishes() {
    let world = World::new(200).await;
    let sample = people(61, 1);
    sample.add_to(&world, "people").await;
    let cases = [
        (5, 0, Reassignment::ClusterToCluster, "cluster_to_cluster", true),
        (4, 150_000, Reassignment::ClusterToCluster, "cluster_to_cluster", false),
        (6, 100_000, Reassignment::PointToCluster, "point_to_cluster", true),
        (3, 0, Reassignment::PointToPoint, "point_to_point", true),
    ];
    for (k, suppress, strategy, name, early_stop) in cases {
        let initial = draw_centres(61, 61 / k, &mut StdRng::seed_from_u64(k as u64)).unwrap();
        let settings = Settings { k, rounds: 3, early_stop, suppress, strategy };
        let (expected, summary) = sample.published(&[2, 1, 1, 1, 1], &initial, &settings);
        let sql = format!(
            "SELECT * FROM k_anonymize(people, k => {k}, comparison => 'blinded', quasi => ({}), rounds => 3, suppress => {}, reassign => '{name}', \
             early_stop => {early_stop}, weights => (age = 2), init => 'rows', init_rows => ({}))",
            sample.quasi(),
            f64::from(suppress) / f64::from(MILLION),
            list(&initial)
        );
        let found = sample.found(&world.reveal(&sql).await.unwrap());
        assert_eq!(found, expected, "{sql}");
        assert!(smallest_class(&found) >= k);
        assert_eq!(found.len(), 61 - summary.suppressed_rows);
        let run = world.veil.anonymisations().pop().unwrap();
        let (outcome, classes) = (run.outcome, found.values().collect::<std::collections::HashSet<_>>().len());
        assert_eq!(
            (outcome.rounds_run, outcome.small_clusters, outcome.suppressed_rows),
            (summary.rounds_run, summary.small_clusters, summary.suppressed_rows)
        );
        // Two classes may publish the same values.
        assert!(outcome.classes >= classes, "{outcome:?}");
        assert!(summary.small_clusters > 0, "nothing to reassign");
    }
    assert!(world.veil.anonymisations().iter().any(|run| run.outcome.suppressed_rows > 0));
}

/// A table anonymised twice, with masks, noise and a file in between.
#[tokio::test(flavor = "multi_thread")]
async fn the_result_is_a_table_like_any_other() {
    let world = World::new(201).await;
    let sample = people(40, 2);
    sample.add_to(&world, "people").await;
    let sql = "CREATE TABLE anon AS SELECT * FROM k_anonymize((SELECT * FROM people WHERE id < 36), k => 3, \
               comparison => 'blinded', quasi => (age, city, score), rounds => 2, seed => 5, drop => (height))";
    world.run(sql).await.unwrap();
    let first = world.reveal("SELECT id, age, wage, city, score FROM anon ORDER BY id").await.unwrap();
    assert_eq!(first.num_rows(), 36);
    // Wages pass.
    let original = world.reveal("SELECT wage FROM people WHERE id < 36 ORDER BY id").await.unwrap();
    assert_eq!(first.column_by_name("wage"), original.column_by_name("wage"));

    let file = world.at("anon.veil.parquet");
    world.run(&format!("COPY (SELECT * FROM anon) TO '{}' STORED AS PARQUET", file.display())).await.unwrap();
    world.create("copied", &file).await;
    let again = world.reveal("SELECT id, age, wage, city, score FROM copied ORDER BY id").await.unwrap();
    assert_eq!(again.columns(), first.columns());

    // Rows of a class go on together.
    let sql = "SELECT id, age, city, score FROM k_anonymize(copied, k => 9, comparison => 'blinded', quasi => (age, city, score), rounds => 2, seed => 6)";
    let quasi = Sample { columns: people(36, 2).columns, rows: 36 };
    let names = ["age", "city", "score"];
    let keep = |sample: Sample| Sample {
        columns: sample.columns.into_iter().filter(|(name, _)| names.contains(&name.as_str())).collect(),
        rows: 36,
    };
    let quasi = keep(quasi);
    let (once, twice) = (quasi.found(&first), quasi.found(&world.reveal(sql).await.unwrap()));
    assert!(smallest_class(&once) >= 3 && smallest_class(&twice) >= 9);
    for (id, values) in &once {
        for (other, same) in &once {
            assert!(values != same || twice[id] == twice[other], "{id} and {other} were alike");
        }
    }
    // Shift, masks drawn anew, sums.
    let sql = "SELECT mask_shift(age, 100) AS age, mask_random(city) AS city FROM anon ORDER BY id";
    let masked = world.reveal(sql).await.unwrap();
    assert_eq!(masked.num_rows(), 36);
    let ages = |batch: &datafusion::arrow::record_batch::RecordBatch, by: i64| {
        let column = datafusion::arrow::compute::cast(
            batch.column_by_name("age").unwrap(),
            &datafusion::arrow::datatypes::DataType::Int64,
        );
        let column = column.unwrap();
        let values =
            datafusion::arrow::array::AsArray::as_primitive::<datafusion::arrow::datatypes::Int64Type>(&column);
        values.values().iter().map(|age| age - by).collect::<Vec<_>>()
    };
    assert_eq!(ages(&masked, 100), ages(&first, 0));
    assert_eq!(world.reveal("SELECT enc_sum(age) AS age FROM anon").await.unwrap().num_rows(), 1);
    // Classes have no small set of columns.
    let sql = "SELECT * FROM identifiers(anon, k => 3, columns => (age, city, score), max_size => 3)";
    assert_eq!(world.run(sql).await.unwrap().num_rows(), 0);
}
