//! Statements over a real port: queries, changes, lists, and every refusal.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Schema;
use arrow_flight::sql::{CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables, SqlInfo};
use arrow_flight::{Action, FlightDescriptor, Ticket};
use futures::TryStreamExt;
use support::{Client, Site, numbers, only_ticket, read, refusal, ticket};
use tonic::Code;

async fn table(client: &mut Client, info: arrow_flight::FlightInfo) -> RecordBatch {
    let promised = info.clone().try_decode_schema().unwrap();
    let batches: Vec<RecordBatch> = client.do_get(only_ticket(info)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].schema().as_ref(), &promised);
    batches.into_iter().next().unwrap()
}

fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let column = batch.column_by_name(column).unwrap().as_string::<i32>();
    column.iter().flatten().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_query_gives_its_columns_then_its_rows_once() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let info = client.execute("rows 25".to_owned(), None).await.unwrap();
    assert_eq!(&info.clone().try_decode_schema().unwrap(), numbers().as_ref());
    assert!(info.endpoint[0].app_metadata.is_empty());
    let ticket = only_ticket(info);
    assert_eq!(read(&mut client, ticket.clone()).await, ((0..25).collect(), None));
    let error = refusal(&mut client, ticket).await;
    assert!(error.contains("this ticket has been used"), "{error}");
    // No rows still have columns.
    let none = support::ticket(&mut client, "rows 0").await;
    assert_eq!(read(&mut client, none).await, (vec![], None));
}

#[tokio::test]
async fn plain_text_is_a_statement_too() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let descriptor = FlightDescriptor::new_cmd("rows 12");
    let info = client.inner_mut().get_flight_info(descriptor.clone()).await.unwrap().into_inner();
    assert_eq!(read(&mut client, only_ticket(info)).await.0, (0..12).collect::<Vec<_>>());
    let schema = client.inner_mut().get_schema(descriptor).await.unwrap().into_inner();
    assert_eq!(&Schema::try_from(&schema).unwrap(), numbers().as_ref());
    for (wrong, code) in
        [("nonsense", Code::InvalidArgument), ("", Code::InvalidArgument), ("\u{1}", Code::InvalidArgument)]
    {
        let error = client.inner_mut().get_flight_info(FlightDescriptor::new_cmd(wrong)).await.unwrap_err();
        assert_eq!(error.code(), code, "{wrong}");
    }
    let unknown = client.inner_mut().get_schema(FlightDescriptor::new_cmd("change 1")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn what_was_promised_is_what_comes() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let info = client.execute("words".to_owned(), None).await.unwrap();
    let words = table(&mut client, info).await;
    assert_eq!(texts(&words, "word"), ["a", "b", "a"]);
}

#[tokio::test]
async fn prepared_statements_run_again_until_they_are_closed() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let mut prepared = client.prepare("rows 11".to_owned(), None).await.unwrap();
    assert_eq!(prepared.dataset_schema().unwrap(), numbers().as_ref());
    for _ in 0..2 {
        let info = prepared.execute().await.unwrap();
        assert_eq!(read(&mut client, only_ticket(info)).await.0.len(), 11);
    }
    prepared
        .set_parameters(
            RecordBatch::try_from_iter([("p", std::sync::Arc::new(Int64Array::from(vec![1])) as _)]).unwrap(),
        )
        .unwrap();
    let error = prepared.execute().await.unwrap_err().to_string();
    assert!(error.contains("takes no parameters"), "{error}");
    prepared.close().await.unwrap();

    let mut change = client.prepare("change 4".to_owned(), None).await.unwrap();
    assert_eq!(change.dataset_schema().unwrap(), &Schema::empty());
    assert_eq!(change.execute_update().await.unwrap(), 4);
    let error = client.prepare("nonsense".to_owned(), None).await.err().unwrap().to_string();
    assert!(error.contains("there is no statement nonsense"), "{error}");
}

#[tokio::test]
async fn changes_are_counted_and_queries_change_nothing() {
    let site = Site::new().await;
    let mut client = site.client().await;
    assert_eq!(client.execute_update("change 7".to_owned(), None).await.unwrap(), 7);
    let error = client.execute_update("rows 7".to_owned(), None).await.unwrap_err().to_string();
    assert!(error.contains("this is a query"), "{error}");
    // Drivers that do not know what a statement is send it as a query; its columns are known when it is done.
    let info = client.execute("change 3".to_owned(), None).await.unwrap();
    assert!(info.schema.is_empty());
    let counts: Vec<RecordBatch> = client.do_get(only_ticket(info)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(counts[0].num_rows(), 1);
}

#[tokio::test]
async fn tables_are_listed_by_patterns() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let info = client.get_catalogs().await.unwrap();
    assert_eq!(texts(&table(&mut client, info).await, "catalog_name"), ["veil"]);
    let info = client.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
    assert_eq!(texts(&table(&mut client, info).await, "db_schema_name"), ["other", "public"]);
    let info = client.get_table_types().await.unwrap();
    assert_eq!(texts(&table(&mut client, info).await, "table_type"), ["TABLE", "VIEW"]);
    for (pattern, types, expected) in [
        (None, vec![], vec!["people", "patients"]),
        (Some("pat%"), vec![], vec!["patients"]),
        (Some("p_ople"), vec![], vec!["people"]),
        (None, vec!["VIEW".to_owned()], vec!["people"]),
    ] {
        let table_name_filter_pattern = pattern.map(str::to_owned);
        let command = CommandGetTables { table_name_filter_pattern, table_types: types, ..CommandGetTables::default() };
        let info = client.get_tables(command).await.unwrap();
        assert_eq!(texts(&table(&mut client, info).await, "table_name"), expected, "{pattern:?}");
    }
    let command = CommandGetTables { include_schema: true, ..CommandGetTables::default() };
    let info = client.get_tables(command).await.unwrap();
    let listed = table(&mut client, info).await;
    let columns = listed.column_by_name("table_schema").unwrap().as_binary::<i32>();
    let decoded = Schema::try_from(arrow_flight::IpcMessage(columns.value(1).to_vec().into())).unwrap();
    assert_eq!(&decoded, numbers().as_ref());
    let info = client.get_sql_info(vec![SqlInfo::FlightSqlServerName]).await.unwrap();
    assert_eq!(table(&mut client, info).await.num_rows(), 1);
}

#[tokio::test]
async fn what_the_server_cannot_do_it_says() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let keys = CommandGetPrimaryKeys { table: "patients".to_owned(), ..CommandGetPrimaryKeys::default() };
    let error = client.get_primary_keys(keys).await.unwrap_err().to_string();
    assert!(error.contains("does not answer CommandGetPrimaryKeys"), "{error}");
    let error = client.begin_transaction().await.unwrap_err().to_string();
    assert!(error.contains("has no action BeginTransaction"), "{error}");
    let error = client.execute("rows 1".to_owned(), Some("t".into())).await.unwrap_err().to_string();
    assert!(error.contains("has no transactions"), "{error}");
    let error = client.handshake("user", "password").await.unwrap_err().to_string();
    assert!(error.contains("has no logins"), "{error}");
    let error = refusal(&mut client, Ticket::new("rows 3")).await;
    assert!(error.contains("no ticket of this server"), "{error}");
    let damaged = Action { r#type: "CreatePreparedStatement".to_owned(), body: "?".into() };
    let error = client.inner_mut().do_action(damaged).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::InvalidArgument, "the body of CreatePreparedStatement is damaged")
    );
}

#[tokio::test]
async fn tickets_expire_and_the_oldest_make_room() {
    let site = Site::with(|config| veil_flight_sql::ServerConfig { most_tickets: 2, ..config }).await;
    let mut client = site.client().await;
    let old = ticket(&mut client, "rows 1").await;
    site.wait(1800);
    let (second, third) = (ticket(&mut client, "rows 2").await, ticket(&mut client, "rows 3").await);
    let error = refusal(&mut client, old).await;
    assert!(error.contains("does not know the ticket"), "{error}");
    assert_eq!(read(&mut client, second).await.0, [0, 1]);
    site.wait(3600);
    let error = refusal(&mut client, third).await;
    assert!(error.contains("60 minutes"), "{error}");
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_run() {
    let site = Site::with(|config| veil_flight_sql::ServerConfig { statements_at_once: 1, ..config }).await;
    let mut client = site.client().await;
    let endless = ticket(&mut client, "endless").await;
    let mut rows = client.do_get(endless).await.unwrap();
    rows.try_next().await.unwrap().unwrap();
    site.until_running(1).await;
    let busy = ticket(&mut client, "rows 1").await;
    let error = refusal(&mut client, busy.clone()).await;
    assert!(error.contains("as many statements run"), "{error}");
    drop(rows);
    site.until_running(0).await;
    // Its place is free again, once the stream is gone too.
    let freed = async {
        while read(&mut client, busy.clone()).await.0.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), freed).await.unwrap();
}
