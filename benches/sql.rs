//! Functions through SQL: rows a second, beside the clear expression of the same shape in DataFusion.
//!
//! `cargo bench -p veilfusion --bench sql [-- NAME..]` prints a table. Both tables lie in memory in as many partitions as there are
//! cores; encrypted and clear queries take turns, so that ratios come from one run. P2 is a real service over loopback with mutual
//! TLS, on the same cores.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails by panicking"
)]

#[path = "../crates/flight-p2/tests/support/mod.rs"]
mod support;
mod told;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{CsvReadOptions, SessionConfig, SessionContext};
use futures::StreamExt;
use support::{Certificates, KEYS, P2, client, with_tls};
use told::Told;
use veil_keys::os_rng;
use veil_owner::{Declaration, Output, encrypt_file, unwatched};
use veilfusion::{Veil, VeilSessionState};

const ROWS: usize = 1 << 20;
const TURNS: usize = 5;

const DECLARATION: &str = r#"
[table]
name = "people"
[column.name]
kind = "text"
max_length = 12
[column.age]
kind = "integer"
range = [0, 120]
public_range = true
[column.wage]
kind = "integer"
range = [0, 120]
[column.smoker]
kind = "binary"
values = ["0", "1"]
[column.city]
kind = "category"
values = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"]
[dictionary.names]
file = "names.txt"
pad_to = 1024
"#;

/// Name, encrypted query, clear query of the same shape, goal in millions of rows a second.
const QUERIES: [(&str, &str, &str, f64); 11] = [
    ("mask_shift", "mask_shift(age, 3)", "age + 3", 2.0),
    ("mask_redact", "mask_redact(name, 'withheld')", "CASE WHEN name IS NULL THEN NULL ELSE 'withheld' END", 2.0),
    ("mask_dictionary", "mask_dictionary(name, 'names')", "concat('n', CAST(1024 * random() AS INT))", 2.0),
    ("mask_noise", "mask_noise(age, 0.1)", "age * (0.9 + 0.2 * random())", 0.0),
    ("mask_random", "mask_random(age, 0, 120)", "CAST(121 * random() AS INT)", 0.0),
    ("enc_add", "enc_add(age, wage)", "age + wage", 0.0),
    ("dp_binary", "dp_binary(smoker, 1.0)", "CASE WHEN random() < 0.2689 THEN 1 - smoker ELSE smoker END", 2.0),
    ("dp_laplace, public bounds", "dp_laplace(age, 1.0)", LAPLACE, 2.0),
    ("dp_laplace, encrypted bounds", "dp_laplace(wage, 1.0)", LAPLACE, 0.1),
    ("dp_randomized_response, 16 categories", "dp_randomized_response(city, 1.0)", "CAST(16 * random() AS INT)", 0.0),
    ("dp_exponential, 16 categories", "dp_exponential(city, 1.0, 'order')", "CAST(16 * random() AS INT)", 0.0),
];

const LAPLACE: &str = "age - round(120.0 * ln(1 - random())) + round(120.0 * ln(1 - random()))";

/// Both tables in memory, and the way to P2.
async fn context(p2: &P2, certificates: &Certificates) -> SessionContext {
    let folder = tempfile::tempdir().unwrap();
    let mut csv = String::from("name,age,wage,smoker,city\n");
    for row in 0..ROWS {
        writeln!(csv, "n{},{},{},{},{}", row % 1000, row % 121, row % 120, row % 2, row % 16).unwrap();
    }
    let names: String = (0..1000).map(|name| format!("m{name}\n")).collect();
    let [input, output] = ["people.csv", "people.veil.parquet"].map(|name| folder.path().join(name));
    std::fs::write(&input, csv).unwrap();
    std::fs::write(folder.path().join("names.txt"), names).unwrap();
    let declaration = Declaration::parse(DECLARATION, &folder.path().join("people.toml")).unwrap();
    let to = Output { path: output.clone(), force: false };
    encrypt_file(&input, &declaration, &KEYS, &to, &mut os_rng(), &unwatched).unwrap();

    let veil = Veil::default();
    veil.add_key(KEYS.key_id(), KEYS.p1().public_key().clone()).await;
    veil.set_remote(client(p2, Some(certificates))).await;
    let cores = std::thread::available_parallelism().unwrap().get();
    let config = SessionConfig::new().with_target_partitions(cores);
    let context =
        SessionContext::new_with_state(SessionStateBuilder::new().with_config(config).with_veil(&veil).build());
    let file = format!("CREATE EXTERNAL TABLE file STORED AS PARQUET LOCATION '{}'", output.display());
    context.sql(&file).await.unwrap();
    context.register_csv("text", input.to_str().unwrap(), CsvReadOptions::new()).await.unwrap();
    for (table, source) in [("people", "file"), ("clear", "text")] {
        let frame = context.table(source).await.unwrap();
        let schema = Arc::new(frame.schema().as_arrow().clone());
        let batches = frame.collect().await.unwrap();
        let per = batches.len().div_ceil(cores);
        let partitions: Vec<_> = batches.chunks(per).map(<[_]>::to_vec).collect();
        let table_of = MemTable::try_new(schema, partitions).unwrap();
        context.register_table(table, Arc::new(table_of)).unwrap();
    }
    context
}

/// Seconds to run a query and throw its rows away as they come.
async fn seconds(context: &SessionContext, sql: &str) -> f64 {
    let started = Instant::now();
    let streams = context.sql(sql).await.unwrap().execute_stream_partitioned().await.unwrap();
    let drained = streams.into_iter().map(|mut stream| {
        tokio::spawn(async move {
            let mut rows = 0;
            while let Some(batch) = stream.next().await {
                rows += batch.unwrap().num_rows();
            }
            rows
        })
    });
    let mut rows = 0;
    for drained in drained.collect::<Vec<_>>() {
        rows += drained.await.unwrap();
    }
    assert_eq!(rows, ROWS);
    started.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn wanted(name: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| name.contains(&filter))
}

#[tokio::main]
async fn main() {
    let certificates = Certificates::new();
    let p2 = P2::start(with_tls(&certificates)).await;
    let context = context(&p2, &certificates).await;
    println!("| {ROWS} rows | million rows/s | clear, million rows/s | ratio | goal |\n|---|---|---|---|---|");
    for (name, encrypted, clear, goal) in QUERIES {
        if !wanted(name) {
            continue;
        }
        let encrypted = format!("SELECT {encrypted} FROM people");
        let clear = format!("SELECT {clear} FROM clear");
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            ours.push(seconds(&context, &encrypted).await);
            theirs.push(seconds(&context, &clear).await);
        }
        let rate = |seconds: f64| ROWS as f64 / seconds / 1e6;
        let (ours, theirs) = (median(ours), median(theirs));
        let goal = if goal > 0.0 { goal.to_string() } else { String::new() };
        println!("| {name} | {:.2} | {:.1} | {:.1} | {goal} |", rate(ours), rate(theirs), ours / theirs);
        let goal = if goal.is_empty() { goal } else { format!("{goal} million rows/s") };
        Told {
            name: &format!("sql: {name}"),
            value: rate(ours),
            unit: "million rows/s",
            against: "the clear expression",
            ratio: ours / theirs,
            goal: &goal,
        }
        .tell();
    }
}
