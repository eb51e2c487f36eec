//! Rows as Flight messages, and the line in the log that a statement ends with.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tonic::Status;
use tracing::info;

use crate::{AnswerError, Caller, Rows};

/// Flight messages.
pub(crate) type Messages = BoxStream<'static, Result<FlightData, Status>>;

/// Rows as messages, the schema first.
pub(crate) fn messages(rows: Rows) -> Messages {
    let batches = rows.batches.map_err(|error| FlightError::Tonic(Box::new(error.into())));
    FlightDataEncoderBuilder::new().with_schema(rows.schema).build(batches).map_err(Status::from).boxed()
}

/// One batch as messages.
pub(crate) fn one_batch(batch: RecordBatch) -> Messages {
    messages(Rows { schema: batch.schema(), batches: stream::iter([Ok(batch)]).boxed() })
}

/// The columns as they travel: dictionaries become their values, and clients compare what was promised with what comes.
pub(crate) fn wire_schema(schema: &SchemaRef) -> SchemaRef {
    let nothing = stream::empty::<Result<RecordBatch, FlightError>>();
    let encoder = FlightDataEncoderBuilder::new().with_schema(schema.clone()).build(nothing);
    encoder.known_schema().unwrap_or_else(|| Arc::new(Schema::empty()))
}

/// What a statement did: written when it ends, whoever ends it. Never what is in its rows.
pub(crate) struct Log {
    caller: String,
    rows: u64,
    bytes: u64,
    started: Instant,
    /// Why it ended; nothing if the client has left.
    outcome: Option<String>,
}

impl Log {
    pub(crate) fn start(caller: &Caller) -> Self {
        info!(caller = caller.name, "statement started");
        Self { caller: caller.name.clone(), rows: 0, bytes: 0, started: Instant::now(), outcome: None }
    }

    pub(crate) fn note(&mut self, batch: &RecordBatch) {
        self.rows += batch.num_rows() as u64;
        self.bytes += batch.get_array_memory_size() as u64;
    }

    pub(crate) fn end(&mut self, error: Option<&AnswerError>) {
        // The kind only: a sentence may quote what it is about.
        self.outcome = Some(error.map_or_else(|| "complete".to_owned(), |error| format!("{:?}", error.kind)));
    }

    /// Notes the rows as they pass by.
    pub(crate) fn along(mut self, rows: Rows) -> Rows {
        let Rows { schema, mut batches } = rows;
        let batches = stream::poll_fn(move |context| {
            let next = batches.poll_next_unpin(context);
            match &next {
                std::task::Poll::Ready(Some(Ok(batch))) => self.note(batch),
                std::task::Poll::Ready(Some(Err(error))) => self.end(Some(error)),
                // An error has been noted, and nothing comes after it.
                std::task::Poll::Ready(None) if self.outcome.is_none() => self.end(None),
                _ => {}
            }
            next
        });
        Rows { schema, batches: batches.boxed() }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let Self { caller, rows, bytes, started, outcome } = self;
        let milliseconds = started.elapsed().as_millis() as u64;
        let outcome = outcome.as_deref().unwrap_or("cancelled");
        info!(caller, rows, bytes, milliseconds, outcome, "statement ended");
    }
}
