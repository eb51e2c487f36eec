//! P1 and P2 over real sockets with mutual TLS.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use support::*;
use tokio::sync::{mpsc, oneshot};
use veil_flight_p2::{ClientConfig, Connection, FlightChannel, P2Server, ServerConfig};
use veil_protocols::compare_and_select::{Pair, compare_and_select};
use veil_protocols::lift::{Rows, lift};
use veil_protocols::{Channel, Frame, Limits, ProtocolError};
use veil_slots::{KeyHolder, Sample};

#[tokio::test(flavor = "multi_thread")]
async fn rounds_give_the_right_answers_over_mutual_tls() {
    let certificates = Certificates::new();
    let p2 = P2::start(with_tls(&certificates)).await;
    assert!(p2.url.starts_with("https://127.0.0.1:"), "{}", p2.url);
    let session = session(connect(client(&p2, Some(&certificates))).await.unwrap());
    multiply_and_check(&session, 12).await;

    let (a, b) = ([5, 9, 1 << 30, 7], [6, 8, 3, 7]);
    let selected = compare_and_select(&session, vec![Pair { a: seal(&a), b: seal(&b), bits: 31 }]).await.unwrap();
    assert_eq!(open(&selected[0].min)[..4], [5, 8, 3, 7]);
    assert_eq!(open(&selected[0].first)[..4], [1, 0, 0, 1]);

    let messages = [3, 200, 0, 127];
    let (seed, bodies) = p2_keys().seal_samples(&messages, &mut session.randomness().fork());
    let sample = |(index, body)| Sample { seed, index: index as u16, body };
    let samples = bodies.into_iter().take(4).enumerate().map(sample).collect();
    let lifted = lift(&session, vec![Rows { samples, present: None, width: 9 }]).await.unwrap();
    assert_eq!(open(&lifted[0])[..4], messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_run_side_by_side() {
    let certificates = Certificates::new();
    let p2 = P2::start(ServerConfig { batches_at_once: 1, ..with_tls(&certificates) }).await;
    let session = session(connect(client(&p2, Some(&certificates))).await.unwrap());
    tokio::join!(
        multiply_and_check(&session, 21),
        multiply_and_check(&session, 7),
        multiply_and_check(&session, 30),
        multiply_and_check(&session, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn health_metrics_and_limits_come_from_p2() {
    let p2 = P2::start_with(anywhere(), &KEYS, Limits { rows: 3, bytes: 32 << 20 }).await;
    let channel = connect(client(&p2, None)).await.unwrap();
    assert_eq!(channel.limits(), Limits { rows: 3, bytes: 32 << 20 });
    let health = channel.health().await.unwrap();
    assert_eq!((health.status.as_str(), health.key_id), ("ok", KEYS.key_id()));
    assert_eq!(channel.handshake().await.unwrap().key_id, KEYS.key_id());

    multiply_and_check(&session(channel.clone()), 7).await;
    let text = channel.metrics().await.unwrap();
    for line in ["veil_p2_batches_total{protocol=\"multiply\"} 3", "veil_p2_rows_total{protocol=\"multiply\"} 7"] {
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}

/// Whoever has no certificate of the right authority gets no answer, and a sentence that says why or what to look at.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_refused() {
    let certificates = Certificates::new();
    let p2 = P2::start(with_tls(&certificates)).await;
    let right = client(&p2, Some(&certificates));

    let rogue = ClientConfig { tls: Some(certificates.client_as("rogue")), ..right.clone() };
    let error = connect(rogue).await.unwrap_err();
    assert!(matches!(error, ProtocolError::Denied(_) | ProtocolError::Unreachable(_)), "{error:?}");
    assert!(error.to_string().contains(&p2.url) && error.to_string().contains("certificate"), "{error}");

    // P2 that is not the right one.
    let mut other = certificates.client();
    other.ca = certificates.at("rogue-ca.pem");
    let error = connect(ClientConfig { tls: Some(other), ..right.clone() }).await.unwrap_err();
    assert!(matches!(error, ProtocolError::Denied(_)), "{error:?}");

    // No client certificate at all.
    let ca = tonic::transport::Certificate::from_pem(std::fs::read(certificates.at("ca.pem")).unwrap());
    let tls = tonic::transport::ClientTlsConfig::new().ca_certificate(ca);
    let endpoint = tonic::transport::Endpoint::from_shared(p2.url.clone()).unwrap().tls_config(tls).unwrap();
    let answered = match endpoint.connect().await {
        Ok(channel) => {
            let mut client = arrow_flight::flight_service_client::FlightServiceClient::new(channel);
            client.do_action(arrow_flight::Action::new("veil.health", "")).await.is_ok()
        }
        Err(_) => false,
    };
    assert!(!answered);

    // Plain HTTP where TLS is spoken.
    let plain = ClientConfig { tls: None, endpoint: p2.url.replace("https", "http"), ..right.clone() };
    let error = connect(plain).await.unwrap_err().to_string();
    assert!(error.contains("write https:// and give certificates if it uses TLS"), "{error}");
    let https = ClientConfig { tls: None, ..right.clone() };
    let error = connect(https).await.unwrap_err().to_string();
    assert!(error.contains("https needs P1's certificate"), "{error}");

    connect(right).await.unwrap();
}

#[tokio::test]
async fn p2_does_not_listen_in_the_open_without_tls() {
    let responder = P2::start(anywhere()).await.responder.clone();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = P2Server::bind(ServerConfig::new(address.parse().unwrap()), responder.clone()).await.unwrap_err();
        assert!(error.to_string().contains(&format!("does not listen on {address} without TLS")), "{error}");
    }
}

#[tokio::test]
async fn absent_p2_is_soon_reported() {
    // Nobody listens, and nobody else gets the port.
    let reserved = tokio::net::TcpSocket::new_v4().unwrap();
    reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let free = reserved.local_addr().unwrap();
    let started = Instant::now();
    let error = connect(ClientConfig::new(format!("http://{free}"))).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(matches!(error, ProtocolError::Unreachable(_)), "{error:?}");
    let sentence = error.to_string();
    assert!(sentence.starts_with(&format!("P2 at http://{free} cannot be reached (")), "{sentence}");
    assert!(!sentence.contains('\n') && sentence.contains("check that `veil p2` runs there"), "{sentence}");
}

/// Something listens that never speaks.
#[tokio::test]
async fn silent_p2_is_soon_reported() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ClientConfig::new(format!("http://{}", silent.local_addr().unwrap()));
    let config = ClientConfig { connect_timeout: Duration::from_millis(300), ..config };
    let error = connect(config).await.unwrap_err();
    assert!(matches!(error, ProtocolError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn other_keys_are_refused_at_the_handshake() {
    let p2 = P2::start(anywhere()).await;
    let error = FlightChannel::connect(client(&p2, None), OTHER_KEYS.key_id()).await.unwrap_err();
    assert!(matches!(error, ProtocolError::Mismatch { what: "the key set", .. }), "{error:?}");
    assert!(error.to_string().contains(&OTHER_KEYS.key_id().to_string()), "{error}");
    Connection::open(&client(&p2, None)).await.unwrap().health().await.unwrap();
}

/// An answer of many megabytes is one message, since its header goes with all of it.
#[tokio::test(flavor = "multi_thread")]
async fn large_answers_arrive_whole() {
    let certificates = Certificates::new();
    let p2 = P2::start(with_tls(&certificates)).await;
    let channel = connect(client(&p2, Some(&certificates))).await.unwrap();
    let requests = (0..3).map(|batch| Ok(Frame::new(&header(batch), rows(250))));
    let answers: Vec<_> = channel.exchange(stream::iter(requests).boxed()).collect().await;
    assert_eq!(answers.len(), 3);
    for answer in answers {
        let answer = answer.unwrap();
        assert!(answer.bytes() > 50 << 20, "{}", answer.bytes());
        assert_eq!(answer.open().unwrap().1.num_rows(), 250);
    }
}

/// A round that P1 leaves takes its requests with it at once, and P2 goes on.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_rounds_leave_nothing_behind() {
    let p2 = P2::start(anywhere()).await;
    let channel = connect(client(&p2, None)).await.unwrap();
    for taken in 0..3 {
        let (alive, gone) = oneshot::channel::<()>();
        let requests = stream::iter(0..).map(move |batch| {
            let _alive = &alive;
            Ok(frame(batch))
        });
        let mut answers = channel.exchange(requests.boxed());
        for _ in 0..taken {
            answers.next().await.unwrap().unwrap();
        }
        drop(answers);
        gone.await.unwrap_err();
    }
    multiply_and_check(&session(channel), 2).await;
}

/// No more requests are drawn than the window allows while P2's answers are not taken.
#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_answers() {
    let p2 = P2::start(anywhere()).await;
    let channel = connect(ClientConfig { window: 2, ..client(&p2, None) }).await.unwrap();
    let (drawn, mut draws) = mpsc::unbounded_channel();
    let requests = stream::iter(0..100).map(move |batch| {
        drawn.send(batch).unwrap();
        Ok(frame(batch))
    });
    let mut answers = channel.exchange(requests.boxed());
    let mut taken = 0;
    while let Some(answer) = answers.next().await {
        assert_eq!(answer.unwrap().open().unwrap().0.batch, taken);
        taken += 1;
        let ahead = std::iter::from_fn(|| draws.try_recv().ok()).last();
        // Unanswered ones, one that is answered and waits, and one on its way to be taken.
        assert!(ahead.is_none_or(|ahead| ahead < taken + 2 + 2), "{ahead:?} after {taken}");
    }
    assert_eq!(taken, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_takes_too_long_is_an_error() {
    let p2 = P2::start(anywhere()).await;
    let channel = connect(client(&p2, None)).await.unwrap();
    // As many streams as P2 reads at the same time: another one has to wait, however fast P2 is.
    let mut held = Vec::new();
    for _ in 0..16 {
        let mut answers = channel.exchange(stream::iter([Ok(frame(0))]).chain(stream::pending()).boxed());
        answers.next().await.unwrap().unwrap();
        held.push(answers);
    }
    let hurried = ClientConfig { batch_deadline: Duration::from_millis(100), ..client(&p2, None) };
    let channel = connect(hurried).await.unwrap();
    let error = channel.exchange(stream::iter([Ok(frame(0))]).boxed()).next().await.unwrap().unwrap_err();
    assert!(matches!(error, ProtocolError::Deadline(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_p1_end_the_round() {
    let p2 = P2::start(anywhere()).await;
    let channel = connect(client(&p2, None)).await.unwrap();
    let requests = stream::iter([Ok(frame(0)), Err(ProtocolError::Misuse("P1 failed".to_owned()))]);
    let answers: Vec<_> = channel.exchange(requests.boxed()).collect().await;
    assert_eq!(answers.last().unwrap().as_ref().unwrap_err().to_string(), "P1 failed");
    assert!(channel.exchange(stream::empty().boxed()).next().await.is_none());
}

/// A round under way when P2 is asked to stop goes on to its end; new connections are not taken.
#[tokio::test(flavor = "multi_thread")]
async fn stopping_finishes_rounds_in_flight() {
    let certificates = Certificates::new();
    let mut p2 = P2::start(with_tls(&certificates)).await;
    let channel = connect(client(&p2, Some(&certificates))).await.unwrap();
    let (requests, queue) = mpsc::channel(1);
    let queue = stream::unfold(queue, |mut queue| async { queue.recv().await.map(|frame| (Ok(frame), queue)) });
    let mut answers = channel.exchange(queue.boxed());
    requests.send(frame(0)).await.unwrap();
    answers.next().await.unwrap().unwrap();
    p2.stop();
    // The listener is closed first; then the rounds end.
    while tokio::net::TcpStream::connect(p2.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    for batch in 1..4 {
        requests.send(frame(batch)).await.unwrap();
        assert_eq!(answers.next().await.unwrap().unwrap().open().unwrap().0.batch, batch);
    }
    drop(requests);
    assert!(answers.next().await.is_none());
    (&mut p2.served).await.unwrap().unwrap();
}

/// A round that outlasts the grace is ended, and P1 told after it has tried for as long as it may.
#[tokio::test(flavor = "multi_thread")]
async fn stopping_ends_rounds_after_the_grace() {
    let mut p2 = P2::start(ServerConfig { grace: Duration::from_millis(20), ..anywhere() }).await;
    let retry_for = Duration::from_millis(100);
    let channel = connect(ClientConfig { retry_for, ..client(&p2, None) }).await.unwrap();
    let (requests, queue) = mpsc::channel(1);
    let queue = stream::unfold(queue, |mut queue| async { queue.recv().await.map(|frame| (Ok(frame), queue)) });
    let mut answers = channel.exchange(queue.boxed());
    requests.send(frame(0)).await.unwrap();
    answers.next().await.unwrap().unwrap();
    p2.stop();
    (&mut p2.served).await.unwrap().unwrap();
    requests.send(frame(1)).await.unwrap();
    let error = answers.next().await.unwrap().unwrap_err();
    assert!(matches!(error, ProtocolError::Unreachable(_)) && error.to_string().contains(&p2.url), "{error:?}");
}
