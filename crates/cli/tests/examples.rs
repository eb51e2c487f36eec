//! The examples of sql-examples/, run in order as their README says. `VEIL_BLESS=1 cargo test -p veil-cli --test examples` writes what they
//! print; encrypted cells print alike whatever they hold, so that what is random is checked in the files that the examples write.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Folder(tempfile::TempDir);

impl Folder {
    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veil"));
        let output = command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The rows of an encrypted file, by name of their columns.
    fn decrypted(&self, file: &str) -> Vec<BTreeMap<String, String>> {
        rows(&self.succeed(&["decrypt", file, "--keys", "veil-demo/keys/owner.keys", "-o", "-", "-q"]))
    }
}

/// CSV without quotes, which the sample has none of.
fn rows(csv: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| names.iter().map(|name| name.to_string()).zip(line.split(',').map(str::to_owned)).collect();
    lines.map(row).collect()
}

fn cents(text: &str) -> i64 {
    let (whole, rest) = text.trim_start_matches('-').split_once('.').unwrap();
    let number = whole.parse::<i64>().unwrap() * 100 + rest.parse::<i64>().unwrap();
    if text.starts_with('-') { -number } else { number }
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sql-examples")
}

#[test]
fn the_examples_run_in_order_and_do_what_they_say() {
    let folder = Folder(tempfile::tempdir().unwrap());
    // The examples need its files alone: few classes take little time.
    folder.succeed(&["demo", "--rows", "3000", "--k", "200", "-q"]);
    let mut files: Vec<PathBuf> = fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    assert!(files.len() >= 4);
    for file in files {
        let printed = folder.succeed(&[
            "sql",
            "--keys",
            "veil-demo/keys/p1.keys",
            "--embedded-p2",
            "veil-demo/keys/p2.keys",
            "--table",
            "patients=veil-demo/patients.veil.parquet",
            "-q",
            "-f",
            file.to_str().unwrap(),
        ]);
        let printed = printed.replace(folder.0.path().to_str().unwrap().trim_start_matches('/'), "FOLDER");
        let expected = examples().join("expected").join(file.with_extension("txt").file_name().unwrap());
        if std::env::var_os("VEIL_BLESS").is_some() {
            fs::write(&expected, &printed).unwrap();
        }
        let written = fs::read_to_string(&expected).unwrap_or_default();
        assert_eq!(printed, written, "{} prints something else", file.display());
    }

    let patients = rows(&fs::read_to_string(folder.0.path().join("veil-demo/patients.csv")).unwrap());
    let names: HashSet<String> =
        fs::read_to_string(folder.0.path().join("veil-demo/names.txt")).unwrap().lines().map(str::to_owned).collect();
    let masked = folder.decrypted("masked.veil.parquet");
    assert_eq!(masked.len(), patients.iter().filter(|row| row["region"] == "north").count());
    for row in &masked {
        assert!(names.contains(&row["name"]), "{}", row["name"]);
        assert!((10_000..=99_999).contains(&row["zip"].parse::<u32>().unwrap()));
        assert_eq!((row["diagnosis"].as_str(), row["region"].as_str()), ("*", "north"));
        let (masked, cost) = (cents(&row["cost"]), cents(&row["true_cost"]));
        assert!((masked - cost).abs() * 10 <= cost + 10, "{masked} for {cost}");
    }
    assert!(masked.iter().filter(|row| row["cost"] != row["true_cost"]).count() > masked.len() / 2);

    let noised = folder.decrypted("noised.veil.parquet");
    assert_eq!(noised.len(), 3000);
    let kept = noised.iter().filter(|row| row["diagnosis"] == row["true_diagnosis"]).count();
    assert!((300..2500).contains(&kept), "{kept} of 3000 diagnoses kept");
    // Laplace noise of scale 250,000: half of it lies beyond 0.69 of the scale.
    let noise = |row: &BTreeMap<String, String>| (cents(&row["cost"]) - cents(&row["true_cost"])).abs();
    let far = noised.iter().filter(|row| noise(row) > 17_328_680).count();
    assert!((1300..1700).contains(&far), "{far} of 3000 beyond the median");

    for row in folder.decrypted("sums.veil.parquet") {
        let of_region: Vec<_> = patients.iter().filter(|patient| patient["region"] == row["region"]).collect();
        let total: i64 = of_region.iter().map(|patient| cents(&patient["cost"])).sum();
        assert_eq!(cents(&row["total"]), total);
        let average = (total as f64 / of_region.len() as f64) / 100.0;
        assert!((row["average"].parse::<f64>().unwrap() - average).abs() < 1e-5, "{} for {average}", row["average"]);
        let asked = of_region.iter().filter(|patient| !patient["smoker"].is_empty()).count();
        assert_eq!((row["asked"].parse(), row["patients"].parse()), (Ok(asked), Ok(of_region.len())));
    }
    // Suppressed rows are left out, and nobody is like fewer than nine others.
    let anonymised = folder.decrypted("anon.veil.parquet");
    assert!((196..=200).contains(&anonymised.len()), "{} of 200", anonymised.len());
    let mut classes: BTreeMap<Vec<&String>, usize> = BTreeMap::new();
    for row in &anonymised {
        *classes.entry(["born", "sex", "zip", "diagnosis"].map(|name| &row[name]).to_vec()).or_default() += 1;
        assert!(!row.contains_key("name") && !row.contains_key("suppressed"));
    }
    assert!(classes.len() > 5 && classes.values().all(|rows| *rows >= 10), "{classes:?}");
    assert!(folder.succeed(&["inspect", "noised.veil.parquet"]).contains("awaits P2's noise"));
}
