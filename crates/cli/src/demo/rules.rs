//! The owner's rules: what may be asked, from the start; what may be released, once somebody is to receive something.

use std::fs;

use veil_release::{CAUTIOUS_NUMBERS, CAUTIOUS_ROWS, OwnerPublic};

use super::{Failure, Scene};

/// Whose rules they are, and what may be asked. The questions of the demo are about all rows that it has, however few.
pub(super) fn about_questions(scene: &Scene) -> Result<String, Failure> {
    let owner: OwnerPublic = read(scene, "keys/owner.pub")?.parse()?;
    let min_rows = CAUTIOUS_ROWS.min(scene.data.clear.rows.len() as u64);
    Ok(format!(
        "[policy]\nkey_set = \"{}\"\n[ask]\nmin_rows = {min_rows}\nnumbers = {CAUTIOUS_NUMBERS}\n",
        owner.key_set
    ))
}

/// Writes the rules and has the owner sign them; P2 gets what is signed.
pub(super) fn sign(scene: &mut Scene, policy: &str) -> Result<(), Failure> {
    fs::write(scene.at("policy.toml"), policy)?;
    scene.story.pause()?;
    scene.story.quote(policy)?;
    let sign = ["policy", "sign", "policy.toml", "--keys", "keys/owner.keys", "-o", "policy.signed"];
    // The second time there are other rules.
    let again: &[&str] = if scene.at("policy.signed").exists() { &["--force"] } else { &[] };
    scene.command(&[&sign[..], again].concat())?;
    fs::copy(scene.at("policy.signed"), scene.at("p2/policy.signed"))?;
    Ok(())
}

/// A file of the demo's folder.
pub(super) fn read(scene: &Scene, name: &str) -> Result<String, Failure> {
    Ok(fs::read_to_string(scene.at(name)).map_err(|error| format!("{}: {error}", scene.shown(name)))?)
}
