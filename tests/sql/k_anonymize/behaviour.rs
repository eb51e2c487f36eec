//! What is refused, told, bounded and given up.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use veilfusion::{KAnonymizeExec, Phase, VeilSessionState};

use crate::sql::world::{World, run};

const PLACES: &str = r#"
[table]
name = "places"
[column.id]
kind = "clear"
type = "Int64"
[column.x]
kind = "integer"
range = [0, 1000]
[column.y]
kind = "integer"
range = [0, 1000]
"#;

/// Rows on a line, in groups of ten that lie far apart.
async fn add_places(world: &World, rows: usize) {
    let line = |id: usize| format!("{id},{},{}\n", id / 10 * 100 % 1000 + id % 10, id % 7);
    let lines: String = (0..rows).map(line).collect();
    world.table("places", &format!("id,x,y\n{lines}"), PLACES).await;
}

/// Rows at these places.
pub(super) async fn add_rows(world: &World, places: &[i64]) {
    let lines: String = places.iter().enumerate().map(|(id, x)| format!("{id},{x},0\n")).collect();
    world.table("places", &format!("id,x,y\n{lines}"), PLACES).await;
}

fn find(plan: &dyn ExecutionPlan) -> Option<&KAnonymizeExec> {
    let own = plan.downcast_ref::<KAnonymizeExec>();
    own.or_else(|| plan.children().into_iter().find_map(|child| find(child.as_ref())))
}

/// One outlier, all rows equal, as many rows as k: classes are never smaller than k.
#[tokio::test(flavor = "multi_thread")]
async fn k_holds_whatever_the_shape() {
    let world = World::new(220).await;
    let tables = [
        ("equal", (0..11).map(|id| format!("{id},5,5\n")).collect::<String>()),
        ("outlier", (0..11).map(|id| format!("{id},{},5\n", if id == 3 { 1000 } else { id })).collect()),
        ("apart", (0..11).map(|id| format!("{id},{},{}\n", id % 2 * 1000, id % 2 * 1000)).collect()),
    ];
    for (name, lines) in tables {
        let declaration = PLACES.replace("places", name);
        world.table(name, &format!("id,x,y\n{lines}"), &declaration).await;
        for (k, reassign) in
            [(2, "cluster_to_cluster"), (4, "point_to_cluster"), (7, "cluster_to_cluster"), (11, "point_to_point")]
        {
            let sql = format!(
                "SELECT id, x, y FROM k_anonymize({name}, k => {k}, comparison => 'blinded', quasi => (x, y), rounds => 3, reassign => '{reassign}')"
            );
            let batch = world.reveal(&sql).await.unwrap();
            assert_eq!(batch.num_rows(), 11, "{sql}");
            let column = |place: usize| batch.column(place).clone();
            let (x, y) = (column(1), column(2));
            let rows: Vec<(String, String)> = (0..11)
                .map(|row| {
                    let text = |column| datafusion::arrow::util::display::array_value_to_string(column, row).unwrap();
                    (text(&x), text(&y))
                })
                .collect();
            let alike = |row: &(String, String)| rows.iter().filter(|other| *other == row).count();
            assert!(rows.iter().all(|row| alike(row) >= k), "{sql}: {rows:?}");
        }
    }
}

/// A result that says nothing comes with the reason, and with what would help.
#[tokio::test(flavor = "multi_thread")]
async fn a_useless_result_says_so() {
    let world = World::new(221).await;
    add_places(&world, 30).await;
    world.run("SELECT * FROM k_anonymize(places, k => 16, comparison => 'blinded', quasi => (x, y))").await.unwrap();
    assert_eq!(world.veil.take_warnings().len(), 1);
    let notes = world.veil.take_notes();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("30 rows are too few for two classes of 16, so that all rows are alike"), "{notes:?}");
    // Three groups of ten, and clusters that begin at one of them.
    let sql =
        "SELECT * FROM k_anonymize(places, k => 11, comparison => 'blinded', quasi => (x, y), init_rows => (0, 10))";
    world.run(sql).await.unwrap();
    let note = world.veil.take_notes().remove(1);
    assert!(note.contains("all rows ended in one class") && note.contains("what would help: k => 10"), "{note}");
    let summary = "SELECT classes, clusters, small_clusters, rows, note FROM k_anonymize_summary() ORDER BY run";
    let batch = world.run(summary).await.unwrap();
    let number = |column: usize, row: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
    assert_eq!((number(0, 1), number(1, 1), number(2, 1), number(3, 1)), (1, 2, 1, 30));
    assert_eq!(batch.column(4).as_string::<i32>().value(1), note);
}

/// EXPLAIN ANALYZE counts what each phase did.
#[tokio::test(flavor = "multi_thread")]
async fn phases_are_counted() {
    let world = World::new(222).await;
    add_places(&world, 40).await;
    let frame = world
        .context
        .sql("SELECT * FROM k_anonymize(places, k => 5, comparison => 'blinded', quasi => (x, y), rounds => 2)")
        .await
        .unwrap();
    let tasks = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await.unwrap();
    let rows: usize = datafusion::physical_plan::collect(plan.clone(), tasks)
        .await
        .unwrap()
        .iter()
        .map(|batch| batch.num_rows())
        .sum();
    assert_eq!(rows, 40);
    let metrics = find(plan.as_ref()).unwrap().metrics().unwrap();
    let value = |name: &str| metrics.sum_by_name(name).unwrap_or_else(|| panic!("{name}")).as_usize();
    assert_eq!(metrics.output_rows(), Some(40));
    let run = world.veil.anonymisations().pop().unwrap();
    for (sum, ending) in
        [(run.rounds, "rounds"), (run.bytes_sent, "sent_bytes"), (run.bytes_received, "received_bytes")]
    {
        let parts: usize = Phase::NAMES.iter().map(|phase| value(&format!("{phase}_{ending}"))).sum();
        assert_eq!(parts as u64, sum, "{ending}");
    }
    for phase in ["prepare", "cluster", "sizes", "publish"] {
        assert!(value(&format!("{phase}_ciphertexts")) > 0 && value(&format!("{phase}_time")) > 0, "{phase}");
    }
    assert_eq!(find(plan.as_ref()).unwrap().progress(), None);
}

/// A run that nobody waits for any more ends, and P2 goes on answering others.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_given_up() {
    let world = World::new(223).await;
    add_places(&world, 300).await;
    let frame = world
        .context
        .sql("SELECT * FROM k_anonymize(places, k => 5, comparison => 'blinded', quasi => (x, y))")
        .await
        .unwrap();
    let tasks = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await.unwrap();
    let pool = tasks.memory_pool().clone();
    let mut stream = execute_stream(plan.clone(), tasks).unwrap();
    let exec = find(plan.as_ref()).unwrap();
    let clustering = || exec.progress().is_some_and(|progress| matches!(progress.phase, Phase::Cluster { .. }));
    while !clustering() {
        tokio::select! {
            batch = stream.next() => panic!("ended early: {batch:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert!(pool.reserved() > 0 && exec.progress().unwrap().bytes_sent > 0);
    drop(stream);
    assert_eq!((pool.reserved(), exec.progress()), (0, None));
    assert!(world.veil.anonymisations().is_empty());
    let sql = "SELECT * FROM k_anonymize((SELECT * FROM places WHERE id < 10), k => 5, comparison => 'blinded', quasi => (x), rounds => 1)";
    assert_eq!(world.run(sql).await.unwrap().num_rows(), 10);
}

/// A run keeps within the memory of its session.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded() {
    let world = World::new(224).await;
    add_places(&world, 300).await;
    let runtime = RuntimeEnvBuilder::new().with_memory_limit(20 << 20, 1.0).build_arc().unwrap();
    let state = SessionStateBuilder::new().with_runtime_env(runtime).with_veil(&world.veil).build();
    let context = SessionContext::new_with_state(state);
    let location = world.at("places.veil.parquet");
    let sql = format!("CREATE EXTERNAL TABLE places STORED AS PARQUET LOCATION '{}'", location.display());
    run(&context, &sql).await.unwrap();
    let error =
        run(&context, "SELECT * FROM k_anonymize(places, comparison => 'blinded', quasi => (x, y))").await.unwrap_err();
    let expected = "k_anonymize of 300 rows from 30 centres takes about";
    assert!(error.to_string().contains(expected) && error.to_string().contains("centres => 7"), "{error}");
    assert!(world.veil.anonymisations().is_empty());
}
