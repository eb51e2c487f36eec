//! A release on its way: sealed batches are received while those before are opened, and those before them are read.

use std::collections::VecDeque;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};

use crate::fetch::{Fetch, Promised};
use crate::{Opener, Received, RecipientError};

/// Sealed batches that wait to be opened.
const WAITING: usize = 4;

/// A release on its way. Dropping it ends the download.
#[derive(Debug)]
pub struct Incoming {
    steps: mpsc::Receiver<Result<Step, RecipientError>>,
    /// Aborted on drop.
    _working: JoinSet<()>,
    ready: VecDeque<RecordBatch>,
    schema: Option<SchemaRef>,
    received: Option<Received>,
    bytes: u64,
}

/// What opening comes to.
#[derive(Debug)]
enum Step {
    /// Some is open.
    Some { clear: Vec<RecordBatch>, schema: Option<SchemaRef>, bytes: u64 },
    /// All is open, and agrees with its manifest.
    All(Box<Received>),
}

impl Incoming {
    pub(crate) fn new(fetch: Fetch, promised: Promised, opener: Opener) -> Self {
        let (to_opener, sealed) = mpsc::channel(WAITING);
        // One step is ready while the next is made.
        let (to_reader, steps) = mpsc::channel(1);
        let mut working = JoinSet::new();
        working.spawn(fetch.clone().receive(promised.clone(), to_opener));
        working.spawn(async move {
            if let Err(error) = open_all(&fetch, &promised, opener, sealed, &to_reader).await {
                // Nobody may be there to hear it.
                let _ = to_reader.send(Err(error)).await;
            }
        });
        Self { steps, _working: working, ready: VecDeque::new(), schema: None, received: None, bytes: 0 }
    }

    /// The next clear batch. Nothing when all has come and agrees with its manifest: only then believe what came before.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, RecipientError> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
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

    /// Takes the next step.
    async fn advance(&mut self) -> Result<(), RecipientError> {
        let broken = || RecipientError::Internal("it was broken off before".to_owned());
        match self.steps.recv().await.ok_or_else(broken)?? {
            Step::Some { clear, schema, bytes } => {
                self.ready.extend(clear);
                self.schema = schema;
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

/// Opens what is at hand, again and again; at the end compares it with its manifest.
async fn open_all(
    fetch: &Fetch,
    promised: &Promised,
    mut opener: Opener,
    mut sealed: mpsc::Receiver<Result<RecordBatch, RecipientError>>,
    to: &mpsc::Sender<Result<Step, RecipientError>>,
) -> Result<(), RecipientError> {
    while let Some(first) = sealed.recv().await {
        let mut batches = vec![first?];
        while let Ok(more) = sealed.try_recv() {
            batches.push(more?);
        }
        let bytes = batches.iter().map(sealed_bytes).sum::<u64>();
        let opened = spawn_blocking(move || opener.open(&batches).map(|clear| (opener, clear)));
        let (opened, clear) = opened.await.map_err(|error| RecipientError::Internal(error.to_string()))??;
        opener = opened;
        if to.send(Ok(Step::Some { clear, schema: opener.schema()?, bytes })).await.is_err() {
            return Ok(());
        }
    }
    let received = Box::new(opener.finish()?);
    fetch.done(promised).await;
    // Nobody may be there to hear it.
    let _ = to.send(Ok(Step::All(received))).await;
    Ok(())
}

/// The parts of a batch.
fn sealed_bytes(batch: &RecordBatch) -> u64 {
    let parts = batch.columns().iter().filter_map(|column| column.as_binary_opt::<i64>());
    parts.map(|part| (0..part.len()).map(|row| part.value_length(row) as u64).sum::<u64>()).sum()
}
