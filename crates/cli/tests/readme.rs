//! The README's commands, as they stand there: typed into a shell, in its order. Only ports are the machine's own.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const README: &str = include_str!("../../../README.md");

/// The blocks of a section, with the language that they are in.
fn blocks(section: &str) -> Vec<(&'static str, &'static str)> {
    let text = README.split_once(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("README has no {section}")).1;
    let text = text.split_once("\n## ").map_or(text, |(text, _)| text);
    let parts: Vec<&str> = text.split("```").collect();
    parts.iter().skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// The one block of commands that has a word.
fn commands(section: &str, word: &str) -> &'static str {
    let found: Vec<_> =
        blocks(section).into_iter().filter(|(language, text)| *language == "sh" && text.contains(word)).collect();
    assert_eq!(found.len(), 1, "blocks of {section} with {word}");
    found[0].1
}

/// A shell that finds `veil`.
fn shell(folder: &Path, script: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_veil")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-euc", script]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    command
}

/// What a script says on both ways out.
fn succeed(folder: &Path, script: &str) -> String {
    let output = shell(folder, script).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{script}\n{text}");
    text
}

/// A server from a line of the README, and the address that it tells.
struct Server(Child, String);

impl Server {
    fn start(folder: &Path, script: &str) -> Self {
        let mut child = shell(folder, &format!("exec {script}")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url =
            line.trim_end().rsplit_once(" listens on ").unwrap_or_else(|| panic!("{script}: {line}")).1.to_owned();
        Self(child, url)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Patients in a folder `veil-demo`, as the demo leaves them.
fn with_patients() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), "veil demo --rows 300 --k 3");
    folder
}

#[test]
fn from_csv_to_cells_and_back() {
    let folder = with_patients();
    let work = folder.path().join("veil-demo");
    // The demo's keys and declaration make room for the reader's own.
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::copy(work.join("patients.csv"), own.join("patients.csv")).unwrap();
    let said = succeed(&own, commands("From CSV to cells and back", "veil init"));
    assert!(said.contains("300 rows"), "{said}");
    let lines = |path: &Path| -> Vec<String> {
        let mut lines: Vec<String> = fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&own.join("back.csv")), lines(&own.join("patients.csv")));
}

#[test]
fn three_terminals() {
    let section = "Three terminals";
    let folder = with_patients();
    succeed(folder.path(), commands(section, "veil policy sign"));
    let work = folder.path().join("hospital");
    let listen = " --listen 127.0.0.1:0";
    let p2 = Server::start(&work, &(commands(section, "veil p2").trim().to_owned() + listen));
    let serve = commands(section, "veil serve").trim().replace("http://127.0.0.1:7722", &p2.1);
    let p1 = Server::start(&work, &(serve + listen));

    let alice = commands(section, "veil gateway").replace("http://127.0.0.1:7711", &p1.1);
    let (gateway, others): (Vec<&str>, Vec<&str>) = alice.lines().partition(|line| line.starts_with("veil gateway"));
    let said = succeed(&work, &others.join("\n"));
    assert!(said.contains("recipient   alice") && said.contains("SELECT * FROM anon"), "{said}");
    let manifest: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(work.join("out.manifest.json")).unwrap()).unwrap();
    let text = manifest.to_string();
    assert!(text.contains("\"smoker\"") && text.contains("SELECT * FROM anon"), "{text}");
    assert!(fs::metadata(work.join("out.parquet")).unwrap().len() > 0);
    let [gateway] = gateway.as_slice() else { panic!("{alice}") };
    Server::start(&work, &gateway.replace("127.0.0.1:7733", "127.0.0.1:0"));

    // What is not allowed is refused in the README's words.
    let shown = blocks(section).into_iter().find(|(_, text)| text.contains("raw.parquet")).unwrap().1;
    let (command, error) = shown.trim_start_matches("$ ").split_once('\n').unwrap();
    let refused = shell(&work, &command.replace("http://127.0.0.1:7711", &p1.1)).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains(&error.trim_end().replace("http://127.0.0.1:7722", &p2.1)), "{said}");
}
