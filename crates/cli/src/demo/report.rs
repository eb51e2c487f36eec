//! The report for people who were not there.

use super::parties::Parties;
use super::{Failure, Scene};

/// Where it is, in the demo's folder.
const FILE: &str = "report.html";

/// Runs `veil report` and says where the report is.
pub(super) fn make(scene: &mut Scene, parties: &Parties) -> Result<String, Failure> {
    let p2 = parties.rounds.url();
    let manifest = format!("alice/{}.manifest.json", scene.data.table);
    let of = ["report", "p1/anon.veil.parquet", "--original", "p1/study.veil.parquet", "--keys", "keys/p1.keys"];
    let how = ["--p2", &p2, "--manifest", &manifest, "-o", FILE];
    let by_order = if scene.data.is_sample { &[][..] } else { &["--by-order"] };
    let words = [&of[..], &how, by_order].concat();
    scene.command(&words)?;
    Ok(scene.shown(FILE))
}
