//! `veil verify`: whether a manifest is what both servers signed, what it says, and whether a file is what it is about.

mod released;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use clap::Args;
use veil_keys::KeyError;
use veil_privacy::SpentEpsilon;
use veil_release::{Manifest, ManifestColumn, NoiseBy, ReleaseError, SignedManifest};

use crate::Outcome;
use crate::owner_public;
use crate::progress::say;

/// Check the manifest of a release, show what it says, and check that a file is what was released
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil verify out.manifest.json --owner keys/owner.pub
      the paper: both servers signed it, and the owner certified them
  veil verify out.manifest.json       against the key in the manifest itself: finds damage, not forgery
  veil verify out.manifest.json --owner keys/owner.pub --file out.parquet
      also that the file has the columns and as many rows as were released
  veil verify out.manifest.json --owner keys/owner.pub \\
      --file out.parquet --sealed out.sealed --key alice/recipient.key
      also that every value of the file is the one that was released
  veil verify out.manifest.json --owner keys/owner.pub --sealed out.sealed
      without the recipient's key: that the sealed parts are those that both servers signed

The servers never see a clear value, so what they sign are the sealed parts. `veil fetch --keep-sealed out.sealed`
keeps them; with them and the recipient's key anyone can prove later what a file is.")]
pub(crate) struct Arguments {
    /// The manifest
    manifest: PathBuf,
    /// The owner's public key, from the owner
    #[arg(long, value_name = "FILE")]
    owner: Option<PathBuf>,
    /// The file that was fetched: .parquet, .csv or .arrow, as `veil fetch` wrote it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The sealed parts, which `veil fetch --keep-sealed` kept
    #[arg(long, value_name = "FILE")]
    sealed: Option<PathBuf>,
    /// The recipient's key, to open the sealed parts and compare every value
    #[arg(long, value_name = "FILE", requires = "sealed")]
    key: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let file = &arguments.manifest;
    let at = |error: ReleaseError| format!("{}: {error}", file.display());
    let json = std::fs::read(file).map_err(|source| KeyError::Io { path: file.clone(), source })?;
    let signed = SignedManifest::parse(&json).map_err(at)?;
    let key = match &arguments.owner {
        None => signed.manifest.owner,
        Some(owner) => {
            let owner = owner_public::read(owner)?;
            if owner.key_set != signed.manifest.key_set {
                let (found, expected) = (signed.manifest.key_set, owner.key_set);
                return Err(at(ReleaseError::WrongKeySet { what: "the manifest", found, expected }).into());
            }
            owner.key
        }
    };
    signed.verify(&key).map_err(at)?;
    // What failed shows nothing.
    let found = released::check(arguments, &signed, key)?;
    writeln!(std::io::stdout(), "{}", describe(&signed.manifest)?)?;
    say("The signatures of P1 and P2 hold, and so do the owner's certificates for their keys");
    found.iter().for_each(|line| say(line));
    if arguments.owner.is_none() {
        say(
            "warning: checked against the owner's key in the manifest itself, which a forger would have replaced; give the \
             owner's key with --owner keys/owner.pub",
        );
    }
    Ok(())
}

/// What a table's column shows of a released column.
type Shown = fn(&ManifestColumn) -> String;

/// The manifest as a text.
fn describe(manifest: &Manifest) -> Result<String, arrow::error::ArrowError> {
    let columns: [(&str, Shown); 4] = [
        ("column", |column| plain(&column.name)),
        ("kind", |column| match column.encrypted {
            true => plain(&column.kind),
            false => format!("clear ({})", plain(&column.kind)),
        }),
        ("epsilon", |column| match column.epsilon {
            0 => String::new(),
            spent => SpentEpsilon::from_millionths(spent).to_string(),
        }),
        ("noise", |column| {
            let by = match column.noise {
                NoiseBy::Nobody => "",
                NoiseBy::P1 => "of P1, who can take it off",
                NoiseBy::Both => "of P1 and P2",
            };
            by.to_owned()
        }),
    ];
    let table = columns.map(|(title, shown)| {
        let values: StringArray = manifest.columns.iter().map(|column| Some(shown(column))).collect();
        (title, Arc::new(values) as ArrayRef)
    });
    let classes = manifest.classes.as_ref().map_or_else(
        || "not asked for".to_owned(),
        |check| {
            let result = if check.passed { "P2 found them so" } else { "P2 found smaller ones" };
            let smallest = check.smallest.map_or_else(String::new, |rows| format!(", the smallest of {rows}"));
            format!("of at least {} rows equal in {}: {result}{smallest}", check.required, check.columns.join(", "))
        },
    );
    let pairs = |pairs: &mut dyn Iterator<Item = String>| pairs.collect::<Vec<_>>().join(", ");
    let lines = [
        ("release", manifest.release.to_string()),
        ("key set", manifest.key_set.to_string()),
        ("owner", manifest.owner.to_string()),
        ("recipient", manifest.recipient.clone()),
        ("created", manifest.created.clone()),
        ("query", manifest.query.clone()),
        ("rows", format!("{} in {} parcels", manifest.rows, manifest.parcels)),
        (
            "suppressed",
            manifest.suppressed.map_or_else(|| "unknown to the servers".to_owned(), |rows| rows.to_string()),
        ),
        ("classes", classes),
        (
            "spent",
            pairs(
                &mut manifest.spent.iter().map(|(name, of)| format!("{name} {}", SpentEpsilon::from_millionths(*of))),
            ),
        ),
        ("software", pairs(&mut manifest.software.iter().map(|(party, of)| format!("{party} {of}")))),
        ("protocols", pairs(&mut manifest.protocols.iter().map(|(name, version)| format!("{name} {version}")))),
    ];
    let mut text: String = lines.iter().map(|(title, line)| format!("{title:<11} {}\n", plain(line))).collect();
    text.push_str(&pretty_format_batches(&[RecordBatch::try_from_iter(table)?])?.to_string());
    for line in &manifest.leakage {
        text.push_str(&format!("\nlearned: {}", plain(line)));
    }
    Ok(text)
}

/// One line without control characters: a stranger's manifest must not steer the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
