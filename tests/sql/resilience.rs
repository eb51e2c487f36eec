//! What happens when something is missing, damaged, too small or given up.

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{Array, AsArray, BinaryArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_keys::OwnerKeys;
use veilfusion::VeilSessionState;
use veilfusion::flight_p2::ClientConfig;
use veilfusion::protocols::{Channel, Frames, InProcess, Limits, Randomness, Responder};

use super::tables::add_tables;
use super::world::{World, run, sentence, session};

const NUMBERS: &str = r#"
[table]
name = "numbers"
[column.id]
kind = "clear"
type = "Int64"
[column.a]
kind = "integer"
range = [0, 1000]
[column.b]
kind = "integer"
range = [0, 1000]
public_range = true
"#;

/// A table `numbers` in which a is the row's own number, and b too.
async fn add_numbers(world: &World, rows: usize) {
    let lines: String = (0..rows).map(|id| format!("{id},{id},{id}\n")).collect();
    world.table("numbers", &format!("id,a,b\n{lines}"), NUMBERS).await;
}

fn integers(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    let column = cast(batch.column_by_name(name).unwrap(), &DataType::Int64).unwrap();
    column.as_primitive::<Int64Type>().iter().collect()
}

/// One sentence: one line, and it ends without another error inside.
fn check_sentence(text: &str) {
    assert!(!text.contains('\n') && !text.contains("External error") && text.len() < 300, "{text}");
}

/// What happens to the bytes of a cell.
type Damage = fn(&[u8]) -> Vec<u8>;

#[tokio::test(flavor = "multi_thread")]
async fn without_p2_a_round_is_refused_and_the_rest_works() {
    let world = World::without_p2(40).await;
    add_numbers(&world, 3).await;
    let refused = world.refusal("SELECT dp_laplace(a, 1) FROM numbers").await;
    check_sentence(&refused);
    assert!(refused.starts_with("this query needs rounds with P2, and no P2 is known: SET veil.p2 ="), "{refused}");
    let batch =
        world.reveal("SELECT mask_shift(a, 1) AS x, dp_laplace(b, 1) AS y FROM numbers ORDER BY id").await.unwrap();
    assert_eq!(integers(&batch, "x"), [Some(1), Some(2), Some(3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_p2_that_is_not_there_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world = World::without_p2(41).await;
    add_numbers(&world, 3).await;
    world.veil.set_remote(ClientConfig::new(format!("http://{closed}"))).await;
    let refused = world.refusal("SELECT dp_laplace(a, 1) FROM numbers").await;
    check_sentence(&refused);
    assert!(refused.contains(&closed.to_string()) && refused.contains("P2"), "{refused}");
    // The setting of a session goes before that of the program.
    world.run("SET veil.p2 = 'nowhere'").await.unwrap();
    let refused = world.refusal("SELECT dp_laplace(a, 1) FROM numbers").await;
    check_sentence(&refused);
    assert!(refused.contains("nowhere"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_p2_with_other_keys_is_refused() {
    let world = World::without_p2(42).await;
    add_numbers(&world, 3).await;
    let other = OwnerKeys::generate(&mut StdRng::seed_from_u64(43));
    let responder = Responder::new(Arc::new(other.p2()), Limits::default(), Randomness::os());
    world.veil.set_channel(Arc::new(InProcess::new(Arc::new(responder)))).await;
    let refused = world.refusal("SELECT dp_laplace(a, 1) FROM numbers").await;
    check_sentence(&refused);
    let expected = format!("the key set does not match: expected {}, got {}", other.key_id(), world.owner.key_id());
    assert!(refused.starts_with(&expected), "{refused}");
}

/// Counts rounds.
#[derive(Debug)]
struct Counting {
    channel: InProcess,
    rounds: Arc<AtomicUsize>,
}

impl Channel for Counting {
    fn exchange(&self, requests: Frames) -> Frames {
        self.rounds.fetch_add(1, Ordering::SeqCst);
        self.channel.exchange(requests)
    }

    fn limits(&self) -> Limits {
        self.channel.limits()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_is_given_up_asks_no_more() {
    let world = World::without_p2(44).await;
    add_numbers(&world, 200).await;
    let rounds = Arc::new(AtomicUsize::new(0));
    let channel = Counting { channel: InProcess::new(world.responder(Randomness::os())), rounds: rounds.clone() };
    world.veil.set_channel(Arc::new(channel)).await;
    // A round for every row.
    world.run("SET veil.batch_rows = 1").await.unwrap();
    world.run("SET datafusion.execution.batch_size = 1").await.unwrap();
    let sql = "SELECT mask_random(a, 7, 7) AS x FROM numbers";
    let frame = world.context.sql(sql).await.unwrap();
    let mut stream = frame.execute_stream().await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first.num_rows(), 1);
    drop(stream);
    // Another query in between gives what was left behind its time.
    world.run(&format!("{sql} WHERE id < 3")).await.unwrap();
    let asked = rounds.load(Ordering::SeqCst);
    assert!((4..20).contains(&asked), "{asked} rounds");
    let before = rounds.load(Ordering::SeqCst);
    let all = world.run(sql).await.unwrap();
    assert_eq!((all.num_rows(), rounds.load(Ordering::SeqCst) - before), (200, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_asks_for_no_more_rows_than_it_needs() {
    let world = World::without_p2(45).await;
    add_numbers(&world, 200).await;
    let rounds = Arc::new(AtomicUsize::new(0));
    let channel = Counting { channel: InProcess::new(world.responder(Randomness::os())), rounds: rounds.clone() };
    world.veil.set_channel(Arc::new(channel)).await;
    world.run("SET veil.batch_rows = 1").await.unwrap();
    world.run("SET datafusion.execution.batch_size = 1").await.unwrap();
    let batch = world.run("SELECT mask_random(a, 7, 7) AS x FROM numbers LIMIT 5").await.unwrap();
    assert_eq!(batch.num_rows(), 5);
    let asked = rounds.load(Ordering::SeqCst);
    assert!((5..=7).contains(&asked), "{asked} rounds");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_little_memory_is_an_error_and_no_crash() {
    let world = World::new(46).await;
    add_numbers(&world, 1000).await;
    let batch = world.run("SELECT * FROM numbers").await.unwrap();
    let runtime = RuntimeEnvBuilder::new().with_memory_limit(10_000, 1.0).build_arc().unwrap();
    let builder = SessionStateBuilder::new().with_config(SessionConfig::new()).with_runtime_env(runtime);
    let context = SessionContext::new_with_state(builder.with_veil(&world.veil).build());
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    context.register_table("numbers", Arc::new(table)).unwrap();
    let error = run(&context, "SELECT dp_laplace(a, 1) FROM numbers").await.unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    assert!(error.to_string().contains("VeilRoundsExec"), "{error}");
    // Few rows fit.
    assert_eq!(run(&context, "SELECT dp_laplace(a, 1) FROM numbers WHERE id < 5").await.unwrap().num_rows(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_cells_are_found() {
    let world = World::new(47).await;
    add_numbers(&world, 10).await;
    let whole = world.run("SELECT id, a, b FROM numbers ORDER BY id").await.unwrap();
    let damages: [(&str, Damage); 4] = [
        ("cut off", |cell| cell[..cell.len() - 3].to_vec()),
        ("empty", |_| Vec::new()),
        ("of another version", |cell| [&[cell[0] ^ 0x40], &cell[1..]].concat()),
        ("too long", |cell| [cell, &[0]].concat()),
    ];
    for (name, damage) in damages {
        let damaged = |column: usize| -> Arc<dyn Array> {
            let cells = whole.column(column).as_binary::<i32>().iter().enumerate();
            let cells: Vec<Option<Vec<u8>>> =
                cells.map(|(row, cell)| cell.map(|cell| if row == 4 { damage(cell) } else { cell.to_vec() })).collect();
            Arc::new(cells.iter().map(Option::as_deref).collect::<BinaryArray>())
        };
        let columns = vec![whole.column(0).clone(), damaged(1), damaged(2)];
        let batch = RecordBatch::try_new(whole.schema(), columns).unwrap();
        let context = session(&world.veil, SessionConfig::new());
        let table = MemTable::try_new(whole.schema(), vec![vec![batch.clone()]]).unwrap();
        context.register_table("numbers", Arc::new(table)).unwrap();
        for call in [
            "mask_shift(a, 1)",
            "mask_noise(a, 0.5)",
            "enc_add(a, b)",
            "enc_scale(a, 2)",
            "enc_sum(a)",
            "enc_avg(a)",
            "dp_laplace(a, 1)",
            "dp_laplace(b, 1)",
        ] {
            match run(&context, &format!("SELECT {call} AS x FROM numbers")).await {
                Ok(_) => panic!("{call} took a cell that is {name}"),
                Err(error) => {
                    let text = sentence(&error);
                    check_sentence(&text);
                    let column = if call.contains("(b") { "b" } else { "a" };
                    let place = match name {
                        "of another version" => "format version".to_owned(),
                        _ => format!("in column {column}, row 5 of 10"),
                    };
                    assert!(text.contains(&place), "{call} of a cell that is {name}: {text}");
                }
            }
        }
        // So is whoever holds the keys.
        let error = world.decrypted(&batch).unwrap_err().to_string();
        assert!(error.contains("row 4") || error.contains("row 5"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_of_another_key_set_in_a_column_is_found() {
    let world = World::new(48).await;
    add_tables(&world).await;
    let ours = world.run("SELECT id, age FROM people WHERE id = 1").await.unwrap();
    let theirs = world.run("SELECT id, age FROM strangers").await.unwrap();
    let mixed = RecordBatch::try_new(ours.schema(), theirs.columns().to_vec()).unwrap();
    let context = session(&world.veil, SessionConfig::new());
    let table = MemTable::try_new(ours.schema(), vec![vec![ours, mixed]]).unwrap();
    context.register_table("mixed", Arc::new(table)).unwrap();
    for call in ["enc_sum(age)", "dp_laplace(age, 1)"] {
        let error = run(&context, &format!("SELECT {call} FROM mixed")).await.unwrap_err();
        let text = sentence(&error);
        check_sentence(&text);
        assert!(text.contains(&world.owner.key_id().to_string()), "{call}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_rows_give_no_rows() {
    let world = World::new(49).await;
    add_tables(&world).await;
    let people = world.run("SELECT * FROM people").await.unwrap();
    let empty = people.slice(0, 0);
    for partitions in [vec![vec![]], vec![vec![empty.clone()]], vec![vec![empty.clone(); 3], vec![], vec![empty]]] {
        let context = session(&world.veil, SessionConfig::new());
        context.register_table("none", Arc::new(MemTable::try_new(people.schema(), partitions).unwrap())).unwrap();
        for call in [
            "mask_shift(age, 1)",
            "mask_noise(wage, 0.1)",
            "mask_random(age, 1, 2)",
            "mask_dictionary(name, 'names')",
            "mask_redact(name)",
            "enc_add(age, score)",
            "enc_sub(age, score)",
            "enc_scale(age, 2)",
            "dp_laplace(age, 1)",
            "dp_laplace(score, 1)",
            "dp_geometric(age, 1)",
            "dp_binary(smoker, 1)",
            "dp_exponential(city, 1)",
            "dp_randomized_response(city, 1)",
            "CASE WHEN id = 1 THEN age ELSE score END",
        ] {
            let batch = run(&context, &format!("SELECT {call} AS x FROM none")).await.unwrap();
            assert_eq!(world.decrypted(&batch).unwrap().num_rows(), 0, "{call}");
        }
        let batch = run(&context, "SELECT enc_sum(age) AS x, enc_avg(age) AS y FROM none").await.unwrap();
        assert_eq!(integers(&world.decrypted(&batch).unwrap(), "x"), [None]);
        let batch = run(&context, "SELECT region, enc_sum(age) AS x FROM none GROUP BY region").await.unwrap();
        assert_eq!(batch.num_rows(), 0);
    }
    // Empty batches between others.
    let context = session(&world.veil, SessionConfig::new());
    let between = vec![people.slice(0, 0), people.slice(0, 2), people.slice(0, 0), people.slice(2, 3)];
    let table = MemTable::try_new(people.schema(), vec![between]).unwrap();
    context.register_table("some", Arc::new(table)).unwrap();
    let batch = run(&context, "SELECT id, mask_random(age, 7, 7) AS x FROM some ORDER BY id").await.unwrap();
    assert_eq!(integers(&world.decrypted(&batch).unwrap(), "x"), [Some(7), None, Some(7), Some(7), None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_every_partition_and_batch_gets_one_noise() {
    let world = World::new(50).await;
    add_numbers(&world, 1000).await;
    let all = world.run("SELECT * FROM numbers ORDER BY id").await.unwrap();
    // Batches of seven rows, dealt to three partitions.
    let mut partitions = vec![Vec::new(); 3];
    for (number, first) in (0..1000).step_by(7).enumerate() {
        partitions[number % 3].push(all.slice(first, 7.min(1000 - first)));
    }
    for (batch_rows, target_partitions) in [(65_536, 3), (50, 3), (1, 4), (10, 1)] {
        let context = session(&world.veil, SessionConfig::new().with_target_partitions(target_partitions));
        let table = MemTable::try_new(all.schema(), partitions.clone()).unwrap();
        context.register_table("dealt", Arc::new(table)).unwrap();
        run(&context, &format!("SET veil.batch_rows = {batch_rows}")).await.unwrap();
        let sql = "SELECT id, dp_laplace(a, 1000) AS x, dp_laplace(b, 1000) AS y, enc_sub(dp_laplace(a, 1), a) AS noise FROM dealt \
                   ORDER BY id";
        let batch = world.decrypted(&run(&context, sql).await.unwrap()).unwrap();
        assert_eq!(integers(&batch, "id"), (0..1000).map(Some).collect::<Vec<_>>());
        // The noise of a scale of one is small: every row has its own value and not another's.
        for name in ["x", "y"] {
            for (id, noised) in integers(&batch, name).into_iter().enumerate() {
                assert!((noised.unwrap() - id as i64).abs() < 60, "{name} of row {id} is {noised:?}");
            }
        }
        // Noise of a scale of a thousand that were drawn once for a batch or partition would repeat.
        let noise: HashSet<i64> = integers(&batch, "noise").into_iter().flatten().collect();
        assert!(noise.len() > 600, "{} different", noise.len());
    }
}
