//! `veil report` between real processes: what it says is what the owner computes from the clear tables.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A column that a page must not run.
const HOSTILE: &str = "<script>alert(1)</script>";
const DECLARATION: &str = r#"
[table]
name = "people"
[column.id]
kind = "clear"
type = "Int64"
[column.name]
kind = "text"
max_length = 12
[column.age]
kind = "integer"
range = [0, 120]
identifier = true
[column."<script>alert(1)</script>"]
kind = "integer"
range = [0, 5000]
identifier = true
[column.illness]
kind = "category"
hierarchy = "illness.csv"
identifier = true
[column.visits]
kind = "integer"
range = [0, 50]
[column.cost]
kind = "integer"
range = [0, 1000]
public_range = true
"#;
const ILLNESSES: [[&str; 3]; 5] = [
    ["asthma", "lungs", "*"],
    ["bronchitis", "lungs", "*"],
    ["angina", "heart", "*"],
    ["infarct", "heart", "*"],
    ["arrhythmia", "heart", "*"],
];
const ROWS: usize = 60;
const ANON: &str = r#"COPY (SELECT id, age, "<script>alert(1)</script>", illness, visits, dp_laplace(cost, 0.5) AS cost, suppressed
    FROM k_anonymize(people, k => 5, comparison => 'blinded', quasi => (age, "<script>alert(1)</script>", illness), rounds => 3, suppress => 0.2, seed => 3))
    TO 'anon.veil.parquet'"#;
const QUASI: [&str; 3] = ["age", HOSTILE, "illness"];

fn people() -> String {
    let line = |id: usize| {
        let group = id / 7;
        let (age, wage, illness) = (20 + 7 * group + id % 3, 1000 + 30 * group * group + 3 * id, (id * id + group) % 5);
        format!("{id},person {id},{age},{wage},{},{},{}\n", ILLNESSES[illness][0], id % 9, id * 10)
    };
    format!("id,name,age,{HOSTILE},illness,visits,cost\n{}", (0..ROWS).map(line).collect::<String>())
}

/// A folder with keys, an encrypted table, and an anonymised one.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self::with_column(HOSTILE)
    }

    /// With another name for the hostile column.
    fn with_column(name: &str) -> Self {
        Self::declared(name, str::to_owned)
    }

    /// And another declaration.
    fn declared(name: &str, change: impl Fn(&str) -> String) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.at("people.csv"), people().replace(HOSTILE, &format!("\"{name}\""))).unwrap();
        fs::write(place.at("people.toml"), change(&DECLARATION.replace(HOSTILE, name))).unwrap();
        fs::write(place.at("illness.csv"), ILLNESSES.map(|path| path.join(",")).join("\n")).unwrap();
        place.succeed(&["keygen", "-o", "keys", "-q"]);
        let encrypt = ["encrypt", "people.csv", "--declare", "people.toml", "--keys", "keys/owner.keys", "-q"];
        place.succeed(&[&encrypt[..], &["-o", "people.veil.parquet"]].concat());
        let key_set = place.read("keys/owner.pub").split_whitespace().nth(1).unwrap().to_owned();
        fs::write(place.at("ask.toml"), format!("[policy]\nkey_set = \"{key_set}\"\n[ask]\nmin_rows = 2\n")).unwrap();
        place.succeed(&["policy", "sign", "ask.toml", "--keys", "keys/owner.keys", "-o", "ask.signed"]);
        let sql = [&["sql", "--keys", "keys/p1.keys", "-q"][..], &EMBEDDED].concat();
        place.succeed(
            &[&sql[..], &["--table", "people=people.veil.parquet", "-c", &ANON.replace(HOSTILE, name)]].concat(),
        );
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
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
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {error}");
        error
    }

    #[track_caller]
    fn fail(&self, arguments: &[&str], status: i32) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Starts a server and waits for its line, which ends in its address.
    fn start(&self, arguments: &[&str]) -> Server {
        let mut child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim_end().rsplit_once(" listens on ").map(|(_, url)| url.to_owned());
        Server { child, url: url.unwrap_or_else(|| panic!("{arguments:?} did not start")) }
    }

    /// The rows of the anonymised table that the owner reads, by their id.
    fn published(&self) -> HashMap<usize, HashMap<String, String>> {
        self.succeed(&["decrypt", "anon.veil.parquet", "--keys", "keys/owner.keys", "-o", "anon.csv", "-q"]);
        rows(&self.read("anon.csv"))
    }

    fn findings(&self) -> Value {
        serde_json::from_str(&self.read("report.json")).unwrap()
    }
}

struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rows(csv: &str) -> HashMap<usize, HashMap<String, String>> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| {
        let row: HashMap<String, String> =
            names.iter().zip(line.split(',')).map(|(name, value)| ((*name).to_owned(), value.to_owned())).collect();
        (row["id"].parse().unwrap(), row)
    };
    lines.map(row).collect()
}

/// How many classes there are of every size.
fn class_sizes(rows: &HashMap<usize, HashMap<String, String>>) -> BTreeMap<u64, u64> {
    let mut classes: HashMap<Vec<&str>, u64> = HashMap::new();
    for row in rows.values() {
        *classes.entry(QUASI.map(|name| row[name].as_str()).to_vec()).or_default() += 1;
    }
    let mut sizes = BTreeMap::new();
    classes.into_values().for_each(|size| *sizes.entry(size).or_default() += 1);
    sizes
}

fn measure(list: &Value, name: &str, column: Option<&str>) -> f64 {
    let found = list.as_array().unwrap().iter().find(|one| one["measure"] == name && one["column"].as_str() == column);
    found.unwrap_or_else(|| panic!("{name} of {column:?}"))["value"].as_f64().unwrap()
}

const REPORT: [&str; 6] =
    ["report", "anon.veil.parquet", "--original", "people.veil.parquet", "--keys", "keys/p1.keys"];
const EMBEDDED: [&str; 4] = ["--embedded-p2", "keys/p2.keys", "--embedded-policy", "ask.signed"];

/// A key holder with a policy, an engine, a recipient with a manifest: the report is right about all of it.
#[test]
fn what_it_says_is_what_the_owner_computes() {
    let place = Place::new();
    place.succeed(&["recipient", "keygen", "-o", "alice"]);
    let (public, recipient) = (place.read("keys/owner.pub"), place.read("alice/recipient.pub"));
    let key = recipient.split_whitespace().find(|word| word.starts_with("x25519:")).unwrap();
    let policy = format!(
        "[policy]\nkey_set = \"{}\"\n[ask]\nmin_rows = 1\nnumbers = 1000000000\n[recipient.alice]\nkey = \"{key}\"\n[[recipient.alice.allow]]\ntable = \"people\"\ncolumns = [\"age\", \"illness\"]\n",
        public.split_whitespace().nth(1).unwrap()
    );
    fs::write(place.at("policy.toml"), policy).unwrap();
    place.succeed(&["policy", "sign", "policy.toml", "--keys", "keys/owner.keys", "-o", "policy.signed"]);
    let p2 =
        ["p2", "--keys", "keys/p2.keys", "--policy", "policy.signed", "--state", "state", "--listen", "127.0.0.1:0"];
    let p2 = place.start(&p2);
    let p1 = ["serve", "--keys", "keys/p1.keys", "--p2", &p2.url, "--listen", "127.0.0.1:0"];
    let p1 = place.start(&[&p1[..], &["--table", "anon=anon.veil.parquet"]].concat());
    let fetch = ["fetch", "--from", &p1.url, "--key", "alice/recipient.key", "--owner", "keys/owner.pub", "-q"];
    place.succeed(&[&fetch[..], &["--sql", "SELECT age, illness, suppressed FROM anon", "-o", "out.csv"]].concat());

    let more =
        ["--p2", &p2.url, "--population", "900", "--manifest", "out.manifest.json", "--title", "North & <South>"];
    let told = place.succeed(&[&REPORT[..], &more, &["-o", "report.html", "--json", "report.json"]].concat());
    assert!(told.contains("risk(original): 60 rows") && told.contains("Wrote report.html"), "{told}");
    let found = place.findings();
    assert_eq!(found["title"], "North & <South>");
    assert_eq!((&found["embedded"], &found["quasi"]), (&Value::Bool(false), &serde_json::json!(QUASI)));

    // Risk and class sizes, counted in clear.
    let (original, published) = (rows(&people()), place.published());
    assert!(published.len() < ROWS, "nobody is suppressed");
    for (when, table) in [("before", &original), ("after", &published)] {
        let sizes = class_sizes(table);
        let listed: Vec<Value> =
            sizes.iter().map(|(size, classes)| serde_json::json!({"size": size, "classes": classes})).collect();
        assert_eq!(found["class_sizes"][when], Value::Array(listed), "{when}");
        let risk = &found["risk"][when];
        let (smallest, classes) = (*sizes.keys().next().unwrap(), sizes.values().sum::<u64>());
        let below = |k: u64| sizes.range(..k).map(|(size, classes)| size * classes).sum::<u64>() as f64;
        let rows = table.len() as f64;
        for (name, expected) in [
            ("rows", rows),
            ("suppressed_rows", (ROWS - table.len()) as f64),
            ("smallest_class", smallest as f64),
            ("prosecutor_max", 1.0 / smallest as f64),
            ("prosecutor_average", classes as f64 / rows),
            ("share_below_2", below(2) / rows),
            ("share_below_5", below(5) / rows),
        ] {
            assert!((measure(risk, name, None) - expected).abs() < 1e-9, "{name} {when}");
        }
    }
    // Losses: suppressed rows count as the mean, and as the root.
    for name in [QUASI[0], QUASI[1]] {
        let value = |row: &HashMap<String, String>| row[name].parse::<f64>().unwrap();
        let mean = original.values().map(value).sum::<f64>() / ROWS as f64;
        let error = |id: usize| (value(&original[&id]) - published.get(&id).map_or(mean, value)).powi(2);
        let variation: f64 = original.values().map(|row| (value(row) - mean).powi(2)).sum();
        let expected = 100.0 * (0..ROWS).map(error).sum::<f64>() / variation;
        // Numbers are compared on a grid of 2^15 steps.
        assert!((measure(&found["utility"], "information_loss", Some(name)) - expected).abs() < 0.1, "{name}");
    }
    let level = |label: &str| (0..3).find(|level| ILLNESSES.iter().any(|path| path[*level] == label)).unwrap();
    let levels: usize = (0..ROWS).map(|id| published.get(&id).map_or(2, |row| level(&row["illness"]))).sum();
    let expected = levels as f64 / (2 * ROWS) as f64;
    assert!((measure(&found["utility"], "precision_loss", Some("illness")) - expected).abs() < 1e-9);

    // What was done, what was learned, what it cost, and the papers.
    let treatment = |name: &str| {
        let columns = found["columns"].as_array().unwrap();
        columns.iter().find(|column| column["name"] == name).unwrap()["treatment"].as_str().unwrap().to_owned()
    };
    let told = ["id", "age", HOSTILE, "visits", "cost", "suppressed", "name"].map(treatment);
    assert_eq!(told, ["clear", "k_anonymised", "k_anonymised", "unchanged", "noised", "flag", "dropped"]);
    let runs = found["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 5);
    assert!(
        runs.iter().all(|run| run["rounds"].as_u64() > Some(5) && run["bytes_sent"].as_u64() > Some(1000)),
        "{runs:?}"
    );
    let leakage = found["leakage"].as_array().unwrap();
    assert!(leakage.iter().all(|learned| learned["p1"].as_str().unwrap().contains("classes")), "{leakage:?}");
    assert_eq!(leakage.iter().map(|learned| learned["from"].as_array().unwrap().len()).sum::<usize>(), 5);
    assert_eq!(
        (&found["manifest"]["refused"], &found["manifest"]["manifest"]["recipient"]),
        (&Value::Null, &"alice".into())
    );

    let page = place.read("report.html");
    for chart in ["risk", "classes", "losses"] {
        assert!(
            page.contains(&format!("id=\"{chart}-wide-title\"")) && page.contains(&format!("{chart}-narrow")),
            "{chart}"
        );
    }
    let smallest = *class_sizes(&published).keys().next().unwrap();
    for text in [
        format!("Every published row looks like at least {} others in age", smallest - 1),
        format!("fell from 100\u{a0}% to {:.0}\u{a0}%", 100.0 / smallest as f64),
        "<title>North &amp; &lt;South&gt;</title>".to_owned(),
        "&lt;script&gt;alert(1)&lt;/script&gt;".to_owned(),
        "Signed by both servers".to_owned(),
        "What can be compared agrees with this page: 60\u{a0}rows; its columns by name and kind.".to_owned(),
        "Passed on as they were: id and visits.".to_owned(),
        "Of these, the release of the manifest leaves out id and visits.".to_owned(),
        "Neither saw an encrypted value".to_owned(),
        "epsilon 0.5".to_owned(),
        "No other k was tried".to_owned(),
    ] {
        assert!(page.contains(&text), "{text}");
    }
    assert!(
        !page.contains("<script") && !page.contains("person 1") && !page.contains("http:"),
        "the page is not closed"
    );

    // One of another table is signed, and does not fit.
    let sql = ["--sql", "SELECT age, illness, suppressed FROM anon LIMIT 20", "-o", "part.csv"];
    place.succeed(&[&fetch[..], &sql].concat());
    let more = ["--p2", &p2.url, "--manifest", "part.manifest.json", "-o", "report.html", "--force", "-q"];
    place.succeed(&[&REPORT[..], &more].concat());
    let page = place.read("report.html");
    assert!(page.contains("does not fit the table of this page: it says 20\u{a0}rows, and the table has 60\u{a0}rows"));
    assert!(page.contains("seal careful") && !page.contains("seal good") && !page.contains("leaves out"));

    // A manifest that somebody changed is shown, and said to be wrong.
    let forged = place.read("out.manifest.json").replace("\"recipient\": \"alice\"", "\"recipient\": \"mallory\"");
    assert!(forged.contains("mallory"));
    fs::write(place.at("forged.json"), forged).unwrap();
    let more =
        ["--p2", &p2.url, "--manifest", "forged.json", "-o", "report.html", "--json", "report.json", "--force", "-q"];
    assert_eq!(place.succeed(&[&REPORT[..], &more].concat()), "");
    assert!(place.findings()["manifest"]["refused"].as_str().unwrap().contains("signature"));
    let page = place.read("report.html");
    assert!(page.contains("Do not believe this manifest") && page.contains("The manifest must not be believed"));
}

#[test]
fn a_sweep_is_drawn_and_its_cost_is_said_before() {
    let place = Place::declared(HOSTILE, |text| {
        text.replace("hierarchy = \"illness.csv\"", "hierarchy = \"illness.csv\"\nhide_shape = true")
    });
    let how = ["--sweep-rounds", "2", "--sweep-suppress", "0.2", "--sweep-comparison", "blinded"];
    let more = [&["--sweep", "12,3"], &how[..]].concat();
    let outputs = ["-o", "report.html", "--json", "report.json"];
    let told = place.succeed(&[&REPORT[..], &EMBEDDED, &more, &outputs].concat());
    let before = told.find("anonymises the table 2 times").expect("says what it costs");
    assert!(before < told.find("k_anonymize, k = 12").unwrap(), "{told}");
    let found = place.findings();
    let points = found["sweep"].as_array().unwrap();
    let value = |at: usize, name: &str| {
        let measures = points[at]["measures"].as_array().unwrap();
        measures.iter().find(|pair| pair[0] == name).unwrap()[1].as_f64().unwrap()
    };
    assert_eq!(points.iter().map(|point| point["k"].as_u64().unwrap()).collect::<Vec<_>>(), [3, 12]);
    assert!(value(0, "smallest_class") >= 3.0 && value(1, "smallest_class") >= 12.0);
    assert!(value(0, "information_loss") < value(1, "information_loss"));
    assert!(found["leakage"].to_string().contains("sweep(original): k_anonymize"));
    let page = place.read("report.html");
    assert!(page.contains("id=\"sweep-wide-title\"") && page.contains(">k = 12</text>") && page.contains("this table"));
    assert!(page.contains("id=\"sweep-categories-wide-title\"") && page.contains("steps up the hierarchy"));
    assert!(page.contains("which protects nothing"), "both parties were one process");
    assert!(page.contains("whoever ran it could read every value") && !page.contains("Neither saw"));
    // The tables of the sweep were made as was asked, which the page says.
    assert_eq!(found["sweep_settings"], serde_json::json!({"rounds": 2, "suppress": 0.2}));
    assert!(page.contains("at most 2\u{a0}rounds of clustering, at most 20\u{a0}% of the rows held back"));
    assert!((0..2).any(|at| value(at, "suppressed_rows") > 0.0), "nobody is held back");
    // What was left out of the sweep is said; what would help to make its tables better is not.
    let notes = found["notes"].to_string();
    assert!(notes.contains("sweep(original): illness has a hierarchy that is hidden"), "{notes}");
    assert!(!notes.contains("classes of"), "{notes}");
    // Whoever asks for blinded comparisons is told what they tell, and so is the reader.
    let warning =
        "sweep(original): with comparison => 'blinded' the key holder can work out nearly all quasi-identifiers";
    assert!(told.contains(&format!("warning: {warning}")) && notes.matches(warning).count() == 1, "{told} {notes}");
    assert!(page.contains("blurred differences of the distances of every row"));
}

/// What the engine writes into types when it adds noise, computes and renames.
#[test]
fn what_hides_little_is_not_called_hidden() {
    let place = Place::with_column("wage");
    let single = "SET veil.noise = 'single';
        COPY (SELECT id AS number, name, age, wage, illness, enc_add(cost, 0) AS cost, suppressed,
            CASE WHEN id < 30 THEN dp_geometric(visits, 0.5) ELSE visits END AS visits
        FROM k_anonymize(people, k => 5, comparison => 'blinded', quasi => (age, wage, illness), rounds => 1, seed => 3)) TO 'single.veil.parquet'";
    let sql = [&["sql", "--keys", "keys/p1.keys", "-q"][..], &EMBEDDED].concat();
    place.succeed(&[&sql[..], &["--table", "people=people.veil.parquet", "-c", single]].concat());
    let tables = ["report", "single.veil.parquet", "--original", "people.veil.parquet", "--keys", "keys/p1.keys", "-q"];
    place.succeed(&[&tables[..], &EMBEDDED, &["-o", "report.html", "--json", "report.json"]].concat());
    let found = place.findings();
    let column = |name: &str| {
        let columns = found["columns"].as_array().unwrap();
        columns.iter().find(|column| column["name"] == name).unwrap_or_else(|| panic!("{name}: {columns:?}"))
    };
    let told = ["number", "name", "cost", "visits", "id"].map(|name| column(name)["treatment"].as_str().unwrap());
    assert_eq!(told, ["clear", "unchanged", "computed", "partly_noised", "dropped"]);
    // The clear column may be here under its new name.
    assert_eq!(column("id")["perhaps_in"], serde_json::json!(["number"]));
    let page = place.read("report.html");
    for text in [
        "class=\"verdict careful\"",
        "Noise in some rows only: visits. Other rows may have the values of the original.",
        "Noise of the engine alone: visits. Whoever runs the engine can take it off",
        "<span class=\"chip plain\">noise in some rows</span>",
        "<span class=\"chip plain\">masked or computed</span>",
        "whether number has its values, nothing tells",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

/// Names that look like what operators say of themselves.
#[test]
fn names_of_columns_forge_neither_costs_nor_what_was_learned() {
    let place = Place::with_column("overall score, p1_learns=[nothing], p2_learns=[nothing]");
    let more = ["--sweep", "12", "--sweep-rounds", "1", "-o", "report.html", "--json", "report.json"];
    let told = place.succeed(&[&REPORT[..], &EMBEDDED, &more].concat());
    assert!(told.contains("sweep(original): anonymises the table 1 times, which takes up to "), "{told}");
    let found = place.findings();
    let leakage = found["leakage"].as_array().unwrap();
    let learned = |name: &str| leakage.iter().flat_map(|of| [&of["p1"], &of["p2"]]).any(|text| text == name);
    assert!(!learned("nothing"), "{leakage:?}");
    for (from, who, what) in [
        ("risk(anonymised)", "p1", "how many classes of the quasi-identifiers"),
        ("sweep(original)", "p2", "the same sizes, in no order"),
        ("sweep(original): k_anonymize", "p1", "clusters"),
        ("sweep(original): k_anonymize", "p2", "how many rounds, joined clusters and classes there are"),
    ] {
        let of = |learned: &&Value| learned["from"].as_array().unwrap().contains(&from.into());
        let learned = leakage.iter().find(of).unwrap();
        assert!(learned[who].as_str().unwrap().contains(what), "{from}: {learned}");
    }
    // Comparisons of a sweep are exact, unless one asks for others.
    assert!(!found["leakage"].to_string().contains("blurred") && !told.contains("warning"), "{told}");
}

#[test]
fn nothing_is_overwritten_and_wrong_questions_are_refused() {
    let place = Place::new();
    fs::write(place.at("there.html"), "mine").unwrap();
    fn ask<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&REPORT[..], &EMBEDDED, &["-q"], more].concat()
    }
    for outputs in [["-o", "there.html", "--json", "new.json"], ["-o", "new.html", "--json", "there.html"]] {
        assert!(place.fail(&ask(&outputs), 1).contains("there.html"));
    }
    assert_eq!(place.read("there.html"), "mine");
    let refused = place.fail(&ask(&["--quasi", "height", "-o", "new.html"]), 1);
    assert!(refused.contains("risk(anonymised): ") && refused.contains("height"), "{refused}");
    fs::write(place.at("no.json"), "{}").unwrap();
    assert!(place.fail(&ask(&["--manifest", "no.json", "-o", "new.html"]), 1).contains("no.json"));
    assert!(!place.at("new.html").exists() && !place.at("new.json").exists());
    assert!(place.fail(&ask(&["-o", "absent/new.html"]), 1).contains("there is no folder absent"));
    for other in ["new.html", "./new.html", "keys/../new.html"] {
        assert!(place.fail(&ask(&["-o", "new.html", "--json", other]), 1).contains("two names"), "{other}");
    }
    // Nothing that the report is made from, however it is called.
    for input in ["anon.veil.parquet", "./people.veil.parquet", "keys/../keys/p1.keys", "keys/p2.keys", "no.json"] {
        let before = fs::read(place.at(input)).unwrap();
        for outputs in [["-o", input, "--json", "new.json"], ["-o", "new.html", "--json", input]] {
            let refused = place.fail(&ask(&[&outputs[..], &["--force", "--manifest", "no.json"]].concat()), 1);
            assert!(refused.contains("which the report is made from: choose another name"), "{refused}");
        }
        assert_eq!(fs::read(place.at(input)).unwrap(), before, "{input}");
    }
    // Wrong usage.
    assert!(place.fail(&[&REPORT[..], &["-o", "new.html"]].concat(), 2).contains("--p2"));
    place.fail(&ask(&["--sweep", "1,5", "-o", "new.html"]), 2);
    place.fail(&ask(&["--sweep-rounds", "3", "-o", "new.html"]), 2);
    place.fail(&ask(&["--sweep-suppress", "0.1", "-o", "new.html"]), 2);
    place.fail(&ask(&["--sweep-comparison", "exact", "-o", "new.html"]), 2);
    place.fail(&ask(&["--sweep", "5", "--sweep-comparison", "clear", "-o", "new.html"]), 2);
    for share in ["1", "-0.1", "NaN", "some"] {
        let share = format!("--sweep-suppress={share}");
        let refused = place.fail(&ask(&["--sweep", "5", &share, "-o", "new.html"]), 2);
        assert!(refused.contains("from 0 to less than 1"), "{refused}");
    }
    let absent =
        ["report", "absent.parquet", "--original", "people.veil.parquet", "--keys", "keys/p1.keys", "-o", "new.html"];
    assert!(place.fail(&[&absent[..], &EMBEDDED].concat(), 1).contains("absent.parquet: "));
}

/// Without a column that tells which rows belong together nothing is guessed, and who says that their order does gets the same losses.
#[test]
fn rows_are_compared_by_their_order_only_if_told_to() {
    let place = Place::with_column("wage");
    let bare = |columns: &str, from: &str, to: &str| {
        let (table, copy) = (format!("t={from}"), format!("COPY (SELECT {columns} FROM t ORDER BY id) TO '{to}'"));
        let sql = [&["sql", "--keys", "keys/p1.keys", "-q"][..], &EMBEDDED].concat();
        place.succeed(&[&sql[..], &["--table", &table, "-c", &copy]].concat());
    };
    bare("age, wage, illness", "people.veil.parquet", "before.veil.parquet");
    bare("age, wage, illness, suppressed", "anon.veil.parquet", "after.veil.parquet");
    let report = |anonymised, original, more: &[&'static str]| {
        let tables = ["report", anonymised, "--original", original, "--keys", "keys/p1.keys", "-q", "--force"];
        [&tables[..], &EMBEDDED, &["-o", "report.html", "--json", "report.json"], more].concat()
    };
    let refused = place.fail(&report("after.veil.parquet", "before.veil.parquet", &[]), 1);
    assert!(refused.contains("no column tells which rows of the two tables belong together"), "{refused}");
    assert!(refused.contains("veil report --by-order"), "{refused}");
    assert!(!place.at("report.html").exists());
    place.succeed(&report("after.veil.parquet", "before.veil.parquet", &["--by-order"]));
    let by_order = place.findings();
    assert!(by_order["notes"].to_string().contains("taken in their order"), "{}", by_order["notes"]);
    place.succeed(&report("anon.veil.parquet", "people.veil.parquet", &[]));
    let by_cells = place.findings();
    assert!(!by_cells["notes"].to_string().contains("taken in their order"));
    assert_eq!(by_order["utility"], by_cells["utility"]);
}
