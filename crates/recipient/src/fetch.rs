//! Fetches releases over Flight SQL: goes on where a connection broke, and tells the server when all has come.

use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{CommandGetTables, CommandStatementQuery, ProstMessageExt};
use arrow_flight::{Action, FlightDescriptor, Ticket};
use futures::TryStreamExt;
use prost::Message;
use tokio::sync::mpsc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use veil_flight_p2::{is_refused_certificate, reason};
use veil_flight_sql::{DONE_ACTION, FROM_HEADER, KEPT};

use crate::incoming::Incoming;
use crate::read_ahead::{Place, ReadAhead};
use crate::server::{FetchTls, Token, connect};
use crate::{Opener, RecipientError};

/// A way to a server that releases. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Fetch {
    url: String,
    client: FlightServiceClient<Channel>,
    authorization: Option<MetadataValue<Ascii>>,
    patience: Patience,
}

/// How often a lost connection is tried again before anything new has come, and how long the first wait is; waits double up
/// to five seconds.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Tries.
    pub tries: u32,
    /// The first wait.
    pub first: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { tries: 10, first: Duration::from_millis(100) }
    }
}

/// A server from which nothing has come is soon reported.
const FIRST_TRIES: u32 = 4;

const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A statement that the server knows.
#[derive(Clone, Debug)]
pub(crate) struct Promised {
    ticket: Ticket,
    is_kept: bool,
}

impl Fetch {
    /// Connects to a server.
    pub async fn connect(url: &str, tls: Option<&FetchTls>, token: Option<&Token>) -> Result<Self, RecipientError> {
        let authorization = token.map(Token::header).transpose()?;
        let client = connect(url, tls, authorization.is_some()).await?;
        Ok(Self { url: url.to_owned(), client, authorization, patience: Patience::default() })
    }

    /// With other patience.
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Asks for a statement that releases, and opens what comes.
    pub async fn sql(&self, sql: &str, opener: Opener) -> Result<Incoming, RecipientError> {
        // One batch is ready while the next is made.
        self.sql_ahead(sql, opener, ReadAhead::new(0).place()).await
    }

    /// The same, and goes on in the background as far as there is room.
    pub(crate) async fn sql_ahead(&self, sql: &str, opener: Opener, place: Place) -> Result<Incoming, RecipientError> {
        let query = CommandStatementQuery { query: sql.to_owned(), transaction_id: None };
        let promised = self.promise(query.as_any().encode_to_vec()).await?;
        Ok(Incoming::new(self.clone(), promised, opener, place))
    }

    /// The server's tables: catalog, schema, name and type of each.
    pub async fn tables(&self) -> Result<Vec<[String; 4]>, RecipientError> {
        let promised = self.promise(CommandGetTables::default().as_any().encode_to_vec()).await?;
        let batches: Vec<RecordBatch> =
            self.rows(&promised, 0).await?.try_collect().await.map_err(|error| refused(status_of(error)))?;
        let mut tables = Vec::new();
        for batch in batches {
            let columns = ["catalog_name", "db_schema_name", "table_name", "table_type"]
                .map(|name| batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>()));
            for row in 0..batch.num_rows() {
                tables
                    .push(columns.map(|column| column.map(|column| column.value(row).to_owned()).unwrap_or_default()));
            }
        }
        Ok(tables)
    }

    async fn promise(&self, command: Vec<u8>) -> Result<Promised, RecipientError> {
        let mut failures = 0;
        let info = loop {
            let request = self.request(FlightDescriptor::new_cmd(command.clone()));
            // Nothing has run yet, so that asking again changes nothing.
            match self.client.clone().get_flight_info(request).await {
                Ok(info) => break info.into_inner(),
                Err(status) => self.wait(&mut failures, status, 0).await?,
            }
        };
        let endpoint = info.endpoint.into_iter().next();
        let kept = endpoint.as_ref().is_some_and(|endpoint| endpoint.app_metadata == KEPT);
        match endpoint.and_then(|endpoint| endpoint.ticket) {
            Some(ticket) => Ok(Promised { ticket, is_kept: kept }),
            None => Err(RecipientError::NoRelease("the server gave no ticket".to_owned())),
        }
    }

    /// Sends all rows of a statement on, in spite of lost connections; ends when nobody listens any more.
    pub(crate) async fn receive(self, promised: Promised, to: mpsc::Sender<Result<RecordBatch, RecipientError>>) {
        let (mut rows, mut failures) = (0, 0);
        loop {
            let lost = match self.stream(&promised, rows).await {
                Err(status) => status,
                Ok(mut batches) => loop {
                    match batches.try_next().await {
                        Ok(None) => return,
                        Ok(Some(batch)) => {
                            (rows, failures) = (rows + batch.num_rows() as u64, 0);
                            if to.send(Ok(batch)).await.is_err() {
                                return;
                            }
                        }
                        Err(error) => break status_of(error),
                    }
                },
            };
            let outcome = match promised.is_kept {
                true => self.wait(&mut failures, lost, rows).await,
                false => Err(refused(lost)),
            };
            if let Err(error) = outcome {
                // Nobody may be there to hear it.
                let _ = to.send(Err(error)).await;
                return;
            }
        }
    }

    /// Tells the server that all has come. If it does not hear it, the ticket expires.
    pub(crate) async fn done(&self, promised: &Promised) {
        if promised.is_kept {
            let action = Action { r#type: DONE_ACTION.to_owned(), body: promised.ticket.ticket.clone() };
            let _ = self.client.clone().do_action(self.request(action)).await;
        }
    }

    async fn rows(&self, promised: &Promised, from: u64) -> Result<FlightRecordBatchStream, RecipientError> {
        self.stream(promised, from).await.map_err(refused)
    }

    async fn stream(&self, promised: &Promised, from: u64) -> Result<FlightRecordBatchStream, Status> {
        let mut request = self.request(promised.ticket.clone());
        if from > 0 {
            request.metadata_mut().insert(FROM_HEADER, MetadataValue::from(from));
        }
        let messages = self.client.clone().do_get(request).await?.into_inner();
        let messages = messages.map_err(|status| FlightError::Tonic(Box::new(status)));
        Ok(FlightRecordBatchStream::new_from_flight_data(messages))
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    /// Waits before another try, or says why there is none.
    async fn wait(&self, failures: &mut u32, status: Status, rows: u64) -> Result<(), RecipientError> {
        if !is_lost(&status) {
            return Err(refused(status));
        }
        let (url, why) = (self.url.clone(), reason(&status));
        // A server that wants another certificate wants it the next time too.
        if is_refused_certificate(&why) || (rows == 0 && *failures >= self.patience.tries.min(FIRST_TRIES)) {
            return Err(RecipientError::Unreachable { url, why });
        }
        if *failures >= self.patience.tries {
            return Err(RecipientError::Lost { url, rows, why });
        }
        let wait = self.patience.first.saturating_mul(1 << (*failures).min(16)).min(LONGEST_WAIT);
        *failures += 1;
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// Whether it is the connection that failed. What a server says itself has no source.
fn is_lost(status: &Status) -> bool {
    status.code() == Code::Unavailable || std::error::Error::source(status).is_some()
}

fn refused(status: Status) -> RecipientError {
    RecipientError::Refused(Box::new(status))
}

fn status_of(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        other => Status::data_loss(format!("the server's rows cannot be read: {other}")),
    }
}
