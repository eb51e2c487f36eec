//! Keys are made, the table is encrypted, and each party gets its own.

use std::fs;

use veil_keys::{KeyFile, OwnerKeys};

use super::{Failure, Scene};

pub(super) fn tell(scene: &mut Scene) -> Result<OwnerKeys, Failure> {
    scene.story.chapter("The owner makes keys, encrypts, and hands out what may go")?;
    let folder = scene.shown("");
    scene.story.say(&format!("Commands are shown as they run, in {folder}."))?;
    scene.command(&["keygen", "-o", "keys/"])?;
    let (data, declaration) = (format!("{}.csv", scene.data.table), format!("{}.toml", scene.data.table));
    let encrypted = scene.encrypted();
    scene.command(&["encrypt", &data, "--declare", &declaration, "--keys", "keys/owner.keys", "-o", &encrypted])?;
    for (from, to) in
        [("keys/p1.keys", "p1/p1.keys"), (&encrypted, &format!("p1/{encrypted}")), ("keys/p2.keys", "p2/p2.keys")]
    {
        fs::copy(scene.at(from), scene.at(to)).map_err(|error| format!("{}: {error}", scene.shown(to)))?;
    }
    scene.story.pause()?;
    scene
        .story
        .seen("P1 gets", &format!("{encrypted}, and p1.keys, which decrypts nothing: all in {}", scene.shown("p1")))?;
    scene.story.seen("P2 gets", &format!("p2.keys, and no data: all in {}", scene.shown("p2")))?;
    scene.story.seen("both", "are processes on this machine today; they belong on two, of two who do not collude")?;
    Ok(OwnerKeys::load(&scene.at("keys/owner.keys"))?)
}
