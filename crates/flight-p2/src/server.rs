//! P2 listens, and stops without losing a round.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tracing::info;
use veil_protocols::Responder;

use crate::P2Service;
use crate::status::reason;
use crate::tls::{ServerTls, TlsError, install_crypto};

/// How P2 listens.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Mutual TLS. Without it P2 listens on loopback addresses only.
    pub tls: Option<ServerTls>,
    /// Batches that are worked on at the same time, over all connections.
    pub batches_at_once: usize,
    /// How long rounds in flight may take once P2 is to stop.
    pub grace: Duration,
}

impl ServerConfig {
    /// Without TLS, with as many batches at once as there are processors, and 30 seconds of grace.
    pub fn new(listen: SocketAddr) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self { listen, tls: None, batches_at_once: processors.max(2), grace: Duration::from_secs(30) }
    }
}

/// Why P2 does not listen. Each is one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Others could listen in.
    #[error(
        "P2 does not listen on {0} without TLS: give a certificate, a key and a client authority, or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),

    /// The address is not free, or not this machine's.
    #[error("P2 cannot listen on {address}: {source}; choose another address or port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },

    /// A certificate is wrong.
    #[error(transparent)]
    Tls(#[from] TlsError),

    /// The server broke down.
    #[error("P2 stopped listening: {0}")]
    Broken(String),
}

/// P2 over Flight.
#[derive(Debug)]
pub struct P2Server;

/// A P2 that has its address and answers once it is served.
#[derive(Debug)]
pub struct BoundServer {
    config: ServerConfig,
    responder: Arc<Responder>,
    listener: TcpListener,
    local_addr: SocketAddr,
    server: Server,
}

/// HTTP/2's windows: a batch is megabytes, and the defaults of 64 KiB would make it wait for acknowledgements.
pub(crate) const STREAM_WINDOW: u32 = 16 << 20;
pub(crate) const CONNECTION_WINDOW: u32 = 32 << 20;

/// A side that has said nothing for so long is asked whether it is there.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(20);

/// Rounds of one connection at the same time.
const MAX_STREAMS: u32 = 64;

/// How long the last words of a server that must stop may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A server of Flight's big messages, without certificates yet.
pub fn flight_server() -> Server {
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
}

impl P2Server {
    /// Takes the address. Clients can connect from now on, and are answered once it is served.
    pub async fn bind(config: ServerConfig, responder: Arc<Responder>) -> Result<BoundServer, ServerError> {
        install_crypto();
        let address = config.listen;
        let mut server = flight_server();
        match &config.tls {
            Some(tls) => {
                let unusable = |error| TlsError::Unusable { path: tls.cert.clone(), why: reason(&error) };
                server = server.tls_config(tls.load()?).map_err(unusable)?;
            }
            None if address.ip().is_loopback() => {}
            None => return Err(ServerError::Exposed(address)),
        }
        let listen = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let local_addr = listener.local_addr().map_err(listen)?;
        Ok(BoundServer { config, responder, listener, local_addr, server })
    }
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

    /// Answers until `shutdown`; then takes no new connection, finishes rounds in flight within the grace, and ends the rest
    /// so that their clients turn to whoever comes next.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), ServerError> {
        let Self { config, responder, listener, local_addr, mut server } = self;
        let (stop, stopping) = watch::channel(false);
        let service = P2Service::new(responder, config.batches_at_once, stopping);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true)).with_keepalive(Some(KEEPALIVE));
        let shutdown = shutdown.map(|()| info!("stopping")).shared();
        let asked = shutdown.clone();
        info!(address = %local_addr, tls = config.tls.is_some(), "listening");
        let serving = server.add_service(service.into_server()).serve_with_incoming_shutdown(incoming, shutdown);
        let patience = async {
            asked.await;
            tokio::time::sleep(config.grace).await;
        };
        tokio::pin!(serving);
        let outcome = tokio::select! {
            outcome = &mut serving => outcome,
            () = patience => {
                stop.send_replace(true);
                tokio::time::timeout(LAST_WORDS, serving).await.unwrap_or(Ok(()))
            }
        };
        outcome.map_err(|error| ServerError::Broken(reason(&error)))?;
        info!("stopped");
        Ok(())
    }
}
