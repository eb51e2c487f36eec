//! A release on its way: sealed batches are received while those before are opened, and those before them are read.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};

use crate::fetch::{Fetch, Promised};
use crate::parcel;
use crate::read_ahead::{Place, Room};
use crate::{Opener, Received, RecipientError};

/// Sealed batches that wait to be opened.
const WAITING: usize = 4;

/// A release on its way. Dropping it ends the download.
#[derive(Debug)]
pub struct Incoming {
    steps: mpsc::UnboundedReceiver<Result<Step, RecipientError>>,
    /// Aborted on drop.
    working: JoinSet<()>,
    /// An error is on its way.
    is_broken: Arc<AtomicBool>,
    ready: Option<RecordBatch>,
    /// That of the batch which is ready, or was given last.
    room: Option<Room>,
    schema: Option<SchemaRef>,
    received: Option<Received>,
    bytes: u64,
}

/// What opening comes to. Room bounds how many there are.
#[derive(Debug)]
enum Step {
    /// The columns are known.
    Columns(SchemaRef),
    /// A parcel is open.
    Parcel { clear: RecordBatch, schema: SchemaRef, bytes: u64, room: Room },
    /// All is open, and agrees with its manifest.
    All(Box<Received>),
}

impl Incoming {
    pub(crate) fn new(fetch: Fetch, promised: Promised, opener: Opener, place: Place) -> Self {
        let (to_opener, sealed) = mpsc::channel(WAITING);
        let (to_reader, steps) = mpsc::unbounded_channel();
        let (mut working, is_broken) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        working.spawn(fetch.clone().receive(promised.clone(), to_opener));
        let broken = is_broken.clone();
        working.spawn(async move {
            // Nobody may be there to hear any of it.
            match open_all(opener, sealed, &place, &to_reader).await {
                Ok(Some(received)) => {
                    let _ = to_reader.send(Ok(Step::All(Box::new(received))));
                    fetch.done(&promised).await;
                }
                Ok(None) => {}
                Err(error) => {
                    broken.store(true, Ordering::Release);
                    let _ = to_reader.send(Err(error));
                }
            }
        });
        Self { steps, working, is_broken, ready: None, room: None, schema: None, received: None, bytes: 0 }
    }

    /// The next clear batch. Nothing when all has come and agrees with its manifest, and the server knows: only then believe what
    /// came before. What came before an error is not given any more once the error is known.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, RecipientError> {
        let next = self.next_batch().await?;
        if next.is_none() {
            while self.working.join_next().await.is_some() {}
        }
        Ok(next)
    }

    /// The next clear batch; the server may be told later that all has come.
    pub(crate) async fn next_batch(&mut self) -> Result<Option<RecordBatch>, RecipientError> {
        loop {
            if self.is_broken() {
                self.ready = None;
            }
            if let Some(batch) = self.ready.take() {
                return Ok(Some(batch));
            }
            if self.received.is_some() {
                return Ok(None);
            }
            self.advance().await?;
        }
    }

    /// The columns, as soon as they are known.
    pub async fn schema(&mut self) -> Result<SchemaRef, RecipientError> {
        loop {
            match &self.schema {
                Some(schema) => return Ok(schema.clone()),
                None => self.advance().await?,
            }
        }
    }

    /// What the release was, once all has come.
    pub fn received(&self) -> Option<&Received> {
        self.received.as_ref()
    }

    /// Sealed bytes that came.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is known to have gone wrong.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Takes the next step.
    async fn advance(&mut self) -> Result<(), RecipientError> {
        let broken = || RecipientError::Internal("it was broken off before".to_owned());
        self.room = None;
        match self.steps.recv().await.ok_or_else(broken)?? {
            Step::Columns(schema) => self.schema = Some(schema),
            Step::Parcel { clear, schema, bytes, room } => {
                (self.ready, self.room, self.schema) = (Some(clear), Some(room), Some(schema));
                self.bytes += bytes;
            }
            Step::All(received) => {
                self.schema = Some(received.schema.clone());
                self.received = Some(*received);
            }
        }
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // All has come, and the server is being told.
        if self.received.is_some() {
            self.working.detach_all();
        }
    }
}

/// Opens parcels as they come, several at once, and gives them in their order; at the end compares them with their manifest. Nothing
/// if nobody listens any more.
async fn open_all(
    mut opener: Opener,
    mut sealed: mpsc::Receiver<Result<RecordBatch, RecipientError>>,
    place: &Place,
    to: &mpsc::UnboundedSender<Result<Step, RecipientError>>,
) -> Result<Option<Received>, RecipientError> {
    let at_once = available_parallelism().map_or(1, NonZero::get);
    let mut opening: FuturesOrdered<JoinHandle<Result<parcel::Opened, RecipientError>>> = FuturesOrdered::new();
    let (mut columns, mut bytes) = (None, 0);
    // How the download ended; what came before that is given first.
    let mut end = None;
    while end.is_none() || !opening.is_empty() {
        let step = tokio::select! {
            Some(opened) = opening.next(), if !opening.is_empty() => {
                let opened = opened.map_err(|error| RecipientError::Internal(error.to_string()))??;
                let clear = opener.put(opened)?;
                let schema = clear.schema();
                let room = place.room_for(&clear).await;
                columns = Some(schema.clone());
                Step::Parcel { clear, schema, bytes: std::mem::take(&mut bytes), room }
            }
            came = sealed.recv(), if end.is_none() && opening.len() < at_once => {
                let taken = came.map(|came| came.and_then(|batch| {
                    bytes += sealed_bytes(&batch);
                    opener.take(&batch)
                }));
                match taken {
                    None => end = Some(Ok(())),
                    Some(Err(error)) => end = Some(Err(error)),
                    Some(Ok(parcels)) => {
                        opening.extend(parcels.into_iter().map(|sealed| spawn_blocking(move || parcel::open(&sealed))));
                    }
                }
                match opener.schema()?.filter(|_| columns.is_none()) {
                    Some(schema) => Step::Columns(columns.insert(schema).clone()),
                    None => continue,
                }
            }
        };
        if to.send(Ok(step)).is_err() {
            return Ok(None);
        }
    }
    end.unwrap_or(Ok(()))?;
    opener.finish().map(Some)
}

/// The parts of a batch.
fn sealed_bytes(batch: &RecordBatch) -> u64 {
    let parts = batch.columns().iter().filter_map(|column| column.as_binary_opt::<i64>());
    parts.map(|part| (0..part.len()).map(|row| part.value_length(row) as u64).sum::<u64>()).sum()
}
