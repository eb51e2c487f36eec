//! `veil keygen`: draws a key set and writes the three parties' files, and the owner's public key.

use std::path::PathBuf;

use clap::Args;
use veil_keys::{KeyError, OWNER_FILE, OwnerKeys, os_rng};

use crate::Outcome;
use crate::progress::say;

/// Make keys: one file for the owner, one for P1 (the engine), one for P2 (the key holder)
#[derive(Args)]
#[command(after_help = "\
Example:
  veil keygen -o keys/
      keys/owner.keys  all keys: keep it, back it up; without it the data is lost
      keys/p1.keys     for the engine that holds the data: it can sign for itself, and decrypts nothing
      keys/p2.keys     for the key holder, who must never see the data
      keys/owner.pub   for recipients, who check signatures with it: public")]
pub(crate) struct Arguments {
    /// The folder to write to
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Replace existing keys. What they encrypted is lost unless you kept a copy
    #[arg(long)]
    force: bool,
    /// No closing line
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let folder = &arguments.output;
    std::fs::create_dir_all(folder).map_err(|source| KeyError::Io { path: folder.clone(), source })?;
    let keys = OwnerKeys::generate(&mut os_rng());
    keys.save_all(folder, arguments.force)?;
    if !arguments.quiet {
        say(&format!("Key set {} is in {}: keep {OWNER_FILE} safe", keys.key_id(), folder.display()));
    }
    Ok(())
}
