//! `veil report`: what anonymising a table has done for the people in it, and to the data, on one page.
//!
//! ```text
//!  gather      asks the engine: risk, class sizes, losses, sweep ──> findings ── page ──> HTML
//!  ask         one question: progress, costs, who learns what            └─────────────> JSON
//!  treatment   what types tell about each column
//!  paper       the manifest of a release
//!
//!  page        the frame                                     verdict       the words at the top
//!  head        title, verdict, tiles                         cautions      what spoils good news
//!  sections    what was done, leakage, costs                 fit           whether the manifest is of this table
//!  manifest    the section of the manifest                   words         numbers and escaped text
//!  charts      sections with charts                          table         tables
//!  svg         canvases, axes, ticks, labels that fit        bars          rows of one or two bars
//!  before_after, histogram, trade_off (of a curve), losses: one chart each
//!
//!  output      where the page and the findings are written
//! ```

mod ask;
mod bars;
mod before_after;
mod cautions;
mod charts;
mod curve;
#[cfg(test)]
mod example;
mod findings;
mod fit;
mod gather;
mod head;
mod histogram;
mod losses;
mod manifest;
mod output;
mod page;
mod paper;
mod sections;
mod svg;
mod table;
mod trade_off;
mod treatment;
mod verdict;
mod words;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use veil_keys::{KeyFile, P1Keys};

use crate::Outcome;
use crate::p2_client::TlsArguments;
use crate::progress::RunProgress;
use crate::sql::engine::{self, Engine, Parties};

/// Report what anonymising a table did: risk before and after, what was lost, who learned what; one HTML page
#[derive(Args)]
#[command(
    // Certificates are for the P2 that the command line names.
    mut_arg("tls_ca", |argument| argument.requires("p2")),
    after_help = "\
Examples:
  veil report anon.veil.parquet --original patients.veil.parquet --keys keys/p1.keys \\
      --p2 http://127.0.0.1:7722 -o report.html
  veil report anon.veil.parquet --original patients.veil.parquet --keys keys/p1.keys \\
      --p2 https://p2.example:7722 --tls-ca ca.pem --tls-cert p1.pem --tls-key p1.key \\
      --quasi born,sex,zip --population 80000 --manifest out.manifest.json -o report.html --json report.json
  veil report anon.veil.parquet --original patients.veil.parquet --keys keys/p1.keys \\
      --embedded-p2 keys/p2.keys --sweep 2,5,10,25,50 --sweep-rounds 3 --sweep-suppress 0.02 -o report.html
      also anonymises the original for each k, to show what each would cost; says beforehand how long that takes.
      Say how many rows may be held back as you said for the table, or the two are not alike

The page needs no network and no script. It is made from ciphertexts: the engine and P2 learn the sizes of classes and
the measures that the page shows, and no encrypted value. With --embedded-p2 one process has the keys and the tables,
which protects nothing.

A manifest is compared with the table as far as it goes: rows, rows held back, smallest class, columns. The page says
what agrees and what does not; the signatures themselves do not tie a manifest to a file."
)]
pub(crate) struct Arguments {
    /// The anonymised table, still encrypted: .parquet or .arrow
    #[arg(value_name = "ANON")]
    anonymised: PathBuf,
    /// The table that it was made from, encrypted
    #[arg(long, value_name = "FILE")]
    original: PathBuf,
    /// P1's keys, from `veil keygen`
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Where P2 listens
    #[arg(long, value_name = "URL", conflicts_with = "embedded_p2", required_unless_present = "embedded_p2")]
    p2: Option<String>,
    #[command(flatten)]
    tls: TlsArguments,
    /// P2's keys, to be P2 as well: no protection, for trying out
    #[arg(long, value_name = "FILE")]
    embedded_p2: Option<PathBuf>,
    /// The owner's signed policy, for what --embedded-p2 may answer: without one, questions of 100 rows and more
    #[arg(long, value_name = "FILE", requires = "embedded_p2")]
    embedded_policy: Option<PathBuf>,
    /// The columns by which people could be recognised; by default those that were k-anonymised
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    quasi: Vec<String>,
    /// How many people the rows are a sample of
    #[arg(long, value_name = "PEOPLE", value_parser = clap::value_parser!(u64).range(1..))]
    population: Option<u64>,
    /// Also anonymise the original for each of these k, and draw risk against loss
    #[arg(long, value_name = "K,..", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..))]
    sweep: Vec<u32>,
    /// At most so many rounds of clustering for each k of the sweep
    #[arg(long, value_name = "ROUNDS", requires = "sweep", value_parser = clap::value_parser!(u32).range(1..))]
    sweep_rounds: Option<u32>,
    /// Hold back at most this share of the rows for each k of the sweep, from 0 to less than 1; by default none
    #[arg(long, value_name = "SHARE", requires = "sweep", value_parser = share)]
    sweep_suppress: Option<f64>,
    /// How distances are compared for each k of the sweep; blinded is faster, and lets P2 work out nearly all
    /// quasi-identifiers of the original [default: exact]
    #[arg(long, value_name = "HOW", requires = "sweep", value_parser = ["exact", "blinded"])]
    sweep_comparison: Option<String>,
    /// Rows of both tables belong together by their order, where no column that both share tells
    #[arg(long)]
    by_order: bool,
    /// The manifest of the release, from `veil fetch`
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// The title of the page
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// The page to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Also write the findings as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    /// No progress, no closing line
    #[arg(short, long)]
    quiet: bool,
}

/// A share of all rows.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "give a share of all rows, from 0 to less than 1: 0.05 is a twentieth".to_owned())
}

impl Arguments {
    /// The files that are read.
    fn inputs(&self) -> Vec<&Path> {
        let needed = [&self.anonymised, &self.original, &self.keys];
        let more = [&self.embedded_p2, &self.embedded_policy, &self.manifest].into_iter().flatten();
        needed.into_iter().chain(more).map(PathBuf::as_path).chain(self.tls.files()).collect()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let outputs: Vec<&Path> =
        [Some(&arguments.output), arguments.json.as_ref()].into_iter().flatten().map(PathBuf::as_path).collect();
    output::check(&outputs, &arguments.inputs(), arguments.force)?;
    let manifest = match &arguments.manifest {
        Some(file) => Some(paper::read(file, &P1Keys::load(&arguments.keys)?)?),
        None => None,
    };
    let progress = RunProgress::counting("Reporting", arguments.quiet);
    let runtime = engine::runtime()?;
    let findings = runtime.block_on(async {
        let parties = Parties {
            keys: Some(&arguments.keys),
            p2: arguments.p2.as_deref().map(|url| (url, arguments.tls.client(url))),
            embedded_p2: arguments.embedded_p2.as_deref(),
            embedded_policy: arguments.embedded_policy.as_deref(),
        };
        let engine = Engine::start(parties).await?;
        gather::gather(arguments, &engine, manifest).await
    });
    // Work that nobody waits for any more does not keep the program.
    runtime.shutdown_timeout(Duration::from_millis(100));
    let findings = findings?;
    if let Some(file) = &arguments.json {
        output::write(file, &format!("{}\n", serde_json::to_string_pretty(&findings)?), arguments.force)?;
    }
    output::write(&arguments.output, &page::page(&findings), arguments.force)?;
    let rounds: u64 = findings.runs.iter().map(|run| run.rounds).sum();
    progress.finish(&format!("Wrote {} after {rounds} rounds with P2,", arguments.output.display()));
    Ok(())
}

/// The last part of a path, for people: folders are nobody else's business.
fn file_name(file: &Path) -> String {
    file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
