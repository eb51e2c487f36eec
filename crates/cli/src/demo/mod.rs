//! `veil demo`: the whole story on a sample or on a file, with three parties that are real.
//!
//! The process that the user starts plays the owner and the recipient; P1 and P2 are processes of their own on this machine, each in a folder
//! with what it may have. What is printed is what runs: commands as commands of this program, statements as P1 gets them over Flight SQL.
//!
//! ```text
//!  patients      people who never lived                 story      chapters, tables, what each party saw
//!  dataset       which columns play which part          commands   this program, run as somebody types it
//!  folder        the folder, and what is in it          parties    P1 and P2, and the ways to them
//!  table         text tables                            steward    the owner's client of P1
//!  canaries      words that must stand nowhere          wire       what passes between processes, counted and searched
//!  books         what a chapter cost                    waiting    a line while P1 works
//!  followed      three people, before and after         report     `veil report` at the end
//!
//!  chapter_1_data, .._2_encrypt, .._3_servers, .._4_identifiers, .._5_mask, .._6_k_anonymize, .._7_assess, .._8_release, .._9_proof
//! ```

mod books;
mod canaries;
mod chapter_1_data;
mod chapter_2_encrypt;
mod chapter_3_servers;
mod chapter_4_identifiers;
mod chapter_5_mask;
mod chapter_6_k_anonymize;
mod chapter_7_assess;
mod chapter_8_release;
mod chapter_9_proof;
mod commands;
mod dataset;
mod folder;
mod followed;
mod parties;
mod patients;
mod report;
mod rules;
mod steward;
mod story;
mod table;
mod waiting;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use indicatif::HumanCount;

use self::commands::{Program, Ran};
use self::dataset::{Dataset, ROWS_OF_A_FILE, STUDY};
use self::story::Story;
use crate::Outcome;
use crate::progress::is_interrupted;

/// See it work: a sample of patients is encrypted, searched for identifiers, masked, k-anonymised, assessed and released
///
/// Two servers are started on this machine: P1 with the encrypted data and no key, P2 with the keys and no data. Each step is told with
/// its SQL, what each server saw of it, what the recipient got, and what it took; everything is left in a folder to look at.
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil demo
  veil demo --rows 1000 --k 5
  veil demo --data people.csv -o people-demo/
      the same with a table of yours, of which the first 1,000 rows are taken; its declaration is drafted, so
      that columns may play other parts than you would give them
  veil demo --force > story.txt
      once more, without colours")]
pub(crate) struct Arguments {
    /// Patients to generate, or rows to take of --data [default: 10000, of --data 1000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(4..=1_000_000))]
    rows: Option<u32>,
    /// How many rows shall be alike [default: 10, or half of the rows]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    k: Option<u32>,
    /// A table of yours instead of the sample: .csv, with a header
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// The folder to work in
    #[arg(short, long, visible_alias = "dir", value_name = "FOLDER", default_value = "veil-demo")]
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

/// What all chapters share.
struct Scene {
    story: Story,
    program: Program,
    folder: PathBuf,
    data: Dataset,
    k: usize,
    quiet: bool,
    started: Instant,
}

type Failure = Box<dyn std::error::Error>;

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let started = Instant::now();
    // Before anything is made or replaced: a mistake leaves all as it was.
    let (rows, own) = match &arguments.data {
        Some(file) => {
            folder::keep_out(&arguments.output, file)?;
            let (clear, more) = dataset::read(file, arguments.rows.unwrap_or(ROWS_OF_A_FILE) as usize)?;
            (clear.rows.len(), Some((file, clear, more)))
        }
        None => (arguments.rows.unwrap_or(10_000) as usize, None),
    };
    let study = rows.min(STUDY);
    let k = arguments.k.map_or((study / 2).clamp(2, 10), |k| k as usize);
    if k > study {
        let study = HumanCount(study as u64);
        return Err(format!("{k} rows cannot be alike among {study}: give a smaller --k, or more rows").into());
    }
    let begun = folder::Begun::new(&arguments.output, arguments.force)?;
    let cut = own.as_ref().and_then(|&(file, _, more)| more.then_some(file.as_path()));
    let data = match own {
        Some((file, clear, _)) => Dataset::of_file(begun.path(), file, clear)?,
        None => Dataset::sample(begun.path(), rows, arguments.seed)?,
    };
    let folder = begun.put()?;
    let program = Program::new(&folder, arguments.quiet)?;
    let scene = &mut Scene { story: Story::new(), program, folder, data, k, quiet: arguments.quiet, started };
    // Ctrl-C ends commands and servers too, and each has its own word for that.
    play(scene, cut).map_err(|error| match is_interrupted() {
        true => format!("cancelled; {} has what was made until then: --force replaces it", scene.shown("")).into(),
        false => error,
    })
}

/// All chapters.
fn play(scene: &mut Scene, cut: Option<&Path>) -> Outcome {
    chapter_1_data::tell(scene, cut)?;
    let keys = chapter_2_encrypt::tell(scene)?;
    let mut parties = chapter_3_servers::tell(scene, &keys)?;
    chapter_4_identifiers::tell(scene, &mut parties)?;
    chapter_5_mask::tell(scene, &mut parties)?;
    let anonymised = chapter_6_k_anonymize::tell(scene, &mut parties)?;
    chapter_7_assess::tell(scene, &mut parties, &anonymised)?;
    let released = chapter_8_release::tell(scene, &mut parties, &anonymised)?;
    let report = report::make(scene, &parties)?;
    chapter_9_proof::tell(scene, parties, &anonymised, &released, &report)
}

impl Scene {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A command of this program, shown and run in the demo's folder; what it says is told.
    fn command(&mut self, words: &[&str]) -> Result<Ran, Failure> {
        self.story.command("", words)?;
        let ran = self.program.run(words)?.succeeded()?;
        self.story.printed(&ran.said)?;
        Ok(ran)
    }

    /// The folder as the user named it, for paths in the story.
    fn shown(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The table's encrypted file.
    fn encrypted(&self) -> String {
        format!("{}.veil.parquet", self.data.table)
    }
}

/// A sentence that ends the demo, because something is not as it must be.
fn broken(what: &str) -> Failure {
    format!("{what}; this should not happen, please report it").into()
}

/// Bytes as people compare them.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
