//! `veil serve`: the engine for others, over Arrow Flight SQL.
//!
//! All callers share one session: a table or a setting that one makes is there for all. So only admins change anything, or touch the
//! server's files; stewards ask, and recipients have rows released.
//!
//! ```text
//!  answers   statements, planned and run            roles   what callers may run, and the files that decide it
//!  told      errors, as callers of a role hear them
//! ```

mod answers;
mod known_tables;
mod recipient_columns;
mod recipient_expressions;
mod recipient_statement;
mod roles;
mod told;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures::TryStreamExt;
use veil_flight_sql::{Answers, Caller, Role, ServerConfig, ServerTls, Tokens, bind};

use crate::p2_client::P2TlsArguments;
use crate::sql::engine::{self, Engine, Parties};
use crate::sql::statements;
use crate::sql::tables::NamedFile;
use crate::{Outcome, server};
use answers::EngineAnswers;

/// Run P1, the engine, as a server: SQL over Arrow Flight, for ADBC, JDBC, pyarrow and `veil`
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil serve --keys keys/p1.keys --p2 http://127.0.0.1:7722 --table patients=patients.veil.parquet
      on this machine, for trying out: anybody on it may ask, and release to everybody
  veil serve --keys keys/p1.keys --p2 https://p2.example:7722 \\
      --p2-tls-ca ca.pem --p2-tls-cert p1.pem --p2-tls-key p1.key \\
      --table patients=patients.veil.parquet --init anonymise.sql \\
      --listen 0.0.0.0:7711 --tls-cert p1.pem --tls-key p1.key --token-file tokens
      for others, who send `authorization: Bearer <token>`

A token file has a line `name token [role]` for everybody, and must not be readable by others:
  alice  5f1c62..                  a recipient: has rows released to alice of the policy, and asks nothing else
  desk   77ab03..  recipient=alice another caller for alice
  erin   c0de99..  steward         asks about tables, and releases to any recipient
  root   9e0214..  admin           changes tables and settings too, and writes files
Who comes with a certificate and no token (--client-ca) is the recipient of its common name, or has the role of --role.
Without tokens and certificates, everybody on this machine is a steward.
Encrypted columns are served as they are. Ctrl-C or SIGTERM stops it once downloads under way are finished.")]
pub(crate) struct Arguments {
    /// P1's keys, from `veil keygen`
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Where P2 listens
    #[arg(long, value_name = "URL", required_unless_present = "embedded_p2", conflicts_with = "embedded_p2")]
    p2: Option<String>,
    #[command(flatten)]
    p2_tls: P2TlsArguments,
    /// P2's keys, to be P2 as well: no protection, for trying out
    #[arg(long, value_name = "FILE")]
    embedded_p2: Option<PathBuf>,
    /// The owner's signed policy, for what --embedded-p2 may answer: without one, questions of 100 rows and more
    #[arg(long, value_name = "FILE", requires = "embedded_p2")]
    embedded_policy: Option<PathBuf>,
    /// A table on a .parquet, .arrow or .csv file
    #[arg(long = "table", value_name = "NAME=FILE")]
    tables: Vec<NamedFile>,
    /// Statements to run before anybody is answered
    #[arg(long, value_name = "FILE")]
    init: Vec<PathBuf>,
    /// Where to listen; port 0 takes a free one. Beyond this machine with TLS, and tokens or --client-ca, only
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7711")]
    listen: SocketAddr,
    /// The certificate to show to callers, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// The authority whose callers are let in, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Who may come and do what, by token: a file of lines `name token [role]`, the role `recipient`, `recipient=NAME`,
    /// `steward` or `admin` [default role: recipient]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// What a caller with a certificate of this common name may do, instead of being a recipient of that name
    #[arg(long = "role", value_name = "NAME=ROLE", requires = "client_ca", conflicts_with = "token_file")]
    roles: Vec<CertificateRole>,
    /// How long a ticket lives without use
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    ticket_minutes: u32,
    /// The folder for released results while they are downloaded [default: the system's temporary one]
    #[arg(long, value_name = "FOLDER")]
    spool: Option<PathBuf>,
    /// How long downloads under way may take once the server is to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
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

/// The role of a certificate's common name.
#[derive(Clone, Debug)]
struct CertificateRole(String, Role);

impl FromStr for CertificateRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = text.split_once('=').and_then(|(name, word)| Some((name, Role::of_word(word, name)?)));
        let refused = || "write NAME=steward, NAME=admin, NAME=recipient or NAME=recipient=OTHER".to_owned();
        known.filter(|(name, _)| !name.is_empty()).map(|(name, role)| Self(name.to_owned(), role)).ok_or_else(refused)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    server::log("veil_flight_sql", arguments.verbose, arguments.log_json, arguments.quiet);
    let runtime = engine::runtime()?;
    let outcome = runtime.block_on(serve(arguments));
    // Work that nobody waits for any more does not keep the program.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

async fn serve(arguments: &Arguments) -> Outcome {
    // Before anyone can know that the server is there.
    let shutdown = server::shutdown_signal()?;
    tokio::pin!(shutdown);
    let config = configuration(arguments)?;
    let parties = Parties {
        keys: Some(&arguments.keys),
        p2: arguments.p2.as_deref().map(|url| (url, arguments.p2_tls.client(url))),
        embedded_p2: arguments.embedded_p2.as_deref(),
        embedded_policy: arguments.embedded_policy.as_deref(),
    };
    let engine = Engine::start(parties).await?;
    let key_set = engine.key_set.map(|id| id.to_string()).unwrap_or_default();
    for table in &arguments.tables {
        table.register(&engine.context).await?;
    }
    let answers = Arc::new(EngineAnswers::new(engine.context));
    let server = bind(config, answers.clone()).await?;
    for file in &arguments.init {
        tokio::select! {
            outcome = initialise(&answers, file) => outcome?,
            () = &mut shutdown => return Ok(()),
        }
    }
    let mut stdout = std::io::stdout();
    writeln!(stdout, "P1 for key set {key_set} listens on {}", server.url())?;
    stdout.flush()?;
    server.serve(shutdown).await?;
    Ok(())
}

fn configuration(arguments: &Arguments) -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let mut config = ServerConfig::new(arguments.listen, "veil");
    if let (Some(cert), Some(key)) = (&arguments.tls_cert, &arguments.tls_key) {
        let client_ca = arguments.client_ca.clone();
        config.tls = Some(ServerTls { cert: cert.clone(), key: key.clone(), client_ca });
    }
    config.tokens = arguments.token_file.as_deref().map(Tokens::load).transpose()?.map(Arc::new);
    for CertificateRole(name, role) in &arguments.roles {
        if config.certificate_roles.insert(name.clone(), role.clone()).is_some() {
            return Err(format!("--role is given twice for {name}: leave one out").into());
        }
    }
    config.ticket_lifetime = Duration::from_secs(u64::from(arguments.ticket_minutes) * 60);
    config.spool = arguments.spool.clone().unwrap_or(config.spool);
    config.grace = Duration::from_secs(arguments.grace);
    Ok(config)
}

/// Runs the statements of a file, to the first error.
async fn initialise(answers: &EngineAnswers, file: &Path) -> Outcome {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let operator = Caller { name: "operator".to_owned(), role: Role::Admin };
    for piece in statements::split(answers.dialect(), &text) {
        let outcome = async {
            let rows = answers.prepare(&operator, &piece.text).await?.run.start().await?;
            rows.batches.try_for_each(|_| async { Ok(()) }).await
        };
        let place = format!("{}:{}: {}", file.display(), piece.line, piece.name());
        outcome.await.map_err(|error| format!("{place}: {error}"))?;
    }
    Ok(())
}
