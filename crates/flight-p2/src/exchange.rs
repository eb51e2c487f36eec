//! One round, through lost connections.
//!
//! ```text
//!   requests --draw--> unanswered (at most a window of them) --send--> stream --> P2
//!                          ^ front                                               |
//!   answers <------------- pop <------------------------------------ stream <----+
//! ```
//! P2 keeps nothing between batches, so when a stream is lost, a new one begins with what is unanswered. An answer is delivered
//! once: its question leaves the queue with it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::FlightData;
use futures::stream::{self, Fuse};
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tonic::Streaming;
use tracing::warn;
use veil_protocols::catalog::{self, Entry};
use veil_protocols::{Frame, Frames, ProtocolError};

use crate::backoff::Backoff;
use crate::connection::explain;
use crate::link::{Agreed, Link};
use crate::status::error_of;
use crate::terms::TERMS_HEADER;
use crate::wire;

/// A round under way.
pub(crate) struct Exchange {
    link: Arc<Link>,
    requests: Fuse<Frames>,
    /// Whether all requests are drawn.
    drained: bool,
    /// Drawn requests without an answer, oldest first.
    unanswered: VecDeque<Frame>,
    answers: mpsc::Sender<Result<Frame, ProtocolError>>,
    backoff: Backoff,
}

/// How long the end of a stream may take after its last answer.
const FAREWELL: Duration = Duration::from_secs(1);

/// Messages on their way to P2, as many as the transport takes.
type Outgoing = mpsc::Sender<FlightData>;

impl Exchange {
    pub(crate) fn new(link: Arc<Link>, requests: Frames, answers: mpsc::Sender<Result<Frame, ProtocolError>>) -> Self {
        let backoff = Backoff::new(link.config.retry_for);
        Self { link, requests: requests.fuse(), drained: false, unanswered: VecDeque::new(), answers, backoff }
    }

    /// Runs the round to its end. An error is its last answer.
    pub(crate) async fn run(mut self) {
        if let Err(error) = self.complete().await {
            // Nobody listens any more: then nobody misses it.
            let _ = self.answers.send(Err(error)).await;
        }
    }

    async fn complete(&mut self) -> Result<(), ProtocolError> {
        loop {
            if self.unanswered.is_empty() && !self.drained {
                // Nothing is lost, and how long P1 takes for the next is not P2's time.
                self.backoff.reset();
                let request = self.requests.next().await;
                self.draw(request)?;
            }
            let Some(first) = self.unanswered.front() else { return Ok(()) };
            let entry = protocol_of(first)?;
            let error = match self.link.agreed().await {
                Ok(agreed) => match self.stream(&agreed, entry).await {
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        // A connection that hangs is as good as lost to whoever comes next.
                        if error.is_transient() || matches!(error, ProtocolError::Deadline(_)) {
                            self.link.lost(&agreed).await;
                        }
                        error
                    }
                },
                Err(error) => error,
            };
            if !error.is_transient() {
                return Err(explain(&self.link.config, error));
            }
            let Some(delay) = self.backoff.delay() else { return Err(explain(&self.link.config, error)) };
            warn!(protocol = entry.name, %error, milliseconds = delay.as_millis() as u64, "lost P2, trying again");
            sleep(delay).await;
        }
    }

    /// Sends what is unanswered and all further requests over one stream, until every request is answered.
    async fn stream(&mut self, agreed: &Arc<Agreed>, entry: &'static Entry) -> Result<(), ProtocolError> {
        let patience = self.link.config.batch_deadline;
        let window = self.link.config.window.max(1);
        let mut deadline = Instant::now() + patience;
        let (outgoing, mut inbound) = open(&self.link, agreed, entry, deadline).await?;
        // Dropped when all is sent, which tells P2 that the round is complete.
        let mut outgoing = Some(outgoing);
        let mut refused = false;
        let mut sent = 0;
        let schema = (entry.answer)();
        loop {
            if self.drained && sent == self.unanswered.len() {
                outgoing = None;
                if self.unanswered.is_empty() {
                    // The end of the stream is on its way with the last answer; leaving before it would be a reset.
                    let _ = timeout(FAREWELL, inbound.message()).await;
                    return Ok(());
                }
            }
            let sending = outgoing.as_ref().filter(|_| sent < self.unanswered.len() && !refused);
            let drawing = !self.drained && self.unanswered.len() < window;
            tokio::select! {
                biased;
                message = inbound.message() => {
                    let message = message.map_err(|status| error_of(&status))?.ok_or_else(ended_early)?;
                    if let Some(answer) = wire::decode(message, &schema)? {
                        self.deliver(answer, sent).await?;
                        sent -= 1;
                    }
                    deadline = Instant::now() + patience;
                }
                permit = reserve(sending), if sending.is_some() => match permit {
                    Some(permit) => {
                        permit.send(wire::encode(&self.unanswered[sent])?);
                        sent += 1;
                        deadline = Instant::now() + patience;
                    }
                    // P2 takes no more: why, the other direction says.
                    None => refused = true,
                },
                request = self.requests.next(), if drawing => self.draw(request)?,
                () = sleep_until(deadline), if sent > 0 => return Err(too_late(&self.link)),
            }
        }
    }

    /// Takes a request in, or notes that there are no more. P1's own failure ends the round.
    fn draw(&mut self, request: Option<Result<Frame, ProtocolError>>) -> Result<(), ProtocolError> {
        match request {
            Some(request) => self.unanswered.push_back(request?),
            None => self.drained = true,
        }
        Ok(())
    }

    /// Gives an answer to P1, if it belongs to the oldest question.
    async fn deliver(&mut self, answer: Frame, sent: usize) -> Result<(), ProtocolError> {
        let question = self.unanswered.front().filter(|_| sent > 0);
        if !question.is_some_and(|question| wire::echoes(&question.header, &answer.header)) {
            return Err(ProtocolError::Malformed("P2's answer belongs to another question".to_owned()));
        }
        self.unanswered.pop_front();
        self.backoff.reset();
        self.answers.send(Ok(answer)).await.map_err(|_| ProtocolError::Cancelled)
    }
}

/// Opens a stream with the message that names its protocol.
async fn open(
    link: &Link,
    agreed: &Agreed,
    entry: &'static Entry,
    deadline: Instant,
) -> Result<(Outgoing, Streaming<FlightData>), ProtocolError> {
    // One message ahead: the transport takes the next when it has room.
    let (outgoing, queue) = mpsc::channel(1);
    let opening = wire::schema_message(&(entry.query)()).with_descriptor(wire::descriptor(entry.name, entry.version));
    outgoing.try_send(opening).map_err(|_| ProtocolError::Cancelled)?;
    let mut client = agreed.connection.client();
    let opened = timeout_at(deadline, client.do_exchange(messages(queue))).await.map_err(|_| too_late(link))?;
    let response = opened.map_err(|status| error_of(&status))?;
    let terms = response.metadata().get(TERMS_HEADER).and_then(|terms| terms.to_str().ok());
    if terms != Some(agreed.terms.tag().as_str()) {
        // The transport may have connected again by itself. The next handshake tells what is different.
        return Err(ProtocolError::Unreachable("another P2 has taken its place".to_owned()));
    }
    Ok((outgoing, response.into_inner()))
}

fn too_late(link: &Link) -> ProtocolError {
    let seconds = link.config.batch_deadline.as_secs_f32();
    ProtocolError::Deadline(format!(
        "P2 at {} has not answered for {seconds} s; check its load and log, or allow more time for a batch",
        link.config.endpoint
    ))
}

async fn reserve(outgoing: Option<&Outgoing>) -> Option<mpsc::Permit<'_, FlightData>> {
    outgoing?.reserve().await.ok()
}

fn messages(mut queue: mpsc::Receiver<FlightData>) -> impl Stream<Item = FlightData> + Send {
    stream::poll_fn(move |context| queue.poll_recv(context))
}

fn protocol_of(request: &Frame) -> Result<&'static Entry, ProtocolError> {
    let entry = wire::named(&request.header).and_then(|(name, _)| catalog::find(name));
    entry.ok_or_else(|| ProtocolError::Misuse("a request's header names no protocol".to_owned()))
}

fn ended_early() -> ProtocolError {
    ProtocolError::Unreachable("it ended the round early".to_owned())
}
