//! The search for identifying columns, beside the same search in clear SQL.
//!
//! `cargo bench -p veilfusion --bench identifiers [-- NAME..]` prints a table. The table is adult.csv of the UCI repository (30,162
//! rows, eight columns) if it lies beside the project, else one of the same size that looks like it, and then the lines say so. P2 is a real service over
//! loopback with mutual TLS, on the same cores. "all sets" asks about all 255 sets of columns and prunes none.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails by panicking"
)]

#[path = "../crates/flight-p2/tests/support/mod.rs"]
mod support;
mod told;

use std::path::Path;
use std::time::Instant;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{CsvReadOptions, SessionConfig, SessionContext};
use support::{Certificates, KEYS, P2, client, with_tls};
use told::Told;
use veil_keys::os_rng;
use veil_owner::{Declaration, Output, encrypt_file, unwatched};
use veil_privacy::lattice::LatticeSearch;
use veilfusion::functions::VeilOptions;
use veilfusion::protocols::identifiers::{Column, Method, Table};
use veilfusion::{Veil, VeilSessionState};

const COLUMNS: [&str; 8] =
    ["age", "workclass", "education", "marital-status", "occupation", "race", "sex", "native-country"];
const K: u32 = 5;

/// What the lines of a table begin with that only looks like adult.csv: they are never held against those of adult.csv.
const LIKENESS: &str = "like adult, ";

struct Bench {
    /// Of which table, if not of adult.csv.
    of: &'static str,
    veil: Veil,
    context: SessionContext,
    columns: Vec<ArrayRef>,
    rows: usize,
}

impl Bench {
    async fn new(p2: &P2, certificates: &Certificates) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [input, output] = ["adult.csv", "adult.veil.parquet"].map(|name| folder.path().join(name));
        let cores = std::thread::available_parallelism().unwrap().get();
        let veil = Veil::default();
        veil.add_key(KEYS.key_id(), KEYS.p1().public_key().clone()).await;
        veil.set_remote(client(p2, Some(certificates))).await;
        let config = SessionConfig::new().with_target_partitions(cores);
        let state = SessionStateBuilder::new().with_config(config).with_veil(&veil).build();
        let context = SessionContext::new_with_state(state);

        let adult = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/adult.csv");
        let names: Vec<String> = COLUMNS.iter().map(|column| format!("\"{column}\"")).collect();
        let of = if adult.exists() { "" } else { LIKENESS };
        if of.is_empty() {
            context.register_csv("text", adult.to_str().unwrap(), CsvReadOptions::new()).await.unwrap();
        } else {
            let generated = folder.path().join("generated.csv");
            std::fs::write(&generated, people(30_162)).unwrap();
            context.register_csv("text", generated.to_str().unwrap(), CsvReadOptions::new()).await.unwrap();
        }
        let copy = format!(
            "COPY (SELECT {} FROM text) TO '{}' STORED AS CSV OPTIONS ('format.has_header' 'true')",
            names.join(", "),
            input.display()
        );
        context.sql(&copy).await.unwrap().collect().await.unwrap();
        let mut declaration = String::from(
            "[table]\nname = \"adult\"\n[column.age]\nkind = \"integer\"\nrange = [0, 120]\nidentifier = true\n",
        );
        for column in &COLUMNS[1..] {
            declaration += &format!("[column.{column}]\nkind = \"text\"\nmax_length = 30\nidentifier = true\n");
        }
        let declaration = Declaration::parse(&declaration, &folder.path().join("adult.toml")).unwrap();
        let to = Output { path: output.clone(), force: false };
        encrypt_file(&input, &declaration, &KEYS, &to, &mut os_rng(), &unwatched).unwrap();
        let file = format!("CREATE EXTERNAL TABLE file STORED AS PARQUET LOCATION '{}'", output.display());
        context.sql(&file).await.unwrap();
        for (table, source) in [("adult", "file"), ("clear", "text")] {
            let sql = format!("CREATE TABLE {table} AS SELECT {} FROM {source}", names.join(", "));
            context.sql(&sql).await.unwrap().collect().await.unwrap();
        }
        let batches = context.table("adult").await.unwrap().collect().await.unwrap();
        let column = |at: usize| {
            let parts: Vec<_> = batches.iter().map(|batch| batch.column(at).as_ref()).collect();
            concat(&parts).unwrap()
        };
        let columns: Vec<ArrayRef> = (0..COLUMNS.len()).map(column).collect();
        let rows = columns[0].len();
        Self { of, veil, context, columns, rows }
    }

    /// Seconds of a query, and what it did.
    async fn search(&self, sql: &str) -> Line {
        let started = Instant::now();
        let batches = self.context.sql(sql).await.unwrap().collect().await.unwrap();
        let seconds = started.elapsed().as_secs_f64();
        let search = self.veil.searches().pop().unwrap();
        let found = batches.iter().map(|batch| batch.num_rows()).sum();
        Line {
            found,
            sets: search.checked,
            rounds: search.rounds,
            bytes: search.bytes_sent + search.bytes_received,
            seconds,
        }
    }

    /// All sets of columns at once.
    async fn all_sets(&self, method: Method) -> Line {
        let started = Instant::now();
        let session = self.veil.session(KEYS.key_id(), &VeilOptions::default()).await.unwrap();
        let columns = self.columns.iter().map(|column| Column::Tags(column.clone())).collect();
        let table = Table::prepare(Some(session.clone()), method, self.rows, columns).await.unwrap();
        let sets: Vec<u64> = (1..256).collect();
        let found = table.small_classes(&sets, K, false, |_| {}).await.unwrap();
        let traffic = session.traffic();
        Line {
            found: found.iter().filter(|found| **found > 0).count(),
            sets: 255,
            rounds: traffic.rounds(),
            bytes: traffic.bytes_up() + traffic.bytes_down(),
            seconds: started.elapsed().as_secs_f64(),
        }
    }

    /// The same search in clear: levels, prunings and all.
    async fn clear(&self, prune: bool) -> (usize, f64) {
        let started = Instant::now();
        let mut found = 0;
        if prune {
            let mut search = LatticeSearch::new(COLUMNS.len(), COLUMNS.len()).unwrap();
            while let Some(sets) = search.next_level() {
                let mut answers = Vec::new();
                for set in sets {
                    answers.push(self.count_clear(set.bits()).await);
                }
                search.answer(&answers).unwrap();
            }
            found = search.identifiers().len();
        } else {
            for set in 1..256 {
                found += usize::from(self.count_clear(set).await > 0);
            }
        }
        (found, started.elapsed().as_secs_f64())
    }

    async fn count_clear(&self, set: u64) -> u64 {
        let names = COLUMNS.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        let names: Vec<String> = names.map(|(_, name)| format!("\"{name}\"")).collect();
        let sql = format!(
            "SELECT count(*) FROM (SELECT count(*) AS n FROM clear GROUP BY {} HAVING count(*) < {K})",
            names.join(", ")
        );
        let batches = self.context.sql(&sql).await.unwrap().collect().await.unwrap();
        batches[0].column(0).as_primitive::<Int64Type>().value(0) as u64
    }
}

struct Line {
    found: usize,
    sets: u64,
    rounds: u64,
    bytes: u64,
    seconds: f64,
}

impl Line {
    fn print(&self, name: &str, clear: Option<f64>, goal: &str) {
        let Self { sets, rounds, seconds, .. } = self;
        let megabytes = self.bytes as f64 / 1e6;
        let clear = clear.map_or_else(|| " | ".to_owned(), |clear| format!("{clear:.2} | {:.1}", seconds / clear));
        println!("| {name} | {sets} | {rounds} | {megabytes:.1} | {seconds:.2} | {clear} | {goal} |");
    }

    /// The same, beside something else of this run.
    fn tell(&self, name: &str, against: &str, other: f64, goal: &str) {
        let name = format!("identifiers: {name}");
        Told { name: &name, value: self.seconds, unit: "s", against, ratio: self.seconds / other, goal }.tell();
    }
}

/// A table like adult.csv.
fn people(rows: usize) -> String {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    let mut rng = StdRng::seed_from_u64(1);
    let mut csv = COLUMNS.join(",") + "\n";
    for _ in 0..rows {
        let mut skewed = |values: f64| (rng.random::<f64>().powi(3) * values) as u32;
        let (age, work, education, married) = (17 + skewed(74.0), skewed(7.0), skewed(16.0), skewed(7.0));
        let (job, race, sex, country) = (skewed(14.0), skewed(5.0), skewed(2.0), skewed(41.0));
        csv += &format!("{age},w{work},e{education},m{married},o{job},r{race},s{sex},c{country}\n");
    }
    csv
}

fn wanted(name: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| name.contains(&filter))
}

#[tokio::main]
async fn main() {
    let certificates = Certificates::new();
    let p2 = P2::start(with_tls(&certificates)).await;
    let bench = Bench::new(&p2, &certificates).await;
    println!(
        "| {} rows | sets asked | rounds | MB | seconds | clear SQL, seconds | ratio | goal |\n|---|---|---|---|---|---|---|---|",
        bench.rows
    );
    let of = bench.of;
    for (name, shuffle, goal) in [("tags", false, "3 s"), ("tags, shuffled", true, "120 s")] {
        let name = &format!("{of}{name}");
        if wanted(name) {
            let sql = format!("SELECT * FROM identifiers(adult, k => {K}, max_size => 8, shuffle => {shuffle})");
            let (line, (found, clear)) = (bench.search(&sql).await, bench.clear(true).await);
            assert_eq!(line.found, found);
            line.print(name, Some(clear), goal);
            line.tell(name, "the same search in clear SQL", clear, goal);
        }
        let all = format!("{of}all sets, {}", name.trim_start_matches(of));
        if wanted(&all) {
            let method = if shuffle { Method::Shuffled } else { Method::Tags };
            let (line, (found, clear)) = (bench.all_sets(method).await, bench.clear(false).await);
            assert_eq!(line.found, found);
            line.print(&all, Some(clear), goal);
            line.tell(&all, "the same search in clear SQL", clear, goal);
        }
    }
    for (name, shuffle) in
        [("pairwise, 1,800 rows, one column", false), ("pairwise, shuffled, 1,800 rows, one column", true)]
    {
        let name = &format!("{of}{name}");
        if wanted(name) {
            let by = |method: &str| {
                format!(
                    "SELECT * FROM identifiers((SELECT * FROM adult LIMIT 1800), k => {K}, columns => (age), method => '{method}', shuffle => {shuffle})"
                )
            };
            let (line, tags) = (bench.search(&by("pairwise")).await, bench.search(&by("tags")).await);
            line.print(name, None, "30 s");
            // Pairs are the paper's way.
            let tags_name = name.replace("pairwise", "tags");
            tags.tell(&tags_name, "pairs, as the paper has it", line.seconds, "");
        }
    }
}
