//! Connections that break and a P2 that comes back: rounds end with the right answers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, stream};
use support::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use veil_cells::{CellArray, CellType, ColumnId, Kind, Width};
use veil_flight_p2::{ClientConfig, ServerConfig};
use veil_keys::{decrypt_column, encrypt_column, os_rng};
use veil_privacy::clusters::{self, Points, Reassignment, anonymise, class_centres, coordinate, value_of_coordinate};
use veil_protocols::k_anonymize::{Bounds, Comparison, Phase, Quasi, Settings, Values, k_anonymize};
use veil_protocols::{Channel, ProtocolError};

/// Stands between P1 and P2 and cuts each connection after so many bytes; when the list is used up, no more.
struct Proxy {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Proxy {
    async fn start(p2: SocketAddr, cuts: impl IntoIterator<Item = u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let cuts: Mutex<VecDeque<u64>> = Mutex::new(cuts.into_iter().collect());
        let mut task = JoinSet::new();
        let count = connections.clone();
        task.spawn(async move {
            let mut relays = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let left = cuts.lock().unwrap().pop_front().unwrap_or(u64::MAX);
                relays.spawn(relay(near, p2, left));
            }
        });
        Self { address, connections, _task: task }
    }
}

async fn relay(near: TcpStream, p2: SocketAddr, left: u64) {
    let Ok(far) = TcpStream::connect(p2).await else { return };
    let left = AtomicU64::new(left);
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    // Both ends are dropped as soon as one direction ends.
    tokio::select! {
        () = pump(near_in, far_out, &left) => {}
        () = pump(far_in, near_out, &left) => {}
    }
}

async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, left: &AtomicU64) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        let allowed = left.fetch_sub(left.load(Ordering::Relaxed).min(count as u64), Ordering::Relaxed);
        let passed = allowed.min(count as u64) as usize;
        if to.write_all(&buffer[..passed]).await.is_err() || passed < count {
            return;
        }
    }
}

fn through(proxy: &Proxy, certificates: &Certificates) -> ClientConfig {
    let tls = Some(certificates.client());
    ClientConfig { tls, ..ClientConfig::new(format!("https://{}", proxy.address)) }
}

/// One cut, anywhere from the TLS handshake to the last answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_costs_no_answer() {
    let certificates = Certificates::new();
    let p2 = P2::start(with_tls(&certificates)).await;
    // How much there is to cut.
    let whole = Proxy::start(p2.address, []).await;
    let quiet = session(connect(through(&whole, &certificates)).await.unwrap());
    multiply_and_check(&quiet, 11).await;
    let bytes = quiet.traffic().bytes_up() + quiet.traffic().bytes_down();
    let places = [0, 1, 300, 1500, 2500, 3000, 4000, 5000, 7000, 10_000];
    let cuts = places.into_iter().chain((1..24).map(|part| bytes * part / 23));
    for cut in cuts {
        let proxy = Proxy::start(p2.address, [cut]).await;
        let session = session(connect(through(&proxy, &certificates)).await.unwrap());
        multiply_and_check(&session, 11).await;
        let connections = proxy.connections.load(Ordering::Relaxed);
        assert!(cut >= bytes || connections > 1, "{connections} connections with a cut after {cut} of {bytes} bytes");
    }
}

/// Cut again and again: every connection carries a batch or two.
#[tokio::test(flavor = "multi_thread")]
async fn many_cuts_cost_no_answer() {
    let certificates = Certificates::new();
    let p2 = P2::start(with_tls(&certificates)).await;
    for cut in [4_000_000, 6_000_000, 9_000_000] {
        let proxy = Proxy::start(p2.address, [cut; 6]).await;
        let session = session(connect(through(&proxy, &certificates)).await.unwrap());
        tokio::join!(multiply_and_check(&session, 20), multiply_and_check(&session, 15));
        assert!(proxy.connections.load(Ordering::Relaxed) > 2);
    }
}

/// A connection that never carries anything is given up after the time that P1 allows.
#[tokio::test(flavor = "multi_thread")]
async fn patience_ends() {
    let p2 = P2::start(anywhere()).await;
    let proxy = Proxy::start(p2.address, [u64::MAX].into_iter().chain([0; 10_000])).await;
    let config = ClientConfig::new(format!("http://{}", proxy.address));
    let channel = connect(ClientConfig { retry_for: Duration::from_millis(300), ..config }).await.unwrap();
    p2.kill().await;
    let error = channel.exchange(stream::iter([Ok(frame(0))]).boxed()).next().await.unwrap().unwrap_err();
    assert!(matches!(error, ProtocolError::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains(&proxy.address.to_string()), "{error}");
}

/// P2 is killed between rounds and within one, and comes back on its port.
#[tokio::test(flavor = "multi_thread")]
async fn a_p2_that_comes_back_goes_on() {
    let certificates = Certificates::new();
    let p2 = P2::start(with_tls(&certificates)).await;
    let again = ServerConfig { listen: p2.address, ..with_tls(&certificates) };
    let channel = connect(client(&p2, Some(&certificates))).await.unwrap();
    let session = session(channel.clone());
    multiply_and_check(&session, 6).await;
    p2.kill().await;
    let p2 = P2::start(again.clone()).await;
    multiply_and_check(&session, 6).await;
    p2.kill().await;
    let p2 = P2::start(again.clone()).await;
    channel.health().await.unwrap();

    let mut p2 = Some(p2);
    let mut answers = channel.exchange(stream::iter((0..12).map(|batch| Ok(frame(batch)))).boxed());
    for batch in 0..12 {
        if batch % 4 == 1 {
            p2.take().unwrap().kill().await;
            p2 = Some(P2::start(again.clone()).await);
        }
        assert_eq!(answers.next().await.unwrap().unwrap().open().unwrap().0.batch, batch);
    }
    assert!(answers.next().await.is_none());
}

/// P2 is killed in every phase of a k-anonymisation, and the rows come out as they would have.
#[tokio::test(flavor = "multi_thread")]
async fn a_k_anonymisation_outlives_its_p2() {
    let certificates = Certificates::new();
    let p2 = P2::start(with_tls(&certificates)).await;
    let again = ServerConfig { listen: p2.address, ..with_tls(&certificates) };
    let session = session(connect(client(&p2, Some(&certificates))).await.unwrap());
    let values: Vec<i64> = (0..24).map(|row| row / 8 * 40 + row % 3).collect();
    let cell_type = CellType::new(Kind::Integer, Width::NARROWEST, 1, KEYS.key_id(), ColumnId([1; 8]));
    let cells = encrypt_column(&KEYS, &cell_type, &values, None, &mut os_rng()).unwrap();
    let numbers = Values::Numbers { cells: Arc::new(cells), bits: 8, bounds: Bounds::Public(0, 100) };
    let clusters =
        clusters::Settings { k: 5, rounds: 2, early_stop: false, suppress: 0, strategy: Reassignment::default() };
    let settings = Settings { clusters, comparison: Comparison::Blinded };
    let (tell, mut told) = mpsc::unbounded_channel();
    let killer = tokio::spawn(async move {
        let (mut p2, mut killed) = (p2, Vec::new());
        while let Some(place) = told.recv().await {
            if !killed.contains(&place) {
                p2.kill().await;
                p2 = P2::start(again.clone()).await;
                killed.push(place);
            }
        }
        killed.len()
    });
    let progress = move |phase: Phase| {
        let _ = tell.send(phase.place());
    };
    let quasi = vec![Quasi { values: numbers, weight: 1 }];
    let found = k_anonymize(&session, 24, quasi, &[0, 8, 16, 23], &settings, &progress).await.unwrap();
    drop(progress);
    assert_eq!(killer.await.unwrap(), Phase::NAMES.len());

    let points = values.iter().map(|value| coordinate(*value, 0, 100)).collect();
    let points = Points::new(points, vec![1]).unwrap();
    let (classes, _) = anonymise(&points, &[0, 8, 16, 23], &clusters).unwrap();
    let centres = class_centres(&classes, &points).unwrap();
    let expected: Vec<i64> =
        classes.of_rows.iter().map(|class| value_of_coordinate(centres[class.unwrap()], 0, 100)).collect();
    let published = CellType { tag: true, ..cell_type };
    let opened = decrypt_column(KEYS.cell(), KEYS.key_id(), &published, CellArray::Binary(&found.columns[0])).unwrap();
    let opened: Vec<i64> = opened.messages.chunks(opened.lanes).map(|row| row[0]).collect();
    assert_eq!(opened, expected);
    assert_eq!(found.outcome.classes, classes.classes.len());
}

/// Whoever comes back with other keys is not the same P2.
#[tokio::test(flavor = "multi_thread")]
async fn a_p2_with_other_keys_is_refused() {
    let p2 = P2::start(anywhere()).await;
    let again = ServerConfig { listen: p2.address, ..anywhere() };
    let channel = connect(client(&p2, None)).await.unwrap();
    p2.kill().await;
    let _other = P2::start_with(again, &OTHER_KEYS, Default::default()).await;
    let error = channel.exchange(stream::iter([Ok(frame(0))]).boxed()).next().await.unwrap().unwrap_err();
    assert!(matches!(error, ProtocolError::Mismatch { what: "the key set", .. }), "{error:?}");
}
