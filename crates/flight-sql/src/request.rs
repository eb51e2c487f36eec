//! What a descriptor, a ticket or an action asks for.

use arrow_flight::sql::{Any, Command, ProstMessageExt, TicketStatementQuery};
use arrow_flight::{FlightDescriptor, Ticket};
use prost::Message;
use tonic::Request;

use crate::error::refuse;
use crate::tickets::Name;
use crate::{AnswerError, FROM_HEADER, Kind};

/// The longest statement.
const LONGEST_SQL: usize = 1 << 20;

/// What a descriptor asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// SQL without any envelope.
    Sql(String),
    /// A command of Flight SQL.
    Command(Box<Command>),
}

/// Reads a descriptor: a command of Flight SQL, or the text of a statement.
pub(crate) fn asked(descriptor: &FlightDescriptor) -> Result<Asked, AnswerError> {
    if descriptor.cmd.is_empty() {
        return refuse(Kind::Invalid, "there is no statement in the request: give SQL, or a command of Flight SQL");
    }
    if let Some(command) = command(&descriptor.cmd)? {
        return Ok(Asked::Command(Box::new(command)));
    }
    match std::str::from_utf8(&descriptor.cmd) {
        Ok(text) if !text.chars().any(|letter| letter.is_control() && !letter.is_whitespace()) => {
            bounded(text).map(|sql| Asked::Sql(sql.to_owned()))
        }
        _ => refuse(Kind::Invalid, "the command is neither one of Flight SQL nor the text of a statement"),
    }
}

/// A command in a message, or None if the message is something else.
pub(crate) fn command(bytes: &[u8]) -> Result<Option<Command>, AnswerError> {
    let Some(any) = Any::decode(bytes).ok().filter(|any| any.type_url.contains("arrow.flight.protocol.sql.")) else {
        return Ok(None);
    };
    match Command::try_from(any) {
        Ok(Command::Unknown(any)) => {
            refuse(Kind::Unsupported, format!("this server does not know the command {}", any.type_url))
        }
        Ok(command) => Ok(Some(command)),
        Err(_) => refuse(Kind::Invalid, "the command of Flight SQL in the request is damaged"),
    }
}

/// A statement of a sensible length.
pub(crate) fn bounded(sql: &str) -> Result<&str, AnswerError> {
    match sql.len() {
        0..=LONGEST_SQL => Ok(sql),
        found => refuse(Kind::Exhausted, format!("the statement has {found} bytes, and {LONGEST_SQL} are the most")),
    }
}

/// A ticket, as clients send it back.
pub(crate) fn ticket(name: Name) -> Ticket {
    let query = TicketStatementQuery { statement_handle: name.to_vec().into() };
    Ticket::new(query.as_any().encode_to_vec())
}

/// The name in a ticket that stands somewhere else than in a `DoGet`.
pub(crate) fn name_in(ticket: &[u8]) -> Result<Vec<u8>, AnswerError> {
    match command(ticket)? {
        Some(Command::TicketStatementQuery(query)) => Ok(query.statement_handle.into()),
        _ => refuse(Kind::Invalid, "the body is not a ticket of this server; send the ticket's bytes as they came"),
    }
}

/// How many rows to leave out.
pub(crate) fn from_row<T>(request: &Request<T>) -> Result<u64, AnswerError> {
    let Some(value) = request.metadata().get(FROM_HEADER) else { return Ok(0) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| AnswerError::new(Kind::Invalid, format!("{FROM_HEADER} must be a number of rows, from 0")))
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::{CommandGetCatalogs, CommandStatementQuery};

    use super::*;

    fn of(bytes: Vec<u8>) -> Result<Asked, Kind> {
        asked(&FlightDescriptor::new_cmd(bytes)).map_err(|error| error.kind)
    }

    #[test]
    fn commands_and_plain_text_are_told_apart() {
        let query = CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id: None };
        assert!(matches!(of(query.as_any().encode_to_vec()), Ok(Asked::Command(command))
            if matches!(*command, Command::CommandStatementQuery(_))));
        assert!(matches!(of(CommandGetCatalogs {}.as_any().encode_to_vec()), Ok(Asked::Command(_))));
        for sql in ["SELECT 1", "select 'grün'\n\tFROM t", "\"x\"", "WITH a AS (SELECT 1) SELECT * FROM a"] {
            assert!(matches!(of(sql.into()), Ok(Asked::Sql(text)) if text == sql), "{sql}");
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        let any =
            |url: &str, value: &[u8]| Any { type_url: url.to_owned(), value: value.to_vec().into() }.encode_to_vec();
        assert_eq!(of(Vec::new()).unwrap_err(), Kind::Invalid);
        assert_eq!(of(vec![0xff, 0xfe]).unwrap_err(), Kind::Invalid);
        assert_eq!(of(any("type.googleapis.com/else", b"\x01")).unwrap_err(), Kind::Invalid);
        let url = "type.googleapis.com/arrow.flight.protocol.sql.";
        assert_eq!(of(any(&format!("{url}CommandStatementQuery"), b"\x0a\xff")).unwrap_err(), Kind::Invalid);
        assert_eq!(of(any(&format!("{url}CommandOfTomorrow"), b"")).unwrap_err(), Kind::Unsupported);
        assert_eq!(of(vec![b'x'; LONGEST_SQL + 1]).unwrap_err(), Kind::Exhausted);
    }
}
