//! The README, as it stands there: commands are typed into a shell, statements into the engine's, and what they print is what it shows. Only
//! ports, times and sizes are the machine's own.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

const README: &str = include_str!("../../../README.md");

/// All blocks in their order: the section, the language, a word in them, and what is done with them. What is new in the README needs a line here.
const BLOCKS: &[(&str, &str, &str, Done)] = &[
    ("", "sh", "cargo test --workspace", Done::Elsewhere("builds the program and runs this test")),
    ("", "text", "data owner", Done::Elsewhere("a picture")),
    ("", "sql", "mask_dictionary", Done::Shell),
    ("The demo", "text", "Did anybody see too much?", Done::Demo),
    ("From CSV to cells and back", "sh", "veil init", Done::Script),
    ("From CSV to cells and back", "text", "veil inspect", Done::Printed),
    ("From CSV to cells and back", "toml", "[column.age]", Done::Declared),
    ("Which columns identify people", "sh", "veil sql", Done::Elsewhere("how statements are run here")),
    ("Which columns identify people", "sql", "identifiers", Done::Shell),
    ("Masking and noise in SQL", "sql", "mask_shift", Done::Shell),
    ("Masking and noise in SQL", "sh", "veil decrypt", Done::Script),
    ("Masking and noise in SQL", "text", "error: sum does not work", Done::Refused),
    ("Everybody is one of k", "sql", "k_anonymize", Done::Shell),
    ("Everybody is one of k", "text", "veil decrypt", Done::Printed),
    ("Is it safe, is it useful", "sql", "sweep", Done::Shell),
    ("Is it safe, is it useful", "sh", "veil report", Done::Script),
    ("Three terminals", "sh", "veil policy sign", Done::Terminals),
    ("Three terminals", "sh", "veil p2", Done::Terminals),
    ("Three terminals", "sh", "veil serve", Done::Terminals),
    ("Three terminals", "sh", "veil gateway", Done::Terminals),
    (
        "Three terminals",
        "python",
        "adbc_driver_flightsql",
        Done::Elsewhere("packages from PyPI: tests/clients runs it"),
    ),
    ("Three terminals", "text", "5 columns]", Done::Elsewhere("what that prints, with noise")),
    ("Three terminals", "text", "raw.parquet", Done::Terminals),
    ("In DataFusion", "rust", "with_veil", Done::Elsewhere("a documentation test of the facade")),
    ("The key holder", "sh", "veil p2 status", Done::Elsewhere("hosts and certificates of others: tests/p2.rs")),
];

/// What is done with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// Typed into a shell.
    Script,
    /// A command, and what it prints.
    Printed,
    /// Statements, and what the engine's shell prints.
    Shell,
    /// Statements that fail, and their errors.
    Refused,
    /// A declaration by which a table is encrypted.
    Declared,
    /// Shortened from what the demo tells.
    Demo,
    /// In `three_terminals`.
    Terminals,
    /// Elsewhere, or not at all.
    Elsewhere(&'static str),
}

/// All blocks: section, language, text.
fn blocks() -> Vec<(&'static str, &'static str, &'static str)> {
    let (mut section, mut found) = ("", Vec::new());
    for (at, part) in README.split("```").enumerate() {
        match (at % 2, part.split_once('\n')) {
            (1, Some((language, text))) => found.push((section, language, text)),
            (0, _) => {
                let last = part.lines().rev().find_map(|line| line.strip_prefix("## "));
                section = last.unwrap_or(section);
            }
            _ => panic!("a block without an end: {part}"),
        }
    }
    found
}

/// Blocks that are done alike.
fn done(what: Done) -> impl Iterator<Item = &'static str> {
    blocks().into_iter().zip(BLOCKS).filter(move |(_, known)| known.3 == what).map(|((_, _, text), _)| text)
}

/// The one block of commands of the three terminals that has a word.
fn terminal(word: &str) -> &'static str {
    let found: Vec<_> = done(Done::Terminals).filter(|text| text.contains(word)).collect();
    assert_eq!(found.len(), 1, "blocks with {word}");
    found[0]
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

/// The demo as the README has it, made once: its folder, and what it told.
static DEMO: LazyLock<(tempfile::TempDir, String)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let story = succeed(folder.path(), "veil demo -q");
    (folder, story)
});

/// A folder of a test's own beside `veil-demo`, as the README's reader has it.
fn place() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(DEMO.0.path().join("veil-demo"), folder.path().join("veil-demo")).unwrap();
    folder
}

/// A statement of the engine's shell, and what the README shows after it.
struct Statement {
    sql: String,
    shown: String,
}

fn statements(block: &str) -> Vec<Statement> {
    let (mut found, mut is_open): (Vec<Statement>, bool) = (Vec::new(), false);
    for line in block.lines().filter(|line| !line.starts_with("$ ")) {
        if let Some(sql) = line.strip_prefix("veil> ") {
            found.push(Statement { sql: sql.to_owned(), shown: String::new() });
        } else if let Some(sql) = line.strip_prefix("   -> ").filter(|_| is_open) {
            let statement = found.last_mut().unwrap();
            statement.sql += &format!("\n{sql}");
        } else {
            let statement = found.last_mut().unwrap_or_else(|| panic!("no statement before {line}"));
            statement.shown += &format!("{line}\n");
            continue;
        }
        is_open = !line.trim_end().ends_with(';');
    }
    assert!(!found.is_empty() && !is_open, "{block}");
    found
}

const ENGINE: &str = "veil sql --keys veil-demo/keys/p1.keys --embedded-p2 veil-demo/keys/p2.keys \
                      --table patients=veil-demo/patients.veil.parquet";

#[test]
fn every_block_is_accounted_for() {
    let known: Vec<_> = BLOCKS.iter().map(|(section, language, ..)| (*section, *language)).collect();
    let found: Vec<_> = blocks().into_iter().map(|(section, language, _)| (section, language)).collect();
    assert_eq!(found, known);
    for ((section, _, text), (.., word, _)) in blocks().into_iter().zip(BLOCKS) {
        assert!(text.contains(word), "{section}: {word}");
    }
    assert!(done(Done::Elsewhere("how statements are run here")).all(|text| text.trim() == ENGINE));
}

#[test]
fn statements_and_commands_print_what_is_shown() {
    let folder = place();
    let statements: Vec<Statement> = done(Done::Shell).flat_map(statements).collect();
    let mut engine = shell(folder.path(), &format!("{ENGINE} --format table \"$@\""));
    engine.arg("veil");
    let mark = |at: usize| format!("statement {at:02}");
    for (at, statement) in statements.iter().enumerate() {
        engine.args(["-c", &statement.sql, "-c", &format!("SELECT '{}' AS mark", mark(at))]);
    }
    let output = engine.output().unwrap();
    let [mut printed, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(output.status.success(), "{said}");
    for (at, Statement { sql, shown }) in statements.iter().enumerate() {
        let line = "+--------------+\n";
        let end = format!("{line}| mark         |\n{line}| {} |\n{line}", mark(at));
        let (own, rest) = printed.split_once(&end).unwrap_or_else(|| panic!("{sql}\n{printed}"));
        let (notes, table): (Vec<&str>, Vec<&str>) = shown.lines().partition(|line| line.starts_with("note: "));
        for note in notes {
            assert!(said.lines().any(|line| line == note), "{sql}\n{note}\n{said}");
        }
        // What COPY counts is not shown.
        assert!(table.is_empty() || own.trim_end() == table.join("\n"), "{sql}\n{own}");
        printed = rest.to_owned();
    }
    for block in done(Done::Script) {
        succeed(folder.path(), block);
    }
    for file in ["north.csv", "report.html"] {
        assert!(fs::metadata(folder.path().join(file)).unwrap().len() > 1000, "{file}");
    }
    let lines = |file: &str| -> Vec<String> {
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines("back.csv"), lines("patients.csv"));
    for block in done(Done::Printed) {
        let (command, shown) = block.strip_prefix("$ ").unwrap().split_once('\n').unwrap();
        let output = shell(folder.path(), command).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        match command.starts_with("veil inspect") {
            // Sizes and the name of the key set are of chance.
            true => assert_eq!(without_sizes(&printed), without_sizes(shown)),
            false => assert_eq!(printed, shown, "{command}"),
        }
    }
}

/// A table without its sizes, and without the widths that these make.
fn without_sizes(text: &str) -> Vec<String> {
    let is_size = |word: &str| {
        let number = word.trim_end_matches('%');
        let is_key = word.len() == 16 && word.chars().all(|letter| letter.is_ascii_hexdigit());
        is_key || number.contains('.') && number.parse::<f64>().is_ok()
    };
    let word = |word: &str| match is_size(word) {
        true => "#".to_owned(),
        false if word.starts_with("+-") => "+-".to_owned(),
        false => word.to_owned(),
    };
    text.lines().map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn what_is_refused_is_refused_in_these_words() {
    let folder = place();
    let refused: Vec<Statement> = done(Done::Refused).flat_map(statements).collect();
    assert!(refused.len() >= 2);
    for Statement { sql, shown } in refused {
        let output = shell(folder.path(), &format!("{ENGINE} -c \"$1\"")).args(["veil", &sql]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{sql}");
        // A shell that runs one statement says which.
        let error = shown.trim_end().strip_prefix("error: ").unwrap();
        assert!(said.trim_end().ends_with(error) && said.contains("error: "), "{sql}\n{said}");
    }
}

#[test]
fn the_declaration_declares() {
    let folder = place();
    for block in done(Done::Declared) {
        fs::write(folder.path().join("patients.toml"), block).unwrap();
    }
    let table = "age,diagnosis,region\n39,asthma,north\n120,phobia,south\n";
    fs::write(folder.path().join("patients.csv"), table).unwrap();
    succeed(
        folder.path(),
        "cp veil-demo/diagnosis.csv . && veil encrypt patients.csv --declare patients.toml --keys veil-demo/keys/owner.keys -o p.parquet
         veil decrypt p.parquet --keys veil-demo/keys/owner.keys -o back.csv",
    );
    assert_eq!(fs::read_to_string(folder.path().join("back.csv")).unwrap(), table);
}

/// Numbers as `#`, sizes alike whatever their unit, no boxes, single spaces.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            letter => out.push(letter),
        }
    }
    let out = ["KiB", "MiB", "GiB"]
        .iter()
        .fold(out.replace("#,#", "#").replace("#.#", "#"), |out, unit| out.replace(unit, "B"));
    out.split_whitespace().filter(|word| !word.starts_with("+-")).collect::<Vec<_>>().join(" ")
}

/// Rows are clustered anew each time: what the story says is the same but for numbers, and for what a class has in common.
#[test]
fn the_demo_tells_what_is_shown() {
    let story = without_numbers(&DEMO.1);
    let excerpt = done(Done::Demo).next().unwrap();
    let shown: Vec<String> = excerpt.split("\n\n").flat_map(paragraph).collect();
    assert!(shown.len() > 20, "{shown:#?}");
    for piece in shown {
        assert!(story.contains(&piece), "{piece}\n\n{story}");
    }
    let words = "584 names, texts and labels stand in clear in the owner's patients.csv, 17,915 times.";
    assert!(excerpt.contains(words) && DEMO.1.contains(words));
}

/// The lines of a table, a title or a command, and sentences that go on over several lines.
fn paragraph(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        let line = line.strip_suffix(" ..").unwrap_or(line);
        let begins = ["|", "P1 saw", "P2 saw", "opened", "$", "error:", "sql>", "The owner looks"];
        let is_new = begins.iter().any(|start| line.starts_with(start))
            || line.starts_with(|first: char| first.is_ascii_digit());
        match pieces.last_mut().filter(|_| !is_new) {
            _ if line.starts_with("| alice") => {}
            Some(last) => *last += &format!(" {line}"),
            None => pieces.push(line.to_owned()),
        }
    }
    pieces.iter().map(|piece| without_numbers(piece)).collect()
}

#[test]
fn three_terminals() {
    let folder = place();
    succeed(folder.path(), terminal("veil policy sign"));
    let work = folder.path().join("hospital");
    let listen = " --listen 127.0.0.1:0";
    let p2 = Server::start(&work, &(terminal("veil p2").trim().to_owned() + listen));
    let serve = terminal("veil serve").trim().replace("http://127.0.0.1:7722", &p2.1);
    let p1 = Server::start(&work, &(serve + listen));

    let alice = terminal("veil gateway").replace("http://127.0.0.1:7711", &p1.1);
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
    let (command, error) = terminal("raw.parquet").trim_start_matches("$ ").split_once('\n').unwrap();
    let refused = shell(&work, &command.replace("http://127.0.0.1:7711", &p1.1)).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains(&error.trim_end().replace("http://127.0.0.1:7722", &p2.1)), "{said}");
}
