//! The program as a person runs it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const DATA: &str = "name,age,city,region\nAnnamaria,39,Paris,north\nBert,,Rome,south\nCleo,41,Paris,south\nDora,40,Rome,north\n\
                    Emil,43,Paris,south\nFaye,44,Rome,north\nGerd,45,Paris,south\nHans,46,Rome,north\n";

struct Session(tempfile::TempDir);

impl Session {
    fn new() -> Self {
        let session = Self(tempfile::tempdir().unwrap());
        fs::write(session.at("people.csv"), DATA).unwrap();
        session
    }

    /// A session that has encrypted its data.
    fn encrypted() -> Self {
        let session = Self::new();
        session.succeed(&["init", "people.csv", "-o", "people.toml", "-q"]);
        session.succeed(&["keygen", "-o", "keys", "-q"]);
        session.succeed(&[
            "encrypt",
            "people.csv",
            "--declare",
            "people.toml",
            "--keys",
            "keys/owner.keys",
            "-o",
            "people.veil.parquet",
            "-q",
        ]);
        session
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veil"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error of a run that fails with status 1 and says one line.
    #[track_caller]
    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.trim_end().lines().count() == 1, "{error}");
        error
    }
}

#[test]
fn from_csv_to_cells_and_back() {
    let session = Session::encrypted();
    session.succeed(&["decrypt", "people.veil.parquet", "--keys", "keys/owner.keys", "-o", "back.csv"]);
    assert_eq!(fs::read_to_string(session.at("back.csv")).unwrap(), DATA);
    let shown = session.succeed(&["decrypt", "people.veil.parquet", "--keys", "keys/owner.keys", "-o", "-", "-q"]);
    assert_eq!(shown, DATA);
}

#[test]
fn inspect_shows_the_public_and_no_value() {
    let session = Session::encrypted();
    let text = session.succeed(&["inspect", "people.veil.parquet"]);
    let age = text.lines().find(|line| line.contains("| age ")).unwrap();
    let fields: Vec<&str> = age.split('|').map(str::trim).collect();
    assert_eq!(fields[1..8], ["age", "integer", "8", "2", "yes", "1", "1"], "{text}");
    assert!(text.contains("side table zeros: 4,096 entries"), "{text}");
    for secret in ["Annamaria", "Paris", "north"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&session.succeed(&["inspect", "people.veil.parquet", "--json"])).unwrap();
    assert_eq!(json["rows"], 8);
    assert_eq!(json["columns"][1]["cell_type"]["kind"], "integer");
    assert_eq!(json["columns"][1]["nulls"], 1);
}

/// Neither values nor labels stand readable in the encrypted file.
#[test]
fn the_encrypted_file_holds_no_clear_text() {
    let session = Session::encrypted();
    let bytes = fs::read(session.at("people.veil.parquet")).unwrap();
    // Shorter words stand among random bytes by chance.
    for secret in ["Annamaria", "Paris", "north"] {
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret}");
    }
}

#[test]
fn nothing_is_overwritten_without_force() {
    let session = Session::encrypted();
    let keys = fs::read(session.at("keys/owner.keys")).unwrap();
    let encrypt =
        ["encrypt", "people.csv", "--declare", "people.toml", "--keys", "keys/owner.keys", "-o", "people.veil.parquet"];
    assert!(session.fail(&["keygen", "-o", "keys"]).contains("owner.keys exists already"));
    assert!(session.fail(&["init", "people.csv", "-o", "people.toml"]).contains("people.toml exists already"));
    assert!(session.fail(&encrypt).contains("people.veil.parquet exists already"));
    assert_eq!(fs::read(session.at("keys/owner.keys")).unwrap(), keys);
    session.succeed(&[&encrypt[..], &["--force"]].concat());
    session.succeed(&["keygen", "-o", "keys", "--force"]);
    assert_ne!(fs::read(session.at("keys/owner.keys")).unwrap(), keys);
    let error = session.fail(&["decrypt", "people.veil.parquet", "--keys", "keys/owner.keys", "-o", "back.csv"]);
    assert!(error.contains("wrong key: expected key"), "{error}");
}

/// A folder with one of three files gets none of the others.
#[test]
fn key_sets_do_not_mix() {
    let session = Session::new();
    fs::create_dir(session.at("keys")).unwrap();
    fs::write(session.at("keys/p2.keys"), "another").unwrap();
    session.fail(&["keygen", "-o", "keys"]);
    assert!(!session.at("keys/owner.keys").exists());
}

#[test]
fn errors_are_one_sentence_on_standard_error() {
    let session = Session::encrypted();
    let encrypt = |data: &str| -> String {
        fs::write(session.at("bad.csv"), data).unwrap();
        session.fail(&[
            "encrypt",
            "bad.csv",
            "--declare",
            "people.toml",
            "--keys",
            "keys/owner.keys",
            "-o",
            "bad.veil.parquet",
        ])
    };
    assert_eq!(
        encrypt(&DATA.replace("43", "430")),
        "error: bad.csv: row 5, column age: `430` is outside the declared range [39, 46]; correct it or widen `range`\n"
    );
    assert!(!session.at("bad.veil.parquet").exists());
    let decrypt = |keys: &str| session.fail(&["decrypt", "people.veil.parquet", "--keys", keys, "-o", "back.csv"]);
    assert!(
        decrypt("keys/p2.keys").contains("holds the keys of P2 (the key holder), and this needs those of the owner")
    );
    assert!(decrypt("people.csv").contains("is not a key file of veil"));
    assert!(decrypt("absent.keys").contains("absent.keys: No such file"));
    let bytes = fs::read(session.at("people.veil.parquet")).unwrap();
    fs::write(session.at("half.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    assert!(session.fail(&["inspect", "half.parquet"]).contains("half.parquet: "));
}

/// A reader that has seen enough is no error; what is only called so is.
#[cfg(unix)]
#[test]
fn a_reader_may_leave() {
    let session = Session::encrypted();
    assert!(session.fail(&["inspect", "Broken pipe.parquet"]).contains("Broken pipe.parquet"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_veil"));
    command.args(["inspect", "people.veil.parquet"]).current_dir(session.0.path()).stdout(writer);
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn wrong_usage_is_status_two() {
    let session = Session::new();
    for arguments in [&["encrypt"][..], &["frobnicate"], &["init", "people.csv"], &[]] {
        assert_eq!(session.run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn help_has_examples() {
    let session = Session::new();
    for command in [
        &[][..],
        &["init"],
        &["keygen"],
        &["encrypt"],
        &["inspect"],
        &["decrypt"],
        &["p2"],
        &["p2", "status"],
        &["sql"],
        &["recipient"],
        &["recipient", "keygen"],
        &["policy"],
        &["policy", "sign"],
        &["policy", "show"],
        &["verify"],
        &["demo"],
    ] {
        let text = session.succeed(&[command, &["--help"]].concat());
        assert!(text.contains("Example") && text.contains("veil "), "{text}");
    }
}
