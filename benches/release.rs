//! Releases: from P1's cells to the recipient's rows.
//!
//! `cargo bench -p veil-recipient --bench release [-- NAME..]` prints tables. P1 and P2 are in one process on both cores, with Flight
//! and mutual TLS between them; P2 has its desk, its policy and its ledger on disk. What is released is opened and compared with what
//! the owner decrypts. The gateway takes turns with a server of the same rows in the clear, so that both meet the same machine.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails by panicking"
)]

#[path = "../crates/flight-p2/tests/support/mod.rs"]
mod key_holder;
#[path = "../crates/recipient/tests/support/mod.rs"]
mod support;
mod told;

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow_flight::sql::client::FlightSqlServiceClient;
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use veil_flight_p2::FlightChannel;
use veil_flight_sql::{AnswerError, Answers, Caller, Prepared, Rows, Run, ServerConfig, ServerTls, TableEntry, bind};
use veil_owner::decrypt_batch;
use veil_recipient::{Fetch, FetchTls, Gateway, Opener};
use veil_release::{PARCEL_ROWS, ReleaseId};

use self::key_holder::{Certificates, P2, client, with_tls};
use self::support::{Form, House, Parties, Plan};
use self::told::Told;

const ROWS: usize = 200_000;
const COLUMNS: usize = 4;
const TURNS: usize = 11;

/// What a client does between the columns and the rows, when it does something: enough for a gateway to have them all.
const PAUSE: Duration = Duration::from_millis(100);

fn wanted(name: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| name.contains(&filter))
}

/// Processor seconds of the threads of this process so far, to the nanosecond.
fn processor_seconds() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let times = threads.flatten().flat_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")));
    times.map(|times| times.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9).sum()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Numbers of four kinds, one cell each.
fn numbers() -> String {
    let mut csv = "id,cost,born,seen\n".to_owned();
    for row in 0..ROWS {
        let (id, cost, cents) = (row % 100_000, row % 5_000, row % 100);
        let (year, month, day) = (1900 + row % 130, 1 + row % 12, 1 + row % 28);
        let (hour, minute) = (row % 24, row % 60);
        writeln!(
            csv,
            "{id},{cost}.{cents:02},{year}-{month:02}-{day:02},2020-{month:02}-{day:02}T{hour:02}:{minute:02}:00"
        )
        .unwrap();
    }
    csv
}

/// A batch a parcel, and how many rows are suppressed.
fn opened(house: &House, sealed: &RecordBatch) -> (Vec<RecordBatch>, u64) {
    let mut opener = Opener::new(house.alice.clone()).with_owner(house.owner.public());
    let batches = opener.open(std::slice::from_ref(sealed)).unwrap();
    (batches, opener.finish().unwrap().suppressed)
}

/// Bytes of both sealed parts.
fn sealed_bytes(sealed: &RecordBatch) -> usize {
    ["from_p2", "from_p1"]
        .into_iter()
        .map(|name| sealed.column_by_name(name).unwrap().as_binary::<i64>().values().len())
        .sum()
}

/// From cells, or from slots with a flag for suppressed rows; the last sealed table.
async fn release(house: &House, batch: &RecordBatch, name: &str, with_flag: bool, decrypted: f64) -> RecordBatch {
    let flag: Option<Vec<bool>> = with_flag.then(|| (0..ROWS).map(|row| row % 50 == 0).collect());
    let form = if with_flag { Form::Slots } else { Form::Cells };
    let (mut clock, mut core, mut last) = (Vec::new(), Vec::new(), None);
    let (mut up, mut down) = (0, 0);
    for turn in 0..if with_flag { 3 } else { 7 } {
        let id = ReleaseId([turn + if with_flag { 100 } else { 1 }; 16]);
        let plan = Plan { form, id, parcel_rows: PARCEL_ROWS, flag: flag.clone(), ..Plan::new(batch) };
        // Slots are what earlier rounds left at P1; samples are read from cells in the release itself.
        let ready = with_flag.then(|| house.parcels(&plan));
        let traffic = house.session.traffic();
        let before = (traffic.bytes_up(), traffic.bytes_down());
        let (started, processor) = (Instant::now(), processor_seconds());
        let ready = ready.unwrap_or_else(|| house.parcels(&plan));
        let sealed = house.hand_over(&plan, ready).await.unwrap();
        clock.push(started.elapsed().as_secs_f64());
        core.push(processor_seconds() - processor);
        (up, down) = (traffic.bytes_up() - before.0, traffic.bytes_down() - before.1);
        last = Some(sealed);
    }
    let sealed = last.unwrap();
    let values = (ROWS * COLUMNS) as f64;
    let (clock, core) = (median(clock), median(core));
    println!(
        "| {name} | {clock:.2} | {core:.2} | {:.0} | {:.1} | {:.1} | {:.2} |",
        values / clock,
        up as f64 / values,
        down as f64 / values,
        sealed_bytes(&sealed) as f64 / values
    );
    Told {
        name: &format!("release: {name}"),
        value: values / clock / 1e6,
        unit: "million values/s",
        against: "decryption by the owner",
        ratio: clock / decrypted,
        goal: "0.2 million values/s",
    }
    .tell();
    sealed
}

/// Takes the sealed rows of a release one by one, as they come over Flight.
fn opening(house: &House, sealed: &RecordBatch, name: &str) {
    let (mut clock, mut core) = (Vec::new(), Vec::new());
    let rows: Vec<RecordBatch> = (0..sealed.num_rows()).map(|row| sealed.slice(row, 1)).collect();
    for _ in 0..TURNS {
        let (started, processor) = (Instant::now(), processor_seconds());
        let mut opener = Opener::new(house.alice.clone()).with_owner(house.owner.public());
        // Four at a time, as a download has them.
        for some in rows.chunks(4) {
            std::hint::black_box(opener.open(some).unwrap());
        }
        opener.finish().unwrap();
        clock.push(started.elapsed().as_secs_f64());
        core.push(processor_seconds() - processor);
    }
    let (clock, core) = (median(clock), core.iter().sum::<f64>() / TURNS as f64);
    println!("| {name} | {:.1} | {:.1} | {:.0} |", clock * 1e3, core * 1e3, (ROWS * COLUMNS) as f64 / clock);
}

/// Answers everything with the same batches.
struct Shelf {
    batches: Vec<RecordBatch>,
    keep: bool,
}

#[async_trait]
impl Answers for Shelf {
    async fn prepare(&self, _: &Caller, _: &str) -> Result<Prepared, AnswerError> {
        let (schema, batches) = (self.batches[0].schema(), self.batches.clone());
        let promised = Some(schema.clone());
        let run = Run::new(move || async move { Ok(Rows { schema, batches: stream::iter(batches).map(Ok).boxed() }) });
        Ok(Prepared { schema: promised, run, keep: self.keep })
    }

    async fn tables(&self, _: &Caller) -> Result<Vec<TableEntry>, AnswerError> {
        Ok(Vec::new())
    }
}

/// Serves until the process ends.
async fn serve(answers: impl Answers, certificates: Option<&Certificates>) -> u16 {
    let tls =
        certificates.map(|files| ServerTls { cert: files.at("p1.pem"), key: files.at("p1.key"), client_ca: None });
    let config = ServerConfig { tls, ..ServerConfig::new("127.0.0.1:0".parse().unwrap(), "bench") };
    let server = bind(config, Arc::new(answers)).await.unwrap();
    let port = server.local_addr().port();
    tokio::spawn(server.serve(std::future::pending()));
    port
}

/// A wire to a port that carries so many bits a second each way, or as many as it can.
async fn wire(port: u16, bits: Option<f64>) -> u16 {
    let Some(bits) = bits else { return port };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (near, _) = listener.accept().await.unwrap();
            let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            for stream in [&near, &far] {
                stream.set_nodelay(true).unwrap();
            }
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            for (mut from, mut to) in [(near_in, far_out), (far_in, near_out)] {
                tokio::spawn(async move {
                    let mut buffer = vec![0; 32 << 10];
                    let mut free = tokio::time::Instant::now();
                    while let Ok(count @ 1..) = from.read(&mut buffer).await {
                        // What comes late may catch up a little, as from a queue: sleeping is coarse.
                        let now = tokio::time::Instant::now();
                        let carried = Duration::from_secs_f64(count as f64 * 8.0 / bits);
                        free = free.max(now - Duration::from_millis(5)) + carried;
                        if free > now {
                            tokio::time::sleep_until(free).await;
                        }
                        if to.write_all(&buffer[..count]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        }
    });
    own
}

type Client = FlightSqlServiceClient<Channel>;

async fn connect(port: u16, certificates: Option<&Certificates>) -> Client {
    let scheme = if certificates.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://127.0.0.1:{port}")).unwrap();
    // Windows as wide as those of the gateway.
    endpoint = endpoint.tcp_nodelay(true).initial_stream_window_size(16 << 20).initial_connection_window_size(32 << 20);
    if let Some(files) = certificates {
        let ca = Certificate::from_pem(std::fs::read(files.at("ca.pem")).unwrap());
        endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(ca)).unwrap();
    }
    Client::new(endpoint.connect().await.unwrap())
}

/// Seconds.
struct Turn {
    /// From the question to the last row.
    whole: f64,
    /// From asking for the rows to the last.
    rows: f64,
    /// Of the processor, all parties together.
    core: f64,
}

/// Asks, waits so long, and reads to the end.
async fn read(client: &mut Client, rows: usize, pause: Duration) -> Turn {
    let (started, processor) = (Instant::now(), processor_seconds());
    let info = client.execute("SELECT * FROM t".to_owned(), None).await.unwrap();
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    let asked = Instant::now();
    let mut batches = client.do_get(ticket).await.unwrap();
    let mut found = 0;
    while let Some(batch) = batches.try_next().await.unwrap() {
        found += batch.num_rows();
    }
    assert_eq!(found, rows);
    let (whole, rows) = (started.elapsed().as_secs_f64(), asked.elapsed().as_secs_f64());
    Turn { whole, rows, core: processor_seconds() - processor }
}

/// What a client finds at a server of clear rows, and at a gateway to a server of sealed ones, in turns.
async fn turns(direct: &mut Client, through: &mut Client, rows: usize, pause: Duration) -> Vec<(Turn, Turn)> {
    let mut turns = Vec::new();
    for _ in 0..=TURNS {
        turns.push((read(direct, rows, pause).await, read(through, rows, pause).await));
    }
    // The first warms up.
    turns.split_off(1)
}

/// Medians in milliseconds, and that of what the gateway adds.
fn compared(turns: &[(Turn, Turn)], what: fn(&Turn) -> f64) -> String {
    let of = |pick: fn(&(Turn, Turn)) -> &Turn| median(turns.iter().map(|turn| what(pick(turn))).collect()) * 1e3;
    let added = median(turns.iter().map(|(direct, through)| what(through) / what(direct) - 1.0).collect());
    format!("{:.1} | {:.1} | {:+.0} %", of(|turn| &turn.0), of(|turn| &turn.1), added * 100.0)
}

/// A client at a server of clear rows, and the same client at a gateway to a server of sealed ones; the way to the servers is alike.
async fn gateway(house: &House, sealed: &RecordBatch, clear: &[RecordBatch], name: &str, bits: Option<f64>, tls: bool) {
    let files = Certificates::new();
    let files = tls.then_some(&files);
    let parcels: Vec<RecordBatch> = (0..sealed.num_rows()).map(|row| sealed.slice(row, 1)).collect();
    let raw = wire(serve(Shelf { batches: clear.to_vec(), keep: false }, files).await, bits).await;
    let p1 = wire(serve(Shelf { batches: parcels, keep: true }, files).await, bits).await;
    let fetch_tls = files.map(|files| FetchTls { ca: files.at("ca.pem"), identity: None });
    let scheme = if tls { "https" } else { "http" };
    let fetch = Fetch::connect(&format!("{scheme}://127.0.0.1:{p1}"), fetch_tls.as_ref(), None).await.unwrap();
    let gateway = Gateway::new(fetch, house.alice.clone(), Some(house.owner.public()));
    let mut through = connect(serve(gateway, None).await, None).await;
    let mut direct = connect(raw, files).await;
    let at_once = turns(&mut direct, &mut through, ROWS, Duration::ZERO).await;
    let (whole, rows, core) = (
        compared(&at_once, |turn| turn.whole),
        compared(&at_once, |turn| turn.rows),
        compared(&at_once, |turn| turn.core),
    );
    let later = match bits {
        Some(_) => " | | ".to_owned(),
        None => compared(&turns(&mut direct, &mut through, ROWS, PAUSE).await, |turn| turn.rows),
    };
    println!("| {name} | {whole} | {rows} | {later} | {core} |");
    let through = |turn: &(Turn, Turn)| turn.1.whole;
    let ratio = median(at_once.iter().map(|turn| turn.1.whole / turn.0.whole).collect());
    Told {
        name: &format!("gateway: {name}"),
        value: median(at_once.iter().map(through).collect()) * 1e3,
        unit: "ms",
        against: "the same rows in clear, from the question to the last",
        ratio,
        goal: "1.2",
    }
    .tell();
}

#[tokio::main]
async fn main() {
    let certificates = Certificates::new();
    let parties = Parties::new("");
    let p2 = P2::start_responder(with_tls(&certificates), parties.p2.clone()).await;
    let channel = FlightChannel::connect(client(&p2, Some(&certificates)), parties.owner.key_id()).await.unwrap();
    let house = House::reached_by(parties, Arc::new(channel));
    let batch = house.encrypted(&numbers());
    assert_eq!((batch.num_rows(), batch.num_columns()), (ROWS, COLUMNS));
    let started = Instant::now();
    let expected = decrypt_batch(&house.owner, &batch).unwrap();
    let decrypted = started.elapsed().as_secs_f64();

    println!("{ROWS} rows of {COLUMNS} numbers\n");
    println!("| release | s | core s | values/s | B up | B down | B parcel |\n|---|---|---|---|---|---|---|");
    let cells = release(&house, &batch, "from cells", false, decrypted).await;
    let (clear, _) = opened(&house, &cells);
    assert_eq!(concat_batches(&clear[0].schema(), &clear).unwrap().columns(), expected.columns());
    let slots = match wanted("slots") {
        true => Some(release(&house, &batch, "from slots, 2 % suppressed", true, decrypted).await),
        false => None,
    };
    if wanted("opening") {
        println!("\n| opening | ms | core ms | values/s |\n|---|---|---|---|");
        opening(&house, &cells, "from cells");
        if let Some(slots) = &slots {
            assert_eq!(opened(&house, slots).1, ROWS as u64 / 50);
            opening(&house, slots, "from slots, 2 % suppressed");
        }
    }
    if wanted("gateway") {
        let columns = clear.iter().flat_map(RecordBatch::columns);
        let memory: usize = columns.map(|column| column.get_buffer_memory_size()).sum();
        println!("\n{:.1} MB clear, {:.1} MB sealed\n", memory as f64 / 1e6, sealed_bytes(&cells) as f64 / 1e6);
        println!(
            "clear server, gateway and what it adds, in ms: from the question; DoGet at once; DoGet after {PAUSE:?}; processor\n"
        );
        println!(
            "| way to the server | clear | gateway | added | clear | gateway | added | clear | gateway | added | clear | gateway | added |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
        gateway(&house, &cells, &clear, "loopback", None, false).await;
        gateway(&house, &cells, &clear, "loopback, TLS", None, true).await;
        for (name, bits) in [
            ("10 Gbit/s", 1e10),
            ("5 Gbit/s", 5e9),
            ("3 Gbit/s", 3e9),
            ("2 Gbit/s", 2e9),
            ("1 Gbit/s", 1e9),
            ("100 Mbit/s", 1e8),
        ] {
            gateway(&house, &cells, &clear, &format!("{name}, TLS"), Some(bits), true).await;
        }
    }
}
