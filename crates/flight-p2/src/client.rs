//! P1's way to P2.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use veil_cells::KeyId;
use veil_protocols::{Channel, Frames, Limits, ProtocolError};

use crate::Terms;
use crate::connection::{ClientConfig, Health, persist};
use crate::exchange::Exchange;
use crate::link::Link;

/// How long the first connection is tried again: a P2 that is not there is soon reported.
const FIRST_TRIES: Duration = Duration::from_millis(800);

/// Answers that wait for P1 to take them.
const ANSWERS_AHEAD: usize = 1;

/// Rounds with a P2 over Flight. Clones share one connection; a lost one is made again, and what was unanswered sent again.
#[derive(Clone, Debug)]
pub struct FlightChannel {
    link: Arc<Link>,
    limits: Limits,
}

impl FlightChannel {
    /// Connects to the P2 of a key set and agrees on what to speak.
    pub async fn connect(config: ClientConfig, key_id: KeyId) -> Result<Self, ProtocolError> {
        let link = Arc::new(Link::new(config, key_id));
        let agreed = persist(FIRST_TRIES, || link.agreed()).await?;
        let Limits { rows, bytes } = agreed.terms.limits();
        let limits = Limits { rows: rows.max(1), bytes: bytes.min(link.config.max_answer_bytes) };
        Ok(Self { link, limits })
    }

    /// What P2 speaks.
    pub async fn handshake(&self) -> Result<Terms, ProtocolError> {
        Ok(self.link.agreed().await?.terms.clone())
    }

    /// Asks P2 whether it is well.
    pub async fn health(&self) -> Result<Health, ProtocolError> {
        let agreed = self.link.agreed().await?;
        agreed.connection.health().await.map_err(|error| self.link.explain(error))
    }

    /// Asks P2 what it has done, in the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, ProtocolError> {
        let agreed = self.link.agreed().await?;
        agreed.connection.metrics().await.map_err(|error| self.link.explain(error))
    }
}

impl Channel for FlightChannel {
    /// The round runs in a task of its own, so that batches are on their way while P1 works on answers. The stream owns the
    /// task: dropping one ends the other.
    fn exchange(&self, requests: Frames) -> Frames {
        let link = self.link.clone();
        let start = async move {
            let (sender, mut receiver) = mpsc::channel(ANSWERS_AHEAD);
            let mut task = JoinSet::new();
            task.spawn(Exchange::new(link, requests, sender).run());
            stream::poll_fn(move |context| {
                let _owned = &task;
                receiver.poll_recv(context)
            })
        };
        stream::once(start).flatten().boxed()
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}
