//! P1's way to P2.

use std::sync::Arc;
use std::task::{Poll, ready};

use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use veil_cells::KeyId;
use veil_protocols::{Channel, Frames, Limits, ProtocolError};

use crate::Terms;
use crate::connection::{ClientConfig, Connection, FIRST_TRIES, Health, persist};
use crate::exchange::Exchange;
use crate::link::Link;

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

    /// Compares again what both sides speak, and returns what P2 speaks.
    pub async fn handshake(&self) -> Result<Terms, ProtocolError> {
        let key_id = self.link.key_id;
        self.call(|connection| async move { connection.handshake(key_id).await }).await
    }

    /// Asks P2 whether it is well.
    pub async fn health(&self) -> Result<Health, ProtocolError> {
        self.call(|connection| async move { connection.health().await }).await
    }

    /// Asks P2 what it has done, in the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, ProtocolError> {
        self.call(|connection| async move { connection.metrics().await }).await
    }

    /// A small call, over a new connection if the one that there is turns out to be lost.
    async fn call<T, F: Future<Output = Result<T, ProtocolError>>>(
        &self,
        call: impl Fn(Connection) -> F,
    ) -> Result<T, ProtocolError> {
        let (link, call) = (&self.link, &call);
        let attempt = || async move {
            let agreed = link.agreed().await?;
            let outcome = call(agreed.connection.clone()).await;
            if outcome.as_ref().is_err_and(ProtocolError::is_transient) {
                link.lost(&agreed).await;
            }
            outcome
        };
        persist(FIRST_TRIES, attempt).await
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
            stream::poll_fn(move |context| match ready!(receiver.poll_recv(context)) {
                // A round that failed without a word is not one that P2 has answered.
                None => match ready!(task.poll_join_next(context)) {
                    Some(Err(error)) => Poll::Ready(Some(Err(broken_off(&error)))),
                    _ => Poll::Ready(None),
                },
                answer => Poll::Ready(answer),
            })
        };
        stream::once(start).flatten().boxed()
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

fn broken_off(error: &JoinError) -> ProtocolError {
    match error.is_cancelled() {
        true => ProtocolError::Cancelled,
        false => ProtocolError::Internal("P1's side of a round failed; its log says more".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use veil_protocols::Frame;

    use super::*;

    fn send<T: Send>(value: T) -> T {
        value
    }

    /// A round in which P1 itself panics ends in an error, once.
    #[tokio::test]
    async fn a_round_that_breaks_off_is_an_error() {
        let link = Arc::new(Link::new(ClientConfig::new("http://127.0.0.1:1"), KeyId([1; 8])));
        let channel = FlightChannel { link, limits: Limits::default() };
        let requests = stream::poll_fn(|_| -> Poll<Option<Result<Frame, ProtocolError>>> {
            std::panic::resume_unwind(Box::new(()));
        });
        let answers: Vec<_> = channel.exchange(requests.boxed()).collect().await;
        assert!(matches!(answers[..], [Err(ProtocolError::Internal(_))]), "{answers:?}");
    }

    /// Callers spawn these.
    #[test]
    fn calls_may_move_between_threads() {
        let link = Arc::new(Link::new(ClientConfig::new("http://127.0.0.1:1"), KeyId([1; 8])));
        let channel = FlightChannel { link, limits: Limits::default() };
        drop(send(FlightChannel::connect(ClientConfig::new("http://127.0.0.1:1"), KeyId([1; 8]))));
        drop(send(channel.handshake()));
        drop(send(channel.health()));
        drop(send(channel.metrics()));
    }
}
