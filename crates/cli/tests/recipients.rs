//! Recipients, policies and manifests, as people handle them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use veil_keys::{KeyFile, OwnerKeys, P1Keys, P2Keys, RecipientKey};
use veil_release::{
    ClassCheck, Digest, MANIFEST_CONTEXT, MANIFEST_VERSION, Manifest, ManifestColumn, NoiseBy, OwnerPublic, ReleaseId,
    SignedManifest, SignedPolicy,
};

struct Place(tempfile::TempDir);

impl Place {
    /// A folder with the keys of an owner and of alice.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.succeed(&["keygen", "-o", "keys", "-q"]);
        place.succeed(&["recipient", "keygen", "-o", "alice/", "-q"]);
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn owner(&self) -> OwnerPublic {
        fs::read_to_string(self.at("keys/owner.pub")).unwrap().parse().unwrap()
    }

    fn alice(&self) -> RecipientKey {
        RecipientKey::load(&self.at("alice/recipient.key")).unwrap()
    }

    fn policy(&self) -> String {
        format!(
            "[policy]\nkey_set = \"{}\"\nexpires = \"2027-01-31\"\n\n[recipient.alice]\nkey = \"{}\"\n\n\
             [[recipient.alice.allow]]\ntable = \"patients\"\ncolumns = [\"born\", \"cost\"]\nmin_k = 10\n\
             k_columns = [\"born\"]\nepsilon = {{ cost = 2.5 }}\n",
            self.owner().key_set,
            self.alice().public()
        )
    }

    /// A manifest that both servers have signed.
    fn manifest(&self) -> SignedManifest {
        let (p1, p2) = (P1Keys::load(&self.at("keys/p1.keys")), P2Keys::load(&self.at("keys/p2.keys")));
        let owner = self.owner();
        let manifest = Manifest {
            version: MANIFEST_VERSION,
            release: ReleaseId([9; 16]),
            key_set: owner.key_set,
            owner: owner.key,
            recipient: "alice".to_owned(),
            query: "SELECT cost\nFROM patients\u{1b}[2J".to_owned(),
            created: "2026-11-18T01:02:03Z".to_owned(),
            software: BTreeMap::from([("p1".to_owned(), "veil 0.1.0".to_owned())]),
            protocols: BTreeMap::from([("release".to_owned(), 1)]),
            columns: vec![ManifestColumn {
                name: "cost".to_owned(),
                kind: "decimal".to_owned(),
                encrypted: true,
                epsilon: 500_000,
                noise: NoiseBy::Both,
            }],
            rows: 1000,
            parcels: 2,
            classes: Some(ClassCheck { required: 10, columns: vec!["born".to_owned()], passed: true, smallest: None }),
            suppressed: None,
            spent: BTreeMap::from([("cost".to_owned(), 500_000)]),
            leakage: vec!["P2 sees the number of rows".to_owned()],
            header: Digest([0; 32]),
            digests: BTreeMap::new(),
        };
        let bytes = manifest.to_bytes().unwrap();
        let p1 = p1.unwrap().signer().attest(MANIFEST_CONTEXT, &bytes);
        let p2 = p2.unwrap().signer().attest(MANIFEST_CONTEXT, &bytes);
        SignedManifest { manifest, p1, p2 }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veil"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap()
    }

    /// Standard output and standard error of a run that succeeds.
    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> (String, String) {
        let output = self.run(arguments);
        let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{arguments:?}: {said}");
        (text, said)
    }

    /// The error of a run that fails with status 1 and says one line.
    #[track_caller]
    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.starts_with("error: ") && error.trim_end().lines().count() == 1, "{error}");
        assert!(output.stdout.is_empty(), "what failed shows nothing");
        error
    }
}

#[test]
fn recipients_make_keys_once() {
    let place = Place::new();
    assert_eq!(place.alice().name(), "alice");
    let before = place.alice().public();
    let error = place.fail(&["recipient", "keygen", "-o", "alice"]);
    assert!(error.contains("alice/recipient.key exists already"), "{error}");
    assert_eq!(place.alice().public(), before);
    let (_, said) = place.succeed(&["recipient", "keygen", "-o", "alice", "--name", "al", "--force"]);
    assert!(said.contains("give the data owner alice/recipient.pub"), "{said}");
    assert_eq!(place.alice().name(), "al");
    assert_ne!(place.alice().public(), before);
    assert!(place.fail(&["recipient", "keygen", "-o", "a b"]).contains("`a b` cannot be a recipient's name"));
    assert!(!place.at("a b").exists());
    assert_eq!(place.run(&["recipient"]).status.code(), Some(2));
}

#[test]
fn policies_are_checked_shown_and_signed() {
    let place = Place::new();
    fs::write(place.at("policy.toml"), place.policy()).unwrap();
    let sign = ["policy", "sign", "policy.toml", "--keys", "keys/owner.keys", "-o", "policy.signed"];
    let (table, said) = place.succeed(&sign);
    let row = table.lines().find(|line| line.contains("patients")).unwrap();
    for part in ["alice", "born, cost", "at least 10", "cost 2.5"] {
        assert!(row.contains(part), "{table}");
    }
    assert!(table.contains("until 2027-01-31"), "{table}");
    assert!(said.contains("give policy.signed to the key holder"), "{said}");

    let signed = fs::read(place.at("policy.signed")).unwrap();
    let owner = place.owner();
    let opened = SignedPolicy::open(&signed, owner.key_set, &owner.key).unwrap();
    assert_eq!(opened.recipients()["alice"].key, place.alice().public());

    assert!(place.fail(&sign).contains("policy.signed exists already"));
    place.succeed(&[&sign[..], &["--force", "-q"]].concat());
    let (shown, said) = place.succeed(&["policy", "show", "policy.signed", "--owner", "keys/owner.pub"]);
    assert_eq!((shown.as_str(), said.as_str()), (table.as_str(), "The owner's signature holds\n"));
    let (shown, said) = place.succeed(&["policy", "show", "policy.signed"]);
    assert!(shown == table && said.starts_with("warning: the signature was not checked"), "{said}");
}

#[test]
fn wrong_policies_are_refused() {
    let place = Place::new();
    let sign = |text: String| {
        fs::write(place.at("policy.toml"), text).unwrap();
        place.fail(&["policy", "sign", "policy.toml", "--keys", "keys/owner.keys", "-o", "policy.signed"])
    };
    let error = sign(place.policy().replace("min_k = 10", "min_k = 1"));
    assert!(error.contains("policy.toml: the policy, line 8: recipient alice: table patients: min_k"), "{error}");
    let error = sign(place.policy().replace(&place.owner().key_set.to_string(), "0000000000000000"));
    assert!(error.contains("the policy is for key set 0000000000000000"), "{error}");
    assert!(!place.at("policy.signed").exists());

    // Tampered with after it was signed, and signed by another owner.
    fs::write(place.at("policy.toml"), place.policy()).unwrap();
    place.succeed(&["policy", "sign", "policy.toml", "--keys", "keys/owner.keys", "-o", "policy.signed", "-q"]);
    let signed = fs::read_to_string(place.at("policy.signed")).unwrap();
    fs::write(place.at("tampered"), signed.replace("min_k = 10", "min_k = 02")).unwrap();
    fs::write(place.at("lowered"), signed.replace("min_k = 10", "min_k = 2")).unwrap();
    for file in ["tampered", "lowered"] {
        let error = place.fail(&["policy", "show", file, "--owner", "keys/owner.pub"]);
        assert!(error.contains("the signature of the policy does not hold"), "{error}");
    }
    place.succeed(&["keygen", "-o", "other", "-q"]);
    place.fail(&["policy", "show", "policy.signed", "--owner", "other/owner.pub"]);
    assert!(place.fail(&["policy", "show", "policy.toml"]).contains("veil policy sign"));
}

#[test]
fn manifests_are_verified_before_they_are_shown() {
    let place = Place::new();
    let signed = place.manifest();
    fs::write(place.at("out.manifest.json"), signed.to_json().unwrap()).unwrap();
    let (text, said) = place.succeed(&["verify", "out.manifest.json", "--owner", "keys/owner.pub"]);
    for part in [
        "1000 in 2 parcels",
        "of at least 10 rows equal in born: P2 found them so",
        "of P1 and P2",
        "cost 0.5",
        "SELECT cost FROM patients [2J",
        "learned: P2 sees the number of rows",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(said.contains("The signatures of P1 and P2 hold") && !said.contains("warning"), "{said}");
    let (_, said) = place.succeed(&["verify", "out.manifest.json"]);
    assert!(said.contains("warning: checked against the owner's key in the manifest itself"), "{said}");

    let mut changed = signed.clone();
    changed.manifest.rows = 999;
    fs::write(place.at("changed.json"), changed.to_json().unwrap()).unwrap();
    let error = place.fail(&["verify", "changed.json"]);
    assert!(error.contains("changed.json: the signature of P1 does not hold"), "{error}");
    let mut forged = signed;
    forged.p2 = forged.p1;
    fs::write(place.at("forged.json"), forged.to_json().unwrap()).unwrap();
    assert!(place.fail(&["verify", "forged.json"]).contains("the key of P2 is not certified by the owner"));
    place.succeed(&["keygen", "-o", "other", "-q"]);
    let error = place.fail(&["verify", "out.manifest.json", "--owner", "other/owner.pub"]);
    assert!(error.contains("the manifest is for key set"), "{error}");
    assert!(place.fail(&["verify", "keys/owner.pub"]).contains("the manifest cannot be read"));
}

/// The owner's file is enough to make the others again.
#[test]
fn key_files_belong_together() {
    let place = Place::new();
    let owner = OwnerKeys::load(&place.at("keys/owner.keys")).unwrap();
    assert_eq!(owner.public(), place.owner());
    assert_eq!(*fs::read(place.at("keys/p1.keys")).unwrap(), **owner.p1().to_bytes());
    assert_eq!(*fs::read(place.at("keys/p2.keys")).unwrap(), **owner.p2().to_bytes());
}
