//! `veil gateway`: a local Flight SQL endpoint that opens releases on the fly, for any client.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;
use veil_flight_sql::{ServerConfig, bind};
use veil_recipient::{Gateway, READ_AHEAD};

use crate::Outcome;
use crate::release_server::ServerArguments;
use crate::server::{log, shutdown_signal};

/// Run a local Flight SQL endpoint that opens what is released to you, for any ADBC, JDBC or pyarrow client
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil gateway --from http://127.0.0.1:7711 --key alice/recipient.key --owner keys/owner.pub
  veil gateway --from https://p1.example:7711 --tls-ca ca.pem --token-file alice/token \\
      --key alice/recipient.key --listen 127.0.0.1:7733

and then, in Python:
  import adbc_driver_flightsql.dbapi as flightsql
  with flightsql.connect(\"grpc://127.0.0.1:7733\") as connection, connection.cursor() as cursor:
      cursor.execute(\"SELECT mask_shift(age, 3) AS age, region FROM patients\")
      frame = cursor.fetch_arrow_table().to_pandas()

Every query is released to the name in the key file, unless it calls release( ) itself. A release begins when a client asks
about its columns, and may cost epsilon; its rows are fetched and opened from then on, up to --read-ahead, so
that they are ready when the client asks for them. An error at the end of the rows says that they do not agree with their
manifest: do not use them. Whoever can connect on this machine can ask. Ctrl-C or SIGTERM stops it.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Where to listen, on this machine; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7733")]
    listen: SocketAddr,
    /// The most memory for rows that no client has asked for yet, of all statements together; with 0, a batch of each
    #[arg(long, value_name = "MIB", default_value_t = READ_AHEAD >> 20)]
    read_ahead: usize,
    /// How long downloads under way may take once the gateway is to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    grace: u64,
    /// Log the text of statements too
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
    let listen = arguments.listen;
    if !listen.ip().is_loopback() {
        let why = "the gateway gives clear rows, and so listens on this machine only; use 127.0.0.1";
        return Err(format!("--listen {listen}: {why}").into());
    }
    let asker = arguments.server.load()?;
    log("veil_flight_sql", arguments.verbose, arguments.log_json, arguments.quiet);
    let runtime = Runtime::new()?;
    let outcome: Outcome = runtime.block_on(async {
        let shutdown = shutdown_signal()?;
        let fetch = arguments.server.connect(&asker).await?;
        let name = asker.key.name().to_owned();
        let read_ahead = arguments.read_ahead.saturating_mul(1 << 20);
        let gateway = Gateway::new(fetch, asker.key, asker.owner).with_read_ahead(read_ahead);
        let grace = Duration::from_secs(arguments.grace);
        let config = ServerConfig { grace, ..ServerConfig::new(listen, "veil gateway") };
        let server = bind(config, Arc::new(gateway)).await?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "The gateway of {name} to {} listens on {}", arguments.server.from, server.url())?;
        stdout.flush()?;
        server.serve(shutdown).await?;
        Ok(())
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}
