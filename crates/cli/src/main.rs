//! `veil`: anonymise data that stays encrypted.
//!
//! One file a command. Exit status 0 on success, 2 on wrong usage, 1 otherwise; errors on standard error.

mod decrypt;
mod demo;
mod encrypt;
mod fetch;
mod gateway;
mod init;
mod inspect;
mod keygen;
mod owner_public;
mod p2;
mod p2_client;
mod p2_status;
mod policy;
mod progress;
mod recipient;
mod release_server;
mod report;
mod serve;
mod server;
mod sql;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Anonymise data that stays encrypted.
///
/// The data owner drafts a declaration, makes keys, and encrypts; whoever holds the encrypted file can carry, filter
/// and join it with any Arrow tool, and needs the owner's keys to read it.
#[derive(Parser)]
#[command(version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(init::Arguments),
    Keygen(keygen::Arguments),
    Encrypt(encrypt::Arguments),
    Inspect(inspect::Arguments),
    Decrypt(decrypt::Arguments),
    P2(p2::Arguments),
    Sql(sql::Arguments),
    Report(Box<report::Arguments>),
    Recipient(recipient::Arguments),
    Policy(policy::Arguments),
    Fetch(fetch::Arguments),
    Gateway(gateway::Arguments),
    Verify(verify::Arguments),
    Serve(serve::Arguments),
    Demo(demo::Arguments),
}

const EXAMPLES: &str = "\
Examples, from a CSV file to an encrypted one and back:
  veil init patients.csv -o patients.toml
  veil keygen -o keys/
  veil encrypt patients.csv --declare patients.toml --keys keys/owner.keys -o patients.veil.parquet
  veil inspect patients.veil.parquet
  veil decrypt patients.veil.parquet --keys keys/owner.keys -o back.csv

The key holder's server, which the engine asks while it works on encrypted data:
  veil p2 --keys keys/p2.keys --listen 127.0.0.1:7722

The engine: masking and noise in SQL, on columns that stay encrypted:
  veil sql --keys keys/p1.keys --p2 http://127.0.0.1:7722 --table patients=patients.veil.parquet
  veil sql --table patients=patients.veil.parquet \\
      -c \"COPY (SELECT mask_shift(age, 3) AS age, region FROM patients) TO 'masked.veil.parquet'\"

What anonymising did, on one page: risk before and after, losses, who learned what:
  veil report anon.veil.parquet --original patients.veil.parquet --keys keys/p1.keys \\
      --p2 http://127.0.0.1:7722 -o report.html

Who may receive what: a recipient's key, the owner's signed policy, and the papers of a release:
  veil recipient keygen -o alice/
  veil policy sign policy.toml --keys keys/owner.keys -o policy.signed
  veil fetch --from http://127.0.0.1:7711 --key alice/recipient.key --owner keys/owner.pub \\
      --sql \"SELECT mask_shift(age, 3) AS age, region FROM patients\" -o out.parquet
  veil verify out.manifest.json --owner keys/owner.pub

The same engine for others, over Arrow Flight SQL, and a recipient's own end of it:
  veil serve --keys keys/p1.keys --p2 http://127.0.0.1:7722 --table patients=patients.veil.parquet
  veil gateway --from http://127.0.0.1:7711 --key alice/recipient.key --owner keys/owner.pub";

/// What a command ends in: a sentence for standard error.
type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    veil_owner::hide_caught_panics();
    let command = Cli::parse().command;
    // A server and a shell have their own ways of stopping.
    if !matches!(command, Command::P2(_) | Command::Sql(_) | Command::Serve(_) | Command::Gateway(_)) {
        progress::handle_interrupts();
    }
    let outcome = match command {
        Command::Init(arguments) => init::run(&arguments),
        Command::Keygen(arguments) => keygen::run(&arguments),
        Command::Encrypt(arguments) => encrypt::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Decrypt(arguments) => decrypt::run(&arguments),
        Command::P2(arguments) => p2::run(&arguments),
        Command::Sql(arguments) => sql::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Recipient(arguments) => recipient::run(&arguments),
        Command::Policy(arguments) => policy::run(&arguments),
        Command::Fetch(arguments) => fetch::run(&arguments),
        Command::Gateway(arguments) => gateway::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // `veil decrypt .. -o - | head` has seen enough.
        Err(error) if error.to_string().contains("Broken pipe") && nobody_reads() => ExitCode::SUCCESS,
        Err(error) => {
            progress::say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Whether the reader of standard output has left.
#[cfg(unix)]
fn nobody_reads() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let output = std::io::stdout();
    let mut watched = [PollFd::new(&output, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut watched, Some(&at_once)).is_ok() && watched.iter().all(|fd| fd.revents().contains(PollFlags::ERR))
}

#[cfg(not(unix))]
fn nobody_reads() -> bool {
    true
}
