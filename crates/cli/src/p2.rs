//! `veil p2`: the key holder's server.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::runtime::Runtime;
use tracing::warn;
use veil_flight_p2::{P2Server, ServerConfig, ServerTls};
use veil_keys::{KeyFile, P2Keys};
use veil_protocols::{Limits, Randomness, Responder};
use veil_release::{Ledger, Policy, ReleaseDesk, SignedPolicy};

use crate::{Outcome, p2_status, server};

/// Run P2, the key holder: a server that answers the engine's rounds and sees masked numbers only
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  veil p2 --keys keys/p2.keys --listen 127.0.0.1:7722
      on this machine, for trying out
  veil p2 --keys keys/p2.keys --listen 0.0.0.0:7722 \\
      --tls-cert p2.pem --tls-key p2.key --client-ca ca.pem
      for others: P1 shows a certificate that ca.pem has signed
  veil p2 --keys keys/p2.keys --policy policy.signed --state p2-state/
      with releases to recipients, and questions, as the owner's policy allows
  veil p2 status --url https://p2.example:7722 \\
      --tls-ca ca.pem --tls-cert p1.pem --tls-key p1.key
      whether it is well, and what it has done

Ctrl-C or SIGTERM stops it once the rounds under way are answered."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Option<Serve>,
}

#[derive(Subcommand)]
enum Command {
    Status(p2_status::Arguments),
}

#[derive(Args)]
struct Serve {
    /// P2's keys, from `veil keygen`
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Where to listen; port 0 takes a free one. Without TLS, this machine only
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7722")]
    listen: SocketAddr,
    /// P2's certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "client_ca")]
    tls_cert: Option<PathBuf>,
    /// P2's private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The authority whose clients are let in, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// The owner's signed policy: who may receive what, and what may be asked. Without one, nothing is released, and questions are
    /// answered cautiously: of 100 rows and more, and 10,000 numbers a file and day
    #[arg(long, value_name = "FILE", requires = "state")]
    policy: Option<PathBuf>,
    /// Where P2 keeps its ledger of what was released and asked. Without one, it forgets when it ends what was asked
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// The largest batch to take or give
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=1024))]
    max_batch_mib: u16,
    /// How long rounds under way may take once P2 is to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    /// Log every batch, not only every round
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Log as JSON, one object a line
    #[arg(long, conflicts_with = "quiet")]
    log_json: bool,
    /// No log
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match (&arguments.command, &arguments.serve) {
        (Some(Command::Status(status)), _) => p2_status::run(status),
        (None, Some(serve)) => run_server(serve),
        (None, None) => Err("`veil p2` needs --keys; see `veil p2 --help`".into()),
    }
}

fn run_server(arguments: &Serve) -> Outcome {
    let keys = P2Keys::load(&arguments.keys)?;
    let key_id = keys.key_id();
    server::log("veil_flight_p2", arguments.verbose, arguments.log_json, arguments.quiet);
    let limits = Limits { bytes: usize::from(arguments.max_batch_mib) << 20, ..Limits::default() };
    let responder = Responder::new(Arc::new(keys.clone()), limits, Randomness::os());
    let desk = desk(arguments.policy.as_deref(), arguments.state.as_deref(), keys)?;
    if arguments.state.is_none() {
        warn!("without --state this P2 forgets, when it ends, how many numbers questions have opened today");
    }
    let responder = Arc::new(responder.with_desk(Arc::new(desk)));
    let tls = match (&arguments.tls_cert, &arguments.tls_key, &arguments.client_ca) {
        (Some(cert), Some(key), Some(client_ca)) => {
            Some(ServerTls { cert: cert.clone(), key: key.clone(), client_ca: client_ca.clone() })
        }
        _ => None,
    };
    let grace = Duration::from_secs(arguments.grace);
    let config = ServerConfig { tls, grace, ..ServerConfig::new(arguments.listen) };
    let runtime = Runtime::new()?;
    let outcome: Outcome = runtime.block_on(async {
        // Before anyone can know that P2 is there.
        let shutdown = server::shutdown_signal()?;
        let server = P2Server::bind(config, responder).await?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "P2 for key set {key_id} listens on {}", server.url())?;
        stdout.flush()?;
        server.serve(shutdown).await?;
        Ok(())
    });
    // Work that nobody waits for any more does not keep the program.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

/// Where questions and releases are decided.
fn desk(
    policy: Option<&Path>,
    state: Option<&Path>,
    keys: P2Keys,
) -> Result<ReleaseDesk<P2Keys>, Box<dyn std::error::Error>> {
    let policy = policy.map(|policy| read_policy(policy, &keys)).transpose()?;
    let ledger = match state {
        Some(state) => {
            std::fs::create_dir_all(state).map_err(|error| format!("{}: {error}", state.display()))?;
            Ledger::open(state)?
        }
        None => Ledger::in_memory(),
    };
    Ok(ReleaseDesk::new(policy, ledger, keys))
}

/// A policy that the owner of P2's keys has signed for them.
pub(crate) fn read_policy(policy: &Path, keys: &P2Keys) -> Result<Policy, Box<dyn std::error::Error>> {
    let bytes = std::fs::read(policy).map_err(|error| format!("{}: {error}", policy.display()))?;
    let opened = SignedPolicy::open(&bytes, keys.key_id(), keys.owner_key());
    Ok(opened.map_err(|error| format!("{}: {error}", policy.display()))?)
}
