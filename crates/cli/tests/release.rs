//! A release between real processes: an owner's tools, P2, P1, and a recipient, over loopback.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../flight-p2/tests/support/mod.rs"]
mod support;

#[path = "release/again.rs"]
mod again;
#[cfg(target_os = "linux")]
#[path = "release/memory.rs"]
mod memory;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use support::Certificates;

const DECLARATION: &str = r#"
[table]
name = "people"
[column.name]
kind = "text"
max_length = 18
[column.age]
kind = "integer"
range = [0, 120]
[column.wage]
kind = "integer"
range = [0, 900000000]
[column.illness]
kind = "category"
hierarchy = "illness.csv"
[column.region]
kind = "clear"
"#;
const TOKEN: &str = "alice-token-0123456789";

/// Values that must stand nowhere but with the owner and the recipient.
const CANARY: &str = "CANARYNAME";
const CANARY_WAGE: i64 = 738_291_475;

/// A clear one, which P1 sees.
const REGION: &str = "BOREALREGION";

fn people() -> String {
    let mut csv = "name,age,wage,illness,region\n".to_owned();
    for row in 0..24 {
        let illness = ["flu", "measles", "asthma", "CANARYillness"][row / 6];
        csv +=
            &format!("{CANARY}{row},{},{},{illness},{REGION}\n", 20 + row / 6 * 20 + row % 3, CANARY_WAGE + row as i64);
    }
    csv
}

/// A folder with keys, certificates, tokens, an encrypted table, a recipient and a policy.
struct Place(Certificates);

impl Place {
    fn new(rules: &str) -> Self {
        let place = Self(Certificates::new());
        place.write("people.csv", &people());
        place.write("people.toml", DECLARATION);
        place.write("illness.csv", "flu,infectious,*\nmeasles,infectious,*\nasthma,lung,*\nCANARYillness,lung,*\n");
        place.write("tokens", &format!("alice {TOKEN}\n"));
        place.write("alice-token", &format!("alice {TOKEN}\n"));
        for secret in ["tokens", "alice-token"] {
            fs::set_permissions(place.0.at(secret), fs::Permissions::from_mode(0o600)).unwrap();
        }
        place.succeed(&["keygen", "-o", "keys", "-q"]);
        let encrypt = ["encrypt", "people.csv", "--declare", "people.toml", "--keys", "keys/owner.keys", "-q"];
        place.succeed(&[&encrypt[..], &["-o", "people.veil.parquet"]].concat());
        place.succeed(&["recipient", "keygen", "-o", "alice"]);
        place.sign("policy.signed", rules);
        place
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.at(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.at(name)).unwrap()
    }

    /// The owner signs what alice may have.
    fn sign(&self, file: &str, rules: &str) {
        let public = self.read("keys/owner.pub");
        let key_set = public.split_whitespace().nth(1).unwrap();
        let recipient = self.read("alice/recipient.pub");
        let key = recipient.split_whitespace().find(|word| word.starts_with("x25519:")).unwrap();
        let text = format!(
            "[policy]\nkey_set = \"{key_set}\"\n[ask]\nmin_rows = 1\nnumbers = 1000000000\n[recipient.alice]\nkey = \"{key}\"\n[[recipient.alice.allow]]\ntable = \"people\"\n{rules}"
        );
        self.write("policy.toml", &text);
        self.succeed(&["policy", "sign", "policy.toml", "--keys", "keys/owner.keys", "-o", file, "--force"]);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veil"));
        command.args(arguments).current_dir(self.0.at("")).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {error}");
        format!("{out}{error}")
    }

    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Starts a server and waits for its line, which ends in its address.
    fn start(&self, arguments: &[&str]) -> Process {
        let mut child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let (lines, log) = (mpsc::channel(), Arc::new(Mutex::new(String::new())));
        let (stderr, kept, heard) = (child.stderr.take().unwrap(), log.clone(), lines.0);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                *kept.lock().unwrap() += &format!("{line}\n");
                let _ = heard.send(line);
            }
        });
        let url = line.trim_end().rsplit_once(" listens on ").map(|(_, url)| url.to_owned());
        let url = url.unwrap_or_else(|| panic!("{line}{}", log.lock().unwrap()));
        Process { child, url, log, lines: lines.1 }
    }

    fn p2(&self, listen: &str, more: &[&str]) -> Process {
        let arguments = ["p2", "--keys", "keys/p2.keys", "--policy", "policy.signed", "--state", "state", "-v"];
        self.start(&[&arguments[..], &["--listen", listen], more].concat())
    }

    fn p1(&self, p2: &str, more: &[&str]) -> Process {
        let arguments = ["serve", "--keys", "keys/p1.keys", "--table", "people=people.veil.parquet", "-v"];
        self.start(&[&arguments[..], &["--p2", p2, "--listen", "127.0.0.1:0"], more].concat())
    }
}

struct Process {
    child: Child,
    url: String,
    log: Arc<Mutex<String>>,
    lines: mpsc::Receiver<String>,
}

impl Process {
    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All lines of a file but the first, in order of their text: a release keeps the order of rows, a scan need not.
fn sorted(csv: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = csv.lines().skip(1).collect();
    lines.sort_unstable();
    lines
}

const OWN: &str = r#"columns = ["name", "age", "wage", "illness", "region"]
min_k = 6
k_columns = ["age", "illness"]"#;
const ANON: &str = "CREATE TABLE anon AS SELECT * FROM k_anonymize((SELECT name, age, wage, illness, region FROM people), k => 6, comparison => 'blinded', quasi => (age, illness), \
                    rounds => 2, seed => 3);";

/// Owner, key holder, engine and recipient with TLS between all: what arrives is what the owner decrypts, and its papers are in order.
#[test]
fn three_processes_hand_anonymised_rows_to_a_recipient() {
    let place = Place::new(OWN);
    place.write("init.sql", ANON);
    let p2 = place.p2("127.0.0.1:0", &["--tls-cert", "p2.pem", "--tls-key", "p2.key", "--client-ca", "ca.pem"]);
    let to_p2 = ["--p2-tls-ca", "ca.pem", "--p2-tls-cert", "p1.pem", "--p2-tls-key", "p1.key"];
    let own = ["--tls-cert", "p1.pem", "--tls-key", "p1.key", "--token-file", "tokens", "--init", "init.sql"];
    let p1 = place.p1(&p2.url, &[&to_p2[..], &own].concat());
    let from = [
        "fetch",
        "--from",
        &p1.url,
        "--tls-ca",
        "ca.pem",
        "--token-file",
        "alice-token",
        "--key",
        "alice/recipient.key",
    ];
    let fetch = |sql: &str, file: &str, owner: &str| {
        place.succeed(&[&from[..], &["--owner", owner, "--sql", sql, "-o", file]].concat())
    };
    let sql = "SELECT * FROM release(anon, recipient => 'alice')";
    fetch(sql, "out.csv", "keys/owner.pub");
    // What the owner reads of the same anonymisation, which the seed repeats.
    let (local, copy) = ("COPY (SELECT * FROM anon) TO 'anon.veil.parquet'", ["--format", "csv", "-q"]);
    let sql_arguments =
        ["sql", "--keys", "keys/p1.keys", "--embedded-p2", "keys/p2.keys", "--table", "people=people.veil.parquet"];
    let copy = [&copy[..], &["--embedded-policy", "policy.signed"]].concat();
    place.succeed(&[&sql_arguments[..], &copy, &["-c", ANON, "-c", local]].concat());
    place.succeed(&["decrypt", "anon.veil.parquet", "--keys", "keys/owner.keys", "-o", "expected.csv", "-q"]);
    let (out, expected) = (place.read("out.csv"), place.read("expected.csv"));
    assert_eq!(sorted(&out), sorted(&expected));
    assert!(out.contains(CANARY) && out.lines().count() == 25, "{out}");

    let papers = place.succeed(&["verify", "out.manifest.json", "--owner", "keys/owner.pub"]);
    assert!(papers.contains("alice"), "{papers}");
    // The flag of suppressed rows is a column of the release, and not of the file.
    let papers = place.succeed(&["verify", "out.manifest.json", "--owner", "keys/owner.pub", "--file", "out.csv"]);
    assert!(papers.contains("out.csv has the columns of the release, and 24 rows"), "{papers}");
    let forged = place.read("out.manifest.json").replace("\"rows\": 24", "\"rows\": 23");
    place.write("forged.manifest.json", &forged);
    let refused = place.fail(&["verify", "forged.manifest.json", "--owner", "keys/owner.pub"]);
    assert!(refused.contains("signature"), "{refused}");

    // A plain query is released to the name in the key; without classes of six it is refused.
    fetch("SELECT wage, region FROM people", "plain.csv", "keys/owner.pub");
    assert!(place.read("plain.csv").contains(&CANARY_WAGE.to_string()));
    let asked = ["--owner", "keys/owner.pub", "--sql", "SELECT age, illness FROM people", "-o", "no.csv"];
    let refused = place.fail(&[&from[..], &asked].concat());
    assert!(refused.contains("share age, illness with fewer than 5 others"), "{refused}");
    assert!(!place.0.at("no.csv").exists());
    for (name, log) in [("P1", p1.log()), ("P2", p2.log())] {
        assert!(!log.contains("CANARY") && !log.contains(&CANARY_WAGE.to_string()), "{name}: {log}");
    }
}

/// A wire between two parties that remembers all bytes.
fn tapped(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let kept = heard.clone();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(to) else { continue };
            for (mut from, mut into) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                let kept = kept.clone();
                thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        kept.lock().unwrap().extend_from_slice(&buffer[..count]);
                        if into.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = into.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (address, heard)
}

fn address(url: &str) -> SocketAddr {
    url.rsplit_once('/').unwrap().1.parse().unwrap()
}

/// No clear value crosses a wire, in any of the forms that values have: not to P2 and back, and not to the recipient.
#[test]
fn no_clear_value_crosses_a_wire() {
    let place = Place::new(OWN);
    place.write("init.sql", ANON);
    let p2 = place.p2("127.0.0.1:0", &[]);
    let (to_p2, rounds) = tapped(address(&p2.url));
    let p1 = place.p1(&format!("http://{to_p2}"), &["--init", "init.sql"]);
    let (to_p1, download) = tapped(address(&p1.url));
    let from =
        ["fetch", "--from", &format!("http://{to_p1}"), "--key", "alice/recipient.key", "--owner", "keys/owner.pub"];
    place.succeed(&[&from[..], &["--sql", "SELECT * FROM anon", "-o", "out.csv"]].concat());
    assert!(place.read("out.csv").contains(CANARY));
    // A text as it is, its first lane in either byte order; a number as text, as 48 bits, and shifted as cells have it.
    let mut wanted = vec![b"CANARY".to_vec(), b"YRANAC".to_vec(), CANARY_WAGE.to_string().into_bytes()];
    for wage in (0..24).map(|row| CANARY_WAGE + row) {
        wanted.extend([wage.to_le_bytes()[..6].to_vec(), (wage << 16).to_le_bytes()[..7].to_vec()]);
    }
    // The search finds what is there: the query itself is no secret.
    let query = b"SELECT * FROM anon".to_vec();
    assert_eq!(found(&download.lock().unwrap(), std::slice::from_ref(&query)), Some(query));
    for (wire, bytes) in [("rounds", rounds.lock().unwrap()), ("download", download.lock().unwrap())] {
        assert!(bytes.len() > 10_000, "{wire}: {}", bytes.len());
        assert_eq!(found(&bytes, &wanted), None, "{wire}");
    }
}

/// One of these that stands among bytes, in one pass.
fn found(bytes: &[u8], wanted: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut begins = vec![false; 1 << 16];
    let begin = |pair: &[u8]| usize::from(u16::from_le_bytes([pair[0], pair[1]]));
    wanted.iter().for_each(|what| begins[begin(what)] = true);
    let mut places = (0..bytes.len().saturating_sub(1)).filter(|at| begins[begin(&bytes[*at..])]);
    places.find_map(|at| wanted.iter().find(|what| bytes[at..].starts_with(what)).cloned())
}

/// P2 is killed after each step of a release and started again: the release goes on, and epsilon is spent once.
#[test]
fn a_killed_key_holder_spends_once() {
    let place = Place::new("columns = [\"age\"]\nepsilon = { age = 10.0 }");
    for (killed, protocol) in ["apply", "seal_parcel", "attest"].into_iter().enumerate() {
        let mut p2 = place.p2("127.0.0.1:0", &[]);
        let (url, listen) = (p2.url.clone(), address(&p2.url).to_string());
        let p1 = place.p1(&url, &[]);
        let (key, file) = ("alice/recipient.key", format!("out{killed}.csv"));
        let sql = "SELECT dp_laplace(age, 1.0) AS age FROM people";
        let fetch = ["fetch", "--from", &p1.url, "--key", key, "--owner", "keys/owner.pub", "--sql", sql, "-o", &file];
        let mut fetching = place.command(&fetch).stderr(Stdio::piped()).spawn().unwrap();
        // Each batch that P2 has worked on stands in its log.
        let done = format!("protocol=\"{protocol}\"");
        p2.lines.iter().find(|line| line.contains("batch") && line.contains(&done)).unwrap();
        p2.kill();
        let _again = place.p2(&listen, &[]);
        let status = fetching.wait().unwrap();
        let mut error = String::new();
        fetching.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        assert!(status.success(), "{protocol}: {error}");
        assert_eq!(place.read(&file).lines().count(), 25, "{protocol}");
        let ledger = place.read("state/ledger.jsonl");
        let spends = ledger.lines().filter(|line| line.contains("\"spend\"")).count();
        assert_eq!(spends, killed + 1, "{protocol}: {ledger}");
    }
    // Three releases of 1 each; seven more are left, and an eighth is refused.
    let (p2, budget) = (place.p2("127.0.0.1:0", &[]), "columns = [\"age\"]\nepsilon = { age = 3.5 }");
    drop(p2);
    place.sign("policy.signed", budget);
    let p2 = place.p2("127.0.0.1:0", &[]);
    let p1 = place.p1(&p2.url, &[]);
    let sql = "SELECT dp_laplace(age, 1.0) AS age FROM people";
    let fetch = ["fetch", "--from", &p1.url, "--key", "alice/recipient.key", "--sql", sql, "-o", "more.csv"];
    let refused = place.fail(&fetch);
    assert!(refused.contains("3 of 3.5"), "{refused}");
}

/// A policy that is not the owner's, is changed, has ended, or is for others starts no desk, or refuses.
#[test]
fn wrong_policies_and_keys_are_refused() {
    let place = Place::new("columns = [\"age\"]");
    let signed = place.read("policy.signed");
    place.write("changed.signed", &signed.replace("[\"age\"]", "[\"age\", \"name\"]"));
    let p2 = ["p2", "--keys", "keys/p2.keys", "--state", "state", "--listen", "127.0.0.1:0", "--policy"];
    let refused = place.fail(&[&p2[..], &["changed.signed"]].concat());
    assert!(refused.contains("signature"), "{refused}");
    place.sign("ended.signed", "columns = [\"age\"]");
    let ended = place.read("policy.toml").replace("[ask]", "expires = \"2020-01-01\"\n[ask]");
    place.write("policy.toml", &ended);
    place.succeed(&["policy", "sign", "policy.toml", "--keys", "keys/owner.keys", "-o", "policy.signed", "--force"]);
    let p2 = place.p2("127.0.0.1:0", &[]);
    let second = place.fail(&[
        "p2",
        "--keys",
        "keys/p2.keys",
        "--policy",
        "ended.signed",
        "--state",
        "state",
        "--listen",
        "127.0.0.1:0",
    ]);
    assert!(second.contains("in use by another key holder"), "{second}");
    let p1 = place.p1(&p2.url, &[]);
    let fetch = ["fetch", "--from", &p1.url, "--sql", "SELECT age FROM people", "-o", "out.csv", "--key"];
    let refused = place.fail(&[&fetch[..], &["alice/recipient.key"]].concat());
    assert!(refused.contains("the policy ended at 2020-01-02"), "{refused}");
    drop(p2);
    fs::copy(place.0.at("ended.signed"), place.0.at("policy.signed")).unwrap();
    let p2 = place.p2("127.0.0.1:0", &[]);
    let p1 = place.p1(&p2.url, &[]);
    place.succeed(&["recipient", "keygen", "-o", "mallory"]);
    let fetch = ["fetch", "--from", &p1.url, "-o", "out.csv", "--key", "mallory/recipient.key", "--sql"];
    let unknown = place.fail(&[&fetch[..], &["SELECT age FROM people"]].concat());
    assert!(unknown.contains("does not know a recipient mallory"), "{unknown}");
    let other =
        place.fail(&[&fetch[..], &["SELECT * FROM release((SELECT age FROM people), recipient => 'alice')"]].concat());
    assert!(other.contains("mallory"), "{other}");
    assert!(!place.0.at("out.csv").exists());
}
