//! How a command reaches P2: certificates are given with the same words everywhere.

use std::path::{Path, PathBuf};

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
        client(url, &self.tls_ca, &self.tls_cert, &self.tls_key)
    }

    /// The files that were named.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.tls_ca, &self.tls_cert, &self.tls_key].into_iter().flatten().map(PathBuf::as_path)
    }
}

/// The same for a command that has certificates of its own as well.
#[derive(Args)]
pub(crate) struct P2TlsArguments {
    /// The authority that P2's certificate comes from, PEM
    #[arg(long, value_name = "FILE", requires = "p2_tls_cert", requires = "p2_tls_key", requires = "p2")]
    p2_tls_ca: Option<PathBuf>,
    /// The certificate to show to P2, PEM
    #[arg(long, value_name = "FILE", requires = "p2_tls_ca")]
    p2_tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "p2_tls_ca")]
    p2_tls_key: Option<PathBuf>,
}

impl P2TlsArguments {
    /// The way to the P2 at an address.
    pub(crate) fn client(&self, url: &str) -> ClientConfig {
        client(url, &self.p2_tls_ca, &self.p2_tls_cert, &self.p2_tls_key)
    }
}

fn client(url: &str, ca: &Option<PathBuf>, cert: &Option<PathBuf>, key: &Option<PathBuf>) -> ClientConfig {
    let tls = match (ca, cert, key) {
        (Some(ca), Some(cert), Some(key)) => Some(ClientTls { ca: ca.clone(), cert: cert.clone(), key: key.clone() }),
        _ => None,
    };
    ClientConfig { tls, ..ClientConfig::new(url) }
}
