//! P2's answers over Flight.
//!
//! Back-pressure is the stream's own: a stream's questions are drawn as its answers are taken, a few ahead. One semaphore bounds the
//! streams that are read at the same time (the others wait), another the batches that all of them work on, so memory is bounded by
//! streams times questions ahead times the size limit. A stream that the client drops takes its questions with it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, future};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinError;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, info, warn};
use veil_protocols::{ProtocolError, Responder};

use crate::connection::{HANDSHAKE, HEALTH, Health, METRICS};
use crate::questions::{Question, questions};
use crate::status::status_of;
use crate::terms::{TERMS_HEADER, Terms};
use crate::wire::{self, SLACK};

/// Questions of one stream that are worked on or wait with their answers.
const AHEAD: usize = 3;

/// Streams that are read at the same time, over all connections.
const STREAMS: usize = 16;

/// The longest handshake.
const MAX_HANDSHAKE: usize = 64 << 10;

/// The Flight service of P2.
#[derive(Clone, Debug)]
pub struct P2Service {
    responder: Arc<Responder>,
    terms: Arc<Terms>,
    work: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    /// True once the streams in flight must end.
    stopping: watch::Receiver<bool>,
}

impl P2Service {
    /// Answers with this responder, and works on so many batches at a time. Streams end once `stopping` holds true.
    pub fn new(responder: Arc<Responder>, batches_at_once: usize, stopping: watch::Receiver<bool>) -> Self {
        let terms = Arc::new(Terms::new(responder.key_id(), responder.limits()));
        let (work, streams) = (Semaphore::new(batches_at_once.max(1)), Semaphore::new(STREAMS));
        Self { responder, terms, work: Arc::new(work), streams: Arc::new(streams), stopping }
    }

    /// The service for a tonic server, with its size limits.
    pub fn into_server(self) -> FlightServiceServer<Self> {
        let largest = self.responder.limits().bytes.saturating_add(SLACK);
        FlightServiceServer::new(self).max_decoding_message_size(largest).max_encoding_message_size(usize::MAX)
    }

    /// The messages that answer one message: none to a schema, one to a batch, with the schema before the first.
    async fn answer(self, question: Question, peer: Option<SocketAddr>) -> Result<Option<FlightData>, ProtocolError> {
        let permit = self.work.acquire_owned().await.map_err(|_| ProtocolError::Cancelled)?;
        let responder = self.responder;
        let work = move || {
            // Held until the work is done, also if nobody waits for it any more.
            let _permit = permit;
            let Question { entry, message } = question;
            let started = Instant::now();
            let Some(frame) = wire::decode(message, &(entry.query)())? else { return Ok(None) };
            let (rows, bytes_in) = (frame.batch.num_rows(), frame.bytes());
            if wire::named(&frame.header).is_some_and(|(name, _)| name != entry.name) {
                return Err(ProtocolError::Malformed("its header and its descriptor name two protocols".to_owned()));
            }
            let reply = responder.answer(frame)?;
            let (bytes_out, milliseconds) = (reply.bytes(), started.elapsed().as_millis() as u64);
            debug!(protocol = entry.name, rows, bytes_in, bytes_out, milliseconds, peer = peer.map(display), "batch");
            wire::encode(&reply).map(Some)
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| unfinished(&error))?
    }

    fn handshake(&self, body: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let malformed = || ProtocolError::Malformed("the handshake is not one of veil".to_owned());
        let p1: Terms = match body.len() <= MAX_HANDSHAKE {
            true => serde_json::from_slice(body).map_err(|_| malformed())?,
            false => return Err(malformed()),
        };
        self.terms.accept(&p1)?;
        json(self.terms.as_ref())
    }
}

/// Why work has no result. What had not begun when the process began to end is asked again, and answered by whoever comes back.
fn unfinished(error: &JoinError) -> ProtocolError {
    match error.is_cancelled() {
        true => stopping_now(),
        false => ProtocolError::Internal("a worker of P2 failed; its log says more".to_owned()),
    }
}

fn stopping_now() -> ProtocolError {
    ProtocolError::Unreachable("P2 is stopping; it will answer when it is back".to_owned())
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, ProtocolError> {
    serde_json::to_vec(value).map_err(|error| ProtocolError::Internal(error.to_string()))
}

/// What a stream did, for the log: written when the stream ends, whoever ends it.
struct StreamLog {
    peer: Option<SocketAddr>,
    protocol: &'static str,
    batches: u64,
    bytes_out: u64,
    started: Instant,
}

impl StreamLog {
    /// Notes an answer, if it is one, and tells whether it is the first.
    fn note(&mut self, protocol: &'static str, reply: Option<&FlightData>) -> bool {
        self.protocol = protocol;
        self.batches += u64::from(reply.is_some());
        self.bytes_out += reply.map_or(0, |reply| reply.data_body.len() as u64);
        reply.is_some() && self.batches == 1
    }

    fn refuse(&self, error: &ProtocolError) {
        // A client that has left is no event.
        if !matches!(error, ProtocolError::Cancelled) {
            warn!(protocol = self.protocol, peer = self.peer.map(display), %error, "refused");
        }
    }
}

impl Drop for StreamLog {
    fn drop(&mut self) {
        let Self { peer, protocol, batches, bytes_out, started } = self;
        let milliseconds = started.elapsed().as_millis() as u64;
        info!(protocol, batches, bytes_out, milliseconds, peer = peer.map(display), "round");
    }
}

type Reply<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl FlightService for P2Service {
    type DoExchangeStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoActionStream = BoxStream<'static, Result<arrow_flight::Result, Status>>;
    type HandshakeStream = BoxStream<'static, Result<HandshakeResponse, Status>>;
    type ListFlightsStream = BoxStream<'static, Result<FlightInfo, Status>>;
    type DoGetStream = BoxStream<'static, Result<FlightData, Status>>;
    type DoPutStream = BoxStream<'static, Result<PutResult, Status>>;
    type ListActionsStream = BoxStream<'static, Result<ActionType, Status>>;

    async fn do_exchange(&self, request: Request<Streaming<FlightData>>) -> Reply<Self::DoExchangeStream> {
        let peer = request.remote_addr();
        let service = self.clone();
        let place = self.streams.clone().acquire_owned().await.map_err(|_| status_of(&ProtocolError::Cancelled))?;
        let answers = questions(request.into_inner(), self.responder.limits())
            .map(move |question| {
                let service = service.clone();
                async move {
                    let question = question?;
                    let entry = question.entry;
                    Ok((entry, service.answer(question, peer).await?))
                }
            })
            .buffered(AHEAD);

        let mut log = StreamLog { peer, protocol: "none", batches: 0, bytes_out: 0, started: Instant::now() };
        let replies = answers.flat_map(move |answer| {
            let _held_as_long_as_the_stream = &place;
            let messages = match answer {
                Ok((entry, reply)) => {
                    // As Flight has it, the schema goes before the first batch.
                    let first = log.note(entry.name, reply.as_ref());
                    [first.then(|| Ok(wire::schema_message(&(entry.answer)()))), reply.map(Ok)]
                }
                Err(error) => {
                    log.refuse(&error);
                    [Some(Err(status_of(&error))), None]
                }
            };
            stream::iter(messages.into_iter().flatten())
        });

        // Ends the stream when the server must; the client then sends elsewhere, or later, what is unanswered.
        let mut stopping = self.stopping.clone();
        let stopped = self.stopping.clone();
        let stop = async move {
            // A server that is gone without a word stops nothing.
            if stopping.wait_for(|stop| *stop).await.is_err() {
                future::pending::<()>().await;
            }
        };
        let last_word = stream::once(async move { stopped.borrow().then(|| Err(status_of(&stopping_now()))) });
        let replies = replies.take_until(stop).chain(last_word.filter_map(future::ready));

        let mut response = Response::new(replies.boxed());
        if let Ok(tag) = MetadataValue::try_from(self.terms.tag()) {
            response.metadata_mut().insert(TERMS_HEADER, tag);
        }
        Ok(response)
    }

    async fn do_action(&self, request: Request<Action>) -> Reply<Self::DoActionStream> {
        let peer = request.remote_addr();
        let action = request.into_inner();
        let body = match action.r#type.as_str() {
            HANDSHAKE => self.handshake(&action.body),
            HEALTH => json(&Health { status: "ok".to_owned(), key_id: self.responder.key_id() }),
            METRICS => Ok(self.responder.counters().prometheus().into_bytes()),
            _ => Err(ProtocolError::Unsupported(format!("P2 has the actions {HANDSHAKE}, {HEALTH} and {METRICS}"))),
        };
        match body {
            Ok(body) => {
                debug!(action = action.r#type, peer = peer.map(display), "action");
                Ok(Response::new(stream::iter([Ok(arrow_flight::Result { body: body.into() })]).boxed()))
            }
            Err(error) => {
                warn!(peer = peer.map(display), %error, "refused");
                Err(status_of(&error))
            }
        }
    }

    async fn handshake(&self, _: Request<Streaming<HandshakeRequest>>) -> Reply<Self::HandshakeStream> {
        Err(no_such_method())
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Reply<Self::ListFlightsStream> {
        Err(no_such_method())
    }

    async fn get_flight_info(&self, _: Request<FlightDescriptor>) -> Reply<FlightInfo> {
        Err(no_such_method())
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Reply<PollInfo> {
        Err(no_such_method())
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Reply<SchemaResult> {
        Err(no_such_method())
    }

    async fn do_get(&self, _: Request<Ticket>) -> Reply<Self::DoGetStream> {
        Err(no_such_method())
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Reply<Self::DoPutStream> {
        Err(no_such_method())
    }

    async fn list_actions(&self, _: Request<Empty>) -> Reply<Self::ListActionsStream> {
        Err(no_such_method())
    }
}

fn no_such_method() -> Status {
    status_of(&ProtocolError::Unsupported("P2 keeps no tables: it answers rounds (DoExchange) and actions".to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use futures::FutureExt;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use tokio::runtime::{Builder, Runtime};
    use veil_keys::OwnerKeys;
    use veil_protocols::{Limits, Randomness, catalog};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).build().unwrap()
    }

    /// P1 asks again what P2 had no time to begin, and not what P2 failed at.
    #[test]
    fn what_an_ending_process_did_not_begin_is_asked_again() {
        let keys = OwnerKeys::generate(&mut StdRng::seed_from_u64(1));
        let responder = Responder::new(Arc::new(keys.p2()), Limits::default(), Randomness::fixed(3));
        let service = P2Service::new(Arc::new(responder), 1, watch::channel(false).1);
        let ended = runtime();
        let handle = ended.handle().clone();
        ended.shutdown_background();
        let _inside = handle.enter();
        let question = Question { entry: &catalog::CATALOG[0], message: FlightData::default() };
        let error = service.answer(question, None).now_or_never().unwrap().unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        assert!(error.to_string().contains("P2 is stopping"), "{error}");
    }

    #[test]
    fn a_worker_that_panics_is_a_fault_of_p2() {
        let runtime = runtime();
        let failed = runtime.block_on(runtime.spawn_blocking(|| std::panic::resume_unwind(Box::new(()))));
        let error = unfinished(&failed.unwrap_err());
        assert!(matches!(error, ProtocolError::Internal(_)), "{error:?}");
    }
}
