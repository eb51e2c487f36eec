//! `veil demo`: the whole story on a generated sample, in one folder that can be looked at afterwards.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use veil_keys::{OwnerKeys, os_rng};
use veil_owner::{Declaration, Output, OwnerError, decrypt_file, encrypt_file, inspect_file, unwatched};

use crate::progress::RunProgress;
use crate::{Outcome, inspect, sample};

/// Generate a sample of patients, encrypt it, look at it, decrypt it, and compare
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil demo
  veil demo --rows 1000000 -o big-demo/")]
pub(crate) struct Arguments {
    /// Patients to generate
    #[arg(long, default_value_t = 10_000)]
    rows: usize,
    /// The folder to work in
    #[arg(short, long, value_name = "FOLDER", default_value = "veil-demo")]
    output: PathBuf,
    /// Seed of the sample
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Replace what an earlier demo left
    #[arg(long)]
    force: bool,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let folder = &arguments.output;
    if folder.exists() && !arguments.force {
        return Err(OwnerError::Exists(folder.clone()).into());
    }
    let keys_folder = folder.join("keys");
    fs::create_dir_all(&keys_folder).map_err(|source| OwnerError::Io { file: folder.clone(), source })?;
    let mut story = Story(std::io::stdout());

    let (data, toml) = (folder.join("patients.csv"), folder.join("patients.toml"));
    let clear = sample::patients(arguments.rows, arguments.seed);
    write(&data, &clear)?;
    write(&toml, sample::DECLARATION)?;
    write(&folder.join("diagnosis.csv"), &sample::diagnosis_hierarchy())?;
    write(&folder.join("names.txt"), &sample::names())?;
    story.tell("1. The owner has a table of patients and declares what its columns are", &data)?;
    story.quote(&clear, 4)?;

    let keys = OwnerKeys::generate(&mut os_rng());
    keys.save_all(&keys_folder, arguments.force)?;
    story.tell("2. The owner makes keys: everything for itself, nothing secret for the engine", &keys_folder)?;

    let encrypted = folder.join("patients.veil.parquet");
    let output = Output { path: encrypted.clone(), force: arguments.force };
    let progress = RunProgress::new("Encrypting", arguments.quiet);
    let declaration = Declaration::load(&toml)?;
    encrypt_file(&data, &declaration, &keys, &output, &mut os_rng(), &|step| progress.watch(step))?;
    progress.clear();
    story.tell("3. The owner encrypts; this file may go to a cloud that nobody trusts", &encrypted)?;
    let inspection = inspect_file(&encrypted, &unwatched)?;
    story.quote(&inspect::describe(&inspection)?, usize::MAX)?;

    let back = folder.join("back.csv");
    let output = Output { path: back.clone(), force: arguments.force };
    let progress = RunProgress::new("Decrypting", arguments.quiet);
    decrypt_file(&encrypted, &keys, &output, &|step| progress.watch(step))?;
    progress.clear();
    story.tell("4. Only the owner's keys bring the values back", &back)?;
    let decrypted = fs::read_to_string(&back).map_err(|source| OwnerError::Io { file: back, source })?;
    if decrypted != clear {
        return Err("the decrypted table is not the original one; please report this".into());
    }
    story.quote(&format!("{} rows came back to the byte.", arguments.rows), 1)
}

struct Story(std::io::Stdout);

impl Story {
    fn tell(&mut self, sentence: &str, place: &Path) -> Outcome {
        Ok(writeln!(self.0, "\n{sentence}\n   {}\n", place.display())?)
    }

    fn quote(&mut self, text: &str, lines: usize) -> Outcome {
        for line in text.lines().take(lines) {
            writeln!(self.0, "   {line}")?;
        }
        Ok(())
    }
}

fn write(file: &Path, text: &str) -> Outcome {
    Ok(fs::write(file, text).map_err(|source| OwnerError::Io { file: file.to_owned(), source })?)
}
