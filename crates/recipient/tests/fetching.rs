//! Releases over Flight: fetched through a wire that breaks, and through a gateway.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow_flight::sql::CommandGetTables;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{FlightInfo, Ticket};
use futures::TryStreamExt;
use support::engine::{Engine, Site, Wire};
use support::{CSV, House, Plan};
use tonic::transport::{Channel, Endpoint};
use veil_owner::decrypt_batch;
use veil_recipient::{Fetch, Gateway, Incoming, Opener, Patience, RecipientError};

const QUICK: Patience = Patience { tries: 3, first: Duration::from_millis(1) };

/// Six rows in parcels of one.
async fn example() -> (House, RecordBatch, RecordBatch) {
    let house = House::new("");
    let batch = house.encrypted(CSV);
    let sealed = house.release(Plan { parcel_rows: 1, ..Plan::new(&batch) }).await.unwrap();
    assert_eq!(sealed.num_rows(), 8);
    let expected = decrypt_batch(&house.owner, &batch).unwrap();
    (house, sealed, expected)
}

async fn fetch(url: &str) -> Fetch {
    Fetch::connect(url, None, None).await.unwrap().with_patience(QUICK)
}

async fn rest(incoming: &mut Incoming, into: &mut Vec<RecordBatch>) -> Result<(), RecipientError> {
    while let Some(batch) = incoming.next().await? {
        into.push(batch);
    }
    Ok(())
}

#[tokio::test]
async fn a_broken_download_goes_on_where_it_broke() {
    let (house, sealed, expected) = example().await;
    let engine = Arc::new(Engine::new(sealed, 3));
    let site = Site::new(engine.clone()).await;
    let wire = Wire::to(site.address).await;
    let fetch = fetch(&wire.url()).await;
    let opener = Opener::new(house.alice.clone()).with_owner(house.owner.public());
    let mut incoming = fetch.sql("SELECT * FROM release(t, recipient => 'alice')", opener).await.unwrap();
    let mut batches = Vec::new();
    // Header and two parcels come; it breaks; two more come over another connection; it breaks again.
    for more in [2, 10] {
        for _ in 0..2 {
            batches.push(incoming.next().await.unwrap().unwrap());
        }
        #[cfg(target_os = "linux")]
        assert_eq!(site.kept(), 1);
        wire.cut();
        engine.permits.add_permits(more);
    }
    rest(&mut incoming, &mut batches).await.unwrap();
    let received = incoming.received().unwrap().clone();
    assert_eq!((batches.len(), received.rows), (6, 6));
    assert_eq!(concat_batches(&received.schema, &batches).unwrap().columns(), expected.columns());
    assert_eq!(wire.connections.load(Ordering::SeqCst), 3);
    assert_eq!(engine.runs.load(Ordering::SeqCst), 1, "a release is made once");
    assert!(incoming.bytes() > 1000);
    // The server was told, and has forgotten it.
    #[cfg(target_os = "linux")]
    assert_eq!(site.kept(), 0);
    assert!(incoming.next().await.unwrap().is_none());
}

#[tokio::test]
async fn patience_ends() {
    let (house, sealed, _) = example().await;
    for keep in [true, false] {
        let engine = Arc::new(Engine { keep, ..Engine::new(sealed.clone(), 2) });
        let site = Site::new(engine.clone()).await;
        let fetch = fetch(&site.url()).await;
        let mut incoming = fetch.sql("SELECT 1", Opener::new(house.alice.clone())).await.unwrap();
        assert_eq!(incoming.next().await.unwrap().unwrap().num_rows(), 1);
        let url = site.url();
        site.stop().await;
        let error = incoming.next().await.unwrap_err();
        match (keep, &error) {
            (true, RecipientError::Lost { url: lost, rows: 2, .. }) => assert_eq!(*lost, url),
            (false, RecipientError::Refused(_)) => {}
            _ => panic!("{keep}: {error:?}"),
        }
        // It stays broken.
        assert!(incoming.next().await.is_err());
    }
    let error = Fetch::connect("http://127.0.0.1:1", None, None).await.unwrap_err().to_string();
    assert!(error.starts_with("http://127.0.0.1:1 cannot be reached"), "{error}");
}

#[tokio::test]
async fn refusals_and_other_tables_are_told() {
    let (house, sealed, _) = example().await;
    let engine = Arc::new(Engine::new(sealed.project(&[0, 1, 2]).unwrap(), 100));
    let site = Site::new(engine.clone()).await;
    let fetch = fetch(&site.url()).await;
    let alice = || Opener::new(house.alice.clone());
    let error = fetch.sql("SELECT forbidden", alice()).await.unwrap_err().to_string();
    assert_eq!(error, "no rule allows recipient alice to receive column forbidden");
    assert_eq!(engine.asked.lock().unwrap().len(), 1, "a refusal is not asked for again");
    let error = fetch.sql("SELECT 1", alice()).await.unwrap().next().await.unwrap_err().to_string();
    assert!(error.starts_with("what came is no release: it has no column manifest"), "{error}");
}

type Client = FlightSqlServiceClient<Channel>;

async fn client(site: &Site) -> Client {
    Client::new(Endpoint::from_shared(site.url()).unwrap().connect().await.unwrap())
}

fn ticket(info: &FlightInfo) -> Ticket {
    info.endpoint[0].ticket.clone().unwrap()
}

async fn gateway(engine: &Site, house: &House) -> Site {
    let gateway = Gateway::new(fetch(&engine.url()).await, house.alice.clone(), Some(house.owner.public()));
    Site::new(Arc::new(gateway)).await
}

#[tokio::test]
async fn other_clients_read_clear_rows_through_the_gateway() {
    let (house, sealed, expected) = example().await;
    let engine = Arc::new(Engine::new(sealed, 1000));
    let site = Site::new(engine.clone()).await;
    let gateway = gateway(&site, &house).await;
    let mut client = client(&gateway).await;

    let info = client.execute("SELECT * FROM t;".to_owned(), None).await.unwrap();
    // Asked again before it is read: still the same release.
    let again = client.execute("SELECT * FROM t".to_owned(), None).await.unwrap();
    assert_eq!(engine.runs.load(Ordering::SeqCst), 1);
    let schema = Arc::new(info.clone().try_decode_schema().unwrap());
    let batches: Vec<RecordBatch> = client.do_get(ticket(&info)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(concat_batches(&schema, &batches).unwrap().columns(), expected.columns());
    assert_eq!(engine.runs.load(Ordering::SeqCst), 1);
    let wrapped = "SELECT * FROM release((\nSELECT * FROM t\n), recipient => 'alice')";
    assert_eq!(engine.asked.lock().unwrap().as_slice(), [wrapped]);
    // The second ticket has none left, and gets its own.
    let batches: Vec<RecordBatch> = client.do_get(ticket(&again)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(concat_batches(&schema, &batches).unwrap().columns(), expected.columns());
    assert_eq!(engine.runs.load(Ordering::SeqCst), 2);

    // Prepared, described, executed and read: one release.
    let mut prepared = client.prepare("SELECT id FROM t".to_owned(), None).await.unwrap();
    assert_eq!(prepared.dataset_schema().unwrap().fields(), schema.fields());
    let info = prepared.execute().await.unwrap();
    let batches: Vec<RecordBatch> = client.do_get(ticket(&info)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 6);
    assert_eq!(engine.runs.load(Ordering::SeqCst), 3);

    let error = client.execute("SELECT forbidden FROM t".to_owned(), None).await.unwrap_err().to_string();
    assert!(error.contains("no rule allows recipient alice"), "{error}");
    let info = client.get_tables(CommandGetTables::default()).await.unwrap();
    let tables: Vec<RecordBatch> = client.do_get(ticket(&info)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(tables[0].column_by_name("table_name").unwrap().as_string::<i32>().value(0), "t");
}

/// Two clients ask at once: the second waits for the first one's release, while another statement waits for neither.
#[tokio::test]
async fn questions_at_the_same_time_begin_one_release() {
    let (house, sealed, _) = example().await;
    let engine = Arc::new(Engine::new(sealed, 0));
    let site = Site::new(engine.clone()).await;
    let gateway = gateway(&site, &house).await;
    let asked = |sql: &'static str| {
        let client = client(&gateway);
        async move { client.await.execute(sql.to_owned(), None).await.map(drop) }
    };
    let permits = async { engine.permits.add_permits(100) };
    let (one, two, three, ()) = tokio::join!(asked("SELECT 1"), asked("SELECT 1"), asked("SELECT forbidden"), permits);
    one.unwrap();
    two.unwrap();
    assert!(three.is_err());
    assert_eq!(engine.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_gateway_ends_with_an_error_if_the_end_is_missing() {
    let (house, sealed, _) = example().await;
    let engine = Arc::new(Engine::new(sealed.slice(0, 7), 1000));
    let site = Site::new(engine).await;
    let gateway = gateway(&site, &house).await;
    let mut client = client(&gateway).await;
    let info = client.execute("SELECT * FROM t".to_owned(), None).await.unwrap();
    let mut rows = client.do_get(ticket(&info)).await.unwrap();
    let mut found = 0;
    let error = loop {
        match rows.try_next().await {
            Ok(Some(batch)) => found += batch.num_rows(),
            Ok(None) => panic!("it ended well"),
            Err(error) => break error.to_string(),
        }
    };
    // Fewer if it was known before they were given.
    assert!(found <= 6);
    assert!(error.contains("without its manifest"), "{error}");
}
