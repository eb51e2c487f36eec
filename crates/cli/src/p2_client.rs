//! How a command reaches P2: certificates are given with the same words everywhere.

use std::path::PathBuf;

use clap::Args;
use veil_flight_p2::{ClientConfig, ClientTls};

/// P1's side of mutual TLS.
#[derive(Args)]
pub(crate) struct TlsArguments {
    /// The authority that P2's certificate comes from, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", requires = "tls_key")]
    tls_ca: Option<PathBuf>,
    /// The certificate to show, PEM
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_key: Option<PathBuf>,
}

impl TlsArguments {
    /// The way to the P2 at an address.
    pub(crate) fn client(&self, url: &str) -> ClientConfig {
        let tls = match (&self.tls_ca, &self.tls_cert, &self.tls_key) {
            (Some(ca), Some(cert), Some(key)) => {
                Some(ClientTls { ca: ca.clone(), cert: cert.clone(), key: key.clone() })
            }
            _ => None,
        };
        ClientConfig { tls, ..ClientConfig::new(url) }
    }
}
