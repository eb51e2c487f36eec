//! All benchmarks in one table, held against the one in BENCHMARKS.md.
//!
//! `benches/all` runs it last. It reads what the benchmarks of one run have told, prints the table, and fails if a ratio is worse than the recorded one by more than
//! half: times of two machines cannot be compared, ratios of one run can. With `--bless` it writes the table into BENCHMARKS.md instead; lines that were not measured
//! this time stay if they are of the same machine. `--whole` says that all benchmarks have run: what none of them told goes.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is its purpose")]

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

/// How much worse a ratio may be before it is called so. Shared machines are noisy.
const TOLERANCE: f64 = 1.5;

const BEGIN: &str = "<!-- summary: written by `benches/all --bless` -->\n";
const END: &str = "<!-- end of summary -->";
const HEAD: &str = "| | | against, in the same run | ratio, less is better | goal |\n|---|---|---|---|---|\n";

/// A line of the table.
#[derive(Clone)]
struct Row {
    name: String,
    value: String,
    against: String,
    ratio: f64,
    goal: String,
}

impl Row {
    /// As a benchmark has told it.
    fn told(line: &str) -> Option<Self> {
        let mut parts = line.split('\t');
        let mut next = || parts.next();
        let (name, value, unit) = (next()?.to_owned(), next()?.parse().ok()?, next()?);
        let (against, ratio, goal) = (next()?.to_owned(), next()?.parse().ok()?, next()?.to_owned());
        Some(Self { name, value: format!("{} {unit}", rounded(value)), against, ratio, goal })
    }

    /// As it stands in the table.
    fn recorded(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        let [name, value, against, ratio, goal, _] = cells.as_slice() else { return None };
        let ratio = ratio.replace(',', "").parse().ok()?;
        let [name, value, against, goal] = [name, value, against, goal].map(|text| (*text).to_owned());
        Some(Self { name, value, against, ratio, goal })
    }

    fn line(&self) -> String {
        format!("| {} | {} | {} | {} | {} |\n", self.name, self.value, self.against, rounded(self.ratio), self.goal)
    }
}

/// Three digits, thousands apart.
fn rounded(number: f64) -> String {
    let places = match number.abs() {
        x if x >= 100.0 => 0,
        x if x >= 10.0 => 1,
        x if x >= 1.0 => 2,
        x if x >= 0.1 => 3,
        x if x >= 0.01 => 4,
        _ => 5,
    };
    let text = format!("{number:.places$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// The processor, its cores, and the compiler's word on what it was built for.
fn machine() -> String {
    let model = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{cores} cores of {}, {} {}",
        model.trim_start_matches([' ', '\t', ':']),
        env::consts::ARCH,
        env::consts::OS
    )
}

/// What is worse than it was, one sentence each.
fn regressions(told: &[Row], recorded: &[Row]) -> Vec<String> {
    let worse = |row: &Row| {
        let before = recorded.iter().find(|before| before.name == row.name)?;
        let by = row.ratio / before.ratio;
        let sentence = || {
            format!(
                "{}: {} times {}, where BENCHMARKS.md has {}",
                row.name,
                rounded(row.ratio),
                row.against,
                rounded(before.ratio)
            )
        };
        (by > TOLERANCE).then(sentence)
    };
    told.iter().filter_map(worse).collect()
}

fn run() -> Result<ExitCode, String> {
    let Some(log) = env::var_os("VEIL_BENCH_LOG") else {
        println!("nothing to sum up: benches/all runs the benchmarks and then this");
        return Ok(ExitCode::SUCCESS);
    };
    let log = fs::read_to_string(&log).map_err(|error| format!("nothing was measured: {error}"))?;
    let told = log.lines().map(|line| Row::told(line).ok_or_else(|| format!("a benchmark told {line:?}")));
    let told = told.collect::<Result<Vec<Row>, String>>()?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../BENCHMARKS.md");
    let document = fs::read_to_string(&path).map_err(|error| format!("BENCHMARKS.md: {error}"))?;
    let (before, rest) = document.split_once(BEGIN).ok_or("BENCHMARKS.md has no place for the summary")?;
    let (table, after) = rest.split_once(END).ok_or("the summary in BENCHMARKS.md has no end")?;
    let recorded: Vec<Row> = table.lines().filter_map(Row::recorded).collect();
    let (machine, is_whole) = (machine(), env::args().any(|argument| argument == "--whole"));

    let mut text = format!("{machine}\n\n{HEAD}");
    told.iter().for_each(|row| text += &row.line());
    println!("{text}");
    let again = |row: &Row| told.iter().find(|told| told.name == row.name);
    let missed: Vec<&Row> = recorded.iter().filter(|row| again(row).is_none()).collect();
    if is_whole {
        missed
            .iter()
            .for_each(|row| println!("{}: in BENCHMARKS.md, and measured by no benchmark this time", row.name));
    }
    if env::args().any(|argument| argument == "--bless") {
        let is_same = table.lines().any(|line| line == format!("Measured on {machine}."));
        if !is_same && !is_whole && !missed.is_empty() {
            return Err(
                "BENCHMARKS.md is of another machine: without names, --bless measures all lines on this one".to_owned()
            );
        }
        let kept = recorded.iter().filter_map(|row| again(row).or_else(|| (!is_whole).then_some(row)));
        let new = told.iter().filter(|row| recorded.iter().all(|before| before.name != row.name));
        let mut text = format!("{before}{BEGIN}Measured on {machine}.\n\n{HEAD}");
        kept.chain(new).for_each(|row| text += &row.line());
        let _ = write!(text, "{END}{after}");
        fs::write(&path, text).map_err(|error| format!("BENCHMARKS.md: {error}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let worse = regressions(&told, &recorded);
    worse.iter().for_each(|sentence| eprintln!("worse: {sentence}"));
    let known = told.iter().filter(|row| recorded.iter().any(|before| before.name == row.name)).count();
    println!("{known} of {} ratios compared with BENCHMARKS.md, {} worse by more than half", told.len(), worse.len());
    // A check that compares nothing has not passed.
    Ok(if worse.is_empty() && known > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
