//! One connection to P2 and its small calls.

use std::time::Duration;

use arrow_flight::Action;
use arrow_flight::flight_service_client::FlightServiceClient;
use serde::{Deserialize, Serialize};
use tonic::transport::{Channel, Endpoint};
use veil_cells::KeyId;
use veil_protocols::{Limits, ProtocolError};

use crate::Terms;
use crate::backoff::Backoff;
use crate::server::{CONNECTION_WINDOW, KEEPALIVE, STREAM_WINDOW};
use crate::status::{error_of, is_refused_certificate, reason};
use crate::tls::{ClientTls, install_crypto};
use crate::wire::SLACK;

/// The action that compares what both sides speak.
pub(crate) const HANDSHAKE: &str = "veil.handshake";
/// The action that tells whether P2 is well.
pub(crate) const HEALTH: &str = "veil.health";
/// The action that tells what P2 has done.
pub(crate) const METRICS: &str = "veil.metrics";

/// How P1 reaches P2.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where P2 listens: `https://host:port`, or `http://` without TLS.
    pub endpoint: String,
    /// Mutual TLS.
    pub tls: Option<ClientTls>,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long a round tries to get back to a P2 that it has lost.
    pub retry_for: Duration,
    /// How long P2 may take for a batch.
    pub batch_deadline: Duration,
    /// Unanswered batches of a round.
    pub window: usize,
    /// The largest answer that P1 takes, whatever P2 allows.
    pub max_answer_bytes: usize,
}

impl ClientConfig {
    /// With the usual patience: 3 seconds to connect, 60 to get back, 120 for a batch.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            tls: None,
            connect_timeout: Duration::from_secs(3),
            retry_for: Duration::from_secs(60),
            batch_deadline: Duration::from_secs(120),
            window: 4,
            max_answer_bytes: 256 << 20,
        }
    }
}

/// What P2 says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `ok`.
    pub status: String,
    /// The key set that it answers for.
    pub key_id: KeyId,
}

/// How long the first connection is tried again: a P2 that is not there is soon reported.
pub(crate) const FIRST_TRIES: Duration = Duration::from_millis(800);

/// A first failure that comes later than this was one of waiting, and another try would only double it. On a busy machine others may take
/// longer than [`FIRST_TRIES`].
const FIRST_FAILURE: Duration = Duration::from_millis(2500);

/// A connection to P2.
#[derive(Clone, Debug)]
pub struct Connection {
    client: FlightServiceClient<Channel>,
    config: ClientConfig,
}

impl Connection {
    /// Connects, with a few quick tries.
    pub async fn open(config: &ClientConfig) -> Result<Self, ProtocolError> {
        persist(FIRST_TRIES, || Self::attempt(config)).await
    }

    /// Connects, once.
    pub(crate) async fn attempt(config: &ClientConfig) -> Result<Self, ProtocolError> {
        let endpoint = endpoint(config)?;
        let channel = match tokio::time::timeout(config.connect_timeout, endpoint.connect()).await {
            Ok(connected) => connected.map_err(|error| unreachable(config, &reason(&error)))?,
            Err(_) => return Err(unreachable(config, "it does not answer")),
        };
        let client = FlightServiceClient::new(channel)
            .max_decoding_message_size(config.max_answer_bytes.saturating_add(SLACK))
            .max_encoding_message_size(usize::MAX);
        Ok(Self { client, config: config.clone() })
    }

    /// Compares what both sides speak, for a key set, and returns what P2 speaks.
    pub async fn handshake(&self, key_id: KeyId) -> Result<Terms, ProtocolError> {
        let own = Terms::new(key_id, Limits::default());
        let body = serde_json::to_vec(&own).map_err(|error| ProtocolError::Internal(error.to_string()))?;
        let p2: Terms = self.parsed(&self.act(HANDSHAKE, body).await?)?;
        p2.accept(&own)?;
        Ok(p2)
    }

    /// Asks P2 whether it is well.
    pub async fn health(&self) -> Result<Health, ProtocolError> {
        self.parsed(&self.act(HEALTH, Vec::new()).await?)
    }

    /// Asks P2 what it has done, in the text format of Prometheus.
    pub async fn metrics(&self) -> Result<String, ProtocolError> {
        let text = self.act(METRICS, Vec::new()).await?;
        String::from_utf8(text).map_err(|_| ProtocolError::Malformed("P2's metrics are not text".to_owned()))
    }

    /// For streams.
    pub(crate) fn client(&self) -> FlightServiceClient<Channel> {
        self.client.clone()
    }

    async fn act(&self, action: &str, body: Vec<u8>) -> Result<Vec<u8>, ProtocolError> {
        let mut client = self.client.clone();
        let call = async {
            let mut results = client.do_action(Action::new(action, body)).await?.into_inner();
            let result = results.message().await?;
            // To the end, where an error would be.
            while results.message().await?.is_some() {}
            Ok(result.map(|result| result.body.to_vec()).unwrap_or_default())
        };
        match tokio::time::timeout(self.config.connect_timeout, call).await {
            Ok(outcome) => outcome.map_err(|status: tonic::Status| explain(&self.config, error_of(&status))),
            Err(_) => Err(unreachable(&self.config, "it accepts connections and does not answer")),
        }
    }

    fn parsed<'a, T: Deserialize<'a>>(&self, json: &'a [u8]) -> Result<T, ProtocolError> {
        serde_json::from_slice(json).map_err(|_| {
            ProtocolError::Malformed(format!("what answers at {} is not a P2 of this version", self.config.endpoint))
        })
    }
}

/// Tries for a while, as long as it may help.
pub(crate) async fn persist<T, F: Future<Output = Result<T, ProtocolError>>>(
    budget: Duration,
    attempt: impl Fn() -> F,
) -> Result<T, ProtocolError> {
    let mut backoff = Backoff::new(budget);
    // From the beginning of the first attempt, since one that times out has used up the patience.
    let started = tokio::time::Instant::now();
    let mut allowed = budget.max(FIRST_FAILURE);
    loop {
        match attempt().await {
            Err(error) if error.is_transient() => match backoff.delay().filter(|_| started.elapsed() < allowed) {
                Some(delay) => {
                    allowed = budget;
                    tokio::time::sleep(delay).await;
                }
                None => return Err(error),
            },
            outcome => return outcome,
        }
    }
}

fn endpoint(config: &ClientConfig) -> Result<Endpoint, ProtocolError> {
    let misuse = |why: &str| ProtocolError::Misuse(format!("P2's address {}: {why}", config.endpoint));
    let endpoint = Endpoint::from_shared(config.endpoint.clone())
        .map_err(|_| misuse("write it as https://host:port"))?
        .connect_timeout(config.connect_timeout)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(KEEPALIVE))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .keep_alive_while_idle(true);
    match (endpoint.uri().scheme_str(), &config.tls) {
        (Some("https"), Some(tls)) => {
            install_crypto();
            let tls = tls.load().map_err(|error| ProtocolError::Misuse(error.to_string()))?;
            endpoint
                .tls_config(tls)
                .map_err(|error| misuse(&format!("its certificates do not work: {}", reason(&error))))
        }
        (Some("https"), None) => Err(misuse("https needs P1's certificate and key and P2's authority")),
        (Some("http"), None) => Ok(endpoint),
        (Some("http"), Some(_)) => Err(misuse("certificates are given, so write it as https://")),
        _ => Err(misuse("write it as https://host:port")),
    }
}

/// Adds to what the transport says where that was and what to do.
pub(crate) fn explain(config: &ClientConfig, error: ProtocolError) -> ProtocolError {
    match error {
        ProtocolError::Unreachable(why) if !why.contains(&config.endpoint) => unreachable(config, &why),
        ProtocolError::Denied(why) if is_refused_certificate(&why) && !why.contains(&config.endpoint) => {
            unreachable(config, &why)
        }
        ProtocolError::Denied(why) if !why.contains(&config.endpoint) => {
            ProtocolError::Denied(format!("P2 at {} refuses: {why}", config.endpoint))
        }
        other => other,
    }
}

/// P2 is out of reach, or does not let P1 in.
fn unreachable(config: &ClientConfig, why: &str) -> ProtocolError {
    let endpoint = &config.endpoint;
    if is_refused_certificate(why) {
        let advice = "check that each side's certificate comes from the authority that the other side trusts";
        return ProtocolError::Denied(format!("P2 at {endpoint} and P1 do not trust each other ({why}); {advice}"));
    }
    let advice = match config.tls {
        Some(_) => "check that `veil p2` runs there with TLS and trusts P1's certificate",
        None => "check that `veil p2` runs there, and write https:// and give certificates if it uses TLS",
    };
    ProtocolError::Unreachable(format!("P2 at {endpoint} cannot be reached ({why}); {advice}"))
}
