//! What P2 says to wrong messages: a code and a sentence, and it goes on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use arrow::array::{ArrayRef, LargeBinaryArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::utils::batches_to_flight_data;
use arrow_flight::{Action, Criteria, FlightData, FlightDescriptor, Ticket};
use futures::stream;
use rand::CryptoRng;
use support::*;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use veil_cells::{KeyId, Seed};
use veil_flight_p2::{ServerConfig, Terms};
use veil_protocols::{Frame, Header, Limits};
use veil_slots::{Inbound, KeyHolder, Sample, SeededSlots};
use zeroize::Zeroizing;

const LIMITS: Limits = Limits { rows: 2, bytes: 300_000 };

/// The messages of a stream with one batch, as any Flight client sends them.
fn messages(path: [&str; 3], frame: &Frame) -> Vec<FlightData> {
    let mut messages = batches_to_flight_data(frame.batch.schema_ref(), vec![frame.batch.clone()]).unwrap();
    let path = path.iter().map(|part| part.to_string()).collect();
    messages[0].flight_descriptor = Some(FlightDescriptor::new_path(path));
    messages[1].app_metadata = frame.header.clone().into();
    messages
}

const LIFT: [&str; 3] = ["veil", "lift", "1"];

async fn ask(client: &mut FlightServiceClient<Channel>, messages: Vec<FlightData>) -> Result<usize, Status> {
    let mut answers = client.do_exchange(stream::iter(messages)).await?.into_inner();
    let mut count = 0;
    while answers.message().await?.is_some() {
        count += 1;
    }
    Ok(count)
}

async fn raw_client(p2: &P2) -> FlightServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(p2.url.clone()).unwrap();
    FlightServiceClient::new(endpoint.connect().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wrong_message_has_its_code() {
    let p2 = P2::start_with(anywhere(), &KEYS, LIMITS).await;
    let mut client = raw_client(&p2).await;
    let altered = |alter: fn(&mut Vec<u8>)| {
        let mut frame = frame(0);
        alter(&mut frame.header);
        frame
    };
    let with = |header: Header| Frame::new(&header, rows(1));
    let sized = |bytes: usize| {
        let column = || -> ArrayRef { Arc::new(LargeBinaryArray::from_iter_values([vec![0; bytes]])) };
        let batch = RecordBatch::try_new(rows(1).schema(), vec![column(), column(), column()]).unwrap();
        Frame::new(&header(0), batch)
    };
    let strings = {
        let schema = Arc::new(Schema::new(vec![Field::new("seeds", DataType::Utf8, false)]));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(StringArray::from(vec!["x"]))]).unwrap();
        Frame::new(&header(0), batch)
    };
    let cases = [
        (
            "another key set",
            messages(LIFT, &with(Header { key_id: OTHER_KEYS.key_id(), ..header(0) })),
            Code::FailedPrecondition,
        ),
        ("an old wire version", messages(LIFT, &altered(|header| header[4] = 0)), Code::FailedPrecondition),
        (
            "an old protocol version",
            messages(LIFT, &with(Header { version: 0, ..header(0) })),
            Code::FailedPrecondition,
        ),
        ("an old version in the path", messages(["veil", "lift", "0"], &frame(0)), Code::FailedPrecondition),
        ("an unknown protocol", messages(["veil", "guess", "1"], &frame(0)), Code::Unimplemented),
        (
            "two protocols",
            messages(LIFT, &with(Header { protocol: "open".to_owned(), ..header(0) })),
            Code::InvalidArgument,
        ),
        ("another path", messages(["sql", "lift", "1"], &frame(0)), Code::InvalidArgument),
        ("a damaged header", messages(LIFT, &altered(|header| header[20] ^= 1)), Code::InvalidArgument),
        (
            "a damaged checksum",
            messages(LIFT, &altered(|header| *header.last_mut().unwrap() ^= 1)),
            Code::InvalidArgument,
        ),
        ("no header", messages(LIFT, &altered(Vec::clear)), Code::InvalidArgument),
        ("too many rows", messages(LIFT, &Frame::new(&header(0), rows(3))), Code::ResourceExhausted),
        ("too many bytes", messages(LIFT, &sized(120_000)), Code::ResourceExhausted),
        ("more bytes than are received", messages(LIFT, &sized(1 << 20)), Code::ResourceExhausted),
        ("another schema", messages(LIFT, &strings), Code::InvalidArgument),
        ("samples that do not fit", messages(LIFT, &sized(8)), Code::InvalidArgument),
        ("no descriptor", messages(LIFT, &frame(0)).split_off(1), Code::InvalidArgument),
    ];
    for (what, messages, code) in cases {
        let status = ask(&mut client, messages).await.unwrap_err();
        assert_eq!(status.code(), code, "{what}: {status:?}");
        assert!(!status.message().is_empty() && !status.message().contains('\n'), "{what}: {status:?}");
        // The schema, and the answer.
        assert_eq!(ask(&mut client, messages_of_a_sound_round()).await.unwrap(), 2, "after {what}");
    }
}

fn messages_of_a_sound_round() -> Vec<FlightData> {
    let mut messages = messages(LIFT, &frame(0));
    // As pyarrow does: a message with the descriptor alone.
    let descriptor = messages[0].flight_descriptor.take();
    messages.insert(0, FlightData { flight_descriptor: descriptor, ..FlightData::default() });
    messages
}

/// Arrow's own encoding damaged at every place of its metadata: an error or an answer, and P2 goes on.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_arrow_is_an_error() {
    veil_cells::hide_caught_panics();
    let p2 = P2::start_with(anywhere(), &KEYS, LIMITS).await;
    let mut client = raw_client(&p2).await;
    let sound = messages(LIFT, &frame(0));
    for at in 0..sound[1].data_header.len() {
        let mut messages = sound.clone();
        let mut bytes = messages[1].data_header.to_vec();
        bytes[at] ^= 0x81;
        messages[1].data_header = bytes.into();
        if let Err(status) = ask(&mut client, messages).await {
            assert!(matches!(status.code(), Code::InvalidArgument | Code::ResourceExhausted), "byte {at}: {status:?}");
        }
    }
    assert_eq!(ask(&mut client, sound).await.unwrap(), 2);
}

/// A key holder with a bug.
struct Broken;

impl KeyHolder for Broken {
    fn key_id(&self) -> KeyId {
        KEYS.key_id()
    }

    fn open(&self, _: Inbound) -> Zeroizing<Vec<u64>> {
        panic!("a bug")
    }

    fn seal(&self, _: &[u64], _: &mut dyn CryptoRng) -> SeededSlots {
        panic!("a bug")
    }

    fn open_samples(&self, _: &[Sample]) -> Zeroizing<Vec<u64>> {
        panic!("a bug")
    }

    fn open_dense(&self, _: &[u64], _: &[u64]) -> Zeroizing<Vec<u64>> {
        panic!("a bug")
    }

    fn seal_samples(&self, _: &[u64], _: &mut dyn CryptoRng) -> (Seed, Vec<u64>) {
        panic!("a bug")
    }
}

/// A bug in a protocol ends its round, says nothing of its cause, and leaves room for the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_does_not_leave_p2() {
    let config = ServerConfig { batches_at_once: 1, ..anywhere() };
    let p2 = P2::start_holder(config, Arc::new(Broken), Limits::default()).await;
    let mut client = raw_client(&p2).await;
    for _ in 0..3 {
        let status = ask(&mut client, messages(LIFT, &frame(0))).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status:?}");
        assert!(!status.message().contains("a bug"), "{status:?}");
    }
    client.do_action(Action::new("veil.health", "")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_handshake_refuses_another_veil() {
    let p2 = P2::start(anywhere()).await;
    let mut client = raw_client(&p2).await;
    let terms = Terms::new(KEYS.key_id(), Limits::default());
    let mut protocols = terms.protocols.clone();
    protocols.insert("lift".to_owned(), 0);
    let json = |terms: &Terms| serde_json::to_vec(terms).unwrap();
    let cases = [
        (json(&Terms { wire_version: 0, ..terms.clone() }), Code::FailedPrecondition, "the wire version"),
        (
            json(&Terms { fingerprint: "0".to_owned(), ..terms.clone() }),
            Code::FailedPrecondition,
            "the encryption scheme",
        ),
        (json(&Terms { protocols, ..terms.clone() }), Code::FailedPrecondition, "the protocol version"),
        (json(&Terms { key_id: OTHER_KEYS.key_id(), ..terms.clone() }), Code::FailedPrecondition, "the key set"),
        (b"{}".to_vec(), Code::InvalidArgument, "the handshake is not one of veil"),
        (vec![b' '; 1 << 20], Code::InvalidArgument, "the handshake is not one of veil"),
    ];
    for (body, code, sentence) in cases {
        let status = client.do_action(Action::new("veil.handshake", body)).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(sentence), "{status:?}");
    }
    client.do_action(Action::new("veil.handshake", json(&terms))).await.unwrap();
    let status = client.do_action(Action::new("veil.shutdown", "")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_p2_does_not_do_it_says() {
    let p2 = P2::start(anywhere()).await;
    let mut client = raw_client(&p2).await;
    let statuses = [
        client.do_get(Ticket::new("x")).await.unwrap_err(),
        client.list_flights(Criteria::default()).await.unwrap_err(),
        client.get_schema(FlightDescriptor::new_cmd("x")).await.unwrap_err(),
        client.do_put(stream::iter([FlightData::default()])).await.unwrap_err(),
    ];
    for status in statuses {
        assert_eq!(status.code(), Code::Unimplemented, "{status:?}");
        assert!(status.message().starts_with("P2 keeps no tables"), "{status:?}");
    }
}
