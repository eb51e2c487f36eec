//! P1: runs rounds.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;
use futures::{StreamExt, TryStreamExt, stream};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rayon::prelude::*;
use tokio::sync::mpsc;
use veil_cells::KeyId;
use veil_slots::{Level, OUTBOUND_BYTES, Outbound, PublicKey, SEEDED_BYTES, Sanitizer, SlotError, Slots};

use crate::channel::{Channel, blocking};
use crate::limits::{BATCH_CIPHERTEXTS, BATCHES_IN_FLIGHT};
use crate::message::{Receive, Sendable};
use crate::protocol::Protocol;
use crate::randomness::Randomness;
use crate::{Frame, Header, ProtocolError};

/// A run of P1 against P2.
#[derive(Clone, Debug)]
pub struct Session {
    channel: Arc<dyn Channel>,
    sanitizer: Sanitizer,
    key_id: KeyId,
    randomness: Randomness,
    id: [u8; 16],
    receipt: Arc<[u8]>,
    rounds: Arc<AtomicU32>,
    traffic: Arc<Traffic>,
}

/// What a session has sent and received.
#[derive(Debug, Default)]
pub struct Traffic {
    rounds: AtomicU64,
    ciphertexts: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
}

impl Traffic {
    /// Rounds begun.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Ciphertexts sent and received.
    pub fn ciphertexts(&self) -> u64 {
        self.ciphertexts.load(Ordering::Relaxed)
    }

    /// Bytes sent to P2.
    pub fn bytes_up(&self) -> u64 {
        self.bytes_up.load(Ordering::Relaxed)
    }

    /// Bytes received from P2.
    pub fn bytes_down(&self) -> u64 {
        self.bytes_down.load(Ordering::Relaxed)
    }
}

/// What P1's halves work with: the way out, and randomness of their own.
#[derive(Debug)]
pub struct Asker<'a> {
    sanitizer: &'a Sanitizer,
    /// Randomness.
    pub rng: StdRng,
}

impl<'a> Asker<'a> {
    /// For one item.
    pub fn new(sanitizer: &'a Sanitizer, rng: StdRng) -> Self {
        Self { sanitizer, rng }
    }

    /// Another one, for a part of the same item that is made beside the others.
    pub(crate) fn fork(&mut self) -> Self {
        Self { sanitizer: self.sanitizer, rng: StdRng::from_rng(&mut self.rng) }
    }

    /// Blinds and sanitises.
    pub fn send<L: Level>(&mut self, slots: &Slots<L>, blind: &[u64]) -> Result<Outbound, SlotError> {
        self.sanitizer.sanitize(slots, blind, &mut self.rng)
    }
}

impl Session {
    /// A run with encryptions of zero prepared in the background.
    pub fn new(channel: Arc<dyn Channel>, key_id: KeyId, public_key: PublicKey) -> Self {
        Self::with(channel, key_id, Sanitizer::with_pool(public_key), Randomness::os())
    }

    /// A run with everything given.
    pub fn with(channel: Arc<dyn Channel>, key_id: KeyId, sanitizer: Sanitizer, randomness: Randomness) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&randomness.seed()[..16]);
        let (receipt, rounds, traffic) = Default::default();
        Self { channel, sanitizer, key_id, randomness, id, receipt, rounds, traffic }
    }

    /// The same run, whose batches all show a receipt from now on.
    #[must_use]
    pub fn under(&self, receipt: Vec<u8>) -> Self {
        Self { receipt: receipt.into(), ..self.clone() }
    }

    /// The key set.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// What was sent and received so far.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Randomness for what belongs to a whole round.
    pub fn randomness(&self) -> &Randomness {
        &self.randomness
    }

    /// One round: asks for every input, in parallel and in batches, and finishes every answer. `weight` is the number of
    /// ciphertexts of an item in the direction that has more. The items' order is kept.
    pub async fn round<P: Protocol, I, W, O>(
        &self,
        inputs: Vec<I>,
        weight: usize,
        ask: impl Fn(I, &mut Asker<'_>) -> Result<(W, P::Query), ProtocolError> + Send + Sync + 'static,
        finish: impl Fn(W, P::Reply) -> Result<O, ProtocolError> + Send + Sync + 'static,
    ) -> Result<Vec<O>, ProtocolError>
    where
        I: Send + 'static,
        W: Send + 'static,
        O: Send + 'static,
    {
        let count = inputs.len();
        let limits = self.channel.limits();
        let ciphertexts = BATCH_CIPHERTEXTS.min(limits.bytes / SEEDED_BYTES);
        let rows = (ciphertexts / weight.max(1)).clamp(1, limits.rows.max(1));
        let mut inputs = inputs.into_iter();
        let chunks = (0..count.div_ceil(rows)).map(|_| Part::new(inputs.by_ref().take(rows).collect::<Vec<I>>()));
        let halves = Halves {
            protocol: P::NAME,
            version: P::VERSION,
            ask: Box::new(move |chunk, askers| {
                let work: Vec<(I, Asker<'_>)> = chunk.take::<I>()?.into_iter().zip(askers).collect();
                let asked: Vec<(W, P::Query)> = work
                    .into_par_iter()
                    .map(|(input, mut asker)| ask(input, &mut asker))
                    .collect::<Result<_, ProtocolError>>()?;
                let (waiting, queries): (Vec<W>, Vec<P::Query>) = asked.into_iter().unzip();
                Ok((Part::new(waiting), P::Query::to_batch(&queries)?))
            }),
            finish: Box::new(move |waiting, batch| {
                P::Reply::check(batch)?;
                let work: Vec<(usize, W)> = waiting.take::<W>()?.into_iter().enumerate().collect();
                let finished = work.into_par_iter().map(|(row, waiting)| finish(waiting, P::Reply::read(batch, row)?));
                Ok(Part::new(finished.collect::<Result<Vec<O>, ProtocolError>>()?))
            }),
        };
        let mut outputs = Vec::with_capacity(count);
        for part in self.exchange(chunks.collect(), halves).await? {
            outputs.extend(part.take::<O>()?);
        }
        if outputs.len() != count {
            return Err(ProtocolError::Malformed(format!("P2 answered {} of {count} questions", outputs.len())));
        }
        Ok(outputs)
    }

    /// A round of any protocol: what is particular to one is behind `halves`, so that this is compiled once.
    async fn exchange(&self, chunks: Vec<Part>, halves: Halves) -> Result<Vec<Part>, ProtocolError> {
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        let header = Header {
            protocol: halves.protocol.to_owned(),
            version: halves.version,
            session: self.id,
            round: self.rounds.fetch_add(1, Ordering::Relaxed),
            batch: 0,
            key_id: self.key_id,
            receipt: self.receipt.clone(),
        };
        self.traffic.rounds.fetch_add(1, Ordering::Relaxed);
        // What P1 remembers between asking and finishing travels beside the requests, in the same order.
        let (remember, mut remembered) = mpsc::unbounded_channel::<(Header, Part)>();
        let (halves, session) = (Arc::new(halves), self.clone());
        let asking = halves.clone();
        let requests = stream::iter(chunks.into_iter().enumerate())
            .map(move |(number, chunk)| {
                let (halves, sanitizer) = (asking.clone(), session.sanitizer.clone());
                let header = Header { batch: number as u32, ..header.clone() };
                // Drawn in order, so that a test can repeat a run.
                let rngs: Vec<StdRng> = (0..chunk.count).map(|_| session.randomness.fork()).collect();
                blocking(move || {
                    let askers = rngs.into_iter().map(|rng| Asker::new(&sanitizer, rng)).collect();
                    let (waiting, queries) = (halves.ask)(chunk, askers)?;
                    let frame = Frame::new(&header, queries);
                    Ok::<_, ProtocolError>((header, waiting, frame))
                })
            })
            .buffered(BATCHES_IN_FLIGHT);
        let traffic = self.traffic.clone();
        let requests = requests.map(move |asked| {
            let (header, waiting, frame) = asked.and_then(|asked| asked)?;
            traffic.bytes_up.fetch_add(frame.bytes() as u64, Ordering::Relaxed);
            traffic.ciphertexts.fetch_add(frame.ciphertexts(OUTBOUND_BYTES) as u64, Ordering::Relaxed);
            // The receiver lives as long as the round.
            let _ = remember.send((header, waiting));
            Ok(frame)
        });

        let mut answers = self.channel.exchange(requests.boxed());
        let mut finishing = futures::stream::FuturesOrdered::new();
        let mut outputs = Vec::new();
        while let Some(answer) = answers.try_next().await? {
            self.traffic.bytes_down.fetch_add(answer.bytes() as u64, Ordering::Relaxed);
            self.traffic.ciphertexts.fetch_add(answer.ciphertexts(SEEDED_BYTES) as u64, Ordering::Relaxed);
            let Ok((asked, waiting)) = remembered.try_recv() else {
                return Err(ProtocolError::Malformed("P2 sent an answer to no question".to_owned()));
            };
            let halves = halves.clone();
            finishing.push_back(blocking(move || halves.finish_batch(&asked, waiting, answer)));
            while finishing.len() > BATCHES_IN_FLIGHT {
                outputs.push(finishing.next().await.ok_or(ProtocolError::Cancelled)???);
            }
        }
        while let Some(finished) = finishing.next().await {
            outputs.push(finished??);
        }
        Ok(outputs)
    }
}

/// Items of a batch, whatever their type.
struct Part {
    items: Box<dyn Any + Send>,
    count: usize,
}

impl Part {
    fn new<T: Send + 'static>(items: Vec<T>) -> Self {
        Self { count: items.len(), items: Box::new(items) }
    }

    /// The items again: each part is made and taken by the same protocol.
    fn take<T: 'static>(self) -> Result<Vec<T>, ProtocolError> {
        self.items.downcast().map(|items| *items).map_err(|_| ProtocolError::Cancelled)
    }
}

type AskBatch = dyn Fn(Part, Vec<Asker<'_>>) -> Result<(Part, RecordBatch), ProtocolError> + Send + Sync;
type FinishBatch = dyn Fn(Part, &RecordBatch) -> Result<Part, ProtocolError> + Send + Sync;

/// What P1 does before and after the exchange of a batch.
struct Halves {
    protocol: &'static str,
    version: u16,
    ask: Box<AskBatch>,
    finish: Box<FinishBatch>,
}

impl Halves {
    fn finish_batch(&self, asked: &Header, waiting: Part, answer: Frame) -> Result<Part, ProtocolError> {
        let (header, batch) = answer.open()?;
        if header != asked.answered() || batch.num_rows() != waiting.count {
            return Err(ProtocolError::Malformed("P2's answer belongs to another question".to_owned()));
        }
        (self.finish)(waiting, &batch)
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;
    use crate::channel::Frames;
    use crate::multiply::multiply;
    use crate::testing::Parties;
    use crate::{InProcess, Limits, Responder};

    /// What a channel does to the answers of a round.
    type Meddle = fn(Vec<Frame>) -> Vec<Frame>;

    /// A channel that does something to the answers of a round.
    #[derive(Debug)]
    struct Meddler {
        channel: InProcess,
        meddle: Meddle,
    }

    impl Channel for Meddler {
        fn exchange(&self, requests: Frames) -> Frames {
            let (answers, meddle) = (self.channel.exchange(requests), self.meddle);
            let collected = async move {
                let answers: Vec<Frame> = answers.try_collect().await?;
                Ok::<_, ProtocolError>(stream::iter(meddle(answers).into_iter().map(Ok)))
            };
            stream::once(collected).try_flatten().boxed()
        }

        fn limits(&self) -> Limits {
            self.channel.limits()
        }
    }

    /// Twenty products, four batches, through a channel that meddles.
    async fn outcome(meddle: Meddle) -> Result<usize, ProtocolError> {
        let mut parties = Parties::new(30);
        let responder = Responder::new(Arc::new(parties.keys.clone()), Limits::default(), Randomness::fixed(1));
        let channel = Meddler { channel: InProcess::new(Arc::new(responder)), meddle };
        let sanitizer = Sanitizer::new(parties.owner.p1().public_key().clone());
        let session = Session::with(Arc::new(channel), parties.owner.key_id(), sanitizer, Randomness::fixed(2));
        let pair = (parties.encrypt(&[2]), parties.encrypt(&[3]));
        multiply(&session, vec![pair; 20]).await.map(|products| products.len())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn answers_that_are_missing_repeated_reordered_or_damaged_end_the_round() {
        assert_eq!(outcome(|answers| answers).await.unwrap(), 20);
        let cases: [(Meddle, &str); 5] = [
            (|mut answers| answers.drain(1..).collect(), "belongs to another question"),
            (|mut answers| answers.drain(..1).collect(), "P2 answered 5 of 20 questions"),
            (|answers| answers.into_iter().rev().collect(), "belongs to another question"),
            (|answers| [answers.clone(), answers].concat(), "an answer to no question"),
            (
                |mut answers| {
                    answers[0].batch = answers[1].batch.clone();
                    answers
                },
                "its checksum does not match",
            ),
        ];
        for (meddle, sentence) in cases {
            let error = outcome(meddle).await.unwrap_err().to_string();
            assert!(error.contains(sentence), "{error}");
        }
    }

    /// Batches are cut to what P2 takes.
    #[tokio::test(flavor = "multi_thread")]
    async fn small_limits_make_small_batches() {
        let mut parties = Parties::new(31);
        let limits = Limits { rows: 1, bytes: 4 * SEEDED_BYTES };
        let responder = Arc::new(Responder::new(Arc::new(parties.keys.clone()), limits, Randomness::fixed(1)));
        let channel = Arc::new(InProcess::new(responder.clone()));
        let sanitizer = Sanitizer::new(parties.owner.p1().public_key().clone());
        let session = Session::with(channel, parties.owner.key_id(), sanitizer, Randomness::fixed(2));
        let pair = (parties.encrypt(&[2]), parties.encrypt(&[3]));
        assert_eq!(multiply(&session, vec![pair; 3]).await.unwrap().len(), 3);
        let counted = responder.counters().snapshot().find(|(name, _)| *name == "multiply").unwrap().1;
        assert_eq!((counted.batches, counted.rows), (3, 3));
    }
}
