//! `veil fetch` and `veil gateway` as a recipient runs them: P2, P1 and the recipient are processes, with TLS between them.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../flight-p2/tests/support/mod.rs"]
mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Int64Type};
use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::TryStreamExt;
use support::Certificates;
use tonic::transport::{Channel, Endpoint};
use veil_keys::RecipientKey;
use veil_owner::{Output, TableReader, TableWriter};
use veil_recipient::SealedReader;
use veil_release::OwnerPublic;

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

[column.region]
kind = \"clear\"
";
const TOKEN: &str = "alice-token-0123456789";
const QUERY: &str = "SELECT mask_shift(age, 3) AS age, region FROM people";

/// A folder with keys, certificates, a token, an encrypted table and a policy that lets alice have ages and regions.
struct Place(Certificates);

impl Place {
    fn new() -> Self {
        let place = Self(Certificates::new());
        let write = |name: &str, text: &str| {
            fs::write(place.0.at(name), text).unwrap();
            fs::set_permissions(place.0.at(name), fs::Permissions::from_mode(0o600)).unwrap();
        };
        write("people.csv", DATA);
        write("people.toml", DECLARATION);
        write("tokens", &format!("alice {TOKEN}\n"));
        write("token", &format!("{TOKEN}\n"));
        write("wrong-token", "alice-token-9876543210\n");
        for folder in ["keys", "other-keys"] {
            place.succeed(&["keygen", "-o", folder, "-q"]);
        }
        for (folder, name) in [("alice", "alice"), ("thief", "alice")] {
            place.succeed(&["recipient", "keygen", "-o", folder, "--name", name, "-q"]);
        }
        let encrypt = ["encrypt", "people.csv", "--declare", "people.toml", "--keys", "keys/owner.keys", "-q"];
        place.succeed(&[&encrypt[..], &["-o", "people.veil.parquet"]].concat());
        let owner: OwnerPublic = fs::read_to_string(place.0.at("keys/owner.pub")).unwrap().parse().unwrap();
        let alice = RecipientKey::load(&place.0.at("alice/recipient.key")).unwrap();
        let policy = format!(
            "[policy]\nkey_set = \"{}\"\n[ask]\nmin_rows = 1\nnumbers = 1000000000\n[recipient.alice]\nkey = \"{}\"\n[[recipient.alice.allow]]\ntable = \"people\"\n\
             columns = [\"age\", \"region\"]\n",
            owner.key_set,
            alice.public()
        );
        write("policy.toml", &policy);
        place.succeed(&["policy", "sign", "policy.toml", "--keys", "keys/owner.keys", "-o", "policy.signed"]);
        place
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veil"));
        command.args(arguments).current_dir(self.0.at("")).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> std::process::Output {
        self.command(arguments).output().unwrap()
    }

    /// Standard output and standard error of a run that succeeds.
    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> (String, String) {
        let output = self.run(arguments);
        let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{arguments:?}: {said}");
        (text, said)
    }

    /// The error of a run that fails with one line, and leaves no file.
    #[track_caller]
    fn fail(&self, arguments: &[&str]) -> String {
        let before = self.files();
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.trim_end().lines().count() == 1, "{error}");
        assert_eq!(self.files(), before, "{error}");
        error
    }

    fn files(&self) -> Vec<std::ffi::OsString> {
        let mut files: Vec<_> = fs::read_dir(self.0.at("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        files.sort();
        files
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.at(name)).unwrap()
    }

    /// Starts a server and waits for its line, which ends in its address.
    fn start(&self, arguments: &[&str]) -> Process {
        let mut child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim_end().rsplit_once(" listens on ").map(|(_, url)| url.to_owned()).unwrap_or_default();
        let process = Process { child, url };
        assert!(!process.url.is_empty(), "{arguments:?}: {line}");
        process
    }

    /// P2 and P1.
    fn servers(&self) -> [Process; 2] {
        let p2 = ["p2", "--keys", "keys/p2.keys", "--policy", "policy.signed", "--state", "p2-state"];
        let p2_tls = ["--tls-cert", "p2.pem", "--tls-key", "p2.key", "--client-ca", "ca.pem"];
        let p2 = self.start(&[&p2[..], &p2_tls, &["--listen", "127.0.0.1:0", "-q"]].concat());
        let to_p2 = ["--p2", &p2.url, "--p2-tls-ca", "ca.pem", "--p2-tls-cert", "p1.pem", "--p2-tls-key", "p1.key"];
        let serve = ["serve", "--keys", "keys/p1.keys", "--table", "people=people.veil.parquet"];
        let tls = ["--tls-cert", "p1.pem", "--tls-key", "p1.key", "--token-file", "tokens"];
        let p1 = self.start(&[&serve[..], &to_p2, &tls, &["--listen", "127.0.0.1:0", "-q"]].concat());
        [p2, p1]
    }
}

struct Process {
    child: Child,
    url: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const KEY: [&str; 2] = ["--key", "alice/recipient.key"];
const OWNER: [&str; 2] = ["--owner", "keys/owner.pub"];
const TLS: [&str; 4] = ["--tls-ca", "ca.pem", "--token-file", "token"];

fn fetch<'a>(p1: &'a Process, sql: &'a str, output: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["fetch", "--from", &p1.url, "--sql", sql, "-o", output], more].concat()
}

#[test]
fn a_recipient_fetches_what_the_policy_allows() {
    let place = Place::new();
    let [_p2, p1] = place.servers();
    let all = [&KEY[..], &OWNER, &TLS].concat();

    let (_, said) = place.succeed(&fetch(&p1, QUERY, "out.csv", &all));
    assert!(said.starts_with("Fetched 4 rows, ") && said.contains(" sealed, to out.csv in "), "{said}");
    assert_eq!(place.text("out.csv"), "age,region\n42,north\n,south\n44,south\n43,north\n");
    for file in ["out.csv", "out.manifest.json"] {
        assert_eq!(fs::metadata(place.0.at(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
    let (table, _) = place.succeed(&["verify", "out.manifest.json", "--owner", "keys/owner.pub"]);
    assert!(table.contains("recipient   alice") && table.contains("mask_shift"), "{table}");

    // The same written as a release, without the owner's key: fetched with a warning, and quietly.
    let release =
        "SELECT * FROM release((SELECT age, region FROM people WHERE region = 'south'), recipient => 'alice')";
    let (_, said) = place.succeed(&fetch(&p1, release, "south.parquet", &[&KEY[..], &TLS].concat()));
    assert!(said.contains("warning: the manifest was checked against the owner's key in itself"), "{said}");
    let (_, said) = place.succeed(&fetch(&p1, release, "quiet.csv", &[&KEY[..], &TLS, &["-q"]].concat()));
    assert_eq!((said.as_str(), place.text("quiet.csv").as_str()), ("", "age,region\n,south\n41,south\n"));
    assert!(fs::read(place.0.at("south.parquet")).unwrap().starts_with(b"PAR1"));

    // Nothing is replaced unless it is said.
    let error = place.fail(&fetch(&p1, QUERY, "out.csv", &all));
    assert!(error.contains("out.csv exists already"), "{error}");
    let error = place.fail(&fetch(&p1, QUERY, "out.parquet", &all));
    assert!(error.contains("out.manifest.json exists already"), "{error}");
    place.succeed(&fetch(
        &p1,
        "SELECT age FROM people WHERE age IS NOT NULL",
        "out.csv",
        &[&all[..], &["--force"]].concat(),
    ));
    assert_eq!(place.text("out.csv"), "age\n39\n41\n40\n");

    let sealed_as = |name: &'static str| [&all[..], &["--keep-sealed", name]].concat();
    for (sql, output, more, says) in [
        ("SELECT name FROM people", "x.csv", all.clone(), "no rule allows recipient alice to receive column name"),
        ("SELECT agee FROM people", "x.csv", all.clone(), "agee"),
        (QUERY, "x.txt", all.clone(), "use .csv, .parquet"),
        (QUERY, "-", all.clone(), "use .csv, .parquet"),
        (QUERY, "x.csv", sealed_as("x.csv"), "x.csv cannot be the sealed parts too"),
        (QUERY, "x.csv", sealed_as("./x.csv"), "x.csv cannot be the sealed parts too"),
        (QUERY, "x.csv", sealed_as("x.manifest.json"), "x.manifest.json cannot be the sealed parts too"),
        (
            QUERY,
            "x.csv",
            [&["--key", "thief/recipient.key"][..], &OWNER, &TLS].concat(),
            "this release is not for this key",
        ),
        (
            QUERY,
            "x.csv",
            [&KEY[..], &["--owner", "other-keys/owner.pub"], &TLS].concat(),
            "the manifest is for key set",
        ),
        (
            QUERY,
            "x.csv",
            [&KEY[..], &["--tls-ca", "ca.pem", "--token-file", "wrong-token"]].concat(),
            "the token is not one that this server knows",
        ),
        (QUERY, "x.csv", [&KEY[..], &["--tls-ca", "rogue-ca.pem"]].concat(), "cannot be reached"),
        (QUERY, "x.csv", KEY.to_vec(), "give --tls-ca"),
    ] {
        let error = place.fail(&fetch(&p1, sql, output, &more));
        assert!(error.contains(says), "{says}: {error}");
    }
}

/// A file with other values in the same places.
fn rewrite(place: &Place, from: &str, to: &str, change: impl Fn(RecordBatch) -> RecordBatch) {
    let reader = TableReader::open(&place.0.at(from)).unwrap();
    let schema = reader.schema().clone();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let all = change(concat_batches(&schema, &batches).unwrap());
    let mut writer = TableWriter::clear(&Output { path: place.0.at(to), force: true }, all.schema()).unwrap();
    writer.write(&all).unwrap();
    writer.finish().unwrap();
}

/// With the sealed parts and the key, every value counts; without them, columns and rows.
#[test]
fn a_file_is_proved_to_be_what_was_released() {
    let place = Place::new();
    let [_p2, p1] = place.servers();
    let all = [&KEY[..], &OWNER, &TLS].concat();
    let verify = |manifest: &'static str, more: &[&'static str]| [&["verify", manifest], &OWNER[..], more].concat();
    for file in ["out.csv", "out.parquet", "out.arrow"] {
        place.succeed(&fetch(&p1, QUERY, file, &[&all[..], &["--keep-sealed", "out.sealed", "--force"]].concat()));
        let (_, said) =
            place.succeed(&verify("out.manifest.json", &["--file", file, "--sealed", "out.sealed", KEY[0], KEY[1]]));
        assert!(said.contains(&format!("{file} is what was released: 4 rows, value for value")), "{said}");
        let (_, said) = place.succeed(&verify("out.manifest.json", &["--file", file]));
        assert!(said.contains(&format!("{file} has the columns of the release, and 4 rows")), "{said}");
        assert!(said.contains("only its sealed parts tell"), "{said}");
    }
    let (_, said) = place.succeed(&verify("out.manifest.json", &["--sealed", "out.sealed"]));
    assert!(said.contains("out.sealed has all the parts that both servers signed"), "{said}");
    let error = place.fail(&fetch(&p1, QUERY, "new.csv", &[&all[..], &["--keep-sealed", "out.sealed"]].concat()));
    assert!(error.contains("out.sealed exists already"), "{error}");

    // Of the last release: one value, one row less, one more, another order, another column.
    let other = |batch: &RecordBatch, ages: Vec<Option<i64>>| {
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ages)), batch.column(1).clone()];
        RecordBatch::try_new(batch.schema(), columns).unwrap()
    };
    rewrite(&place, "out.arrow", "value.parquet", |batch| other(&batch, vec![Some(42), None, Some(45), Some(43)]));
    rewrite(&place, "out.arrow", "null.arrow", |batch| other(&batch, vec![Some(42), Some(0), Some(44), Some(43)]));
    rewrite(&place, "out.arrow", "less.parquet", |batch| batch.slice(0, 3));
    rewrite(&place, "out.arrow", "more.csv", |batch| {
        concat_batches(&batch.schema(), [&batch, &batch.slice(0, 1)]).unwrap()
    });
    rewrite(&place, "out.arrow", "order.csv", |batch| {
        concat_batches(&batch.schema(), [&batch.slice(1, 3), &batch.slice(0, 1)]).unwrap()
    });
    rewrite(&place, "out.arrow", "column.parquet", |batch| batch.project(&[1]).unwrap());
    rewrite(&place, "out.arrow", "same.parquet", |batch| batch);
    // Other types: texts in another layout are the same texts; numbers with fractions, and texts where nothing was, are not what was released.
    let with =
        |ages: ArrayRef, regions: ArrayRef| RecordBatch::try_from_iter([("age", ages), ("region", regions)]).unwrap();
    rewrite(&place, "out.arrow", "layout.arrow", |batch| {
        let kind = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::LargeUtf8));
        with(batch.column(0).clone(), cast(batch.column(1), &kind).unwrap())
    });
    rewrite(&place, "out.arrow", "fraction.parquet", |batch| {
        let ages = Float64Array::from(vec![Some(42.4), None, Some(44.4), Some(43.4)]);
        with(Arc::new(ages), batch.column(1).clone())
    });
    rewrite(&place, "out.arrow", "text.arrow", |batch| {
        with(Arc::new(StringArray::from(vec!["42", "abc", "44", "43"])), batch.column(1).clone())
    });
    fs::write(place.0.at("line.csv"), "age,region\n42,north\n,south\n44,south\n43,North\n").unwrap();
    let keyed = |file| verify("out.manifest.json", &["--file", file, "--sealed", "out.sealed", KEY[0], KEY[1]]);
    place.succeed(&keyed("same.parquet"));
    place.succeed(&keyed("layout.arrow"));
    for (file, says) in [
        ("value.parquet", "value.parquet, row 3, column age: it is not what was released"),
        ("null.arrow", "null.arrow, row 2, column age: it is not what was released"),
        ("fraction.parquet", "column age, of type Float64 and not Int64: it is not what was released"),
        ("text.arrow", "column age, of type Utf8 and not Int64: it is not what was released"),
        ("order.csv", "order.csv, line 2: it is not what was released"),
        ("line.csv", "line.csv, line 5: it is not what was released"),
        ("less.parquet", "it has 3 rows, and the release has 4"),
        ("more.csv", "it has 5 rows, and the release has 4"),
        ("column.parquet", "it has no column age in its place"),
        ("absent.csv", "No such file"),
    ] {
        let error = place.fail(&keyed(file));
        assert!(error.contains(says), "{file}: {error}");
    }
    // Columns and rows alone do not tell values apart; the help says what does.
    place.succeed(&verify("out.manifest.json", &["--file", "value.parquet"]));

    // Sealed parts: damaged, of another release, opened with another key, no such file at all.
    let sealed = fs::read(place.0.at("out.sealed")).unwrap();
    let parts: Vec<RecordBatch> = SealedReader::open(&place.0.at("out.sealed")).unwrap().map(Result::unwrap).collect();
    let parcels =
        parts.iter().filter_map(|batch| batch.column_by_name("from_p1")?.as_binary::<i64>().iter().flatten().next());
    let parcel = parcels.collect::<Vec<_>>().concat();
    let at = sealed.windows(parcel.len()).position(|part| part == parcel).unwrap();
    let mut damaged = sealed.clone();
    damaged[at + parcel.len() / 2] ^= 1;
    fs::write(place.0.at("damaged.sealed"), damaged).unwrap();
    fs::write(place.0.at("cut.sealed"), &sealed[..sealed.len() / 2]).unwrap();
    place.succeed(&fetch(&p1, QUERY, "other.csv", &[&all[..], &["--keep-sealed", "other.sealed"]].concat()));
    for (sealed, key, says) in [
        ("damaged.sealed", KEY[1], "damaged.sealed: the manifest has another parcel 1 than what came"),
        ("cut.sealed", KEY[1], "cut.sealed cannot be read as sealed parts"),
        ("out.csv", KEY[1], "out.csv cannot be read as sealed parts"),
        ("other.sealed", KEY[1], "the manifest has another release than what came"),
        ("out.sealed", "thief/recipient.key", "this release is not for this key"),
    ] {
        let error = place.fail(&verify("out.manifest.json", &["--sealed", sealed, "--key", key]));
        assert!(error.contains(says), "{sealed}: {error}");
    }
    assert!(place.fail(&verify("other.manifest.json", &["--sealed", "out.sealed"])).contains("another release"));
    assert_eq!(
        place.run(&verify("out.manifest.json", &["--key", KEY[1]])).status.code(),
        Some(2),
        "--key needs --sealed"
    );
}

#[test]
fn a_recipient_shows_a_certificate_where_one_is_asked_for() {
    let place = Place::new();
    let p2 = ["p2", "--keys", "keys/p2.keys", "--policy", "policy.signed", "--state", "p2-state"];
    let p2 = place.start(&[&p2[..], &["--listen", "127.0.0.1:0", "-q"]].concat());
    let serve = ["serve", "--keys", "keys/p1.keys", "--p2", &p2.url, "--table", "people=people.veil.parquet"];
    let tls = ["--tls-cert", "p1.pem", "--tls-key", "p1.key", "--client-ca", "ca.pem"];
    let p1 = place.start(&[&serve[..], &tls, &["--listen", "127.0.0.1:0", "-q"]].concat());
    let shown = |name: &'static str, key: &'static str| ["--tls-ca", "ca.pem", "--tls-cert", name, "--tls-key", key];
    place.succeed(&fetch(&p1, QUERY, "out.csv", &[&KEY[..], &OWNER, &shown("alice.pem", "alice.key")].concat()));
    assert_eq!(place.text("out.csv").lines().count(), 5);
    for more in [&["--tls-ca", "ca.pem"][..], &shown("rogue.pem", "rogue.key")] {
        let error = place.fail(&fetch(&p1, QUERY, "x.csv", &[&KEY[..], more].concat()));
        assert!(error.contains("cannot be reached: "), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_client_reads_through_the_gateway() {
    let place = Place::new();
    let [_p2, p1] = place.servers();
    let gateway = [&["gateway", "--from", &p1.url, "--listen", "127.0.0.1:0", "-q"][..], &KEY, &OWNER, &TLS].concat();
    let mut gateway = place.start(&gateway);
    let endpoint = Endpoint::from_shared(gateway.url.clone()).unwrap();
    let mut client: FlightSqlServiceClient<Channel> = FlightSqlServiceClient::new(endpoint.connect().await.unwrap());
    let info = client.execute(QUERY.to_owned(), None).await.unwrap();
    let schema = info.clone().try_decode_schema().unwrap();
    assert_eq!(schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["age", "region"]);
    let ticket = info.endpoint.into_iter().next().unwrap().ticket.unwrap();
    let rows: Vec<RecordBatch> = client.do_get(ticket).await.unwrap().try_collect().await.unwrap();
    let ages: Vec<Option<i64>> = rows[0].column(0).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(ages, [Some(42), None, Some(44), Some(43)]);
    assert_eq!(schema.fields(), rows[0].schema().fields());
    let error = client.execute("SELECT name FROM people".to_owned(), None).await.unwrap_err().to_string();
    assert!(error.contains("no rule allows recipient alice to receive column name"), "{error}");
    drop(client);

    let ended = Command::new("kill").args(["-TERM", &gateway.child.id().to_string()]).status().unwrap();
    assert!(ended.success() && gateway.child.wait().unwrap().success());
    let public = ["gateway", "--from", &p1.url, "--listen", "0.0.0.0:0"];
    let error = place.fail(&[&public[..], &KEY, &TLS].concat());
    assert!(error.contains("listens on this machine only"), "{error}");
}
