//! Commands that begin with a backslash.

use std::io::Write;
use std::sync::Arc;

use clap::ValueEnum;
use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::TableReference;
use datafusion::logical_expr::Documentation;
use datafusion::prelude::SessionContext;
use veil_cells::CellType;
use veil_planner::{documented, explain_error, function_table};
use veil_privacy::SpentEpsilon;

use super::print::{Format, show};
use super::runner::Runner;
use super::tables::quoted_name;
use crate::progress::say;

/// What a command leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    Leave,
}

/// Commands by name, with what they do.
pub(crate) const COMMANDS: [(&str, &str, &str); 7] = [
    ("d", "[TABLE]", "tables, or the columns of one"),
    ("f", "[FUNCTION]", "functions on encrypted columns, or what one does"),
    ("format", "[NAME]", "how results are shown: table, csv, tsv, json, nd-json, automatic"),
    ("timing", "", "the line with rows and seconds, on or off"),
    ("?", "", "this list"),
    ("q", "", "leave; Ctrl-D does too"),
    ("quit", "", "the same"),
];

pub(crate) async fn run(runner: &mut Runner, command: &str) -> Result<Next, String> {
    let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let context = &runner.engine.context;
    match (name, argument.trim()) {
        ("q" | "quit", "") => return Ok(Next::Leave),
        ("?" | "h" | "help", "") => write(&help())?,
        ("d", "") => show_table(context, tables(context).await)?,
        ("d", name) => show_table(context, columns(context, name).await?)?,
        ("f", "") => list_functions(runner)?,
        ("f", name) => write(&function(runner, name)?)?,
        ("format", "") => write(&format!("{}\n", format_name(runner.format)))?,
        ("format", name) => {
            runner.format = Format::from_str(name, true).map_err(|_| {
                let known: Vec<String> = Format::value_variants().iter().map(|format| format_name(*format)).collect();
                format!("there is no format {name}: take {}", known.join(", "))
            })?;
        }
        ("timing", "") => {
            runner.timing = !runner.timing;
            say(&format!("timing is {}", if runner.timing { "on" } else { "off" }));
        }
        _ => return Err(format!("\\{command} is no command: \\? lists them")),
    }
    Ok(Next::Stay)
}

fn write(text: &str) -> Result<(), String> {
    write!(std::io::stdout(), "{text}").map_err(|error| error.to_string())
}

fn show_table(context: &SessionContext, table: RecordBatch) -> Result<(), String> {
    show(&[table], &context.state().config_options().format)
}

fn format_name(format: Format) -> String {
    format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn help() -> String {
    let mut text = String::new();
    for (name, argument, what) in COMMANDS {
        text += &format!("  {:<22} {what}\n", format!("\\{name} {argument}"));
    }
    text + "Statements end with a semicolon; Ctrl-C cancels the one that runs. SET veil.noise, veil.batch_rows, veil.p2 change \
            settings; Tab completes.\n"
}

/// Columns of text under titles.
fn text_table<const N: usize>(titles: [&str; N], rows: Vec<[String; N]>) -> RecordBatch {
    let column = |at: usize| -> ArrayRef { Arc::new(rows.iter().map(|row| Some(&row[at])).collect::<StringArray>()) };
    let columns = titles.iter().enumerate().map(|(at, title)| (*title, column(at)));
    // Columns of one length and one type always make a batch.
    RecordBatch::try_from_iter(columns).unwrap_or_else(|_| RecordBatch::new_empty(Arc::new(Schema::empty())))
}

/// Names and schemas of the tables, without the catalogue's own.
pub(crate) async fn table_schemas(context: &SessionContext) -> Vec<(TableReference, Arc<Schema>)> {
    let mut found = Vec::new();
    for catalog_name in context.catalog_names() {
        let Some(catalog) = context.catalog(&catalog_name) else { continue };
        for schema_name in catalog.schema_names().into_iter().filter(|name| name != "information_schema") {
            let Some(schema) = catalog.schema(&schema_name) else { continue };
            for name in schema.table_names() {
                if let Ok(Some(table)) = schema.table(&name).await {
                    let reference = match schema_name.as_str() {
                        "public" => TableReference::bare(name),
                        _ => TableReference::partial(schema_name.clone(), name),
                    };
                    found.push((reference, table.schema()));
                }
            }
        }
    }
    found.sort_by_key(|(name, _)| name.to_string());
    found
}

async fn tables(context: &SessionContext) -> RecordBatch {
    let rows = table_schemas(context).await.into_iter().map(|(name, schema)| {
        let encrypted = schema.fields().iter().filter(|field| !matches!(CellType::of_field(field), Ok(None))).count();
        [name.to_string(), schema.fields().len().to_string(), encrypted.to_string()]
    });
    text_table(["table", "columns", "encrypted"], rows.collect())
}

async fn columns(context: &SessionContext, name: &str) -> Result<RecordBatch, String> {
    // As SQL reads it; and if that is nothing, as it is written.
    let frame = match context.table(name).await {
        Ok(frame) => frame,
        Err(error) => match context.table(TableReference::bare(name)).await {
            Ok(frame) => frame,
            Err(_) => return Err(explain_error(&error)),
        },
    };
    let rows = frame.schema().fields().iter().map(|field| column(field));
    Ok(text_table(["column", "type", "width", "NULLs", "epsilon"], rows.collect()))
}

/// A column as a person would describe it.
fn column(field: &Field) -> [String; 5] {
    let cell_type = match CellType::of_field(field) {
        Ok(Some(cell_type)) => cell_type,
        Ok(None) => {
            let nulls = if field.is_nullable() { "yes" } else { "no" };
            return [
                field.name().clone(),
                field.data_type().to_string(),
                String::new(),
                nulls.to_owned(),
                String::new(),
            ];
        }
        Err(error) => {
            let what = format!("encrypted, not readable: {error}");
            return [field.name().clone(), what, String::new(), String::new(), String::new()];
        }
    };
    let lanes = match cell_type.lanes {
        1 => String::new(),
        lanes => format!(", {lanes} lanes"),
    };
    let mut noise = Vec::new();
    if cell_type.spent > 0 {
        noise.push(SpentEpsilon::from_millionths(cell_type.spent).to_string());
    }
    if cell_type.mixed {
        noise.push("not in all rows".to_owned());
    }
    if !cell_type.awaits.is_empty() {
        noise.push("awaits P2's noise".to_owned());
    }
    [
        field.name().clone(),
        format!("encrypted {}", cell_type.kind),
        format!("{} bits{lanes}", cell_type.width.bits()),
        if cell_type.cell_lanes().nulls { "hidden" } else { "yes" }.to_owned(),
        noise.join(", "),
    ]
}

/// Ours alone: DataFusion's own are in `SHOW FUNCTIONS`.
fn list_functions(runner: &Runner) -> Result<(), String> {
    let table = function_table(&runner.engine.veil).map_err(|error| explain_error(&error))?;
    let names =
        table.column_by_name("name").zip(table.column_by_name("syntax")).zip(table.column_by_name("description"));
    let Some(((names, syntaxes), descriptions)) = names else { return Ok(()) };
    let text = |column: &ArrayRef| -> Vec<String> {
        use datafusion::arrow::array::AsArray;
        column.as_string::<i32>().iter().map(|value| value.unwrap_or_default().to_owned()).collect()
    };
    let rows = text(names).into_iter().zip(text(syntaxes)).zip(text(descriptions));
    let rows = rows.map(|((name, syntax), description)| [name, syntax, first_sentence(&description)]).collect();
    show_table(&runner.engine.context, text_table(["function", "syntax", "what it does"], rows))?;
    write("\\f NAME tells more; SHOW FUNCTIONS lists DataFusion's own too.\n")
}

fn first_sentence(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.split_once(". ").map_or(line, |(first, _)| first).trim_end_matches('.').to_owned()
}

/// What a function does, from its documentation.
fn function(runner: &Runner, name: &str) -> Result<String, String> {
    let state = runner.engine.context.state();
    let name = name.trim_end_matches("()").to_lowercase();
    let ours = documented(&runner.engine.veil).into_iter().find(|(other, _)| *other == name);
    let documentation = (ours.as_ref().map(|(_, documentation)| documentation))
        .or_else(|| state.scalar_functions().get(&name).and_then(|function| function.documentation()))
        .or_else(|| state.aggregate_functions().get(&name).and_then(|function| function.documentation()))
        .or_else(|| state.window_functions().get(&name).and_then(|function| function.documentation()));
    match documentation {
        Some(documentation) => Ok(describe(documentation)),
        None => Err(format!(
            "there is no function {} that is documented: \\f lists ours, SHOW FUNCTIONS all",
            quoted_name(&name)
        )),
    }
}

fn describe(documentation: &Documentation) -> String {
    let mut text = format!("{}\n\n{}\n", documentation.syntax_example, indented(&documentation.description));
    if let Some(arguments) = documentation.arguments.as_ref().filter(|arguments| !arguments.is_empty()) {
        text += "\nArguments\n";
        for (name, what) in arguments {
            text += &format!("  {name:<14} {what}\n");
        }
    }
    if let Some(example) = &documentation.sql_example {
        text += &format!("\nExample\n{}\n", indented(example));
    }
    text
}

/// Without the marks of code that stand in documentation for the web.
fn indented(text: &str) -> String {
    let lines = text.trim().lines().filter(|line| !line.trim_start().starts_with("```"));
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
