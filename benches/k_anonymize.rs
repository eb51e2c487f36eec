//! k-anonymisation: whole runs between two processes, over Flight with mutual TLS.
//!
//! `cargo bench -p veil-flight-p2 --bench k_anonymize [-- NAME.. [--phases] [--protocols]]` prints tables. P2 is this program again, as a process of its own, so that
//! the memory of each party is its own. "core" is processor time of both. What is published is opened and compared with the same algorithm in the
//! clear, [`veil_privacy::clusters`], row by row.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails by panicking"
)]

#[path = "../crates/flight-p2/tests/support/mod.rs"]
mod support;
mod tables;
mod told;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_flight_p2::{ClientConfig, ClientTls, FlightChannel, ServerTls};
use veil_privacy::clusters::{Reassignment, Settings as Clusters, anonymise, draw_centres};
use veil_protocols::Session;
use veil_protocols::k_anonymize::{Comparison, Outcome, Phase, Settings, Shape, k_anonymize};

use self::support::{Certificates, KEYS, P2, anywhere};
use self::tables::Table;
use self::told::Told;

/// Tells a process that it is P2, and where its certificates are.
const P2_FOLDER: &str = "VEIL_BENCH_P2";

/// What is measured.
struct Setting {
    name: &'static str,
    table: fn(usize, usize) -> Table,
    rows: usize,
    columns: usize,
    k: usize,
    /// As many as there can be of k rows, if not said otherwise.
    centres: Option<usize>,
    rounds: usize,
    strategy: Reassignment,
    comparison: Comparison,
    goal: &'static str,
}

impl Setting {
    /// Its name in tables. A table that only looks like adult.csv is never held against adult.csv.
    fn label(&self) -> &'static str {
        if self.name == "adult" && !Table::has_adult() { "like adult" } else { self.name }
    }
}

const USUAL: Setting = Setting {
    name: "",
    table: Table::generated,
    rows: 1800,
    columns: 2,
    k: 10,
    centres: None,
    rounds: 3,
    strategy: Reassignment::ClusterToCluster,
    comparison: Comparison::Blinded,
    goal: "",
};

const SETTINGS: &[Setting] = &[
    Setting { name: "450 x 2", rows: 450, ..USUAL },
    Setting { name: "900 x 2", rows: 900, ..USUAL },
    Setting { name: "1,800 x 2", goal: "3 s a round", ..USUAL },
    Setting { name: "3,600 x 2", rows: 3600, ..USUAL },
    Setting { name: "7,200 x 2", rows: 7200, ..USUAL },
    Setting { name: "1,800 x 4", columns: 4, ..USUAL },
    Setting { name: "1,800 x 8", columns: 8, ..USUAL },
    Setting { name: "450 x 2, point_to_cluster", rows: 450, strategy: Reassignment::PointToCluster, ..USUAL },
    Setting { name: "450 x 2, point_to_point", rows: 450, strategy: Reassignment::PointToPoint, ..USUAL },
    Setting { name: "100 x 2, exact", rows: 100, comparison: Comparison::Exact, ..USUAL },
    Setting {
        name: "10,000 x 10",
        rows: 10_000,
        columns: 10,
        centres: Some(4),
        rounds: 1,
        goal: "10 s a round",
        ..USUAL
    },
    Setting { name: "100,000 x 2", rows: 100_000, centres: Some(5), rounds: 10, goal: "300 s", ..USUAL },
    Setting {
        name: "adult",
        table: |rows, _| Table::adult(rows),
        rows: 30_162,
        columns: 8,
        k: 50,
        goal: "8 GiB",
        ..USUAL
    },
];

/// What a setting grows in.
type Size = fn(&Setting) -> usize;

/// Whose exponents are fitted, and to what.
const GROWTH: [(&str, &[&str], Size); 2] = [
    ("rows", &["450 x 2", "900 x 2", "1,800 x 2", "3,600 x 2", "7,200 x 2"], |setting| setting.rows),
    ("columns", &["1,800 x 2", "1,800 x 4", "1,800 x 8"], |setting| setting.columns),
];

/// P2's process.
struct Other {
    child: Child,
    url: String,
}

impl Other {
    fn start(certificates: &Certificates) -> Self {
        let folder = certificates.at("");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(P2_FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers until the other process closes its end.
async fn be_p2(folder: std::path::PathBuf) {
    let tls = ServerTls { cert: folder.join("p2.pem"), key: folder.join("p2.key"), client_ca: folder.join("ca.pem") };
    let p2 = P2::start(veil_flight_p2::ServerConfig { tls: Some(tls), ..anywhere() }).await;
    println!("{}", p2.url);
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await.unwrap().unwrap();
}

/// Processor seconds of a process so far.
fn processor_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// The most memory that a process had since it was last forgotten, in megabytes. What it had then and did not give back counts: for a
/// setting alone, run it alone.
fn peak(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap() / 1024.0
}

fn forget_peak(pid: u32) {
    let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Where a run was at some time.
#[derive(Clone, Copy)]
struct Mark {
    clock: Instant,
    core: f64,
    rounds: u64,
    up: u64,
    down: u64,
}

/// What lies between two marks.
#[derive(Clone, Copy, Default)]
struct Took {
    clock: f64,
    core: f64,
    rounds: u64,
    up: f64,
    down: f64,
}

impl Mark {
    fn now(session: &Session, parties: [u32; 2]) -> Self {
        let traffic = session.traffic();
        let core = parties.map(processor_seconds).iter().sum();
        let (rounds, up, down) = (traffic.rounds(), traffic.bytes_up(), traffic.bytes_down());
        Self { clock: Instant::now(), core, rounds, up, down }
    }

    fn until(self, end: Self) -> Took {
        Took {
            clock: (end.clock - self.clock).as_secs_f64(),
            core: end.core - self.core,
            rounds: end.rounds - self.rounds,
            up: (end.up - self.up) as f64 / 1e6,
            down: (end.down - self.down) as f64 / 1e6,
        }
    }
}

impl Took {
    fn plus(self, other: Self) -> Self {
        Self {
            clock: self.clock + other.clock,
            core: self.core + other.core,
            rounds: self.rounds + other.rounds,
            up: self.up + other.up,
            down: self.down + other.down,
        }
    }

    fn cells(self) -> String {
        let Self { clock, core, rounds, up, down } = self;
        format!("{clock:.2} | {core:.2} | {rounds} | {up:.0} | {down:.0}")
    }
}

/// A run.
struct Run {
    phases: Vec<(String, Took)>,
    whole: Took,
    outcome: Outcome,
    centres: usize,
    clear: f64,
    peaks: [f64; 2],
    /// What was foretold: seconds, rounds, megabytes both ways, megabytes of memory.
    estimate: [f64; 4],
}

impl Run {
    /// The mean round of clustering.
    fn round(&self) -> Took {
        let rounds: Vec<Took> =
            self.phases.iter().filter(|(name, _)| name.starts_with("round")).map(|(_, took)| *took).collect();
        let sum = rounds.iter().fold(Took::default(), |sum, took| sum.plus(*took));
        let count = rounds.len().max(1) as f64;
        Took { clock: sum.clock / count, core: sum.core / count, up: sum.up / count, down: sum.down / count, ..sum }
    }
}

async fn run(setting: &Setting, session: &Session, p2: u32) -> Run {
    let table = (setting.table)(setting.rows, setting.columns);
    let points = table.points();
    let rows = points.rows();
    let centres = setting.centres.unwrap_or(rows / setting.k);
    let initial = draw_centres(rows, centres, &mut StdRng::seed_from_u64(3)).unwrap();
    let clusters =
        Clusters { k: setting.k, rounds: setting.rounds, early_stop: true, suppress: 0, strategy: setting.strategy };
    let settings = Settings { clusters, comparison: setting.comparison };
    let started = Instant::now();
    let (classes, summary) = anonymise(&points, &initial, &clusters).unwrap();
    let clear = started.elapsed().as_secs_f64();

    let quasi = table.encrypt(&KEYS);
    let parties = [std::process::id(), p2];
    parties.into_iter().for_each(forget_peak);
    let marks = Mutex::new(Vec::new());
    let progress = |phase| marks.lock().unwrap().push((phase, Mark::now(session, parties)));
    let begun = Mark::now(session, parties);
    let found = k_anonymize(session, rows, quasi, &initial, &settings, &progress).await.unwrap();
    let ended = Mark::now(session, parties);
    let peaks = parties.map(peak);
    assert_eq!(
        (found.outcome.clusters, found.outcome.small_clusters, found.outcome.small_rows, found.outcome.classes),
        (summary.clusters, summary.small_clusters, summary.small_rows, classes.classes.len())
    );
    table.check(&found, &classes, &points, &KEYS);

    let marks = marks.into_inner().unwrap();
    let mut phases: Vec<(String, Took)> = Vec::new();
    for (at, (phase, mark)) in marks.iter().enumerate() {
        let name = match phase {
            Phase::Prepare => "prepare".to_owned(),
            Phase::Cluster { round, .. } => format!("round {round}"),
            Phase::Sizes => "sizes".to_owned(),
            Phase::Reassign { of, .. } => format!("reassign {of}"),
            Phase::Publish => "publish".to_owned(),
        };
        let took = mark.until(marks.get(at + 1).map_or(ended, |(_, next)| *next));
        match phases.last_mut() {
            Some((last, sum)) if *last == name => *sum = sum.plus(took),
            _ => phases.push((name, took)),
        }
    }
    let shape = Shape { rows, centres, columns: table.0.len(), lanes: table.lanes() };
    let cost = shape.cost(&settings);
    let estimate = [
        cost.milliseconds as f64 / 1e3,
        cost.rounds as f64,
        (cost.bytes_up + cost.bytes_down) as f64 / 1e6,
        shape.memory(&settings) as f64 / f64::from(1 << 20),
    ];
    Run { phases, whole: begun.until(ended), outcome: found.outcome, centres, clear, peaks, estimate }
}

/// The slope of a line through the logarithms, by least squares.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let (mean_x, mean_y) = logs.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x / count, b + y / count));
    let (above, below) =
        logs.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + (x - mean_x) * (y - mean_y), b + (x - mean_x).powi(2)));
    above / below
}

fn option(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

fn wanted(name: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| name.contains(&filter))
}

/// P2's seconds by protocol, as its metrics have them.
fn seconds_of(metrics: &str) -> Vec<(String, f64)> {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix("veil_p2_seconds_total{protocol=\""));
    lines.filter_map(|line| line.split_once("\"} ")).map(|(name, n)| (name.to_owned(), n.parse().unwrap())).collect()
}

#[tokio::main]
async fn main() {
    if let Some(folder) = std::env::var_os(P2_FOLDER) {
        return be_p2(folder.into()).await;
    }
    let certificates = Certificates::new();
    let p2 = Other::start(&certificates);
    let tls: ClientTls = certificates.client();
    let config = ClientConfig { tls: Some(tls), ..ClientConfig::new(p2.url.clone()) };
    let channel = FlightChannel::connect(config, KEYS.key_id()).await.unwrap();
    println!(
        "| | N | d | k | centres | small | classes | a round: seconds | core | whole: seconds | core | rounds | MB up | MB down | P1, MB | P2, MB | clear, s | encrypted / clear | foretold: s, rounds, MB, MB of P1 | goal |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut runs: Vec<(&Setting, Run)> = Vec::new();
    for setting in SETTINGS.iter().filter(|setting| wanted(setting.name)) {
        let session = Session::new(Arc::new(channel.clone()), KEYS.key_id(), KEYS.p1().public_key().clone());
        let before = channel.metrics().await.unwrap();
        let run = run(setting, &session, p2.child.id()).await;
        let (round, outcome, [p1_peak, p2_peak]) = (run.round(), &run.outcome, run.peaks);
        let [seconds, rounds, megabytes, memory] = run.estimate;
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {:.2} | {:.2} | {} | {p1_peak:.0} | {p2_peak:.0} | {:.4} | {:.0} | {seconds:.1}, {rounds:.0}, {megabytes:.0}, {memory:.0} | {} |",
            setting.label(),
            setting.rows,
            setting.columns,
            setting.k,
            run.centres,
            outcome.small_clusters,
            outcome.classes,
            round.clock,
            round.core,
            run.whole.cells(),
            run.clear,
            run.whole.clock / run.clear,
            setting.goal
        );
        Told {
            name: &format!("k_anonymize: {}", setting.label()),
            value: run.whole.clock,
            unit: "s",
            against: "the same algorithm in clear, one core",
            ratio: run.whole.clock / run.clear,
            goal: setting.goal,
        }
        .tell();
        if option("--protocols") {
            let after = channel.metrics().await.unwrap();
            for ((name, after), (_, before)) in seconds_of(&after).into_iter().zip(seconds_of(&before)) {
                if after - before > 0.01 {
                    println!("    P2 {name}: {:.2} s", after - before);
                }
            }
        }
        runs.push((setting, run));
    }
    if option("--phases") {
        println!("\n| | phase | seconds | core | rounds | MB up | MB down |\n|---|---|---|---|---|---|---|");
        for (setting, run) in &runs {
            for (phase, took) in &run.phases {
                println!("| {} | {phase} | {} |", setting.label(), took.cells());
            }
        }
    }
    for (what, names, size) in GROWTH {
        let of = |y: fn(&Run) -> f64| {
            let points = runs.iter().filter(|(setting, _)| names.contains(&setting.name));
            points.map(|(setting, run)| (size(setting) as f64, y(run))).collect::<Vec<_>>()
        };
        let (round, whole) = (of(|run| run.round().core), of(|run| run.whole.core));
        if round.len() == names.len() {
            let (round, whole) = (exponent(&round), exponent(&whole));
            println!("\ngrowth with {what}: a round ^{round:.2}, the whole run ^{whole:.2}");
            let name = format!("k_anonymize: growth with {what}");
            Told { name: &name, value: whole, unit: "exponent", against: "linear", ratio: whole, goal: "" }.tell();
        }
    }
}
