//! P1 and P2 as processes of their own, each in a folder with what it may have and nothing else, and the wires to them.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use tokio::runtime::Runtime;
use veil_flight_p2::{ClientConfig, Connection};

use super::books::{Books, Cost};
use super::canaries::Canaries;
use super::commands::{Ended, Program};
use super::steward::Steward;
use super::waiting::Waiting;
use super::wire::Wire;

type Failure = Box<dyn std::error::Error>;

/// A server that runs until it is dropped.
struct Server {
    process: Ended,
    address: SocketAddr,
}

impl Server {
    /// Starts it, and waits for the line that says where it listens.
    fn start(program: &Program, folder: &str, arguments: &[&str], log: &Path) -> Result<Self, Failure> {
        let log_file = OpenOptions::new().create(true).append(true).open(log);
        let log_file = log_file.map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = program.command(folder, arguments);
        let mut process = Ended(command.stdout(Stdio::piped()).stderr(log_file).spawn()?);
        let mut line = String::new();
        if let Some(stdout) = process.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.trim_end().rsplit_once("//").and_then(|(_, address)| address.parse().ok());
        match address {
            Some(address) => Ok(Self { process, address }),
            None => {
                let said = fs::read_to_string(log).unwrap_or_default();
                let why = said.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or("it ended");
                let command = arguments.first().copied().unwrap_or_default();
                Err(format!("`veil {command}` did not start: {why}; its log is {}", log.display()).into())
            }
        }
    }
}

/// Who may ask P1, with names and tokens.
pub(super) struct Tokens {
    pub(super) steward: String,
}

/// Both servers, and the ways to them.
pub(super) struct Parties {
    // The client goes before the servers.
    steward: Steward,
    _p1: Server,
    p2: Server,
    /// Between P1 and P2.
    pub(super) rounds: Wire,
    /// Between callers and P1.
    pub(super) calls: Wire,
    program: Program,
    folder: PathBuf,
    runtime: Runtime,
    quiet: bool,
}

/// A moment, to tell costs from.
pub(super) struct Mark {
    started: Instant,
    passed: [u64; 2],
    books: Books,
}

pub(super) const P2_COMMAND: [&str; 10] =
    ["p2", "--keys", "p2.keys", "--policy", "policy.signed", "--state", "state", "--listen", "127.0.0.1:0", "-v"];

/// How P1 is started, with the address of P2 and its table.
pub(super) fn p1_command<'a>(p2: &'a str, table: &'a str) -> Vec<&'a str> {
    let serve = ["serve", "--keys", "p1.keys", "--p2", p2, "--table", table];
    [&serve[..], &["--token-file", "tokens", "--listen", "127.0.0.1:0", "-v"]].concat()
}

impl Parties {
    /// Starts P2, then P1, and connects the steward. `shown` hears of each command before it runs.
    pub(super) fn start(
        program: &Program,
        folder: &Path,
        table: &str,
        tokens: &Tokens,
        canaries: Arc<Canaries>,
        quiet: bool,
        mut shown: impl FnMut(&str, &[&str]) -> crate::Outcome,
    ) -> Result<Self, Failure> {
        let runtime = Runtime::new()?;
        shown("p2", &P2_COMMAND)?;
        let p2 = Server::start(program, "p2", &P2_COMMAND, &folder.join("p2/p2.log"))?;
        let rounds = runtime.block_on(Wire::to(p2.address, canaries.clone()))?;
        let url = rounds.url();
        let command = p1_command(&url, table);
        shown("p1", &command)?;
        let p1 = Server::start(program, "p1", &command, &folder.join("p1/p1.log"))?;
        let calls = runtime.block_on(Wire::to(p1.address, canaries))?;
        let steward = runtime.block_on(Steward::connect(&calls.url(), &tokens.steward))?;
        let (program, folder) = (program.clone(), folder.to_owned());
        Ok(Self { steward, _p1: p1, p2, rounds, calls, program, folder, runtime, quiet })
    }

    /// Stops P2 and starts it again, with what the policy is now. P1 finds it again by itself.
    pub(super) fn restart_p2(&mut self) -> Result<(), Failure> {
        let log = self.folder.join("p2/p2.log");
        let _ = self.p2.process.0.kill();
        // Its ledger is its own until it has ended.
        let _ = self.p2.process.0.wait();
        self.p2 = Server::start(&self.program, "p2", &P2_COMMAND, &log)?;
        self.rounds.turn_to(self.p2.address);
        Ok(())
    }

    /// A statement to P1, with its rows.
    pub(super) fn ask(&mut self, what: &'static str, sql: &str) -> Result<Vec<RecordBatch>, Failure> {
        let waiting = Waiting::new(what, Some(self.rounds.clone()), self.quiet);
        self.runtime.block_on(waiting.until(self.steward.ask(sql)))
    }

    /// Now.
    pub(super) fn mark(&self) -> Result<Mark, Failure> {
        Ok(Mark { started: Instant::now(), passed: self.rounds.passed(), books: self.books()? })
    }

    /// What happened since.
    pub(super) fn since(&self, mark: &Mark) -> Result<Cost, Failure> {
        let (time, [up, down]) = (mark.started.elapsed(), self.rounds.passed());
        let [up_before, down_before] = mark.passed;
        Ok(self.books()?.since(&mark.books, time, up - up_before, down - down_before))
    }

    /// P2's own counters, asked past the wire.
    fn books(&self) -> Result<Books, Failure> {
        let config = ClientConfig::new(format!("http://{}", self.p2.address));
        let metrics = self.runtime.block_on(async { Connection::open(&config).await?.metrics().await })?;
        Ok(Books::parse(&metrics))
    }
}

/// A file that its owner alone can read.
pub(super) fn write_secret(file: &Path, text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let named = |error: std::io::Error| format!("{}: {error}", file.display());
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let mut opened: File = open.open(file).map_err(named)?;
    Ok(std::io::Write::write_all(&mut opened, text.as_ref()).map_err(named)?)
}
