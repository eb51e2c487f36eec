//! The connection that rounds share: made again when it is lost, and agreed on again each time.

use std::sync::{Arc, OnceLock};

use tokio::sync::Mutex;
use tracing::info;
use veil_cells::KeyId;
use veil_protocols::{Limits, ProtocolError};

use crate::Terms;
use crate::connection::{ClientConfig, Connection};

/// A connection whose other side has agreed.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) connection: Connection,
    pub(crate) terms: Terms,
}

/// The way to one P2.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: ClientConfig,
    pub(crate) key_id: KeyId,
    current: Mutex<Option<Arc<Agreed>>>,
    /// What the first P2 took at once: batches are cut for it, so a later one must take as much.
    first: OnceLock<Limits>,
}

impl Link {
    /// Without a connection yet.
    pub(crate) fn new(config: ClientConfig, key_id: KeyId) -> Self {
        Self { config, key_id, current: Mutex::new(None), first: OnceLock::new() }
    }

    /// The connection that there is, or a new one: one attempt, for all who wait.
    pub(crate) async fn agreed(&self) -> Result<Arc<Agreed>, ProtocolError> {
        let mut current = self.current.lock().await;
        if let Some(agreed) = &*current {
            return Ok(agreed.clone());
        }
        let connection = Connection::attempt(&self.config).await?;
        // P2 may be another one than before: with other keys or of another version, it is refused here.
        let terms = connection.handshake(self.key_id).await?;
        let (first, now) = (*self.first.get_or_init(|| terms.limits()), terms.limits());
        if now.rows < first.rows || now.bytes < first.bytes {
            return Err(ProtocolError::Mismatch {
                what: "the size limit",
                expected: format!("{} rows and {} bytes", first.rows, first.bytes),
                found: format!("{} rows and {} bytes", now.rows, now.bytes),
                advice: "restart P2 with the limits that it had",
            });
        }
        info!(endpoint = self.config.endpoint, key = %self.key_id, "connected to P2");
        let agreed = Arc::new(Agreed { connection, terms });
        *current = Some(agreed.clone());
        Ok(agreed)
    }

    /// The connection does not work: the next who needs one makes a new one.
    pub(crate) async fn lost(&self, agreed: &Arc<Agreed>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, agreed)) {
            *current = None;
        }
    }
}
