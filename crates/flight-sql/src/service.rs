//! The Flight methods, and what each of them takes.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::metadata::SqlInfoData;
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, Any, Command, DoPutUpdateResult,
    ProstMessageExt,
};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, future};
use prost::Message;
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, info as log_info};

use crate::caller::caller_of;
use crate::delivery::{self, Messages};
use crate::error::refuse;
use crate::request::{self, Asked};
use crate::spool::SpoolPlace;
use crate::statements::{encoded, info};
use crate::tickets::Tickets;
use crate::{AnswerError, Answers, Caller, DONE_ACTION, Kind, catalog};

/// SQL over Flight.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) answers: Arc<dyn Answers>,
    pub(crate) tickets: Arc<Tickets>,
    pub(crate) spool_place: SpoolPlace,
    /// Statements that run at the same time.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) sql_info: Arc<SqlInfoData>,
    /// True once streams must end.
    pub(crate) stopping: watch::Receiver<bool>,
}

const CREATE: &str = "CreatePreparedStatement";
const CLOSE: &str = "ClosePreparedStatement";
const ACTIONS: [(&str, &str); 3] = [
    (CREATE, "Remembers a statement. The body is an ActionCreatePreparedStatementRequest."),
    (CLOSE, "Forgets a statement. The body is an ActionClosePreparedStatementRequest."),
    (DONE_ACTION, "Ends a kept statement and deletes its rows. The body is its ticket."),
];

impl Service {
    async fn flight_info(&self, caller: &Caller, descriptor: FlightDescriptor) -> Result<FlightInfo, AnswerError> {
        let command = match request::asked(&descriptor)? {
            Asked::Sql(sql) => return self.ticket(caller, &sql, descriptor).await,
            Asked::Command(command) => *command,
        };
        if let Some(sql) = self.statement(caller, &command)? {
            return self.ticket(caller, &sql, descriptor).await;
        }
        let schema = catalog::schema(&command, &self.sql_info)?;
        // Whoever asks about the catalog gets what it asked for as its ticket.
        info(Some(&schema), Ticket::new(descriptor.cmd.clone()), Bytes::new(), descriptor)
    }

    async fn schema(&self, caller: &Caller, descriptor: &FlightDescriptor) -> Result<SchemaResult, AnswerError> {
        let sql = match request::asked(descriptor)? {
            Asked::Sql(sql) => sql.into(),
            Asked::Command(command) => match self.statement(caller, &command)? {
                Some(sql) => sql,
                None => return Ok(SchemaResult { schema: encoded(&*catalog::schema(&command, &self.sql_info)?)? }),
            },
        };
        match self.prepare(caller, &sql).await?.schema {
            Some(schema) => Ok(SchemaResult { schema: encoded(&delivery::wire_schema(&schema))? }),
            None => refuse(Kind::Precondition, "the columns of this statement are not known before it runs"),
        }
    }

    async fn get(&self, caller: &Caller, ticket: &Ticket, from: u64) -> Result<Messages, AnswerError> {
        let Some(command) = request::command(&ticket.ticket)? else {
            return refuse(Kind::Invalid, "this is no ticket of this server; get one from GetFlightInfo");
        };
        let messages = match &command {
            Command::TicketStatementQuery(query) => {
                delivery::messages(self.rows(caller, &query.statement_handle, from).await?)
            }
            Command::CommandPreparedStatementQuery(query) => {
                let sql = self.tickets.sql(caller, &query.prepared_statement_handle)?;
                let prepared = self.prepare(caller, &sql).await?;
                let name = self.tickets.issue(caller, prepared.run, prepared.keep)?;
                delivery::messages(self.rows(caller, &name, from).await?)
            }
            _ => delivery::one_batch(catalog::answer(command, &self.answers, caller, &self.sql_info).await?),
        };
        Ok(self.until_stopped(messages))
    }

    /// What a `DoPut` does: statements that change something.
    async fn put(&self, caller: &Caller, mut stream: Streaming<FlightData>) -> Result<i64, AnswerError> {
        let first = stream.message().await.map_err(|status| AnswerError::of_status(&status))?;
        let Some(descriptor) = first.and_then(|message| message.flight_descriptor) else {
            return refuse(Kind::Invalid, "the upload does not say what it is: its first message needs a descriptor");
        };
        let command = request::command(&descriptor.cmd)?;
        match command {
            Some(Command::CommandPreparedStatementQuery(_)) => {
                refuse(Kind::Invalid, "this server takes no parameters: write the values into the statement")
            }
            Some(command @ (Command::CommandStatementUpdate(_) | Command::CommandPreparedStatementUpdate(_))) => {
                match self.statement(caller, &command)? {
                    Some(sql) => self.update(caller, &sql).await,
                    None => refuse(Kind::Internal, "the command has no statement"),
                }
            }
            _ => refuse(
                Kind::Unsupported,
                "this server takes no uploads: tables come from files that its operator names",
            ),
        }
    }

    async fn act(&self, caller: &Caller, action: &Action) -> Result<Option<Bytes>, AnswerError> {
        match action.r#type.as_str() {
            CREATE => {
                let request: ActionCreatePreparedStatementRequest = body_of(action)?;
                let created = self.create(caller, &request.query).await?;
                Ok(Some(created.as_any().encode_to_vec().into()))
            }
            CLOSE => {
                let request: ActionClosePreparedStatementRequest = body_of(action)?;
                self.tickets.close(caller, &request.prepared_statement_handle).map(|()| None)
            }
            DONE_ACTION => self.tickets.end(caller, &request::name_in(&action.body)?).map(|()| None),
            other => {
                let known = ACTIONS.map(|(name, _)| name).join(", ");
                refuse(Kind::Unsupported, format!("this server has no action {other}; it has {known}"))
            }
        }
    }

    /// Ends a stream when the server must stop.
    fn until_stopped(&self, messages: Messages) -> Messages {
        let (mut stopping, stopped) = (self.stopping.clone(), self.stopping.clone());
        let stop = async move {
            // A server that is gone without a word stops nothing.
            if stopping.wait_for(|stop| *stop).await.is_err() {
                future::pending::<()>().await;
            }
        };
        let last_word = stream::once(async move {
            let why = "the server is stopping; ask again when it is back";
            stopped.borrow().then(|| Err(AnswerError::new(Kind::Unavailable, why).into()))
        });
        messages.take_until(stop).chain(last_word.filter_map(future::ready)).boxed()
    }
}

/// The request in an action's body.
fn body_of<T: ProstMessageExt + Default>(action: &Action) -> Result<T, AnswerError> {
    let request = Any::decode(&*action.body).ok().and_then(|any| any.unpack::<T>().ok().flatten());
    let damaged = || AnswerError::new(Kind::Invalid, format!("the body of {} is damaged", action.r#type));
    request.ok_or_else(damaged)
}

type Reply<T> = Result<Response<T>, Status>;

/// The status of a refusal, with a line in the log that quotes nothing.
fn refused(method: &'static str, caller: &Caller, error: AnswerError) -> Status {
    log_info!(method, caller = caller.name, role = %caller.role, kind = ?error.kind, "refused");
    debug!(%error, "refused");
    error.into()
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = BoxStream<'static, Result<HandshakeResponse, Status>>;
    type ListFlightsStream = BoxStream<'static, Result<FlightInfo, Status>>;
    type DoGetStream = Messages;
    type DoPutStream = BoxStream<'static, Result<PutResult, Status>>;
    type DoActionStream = BoxStream<'static, Result<arrow_flight::Result, Status>>;
    type ListActionsStream = BoxStream<'static, Result<ActionType, Status>>;
    type DoExchangeStream = Messages;

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Reply<FlightInfo> {
        let caller = caller_of(&request)?;
        let answer = self.flight_info(&caller, request.into_inner()).await;
        answer.map(Response::new).map_err(|error| refused("GetFlightInfo", &caller, error))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Reply<SchemaResult> {
        let caller = caller_of(&request)?;
        let answer = self.schema(&caller, request.get_ref()).await;
        answer.map(Response::new).map_err(|error| refused("GetSchema", &caller, error))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Reply<Self::DoGetStream> {
        let caller = caller_of(&request)?;
        let from = request::from_row(&request)?;
        let answer = self.get(&caller, request.get_ref(), from).await;
        answer.map(Response::new).map_err(|error| refused("DoGet", &caller, error))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Reply<Self::DoPutStream> {
        let caller = caller_of(&request)?;
        let changed = self.put(&caller, request.into_inner()).await;
        let record_count = changed.map_err(|error| refused("DoPut", &caller, error))?;
        let app_metadata = DoPutUpdateResult { record_count }.encode_to_vec().into();
        Ok(Response::new(stream::iter([Ok(PutResult { app_metadata })]).boxed()))
    }

    async fn do_action(&self, request: Request<Action>) -> Reply<Self::DoActionStream> {
        let caller = caller_of(&request)?;
        let body = self.act(&caller, request.get_ref()).await;
        let body = body.map_err(|error| refused("DoAction", &caller, error))?;
        let results = body.into_iter().map(|body| Ok(arrow_flight::Result { body })).collect::<Vec<_>>();
        Ok(Response::new(stream::iter(results).boxed()))
    }

    async fn list_actions(&self, _: Request<Empty>) -> Reply<Self::ListActionsStream> {
        let known = ACTIONS.map(|(r#type, text)| Ok(ActionType { r#type: r#type.into(), description: text.into() }));
        Ok(Response::new(stream::iter(known).boxed()))
    }

    async fn handshake(&self, _: Request<Streaming<HandshakeRequest>>) -> Reply<Self::HandshakeStream> {
        Err(unsupported("this server has no logins: send a token in the header authorization, or show a certificate"))
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Reply<Self::ListFlightsStream> {
        Err(unsupported("this server lists tables (GetTables), not flights"))
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Reply<PollInfo> {
        Err(unsupported("this server is asked with GetFlightInfo"))
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Reply<Self::DoExchangeStream> {
        Err(unsupported("this server exchanges nothing: it takes SQL and gives rows"))
    }
}

fn unsupported(sentence: &str) -> Status {
    AnswerError::new(Kind::Unsupported, sentence).into()
}
