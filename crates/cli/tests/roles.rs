//! What recipients, stewards and admins may ask of `veil serve`: real processes for P1 and P2, and clients with tokens of every role.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../flight-p2/tests/support/mod.rs"]
mod support;

#[path = "roles/attacks.rs"]
mod attacks;
#[path = "roles/certificates.rs"]
mod certificates;
#[path = "roles/recipient.rs"]
mod recipient;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use arrow::array::{AsArray, RecordBatch};
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightDescriptor, FlightInfo, Ticket};
use futures::TryStreamExt;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

const DATA: &str = "name,age,wage,region,illness\nAnna,39,52,north,flu\nBert,,31,south,asthma\nCleo,41,47,south,measles\n\
                    Dora,40,39,north,flu\n";
const DECLARATION: &str = r#"
[table]
name = "people"
[column.name]
kind = "text"
max_length = 8
[column.age]
kind = "integer"
range = [0, 120]
[column.wage]
kind = "integer"
range = [0, 120]
[column.region]
kind = "clear"
[column.illness]
kind = "clear"
"#;

/// A view with what recipients may not write themselves, and a table that has clear columns alone.
const INIT: &str = "\
CREATE VIEW draws AS SELECT age, region, illness AS ill FROM people WHERE random() >= 0;
CREATE VIEW \"Sorted\" AS SELECT age, CASE WHEN region = 'north' THEN wage ELSE age END AS mixed, region FROM people ORDER BY region;
CREATE VIEW repeats AS SELECT age FROM people, generate_series(1, 2);
CREATE TABLE regions AS SELECT DISTINCT region, illness FROM people;
";

const CALLERS: [(&str, &str); 5] =
    [("alice", ""), ("bob", "recipient"), ("desk", "recipient=alice"), ("erin", "steward"), ("root", "admin")];

/// A folder with keys, tokens of every role, an encrypted table and a policy that lets alice and bob have ages and regions.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("people.csv", DATA);
        place.write("people.toml", DECLARATION);
        place.write("init.sql", INIT);
        place.write("tokens", &CALLERS.map(|(name, role)| format!("{name} {} {role}\n", token(name))).concat());
        place.succeed(&["keygen", "-o", "keys", "-q"]);
        let encrypt = ["encrypt", "people.csv", "--declare", "people.toml", "--keys", "keys/owner.keys", "-q"];
        place.succeed(&[&encrypt[..], &["-o", "people.veil.parquet"]].concat());
        let mut policy = format!("[policy]\nkey_set = \"{}\"\n", place.word("keys/owner.pub", 1));
        for name in ["alice", "bob"] {
            place.write(&format!("{name}-token"), &token(name));
            place.succeed(&["recipient", "keygen", "-o", name, "-q"]);
            let key = place.word(&format!("{name}/recipient.pub"), 2);
            policy += &format!(
                "[recipient.{name}]\nkey = \"{key}\"\n[[recipient.{name}.allow]]\ntable = \"people\"\ncolumns = [\"age\", \"region\"]\n"
            );
        }
        place.write("policy.toml", &policy);
        place.succeed(&["policy", "sign", "policy.toml", "--keys", "keys/owner.keys", "-o", "policy.signed"]);
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn word(&self, file: &str, place: usize) -> String {
        fs::read_to_string(self.at(file)).unwrap().split_whitespace().nth(place).unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veil"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts a server and waits for its line, which ends in its address.
    fn start(&self, arguments: &[&str]) -> Process {
        let mut child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let mut process = Process { child, url: String::new() };
        match line.trim_end().rsplit_once(" listens on ") {
            Some((_, url)) => process.url = url.to_owned(),
            None => panic!("{arguments:?}: {line}{}", process.end()),
        }
        process
    }

    /// P2 with the policy, and P1 with the tokens.
    fn servers(&self) -> [Process; 2] {
        let p2 = ["p2", "--keys", "keys/p2.keys", "--policy", "policy.signed", "--state", "state", "-q"];
        let p2 = self.start(&[&p2[..], &["--listen", "127.0.0.1:0"]].concat());
        let p1 = self.start(&[&SERVE[..], &["--p2", &p2.url, "--token-file", "tokens"]].concat());
        [p2, p1]
    }
}

const SERVE: [&str; 9] = [
    "serve",
    "--keys",
    "keys/p1.keys",
    "--table",
    "people=people.veil.parquet",
    "--init",
    "init.sql",
    "--listen",
    "127.0.0.1:0",
];

fn token(name: &str) -> String {
    format!("{name}-token-0123456789")
}

struct Process {
    child: Child,
    url: String,
}

impl Process {
    /// Ends it, and gives what it wrote on standard error.
    fn end(&mut self) -> String {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
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

/// A client of P1, who sends statements as plain text as pyarrow does.
struct Client {
    inner: FlightServiceClient<Channel>,
    token: Option<String>,
}

impl Client {
    async fn of(p1: &Process, name: &str) -> Self {
        Self { token: Some(token(name)), ..Self::nobody(p1).await }
    }

    /// Without a token.
    async fn nobody(p1: &Process) -> Self {
        let channel = Endpoint::from_shared(p1.url.clone()).unwrap().connect().await.unwrap();
        Self { inner: FlightServiceClient::new(channel), token: None }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        request
    }

    /// Has a statement planned, or a command answered.
    async fn plan(&mut self, command: impl Into<prost::bytes::Bytes>) -> Result<FlightInfo, Status> {
        let request = self.request(FlightDescriptor::new_cmd(command));
        Ok(self.inner.get_flight_info(request).await?.into_inner())
    }

    async fn rows(&mut self, ticket: Ticket) -> Result<Vec<RecordBatch>, Status> {
        let request = self.request(ticket);
        let messages = self.inner.do_get(request).await?.into_inner();
        let messages = messages.map_err(|status| FlightError::Tonic(Box::new(status)));
        let batches = FlightRecordBatchStream::new_from_flight_data(messages).try_collect().await;
        batches.map_err(|error| match error {
            FlightError::Tonic(status) => *status,
            other => panic!("{other}"),
        })
    }

    /// Runs a statement to its end.
    async fn ask(&mut self, sql: &str) -> Result<Vec<RecordBatch>, Status> {
        let info = self.plan(sql.to_owned()).await?;
        self.rows(ticket(info)).await
    }

    /// The sentence by which the caller's role is told not to run a statement.
    #[track_caller]
    fn denial(sql: &str, planned: Result<FlightInfo, Status>) -> String {
        let status = planned.err().unwrap_or_else(|| panic!("not refused: {sql}"));
        assert_eq!(status.code(), Code::PermissionDenied, "{sql}: {}", status.message());
        let sentence = status.message().to_owned();
        let role = sentence.contains("only stewards and admins may")
            || sentence.contains("only callers with the role `admin` may");
        assert!(role && sentence.lines().count() == 1, "which role may? {sql}: {sentence}");
        sentence
    }
}

fn ticket(info: FlightInfo) -> Ticket {
    info.endpoint.into_iter().next().unwrap().ticket.unwrap()
}

/// The names in a column of an answer about the catalog.
fn names(batches: &[RecordBatch], column: &str) -> Vec<String> {
    let column = |batch: &RecordBatch| {
        batch.column_by_name(column).unwrap().as_string::<i32>().iter().flatten().map(str::to_owned).collect::<Vec<_>>()
    };
    batches.iter().flat_map(column).collect()
}

/// A query as a release to alice.
fn released(query: &str) -> String {
    format!("SELECT * FROM release(({query}), recipient => 'alice')")
}
