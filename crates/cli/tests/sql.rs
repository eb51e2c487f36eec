//! `veil sql` as a person runs it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const DATA: &str = "name,age,score,city,region\nAnna,39,7,Paris,north\nBert,,8,Rome,south\nCleo,41,9,Paris,south\nDora,40,10,Rome,north\n";

/// Scores with public bounds, ages whose bounds only key holders know.
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

[column.score]
kind = \"integer\"
range = [0, 100]
public_range = true

[column.city]
kind = \"clear\"

[column.region]
kind = \"clear\"
";

struct Place(tempfile::TempDir);

impl Place {
    /// With keys and an encrypted table.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.at("people.csv"), DATA).unwrap();
        fs::write(place.at("people.toml"), DECLARATION).unwrap();
        place.succeed(&["keygen", "-o", "keys", "-q"]);
        place.encrypt("people.toml", "people.veil.parquet");
        place
    }

    fn encrypt(&self, declaration: &str, output: &str) {
        let keys = ["--keys", "keys/owner.keys", "-q"];
        self.succeed(&[&["encrypt", "people.csv", "--declare", declaration, "-o", output][..], &keys].concat());
    }

    /// The owner lets questions be about few people.
    fn allow_few(&self) {
        let public = fs::read_to_string(self.at("keys/owner.pub")).unwrap();
        let key_set = public.split_whitespace().nth(1).unwrap();
        fs::write(self.at("few.toml"), format!("[policy]\nkey_set = \"{key_set}\"\n[ask]\nmin_rows = 2\n")).unwrap();
        self.succeed(&["policy", "sign", "few.toml", "--keys", "keys/owner.keys", "-o", "few.signed"]);
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
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

    /// What `veil sql` prints, with the table `people`.
    #[track_caller]
    fn sql(&self, arguments: &[&str]) -> String {
        self.succeed(&[&["sql", "--table", "people=people.veil.parquet", "-q"], arguments].concat())
    }

    /// The error of a run that fails with status 1 and says one line.
    #[track_caller]
    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(&[&["sql", "--table", "people=people.veil.parquet", "-q"], arguments].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.trim_end().lines().count() == 1, "{error}");
        error.trim_end().to_owned()
    }

    /// What the owner reads in a file.
    #[track_caller]
    fn decrypted(&self, file: &str) -> String {
        self.succeed(&["decrypt", file, "--keys", "keys/owner.keys", "-o", "-", "-q"])
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Runs with statements on standard input.
    fn piped(&self, arguments: &[&str], input: &str) -> Output {
        let arguments = [&["sql", "--table", "people=people.veil.parquet", "-q"], arguments].concat();
        let mut command = self.command(&arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

#[test]
fn masked_columns_are_written_and_decrypted() {
    let place = Place::new();
    let copy = "COPY (SELECT mask_shift(age, 3) AS age, region FROM people) TO 'masked.veil.parquet'";
    place.sql(&["-c", copy]);
    assert_eq!(place.decrypted("masked.veil.parquet"), "age,region\n42,north\n,south\n44,south\n43,north\n");
    assert!(
        place.fail(&["-c", copy]).ends_with("masked.veil.parquet exists already; choose another name or say --force")
    );
    place.sql(&["-c", "EXPLAIN COPY people TO 'masked.veil.parquet'"]);
    let error = place.fail(&["-c", "EXPLAIN ANALYZE COPY people TO 'masked.veil.parquet'"]);
    assert!(error.contains("exists already"), "{error}");
    place.sql(&["--force", "-c", &copy.replace("age, 3", "age, 4")]);
    assert!(place.decrypted("masked.veil.parquet").starts_with("age,region\n43,north\n"));
    // One that fails does not cost what was there.
    place.fail(&["--force", "-c", "COPY (SELECT dp_laplace(age, 1.0) AS age FROM people) TO 'masked.veil.parquet'"]);
    assert!(place.decrypted("masked.veil.parquet").starts_with("age,region\n43,north\n"));
    place.sql(&["-c", "COPY people TO 'new/folder/it''s [1].arrow'; COPY (SELECT 1 AS n) TO 'parts' STORED AS CSV"]);
    assert_eq!(place.decrypted("new/folder/it's [1].arrow"), DATA);
    assert!(place.at("parts").is_dir());
}

#[test]
fn cells_are_never_printed() {
    let place = Place::new();
    let query = "SELECT name, age, city FROM people LIMIT 2";
    let shown = |format: &str| place.sql(&["-c", query, "--format", format]);
    assert_eq!(shown("csv"), "name,age,city\n⟨encrypted text⟩,⟨encrypted integer⟩,Paris\n⟨encrypted text⟩,,Rome\n");
    assert_eq!(shown("tsv").lines().nth(1), Some("⟨encrypted text⟩\t⟨encrypted integer⟩\tParis"));
    assert_eq!(shown("automatic"), shown("csv"));
    let rows = [
        r#"{"name":"⟨encrypted text⟩","age":"⟨encrypted integer⟩","city":"Paris"}"#,
        r#"{"name":"⟨encrypted text⟩","age":null,"city":"Rome"}"#,
    ];
    assert_eq!(shown("json"), format!("[{}]\n", rows.join(",")));
    assert_eq!(shown("nd-json"), format!("{}\n", rows.join("\n")));
    let table = shown("table");
    assert!(table.contains("| ⟨encrypted text⟩ | ⟨encrypted integer⟩ | Paris |"), "{table}");
    assert!(table.contains("| ⟨encrypted text⟩ |                     | Rome  |"), "{table}");
}

#[test]
fn results_without_rows_have_a_header() {
    let place = Place::new();
    let shown = |format: &str| place.sql(&["-c", "SELECT age, city FROM people WHERE city = 'x'", "--format", format]);
    assert_eq!(shown("csv"), "age,city\n");
    assert_eq!(shown("json"), "[]\n");
    assert_eq!(shown("nd-json"), "");
    assert!(shown("table").contains("| age | city |"));
}

#[test]
fn long_tables_are_cut_and_say_so() {
    let place = Place::new();
    let numbers = (1..=25_000).map(|number| format!("{number}\n")).collect::<String>();
    fs::write(place.at("numbers.csv"), format!("n\n{numbers}")).unwrap();
    let (table, query) = ("numbers=numbers.csv", "SELECT * FROM numbers");
    let output = place.run(&["sql", "--table", table, "-c", query]);
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 10_004);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("15000 more rows are not shown: add LIMIT") && said.contains("25000 rows ("), "{said}");
    assert_eq!(place.sql(&["--table", table, "-c", query, "--format", "csv"]).lines().count(), 25_001);
}

#[test]
fn statements_run_in_order_to_the_first_error() {
    let place = Place::new();
    fs::write(place.at("more.sql"), "-- more\nSELECT 'three;' AS n;\nSELECT 4 AS n").unwrap();
    let shown =
        place.sql(&["--format", "csv", "-c", "SELECT 1 AS n; SELECT 2 AS n;", "-f", "more.sql", "-c", "SELECT 0 AS n"]);
    assert_eq!(shown, "n\n1\nn\n2\nn\n0\nn\nthree;\nn\n4\n");
    let error = place.fail(&["-c", "CREATE VIEW v AS SELECT 1 AS n; SELECT sum(age) FROM people; COPY v TO 'v.csv'"]);
    assert_eq!(error, "error: `SELECT sum(age) FROM people`: sum does not work on encrypted columns: use enc_sum");
    assert!(!place.at("v.csv").exists());
    let output = place.run(&["sql", "-c", "CREATE VIEW v AS SELECT 1 AS n", "-c", "SELECT * FROM v"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let is_line = |line: &str, start: &str| {
        let seconds = line.strip_prefix(start).and_then(|rest| rest.strip_suffix(" s)"));
        seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok())
    };
    let lines: Vec<&str> = said.lines().collect();
    assert!(matches!(lines[..], [first, last] if is_line(first, "done (") && is_line(last, "1 row (")), "{said}");
}

#[test]
fn errors_name_file_line_and_statement() {
    let place = Place::new();
    let fail = |text: &str| {
        fs::write(place.at("bad.sql"), text).unwrap();
        place.fail(&["-f", "bad.sql"])
    };
    assert_eq!(
        fail("SELECT 1;\n\nSELECT age\nFROM people\nORDER BY age;"),
        "error: bad.sql:3: `SELECT age ..`: people.age is encrypted (integer) and cannot be sorted by: ORDER BY a clear column"
    );
    assert_eq!(fail("SELECT 1;\n  SELECT (2"), "error: bad.sql:2: `SELECT (2`: Expected: ), found: EOF");
    let error = fail("SELECT 1;\nSELECT 2 3;");
    assert!(error.ends_with("found: 3 at Line: 2, Column: 10"), "{error}");
    assert!(fail("\\nonsense").ends_with("bad.sql:1: `\\nonsense`: \\nonsense is no command: \\? lists them"));
    assert_eq!(place.fail(&["-f", "absent.sql"]), "error: absent.sql: No such file or directory (os error 2)");
}

#[test]
fn tables_have_any_name_and_file() {
    let place = Place::new();
    fs::create_dir(place.at("it's [here]")).unwrap();
    fs::copy(place.at("people.veil.parquet"), place.at("it's [here]/100% a=b*.parquet")).unwrap();
    place.encrypt("people.toml", "people.veil.arrow");
    let shown = place.sql(&[
        "--table",
        "odd \"name\"; DROP=it's [here]/100% a=b*.parquet",
        "--table",
        "Visits=people.csv",
        "--table",
        "a=people.veil.arrow",
        "--format",
        "csv",
        "-c",
        "SELECT count(age) AS n FROM \"odd \"\"name\"\"; DROP\"",
        "-c",
        "SELECT sum(age) AS n FROM Visits",
        "-c",
        "SELECT max(city) AS n FROM a",
    ]);
    assert_eq!(shown, "n\n3\nn\n120\nn\nRome\n");
    for (table, sentence) in [
        ("t=absent.parquet", "error: --table t=absent.parquet: No such file or directory (os error 2)"),
        (
            "t=keys",
            "error: --table t=keys: not a file; for a folder of files use CREATE EXTERNAL TABLE .. LOCATION 'folder/'",
        ),
        (
            "t=people.toml",
            "error: --table t=people.toml: the file's name ends neither in .parquet, .arrow, .ipc, .feather nor in .csv",
        ),
    ] {
        assert_eq!(place.fail(&["--table", table, "-c", "SELECT 1"]), sentence);
    }
    fs::write(place.at("broken.parquet"), "PAR1 no").unwrap();
    assert!(
        place.fail(&["--table", "t=broken.parquet", "-c", "SELECT 1"]).starts_with("error: --table t=broken.parquet: ")
    );
    assert_eq!(place.run(&["sql", "--table", "t", "-c", "SELECT 1"]).status.code(), Some(2));
}

#[test]
fn statements_come_from_standard_input() {
    let place = Place::new();
    let input =
        "SELECT count(*) AS n\n  FROM people;\n\\d people\n\\f mask_shift\n\\format csv\nSELECT 2 AS n;\n\\q\nSELECT 3";
    let output = place.piped(&[], input);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("| 4 |"), "{shown}");
    assert!(shown.contains("| age    | encrypted integer | 8 bits "), "{shown}");
    assert!(shown.contains("| city   | Utf8 "), "{shown}");
    assert!(
        shown.contains("mask_shift(column") && shown.contains("Arguments\n") && shown.contains("Example\n"),
        "{shown}"
    );
    assert!(shown.ends_with("\nn\n2\n"), "{shown}");

    let output = place.piped(&[], "SELECT 1;\n\nSELECT upper(age) FROM people;\nSELECT 2;");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: standard input:3: `SELECT upper(age) FROM people`: upper does not work on encrypted columns: use mask_*, dp_* or \
         enc_*, which SELECT * FROM veil_functions() lists\n"
    );
    assert!(!String::from_utf8(output.stdout).unwrap().contains('2'));
}

#[test]
fn commands_describe_tables_and_functions() {
    let place = Place::new();
    let input =
        "CREATE TABLE noisy AS SELECT dp_laplace(score, 0.5) AS score FROM people;\n\\d\n\\d noisy\n\\f\n\\?\n\\f abs";
    let output = place.piped(&[], input);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("| people | 5       | 3         |"), "{shown}");
    assert!(shown.contains("0.5, awaits P2's noise |"), "{shown}");
    for words in ["| mask_shift ", "| enc_sum ", "\\timing", "abs(numeric_expression)"] {
        assert!(shown.contains(words), "{words} in {shown}");
    }
}

/// Also where nothing else is said, and also if the statement fails in the end.
#[test]
fn blinded_comparisons_leave_a_warning() {
    let place = Place::new();
    place.allow_few();
    let shell = [
        "sql",
        "--table",
        "people=people.veil.parquet",
        "--keys",
        "keys/p1.keys",
        "--embedded-p2",
        "keys/p2.keys",
        "--embedded-policy",
        "few.signed",
        "-q",
    ];
    let call = |more: &str| {
        format!(
            "SELECT * FROM k_anonymize((SELECT score FROM people), k => 2, quasi => (score), rounds => 1, centres => 1{more})"
        )
    };
    let warnings = |sql: &str, succeeds: bool| {
        let output = place.run(&[&shell[..], &["-c", sql]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), succeeds, "{said}");
        said.matches("warning: with comparison => 'blinded' the key holder can work out nearly all quasi-identifiers")
            .count()
    };
    assert_eq!(warnings(&call(""), true), 0);
    let blinded = call(", comparison => 'blinded'");
    assert_eq!(warnings(&format!("{blinded}; SELECT 1"), true), 1);
    assert_eq!(warnings(&format!("SELECT 1 / (count(*) - 4) FROM ({blinded})"), false), 1);
}

#[test]
fn embedded_p2_works_and_warns() {
    let place = Place::new();
    let noisy = "COPY (SELECT dp_laplace(age, 1.0) AS age FROM people) TO 'noisy.veil.parquet'";
    // Bounds that are encrypted need rounds, and rounds need keys and P2.
    let error = place.fail(&["-c", noisy]);
    assert!(error.contains("--keys keys/p1.keys"), "{error}");
    let error = place.fail(&["--keys", "keys/p1.keys", "-c", noisy]);
    assert!(error.contains("--p2 URL or --embedded-p2 keys/p2.keys"), "{error}");
    // A COPY that fails leaves nothing, under no name.
    assert_eq!(place.files(), ["keys", "people.csv", "people.toml", "people.veil.parquet"]);
    let embedded = [
        "sql",
        "--table",
        "people=people.veil.parquet",
        "-q",
        "--keys",
        "keys/p1.keys",
        "--embedded-p2",
        "keys/p2.keys",
    ];
    let output = place.run(&[&embedded[..], &["-c", noisy]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("NOTE: --embedded-p2 puts the keys and the encrypted data into one process"), "{said}");
    let decrypt = ["decrypt", "noisy.veil.parquet", "--keys", "keys/owner.keys", "-o", "-", "-q"];
    let warning = String::from_utf8(place.run(&decrypt).stderr).unwrap();
    assert!(warning.starts_with("warning: noise of the engine alone is in age: "), "{warning}");
}

#[test]
fn keys_of_two_sets_are_refused() {
    let place = Place::new();
    place.succeed(&["keygen", "-o", "other", "-q"]);
    let error = place.fail(&["--keys", "keys/p1.keys", "--embedded-p2", "other/p2.keys", "-c", "SELECT 1"]);
    assert!(
        error.starts_with("error: keys/p1.keys is of key set ")
            && error.ends_with("give two files of one `veil keygen`"),
        "{error}"
    );
    let error = place.fail(&["--keys", "keys/p2.keys", "-c", "SELECT 1"]);
    assert!(error.contains("holds the keys of P2"), "{error}");
    for wrong in [
        &["--p2", "http://127.0.0.1:1", "--embedded-p2", "keys/p2.keys"][..],
        &["--tls-ca", "a", "--tls-cert", "b", "--tls-key", "c"],
        &["--p2", "http://127.0.0.1:1", "--tls-ca", "a"],
        &["--format", "xml"],
    ] {
        assert_eq!(place.run(&[&["sql", "-c", "SELECT 1"], wrong].concat()).status.code(), Some(2), "{wrong:?}");
    }
}

/// Ctrl-C ends a statement at once, and with it the run; what it was writing is gone.
#[cfg(unix)]
#[test]
fn ctrl_c_cancels() {
    let place = Place::new();
    let numbers = (0..20_000).map(|number| format!("{number}\n")).collect::<String>();
    fs::write(place.at("n.csv"), format!("n\n{numbers}")).unwrap();
    let endless = "COPY (SELECT a.n + b.n * c.n AS m FROM n a CROSS JOIN n b CROSS JOIN n c) TO 'm.parquet'";
    let mut command = place.command(&["sql", "-q", "--table", "n=n.csv", "-c", "SELECT 'ready'", "-c", endless]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut shown = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(shown.any(|line| line.unwrap().contains("| ready")));
    while place.files().len() < 6 {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.ends_with("`: interrupted\n")), (Some(1), true), "{said}");
    assert_eq!(place.files(), ["keys", "n.csv", "people.csv", "people.toml", "people.veil.parquet"]);
}

/// P2 as a process of its own.
struct P2(Child, String);

impl P2 {
    fn start(place: &Place, keys: &str, more: &[&str]) -> Self {
        let mut command = place.command(&[&["p2", "--keys", keys, "--listen", "127.0.0.1:0", "-q"][..], more].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_once(" listens on ").unwrap_or_else(|| panic!("{line}")).1.trim_end().to_owned();
        Self(child, url)
    }
}

impl Drop for P2 {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn both_parties_run_apart() {
    let place = Place::new();
    place.allow_few();
    let p2 = P2::start(&place, "keys/p2.keys", &["--policy", "few.signed", "--state", "p2-state"]);
    let noisy = "COPY (SELECT dp_laplace(age, 1.0) AS age, region FROM people) TO 'noisy.veil.parquet'";
    let keys = ["--keys", "keys/p1.keys", "--p2", &p2.1, "-c", noisy];
    place.sql(&keys);
    let decrypted = place.decrypted("noisy.veil.parquet");
    let regions: Vec<&str> = decrypted.lines().skip(1).map(|line| line.split_once(',').unwrap().1).collect();
    assert_eq!(regions, ["north", "south", "south", "north"], "{decrypted}");
    assert!(decrypted.lines().nth(1).unwrap().split_once(',').unwrap().0.parse::<f64>().is_ok(), "{decrypted}");

    // Many rounds.
    for method in ["shuffle => true", "shuffle => false", "method => 'pairwise'"] {
        let search = format!("SELECT * FROM identifiers(people, k => 2, columns => (age, region), {method})");
        let printed = place.sql(&["--keys", "keys/p1.keys", "--p2", &p2.1, "--format", "csv", "-c", &search]);
        assert_eq!(printed, "columns,size,kind,rows_at_risk\n[age],1,direct,\n", "{method}");
    }

    // SQL can name P2 as well; one that has other keys is refused.
    place.succeed(&["keygen", "-o", "other", "-q"]);
    let other = P2::start(&place, "other/p2.keys", &[]);
    let set = format!("SET veil.p2 = '{}'; SELECT dp_laplace(age, 1.0) FROM people", other.1);
    let error = place.fail(&["--keys", "keys/p1.keys", "-c", &set]);
    assert!(error.contains("key"), "{error}");
}
