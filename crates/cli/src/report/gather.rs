//! Runs the questions of a report and puts the answers together.

use std::path::Path;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use datafusion::prelude::SessionContext;
use veil_planner::explain_error;
use veil_release::moment_now;

use super::ask::Asker;
use super::findings::{Both, Findings, Measure, Paper, SizeCount, SweepPoint, TableFile, VERSION};
use super::treatment::treatments;
use super::{Arguments, file_name};
use crate::sql::engine::Engine;
use crate::sql::tables::{NamedFile, quoted_name};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The tables of the session.
const ORIGINAL: &str = "original";
const ANONYMISED: &str = "anonymised";

/// Asks everything.
pub(super) async fn gather(arguments: &Arguments, engine: &Engine, manifest: Option<Paper>) -> Result<Findings> {
    let context = &engine.context;
    for (name, file) in [(ORIGINAL, &arguments.original), (ANONYMISED, &arguments.anonymised)] {
        NamedFile::new(name, file).register_as(&file.display().to_string(), context).await?;
    }
    let mut asker = Asker::new(engine, arguments.quiet);
    let population = arguments.population.map(|people| format!("population => {people}"));
    let named = (!arguments.quasi.is_empty()).then(|| quasi_argument(&arguments.quasi));

    // The anonymised table first: its types say which columns to look at in the original.
    let sql = call("risk", ANONYMISED, &[named.as_deref(), population.as_deref()]);
    let risk_after = measures(&asker.ask("risk(anonymised)", &sql).await?)?;
    let quasi = if arguments.quasi.is_empty() { asker.last_quasi() } else { arguments.quasi.clone() };
    let named = quasi_argument(&quasi);
    let named = Some(named.as_str());
    // What cannot be compared is refused before the rest is asked.
    let by_order = arguments.by_order.then_some("by_order => true");
    let sql = call("utility", &format!("{ORIGINAL}, {ANONYMISED}"), &[named, by_order]);
    let utility = measures(&asker.ask("utility(original, anonymised)", &sql).await?)?;
    let sql = call("risk", ORIGINAL, &[named, population.as_deref()]);
    let risk_before = measures(&asker.ask("risk(original)", &sql).await?)?;
    let sizes_after = sizes(&asker.ask("class_sizes(anonymised)", &call("class_sizes", ANONYMISED, &[named])).await?)?;
    let sizes_before = sizes(&asker.ask("class_sizes(original)", &call("class_sizes", ORIGINAL, &[named])).await?)?;
    let (sweep, sweep_settings) = match arguments.sweep.as_slice() {
        [] => (Vec::new(), None),
        all => {
            let listed = all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let (k, rounds) = (format!("k => ({listed})"), arguments.sweep_rounds.map(|of| format!("rounds => {of}")));
            let suppress = arguments.sweep_suppress.map(|share| format!("suppress => {share}"));
            let compared = arguments.sweep_comparison.as_ref().map(|how| format!("comparison => '{how}'"));
            let options = [Some(k.as_str()), rounds.as_deref(), suppress.as_deref(), compared.as_deref()];
            let options = [&[named], &options[..], &[population.as_deref()]].concat();
            let swept = swept(&asker.ask("sweep(original)", &call("sweep", ORIGINAL, &options)).await?)?;
            (swept, asker.last_settings())
        }
    };

    let (before, after) = (schema(context, ORIGINAL).await?, schema(context, ANONYMISED).await?);
    let Asker { runs, leakage, notes, .. } = asker;
    let original = table_file(context, ORIGINAL, &arguments.original).await?;
    let anonymised = table_file(context, ANONYMISED, &arguments.anonymised).await?;
    Ok(Findings {
        version: VERSION,
        title: arguments.title.clone().unwrap_or_else(|| "Anonymisation report".to_owned()),
        created: moment_now(),
        software: format!("veil {}", env!("CARGO_PKG_VERSION")),
        embedded: arguments.embedded_p2.is_some(),
        original,
        anonymised,
        quasi,
        population: arguments.population,
        columns: treatments(&before, &after)?,
        risk: Both { before: risk_before, after: risk_after },
        class_sizes: Both { before: sizes_before, after: sizes_after },
        utility,
        sweep,
        sweep_settings,
        leakage,
        runs,
        notes,
        manifest,
    })
}

/// `SELECT * FROM function(relation, a => .., b => ..)`
fn call(function: &str, relation: &str, options: &[Option<&str>]) -> String {
    let options: String = options.iter().flatten().map(|option| format!(", {option}")).collect();
    format!("SELECT * FROM {function}({relation}{options})")
}

fn quasi_argument(columns: &[String]) -> String {
    let names: Vec<String> = columns.iter().map(|name| quoted_name(name)).collect();
    format!("quasi => ({})", names.join(", "))
}

async fn schema(context: &SessionContext, table: &str) -> Result<datafusion::arrow::datatypes::Schema> {
    let table = context.table(table).await.map_err(|error| explain_error(&error))?;
    Ok(table.schema().as_arrow().clone())
}

async fn table_file(context: &SessionContext, table: &str, file: &Path) -> Result<TableFile> {
    let frame = context.table(table).await.map_err(|error| explain_error(&error))?;
    let rows = frame.count().await.map_err(|error| explain_error(&error))? as u64;
    let bytes = std::fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.len();
    Ok(TableFile { file: file_name(file), rows, bytes })
}

/// A column of a result by its name.
fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a dyn Array> {
    let found = batch.column_by_name(name).ok_or_else(|| format!("the engine's answer has no column {name}"))?;
    Ok(found.as_ref())
}

fn wrong_type(name: &str) -> String {
    format!("column {name} of the engine's answer has another type than expected")
}

fn measures(batches: &[RecordBatch]) -> Result<Vec<Measure>> {
    let mut all = Vec::new();
    for batch in batches {
        let text = |name: &str| -> Result<Vec<Option<String>>> {
            let column = column(batch, name)?.as_string_opt::<i32>().ok_or_else(|| wrong_type(name))?;
            Ok(column.iter().map(|text| text.map(str::to_owned)).collect())
        };
        let values =
            column(batch, "value")?.as_primitive_opt::<Float64Type>().ok_or_else(|| wrong_type("value"))?.iter();
        let texts = text("measure")?.into_iter().zip(text("column_name")?).zip(text("meaning")?);
        all.extend(texts.zip(values).map(|(((measure, column), meaning), value)| Measure {
            measure: measure.unwrap_or_default(),
            column,
            value: value.filter(|value| value.is_finite()),
            meaning: meaning.unwrap_or_default(),
        }));
    }
    Ok(all)
}

fn whole_numbers(batch: &RecordBatch, name: &str) -> Result<Vec<u64>> {
    let column = column(batch, name)?.as_primitive_opt::<Int64Type>().ok_or_else(|| wrong_type(name))?;
    Ok(column.values().iter().map(|number| u64::try_from(*number).unwrap_or(0)).collect())
}

fn sizes(batches: &[RecordBatch]) -> Result<Vec<SizeCount>> {
    let mut all = Vec::new();
    for batch in batches {
        let counts = whole_numbers(batch, "size")?.into_iter().zip(whole_numbers(batch, "classes")?);
        all.extend(counts.map(|(size, classes)| SizeCount { size, classes }));
    }
    Ok(all)
}

fn swept(batches: &[RecordBatch]) -> Result<Vec<SweepPoint>> {
    let mut all = Vec::new();
    for batch in batches {
        for (row, k) in whole_numbers(batch, "k")?.into_iter().enumerate() {
            let mut measures = Vec::new();
            for (field, values) in batch.schema().fields().iter().zip(batch.columns()) {
                if let Some(values) = values.as_primitive_opt::<Float64Type>() {
                    let value = values.is_valid(row).then(|| values.value(row)).filter(|value| value.is_finite());
                    measures.push((field.name().clone(), value));
                }
            }
            all.push(SweepPoint { k, measures });
        }
    }
    all.sort_by_key(|point| point.k);
    Ok(all)
}
