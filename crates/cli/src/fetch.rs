//! `veil fetch`: anonymised data for a recipient, as an ordinary file.

use std::io::Write;
use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use tempfile::NamedTempFile;
use tokio::runtime::Runtime;
use veil_owner::{FileFormat, Output, OwnerError, TableWriter};
use veil_recipient::{Incoming, Opener, Received, RecipientError, SealedWriter, release_statement};

use crate::Outcome;
use crate::progress::{RunProgress, is_interrupted, say};
use crate::release_server::ServerArguments;

/// Fetch anonymised data that is released to you, and its manifest
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil fetch --from http://127.0.0.1:7711 --key alice/recipient.key --owner keys/owner.pub \\
      --sql \"SELECT mask_shift(age, 3) AS age, region FROM patients\" -o out.parquet
      out.parquet         the rows, readable by you alone
      out.manifest.json   what both servers signed; see veil verify
  veil fetch --from http://127.0.0.1:7711 --key alice/recipient.key --owner keys/owner.pub \\
      --sql \"SELECT * FROM anon\" -o out.parquet --keep-sealed out.sealed
      out.sealed          what came, sealed: proves later what out.parquet is; see veil verify
  veil fetch --from https://p1.example:7711 --tls-ca ca.pem --token-file alice/token \\
      --key alice/recipient.key --sql \"SELECT * FROM release(anon, recipient => 'alice')\" -o out.csv

A query is released to the name in the key file, unless it calls release( ) itself. A download that breaks goes
on where it broke. Nothing is written unless all rows have come and agree with the manifest.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The query
    #[arg(long, value_name = "SQL")]
    sql: String,
    /// The file to write: .parquet, .csv or .arrow
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Keep the sealed parts too, to prove later that the file is what was released
    #[arg(long, value_name = "FILE")]
    keep_sealed: Option<PathBuf>,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    /// No progress, no closing line
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let output = Output { path: arguments.output.clone(), force: arguments.force };
    FileFormat::of_path(&output.path)?;
    let manifest = output.path.with_extension("manifest.json");
    for file in [&output.path, &manifest].into_iter().chain(&arguments.keep_sealed) {
        if file.exists() && !output.force {
            return Err(OwnerError::Exists(file.clone()).into());
        }
    }
    if let Some(sealed) = &arguments.keep_sealed {
        let sealed = absolute(sealed)?;
        for file in [&output.path, &manifest] {
            if absolute(file)? == sealed {
                let file = file.display();
                return Err(
                    format!("{file} cannot be the sealed parts too: give -o and --keep-sealed two names").into()
                );
            }
        }
    }
    let asker = arguments.server.load()?;
    let sql = release_statement(&arguments.sql, asker.key.name())?;
    let progress = RunProgress::counting("Fetching", arguments.quiet);
    let received: Result<(Received, u64), Box<dyn std::error::Error>> = Runtime::new()?.block_on(async {
        let fetch = arguments.server.connect(&asker).await?;
        let mut opener = asker.owner.into_iter().fold(Opener::new(asker.key.clone()), Opener::with_owner);
        let mut sealed = None;
        if let Some(path) = &arguments.keep_sealed {
            let file = temporary_beside(path)?;
            let io = |source| OwnerError::Io { file: path.clone(), source };
            opener = opener.keeping(SealedWriter::new(file.reopen().map_err(io)?));
            sealed = Some((file, path));
        }
        let mut incoming = fetch.sql(&sql, opener).await?;
        let schema = unless_interrupted(incoming.schema()).await?;
        let mut writer = TableWriter::clear(&output, schema)?;
        let mut rows = 0;
        while let Some(batch) = unless_interrupted(incoming.next()).await? {
            rows += batch.num_rows() as u64;
            writer.write(&batch)?;
            progress.count(rows, incoming.bytes());
        }
        let (received, bytes) = complete(&incoming)?;
        let paper = manifest_beside(&manifest, &received)?;
        writer.finish()?;
        put(paper, &manifest, output.force)?;
        if let Some((file, path)) = sealed {
            put(file, path, output.force)?;
        }
        Ok((received, bytes))
    });
    let (received, bytes) = received.inspect_err(|_| progress.clear())?;
    let suppressed = match received.suppressed {
        0 => String::new(),
        rows => format!(", {} suppressed ones left out", HumanCount(rows)),
    };
    progress.finish(&format!(
        "Fetched {} rows{suppressed}, {} sealed, to {}",
        HumanCount(received.rows),
        HumanBytes(bytes),
        output.path.display()
    ));
    if !received.owner_known && !arguments.quiet {
        say(
            "warning: the manifest was checked against the owner's key in itself, which a forger would have replaced; give the \
             owner's key with --owner keys/owner.pub",
        );
    }
    Ok(())
}

/// Waits for something, and gives up on Ctrl-C.
async fn unless_interrupted<T>(
    future: impl Future<Output = Result<T, RecipientError>>,
) -> Result<T, Box<dyn std::error::Error>> {
    tokio::pin!(future);
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            outcome = &mut future => return Ok(outcome?),
            _ = ticks.tick() => {
                if is_interrupted() {
                    return Err(OwnerError::Cancelled.into());
                }
            }
        }
    }
}

fn complete(incoming: &Incoming) -> Result<(Received, u64), RecipientError> {
    let absent = || RecipientError::Internal("it has no end".to_owned());
    Ok((incoming.received().cloned().ok_or_else(absent)?, incoming.bytes()))
}

/// The manifest in a temporary file, which only its owner can read.
fn manifest_beside(path: &Path, received: &Received) -> Result<NamedTempFile, Box<dyn std::error::Error>> {
    let io = |source| OwnerError::Io { file: path.to_owned(), source };
    let mut file = temporary_beside(path)?;
    file.write_all(received.manifest.to_json()?.as_bytes()).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    Ok(file)
}

/// A temporary file in the folder of another, which only its owner can read.
fn temporary_beside(path: &Path) -> Result<NamedTempFile, OwnerError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(".veil-").tempfile_in(folder);
    file.map_err(|source| OwnerError::Io { file: path.to_owned(), source })
}

fn put(file: NamedTempFile, path: &Path, force: bool) -> Result<(), OwnerError> {
    let put = if force { file.persist(path) } else { file.persist_noclobber(path) };
    put.map(drop).map_err(|error| OwnerError::Io { file: path.to_owned(), source: error.error })
}
