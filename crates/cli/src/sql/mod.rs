//! `veil sql`: the engine, in a terminal or in a script.
//!
//! ```text
//!  engine      the session: keys, the way to P2            statements  text cut into statements
//!  tables      --table name=file                           runner      runs one statement, with Ctrl-C
//!  shell       the prompt                                  waiting     what is shown while it runs
//!  completion  what Tab offers                             print       results: never the bytes of a cell
//!  commands    \d, \f, ..                                  interrupts  Ctrl-C
//!  copy_target COPY TO a file, whole or not at all
//! ```

mod commands;
pub(crate) mod completion;
pub(crate) mod copy_target;
pub(crate) mod engine;
mod interrupts;
mod print;
mod runner;
mod shell;
pub(crate) mod statements;
pub(crate) mod tables;
pub(crate) mod waiting;

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::Outcome;
use crate::p2_client::TlsArguments;
use commands::Next;
use engine::{Engine, Parties};
use interrupts::Interrupts;
use print::Format;
use runner::Runner;
use statements::{Piece, Splitter};
use tables::NamedFile;

/// Query encrypted tables: mask, add noise, aggregate, and write the result, encrypted still
#[derive(Args)]
#[command(
    // Certificates are for the P2 that the command line names.
    mut_arg("tls_ca", |argument| argument.requires("p2")),
    after_help = "\
Examples:
  veil sql --keys keys/p1.keys --p2 http://127.0.0.1:7722 --table patients=patients.veil.parquet
      a shell; \\? lists its commands
  veil sql --keys keys/p1.keys --p2 https://p2.example:7722 \\
      --tls-ca ca.pem --tls-cert p1.pem --tls-key p1.key -f anonymise.sql
      the statements of a file
  veil sql --table patients=patients.veil.parquet \\
      -c \"COPY (SELECT mask_shift(age, 3) AS age, region FROM patients) TO 'masked.veil.parquet'\"
      functions that need no rounds with P2 need neither keys nor P2
  veil sql --keys keys/p1.keys --embedded-p2 keys/p2.keys --table patients=patients.veil.parquet
      both parties in one process: no protection, for trying out
  echo 'SELECT region, count(*) FROM patients GROUP BY region' | \\
      veil sql --table patients=patients.veil.parquet --format csv

Encrypted cells print as ⟨encrypted integer⟩; `veil decrypt` shows the owner what a written file holds."
)]
pub(crate) struct Arguments {
    /// P1's keys, from `veil keygen`: needed by what runs in rounds with P2
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Where P2 listens
    #[arg(long, value_name = "URL", conflicts_with = "embedded_p2")]
    p2: Option<String>,
    #[command(flatten)]
    tls: TlsArguments,
    /// P2's keys, to be P2 as well: no protection, for trying out
    #[arg(long, value_name = "FILE")]
    embedded_p2: Option<PathBuf>,
    /// The owner's signed policy, for what --embedded-p2 may answer: without one, questions of 100 rows and more
    #[arg(long, value_name = "FILE", requires = "embedded_p2")]
    embedded_policy: Option<PathBuf>,
    /// A table on a .parquet, .arrow or .csv file
    #[arg(long = "table", value_name = "NAME=FILE")]
    tables: Vec<NamedFile>,
    /// Run these statements, then leave
    #[arg(short, long, value_name = "SQL")]
    command: Vec<String>,
    /// Run the statements of this file, after those of -c, then leave
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// How results are shown; automatic is a table on a terminal and csv elsewhere
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Let COPY replace existing files
    #[arg(long)]
    force: bool,
    /// No progress, no banner, no closing lines
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let runtime = engine::runtime()?;
    let outcome = runtime.block_on(session(arguments));
    // Work that nobody waits for any more does not keep the program.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

async fn session(arguments: &Arguments) -> Outcome {
    let parties = Parties {
        keys: arguments.keys.as_deref(),
        p2: arguments.p2.as_deref().map(|url| (url, arguments.tls.client(url))),
        embedded_p2: arguments.embedded_p2.as_deref(),
        embedded_policy: arguments.embedded_policy.as_deref(),
    };
    let engine = Engine::start(parties).await?;
    for table in &arguments.tables {
        table.register(&engine.context).await?;
    }
    let from_input = arguments.command.is_empty() && arguments.file.is_empty();
    let interactive = from_input && std::io::stdin().is_terminal();
    let interrupts = Interrupts::watch(!interactive).await;
    let mut runner = Runner::new(engine, interrupts, arguments.format, arguments.quiet, arguments.force);
    if interactive {
        return shell::run(&mut runner).await;
    }
    if from_input {
        return run_lines(&mut runner, std::io::stdin().lock(), "standard input").await;
    }
    for text in &arguments.command {
        if run_text(&mut runner, text, None).await? == Next::Leave {
            return Ok(());
        }
    }
    for file in &arguments.file {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        if run_text(&mut runner, &text, Some(&file.display().to_string())).await? == Next::Leave {
            return Ok(());
        }
    }
    Ok(())
}

/// Runs statements as they come in.
async fn run_lines(runner: &mut Runner, lines: impl BufRead, source: &str) -> Outcome {
    let mut splitter = Splitter::new(runner.dialect());
    for line in lines.lines() {
        let line = line.map_err(|error| format!("{source}: {error}"))?;
        for piece in splitter.push(&line) {
            if run_piece(runner, &piece, Some(source)).await? == Next::Leave {
                return Ok(());
            }
        }
    }
    if let Some(piece) = splitter.finish() {
        run_piece(runner, &piece, Some(source)).await?;
    }
    Ok(())
}

/// Runs the statements of a text to the first error.
async fn run_text(runner: &mut Runner, text: &str, source: Option<&str>) -> Result<Next, Box<dyn std::error::Error>> {
    for piece in statements::split(runner.dialect(), text) {
        if run_piece(runner, &piece, source).await? == Next::Leave {
            return Ok(Next::Leave);
        }
    }
    Ok(Next::Stay)
}

/// Runs one statement or command; the error says which and where.
async fn run_piece(
    runner: &mut Runner,
    piece: &Piece,
    source: Option<&str>,
) -> Result<Next, Box<dyn std::error::Error>> {
    runner.run(piece).await.map_err(|sentence| {
        let place = source.map(|source| format!("{source}:{}: ", piece.line)).unwrap_or_default();
        format!("{place}{}: {sentence}", piece.name()).into()
    })
}
