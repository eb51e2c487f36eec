//! Risk and utility of a whole table, beside the same measures of the clear rows.
//!
//! `cargo bench -p veilfusion --bench assess [-- NAME..]` prints a table. It takes adult.csv of the UCI repository (30,162 rows, age and seven categories)
//! and its hierarchies, which must lie beside the project. It is anonymised once, with few centres; how many classes there are matters little to what
//! follows. P2 is a real service over loopback with mutual TLS, on the same cores. Risks and categorical losses are compared with those of the rows
//! that the owner decrypts, which are measured in the same run, on one core.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails by panicking"
)]

#[path = "../crates/flight-p2/tests/support/mod.rs"]
mod support;
mod told;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{CsvReadOptions, SessionConfig, SessionContext};
use support::{Certificates, KEYS, P2, client, with_tls};
use told::Told;
use veil_keys::os_rng;
use veil_owner::{Declaration, Output, decrypt_batch, encrypt_file, unwatched};
use veil_privacy::ClassSizes;
use veil_privacy::risk::{PopulationUniqueness, Risk};
use veil_privacy::utility::{RangeLoss, SquaredErrors, ratio_value};
use veilfusion::{Veil, VeilSessionState};

const COLUMNS: [&str; 8] =
    ["age", "workclass", "education", "marital-status", "occupation", "race", "sex", "native-country"];

/// Rows as text, by number; nothing for those that are suppressed.
type Rows = Vec<Option<Vec<String>>>;

struct Bench {
    veil: Veil,
    context: SessionContext,
    /// For every category the paths of its leaves.
    hierarchies: HashMap<&'static str, Vec<Vec<String>>>,
}

impl Bench {
    async fn new(p2: &P2, certificates: &Certificates, data: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [input, output] = ["adult.csv", "adult.veil.parquet"].map(|name| folder.path().join(name));
        let cores = std::thread::available_parallelism().unwrap().get();
        let veil = Veil::default();
        veil.add_key(KEYS.key_id(), KEYS.p1().public_key().clone()).await;
        veil.set_remote(client(p2, Some(certificates))).await;
        let config = SessionConfig::new().with_target_partitions(cores);
        let state = SessionStateBuilder::new().with_config(config).with_veil(&veil).build();
        let context = SessionContext::new_with_state(state);
        let (mut declaration, mut hierarchies) = (
            "[table]\nname = \"adult\"\n[column.id]\nkind = \"clear\"\ntype = \"Int64\"\n[column.age]\nkind = \"integer\"\nrange = [17, 90]\nidentifier = true\n".to_owned(),
            HashMap::new(),
        );
        for name in &COLUMNS[1..] {
            let text = std::fs::read_to_string(data.join(format!("hierarchies/adult_hierarchy_{name}.csv"))).unwrap();
            let paths: Vec<Vec<String>> = text
                .lines()
                .map(|line| line.split([',', ';']).map(|label| label.trim().to_owned()).collect())
                .collect();
            let lines: Vec<String> = paths.iter().map(|path| path.join(",")).collect();
            std::fs::write(folder.path().join(format!("{name}.csv")), lines.join("\n")).unwrap();
            hierarchies.insert(*name, paths);
            declaration +=
                &format!("[column.{name}]\nkind = \"category\"\nhierarchy = \"{name}.csv\"\nidentifier = true\n");
        }
        let adult = data.join("adult.csv");
        context.register_csv("text", adult.to_str().unwrap(), CsvReadOptions::new()).await.unwrap();
        let copy = format!(
            "COPY (SELECT row_number() OVER () AS id, {} FROM text) TO '{}' STORED AS CSV OPTIONS ('format.has_header' 'true')",
            names(""),
            input.display()
        );
        context.sql(&copy).await.unwrap().collect().await.unwrap();
        let declaration = Declaration::parse(&declaration, &folder.path().join("adult.toml")).unwrap();
        let to = Output { path: output.clone(), force: false };
        encrypt_file(&input, &declaration, &KEYS, &to, &mut os_rng(), &unwatched).unwrap();
        let file = format!("CREATE EXTERNAL TABLE file STORED AS PARQUET LOCATION '{}'", output.display());
        context.sql(&file).await.unwrap();
        let bench = Self { veil, context, hierarchies };
        bench.run("CREATE TABLE adult AS SELECT * FROM file ORDER BY id").await;
        bench
    }

    async fn run(&self, sql: &str) -> RecordBatch {
        let frame = self.context.sql(sql).await.unwrap();
        let schema = std::sync::Arc::new(frame.schema().as_arrow().clone());
        let batches = frame.collect().await.unwrap();
        concat_batches(&batches.first().map_or(schema, |batch| batch.schema()), &batches).unwrap()
    }

    /// The rows of a table as the owner reads them.
    async fn rows(&self, table: &str, count: usize) -> Rows {
        let batch = decrypt_batch(&KEYS, &self.run(&format!("SELECT * FROM {table}")).await).unwrap();
        let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
        let mut rows = vec![None; count.max(batch.num_rows())];
        for row in 0..batch.num_rows() {
            let text = |name: &&str| array_value_to_string(batch.column_by_name(name).unwrap(), row).unwrap();
            rows[ids.value(row) as usize - 1] = Some(COLUMNS.iter().map(text).collect());
        }
        rows
    }

    /// Measures of a query, by name and column; and what it took.
    async fn ask(&self, sql: &str) -> (HashMap<(String, String), f64>, Line) {
        let started = Instant::now();
        let batch = self.run(sql).await;
        let seconds = started.elapsed().as_secs_f64();
        let run = self.veil.assessments().pop().unwrap();
        let text = |name: &str, row: usize| {
            let column = batch.column_by_name(name).unwrap().as_string::<i32>();
            if column.is_null(row) { String::new() } else { column.value(row).to_owned() }
        };
        let values = batch.column_by_name("value").unwrap().as_primitive::<Float64Type>();
        let measures = (0..batch.num_rows()).filter(|row| values.is_valid(*row));
        let measures = measures.map(|row| ((text("measure", row), text("column_name", row)), values.value(row)));
        let line = Line { rounds: run.rounds, sent: run.bytes_sent, received: run.bytes_received, seconds };
        (measures.collect(), line)
    }

    /// How far up, and over how many leaves, every category is published, from clear rows.
    fn generalised(&self, after: &Rows) -> Vec<(&'static str, f64, f64)> {
        let loss = |(at, name): (usize, &&'static str)| {
            let paths = &self.hierarchies[*name];
            let top = paths[0].len() - 1;
            let mut nodes: HashMap<&str, (usize, usize)> = HashMap::new();
            for level in (0..=top).rev() {
                let mut leaves: HashMap<&str, usize> = HashMap::new();
                paths.iter().for_each(|path| *leaves.entry(&path[level]).or_default() += 1);
                nodes.extend(leaves.into_iter().map(|(label, leaves)| (label, (level, leaves))));
            }
            let node =
                |row: &Option<Vec<String>>| row.as_ref().map_or((top, paths.len()), |row| nodes[row[at].as_str()]);
            let (levels, leaves) = after.iter().map(node).fold((0, 0), |sum, node| (sum.0 + node.0, sum.1 + node.1));
            let rows = after.len();
            let ncp = (leaves - rows) as f64 / (rows * (paths.len() - 1)) as f64;
            (*name, levels as f64 / (rows * top) as f64, ncp)
        };
        COLUMNS.iter().enumerate().skip(1).map(loss).collect()
    }
}

fn names(prefix: &str) -> String {
    COLUMNS.map(|name| format!("{prefix}\"{name}\"")).join(", ")
}

struct Line {
    rounds: u64,
    sent: u64,
    received: u64,
    seconds: f64,
}

impl Line {
    fn print(&self, name: &str, clear: f64, goal: &str) {
        let Self { rounds, sent, received, seconds } = self;
        let megabytes = |bytes: &u64| *bytes as f64 / 1e6;
        let (up, down, ratio) = (megabytes(sent), megabytes(received), seconds / clear);
        println!("| {name} | {rounds} | {up:.0} | {down:.0} | {seconds:.1} | {clear:.3} | {ratio:.0} | {goal} |");
        let name = format!("assess: {name}");
        Told { name: &name, value: *seconds, unit: "s", against: "the same of clear rows, one core", ratio, goal }
            .tell();
    }
}

fn class_sizes(rows: &Rows, left_out: Option<usize>) -> ClassSizes {
    let label = |row: &Vec<String>| {
        let kept = row.iter().enumerate().filter(|(at, _)| Some(*at) != left_out);
        kept.map(|(_, text)| text.clone()).collect::<Vec<_>>()
    };
    let published = ClassSizes::from_labels(rows.iter().flatten().map(label));
    ClassSizes::new(published.counts(), rows.iter().filter(|row| row.is_none()).count() as u64)
}

/// Risks of clear rows, with what each column contributes; and the seconds that they took.
fn clear_risk(rows: &Rows) -> (Risk, Vec<Risk>, f64) {
    let started = Instant::now();
    let all = class_sizes(rows, None);
    let uniques = PopulationUniqueness::of(&all, 1_000_000);
    let without = (0..COLUMNS.len()).map(|at| Risk::of(&class_sizes(rows, Some(at)), None)).collect();
    let risk = Risk::of(&all, Some(1_000_000));
    std::hint::black_box(uniques);
    (risk, without, started.elapsed().as_secs_f64())
}

fn wanted(name: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| name.contains(&filter))
}

#[tokio::main]
async fn main() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    if !data.join("adult.csv").exists() || !data.join("hierarchies").exists() {
        println!("adult.csv and its hierarchies do not lie beside the project: nothing to measure");
        return;
    }
    let certificates = Certificates::new();
    let p2 = P2::start(with_tls(&certificates)).await;
    let bench = Bench::new(&p2, &certificates, &data).await;
    let started = Instant::now();
    let anonymise = format!(
        "CREATE TABLE anon AS SELECT * FROM k_anonymize(adult, k => 50, comparison => 'blinded', quasi => ({}), rounds => 1, centres => 64, suppress => 0.02, seed => 1)",
        names("")
    );
    bench.run(&anonymise).await;
    println!("anonymised in {:.0} s", started.elapsed().as_secs_f64());
    let before = bench.rows("adult", 0).await;
    let after = bench.rows("anon", before.len()).await;
    println!(
        "\n| {} rows, 8 columns | rounds | MB up | MB down | seconds | clear, seconds | ratio | goal |",
        before.len()
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut all = 0.0;
    for (name, table, rows) in [("risk before", "adult", &before), ("risk after", "anon", &after)] {
        if !wanted(name) {
            continue;
        }
        let sql = format!("SELECT * FROM risk({table}, quasi => ({}), population => 1000000)", names(""));
        let (found, line) = bench.ask(&sql).await;
        let (risk, without, clear) = clear_risk(rows);
        let of = |measure: &str, column: &str| found[&(measure.to_owned(), column.to_owned())];
        assert_eq!(of("prosecutor_max", ""), risk.prosecutor_max);
        assert_eq!(of("marketer", ""), risk.marketer);
        assert_eq!(of("share_below_10", ""), risk.share_below_10);
        for (column, risk) in COLUMNS.iter().zip(without) {
            assert_eq!(of("prosecutor_average_without", column), risk.prosecutor_average);
        }
        line.print(name, clear, "");
        all += line.seconds;
    }
    for (name, ranges, goal) in [("utility", false, ""), ("utility, ranges", true, "")] {
        if !wanted(name) {
            continue;
        }
        let sql = format!("SELECT * FROM utility(adult, anon, quasi => ({}), k => 50, ranges => {ranges})", names(""));
        let (found, line) = bench.ask(&sql).await;
        let started = Instant::now();
        let of = |measure: &str, column: &str| found[&(measure.to_owned(), column.to_owned())];
        assert_eq!(of("discernibility", ""), class_sizes(&after, None).discernibility() as f64);
        for (column, precision, leaves) in bench.generalised(&after) {
            assert_eq!(of("precision_loss", column), precision, "{column}");
            assert!((of("generalised_loss", column) - leaves).abs() < 1e-12, "{column}");
        }
        let age = |row: &Option<Vec<String>>| row.as_ref().map_or(17, |row| row[0].parse::<i64>().unwrap());
        let grid = |rows: &Rows| -> Vec<i64> {
            rows.iter().map(|row| veil_privacy::clusters::coordinate(age(row), 17, 90)).collect()
        };
        let suppressed: Vec<bool> = after.iter().map(Option::is_none).collect();
        let errors = SquaredErrors::of(&grid(&before), &grid(&after), &suppressed).unwrap();
        assert_eq!(of("information_loss", "age"), 100.0 * ratio_value(errors.all_ratio()));
        if ranges {
            let ages: Vec<i64> = before.iter().map(age).collect();
            let loss = RangeLoss::of(&ages, &after).unwrap().mean();
            assert!((of("range_loss", "age") - loss).abs() < 1e-5, "{} {loss}", of("range_loss", "age"));
        }
        line.print(name, started.elapsed().as_secs_f64(), goal);
        all += if ranges { 0.0 } else { line.seconds };
    }
    println!("| risk before, risk after and utility together | | | | {all:.1} | | | 60 s |");
    for (name, call) in
        [("risk after", "risk({after}, contributions => false"), ("utility", "utility({before}, {after}")]
    {
        if wanted("growth") {
            growth(&bench, name, call).await;
        }
    }
}

/// How a call grows with rows and with columns: a quarter of the rows, and a quarter of the columns, beside all of both.
async fn growth(bench: &Bench, name: &str, call: &str) {
    let columns =
        |count: usize| COLUMNS[..count].iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let ask = async |rows: &str, count: usize| {
        let of = |table: &str| format!("(SELECT * FROM {table}{rows})");
        let call = call.replace("{before}", &of("adult")).replace("{after}", &of("anon"));
        let sql = format!("SELECT * FROM {call}, quasi => ({}))", columns(count));
        bench.ask(&sql).await.1.seconds
    };
    let (whole, few_rows, few_columns) = (ask("", 8).await, ask(" WHERE id % 4 = 0", 8).await, ask("", 2).await);
    for (what, part) in [("rows", few_rows), ("columns", few_columns)] {
        let exponent = (whole / part).ln() / 4f64.ln();
        println!("growth of {name} with {what}, from a quarter on: ^{exponent:.2}");
        let name = format!("assess: growth of {name} with {what}");
        Told { name: &name, value: exponent, unit: "exponent", against: "linear", ratio: exponent, goal: "" }.tell();
    }
}
