//! A release on its way: sealed batches are received while those before are opened.

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
    fetch: Fetch,
    promised: Promised,
    /// Nothing once all is open, or has failed.
    opener: Option<Opener>,
    sealed: mpsc::Receiver<Result<RecordBatch, RecipientError>>,
    /// Aborted on drop.
    _receiving: JoinSet<()>,
    ready: VecDeque<RecordBatch>,
    schema: Option<SchemaRef>,
    received: Option<Received>,
    bytes: u64,
}

impl Incoming {
    pub(crate) fn new(fetch: Fetch, promised: Promised, opener: Opener) -> Self {
        let (to, sealed) = mpsc::channel(WAITING);
        let mut receiving = JoinSet::new();
        receiving.spawn(fetch.clone().receive(promised.clone(), to));
        Self {
            fetch,
            promised,
            opener: Some(opener),
            sealed,
            _receiving: receiving,
            ready: VecDeque::new(),
            schema: None,
            received: None,
            bytes: 0,
        }
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

    /// Opens what is at hand, or waits for more; at the end compares it with its manifest.
    async fn advance(&mut self) -> Result<(), RecipientError> {
        let first = self.sealed.recv().await.transpose()?;
        let broken = || RecipientError::Internal("it was broken off before".to_owned());
        let mut opener = self.opener.take().ok_or_else(broken)?;
        let Some(first) = first else {
            let received = opener.finish()?;
            self.fetch.done(&self.promised).await;
            self.schema = Some(received.schema.clone());
            self.received = Some(received);
            return Ok(());
        };
        let mut batches = vec![first];
        while let Ok(more) = self.sealed.try_recv() {
            batches.push(more?);
        }
        self.bytes += batches.iter().map(sealed_bytes).sum::<u64>();
        let opened = spawn_blocking(move || opener.open(&batches).map(|clear| (opener, clear)));
        let (opener, clear) = opened.await.map_err(|error| RecipientError::Internal(error.to_string()))??;
        self.schema = opener.schema()?;
        self.ready.extend(clear);
        self.opener = Some(opener);
        Ok(())
    }
}

/// The parts of a batch.
fn sealed_bytes(batch: &RecordBatch) -> u64 {
    let parts = batch.columns().iter().filter_map(|column| column.as_binary_opt::<i64>());
    parts.map(|part| (0..part.len()).map(|row| part.value_length(row) as u64).sum::<u64>()).sum()
}
