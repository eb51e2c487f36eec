//! Certificates, from PEM files. Both sides show one: P2 answers nobody but P1, and P1 asks nobody but P2.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// What P2 needs.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// P2's certificate.
    pub cert: PathBuf,
    /// P2's private key.
    pub key: PathBuf,
    /// The authority whose certificates P2 lets in.
    pub client_ca: PathBuf,
}

/// What P1 needs.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// The authority that P2's certificate comes from.
    pub ca: PathBuf,
    /// P1's certificate.
    pub cert: PathBuf,
    /// P1's private key.
    pub key: PathBuf,
}

/// How long a client may take to show its certificate: whoever connects and says nothing is not kept.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What can be wrong with a certificate file. Each is one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("{path}: cannot read the {what}: {source}; give the path of a PEM file")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },

    /// Everybody can read the private key.
    #[error("{0} can be read by everybody; run `chmod o-rwx {0}` and consider the key exposed")]
    Exposed(PathBuf),

    /// The file holds something else.
    #[error("{path}: there is no {what} in it; give a PEM file that has one")]
    Absent {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },

    /// The files do not make a configuration.
    #[error("{path}: the certificate does not work: {why}; check that it belongs to its key")]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

impl ServerTls {
    /// Reads the files.
    pub(crate) fn load(&self) -> Result<ServerTlsConfig, TlsError> {
        let client_ca = authority(&self.client_ca)?;
        let identity = identity(&self.cert, &self.key)?;
        Ok(ServerTlsConfig::new().identity(identity).client_ca_root(client_ca).timeout(HANDSHAKE_TIMEOUT))
    }
}

impl ClientTls {
    /// Reads the files.
    pub(crate) fn load(&self) -> Result<ClientTlsConfig, TlsError> {
        let ca = authority(&self.ca)?;
        Ok(ClientTlsConfig::new().ca_certificate(ca).identity(identity(&self.cert, &self.key)?))
    }
}

/// Chooses the cryptography of TLS for the process, unless something has chosen before. Other crates may bring a second one,
/// and rustls then refuses to choose by itself.
pub fn install_crypto() {
    // An error says that there already is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A certificate and its private key, for whoever else serves or asks with certificates.
pub fn identity(cert: &Path, key: &Path) -> Result<Identity, TlsError> {
    refuse_exposed(key)?;
    Ok(Identity::from_pem(certificate(cert)?, pem(key, "private key", "PRIVATE KEY-----")?))
}

/// The certificate of an authority.
pub fn authority(path: &Path) -> Result<Certificate, TlsError> {
    certificate(path).map(Certificate::from_pem)
}

/// A private key that everybody can read is none. Groups may: keys of services often belong to one.
#[cfg(unix)]
fn refuse_exposed(path: &Path) -> Result<(), TlsError> {
    use std::os::unix::fs::PermissionsExt;
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.permissions().mode() & 0o007 != 0 => Err(TlsError::Exposed(path.to_owned())),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn refuse_exposed(_path: &Path) -> Result<(), TlsError> {
    Ok(())
}

fn certificate(path: &Path) -> Result<Vec<u8>, TlsError> {
    pem(path, "certificate", "-----BEGIN CERTIFICATE-----")
}

fn pem(path: &Path, what: &'static str, sign: &str) -> Result<Vec<u8>, TlsError> {
    let bytes = std::fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), what, source })?;
    match bytes.windows(sign.len()).any(|window| window == sign.as_bytes()) {
        true => Ok(bytes),
        false => Err(TlsError::Absent { path: path.to_owned(), what }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_that_do_not_serve_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let tls = ServerTls { cert: at("cert.pem"), key: at("key.pem"), client_ca: at("ca.pem") };
        let error = tls.load().unwrap_err().to_string();
        assert!(error.contains("ca.pem: cannot read the certificate: No such file"), "{error}");
        std::fs::write(at("ca.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
        std::fs::write(at("cert.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
        std::fs::write(at("key.pem"), "-----BEGIN CERTIFICATE-----\n").unwrap();
        let allow = |mode| std::fs::set_permissions(at("key.pem"), std::fs::Permissions::from_mode(mode)).unwrap();
        allow(0o644);
        let error = tls.load().unwrap_err().to_string();
        assert!(error.contains("key.pem can be read by everybody"), "{error}");
        allow(0o640);
        let error = tls.load().unwrap_err().to_string();
        assert!(error.contains("key.pem: there is no private key in it"), "{error}");
    }

    #[test]
    fn installing_twice_is_fine() {
        install_crypto();
        install_crypto();
    }
}
