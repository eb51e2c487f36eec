//! `veil demo`: the whole story on a generated sample, in one folder that can be looked at afterwards.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use arrow::util::pretty::pretty_format_batches;
use clap::Args;
use datafusion::prelude::SessionContext;
use veil_keys::{OwnerKeys, os_rng};
use veil_owner::{Declaration, Output, OwnerError, decrypt_file, encrypt_file, inspect_file, unwatched};
use veil_planner::{Veil, veiled};

use crate::progress::RunProgress;
use crate::sql::engine::{be_p2, session};
use crate::{Outcome, inspect, sample};

/// Generate a sample of patients, encrypt it, mask it, add noise and k-anonymise it in SQL, decrypt, and compare
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil demo
  veil demo --rows 1000000 -o big-demo/")]
pub(crate) struct Arguments {
    /// Patients to generate
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..))]
    rows: u32,
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
    let clear = sample::patients(arguments.rows as usize, arguments.seed);
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

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let engine = runtime.block_on(engine(&keys, &encrypted))?;
    let found = runtime.block_on(query(&engine, IDENTIFIERS))?;
    story.tell(
        "4. The engine finds out which columns identify people, without seeing any; the key holder answers in rounds",
        &encrypted,
    )?;
    story.quote(&format!("{IDENTIFIERS};\n\n{found}"), usize::MAX)?;

    let masked = folder.join("masked.veil.parquet");
    runtime.block_on(copy(&engine, MASKED, &masked))?;
    let shown = runtime.block_on(query(&engine, &format!("{MASKED} LIMIT 2")))?;
    story.tell("5. It masks and adds noise in SQL", &masked)?;
    story.quote(&format!("{MASKED};\n\n{shown}"), usize::MAX)?;

    let clear_masked = folder.join("masked.csv");
    let output = Output { path: clear_masked.clone(), force: arguments.force };
    decrypt_file(&masked, &keys, &output, &unwatched)?;
    story.tell("6. The owner looks at what came out: other names, moved dates, costs with noise", &clear_masked)?;
    story.quote(&read(&clear_masked)?, 4)?;

    let file = folder.join("anon.veil.parquet");
    let k = (arguments.rows as usize / 2).clamp(2, 10);
    let sql = anonymised(k);
    // Those of the search are told with it, or not at all.
    engine.veil.take_notes();
    runtime.block_on(copy(&engine, &sql, &file))?;
    let notes = engine.veil.take_notes().join("\n");
    story.tell(&format!("7. It makes rows alike, {k} by {k} or more, and does not see which"), &file)?;
    story.quote(&format!("{sql};\n\n{notes}"), usize::MAX)?;

    let clear_file = folder.join("anon.csv");
    let output = Output { path: clear_file.clone(), force: arguments.force };
    decrypt_file(&file, &keys, &output, &unwatched)?;
    story.tell(&format!("8. In what the owner decrypts, everybody is one of at least {k}"), &clear_file)?;
    story.quote(&read(&clear_file)?, 4)?;

    let back = folder.join("back.csv");
    let output = Output { path: back.clone(), force: arguments.force };
    let progress = RunProgress::new("Decrypting", arguments.quiet);
    decrypt_file(&encrypted, &keys, &output, &|step| progress.watch(step))?;
    progress.clear();
    story.tell("9. Only the owner's keys bring the true values back", &back)?;
    let decrypted = read(&back)?;
    if decrypted != clear {
        return Err("the decrypted table is not the original one; please report this".into());
    }
    story.quote(&format!("{} rows came back to the byte.", arguments.rows), 1)
}

/// What a hospital might hand on.
const MASKED: &str = "\
SELECT mask_dictionary(name, 'names') AS name, mask_shift(born, 30) AS born, mask_random(zip, 10000, 99999) AS zip,
       dp_exponential(diagnosis, 2.0) AS diagnosis, dp_binary(smoker, 1.0) AS smoker, dp_laplace(cost, 1.0) AS cost, region
FROM patients WHERE region = 'north'";

/// Which columns identify one in fewer than five people.
const IDENTIFIERS: &str = "SELECT columns, kind, rows_at_risk FROM identifiers(patients, k => 5, rows_at_risk => true)";

/// Rows of which each is like k - 1 others.
fn anonymised(k: usize) -> String {
    format!(
        "\
SELECT born, sex, zip, diagnosis, cost, suppressed
FROM k_anonymize((SELECT * FROM patients LIMIT 1000), k => {k}, quasi => (born, sex, zip, diagnosis), rounds => 3, suppress => 0.02)"
    )
}

/// A session with both servers in this process.
struct Engine {
    veil: Veil,
    context: SessionContext,
}

/// With the encrypted file as its table.
async fn engine(keys: &OwnerKeys, encrypted: &Path) -> Result<Engine, Box<dyn std::error::Error>> {
    let veil = Veil::default();
    veil.add_key(keys.key_id(), keys.p1().public_key().clone()).await;
    be_p2(&veil, keys.p2()).await;
    let context = session(&veil);
    let table = format!("CREATE EXTERNAL TABLE patients STORED AS PARQUET LOCATION '{}'", quoted(encrypted));
    context.sql(&table).await?;
    Ok(Engine { veil, context })
}

/// Rows as the engine sees them.
async fn query(engine: &Engine, sql: &str) -> Result<String, Box<dyn std::error::Error>> {
    let rows = engine.context.sql(sql).await?.collect().await?;
    let rows = rows.iter().map(veiled).collect::<Result<Vec<_>, _>>()?;
    Ok(pretty_format_batches(&rows)?.to_string())
}

/// Writes the rows of a query to a file.
async fn copy(engine: &Engine, sql: &str, file: &Path) -> Outcome {
    if file.exists() {
        fs::remove_file(file)?;
    }
    engine.context.sql(&format!("COPY ({sql}) TO '{}'", quoted(file))).await?.collect().await?;
    Ok(())
}

/// A path in SQL.
fn quoted(path: &Path) -> String {
    path.display().to_string().replace('\'', "''")
}

fn read(file: &Path) -> Result<String, OwnerError> {
    fs::read_to_string(file).map_err(|source| OwnerError::Io { file: file.to_owned(), source })
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
