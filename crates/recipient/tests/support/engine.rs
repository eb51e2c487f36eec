//! A server that has one sealed table, and a wire to it that can be cut.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use veil_flight_sql::{AnswerError, Answers, Caller, Kind, Prepared, Rows, Run, ServerConfig, TableEntry, bind};

/// Answers everything with one table, row by row; each row takes a permit.
pub(crate) struct Engine {
    pub(crate) table: RecordBatch,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) runs: Arc<AtomicUsize>,
    pub(crate) asked: Mutex<Vec<String>>,
    pub(crate) keep: bool,
}

impl Engine {
    pub(crate) fn new(table: RecordBatch, permits: usize) -> Self {
        let permits = Arc::new(Semaphore::new(permits));
        Self { table, permits, runs: Arc::default(), asked: Mutex::default(), keep: true }
    }
}

#[async_trait]
impl Answers for Engine {
    async fn prepare(&self, _: &Caller, sql: &str) -> Result<Prepared, AnswerError> {
        self.asked.lock().unwrap().push(sql.to_owned());
        if sql.contains("forbidden") {
            return Err(AnswerError::new(Kind::Denied, "no rule allows recipient alice to receive column forbidden"));
        }
        let (table, permits, runs) = (self.table.clone(), self.permits.clone(), self.runs.clone());
        let run = Run::new(move || async move {
            runs.fetch_add(1, Ordering::SeqCst);
            let schema = table.schema();
            let batches = stream::iter(0..table.num_rows()).then(move |row| {
                let (table, permits) = (table.clone(), permits.clone());
                async move {
                    permits.acquire().await.unwrap().forget();
                    Ok(table.slice(row, 1))
                }
            });
            Ok(Rows { schema, batches: batches.boxed() })
        });
        Ok(Prepared { schema: Some(self.table.schema()), run, keep: self.keep })
    }

    async fn tables(&self, _: &Caller) -> Result<Vec<TableEntry>, AnswerError> {
        Ok(vec![TableEntry {
            catalog: "veil".to_owned(),
            schema: "public".to_owned(),
            table: "t".to_owned(),
            table_type: "TABLE".to_owned(),
            columns: Some(self.table.schema()),
        }])
    }
}

/// Something that listens until it is dropped.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<()>,
    spool: tempfile::TempDir,
}

impl Site {
    pub(crate) async fn new(answers: Arc<dyn Answers>) -> Self {
        let spool = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            spool: spool.path().to_owned(),
            grace: Duration::ZERO,
            ..ServerConfig::new("127.0.0.1:0".parse().unwrap(), "test")
        };
        let server = bind(config, answers).await.unwrap();
        let (address, (stop, stopped)) = (server.local_addr(), oneshot::channel());
        let served = tokio::spawn(async { server.serve(async { drop(stopped.await) }).await.unwrap() });
        Self { address, stop: Some(stop), served, spool }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Results that are kept: open files of the folder, which have no name there.
    #[cfg(target_os = "linux")]
    pub(crate) fn kept(&self) -> usize {
        let folder = self.spool.path().display().to_string();
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = links.flatten().flat_map(|entry| std::fs::read_link(entry.path()));
        targets.filter(|target| target.display().to_string().starts_with(&folder)).count()
    }

    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.served.await.unwrap();
    }
}

/// A wire to an address that can be cut; what connects after that gets a new one.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    cuts: watch::Sender<usize>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Wire {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cuts, connections) = (watch::Sender::new(0), Arc::new(AtomicUsize::new(0)));
        let (cutting, counted) = (cuts.subscribe(), connections.clone());
        tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let mut cutting = cutting.clone();
                cutting.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cutting.changed() => {}
                    }
                });
            }
        });
        Self { address, cuts, connections }
    }

    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
