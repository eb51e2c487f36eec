//! What is done with statements: ticket, schema, rows, and changes.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Schema, SchemaRef, UInt64Type};
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::sql::{ActionCreatePreparedStatementResult, Command};
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, IpcMessage, SchemaAsIpc, Ticket};
use bytes::Bytes;
use futures::StreamExt;
use tracing::debug;

use crate::delivery::{Log, wire_schema};
use crate::error::refuse;
use crate::request::{bounded, ticket};
use crate::service::Service;
use crate::spool::Spool;
use crate::tickets::{Place, Serve};
use crate::{AnswerError, Caller, KEPT, Kind, Prepared, Rows};

impl Service {
    /// The statement that a command executes.
    pub(crate) fn statement(&self, caller: &Caller, command: &Command) -> Result<Option<Arc<str>>, AnswerError> {
        match command {
            Command::CommandStatementQuery(command) => {
                no_transaction(&command.transaction_id)?;
                Ok(Some(command.query.as_str().into()))
            }
            Command::CommandStatementUpdate(command) => {
                no_transaction(&command.transaction_id)?;
                Ok(Some(command.query.as_str().into()))
            }
            Command::CommandPreparedStatementQuery(command) => {
                self.tickets.sql(caller, &command.prepared_statement_handle).map(Some)
            }
            Command::CommandPreparedStatementUpdate(command) => {
                self.tickets.sql(caller, &command.prepared_statement_handle).map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(crate) async fn prepare(&self, caller: &Caller, sql: &str) -> Result<Prepared, AnswerError> {
        let sql = bounded(sql)?;
        debug!(caller = caller.name, sql = self.answers.told(sql), "statement");
        self.answers.prepare(caller, sql).await
    }

    /// A ticket for a statement.
    pub(crate) async fn ticket(
        &self,
        caller: &Caller,
        sql: &str,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, AnswerError> {
        let Prepared { schema, run, keep } = self.prepare(caller, sql).await?;
        let ticket = ticket(self.tickets.issue(caller, run, keep)?);
        let kept = if keep { Bytes::from_static(KEPT) } else { Bytes::new() };
        info(schema.as_ref(), ticket, kept, descriptor)
    }

    /// Remembers a statement that was planned once, so that mistakes are told now.
    pub(crate) async fn create(
        &self,
        caller: &Caller,
        sql: &str,
    ) -> Result<ActionCreatePreparedStatementResult, AnswerError> {
        let prepared = self.prepare(caller, sql).await?;
        let handle = self.tickets.remember(caller, sql)?;
        let dataset_schema =
            prepared.schema.as_ref().map_or(Ok(Bytes::new()), |schema| encoded(&wire_schema(schema)))?;
        let parameter_schema = encoded(&Schema::empty())?;
        let prepared_statement_handle = handle.to_vec().into();
        Ok(ActionCreatePreparedStatementResult { prepared_statement_handle, dataset_schema, parameter_schema })
    }

    /// The rows of a ticket.
    pub(crate) async fn rows(&self, caller: &Caller, name: &[u8], from: u64) -> Result<Rows, AnswerError> {
        let spool = |run, place: Place| Spool::start(run, self.spool_place.clone(), Log::start(caller), place);
        match self.tickets.serve(caller, name, || self.place(), spool)? {
            Serve::Kept(spool) => spool.read(from).await,
            Serve::Once(_, _) if from > 0 => refuse(
                Kind::Precondition,
                "this statement is not kept, so that nothing can go on from a row; ask for the statement again",
            ),
            Serve::Once(run, place) => {
                let mut log = Log::start(caller);
                let rows = run.start().await.inspect_err(|error| log.end(Some(error)))?;
                let Rows { schema, batches } = log.along(rows);
                // The place is taken until the stream is dropped.
                let batches = batches.inspect(move |_| _ = &place).boxed();
                Ok(Rows { schema, batches })
            }
        }
    }

    /// Runs a statement that is no query, and counts the rows that it changed.
    pub(crate) async fn update(&self, caller: &Caller, sql: &str) -> Result<i64, AnswerError> {
        let Prepared { schema, run, .. } = self.prepare(caller, sql).await?;
        if schema.is_some_and(|schema| !schema.fields().is_empty()) {
            return refuse(Kind::Invalid, "this is a query and changes nothing: execute it as a query to get its rows");
        }
        let _place = self.place()?;
        let mut log = Log::start(caller);
        let rows = run.start().await.inspect_err(|error| log.end(Some(error)))?;
        let mut batches = log.along(rows).batches;
        let mut changed = 0_i64;
        while let Some(batch) = batches.next().await {
            changed = changed.saturating_add(count_in(&batch?));
        }
        Ok(changed)
    }

    /// A place for a statement to run in.
    fn place(&self) -> Result<Place, AnswerError> {
        let sentence = "as many statements run here as this server allows; try again later";
        self.places.clone().try_acquire_owned().map_err(|_| AnswerError::new(Kind::Exhausted, sentence))
    }
}

/// A statement that changes rows says how many in a column `count`.
fn count_in(batch: &RecordBatch) -> i64 {
    let schema = batch.schema();
    let counts = match schema.fields().first() {
        Some(field) if field.name() == "count" && field.data_type() == &DataType::UInt64 => batch.column(0),
        _ => return 0,
    };
    let total: u64 = counts.as_primitive::<UInt64Type>().iter().flatten().fold(0, u64::saturating_add);
    i64::try_from(total).unwrap_or(i64::MAX)
}

fn no_transaction(id: &Option<Bytes>) -> Result<(), AnswerError> {
    match id.as_ref().is_none_or(|id| id.is_empty()) {
        true => Ok(()),
        false => refuse(Kind::Unsupported, "this server has no transactions: every statement stands alone"),
    }
}

/// Where to get rows, and what they look like.
pub(crate) fn info(
    schema: Option<&SchemaRef>,
    ticket: Ticket,
    app_metadata: Bytes,
    descriptor: FlightDescriptor,
) -> Result<FlightInfo, AnswerError> {
    let endpoint = FlightEndpoint::new().with_ticket(ticket).with_app_metadata(app_metadata);
    let info = FlightInfo::new().with_endpoint(endpoint).with_descriptor(descriptor);
    match schema {
        Some(schema) => info.try_with_schema(&wire_schema(schema)).map_err(|error| unwritable(&error)),
        None => Ok(info),
    }
}

/// A schema as a message.
pub(crate) fn encoded(schema: &Schema) -> Result<Bytes, AnswerError> {
    let options = IpcWriteOptions::default();
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &options).try_into().map_err(|error| unwritable(&error))?;
    Ok(bytes)
}

fn unwritable(error: &arrow::error::ArrowError) -> AnswerError {
    AnswerError::new(Kind::Internal, format!("the columns cannot be described: {error}"))
}
