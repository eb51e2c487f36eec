//! `veil encrypt`: clear file in, encrypted file out.

use std::path::PathBuf;

use clap::Args;
use veil_keys::{KeyFile, OwnerKeys, os_rng};
use veil_owner::{Declaration, Output, encrypt_file};

use crate::Outcome;
use crate::progress::RunProgress;

/// Encrypt a CSV, Parquet or Arrow file as a declaration says
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil encrypt patients.csv --declare patients.toml --keys keys/owner.keys -o patients.veil.parquet
  veil encrypt patients.parquet --declare patients.toml --keys keys/owner.keys -o patients.veil.arrow")]
pub(crate) struct Arguments {
    /// The data: .csv, .parquet or .arrow
    data: PathBuf,
    /// The declaration, see veil init
    #[arg(long, value_name = "FILE")]
    declare: PathBuf,
    /// The owner's keys
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// The encrypted file to write: .parquet or .arrow
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// No progress, no closing line
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let declaration = Declaration::load(&arguments.declare)?;
    let keys = OwnerKeys::load(&arguments.keys)?;
    let output = Output { path: arguments.output.clone(), force: arguments.force };
    let progress = RunProgress::new("Encrypting", arguments.quiet);
    let watch = |step| progress.watch(step);
    let summary = encrypt_file(&arguments.data, &declaration, &keys, &output, &mut os_rng(), &watch)?;
    progress.finish(&format!(
        "Encrypted {} rows, {} columns ({} left clear) into {}",
        summary.rows,
        summary.encrypted,
        summary.clear,
        arguments.output.display()
    ));
    Ok(())
}
