//! An answerer of a few statements, on a real port.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several test programs; a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, DictionaryArray, Int64Array, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Int8Type, Int64Type, Schema, SchemaRef};
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{FlightInfo, Ticket};
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::{Semaphore, oneshot, watch};
use tonic::transport::{Channel, Endpoint};
use veil_flight_sql::{
    AnswerError, Answers, BoundServer, Caller, Kind, Prepared, Rows, Run, ServerConfig, ServerError, TableEntry, bind,
};

pub(crate) type Client = FlightSqlServiceClient<Channel>;

/// Rows of a batch.
pub(crate) const BATCH: u64 = 10;

/// Knows `rows n`, `keep n`, `fail n`, `endless`, `change n`, `words` and `who`. A statement that is kept takes a permit for every
/// batch.
pub(crate) struct Fake {
    pub(crate) batches: Arc<Semaphore>,
    pub(crate) started: Arc<AtomicUsize>,
    /// Runs that are under way.
    pub(crate) running: watch::Sender<usize>,
}

impl Default for Fake {
    fn default() -> Self {
        Self { batches: Arc::new(Semaphore::new(0)), started: Arc::default(), running: watch::Sender::new(0) }
    }
}

/// A run under way.
struct Running(watch::Sender<usize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

pub(crate) fn numbers() -> SchemaRef {
    let metadata = [("ARROW:extension:name".to_owned(), "veil.cell".to_owned())].into();
    Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false).with_metadata(metadata)]))
}

fn batch(from: u64, rows: u64) -> RecordBatch {
    let values: Int64Array = (from..from + rows).map(|value| i64::try_from(value).unwrap()).collect();
    RecordBatch::try_new(numbers(), vec![Arc::new(values) as ArrayRef]).unwrap()
}

fn words() -> RecordBatch {
    let values: DictionaryArray<Int8Type> = ["a", "b", "a"].into_iter().collect();
    RecordBatch::try_from_iter([("word", Arc::new(values) as ArrayRef)]).unwrap()
}

impl Fake {
    /// So many rows, in batches, each of which may need a permit; then perhaps an error.
    fn run(&self, rows: u64, permits: Option<Arc<Semaphore>>, end: Option<AnswerError>) -> Run {
        let (started, running) = (self.started.clone(), self.running.clone());
        Run::new(move || async move {
            started.fetch_add(1, Ordering::SeqCst);
            running.send_modify(|running| *running += 1);
            let guard = Arc::new(Running(running));
            let batches = stream::iter((0..rows).step_by(BATCH as usize)).then(move |from| {
                let (permits, guard) = (permits.clone(), guard.clone());
                async move {
                    let _guard = guard;
                    if let Some(permits) = permits {
                        permits.acquire().await.unwrap().forget();
                    }
                    Ok(batch(from, BATCH.min(rows - from)))
                }
            });
            Ok(Rows { schema: numbers(), batches: batches.chain(stream::iter(end.map(Err))).boxed() })
        })
    }
}

#[async_trait]
impl Answers for Fake {
    async fn prepare(&self, caller: &Caller, sql: &str) -> Result<Prepared, AnswerError> {
        let mut words_of = sql.split(' ');
        let (verb, number) =
            (words_of.next().unwrap_or_default(), words_of.next().and_then(|n| n.parse().ok()).unwrap_or(0));
        let known = |run, keep| Prepared { schema: Some(numbers()), run, keep };
        let one = |batch: RecordBatch| {
            let rows =
                move || async move { Ok(Rows { schema: batch.schema(), batches: stream::iter([Ok(batch)]).boxed() }) };
            Run::new(rows)
        };
        match verb {
            "rows" => Ok(known(self.run(number, None, None), false)),
            "endless" => Ok(known(self.run(u64::MAX / 4, None, None), false)),
            "keep" => Ok(known(self.run(number, Some(self.batches.clone()), None), true)),
            "fail" => {
                let error = AnswerError::new(Kind::Exhausted, "it broke");
                Ok(known(self.run(number, None, Some(error)), true))
            }
            "broken" => {
                let run = Run::new(|| async { Err(AnswerError::new(Kind::Unavailable, "it did not begin")) });
                Ok(Prepared { schema: None, run, keep: true })
            }
            "words" => Ok(Prepared { schema: Some(words().schema()), run: one(words()), keep: false }),
            "change" => {
                let counts = Arc::new(UInt64Array::from(vec![number])) as ArrayRef;
                let run = one(RecordBatch::try_from_iter([("count", counts)]).unwrap());
                Ok(Prepared { schema: None, run, keep: false })
            }
            "who" => Err(AnswerError::new(Kind::Denied, format!("{} {:?}", caller.name, caller.role))),
            _ => Err(AnswerError::new(Kind::Invalid, format!("there is no statement {verb}"))),
        }
    }

    async fn tables(&self, _: &Caller) -> Result<Vec<TableEntry>, AnswerError> {
        let entry = |schema: &str, table: &str, table_type: &str, columns| TableEntry {
            catalog: "veil".to_owned(),
            schema: schema.to_owned(),
            table: table.to_owned(),
            table_type: table_type.to_owned(),
            columns,
        };
        Ok(vec![entry("public", "patients", "TABLE", Some(numbers())), entry("other", "people", "VIEW", None)])
    }
}

/// A server with its answerer and its time.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) fake: Arc<Fake>,
    pub(crate) spool: tempfile::TempDir,
    seconds: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<Result<(), ServerError>>>,
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with(|config| config).await
    }

    pub(crate) async fn with(change: impl FnOnce(ServerConfig) -> ServerConfig) -> Self {
        let (spool, fake, seconds) =
            (tempfile::tempdir().unwrap(), Arc::new(Fake::default()), Arc::new(AtomicU64::new(0)));
        let (start, passed) = (Instant::now(), seconds.clone());
        let config = ServerConfig {
            spool: spool.path().to_owned(),
            clock: Arc::new(move || start + Duration::from_secs(passed.load(Ordering::SeqCst))),
            grace: Duration::ZERO,
            ..ServerConfig::new("127.0.0.1:0".parse().unwrap(), "fake")
        };
        let server: BoundServer = bind(change(config), fake.clone()).await.unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.serve(async { drop(stopped.await) }));
        Self { address, fake, spool, seconds, stop: Some(stop), served: Some(served) }
    }

    pub(crate) async fn client(&self) -> Client {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        Client::new(endpoint.connect().await.unwrap())
    }

    pub(crate) async fn client_with(&self, token: &str) -> Client {
        let mut client = self.client().await;
        client.set_token(token.to_owned());
        client
    }

    pub(crate) fn wait(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    pub(crate) async fn stop(&mut self) -> Result<(), ServerError> {
        drop(self.stop.take());
        self.served.take().unwrap().await.unwrap()
    }

    pub(crate) async fn until_running(&self, runs: usize) {
        self.fake.running.subscribe().wait_for(|running| *running == runs).await.unwrap();
    }

    /// Spools that are open: files of the folder that the process has, which have no name there.
    pub(crate) fn spools(&self) -> usize {
        let folder = self.spool.path().display().to_string();
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = links.flatten().flat_map(|entry| std::fs::read_link(entry.path()));
        targets.filter(|target| target.display().to_string().starts_with(&folder)).count()
    }
}

/// The ticket of a statement.
pub(crate) async fn ticket(client: &mut Client, sql: &str) -> Ticket {
    only_ticket(client.execute(sql.to_owned(), None).await.unwrap())
}

pub(crate) fn only_ticket(info: FlightInfo) -> Ticket {
    assert_eq!(info.endpoint.len(), 1);
    info.endpoint.into_iter().next().unwrap().ticket.unwrap()
}

/// The numbers of a ticket, and how it ended.
pub(crate) async fn read(client: &mut Client, ticket: Ticket) -> (Vec<i64>, Option<String>) {
    let (mut found, mut error) = (Vec::new(), None);
    match client.do_get(ticket).await {
        Err(refused) => error = Some(refused.to_string()),
        Ok(mut rows) => {
            while error.is_none() {
                match rows.try_next().await {
                    Ok(Some(batch)) => found.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values()),
                    Ok(None) => break,
                    Err(broken) => error = Some(broken.to_string()),
                }
            }
        }
    }
    (found, error)
}

/// A refusal of a ticket.
pub(crate) async fn refusal(client: &mut Client, ticket: Ticket) -> String {
    let (rows, error) = read(client, ticket).await;
    assert_eq!(rows, [0; 0]);
    error.expect("it was not refused")
}
