//! How P1 is reached: its address, certificates, a token.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Uri};
use veil_flight_p2::{authority, identity, install_crypto, reason};
use veil_flight_sql::Role;
use zeroize::Zeroizing;

use crate::RecipientError;

/// Certificates.
#[derive(Clone, Debug)]
pub struct FetchTls {
    /// The authority that the server's certificate comes from, PEM.
    pub ca: PathBuf,
    /// The certificate to show and its private key, PEM, if the server wants to see one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// What a server knows the recipient by. It never prints and is wiped when dropped.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Reads a file that holds a token, or a line `name token [role]` as the server has it, and that nobody else can read.
    pub fn load(path: &Path) -> Result<Self, RecipientError> {
        let wrong = |why: &str| RecipientError::Setting(format!("{}: {why}", path.display()));
        let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            if std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
                return Err(wrong("the token can be read by others; run `chmod go-rwx` on it and ask for a new one"));
            }
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        match *words {
            [token] | [_, token] => Ok(Self(Zeroizing::new(token.to_owned()))),
            [name, token, role] if Role::of_word(role, name).is_some() => Ok(Self(Zeroizing::new(token.to_owned()))),
            _ => Err(wrong("there is not one token in it; write the token and nothing else")),
        }
    }

    /// The header `authorization`.
    pub(crate) fn header(&self) -> Result<MetadataValue<Ascii>, RecipientError> {
        let text = Zeroizing::new(format!("Bearer {}", *self.0));
        let mut header: MetadataValue<Ascii> = text
            .parse()
            .map_err(|_| RecipientError::Setting("the token has letters that cannot be sent".to_owned()))?;
        header.set_sensitive(true);
        Ok(header)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Sealed bytes of a release that wait to be opened.
const STREAM_WINDOW: u32 = 16 << 20;
/// The most there is: releases that nobody reads fill their own windows, and must not stop the others that share the connection.
const CONNECTION_WINDOW: u32 = i32::MAX as u32;
/// A parcel of very many columns is one message.
const MOST_MESSAGE: usize = 256 << 20;

/// Connects. The connection comes back by itself when it is asked for after a loss.
pub(crate) async fn connect(
    url: &str,
    tls: Option<&FetchTls>,
    has_token: bool,
) -> Result<FlightServiceClient<Channel>, RecipientError> {
    install_crypto();
    let wrong = |why: String| RecipientError::Setting(format!("{url}: {why}"));
    let uri: Uri = url.parse().map_err(|_| wrong("this is no address; write https://host:port".to_owned()))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match (uri.scheme_str(), tls) {
        (Some("https"), Some(_)) => {}
        (Some("https"), None) => return Err(wrong("https needs the server's authority; give --tls-ca".to_owned())),
        (Some("http"), Some(_)) => return Err(wrong("certificates are for https; write https://".to_owned())),
        (Some("http"), None) if has_token && !is_here => {
            return Err(wrong("a token is not sent without TLS; use https:// and --tls-ca".to_owned()));
        }
        (Some("http"), None) => {}
        _ => return Err(wrong("an address begins with https:// or http://".to_owned())),
    }
    let mut endpoint = Endpoint::from(uri)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    if let Some(tls) = tls {
        let setting = |error: veil_flight_p2::TlsError| RecipientError::Setting(error.to_string());
        let mut config = ClientTlsConfig::new().ca_certificate(authority(&tls.ca).map_err(setting)?);
        if let Some((cert, key)) = &tls.identity {
            config = config.identity(identity(cert, key).map_err(setting)?);
        }
        endpoint = endpoint.tls_config(config).map_err(|error| wrong(reason(&error)))?;
    }
    let channel = endpoint.connect().await;
    let channel = channel.map_err(|error| RecipientError::Unreachable { url: url.to_owned(), why: reason(&error) })?;
    Ok(FlightServiceClient::new(channel).max_decoding_message_size(MOST_MESSAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_that_would_tell_the_token_are_refused() {
        let tls = FetchTls { ca: "/nowhere/ca.pem".into(), identity: None };
        for (url, tls, token, says) in [
            ("http://example.org:1", None, true, "a token is not sent without TLS"),
            ("https://127.0.0.1:1", None, false, "give --tls-ca"),
            ("http://127.0.0.1:1", Some(&tls), false, "write https://"),
            ("https://127.0.0.1:1", Some(&tls), true, "/nowhere/ca.pem"),
            ("127.0.0.1:1", None, false, "begins with https://"),
            ("not an address", None, false, "this is no address"),
            ("http://127.0.0.1:1", None, true, "cannot be reached"),
        ] {
            let error = connect(url, tls, token).await.unwrap_err().to_string();
            assert!(error.contains(says), "{url}: {error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn token_files_are_private_and_hold_one_token() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let load = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            Token::load(file.path()).map(|token| token.header().unwrap().to_str().unwrap().to_owned())
        };
        for text in [
            "0123456789abcdef\n",
            "alice 0123456789abcdef",
            "alice 0123456789abcdef recipient\n",
            "alice 0123456789abcdef steward",
            "a 0123456789abcdef admin\n",
        ] {
            assert_eq!(load(text).unwrap(), "Bearer 0123456789abcdef");
        }
        assert!(load("").unwrap_err().to_string().contains("there is not one token in it"));
        assert!(load("a b c").is_err() && load("a b c d").is_err());
        assert!(!format!("{:?}", Token(Zeroizing::new("s3cret".to_owned()))).contains("s3cret"));
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(load("x").unwrap_err().to_string().contains("can be read by others"));
    }
}
