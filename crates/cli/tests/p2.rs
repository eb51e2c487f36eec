//! `veil p2` as an operator runs it: a process with keys and certificates, killed and started again.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../flight-p2/tests/support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use support::{Certificates, KEYS, connect, frame, multiply_and_check, session};
use veil_flight_p2::ClientConfig;
use veil_keys::KeyFile;
use veil_protocols::Channel;

/// A folder with keys and certificates.
struct Place {
    certificates: Certificates,
}

impl Place {
    fn new() -> Self {
        let certificates = Certificates::new();
        KEYS.p2().save(&certificates.at("p2.keys"), false).unwrap();
        KEYS.p1().save(&certificates.at("p1.keys"), false).unwrap();
        Self { certificates }
    }

    fn veil(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veil"));
        command.args(arguments).current_dir(self.certificates.at("")).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.veil(arguments).output().unwrap()
    }

    /// Starts P2 and waits for its line.
    fn start(&self, listen: &str, more: &[&str]) -> Process {
        let arguments = [&["p2", "--keys", "p2.keys", "--listen", listen], more].concat();
        let mut child = self.veil(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let start = format!("P2 for key set {} listens on ", KEYS.key_id());
        let url = line.strip_prefix(&start).unwrap_or_else(|| panic!("{line}")).trim_end().to_owned();
        Process { child, url }
    }

    fn start_with_tls(&self, listen: &str) -> Process {
        self.start(listen, &["--tls-cert", "p2.pem", "--tls-key", "p2.key", "--client-ca", "ca.pem", "-q"])
    }

    fn client(&self, p2: &Process) -> ClientConfig {
        ClientConfig { tls: Some(self.certificates.client()), ..ClientConfig::new(&p2.url) }
    }
}

struct Process {
    child: Child,
    url: String,
}

impl Process {
    /// SIGKILL: no goodbye.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A signal, and how the process ends, with all that it wrote on standard error.
    fn signal(mut self, name: &str) -> (ExitStatus, String) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap(), log)
    }

    fn address(&self) -> String {
        self.url.split_once("//").unwrap().1.to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Killed between rounds and within rounds, always back on the same port: every answer is right.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_p2_that_comes_back_costs_no_answer() {
    let place = Place::new();
    let mut p2 = place.start_with_tls("127.0.0.1:0");
    assert!(p2.url.starts_with("https://127.0.0.1:"), "{}", p2.url);
    let (address, channel) = (p2.address(), connect(place.client(&p2)).await.unwrap());
    let session = session(channel.clone());
    multiply_and_check(&session, 6).await;
    p2.kill();
    p2 = place.start_with_tls(&address);
    multiply_and_check(&session, 6).await;

    for _ in 0..3 {
        let long = session.clone();
        let round = tokio::spawn(async move { multiply_and_check(&long, 40).await });
        let mut answers = channel.exchange(stream::iter((0..9).map(|batch| Ok(frame(batch)))).boxed());
        for batch in 0..9 {
            if batch == 4 {
                p2.kill();
                p2 = place.start_with_tls(&address);
            }
            assert_eq!(answers.next().await.unwrap().unwrap().open().unwrap().0.batch, batch);
        }
        assert!(answers.next().await.is_none());
        round.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_stop_it_with_status_zero() {
    let place = Place::new();
    for signal in ["-TERM", "-INT"] {
        let p2 = place.start("127.0.0.1:0", &[]);
        // A connection that stays open does not keep it.
        let channel = connect(ClientConfig::new(&p2.url)).await.unwrap();
        multiply_and_check(&session(channel.clone()), 1).await;
        let (status, log) = p2.signal(signal);
        assert_eq!(status.code(), Some(0), "{log}");
        for words in ["listening", "protocol=\"multiply\" batches=1", "stopping", "stopped"] {
            assert!(log.contains(words), "{words} in {log}");
        }
        drop(channel);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_json_on_request() {
    let place = Place::new();
    let p2 = place.start("127.0.0.1:0", &["--log-json", "--verbose"]);
    multiply_and_check(&session(connect(ClientConfig::new(&p2.url)).await.unwrap()), 1).await;
    let (_, log) = p2.signal("-TERM");
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let batch = lines.iter().find(|line| line["message"] == "batch").unwrap();
    assert_eq!((&batch["protocol"], &batch["rows"]), (&"multiply".into(), &1.into()), "{batch}");
    assert!(batch["bytes_in"].as_u64() > Some(1000) && batch["milliseconds"].is_u64(), "{batch}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_health_and_counts() {
    let place = Place::new();
    let p2 = place.start_with_tls("127.0.0.1:0");
    multiply_and_check(&session(connect(place.client(&p2)).await.unwrap()), 7).await;
    let status = ["p2", "status", "--url", &p2.url];
    let tls = ["--tls-ca", "ca.pem", "--tls-cert", "p1.pem", "--tls-key", "p1.key"];
    let output = place.run(&[&status[..], &tls].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with(&format!("P2 at {} is ok, for key set {}\n", p2.url, KEYS.key_id())), "{text}");
    let line = text.lines().find(|line| line.starts_with("multiply")).unwrap();
    assert_eq!(line.split_whitespace().take(3).collect::<Vec<_>>(), ["multiply", "2", "7"], "{text}");
    let output = place.run(&[&status[..], &tls, &["--prometheus"]].concat());
    assert!(String::from_utf8(output.stdout).unwrap().contains("veil_p2_rows_total{protocol=\"multiply\"} 7\n"));

    let rogue = ["--tls-ca", "ca.pem", "--tls-cert", "rogue.pem", "--tls-key", "rogue.key"];
    let error = sentence(&place.run(&[&status[..], &rogue].concat()));
    assert!(error.contains(&p2.url) && error.contains("certificate"), "{error}");
}

/// The one line on standard error of a run that fails with status 1.
#[track_caller]
fn sentence(output: &Output) -> String {
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("error: ") && error.trim_end().lines().count() == 1, "{error}");
    error
}

#[test]
fn mistakes_are_one_sentence() {
    let place = Place::new();
    let serve = |more: &[&str]| place.run(&[&["p2", "--keys", "p2.keys", "-q"], more].concat());
    let error = sentence(&serve(&["--listen", "0.0.0.0:0"]));
    assert!(error.contains("does not listen on 0.0.0.0:0 without TLS: give a certificate"), "{error}");
    let tls = |cert| ["--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", "p2.key", "--client-ca", "ca.pem"];
    let error = sentence(&serve(&tls("absent.pem")));
    assert!(error.contains("absent.pem: cannot read the certificate: No such file"), "{error}");
    let error = sentence(&serve(&tls("p2.key")));
    assert!(error.contains("p2.key: there is no certificate in it"), "{error}");
    let error = sentence(&serve(&tls("p1.pem")));
    assert!(error.contains("p1.pem: the certificate does not work"), "{error}");
    let error = sentence(&place.run(&["p2", "--keys", "p1.keys"]));
    assert!(error.contains("holds the keys of P1 (the engine), and this needs those of P2"), "{error}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = sentence(&serve(&["--listen", &taken.local_addr().unwrap().to_string()]));
    assert!(error.contains("cannot listen on 127.0.0.1:") && error.contains("choose another"), "{error}");
    for half in [&["--tls-cert", "p2.pem"][..], &["--tls-key", "p2.key"], &["--max-batch-mib", "0"]] {
        assert_eq!(serve(half).status.code(), Some(2), "{half:?}");
    }
    assert_eq!(place.run(&["p2"]).status.code(), Some(2));
}

#[test]
fn absent_p2_is_one_sentence_within_five_seconds() {
    let place = Place::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let started = Instant::now();
    let error = sentence(&place.run(&["p2", "status", "--url", &format!("http://{free}")]));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(error.contains(&format!("P2 at http://{free} cannot be reached (Connection refused")), "{error}");
}
