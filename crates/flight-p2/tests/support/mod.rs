//! A real P2 on a port of its own, with real certificates, and a P1 in front of it.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several test programs; a test fails by panicking")]

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arrow::array::{ArrayRef, LargeBinaryArray, RecordBatch};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use veil_flight_p2::{ClientConfig, ClientTls, FlightChannel, P2Server, ServerConfig, ServerError, ServerTls};
use veil_keys::{OwnerKeys, P2Keys};
use veil_protocols::multiply::multiply;
use veil_protocols::testing::AnyQuestion;
use veil_protocols::{Frame, Header, Limits, ProtocolError, Randomness, Responder, Session, catalog};
use veil_slots::{KeyHolder, L1, Sanitizer, Slots, plain};

pub(crate) static KEYS: LazyLock<OwnerKeys> = LazyLock::new(|| OwnerKeys::generate(&mut StdRng::seed_from_u64(1)));
pub(crate) static OTHER_KEYS: LazyLock<OwnerKeys> =
    LazyLock::new(|| OwnerKeys::generate(&mut StdRng::seed_from_u64(2)));

/// Certificates of both sides, and of somebody else.
pub(crate) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        for (authority, names) in [("ca", &["p1", "p2", "alice"][..]), ("rogue-ca", &["rogue", "rogue-p2"])] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            write(&format!("{authority}.pem"), params.self_signed(&key).unwrap().pem());
            let issuer = Issuer::new(params, key);
            for name in names {
                let key = KeyPair::generate().unwrap();
                let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
                params.distinguished_name.push(DnType::CommonName, *name);
                write(&format!("{name}.pem"), params.signed_by(&key, &issuer).unwrap().pem());
                write(&format!("{name}.key"), key.serialize_pem());
            }
        }
        Self(folder)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn server(&self) -> ServerTls {
        ServerTls { cert: self.at("p2.pem"), key: self.at("p2.key"), client_ca: self.at("ca.pem") }
    }

    pub(crate) fn client(&self) -> ClientTls {
        self.client_as("p1")
    }

    pub(crate) fn client_as(&self, name: &str) -> ClientTls {
        ClientTls { ca: self.at("ca.pem"), cert: self.at(&format!("{name}.pem")), key: self.at(&format!("{name}.key")) }
    }
}

/// A P2 in a runtime of its own, so that it can be killed with all its connections.
pub(crate) struct P2 {
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    pub(crate) responder: Arc<Responder>,
    pub(crate) served: JoinHandle<Result<(), ServerError>>,
    stop: Option<oneshot::Sender<()>>,
    runtime: Option<Runtime>,
}

impl P2 {
    pub(crate) async fn start(config: ServerConfig) -> Self {
        Self::start_with(config, &KEYS, Limits::default()).await
    }

    pub(crate) async fn start_with(config: ServerConfig, keys: &OwnerKeys, limits: Limits) -> Self {
        Self::start_holder(config, Arc::new(keys.p2()), limits).await
    }

    pub(crate) async fn start_holder(config: ServerConfig, holder: Arc<dyn KeyHolder>, limits: Limits) -> Self {
        let responder = Responder::new(holder, limits, Randomness::fixed(3));
        Self::start_responder(config, Arc::new(responder.with_desk(Arc::new(AnyQuestion)))).await
    }

    pub(crate) async fn start_responder(config: ServerConfig, responder: Arc<Responder>) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let bound = runtime.spawn(P2Server::bind(config, responder.clone())).await.unwrap().unwrap();
        let (address, url) = (bound.local_addr(), bound.url());
        let (stop, stopped) = oneshot::channel::<()>();
        let served = runtime.spawn(bound.serve(async {
            let _ = stopped.await;
        }));
        Self { address, url, responder, served, stop: Some(stop), runtime: Some(runtime) }
    }

    /// Asks it to stop, and returns at once.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Ends it with all its connections, as a power cut would.
    pub(crate) async fn kill(mut self) {
        let runtime = self.runtime.take().unwrap();
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(30))).await.unwrap();
    }
}

impl Drop for P2 {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// On a free port of the loopback interface.
pub(crate) fn anywhere() -> ServerConfig {
    ServerConfig::new("127.0.0.1:0".parse().unwrap())
}

pub(crate) fn with_tls(certificates: &Certificates) -> ServerConfig {
    ServerConfig { tls: Some(certificates.server()), ..anywhere() }
}

pub(crate) fn client(p2: &P2, certificates: Option<&Certificates>) -> ClientConfig {
    ClientConfig { tls: certificates.map(Certificates::client), ..ClientConfig::new(p2.url.clone()) }
}

pub(crate) async fn connect(config: ClientConfig) -> Result<FlightChannel, ProtocolError> {
    FlightChannel::connect(config, KEYS.key_id()).await
}

pub(crate) fn session(channel: FlightChannel) -> Session {
    let sanitizer = Sanitizer::new(KEYS.p1().public_key().clone());
    Session::with(Arc::new(channel), KEYS.key_id(), sanitizer, Randomness::fixed(4))
}

pub(crate) fn p2_keys() -> P2Keys {
    KEYS.p2()
}

pub(crate) fn seal(values: &[u64]) -> Slots<L1> {
    p2_keys().slot().seal(values, &mut StdRng::seed_from_u64(5)).expand().unwrap().raised()
}

pub(crate) fn open(slots: &Slots<L1>) -> Vec<u64> {
    p2_keys().slot().open_slots(slots)
}

/// Multiplies so many pairs, five a batch, and checks every product.
pub(crate) async fn multiply_and_check(session: &Session, pairs: u64) {
    let factors = |pair: u64| ([pair + 2, 1_000_003 * pair, 7], [pair + 5, 17, 1 << 40]);
    let sealed = (0..pairs).map(|pair| (seal(&factors(pair).0), seal(&factors(pair).1))).collect();
    let products = multiply(session, sealed).await.unwrap();
    assert_eq!(products.len() as u64, pairs);
    for (pair, product) in products.iter().enumerate() {
        let (x, y) = factors(pair as u64);
        let expected: Vec<u64> = x.iter().zip(y).map(|(x, y)| plain::mul(*x, y)).collect();
        assert_eq!(open(product)[..3], expected, "pair {pair}");
    }
}

/// The header of a sound question.
pub(crate) fn header(batch: u32) -> Header {
    let (protocol, key_id) = ("lift".to_owned(), KEYS.key_id());
    let receipt = Default::default();
    Header { protocol, version: 1, session: [6; 16], round: 0, batch, key_id, receipt }
}

/// The smallest sound question: rows of no cells to lift.
pub(crate) fn rows(count: usize) -> RecordBatch {
    let empty = || -> ArrayRef { Arc::new(LargeBinaryArray::from_iter_values(vec![b""; count])) };
    RecordBatch::try_new((catalog::find("lift").unwrap().query)(), vec![empty(), empty(), empty()]).unwrap()
}

pub(crate) fn frame(batch: u32) -> Frame {
    Frame::new(&header(batch), rows(1))
}
