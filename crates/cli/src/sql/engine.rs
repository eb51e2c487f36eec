//! The session: DataFusion with encrypted columns, keys, and the way to P2.

use std::path::Path;
use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, dialect_from_str};
use veil_cells::KeyId;
use veil_flight_p2::ClientConfig;
use veil_keys::{KeyFile, P1Keys, P2Keys};
use veil_planner::{Veil, VeilSessionState};
use veil_protocols::{InProcess, Limits, Randomness, Responder};
use veil_release::{Ledger, Policy, ReleaseDesk};

use crate::progress::say;

/// What statements run in.
pub(crate) struct Engine {
    pub(crate) context: SessionContext,
    pub(crate) veil: Veil,
    /// The key set of `--keys`.
    pub(crate) key_set: Option<KeyId>,
    /// Who P2 is, for people.
    pub(crate) p2: String,
}

/// Where the keys are, and who P2 is.
pub(crate) struct Parties<'a> {
    /// P1's keys.
    pub(crate) keys: Option<&'a Path>,
    /// A P2 elsewhere: its address, and the way there.
    pub(crate) p2: Option<(&'a str, ClientConfig)>,
    /// P2's keys, to be P2 as well.
    pub(crate) embedded_p2: Option<&'a Path>,
    /// What that P2 may answer.
    pub(crate) embedded_policy: Option<&'a Path>,
}

impl Engine {
    pub(crate) async fn start(parties: Parties<'_>) -> Result<Self, Box<dyn std::error::Error>> {
        let veil = Veil::default();
        let mut key_set = None;
        if let Some(file) = parties.keys {
            let keys = P1Keys::load(file)?;
            key_set = Some(keys.key_id());
            if let Some(p2_file) = parties.embedded_p2 {
                embed(&veil, p2_file, parties.embedded_policy, Some((file, keys.key_id()))).await?;
            }
            veil.add_key(keys.key_id(), keys.public_key().clone()).await;
            veil.set_signer(keys.key_id(), Arc::new(keys)).await;
        } else if let Some(p2_file) = parties.embedded_p2 {
            embed(&veil, p2_file, parties.embedded_policy, None).await?;
        }
        let p2 = match (parties.p2, parties.embedded_p2) {
            (Some((url, way)), _) => {
                veil.set_remote(way).await;
                format!("P2 at {url}")
            }
            (None, Some(_)) => "P2 in this process".to_owned(),
            (None, None) => "no P2".to_owned(),
        };
        Ok(Self { context: session(&veil), veil, key_set, p2 })
    }
}

/// What statements run on: deep plans recurse deeply.
pub(crate) fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().thread_stack_size(16 << 20).build()
}

/// The dialect of a session, for reading statements.
pub(crate) fn dialect(context: &SessionContext) -> Box<dyn Dialect> {
    let dialect = context.state().config_options().sql_parser.dialect;
    dialect_from_str(dialect).unwrap_or_else(|| Box::new(GenericDialect {}))
}

/// DataFusion with encrypted columns. What takes more memory than the machine has is refused, not killed with everything else;
/// `SET datafusion.runtime.memory_limit = '8G'` changes how much that is.
pub(crate) fn session(veil: &Veil) -> SessionContext {
    let config = SessionConfig::new().with_information_schema(true);
    let mut builder = SessionStateBuilder::new().with_config(config);
    let limited =
        memory_of_machine().and_then(|bytes| RuntimeEnvBuilder::new().with_memory_limit(bytes, 0.8).build_arc().ok());
    if let Some(runtime) = limited {
        builder = builder.with_runtime_env(runtime);
    }
    SessionContext::new_with_state(builder.with_veil(veil).build())
}

/// In bytes, where the system tells.
fn memory_of_machine() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Makes this process P2, which holds questions against the owner's rules, or cautious ones, and keeps its books in memory.
async fn be_p2(veil: &Veil, keys: P2Keys, policy: Option<Policy>) {
    let responder = Responder::new(Arc::new(keys.clone()), Limits::default(), Randomness::os());
    let desk = ReleaseDesk::new(policy, Ledger::in_memory(), keys).without_releases();
    veil.set_channel(Arc::new(InProcess::new(Arc::new(responder.with_desk(Arc::new(desk)))))).await;
}

/// Makes this process P2 as well, and says aloud what that means.
async fn embed(
    veil: &Veil,
    file: &Path,
    policy: Option<&Path>,
    p1: Option<(&Path, KeyId)>,
) -> Result<(), Box<dyn std::error::Error>> {
    let keys = P2Keys::load(file)?;
    if let Some((p1_file, key_id)) = p1
        && key_id != keys.key_id()
    {
        return Err(format!(
            "{} is of key set {key_id} and {} of key set {}: give two files of one `veil keygen`",
            p1_file.display(),
            file.display(),
            keys.key_id()
        )
        .into());
    }
    let policy = policy.map(|policy| crate::p2::read_policy(policy, &keys)).transpose()?;
    say(
        "NOTE: --embedded-p2 puts the keys and the encrypted data into one process: whoever runs it can read everything.\n\
         NOTE: it protects nothing and is for trying out. For real data run `veil p2` elsewhere, and give --p2 URL.",
    );
    be_p2(veil, keys, policy).await;
    Ok(())
}
