//! Callers who come with a certificate: recipients of their common names, unless the server was told another role.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::{Client, Place, Process, SERVE, released};

/// An authority, and certificates of it.
fn certify(place: &Place, names: &[&str]) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    place.write("ca.pem", &params.self_signed(&key).unwrap().pem());
    let issuer = Issuer::new(params, key);
    for name in names {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, *name);
        place.write(&format!("{name}.pem"), &params.signed_by(&key, &issuer).unwrap().pem());
        place.write(&format!("{name}.key"), &key.serialize_pem());
    }
}

async fn client(place: &Place, p1: &Process, name: &str) -> Client {
    let read = |file: String| fs::read(place.at(&file)).unwrap();
    let identity = Identity::from_pem(read(format!("{name}.pem")), read(format!("{name}.key")));
    let tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca.pem".to_owned()))).identity(identity);
    let endpoint = Endpoint::from_shared(p1.url.clone()).unwrap().tls_config(tls).unwrap();
    let channel = endpoint.connect().await.unwrap();
    Client { inner: arrow_flight::flight_service_client::FlightServiceClient::new(channel), token: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_recipients_unless_the_server_was_told() {
    let place = Place::new();
    certify(&place, &["p1", "alice", "erin", "desk", "ro ot"]);
    let tls =
        ["--tls-cert", "p1.pem", "--tls-key", "p1.key", "--client-ca", "ca.pem", "--embedded-p2", "keys/p2.keys", "-q"];
    let roles = ["--role", "erin=steward", "--role", "desk=recipient=alice"];
    let p1 = place.start(&[&SERVE[..], &tls, &roles].concat());
    let own = released("SELECT age FROM people");
    for name in ["alice", "desk"] {
        let mut recipient = client(&place, &p1, name).await;
        assert!(recipient.plan(own.clone()).await.is_ok(), "{name}");
        Client::denial(name, recipient.plan("SELECT age FROM people").await);
    }
    // The server's own certificate is of the authority, too: it is the recipient p1, whom no policy knows.
    let refused = client(&place, &p1, "p1").await.plan(own.clone()).await;
    assert!(Client::denial("p1", refused).contains("released to p1 for this caller"));
    let mut erin = client(&place, &p1, "erin").await;
    assert!(erin.plan("SELECT age FROM people").await.is_ok() && erin.plan(own.clone()).await.is_ok());
    Client::denial("erin", erin.plan("DROP TABLE people").await);
    let refused = client(&place, &p1, "ro ot").await.plan(own).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated, "{refused}");

    // Roles that are none, or are not for certificates, are told before anything starts.
    for (more, words) in [
        (vec!["--role", "erin=root"], "NAME=steward"),
        (vec!["--role", "erin"], "NAME=steward"),
        (vec!["--role", "=admin"], "NAME=steward"),
        (vec!["--role", "erin=steward", "--token-file", "tokens"], "--token-file"),
    ] {
        let output = place.run(&[&SERVE[..], &tls, &more].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(words), "{error}");
    }
    let twice = place.fail(&[&SERVE[..], &tls, &["--role", "erin=steward", "--role", "erin=admin"]].concat());
    assert!(twice.contains("--role is given twice for erin"), "{twice}");
}
