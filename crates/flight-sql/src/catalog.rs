//! `GetTables` and its relatives: what there is to ask about.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::SqlInfoData;
use arrow_flight::sql::{
    Command, CommandGetCatalogs, CommandGetDbSchemas, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
};

use crate::error::refuse;
use crate::{AnswerError, Answers, Caller, Kind};

/// The columns of the answer to a command about the catalog.
pub(crate) fn schema(command: &Command, info: &SqlInfoData) -> Result<SchemaRef, AnswerError> {
    match command {
        Command::CommandGetCatalogs(command) => Ok(command.into_builder().schema()),
        Command::CommandGetDbSchemas(command) => Ok(command.clone().into_builder().schema()),
        Command::CommandGetTables(command) => Ok(command.clone().into_builder().schema()),
        Command::CommandGetTableTypes(command) => Ok(command.into_builder().schema()),
        Command::CommandGetSqlInfo(_) => Ok(info.schema()),
        other => unsupported(other),
    }
}

/// The answer to a command about the catalog.
pub(crate) async fn answer(
    command: Command,
    answers: &Arc<dyn Answers>,
    caller: &Caller,
    info: &SqlInfoData,
) -> Result<RecordBatch, AnswerError> {
    match command {
        Command::CommandGetCatalogs(command) => catalogs(command, answers, caller).await,
        Command::CommandGetDbSchemas(command) => db_schemas(command, answers, caller).await,
        Command::CommandGetTables(command) => tables(command, answers, caller).await,
        Command::CommandGetTableTypes(command) => table_types(command, answers, caller).await,
        Command::CommandGetSqlInfo(command) => sql_info(command, info),
        other => unsupported(&other),
    }
}

async fn catalogs(
    command: CommandGetCatalogs,
    answers: &Arc<dyn Answers>,
    caller: &Caller,
) -> Result<RecordBatch, AnswerError> {
    let mut builder = command.into_builder();
    let names: BTreeSet<String> = answers.tables(caller).await?.into_iter().map(|table| table.catalog).collect();
    names.into_iter().for_each(|name| builder.append(name));
    builder.build().map_err(|error| failed(&error))
}

async fn db_schemas(
    command: CommandGetDbSchemas,
    answers: &Arc<dyn Answers>,
    caller: &Caller,
) -> Result<RecordBatch, AnswerError> {
    let mut builder = command.into_builder();
    let tables = answers.tables(caller).await?;
    let names: BTreeSet<_> = tables.into_iter().map(|table| (table.catalog, table.schema)).collect();
    names.into_iter().for_each(|(catalog, schema)| builder.append(catalog, schema));
    builder.build().map_err(|error| failed(&error))
}

async fn tables(
    command: CommandGetTables,
    answers: &Arc<dyn Answers>,
    caller: &Caller,
) -> Result<RecordBatch, AnswerError> {
    let mut builder = command.into_builder();
    let unknown = Arc::new(Schema::empty());
    for entry in answers.tables(caller).await? {
        let columns = entry.columns.as_ref().unwrap_or(&unknown);
        let appended = builder.append(entry.catalog, entry.schema, entry.table, entry.table_type, columns);
        appended.map_err(|error| failed(&error))?;
    }
    builder.build().map_err(|error| failed(&error))
}

async fn table_types(
    command: CommandGetTableTypes,
    answers: &Arc<dyn Answers>,
    caller: &Caller,
) -> Result<RecordBatch, AnswerError> {
    let mut builder = command.into_builder();
    let names: BTreeSet<String> = answers.tables(caller).await?.into_iter().map(|table| table.table_type).collect();
    names.iter().for_each(|name| builder.append(name));
    builder.build().map_err(|error| failed(&error))
}

fn sql_info(command: CommandGetSqlInfo, info: &SqlInfoData) -> Result<RecordBatch, AnswerError> {
    command.into_builder(info).build().map_err(|error| failed(&error))
}

fn failed(error: &FlightError) -> AnswerError {
    AnswerError::new(Kind::Internal, format!("the list could not be made: {error}"))
}

fn unsupported<T>(command: &Command) -> Result<T, AnswerError> {
    let name = command.type_url().rsplit('.').next().unwrap_or_default();
    refuse(
        Kind::Unsupported,
        format!("this server does not answer {name}: it takes SQL, and lists catalogs, schemas and tables"),
    )
}
