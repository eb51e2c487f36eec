//! `veil init`: drafts a declaration.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use veil_owner::{DraftOptions, OwnerError, draft_declaration};

use crate::Outcome;
use crate::progress::RunProgress;

/// Draft a declaration from the data: kinds, ranges, categories. You edit it
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil init patients.csv -o patients.toml
  veil init adult.csv --hierarchies hierarchies/ -o adult.toml
      takes hierarchies/adult_hierarchy_education.csv for the column education, and so on
  veil init patients.csv -o -
      prints the draft")]
pub(crate) struct Arguments {
    /// The data: .csv, .parquet or .arrow
    data: PathBuf,
    /// The declaration to write; - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The table's name, if not the file's
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// A folder of hierarchies (.csv: leaf first, root last), used for columns whose name a file's name ends with
    #[arg(long, value_name = "FOLDER")]
    hierarchies: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// No progress, no closing line
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let to_stdout = arguments.output.as_os_str() == "-";
    if !to_stdout && !arguments.force && arguments.output.exists() {
        return Err(OwnerError::Exists(arguments.output.clone()).into());
    }
    let progress = RunProgress::new("Reading", arguments.quiet);
    let folder = arguments.output.parent().unwrap_or(Path::new("")).to_owned();
    let options = DraftOptions { table: arguments.table.clone(), hierarchies: arguments.hierarchies.clone(), folder };
    let draft = draft_declaration(&arguments.data, &options, &|step| progress.watch(step))?;
    if to_stdout {
        std::io::stdout().write_all(draft.as_bytes())?;
        return Ok(());
    }
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).create_new(!arguments.force);
    // The draft holds labels and extremes of the data.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let written = open.open(&arguments.output).and_then(|mut file| file.write_all(draft.as_bytes()));
    written.map_err(|source| OwnerError::Io { file: arguments.output.clone(), source })?;
    progress.finish(&format!("Drafted {}: check every column before you encrypt;", arguments.output.display()));
    Ok(())
}
