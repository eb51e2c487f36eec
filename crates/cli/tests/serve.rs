//! `veil serve` as an operator runs it, and clients ask it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../flight-p2/tests/support/mod.rs"]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use arrow_flight::sql::CommandGetTables;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{FlightDescriptor, FlightInfo};
use futures::TryStreamExt;
use support::Certificates;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

const DATA: &str = "name,age,region\nAnna,39,north\nBert,,south\nCleo,41,south\nDora,40,north\n";
const DECLARATION: &str = "\
[table]
name = \"people\"

[column.name]
kind = \"text\"
max_length = 8

[column.age]
kind = \"integer\"
range = [0, 120]
identifier = true

[column.region]
kind = \"clear\"
";
const ERIN: &str = "erin-token-01234567890";
const ROOT: &str = "root-token-0123456789a";

/// A folder with keys, certificates, tokens and an encrypted table.
struct Place(Certificates);

impl Place {
    fn new() -> Self {
        let place = Self(Certificates::new());
        fs::write(place.0.at("people.csv"), DATA).unwrap();
        fs::write(place.0.at("people.toml"), DECLARATION).unwrap();
        fs::write(place.0.at("tokens"), format!("erin {ERIN} steward\nroot {ROOT} admin\n")).unwrap();
        fs::set_permissions(place.0.at("tokens"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(place.0.at("init.sql"), "CREATE VIEW ages AS SELECT age, region FROM people;\n").unwrap();
        assert!(place.run(&["keygen", "-o", "keys", "-q"]).status.success());
        let encrypt = ["encrypt", "people.csv", "--declare", "people.toml", "--keys", "keys/owner.keys", "-q"];
        assert!(place.run(&[&encrypt[..], &["-o", "people.veil.parquet"]].concat()).status.success());
        place
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veil"));
        command.args(arguments).current_dir(self.0.at("")).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts a server and waits for its line, which ends in its address.
    fn start(&self, arguments: &[&str], line_start: &str) -> Process {
        let mut child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let mut process = Process { child, url: String::new() };
        match line.trim_end().rsplit_once(" listens on ") {
            Some((start, url)) if start.starts_with(line_start) => process.url = url.to_owned(),
            _ => panic!("{line}{}", process.end("-TERM")),
        }
        process
    }

    /// A client that trusts the authority and sends a token.
    async fn client(&self, p1: &Process, token: &str) -> Client {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(fs::read(self.0.at("ca.pem")).unwrap()));
        let endpoint = Endpoint::from_shared(p1.url.clone()).unwrap().tls_config(tls).unwrap();
        let mut client = Client::new(endpoint.connect().await.unwrap());
        client.set_token(token.to_owned());
        client
    }
}

type Client = FlightSqlServiceClient<Channel>;

struct Process {
    child: Child,
    url: String,
}

impl Process {
    /// Ends it by a signal, and gives what it wrote on standard error.
    fn end(&mut self, signal: &str) -> String {
        let _ = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        log
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn rows(client: &mut Client, info: FlightInfo) -> Result<Vec<RecordBatch>, String> {
    let ticket = info.endpoint.into_iter().next().unwrap().ticket.unwrap();
    let rows = client.do_get(ticket).await.map_err(|error| error.to_string())?;
    rows.try_collect().await.map_err(|error| error.to_string())
}

async fn ask(client: &mut Client, sql: &str) -> Result<Vec<RecordBatch>, String> {
    let info = client.execute(sql.to_owned(), None).await.map_err(|error| error.to_string())?;
    rows(client, info).await
}

async fn refusal(client: &mut Client, sql: &str) -> String {
    ask(client, sql).await.unwrap_err()
}

const SERVE: [&str; 7] =
    ["serve", "--keys", "keys/p1.keys", "--table", "people=people.veil.parquet", "--listen", "127.0.0.1:0"];
const TLS: [&str; 6] = ["--tls-cert", "p1.pem", "--tls-key", "p1.key", "--token-file", "tokens"];

/// Three processes, TLS between each two of them.
#[tokio::test(flavor = "multi_thread")]
async fn sql_over_tls_with_rounds_at_p2() {
    let place = Place::new();
    let p2 = ["p2", "--keys", "keys/p2.keys", "--listen", "127.0.0.1:0", "-q"];
    let p2_tls = ["--tls-cert", "p2.pem", "--tls-key", "p2.key", "--client-ca", "ca.pem"];
    let p2 = place.start(&[&p2[..], &p2_tls].concat(), "P2 for key set ");
    let to_p2 = ["--p2", &p2.url, "--p2-tls-ca", "ca.pem", "--p2-tls-cert", "p1.pem", "--p2-tls-key", "p1.key"];
    let serve = [&SERVE[..], &to_p2, &TLS, &["--init", "init.sql"]].concat();
    let mut p1 = place.start(&serve, "P1 for key set ");
    assert!(p1.url.starts_with("https://127.0.0.1:"), "{}", p1.url);
    let mut erin = place.client(&p1, ERIN).await;
    let mut root = place.client(&p1, ROOT).await;

    // Clear columns, and encrypted ones with their type.
    let counts =
        ask(&mut erin, "SELECT region, count(*) AS n FROM people GROUP BY region ORDER BY region").await.unwrap();
    assert_eq!(counts[0].column(1).as_primitive::<Int64Type>().values(), &[2, 2]);
    let info = erin.execute("SELECT age FROM ages".to_owned(), None).await.unwrap();
    let promised = info.clone().try_decode_schema().unwrap();
    assert_eq!(promised.field(0).metadata()["ARROW:extension:name"], "veil.cell");
    let ages = rows(&mut erin, info).await.unwrap();
    assert_eq!((ages[0].schema().as_ref(), ages[0].num_rows()), (&promised, 4));

    // What needs P2 gets there; the owner reads what is written.
    let noised = "SELECT dp_laplace(age, 1.0) AS age FROM people WHERE region = 'north'";
    assert_eq!(ask(&mut erin, noised).await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
    let copy = "COPY (SELECT mask_shift(age, 3) AS age, region FROM people) TO 'masked.veil.parquet'";
    assert_eq!(root.execute_update(copy.to_owned(), None).await.unwrap(), 4);
    let decrypted = place.run(&["decrypt", "masked.veil.parquet", "--keys", "keys/owner.keys", "-o", "-", "-q"]);
    assert_eq!(String::from_utf8(decrypted.stdout).unwrap(), "age,region\n42,north\n,south\n44,south\n43,north\n");
    assert!(root.execute_update(copy.to_owned(), None).await.unwrap_err().to_string().contains("exists already"));

    // Only those who may change something do, and then all see it.
    for sql in [copy, "CREATE VIEW v AS SELECT 1", "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION 'people.csv'"] {
        let error = refusal(&mut erin, sql).await;
        assert!(error.contains("`admin`"), "{error}");
    }
    ask(&mut root, "CREATE TABLE made AS SELECT region FROM people").await.unwrap();
    assert_eq!(ask(&mut erin, "SELECT * FROM made").await.unwrap()[0].num_rows(), 4);
    let tables = erin.get_tables(CommandGetTables::default()).await.unwrap();
    let tables = rows(&mut erin, tables).await.unwrap();
    let names = tables[0].column_by_name("table_name").unwrap().as_string::<i32>();
    assert_eq!(names.iter().flatten().collect::<Vec<_>>(), ["ages", "made", "people"]);

    // Mistakes are told when a statement is planned, in one sentence.
    let error = refusal(&mut erin, "SELECT sum(age) FROM people").await;
    assert!(error.contains("sum does not work on encrypted columns: use enc_sum"), "{error}");
    let error = refusal(&mut place.client(&p1, "nobody").await, "SELECT 1").await;
    assert!(error.contains("is not one that this server knows"), "{error}");

    let log = p1.end("-TERM");
    assert_eq!(p1.child.wait().unwrap().code(), Some(0), "{log}");
    for words in ["listening", "statement started caller=\"erin\"", "rows=4", "kind=Denied", "stopped"] {
        assert!(log.contains(words), "{words} in {log}");
    }
    for secret in ["north", "SELECT", ERIN, ROOT] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_this_machine_plain_text_is_enough() {
    let place = Place::new();
    let mut p1 = place.start(&[&SERVE[..], &["--embedded-p2", "keys/p2.keys", "-v"]].concat(), "P1 for key set ");
    let mut client = Client::new(Endpoint::from_shared(p1.url.clone()).unwrap().connect().await.unwrap());
    let descriptor = FlightDescriptor::new_cmd("SELECT count(*) FROM people");
    let info = client.inner_mut().get_flight_info(descriptor).await.unwrap().into_inner();
    assert_eq!(rows(&mut client, info).await.unwrap()[0].column(0).as_primitive::<Int64Type>().values(), &[4]);
    let error = refusal(&mut client, "SET datafusion.execution.batch_size = 1").await;
    assert!(error.contains("`admin`"), "{error}");
    let log = p1.end("-INT");
    assert!(log.contains("protects nothing") && log.contains("SELECT count(*) FROM people"), "{log}");
}

#[test]
fn mistakes_are_one_sentence() {
    let place = Place::new();
    fs::write(place.0.at("bad.sql"), "SELECT 1;\n\nSELECT sum(age) FROM people;\n").unwrap();
    fs::write(place.0.at("open-tokens"), format!("erin {ERIN} steward\n")).unwrap();
    fs::set_permissions(place.0.at("open-tokens"), fs::Permissions::from_mode(0o644)).unwrap();
    let tls = ["--tls-cert", "p1.pem", "--tls-key", "p1.key"];
    let serve = |more: &[&str]| {
        let to_p2 = ["--p2", "http://127.0.0.1:9", "-q"];
        place.run(
            &[&["serve", "--keys", "keys/p1.keys", "--table", "people=people.veil.parquet"], &to_p2[..], more].concat(),
        )
    };
    for (more, words) in [
        (&["--listen", "0.0.0.0:0"][..], "does not listen on 0.0.0.0:0 without TLS"),
        (&[&["--listen", "0.0.0.0:0"][..], &tls].concat(), "without knowing who asks"),
        (&["--token-file", "open-tokens"], "open-tokens can be read by others"),
        (
            &["--listen", "127.0.0.1:0", "--init", "bad.sql"],
            "bad.sql:3: `SELECT sum(age) FROM people`: sum does not work",
        ),
        (&["--listen", "127.0.0.1:0", "--spool", "absent"], "absent: results cannot be spooled there"),
    ] {
        let output = serve(more);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with("error: ") && error.trim_end().lines().count() == 1, "{error}");
        assert!(error.contains(words), "{error}");
    }
    for half in [&["--tls-cert", "p1.pem"][..], &["--client-ca", "ca.pem"], &["--p2-tls-cert", "p1.pem"]] {
        assert_eq!(serve(half).status.code(), Some(2), "{half:?}");
    }
    assert_eq!(place.run(&["serve", "--keys", "keys/p1.keys"]).status.code(), Some(2));
}
