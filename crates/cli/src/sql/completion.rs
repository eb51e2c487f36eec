//! What Tab offers: columns, our functions, tables, keywords, then DataFusion's functions.

use datafusion::prelude::SessionContext;
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::commands::{COMMANDS, table_schemas};
use super::engine::Engine;
use super::tables::quoted_name;

const KEYWORDS: [&str; 83] = [
    "ALL",
    "ANALYZE",
    "AND",
    "ARROW",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COPY",
    "CREATE",
    "CROSS",
    "CSV",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTERNAL",
    "FALSE",
    "FILTER",
    "FIRST",
    "FROM",
    "FULL",
    "FUNCTIONS",
    "GROUP",
    "HAVING",
    "IF",
    "IN",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTO",
    "IS",
    "JOIN",
    "LAST",
    "LEFT",
    "LIKE",
    "LIMIT",
    "LOCATION",
    "NATURAL",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OPTIONS",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARQUET",
    "PARTITION",
    "PARTITIONED",
    "REPLACE",
    "RESET",
    "RIGHT",
    "SELECT",
    "SET",
    "SHOW",
    "STORED",
    "TABLE",
    "TABLES",
    "THEN",
    "TO",
    "TRUE",
    "UNION",
    "UNNEST",
    "USING",
    "VALUES",
    "VERBOSE",
    "VIEW",
    "WHEN",
    "WHERE",
    "WINDOW",
    "WITH",
    "WITHIN",
];

/// Words after which a table comes.
const BEFORE_TABLES: [&str; 6] = ["from", "join", "into", "table", "describe", "view"];

/// Every name that a session knows.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) tables: Vec<(String, Vec<String>)>,
    pub(crate) ours: Vec<String>,
    pub(crate) others: Vec<String>,
    pub(crate) settings: Vec<String>,
}

impl Names {
    pub(crate) async fn of(engine: &Engine) -> Self {
        let tables = table_schemas(&engine.context).await.into_iter().map(|(name, schema)| {
            (name.table().to_owned(), schema.fields().iter().map(|field| field.name().clone()).collect())
        });
        let (ours, others) = functions(&engine.context);
        let entries = engine.context.state().config_options().entries();
        let mut settings: Vec<String> = entries.into_iter().map(|entry| entry.key).collect();
        settings.sort_by_key(|setting| (!setting.starts_with("veil."), setting.clone()));
        Self { tables: tables.collect(), ours, others, settings }
    }

    /// Where the word at the cursor begins, and what it may become.
    pub(crate) fn candidates(&self, line: &str, position: usize) -> (usize, Vec<String>) {
        let before = line.get(..position).unwrap_or(line);
        let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        if let Some(command) = before.strip_prefix('\\') {
            return self.after_backslash(command);
        }
        let word = before.trim_end_matches(in_word).len();
        let (word, prefix) = match before[..word].strip_suffix('"') {
            Some(rest) if rest.matches('"').count() % 2 == 0 => (rest.len(), &before[rest.len()..]),
            _ => (word, &before[word..]),
        };
        // The names of settings have dots.
        let dotted = before.trim_end_matches(|letter| in_word(letter) || letter == '.').len();
        let last = before[..dotted].split_whitespace().next_back().unwrap_or_default().to_lowercase();
        if ["set", "reset", "show"].contains(&last.as_str()) {
            let written = &before[dotted..];
            let mut found = matching(self.settings.iter().cloned(), written);
            found.extend(matching(keywords(written), written));
            return (dotted, found);
        }
        if let Some(table) = before[..word].strip_suffix('.') {
            let start = table.trim_end_matches(in_word).len();
            let columns = self.tables.iter().filter(|(name, _)| name.eq_ignore_ascii_case(&table[start..]));
            let columns = columns.flat_map(|(_, columns)| columns).map(|name| identifier(name));
            return (word, matching(columns, prefix));
        }
        let tables = self.tables.iter().map(|(name, _)| identifier(name));
        if BEFORE_TABLES.contains(&last.as_str()) {
            return (word, matching(tables, prefix));
        }
        let columns = self.tables.iter().flat_map(|(_, columns)| columns).map(|name| identifier(name));
        let functions = |names: &[String]| names.iter().map(|name| format!("{name}(")).collect::<Vec<_>>();
        let all =
            columns.chain(functions(&self.ours)).chain(tables).chain(keywords(prefix)).chain(functions(&self.others));
        // Everything at once helps nobody.
        let found = if prefix.is_empty() { Vec::new() } else { matching(all, prefix) };
        (word, found)
    }

    fn after_backslash(&self, command: &str) -> (usize, Vec<String>) {
        let Some((name, argument)) = command.split_once(' ') else {
            let commands = COMMANDS.iter().map(|(name, ..)| (*name).to_owned());
            return (1, matching(commands, command));
        };
        let start = 1 + name.len() + 1;
        let found = match name {
            "d" => matching(self.tables.iter().map(|(name, _)| identifier(name)), argument),
            "f" => matching(self.ours.iter().chain(&self.others).cloned(), argument),
            "format" => {
                let formats = ["table", "csv", "tsv", "json", "nd-json", "automatic"];
                matching(formats.map(str::to_owned).into_iter(), argument)
            }
            _ => Vec::new(),
        };
        (start, found)
    }
}

/// Ours, and DataFusion's.
fn functions(context: &SessionContext) -> (Vec<String>, Vec<String>) {
    let state = context.state();
    let names = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
    let mut names: Vec<String> = names.chain(state.window_functions().keys()).cloned().collect();
    names.extend(state.table_functions().keys().cloned());
    names.sort();
    names.dedup();
    let is_ours = |name: &String| ["mask_", "dp_", "enc_", "veil_"].iter().any(|start| name.starts_with(start));
    names.into_iter().partition(is_ours)
}

/// In capitals, unless the user writes small letters.
/// Whether a name would be read as a word of SQL.
pub(crate) fn is_keyword(name: &str) -> bool {
    KEYWORDS.iter().any(|word| word.eq_ignore_ascii_case(name))
}

fn keywords(prefix: &str) -> impl Iterator<Item = String> {
    let small = prefix.chars().any(char::is_lowercase);
    KEYWORDS.into_iter().map(move |word| if small { word.to_lowercase() } else { word.to_owned() })
}

/// A name as SQL wants it: in quotes unless it is plain.
pub(crate) fn identifier(name: &str) -> String {
    let plain = name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    match plain && !name.starts_with(|letter: char| letter.is_ascii_digit()) {
        true => name.to_owned(),
        false => quoted_name(name),
    }
}

/// Those that begin with the prefix, in their order, each once.
fn matching(names: impl Iterator<Item = String>, prefix: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let (prefix, quoted) = (prefix.to_lowercase(), prefix.starts_with('"'));
    for name in names {
        let text = name.to_lowercase();
        let fits = text.starts_with(&prefix)
            || !quoted && text.strip_prefix('"').is_some_and(|text| text.starts_with(&prefix));
        if fits && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

impl Completer for Names {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.candidates(line, position))
    }
}

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}

impl Validator for Names {}

impl Helper for Names {}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(line: &str) -> Vec<String> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let known = Names {
            tables: vec![
                ("patients".to_owned(), names(&["age", "name", "Zip Code"])),
                ("My Visits".to_owned(), names(&["age", "day"])),
            ],
            ours: names(&["dp_laplace", "enc_avg", "mask_noise", "mask_shift"]),
            others: names(&["abs", "avg", "max"]),
            settings: names(&["veil.noise", "veil.p2", "datafusion.format.null"]),
        };
        let (start, found) = known.candidates(line, line.len());
        found.into_iter().map(|name| line[..start].to_owned() + &name).collect()
    }

    #[test]
    fn ours_come_before_datafusions() {
        assert_eq!(offered("SELECT ma"), ["SELECT mask_noise(", "SELECT mask_shift(", "SELECT max("]);
        assert_eq!(
            offered("select a"),
            ["age", "all", "analyze", "and", "arrow", "as", "asc", "abs(", "avg("].map(|name| format!("select {name}"))
        );
        assert_eq!(offered("SEL"), ["SELECT"]);
        assert_eq!(offered("sel"), ["select"]);
        assert!(offered("SELECT ").is_empty());
    }

    #[test]
    fn tables_come_where_tables_belong() {
        assert_eq!(offered("SELECT * FROM "), ["SELECT * FROM patients", "SELECT * FROM \"My Visits\""]);
        assert_eq!(offered("SELECT * FROM my"), ["SELECT * FROM \"My Visits\""]);
        assert_eq!(offered("SELECT * FROM \"M"), ["SELECT * FROM \"My Visits\""]);
        assert_eq!(offered("SELECT patients.z"), ["SELECT patients.\"Zip Code\""]);
        assert_eq!(
            offered("SELECT mask_shift(n"),
            ["name", "natural", "not", "null", "nulls"].map(|name| format!("SELECT mask_shift({name}"))
        );
    }

    #[test]
    fn settings_and_commands_are_known() {
        assert_eq!(offered("SET ve"), ["SET veil.noise", "SET veil.p2", "SET verbose"]);
        assert_eq!(offered("SET veil.n"), ["SET veil.noise"]);
        assert_eq!(offered("SET datafusion.format.n"), ["SET datafusion.format.null"]);
        assert_eq!(offered("\\f"), ["\\f", "\\format"]);
        assert_eq!(offered("\\d pa"), ["\\d patients"]);
        assert_eq!(offered("\\f mask_s"), ["\\f mask_shift"]);
        assert_eq!(offered("\\format n"), ["\\format nd-json"]);
    }

    #[test]
    fn keywords_are_sorted() {
        assert!(KEYWORDS.is_sorted());
    }
}
