//! What the owner decrypts of k_anonymize is what the clear algorithm publishes.

use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_privacy::Hierarchy;
use veil_privacy::clusters::{MILLION, Reassignment, Settings, draw_centres};

use super::sample::{Column, Sample, smallest_class};
use super::world::World;

/// Ages with encrypted bounds, a score with public ones, heights that the engine sees, and a city.
fn sample(rows: usize) -> Sample {
    let numbers = |by: usize, lower: i64, below: usize| -> Vec<i64> {
        (0..rows).map(|row| lower + ((row * row * by + row * (by + 2)) % below) as i64).collect()
    };
    let leaves = numbers(5, 0, 9).into_iter().map(|leaf| leaf as usize).collect();
    let path = |leaf: usize| vec![format!("city{leaf}"), format!("state{}", leaf / 3), "*".to_owned()];
    let hierarchy = Hierarchy::from_rows(&(0..9).map(path).collect::<Vec<_>>()).unwrap();
    let number = |values, places, bounds, public| Column::Number { values, places, bounds, public };
    let columns = [
        ("age", number(numbers(3, 17, 70), 0, (0, 120), false)),
        ("city", Column::Category { leaves, hierarchy }),
        ("score", number(numbers(7, -4000, 8000), 2, (-5000, 5000), true)),
        ("height", Column::Clear(numbers(11, 150, 50))),
    ];
    Sample { columns: columns.into_iter().map(|(name, column)| (name.to_owned(), column)).collect(), rows }
}

async fn check(world: &World, rows: usize, centres: usize, (strategy, name): (Reassignment, &str), comparison: &str) {
    let sample = sample(rows);
    let table = format!("sample_{rows}");
    if world.context.table_provider(&table).await.is_err() {
        sample.add_to(world, &table).await;
    }
    let k = (rows / centres).max(2);
    let initial = draw_centres(rows, centres, &mut StdRng::seed_from_u64(rows as u64)).unwrap();
    let suppress = if rows.is_multiple_of(2) { 0 } else { 100_000 };
    let settings = Settings { k, rounds: 2, early_stop: true, suppress, strategy };
    let (expected, summary) = sample.published(&[2, 1, 1, 1], &initial, &settings);
    let rows_of = initial.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    // In one partition, and in two of different lengths.
    let parts =
        format!("(SELECT * FROM {table} WHERE id < {} UNION ALL SELECT * FROM {table} WHERE id >= {0})", rows / 3);
    for (relation, clears) in [(table.clone(), true), (parts, false)] {
        let sql = format!(
            "SELECT * FROM k_anonymize({relation}, k => {k}, quasi => ({}), rounds => 2, suppress => {}, reassign => '{name}', weights => (age = 2), \
             comparison => '{comparison}', init => 'rows', init_rows => ({rows_of}))",
            sample.quasi(),
            f64::from(suppress) / f64::from(MILLION),
        );
        let batch = world.reveal(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let found = sample.found(&batch);
        assert_eq!(found.len(), rows - summary.suppressed_rows, "{sql}");
        assert!(smallest_class(&found) >= k, "{sql}");
        // Rows of two partitions come in any order, and clusters begin at other rows then.
        assert!(!clears || found == expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_decrypts_what_the_clear_algorithm_publishes() {
    let world = World::new(5).await;
    let whole = (Reassignment::ClusterToCluster, "cluster_to_cluster");
    let one_by_one =
        [(Reassignment::PointToCluster, "point_to_cluster"), (Reassignment::PointToPoint, "point_to_point")];
    for rows in [2, 31, 32, 33, 63, 64, 65, 129, 193, 321] {
        check(&world, rows, (rows / 5).clamp(1, 12), whole, "blinded").await;
    }
    for rows in [31, 65, 129] {
        check(&world, rows, 3, whole, "exact").await;
    }
    for rows in [31, 32, 33, 65, 193] {
        for strategy in one_by_one.into_iter().take(if rows <= 32 { 2 } else { 1 }) {
            check(&world, rows, (rows / 6).clamp(2, 9), strategy, "blinded").await;
        }
    }
}
