//! `veil inspect`: what anyone may know about an encrypted file.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use veil_owner::{ColumnInspection, Inspection, inspect_file};
use veil_privacy::SpentEpsilon;

use crate::Outcome;
use crate::progress::RunProgress;

/// Show columns, widths, cell sizes, keys and chunks of an encrypted file; never a value
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil inspect patients.veil.parquet
  veil inspect patients.veil.parquet --json")]
pub(crate) struct Arguments {
    /// The encrypted file: .parquet or .arrow
    data: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let progress = RunProgress::new("Inspecting", arguments.quiet);
    let inspection = inspect_file(&arguments.data, &|step| progress.watch(step))?;
    progress.clear();
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&inspection)?,
        false => describe(&inspection)?,
    };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// What a table's column shows of a file's column.
type Show = fn(&ColumnInspection) -> String;

/// The inspection as a table.
pub(crate) fn describe(inspection: &Inspection) -> Result<String, arrow::error::ArrowError> {
    let columns: [(&str, Show); 11] = [
        ("column", |column| column.name.clone()),
        ("kind", |column| match column.encrypted {
            true => column.kind.clone(),
            false => format!("clear ({})", column.kind),
        }),
        ("bits", |column| column.cell_type.as_ref().map_or(String::new(), |of| of.width.bits().to_string())),
        ("lanes", |column| column.cell_type.as_ref().map_or(String::new(), |of| of.cell_lanes().total().to_string())),
        ("tag", |column| column.cell_type.as_ref().map_or("", |of| if of.tag { "yes" } else { "no" }).to_owned()),
        ("nulls", |column| match column.cell_type.as_ref().map(|of| of.cell_lanes().nulls) {
            Some(true) => "hidden".to_owned(),
            Some(false) => column.nulls.to_string(),
            None => String::new(),
        }),
        ("chunks", |column| if column.encrypted { column.chunks.to_string() } else { String::new() }),
        ("Arrow B", |column| if column.encrypted { format!("{:.1}", column.arrow_bytes) } else { String::new() }),
        ("file B", |column| column.parquet_bytes.map_or(String::new(), |bytes| format!("{bytes:.1}"))),
        ("noise", |column| match column.encrypted {
            true => format!("{:.2}%", 100.0 * column.noise as f64 / column.noise_limit as f64),
            false => String::new(),
        }),
        ("epsilon", |column| match column.cell_type.as_ref() {
            Some(of) if of.spent > 0 => {
                let mut spent = SpentEpsilon::from_millionths(of.spent).to_string();
                if of.mixed {
                    spent.push_str(", not in all rows");
                }
                if of.awaits.is_empty() { spent } else { format!("{spent}, awaits P2's noise") }
            }
            _ => String::new(),
        }),
    ];
    let table = columns.map(|(name, show)| {
        let values: StringArray = inspection.columns.iter().map(|column| Some(show(column))).collect();
        (name, Arc::new(values) as ArrayRef)
    });
    let mut text = format!(
        "{} rows, {}, cell format {}\n{}",
        HumanCount(inspection.rows),
        HumanBytes(inspection.file_bytes),
        inspection.cell_version,
        pretty_format_batches(&[RecordBatch::try_from_iter(table)?])?
    );
    let mut keys: Vec<String> =
        inspection.columns.iter().filter_map(|column| Some(column.cell_type.as_ref()?.key.to_string())).collect();
    keys.sort();
    keys.dedup();
    if !keys.is_empty() {
        text.push_str(&format!("\nkey set: {}", keys.join(", ")));
    }
    for table in &inspection.side_tables {
        text.push_str(&format!("\nside table {}: {} entries", table.name, HumanCount(table.entries as u64)));
    }
    Ok(text)
}
