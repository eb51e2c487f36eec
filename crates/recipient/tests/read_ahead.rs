//! What a gateway does between the question about columns and the one for rows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{FlightInfo, Ticket};
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use support::engine::{Engine, Site};
use support::{CSV, House, Plan, table};
use tonic::transport::{Channel, Endpoint};
use veil_flight_sql::{AnswerError, Answers, Caller, Prepared, Rows, Run, TableEntry};
use veil_owner::decrypt_batch;
use veil_recipient::{Fetch, Gateway};
use veil_release::ReleaseId;

type Client = FlightSqlServiceClient<Channel>;

async fn client(site: &Site) -> Client {
    Client::new(Endpoint::from_shared(site.url()).unwrap().connect().await.unwrap())
}

async fn gateway(engine: &Site, house: &House) -> Gateway {
    let fetch = Fetch::connect(&engine.url(), None, None).await.unwrap();
    Gateway::new(fetch, house.alice.clone(), Some(house.owner.public()))
}

fn ticket(info: &FlightInfo) -> Ticket {
    info.endpoint[0].ticket.clone().unwrap()
}

async fn asked(client: &mut Client, sql: &str) -> Ticket {
    ticket(&client.execute(sql.to_owned(), None).await.unwrap())
}

async fn rows(client: &mut Client, ticket: Ticket) -> Result<RecordBatch, FlightError> {
    let batches: Vec<RecordBatch> = client.do_get(ticket).await.unwrap().try_collect().await?;
    Ok(concat_batches(&batches[0].schema(), &batches).unwrap())
}

/// Lets everything else go on until something is so.
async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

/// Six rows in parcels of one.
async fn example() -> (House, RecordBatch, RecordBatch) {
    let house = House::new("");
    let batch = house.encrypted(CSV);
    let sealed = house.release(Plan { parcel_rows: 1, ..Plan::new(&batch) }).await.unwrap();
    let expected = decrypt_batch(&house.owner, &batch).unwrap();
    (house, sealed, expected)
}

/// Gives one table and keeps nothing: what has been pulled was asked for. By statement: rows pulled, and whether it has ended.
struct Tap {
    table: RecordBatch,
    pulled: Arc<Mutex<BTreeMap<String, (usize, bool)>>>,
}

impl Tap {
    fn new(table: RecordBatch) -> Arc<Self> {
        Arc::new(Self { table, pulled: Arc::default() })
    }

    /// Of the statement with this in it.
    fn pulled(&self, part: &str) -> (usize, bool) {
        let pulled = self.pulled.lock().unwrap();
        pulled.iter().find(|(sql, _)| sql.contains(part)).map(|(_, state)| *state).unwrap_or_default()
    }
}

struct Ending(String, Arc<Mutex<BTreeMap<String, (usize, bool)>>>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.1.lock().unwrap().entry(self.0.clone()).or_default().1 = true;
    }
}

#[async_trait]
impl Answers for Tap {
    async fn prepare(&self, _: &Caller, sql: &str) -> Result<Prepared, AnswerError> {
        let (table, pulled, sql) = (self.table.clone(), self.pulled.clone(), sql.to_owned());
        let promised = Some(table.schema());
        let run = Run::new(move || async move {
            let (schema, ending) = (table.schema(), Ending(sql, pulled));
            let batches = stream::iter(0..table.num_rows()).map(move |row| {
                ending.1.lock().unwrap().entry(ending.0.clone()).or_default().0 += 1;
                Ok(table.slice(row, 1))
            });
            Ok(Rows { schema, batches: batches.boxed() })
        });
        Ok(Prepared { schema: promised, run, keep: false })
    }

    async fn tables(&self, _: &Caller) -> Result<Vec<TableEntry>, AnswerError> {
        Ok(Vec::new())
    }
}

const ROWS: usize = 48;

/// A release of 48 MiB in parcels of one.
async fn large() -> (House, RecordBatch, RecordBatch) {
    let house = House::new("");
    let csv: String = (0..ROWS).fold("id,region\n".to_owned(), |csv, row| format!("{csv}{row},x\n"));
    let batch = house.encrypted(&csv);
    let texts = (0..ROWS).map(|row| format!("{row:08}").repeat(1 << 17));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let batch = RecordBatch::try_new(batch.schema(), vec![batch.column(0).clone(), texts]).unwrap();
    let sealed = house.release(Plan { parcel_rows: 1, ..Plan::new(&batch) }).await.unwrap();
    let expected = decrypt_batch(&house.owner, &batch).unwrap();
    (house, sealed, expected)
}

/// Four releases wait, and none is pulled into memory; a fifth is read meanwhile, over the same connection, although the others have filled their windows;
/// nothing is lost of what waited.
#[tokio::test]
async fn a_large_release_waits_at_its_server_and_stops_no_other() {
    const AHEAD: usize = 2 << 20;
    let (house, sealed, expected) = large().await;
    let tap = Tap::new(sealed);
    let engine = Site::new(tap.clone()).await;
    let gateway = Arc::new(gateway(&engine, &house).await.with_read_ahead(AHEAD));
    let site = Site::new(gateway.clone()).await;
    let mut client = client(&site).await;
    let waiting = ["SELECT 1", "SELECT 2", "SELECT 3", "SELECT 4"];
    let first = asked(&mut client, waiting[0]).await;
    for sql in &waiting[1..] {
        asked(&mut client, sql).await;
    }
    let read = asked(&mut client, "SELECT 5").await;
    assert_eq!(rows(&mut client, read).await.unwrap().columns(), expected.columns());
    assert!(gateway.read_ahead() <= AHEAD);
    assert_eq!(gateway.waiting(), 4);
    for sql in waiting {
        let (pulled, is_over) = tap.pulled(sql);
        assert!(pulled > 1 && pulled < ROWS && !is_over, "{sql}: {pulled} rows");
    }
    assert_eq!(rows(&mut client, first).await.unwrap().columns(), expected.columns());
    assert_eq!(gateway.waiting(), 3);
}

#[tokio::test]
async fn a_release_whose_client_never_comes_is_ended() {
    let (house, sealed, expected) = large().await;
    let tap = Tap::new(sealed);
    let engine = Site::new(tap.clone()).await;
    let gateway = Arc::new(gateway(&engine, &house).await.with_longest_wait(Duration::ZERO));
    let site = Site::new(gateway.clone()).await;
    let mut client = client(&site).await;
    let ticket = asked(&mut client, "SELECT 1").await;
    until(|| tap.pulled("SELECT 1").1 && gateway.waiting() == 0 && gateway.read_ahead() == 0).await;
    // It comes after all, and gets a release of its own.
    assert_eq!(rows(&mut client, ticket).await.unwrap().columns(), expected.columns());
}

/// The server has gone when the client asks for rows: they were there already, and agree with their manifest.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn rows_are_ready_before_they_are_asked_for_and_given_once() {
    let (house, sealed, expected) = example().await;
    let engine = Site::new(Arc::new(Engine::new(sealed, 1000))).await;
    let gateway = Arc::new(gateway(&engine, &house).await);
    let site = Site::new(gateway.clone()).await;
    let mut client = client(&site).await;
    let ticket = asked(&mut client, "SELECT 1").await;
    // All has come: the server was told so.
    until(|| engine.kept() == 0).await;
    assert!(gateway.read_ahead() > 0);
    engine.stop().await;
    assert_eq!(rows(&mut client, ticket.clone()).await.unwrap().columns(), expected.columns());
    let error = rows_or_error(&mut client, ticket).await.unwrap_err();
    assert!(error.contains("this ticket has been used"), "{error}");
    until(|| gateway.read_ahead() == 0).await;
}

async fn rows_or_error(client: &mut Client, ticket: Ticket) -> Result<usize, String> {
    let batches = client.do_get(ticket).await.map_err(|error| error.to_string())?;
    let batches: Vec<RecordBatch> = batches.try_collect().await.map_err(|error| error.to_string())?;
    Ok(batches.iter().map(RecordBatch::num_rows).sum())
}

/// What went wrong before anybody asked for rows is said when they are asked for, and none of them is given.
#[tokio::test]
async fn what_went_wrong_ahead_is_said_for_the_rows() {
    let (house, sealed, _) = example().await;
    let part = |column: usize, row: usize| sealed.column(column).as_binary::<i64>().value(row).to_vec();
    let mut damaged: Vec<support::Row> = vec![(0, Some(part(1, 0)), None, None)];
    damaged.extend((1..=6).map(|row| (row as u32, Some(part(1, row)), Some(part(2, row)), None)));
    let last = damaged[6].1.as_mut().unwrap().last_mut().unwrap();
    *last ^= 1;
    let damaged = table(ReleaseId([9; 16]), damaged);
    for (sealed, says) in [
        (sealed.slice(0, 7), "the release ended after 6 parcels without its manifest"),
        (damaged, "parcel 6: the part of P2 does not open"),
    ] {
        let tap = Tap::new(sealed);
        let engine = Site::new(tap.clone()).await;
        let gateway = Arc::new(gateway(&engine, &house).await);
        let site = Site::new(gateway.clone()).await;
        let mut client = client(&site).await;
        let ticket = asked(&mut client, "SELECT 1").await;
        until(|| gateway.broken() == 1).await;
        let mut batches = client.do_get(ticket).await.unwrap();
        let error = batches.try_next().await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!((tap.pulled("SELECT 1").0, gateway.read_ahead()), (tap.table.num_rows(), 0));
    }
}
