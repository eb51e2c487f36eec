//! `veil demo` as a stranger runs it: what it claims is counted again in the files that it leaves, and nothing clear stands with the servers.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const QUASI: [&str; 4] = ["born", "sex", "zip", "diagnosis"];

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
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
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && error.is_empty(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.trim_end().lines().count() == 1, "{error}");
        error
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
    }

    fn rows(&self, name: &str) -> Vec<HashMap<String, String>> {
        let text = self.text(name);
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap().split(',').collect();
        lines
            .map(|line| names.iter().map(|name| (*name).to_owned()).zip(line.split(',').map(str::to_owned)).collect())
            .collect()
    }

    /// Processes that still work in the folder or below.
    fn left_behind(&self) -> Vec<PathBuf> {
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let folder = fs::canonicalize(self.0.path()).unwrap();
        let works = |process: PathBuf| fs::read_link(process.join("cwd")).ok().filter(|cwd| cwd.starts_with(&folder));
        processes.filter_map(|entry| works(entry.ok()?.path())).collect()
    }

    fn files(&self, folder: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(self.at(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// How many rows share each combination of values.
fn classes(rows: &[HashMap<String, String>], columns: &[&str]) -> HashMap<Vec<String>, usize> {
    let mut classes = HashMap::new();
    for row in rows {
        *classes.entry(columns.iter().map(|column| row[*column].clone()).collect()).or_default() += 1;
    }
    classes
}

/// All bytes of all files of a folder.
fn content(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => bytes.extend(content(&entry.path())),
            false => bytes.extend(fs::read(entry.path()).unwrap()),
        }
    }
    bytes
}

#[track_caller]
fn assert_absent(bytes: &[u8], words: impl IntoIterator<Item = String>) {
    let text = String::from_utf8_lossy(bytes);
    for word in words {
        assert!(!text.contains(&word), "{word}");
    }
}

/// The cells of a line of a table that begins with a text.
fn line<'a>(story: &'a str, start: &str) -> Vec<&'a str> {
    let line = story.lines().find(|line| line.trim_start().starts_with(&format!("| {start}")));
    line.unwrap_or_else(|| panic!("no {start}")).split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn the_story_is_true() {
    let place = Place::new();
    let story = place.succeed(&["demo", "--rows", "200", "--k", "5", "-q"]);
    assert_eq!(place.left_behind(), Vec::<PathBuf>::new());
    for chapter in 1..=9 {
        assert!(story.contains(&format!("\n{chapter}. ")), "{chapter}: {story}");
    }
    assert!(!story.contains('\x1b') && story.lines().all(|line| line.chars().count() <= 100), "{story}");

    assert!(story.contains("The report: ") && place.text("veil-demo/report.html").contains("<svg"), "{story}");

    // What alice got, counted here.
    let (patients, alice) = (place.rows("veil-demo/patients.csv"), place.rows("veil-demo/alice/patients.csv"));
    let (before, after) = (classes(&patients, &QUASI), classes(&alice, &QUASI));
    let smallest = *after.values().min().unwrap();
    assert!(smallest >= 5 && after.len() > 5, "{after:?}");
    let suppressed = patients.len() - alice.len();
    assert!(suppressed <= 4, "{suppressed}");
    assert!(story.contains(&format!("{} rows, in classes of at least 5", alice.len())), "{story}");
    let counted = format!(
        "{} rows in {} classes, the smallest of {smallest}; {suppressed} rows are suppressed",
        alice.len(),
        after.len()
    );
    assert!(story.replace('\n', " ").contains(&counted), "{counted}: {story}");

    // Risk, before and after.
    let shown = |start: &str| line(&story, start)[1..].iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    assert_eq!(shown("rows that are published"), ["200".to_owned(), alice.len().to_string()]);
    assert_eq!(shown("groups of rows"), [before.len().to_string(), after.len().to_string()]);
    assert_eq!(shown("rows of the smallest"), ["1".to_owned(), smallest.to_string()]);
    let chance = |classes: usize, rows: usize| format!("{:.1} %", 100.0 * classes as f64 / rows as f64);
    assert_eq!(shown("chance to find a person"), [chance(before.len(), 200), chance(after.len(), alice.len())]);
    assert_eq!(shown("chance to find the easiest"), [chance(1, 1), chance(1, smallest)]);

    // What was refused, by P2 and for the reason that the policy has.
    let refused = place.text("veil-demo/p2/p2.log");
    for reason in ["no rule allows recipient alice to receive column name", "with fewer than 4 others"] {
        assert!(story.replace("\n      ", " ").contains(reason) && refused.contains(reason), "{reason}: {story}");
    }
    assert_eq!(
        place.files("veil-demo/alice"),
        ["patients.csv", "patients.manifest.json", "recipient.key", "recipient.pub", "token"].map(str::to_owned).into()
    );

    // The papers.
    let manifest: serde_json::Value =
        serde_json::from_str(&place.text("veil-demo/alice/patients.manifest.json")).unwrap();
    let manifest = &manifest["manifest"];
    assert_eq!(manifest["spent"], serde_json::json!({ "smoker": 1_000_000 }));
    assert_eq!((&manifest["rows"], &manifest["suppressed"]), (&serde_json::json!(200), &serde_json::json!(suppressed)));
    assert_eq!(manifest["classes"]["smallest"], serde_json::json!(smallest));
    assert!(alice.iter().all(|row| row.len() == 5 && !row.contains_key("name")));

    // What the owner decrypts.
    assert_eq!(place.text("veil-demo/back.csv"), place.text("veil-demo/patients.csv"));
    assert_eq!(classes(&place.rows("veil-demo/anon.csv"), &QUASI), after);
    let names: BTreeSet<String> = place.text("veil-demo/names.txt").lines().map(str::to_owned).collect();
    let masked = place.rows("veil-demo/masked.csv");
    assert!(masked.len() == 200 && masked.iter().all(|row| names.contains(&row["name"])));
    let kept = masked.iter().filter(|row| patients.iter().any(|patient| patient["born"] == row["born"])).count();
    assert!(kept < 20, "{kept} birthdays of 200 were not moved");

    // Each server has what it may have, and nothing that anybody can read.
    let own = [
        "anon.veil.parquet",
        "masked.veil.parquet",
        "p1.keys",
        "p1.log",
        "patients.veil.parquet",
        "study.veil.parquet",
        "tokens",
    ];
    assert_eq!(place.files("veil-demo/p1"), own.map(str::to_owned).into());
    assert_eq!(place.files("veil-demo/p2"), ["p2.keys", "p2.log", "policy.signed", "state"].map(str::to_owned).into());
    let texts = patients.iter().flat_map(|row| [row["name"].clone(), row["diagnosis"].clone()]);
    let texts: BTreeSet<String> = texts.filter(|text| text.len() >= 8).collect();
    for party in ["veil-demo/p1", "veil-demo/p2"] {
        assert_absent(&content(&place.at(party)), texts.clone());
    }
    for log in ["veil-demo/p1/p1.log", "veil-demo/p2/p2.log"] {
        let log = fs::read(place.at(log)).unwrap();
        assert!(log.len() > 1000);
        assert_absent(&log, patients.iter().flat_map(|row| [row["born"].clone(), row["cost"].clone()]));
    }
    assert!(place.text("veil-demo/p1/p1.log").contains("k_anonymize(study, k => 5"));
    // P2's own log of what it was asked: nothing was compared behind a blur.
    let asked = place.text("veil-demo/p2/p2.log");
    assert!(asked.contains("seal_parcel") && !asked.contains("compare_and_select") && !asked.contains("few_select"));
    let searched = format!("{} names, texts and labels", texts.len());
    assert!(story.contains(&searched), "{searched}: {story}");
    assert!(
        ["between P1 and P2", "between callers and P1", "P1's folder", "P2's folder"]
            .iter()
            .all(|place| line(&story, place)[2] == "none")
    );

    // What is there stays there.
    assert!(place.fail(&["demo"]).contains("veil-demo exists already"));
    assert_eq!(place.text("veil-demo/back.csv"), place.text("veil-demo/patients.csv"));
}

/// A table of the user's own: numbers, labels, texts, a missing value, and a name that SQL has to quote.
#[test]
fn a_file_of_ones_own() {
    let place = Place::new();
    let mut csv = ",Full name,age,job,income,member\n".to_owned();
    for row in 0..80 {
        let job = ["farmer", "astronomer", "locksmith", "teacher"][row / 3 % 4];
        let income = if row == 7 { String::new() } else { format!("{}", 1000 + row * row % 97 * 31) };
        csv += &format!("{row},CANARYNAME {row},{},{job},{income},{}\n", 20 + row / 8, ["yes", "no"][row % 2]);
    }
    fs::write(place.at("people.csv"), &csv).unwrap();
    let story = place.succeed(&["demo", "--data", "people.csv", "--rows", "60", "--k", "3", "-o", "out", "-q"]);
    assert!(story.contains("The first 60 rows of it") && story.contains("people.csv has more"), "{story}");
    let told = story.replace('\n', " ");
    assert!(
        told.contains("column_1, Full name, income will not be released") && told.contains("member gets noise"),
        "{story}"
    );
    assert_eq!(place.left_behind(), Vec::<PathBuf>::new());
    let policy = place.text("out/policy.toml");
    let k_columns = policy.lines().find_map(|line| line.strip_prefix("k_columns = ")).unwrap();
    let quasi: Vec<String> = serde_json::from_str(k_columns).unwrap();
    // Nobody's income is missing among the quasi-identifiers, and nobody's name.
    assert!(quasi.contains(&"age".to_owned()) && quasi.contains(&"job".to_owned()), "{quasi:?}");
    assert!(!quasi.contains(&"income".to_owned()) && !quasi.contains(&"Full name".to_owned()), "{quasi:?}");
    let alice = place.rows("out/alice/people.csv");
    let columns: Vec<&str> = quasi.iter().map(String::as_str).collect();
    assert!(alice.len() >= 58 && classes(&alice, &columns).values().all(|rows| *rows >= 3), "{alice:?}");
    assert_eq!(alice[0].len(), quasi.len() + 1);
    for party in ["out/p1", "out/p2"] {
        assert_absent(&content(&place.at(party)), ["CANARYNAME", "astronomer", "locksmith"].map(str::to_owned));
    }
}

/// The budget is for three releases, whatever one costs; what the story says is left is enough for the query that it shows.
#[test]
fn the_budget_fits_what_a_release_costs() {
    let place = Place::new();
    // Names that SQL would take for others outside quotes, and the command line too.
    let labels = ["farmer", "teacher", "locksmith"];
    for (name, jobs, budget) in [("Labels", labels, 6.0), ("a=numbers", ["1", "2", "3"], 0.0)] {
        let rows = (0..24).map(|row| format!("{},{}\n", 20 + row / 2, jobs[row % 3])).collect::<String>();
        let (file, out) = (format!("{name}.csv"), format!("{name}-demo"));
        fs::write(place.at(&file), format!("age,job\n{rows}")).unwrap();
        let story = place.succeed(&["demo", "--data", &file, "--k", "3", "-o", &out, "-q"]).replace('\n', " ");
        let policy = place.text(&format!("{out}/policy.toml"));
        let manifest = place.text(&format!("{out}/alice/{name}.manifest.json"));
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        let spent = manifest["manifest"]["spent"]["job"].as_u64().unwrap_or(0) as f64 / 1e6;
        assert_eq!(3.0 * spent, budget, "{manifest}");
        match budget == 0.0 {
            true => assert!(!policy.contains("epsilon") && !story.contains("of epsilon, alice has"), "{story}"),
            false => {
                assert!(policy.contains(&format!("epsilon = {{ \"job\" = {budget:.1} }}")), "{policy}");
                assert!(story.contains(&format!("Epsilon {spent} of {budget} is spent on job")), "{story}");
                assert!(story.contains(&format!("of epsilon, alice has {} left:", budget - spent)), "{story}");
            }
        }
    }
}

#[test]
fn mistakes_leave_nothing_behind() {
    let place = Place::new();
    fs::write(place.at("short.csv"), "a,b\n1,2\n").unwrap();
    fs::write(place.at("twice.csv"), "a,a\n1,2\n3,4\n5,6\n7,8\n").unwrap();
    fs::write(place.at("semicolons.csv"), "a;b\n1;2\n3;4\n5;6\n7;8\n").unwrap();
    fs::write(place.at("flag.csv"), "a,suppressed\n1,2\n3,4\n5,6\n7,8\n").unwrap();
    for (arguments, says) in [
        (&["--data", "absent.csv"][..], "absent.csv: No such file"),
        (&["--data", "short.csv"], "1 rows are too few"),
        (&["--data", "twice.csv"], "the column `a` appears twice"),
        (&["--data", "semicolons.csv"], "are they separated by commas?"),
        (&["--data", "flag.csv"], "k_anonymize adds a column suppressed of its own"),
        (&["--rows", "20", "--k", "50"], "50 rows cannot be alike among 20"),
    ] {
        let error = place.fail(&[&["demo"], arguments].concat());
        assert!(error.contains(says), "{error}");
        assert!(!place.at("veil-demo").exists(), "{error}");
    }
    fs::create_dir(place.at("mine")).unwrap();
    fs::write(place.at("mine/precious"), "x").unwrap();
    assert!(place.fail(&["demo", "-o", "mine", "--force"]).contains("was not made by this demo"));
    assert!(place.at("mine/precious").exists());
}

/// What the user keeps in the folder of an earlier demo, and what that demo left, outlive a mistake.
#[test]
fn nothing_is_replaced_by_mistake() {
    let place = Place::new();
    // As an earlier demo leaves it.
    fs::create_dir_all(place.at("veil-demo/mine")).unwrap();
    fs::write(place.at("veil-demo/about.txt"), "Made by `veil demo`, and replaced by `veil demo --force`.\n").unwrap();
    let table = "age,member\n20,yes\n21,no\n22,yes\n23,no\n";
    fs::write(place.at("veil-demo/mine/people.csv"), table).unwrap();
    std::os::unix::fs::symlink(place.at("veil-demo/mine/people.csv"), place.at("link.csv")).unwrap();
    fs::write(place.at("short.csv"), "a,b\n1,2\n").unwrap();
    fs::write(place.at("twice.csv"), "a,a\n1,2\n3,4\n5,6\n7,8\n").unwrap();
    fs::write(place.at("semicolons.csv"), "a;b\n1;2\n3;4\n5;6\n7;8\n").unwrap();
    for (arguments, says) in [
        (&["--data", "veil-demo/mine/people.csv"][..], "is in veil-demo, which the demo replaces"),
        (&["--data", "link.csv", "-o", "./veil-demo/../veil-demo"], "link.csv is in "),
        (&["--data", "short.csv"], "1 rows are too few"),
        (&["--data", "absent.csv"], "absent.csv: No such file"),
        (&["--data", "twice.csv"], "the column `a` appears twice"),
        (&["--data", "semicolons.csv"], "are they separated by commas?"),
        (&["--rows", "20", "--k", "50"], "50 rows cannot be alike among 20"),
    ] {
        let error = place.fail(&[&["demo", "--force"], arguments].concat());
        assert!(error.contains(says) && !error.contains(".veil-"), "{error}");
        assert_eq!(place.files("veil-demo"), ["about.txt", "mine"].map(str::to_owned).into(), "{error}");
        assert_eq!(place.text("veil-demo/mine/people.csv"), table, "{error}");
    }
}

/// Ctrl-C in the middle: the servers end with the demo.
#[test]
fn an_interrupted_demo_leaves_no_process() {
    let place = Place::new();
    let mut demo =
        place.command(&["demo", "--rows", "200", "-q"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.starts_with("6. ")).unwrap();
    if Path::new("/proc/self").exists() {
        assert!(place.left_behind().len() >= 3, "two servers and the demo");
    }
    let sent = Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
    assert!(sent.success());
    // To the end: a reader that leaves is another reason to stop.
    lines.for_each(drop);
    let mut error = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(1), "{error}");
    assert!(error.contains("cancelled; veil-demo/ has what was made until then"), "{error}");
    assert_eq!(place.left_behind(), Vec::<PathBuf>::new());
}
