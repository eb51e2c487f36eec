//! `veil recipient keygen`: a key that opens what is released to a recipient.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use veil_keys::{KeyError, RECIPIENT_PUBLIC_FILE, RecipientKey, os_rng};

use crate::Outcome;
use crate::progress::say;

/// Keys of those who receive anonymised data
#[derive(Args)]
#[command(after_help = "\
Example:
  veil recipient keygen -o alice/")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Keygen(Keygen),
}

/// Make a recipient's key: one file to keep, one for the data owner's policy
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil recipient keygen -o alice/
      alice/recipient.key  keep it: it opens what is released to alice
      alice/recipient.pub  for the data owner, who names it in a policy
  veil recipient keygen -o keys/ --name alice")]
struct Keygen {
    /// The folder to write to
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// The recipient's name in the policy; the folder's name if not given
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Replace an existing key. What was released to it can no longer be opened unless you kept a copy
    #[arg(long)]
    force: bool,
    /// No closing line
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let Command::Keygen(arguments) = &arguments.command;
    let folder = &arguments.output;
    let name = arguments.name.clone().unwrap_or_else(|| folder_name(folder));
    let key = RecipientKey::generate(&name, &mut os_rng())?;
    std::fs::create_dir_all(folder).map_err(|source| KeyError::Io { path: folder.clone(), source })?;
    key.save(folder, arguments.force)?;
    if !arguments.quiet {
        let file = folder.join(RECIPIENT_PUBLIC_FILE);
        say(&format!("The key of {name} is in {}: give the data owner {}", folder.display(), file.display()));
    }
    Ok(())
}

fn folder_name(folder: &Path) -> String {
    // `.` has a name only once it is written out.
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    absolute.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
