//! The report for people who were not there.

use super::parties::Parties;
use super::{Failure, Scene};

/// Where it is, in the demo's folder.
const FILE: &str = "report.html";

/// Runs `veil report` and says where the report is; nothing if this program cannot make one.
pub(super) fn make(scene: &mut Scene, parties: &Parties) -> Result<Option<String>, Failure> {
    let p2 = parties.rounds.url();
    let manifest = format!("alice/{}.manifest.json", scene.data.table);
    let of = ["report", "p1/anon.veil.parquet", "--original", "p1/study.veil.parquet", "--keys", "keys/p1.keys"];
    let how = ["--p2", &p2, "--manifest", &manifest, "-o", FILE];
    let words = [&of[..], &how].concat();
    let ran = scene.program.run(&words)?;
    if ran.code == Some(2) && ran.said.contains("unrecognized subcommand") {
        scene.story.pause()?;
        scene.story.say("(No report: this program has no `veil report`.)")?;
        return Ok(None);
    }
    scene.story.command("", &words)?;
    let ran = ran.succeeded()?;
    scene.story.printed(&ran.said)?;
    Ok(Some(scene.shown(FILE)))
}
