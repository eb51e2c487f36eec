//! Listening, and stopping without cutting off what is under way.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_flight::flight_service_server::FlightServiceServer;
use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tracing::info;
use veil_flight_p2::{HANDSHAKE_TIMEOUT, TlsError, authority, flight_server, identity, install_crypto, reason};

use crate::caller::Door;
use crate::service::Service;
use crate::spool::SpoolPlace;
use crate::sql_info::sql_info;
use crate::tickets::{Clock, Tickets};
use crate::{Answers, Role, Tokens};

/// The server's certificate, and whose it wants to see.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The server's certificate, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authority whose clients are let in. Without one, clients show no certificate.
    pub client_ca: Option<PathBuf>,
}

/// How to listen.
#[derive(Clone)]
pub struct ServerConfig {
    /// Where; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Without it the server listens on loopback addresses only.
    pub tls: Option<ServerTls>,
    /// Who may come, by token. Without it everybody whose certificate is good, or who is on this machine.
    pub tokens: Option<Arc<Tokens>>,
    /// What those may do who come with a certificate and without a token, by its common name. All others are recipients of the
    /// name in their certificate.
    pub certificate_roles: BTreeMap<String, Role>,
    /// What the server calls itself.
    pub name: String,
    /// How long a ticket lives without use.
    pub ticket_lifetime: Duration,
    /// Tickets and prepared statements that are open at the same time.
    pub most_tickets: usize,
    /// Statements that run at the same time.
    pub statements_at_once: usize,
    /// The folder for results of statements that are kept.
    pub spool: PathBuf,
    /// The largest result to spool, in bytes.
    pub most_spooled: u64,
    /// The largest message to take or give, in bytes.
    pub most_message: usize,
    /// How long downloads may take once the server is to stop.
    pub grace: Duration,
    /// What time it is, for tickets.
    pub clock: Clock,
}

impl ServerConfig {
    /// Without TLS and tokens, with tickets of an hour, and results in the system's folder for temporary files.
    pub fn new(listen: SocketAddr, name: &str) -> Self {
        Self {
            listen,
            tls: None,
            tokens: None,
            certificate_roles: BTreeMap::new(),
            name: name.to_owned(),
            ticket_lifetime: Duration::from_secs(3600),
            most_tickets: 1024,
            statements_at_once: 64,
            spool: std::env::temp_dir(),
            most_spooled: 64 << 30,
            most_message: 64 << 20,
            grace: Duration::from_secs(30),
            clock: Arc::new(Instant::now),
        }
    }
}

/// Why the server does not listen. Each is one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Others could listen in.
    #[error("the server does not listen on {0} without TLS: give a certificate and a key, or listen on 127.0.0.1")]
    Exposed(SocketAddr),

    /// Anybody could ask.
    #[error(
        "the server does not listen on {0} without knowing who asks: give a token file or a client authority, or listen on \
         127.0.0.1"
    )]
    Open(SocketAddr),

    /// The address is not free, or not this machine's.
    #[error("the server cannot listen on {address}: {source}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },

    /// A certificate is wrong.
    #[error(transparent)]
    Tls(#[from] TlsError),

    /// Results cannot be kept.
    #[error("{folder}: results cannot be spooled there: {source}; give a folder that can be written to")]
    Spool {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        source: std::io::Error,
    },

    /// The server broke down.
    #[error("the server stopped listening: {0}")]
    Broken(String),
}

/// A server that has its address and answers once it is served.
pub struct BoundServer {
    local_addr: SocketAddr,
    listener: TcpListener,
    server: Server,
    service: Service,
    config: ServerConfig,
    stop: watch::Sender<bool>,
}

/// How long the last words of a server that must stop may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How often expired tickets are looked for when nobody asks.
const SWEEP: Duration = Duration::from_secs(30);

/// Takes the address. Clients can connect from now on, and are answered once it is served.
pub async fn bind(config: ServerConfig, answers: Arc<dyn Answers>) -> Result<BoundServer, ServerError> {
    install_crypto();
    let address = config.listen;
    let mut server = flight_server();
    if let Some(tls) = &config.tls {
        let unusable = |error| TlsError::Unusable { path: tls.cert.clone(), why: reason(&error) };
        server = server.tls_config(tls.load()?).map_err(unusable)?;
    }
    if !address.ip().is_loopback() {
        let knows_callers = config.tokens.is_some() || config.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        match (&config.tls, knows_callers) {
            (None, _) => return Err(ServerError::Exposed(address)),
            (Some(_), false) => return Err(ServerError::Open(address)),
            (Some(_), true) => {}
        }
    }
    let spool = |source| ServerError::Spool { folder: config.spool.clone(), source };
    tempfile::tempfile_in(&config.spool).map_err(spool)?;
    let info = sql_info(&config.name).map_err(|error| ServerError::Broken(error.to_string()))?;
    let listen = |source| ServerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let local_addr = listener.local_addr().map_err(listen)?;
    let (stop, stopping) = watch::channel(false);
    let service = Service {
        answers,
        tickets: Arc::new(Tickets::new(config.ticket_lifetime, config.most_tickets, config.clock.clone())),
        spool_place: SpoolPlace { folder: config.spool.clone(), most_bytes: config.most_spooled },
        places: Arc::new(Semaphore::new(config.statements_at_once.max(1))),
        sql_info: Arc::new(info),
        stopping,
    };
    Ok(BoundServer { local_addr, listener, server, service, config, stop })
}

impl BoundServer {
    /// The address, with the port that it got.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The address as clients write it.
    pub fn url(&self) -> String {
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.local_addr)
    }

    /// Answers until `shutdown`; then takes no new connection, lets downloads finish within the grace, and ends the rest.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServerError> {
        let Self { local_addr, listener, mut server, service, config, stop } = self;
        let tickets = service.tickets.clone();
        let flight = FlightServiceServer::new(service)
            .max_decoding_message_size(config.most_message)
            .max_encoding_message_size(config.most_message);
        let certificate_roles = Arc::new(config.certificate_roles.clone());
        let door = Door { tokens: config.tokens.clone(), certificate_roles };
        let guarded = InterceptedService::new(flight, move |request| door.open(request));
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let shutdown = shutdown.map(|()| info!("stopping")).shared();
        let asked = shutdown.clone();
        info!(address = %local_addr, tls = config.tls.is_some(), tokens = config.tokens.is_some(), "listening");
        let serving = server.add_service(guarded).serve_with_incoming_shutdown(incoming, shutdown);
        let patience = async {
            asked.await;
            tokio::time::sleep(config.grace).await;
        };
        let sweeping = async {
            let mut ticks = tokio::time::interval(SWEEP);
            loop {
                ticks.tick().await;
                tickets.sweep();
            }
        };
        tokio::pin!(serving);
        let outcome = tokio::select! {
            outcome = &mut serving => outcome,
            () = sweeping => Ok(()),
            () = patience => {
                stop.send_replace(true);
                tokio::time::timeout(LAST_WORDS, serving).await.unwrap_or(Ok(()))
            }
        };
        // What runs for downloads to come has nobody to come to.
        tickets.clear();
        outcome.map_err(|error| ServerError::Broken(reason(&error)))?;
        info!("stopped");
        Ok(())
    }
}

impl std::fmt::Debug for BoundServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BoundServer").field("local_addr", &self.local_addr).finish_non_exhaustive()
    }
}

impl ServerTls {
    fn load(&self) -> Result<ServerTlsConfig, TlsError> {
        let tls = ServerTlsConfig::new().identity(identity(&self.cert, &self.key)?).timeout(HANDSHAKE_TIMEOUT);
        Ok(match &self.client_ca {
            Some(ca) => tls.client_ca_root(authority(ca)?),
            None => tls,
        })
    }
}
