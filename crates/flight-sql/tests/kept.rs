//! Statements that are kept: run once, downloaded until it works.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::atomic::Ordering;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use arrow_flight::{Action, Ticket};
use futures::TryStreamExt;
use support::{Client, Site, read, refusal, ticket};
use tonic::Code;
use veil_flight_sql::{DONE_ACTION, FROM_HEADER, KEPT, ServerConfig};

async fn done(client: &mut Client, ticket: &Ticket) -> Result<(), tonic::Status> {
    let action = Action { r#type: DONE_ACTION.to_owned(), body: ticket.ticket.clone() };
    client.inner_mut().do_action(action).await.map(drop)
}

async fn from(site: &Site, row: u64) -> Client {
    let mut client = site.client().await;
    client.set_header(FROM_HEADER, row.to_string());
    client
}

#[tokio::test]
async fn a_broken_download_goes_on_where_it_broke() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let info = client.execute("keep 95".to_owned(), None).await.unwrap();
    assert_eq!(info.endpoint[0].app_metadata, KEPT);
    let ticket = support::only_ticket(info);
    site.fake.batches.add_permits(3);
    let mut rows = client.do_get(ticket.clone()).await.unwrap();
    let mut found: Vec<i64> = Vec::new();
    while found.len() < 30 {
        let batch = rows.try_next().await.unwrap().unwrap();
        found.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
    }
    // It breaks while the run goes on, and the run does not end with it.
    drop((rows, client));
    assert_eq!((site.spools(), found.as_slice()), (1, &(0..30).collect::<Vec<_>>()[..]));

    // Another connection goes on, from within a batch, and follows the run.
    let mut client = from(&site, 25).await;
    let mut rows = client.do_get(ticket.clone()).await.unwrap();
    let again = rows.try_next().await.unwrap().unwrap();
    assert_eq!(again.column(0).as_primitive::<Int64Type>().values(), &[25, 26, 27, 28, 29]);
    site.fake.batches.add_permits(7);
    let mut rest: Vec<i64> = Vec::new();
    while let Some(batch) = rows.try_next().await.unwrap() {
        rest.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
    }
    assert_eq!(rest, (30..95).collect::<Vec<_>>());
    drop(rows);

    // Once complete, from any row; the statement has run once.
    for row in [0, 1, 10, 94, 95] {
        let mut client = from(&site, row).await;
        assert_eq!(read(&mut client, ticket.clone()).await, ((row as i64..95).collect(), None));
    }
    let error = refusal(&mut from(&site, 96).await, ticket.clone()).await;
    assert!(error.contains("there is no row 96") && error.contains("95 rows"), "{error}");
    assert_eq!(site.fake.started.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_acknowledged_statement_is_gone() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let ticket = ticket(&mut client, "keep 20").await;
    site.fake.batches.add_permits(2);
    assert_eq!(read(&mut client, ticket.clone()).await.0.len(), 20);
    assert_eq!(site.spools(), 1);
    // The folder has no name for it, so that nobody else opens it and nothing is left of it.
    assert_eq!(std::fs::read_dir(site.spool.path()).unwrap().count(), 0);
    done(&mut client, &ticket).await.unwrap();
    let error = refusal(&mut client, ticket.clone()).await;
    assert!(error.contains("this ticket is done"), "{error}");
    assert_eq!(site.spools(), 0);
    done(&mut client, &ticket).await.unwrap();
    let wrong = done(&mut client, &Ticket::new("x")).await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn ending_a_statement_stops_its_run_and_its_downloads() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let ticket = ticket(&mut client, "keep 50").await;
    site.fake.batches.add_permits(1);
    let mut rows = client.do_get(ticket.clone()).await.unwrap();
    rows.try_next().await.unwrap().unwrap();
    site.until_running(1).await;
    done(&mut client, &ticket).await.unwrap();
    site.until_running(0).await;
    let error = rows.try_next().await.unwrap_err().to_string();
    assert!(error.contains("was ended before all its rows"), "{error}");
}

#[tokio::test]
async fn spools_expire_unless_they_are_in_use() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let ticket = ticket(&mut client, "keep 20").await;
    site.fake.batches.add_permits(1);
    let mut rows = client.do_get(ticket.clone()).await.unwrap();
    rows.try_next().await.unwrap().unwrap();
    // Under way for longer than a ticket lives.
    site.wait(7200);
    support::ticket(&mut client, "rows 1").await;
    site.fake.batches.add_permits(1);
    assert!(rows.try_next().await.unwrap().is_some() && rows.try_next().await.unwrap().is_none());
    drop(rows);
    assert_eq!(read(&mut client, ticket.clone()).await.0.len(), 20);
    // The download's stream may be dropped a moment after its last message.
    let mut error = None;
    while error.is_none() {
        site.wait(3600);
        error = read(&mut client, ticket.clone()).await.1;
    }
    assert!(error.unwrap().contains("does not know the ticket"));
    assert_eq!(site.spools(), 0);
}

#[tokio::test]
async fn a_failed_run_says_so_every_time() {
    let site = Site::new().await;
    let mut client = site.client().await;
    let (failing, broken) = (ticket(&mut client, "fail 15").await, ticket(&mut client, "broken").await);
    for _ in 0..2 {
        let (rows, error) = read(&mut client, failing.clone()).await;
        assert_eq!(rows, (0..15).collect::<Vec<_>>());
        assert!(error.unwrap().contains("it broke"));
        let error = refusal(&mut client, broken.clone()).await;
        assert!(error.contains("it did not begin"), "{error}");
    }
    assert_eq!(site.fake.started.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_result_that_is_too_large_is_refused() {
    let site = Site::with(|config| ServerConfig { most_spooled: 1000, ..config }).await;
    let mut client = site.client().await;
    let ticket = ticket(&mut client, "fail 1000").await;
    let (rows, error) = read(&mut client, ticket).await;
    assert!(error.unwrap().contains("larger than the 1000 bytes") && rows.len() < 100);
}

#[tokio::test]
async fn only_kept_statements_go_on_from_a_row() {
    let site = Site::new().await;
    let ticket = ticket(&mut site.client().await, "rows 20").await;
    let error = refusal(&mut from(&site, 5).await, ticket).await;
    assert!(error.contains("is not kept"), "{error}");
    let mut client = site.client().await;
    client.set_header(FROM_HEADER, "five");
    let error = refusal(&mut client, Ticket::new("x")).await;
    assert!(error.contains("veil-from must be a number of rows"), "{error}");
}

#[tokio::test]
async fn a_server_that_stops_ends_runs_and_downloads() {
    let mut site = Site::new().await;
    let mut client = site.client().await;
    let ticket = ticket(&mut client, "keep 50").await;
    site.fake.batches.add_permits(1);
    let mut rows = client.do_get(ticket).await.unwrap();
    rows.try_next().await.unwrap().unwrap();
    site.stop().await.unwrap();
    let error = rows.try_next().await.unwrap_err().to_string();
    assert!(error.contains("the server is stopping"), "{error}");
    site.until_running(0).await;
}
