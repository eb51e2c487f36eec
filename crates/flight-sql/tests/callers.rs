//! Who is let in, and as whom.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use support::{Client, Fake, Site, read, refusal, ticket};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use veil_flight_sql::{Role, ServerConfig, ServerTls, Tokens, bind};

/// An authority `ca`, of which `server`, `alice`, `bob` and one with no proper name are; and a `rogue` of another.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for (authority, names) in [("ca", &["server", "alice", "bob", "nameless"][..]), ("other-ca", &["rogue"])] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            files.write(&format!("{authority}.pem"), &params.self_signed(&key).unwrap().pem());
            let issuer = Issuer::new(params, key);
            for name in names {
                let key = KeyPair::generate().unwrap();
                let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
                params.distinguished_name.push(DnType::CommonName, if *name == "nameless" { "no name" } else { name });
                files.write(&format!("{name}.pem"), &params.signed_by(&key, &issuer).unwrap().pem());
                files.write(&format!("{name}.key"), &key.serialize_pem());
            }
        }
        let lines = "alice alice-0123456789ab\nroot root-0123456789abc admin\nerin erin-0123456789abc steward\n\
                     desk desk-0123456789abc recipient=alice\n";
        files.write("tokens", lines);
        files
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.at(name), text).unwrap();
        std::fs::set_permissions(self.at(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn tls(&self, mutual: bool) -> Option<ServerTls> {
        let client_ca = mutual.then(|| self.at("ca.pem"));
        Some(ServerTls { cert: self.at("server.pem"), key: self.at("server.key"), client_ca })
    }

    fn tokens(&self) -> Option<Arc<Tokens>> {
        Some(Arc::new(Tokens::load(&self.at("tokens")).unwrap()))
    }

    /// A client that trusts the authority, and shows a certificate if it has a name.
    async fn client(&self, site: &Site, name: Option<&str>) -> Result<Client, tonic::transport::Error> {
        let read = |path: &Path| std::fs::read(path).unwrap();
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&self.at("ca.pem"))));
        if let Some(name) = name {
            let key = read(&self.at(&format!("{name}.key")));
            tls = tls.identity(Identity::from_pem(read(&self.at(&format!("{name}.pem"))), key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", site.address)).unwrap();
        Ok(Client::new(endpoint.tls_config(tls)?.connect().await?))
    }
}

/// Whom the server takes a client for.
async fn who(client: &mut Client) -> String {
    client.execute("who".to_owned(), None).await.unwrap_err().to_string()
}

#[tokio::test]
async fn tokens_name_callers() {
    let files = Files::new();
    let site = Site::with(|config| ServerConfig { tokens: files.tokens(), ..config }).await;
    for (token, caller) in [
        ("alice-0123456789ab", r#"alice Recipient(\"alice\")"#),
        ("desk-0123456789abc", r#"desk Recipient(\"alice\")"#),
        ("erin-0123456789abc", "erin Steward"),
        ("root-0123456789abc", "root Admin"),
    ] {
        let found = who(&mut site.client_with(token).await).await;
        assert!(found.contains(caller), "{caller}: {found}");
    }
    let error = who(&mut site.client_with("alice-0123456789aB").await).await;
    assert!(error.contains("is not one that this server knows"), "{error}");
    let error = who(&mut site.client().await).await;
    assert!(error.contains("asks for a token"), "{error}");
    let mut basic = site.client().await;
    basic.set_header("authorization", "Basic YTpi");
    assert!(who(&mut basic).await.contains("is not `Bearer"));
    // Every method is behind the door, also those that there are not.
    let listed = site.client().await.inner_mut().list_actions(arrow_flight::Empty {}).await;
    assert_eq!(listed.err().unwrap().code(), tonic::Code::Unauthenticated);
}

#[tokio::test]
async fn tickets_are_for_whom_they_were_given_to() {
    let files = Files::new();
    let site = Site::with(|config| ServerConfig { tokens: files.tokens(), ..config }).await;
    let mut alice = site.client_with("alice-0123456789ab").await;
    // Neither an admin, nor a caller for whom the same recipient's releases are made.
    let mut others = [site.client_with("root-0123456789abc").await, site.client_with("desk-0123456789abc").await];
    site.fake.batches.add_permits(2);
    for sql in ["rows 20", "keep 20"] {
        let ticket = ticket(&mut alice, sql).await;
        for other in &mut others {
            let error = refusal(other, ticket.clone()).await;
            assert!(error.contains("was given to somebody else"), "{error}");
        }
        assert_eq!(read(&mut alice, ticket.clone()).await.0.len(), 20, "{sql}");
        for other in &mut others {
            let error = refusal(other, ticket.clone()).await;
            assert!(error.contains("was given to somebody else"), "{error}");
        }
    }
}

#[tokio::test]
async fn certificates_name_callers() {
    let files = Files::new();
    let site = Site::with(|config| ServerConfig { tls: files.tls(true), ..config }).await;
    let mut alice = files.client(&site, Some("alice")).await.unwrap();
    let mut bob = files.client(&site, Some("bob")).await.unwrap();
    let (first, second) = (who(&mut alice).await, who(&mut bob).await);
    assert!(first.contains(r#"alice Recipient(\"alice\")"#), "{first}");
    assert!(second.contains(r#"bob Recipient(\"bob\")"#), "{second}");
    let error = who(&mut files.client(&site, Some("nameless")).await.unwrap()).await;
    assert!(error.contains("the certificate does not say who comes"), "{error}");
    let ticket = ticket(&mut alice, "rows 5").await;
    let error = refusal(&mut bob, ticket.clone()).await;
    assert!(error.contains("was given to somebody else"), "{error}");
    // The same certificate over another connection is the same caller.
    let mut again = files.client(&site, Some("alice")).await.unwrap();
    assert_eq!(read(&mut again, ticket).await.0.len(), 5);

    for name in [None, Some("rogue")] {
        let refused = match files.client(&site, name).await {
            Ok(mut client) => client.execute("rows 1".to_owned(), None).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{name:?}");
    }
}

#[tokio::test]
async fn certificates_have_the_roles_that_the_server_was_told() {
    let files = Files::new();
    let told = [("bob", Role::Steward), ("alice", Role::Recipient("clinic".to_owned())), ("no name", Role::Admin)];
    let certificate_roles = told.map(|(name, role)| (name.to_owned(), role)).into();
    let tls = files.tls(true);
    let config = |config| ServerConfig { tls: tls.clone(), certificate_roles, ..config };
    let site = Site::with(config).await;
    assert!(who(&mut files.client(&site, Some("bob")).await.unwrap()).await.contains("bob Steward"));
    let alice = who(&mut files.client(&site, Some("alice")).await.unwrap()).await;
    assert!(alice.contains(r#"alice Recipient(\"clinic\")"#), "{alice}");
    let server = who(&mut files.client(&site, Some("server")).await.unwrap()).await;
    assert!(server.contains(r#"server Recipient(\"server\")"#), "{server}");
    let nameless = who(&mut files.client(&site, Some("nameless")).await.unwrap()).await;
    assert!(nameless.contains("does not say who comes"), "{nameless}");

    // A token says who comes, whatever the certificate says.
    let certificate_roles = [("bob".to_owned(), Role::Admin)].into();
    let config = |config| ServerConfig { tls, tokens: files.tokens(), certificate_roles, ..config };
    let site = Site::with(config).await;
    let mut bob = files.client(&site, Some("bob")).await.unwrap();
    assert!(who(&mut bob).await.contains("asks for a token"));
    bob.set_token("erin-0123456789abc".to_owned());
    assert!(who(&mut bob).await.contains("erin Steward"));
}

#[tokio::test]
async fn tls_and_tokens_go_together() {
    let files = Files::new();
    let site = Site::with(|config| ServerConfig { tls: files.tls(false), tokens: files.tokens(), ..config }).await;
    let mut client = files.client(&site, None).await.unwrap();
    assert!(who(&mut client).await.contains("asks for a token"));
    client.set_token("alice-0123456789ab".to_owned());
    assert!(who(&mut client).await.contains("alice Recipient"));
    // Whoever speaks without TLS is not understood.
    let plain = Endpoint::from_shared(format!("http://{}", site.address)).unwrap().connect().await;
    let refused = match plain {
        Ok(channel) => Client::new(channel).execute("rows 1".to_owned(), None).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
}

#[tokio::test]
async fn an_open_door_is_refused() {
    let files = Files::new();
    let everywhere = || ServerConfig::new("0.0.0.0:0".parse().unwrap(), "fake");
    let fail = async |config| bind(config, Arc::new(Fake::default())).await.map(drop).unwrap_err().to_string();
    let error = fail(everywhere()).await;
    assert!(error.contains("does not listen on 0.0.0.0:0 without TLS"), "{error}");
    let error = fail(ServerConfig { tokens: files.tokens(), ..everywhere() }).await;
    assert!(error.contains("without TLS"), "{error}");
    let error = fail(ServerConfig { tls: files.tls(false), ..everywhere() }).await;
    assert!(error.contains("without knowing who asks"), "{error}");
    for (tls, tokens) in [(files.tls(true), None), (files.tls(false), files.tokens())] {
        bind(ServerConfig { tls, tokens, ..everywhere() }, Arc::new(Fake::default())).await.unwrap();
    }
    let local = ServerConfig::new("127.0.0.1:0".parse().unwrap(), "fake");
    let error = fail(ServerConfig { spool: files.at("absent"), ..local.clone() }).await;
    assert!(error.contains("absent: results cannot be spooled there"), "{error}");
    let tls = Some(ServerTls { cert: files.at("server.key"), key: files.at("server.key"), client_ca: None });
    let error = fail(ServerConfig { tls, ..local }).await;
    assert!(error.contains("there is no certificate in it"), "{error}");
}

#[tokio::test]
async fn nobody_in_particular_is_local_and_changes_nothing() {
    let site = Site::new().await;
    assert!(who(&mut site.client().await).await.contains("local Steward"));
}
