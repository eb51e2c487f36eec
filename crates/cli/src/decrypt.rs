//! `veil decrypt`: encrypted file in, clear file out, for the owner alone.

use std::path::PathBuf;

use clap::Args;
use veil_keys::{KeyFile, OwnerKeys};
use veil_owner::{Output, decrypt_file};

use crate::Outcome;
use crate::progress::{self, RunProgress};

/// Decrypt a file with the owner's keys
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil decrypt patients.veil.parquet --keys keys/owner.keys -o back.csv
  veil decrypt patients.veil.parquet --keys keys/owner.keys -o back.parquet
  veil decrypt patients.veil.parquet --keys keys/owner.keys -o - | head")]
pub(crate) struct Arguments {
    /// The encrypted file: .parquet or .arrow
    data: PathBuf,
    /// The owner's keys
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// The clear file to write: .csv, .parquet or .arrow; - for CSV on standard output
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
    let keys = OwnerKeys::load(&arguments.keys)?;
    let output = Output { path: arguments.output.clone(), force: arguments.force };
    let progress = RunProgress::new("Decrypting", arguments.quiet);
    let summary = decrypt_file(&arguments.data, &keys, &output, &|step| progress.watch(step))?;
    progress.finish(&format!(
        "Decrypted {} rows, {} columns into {}",
        summary.rows,
        summary.decrypted,
        arguments.output.display()
    ));
    if summary.suppressed > 0 && !arguments.quiet {
        progress::say(&format!("{} suppressed rows are left out", summary.suppressed));
    }
    if !summary.awaiting_noise.is_empty() {
        progress::say(&format!(
            "warning: noise of the engine alone is in {}: whoever runs the engine knows it and can take it off; the key holder's \
             noise is added when a table is released, so do not publish this file",
            summary.awaiting_noise.join(", ")
        ));
    }
    Ok(())
}
