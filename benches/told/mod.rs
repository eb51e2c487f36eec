//! What a benchmark has measured, told to the summary of all of them.
//!
//! A time says little about another machine; two times of one run say how they compare on any. So each line has what it is compared with, measured in the same run,
//! and `benches/all` holds the ratio against the one in BENCHMARKS.md.

use std::fs::OpenOptions;
use std::io::Write;

/// The file that lines go to. Without it they go nowhere.
const LOG: &str = "VEIL_BENCH_LOG";

/// A number of a benchmark.
pub(crate) struct Told<'a> {
    /// Which, for good: lines are compared by it.
    pub(crate) name: &'a str,
    pub(crate) value: f64,
    pub(crate) unit: &'a str,
    /// What it is compared with.
    pub(crate) against: &'a str,
    /// Its value by that of the other; less is better.
    pub(crate) ratio: f64,
    pub(crate) goal: &'a str,
}

impl Told<'_> {
    /// Adds a line to the file.
    pub(crate) fn tell(&self) {
        let Some(path) = std::env::var_os(LOG) else { return };
        let Self { name, value, unit, against, ratio, goal } = self;
        let line = format!("{name}\t{value:e}\t{unit}\t{against}\t{ratio:e}\t{goal}\n");
        let written = OpenOptions::new().create(true).append(true).open(path);
        written.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of lines can be written");
    }
}
