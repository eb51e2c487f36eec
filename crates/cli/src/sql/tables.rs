//! `--table name=file`, as the statement that a user would write.
//!
//! `CREATE EXTERNAL TABLE` is what brings dictionaries and zeros along.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use datafusion::prelude::SessionContext;
use veil_planner::explain_error;

/// A table that the command line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedFile {
    name: String,
    file: PathBuf,
}

impl FromStr for NamedFile {
    type Err = String;

    /// A plain name is lower-cased, as SQL does with names outside quotes, so that a query that spells it alike finds it.
    fn from_str(text: &str) -> Result<Self, String> {
        let usage = || "a table is NAME=FILE, as in patients=patients.veil.parquet".to_owned();
        let (name, file) = match in_quotes(text) {
            Some((name, rest)) => (name, rest.strip_prefix('=').ok_or_else(usage)?),
            None if text.starts_with('"') => return Err(usage()),
            None => {
                let (name, file) = text.split_once('=').ok_or_else(usage)?;
                (if is_plain(name) { name.to_lowercase() } else { name.to_owned() }, file)
            }
        };
        if name.is_empty() || file.is_empty() { Err(usage()) } else { Ok(Self { name, file: file.into() }) }
    }
}

impl fmt::Display for NamedFile {
    /// As the command line takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_taken_so = match is_plain(&self.name) {
            true => self.name == self.name.to_lowercase(),
            false => !self.name.contains(['"', '=']),
        };
        let name = if is_taken_so { self.name.clone() } else { quoted_name(&self.name) };
        write!(f, "{name}={}", self.file.display())
    }
}

/// Whether SQL takes a name outside quotes.
fn is_plain(name: &str) -> bool {
    name.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
}

/// The name in quotes that a text begins with, and what follows.
fn in_quotes(text: &str) -> Option<(String, &str)> {
    let (mut name, mut rest) = (String::new(), text.strip_prefix('"')?);
    loop {
        let (before, after) = rest.split_once('"')?;
        name += before;
        match after.strip_prefix('"') {
            // Two quotes are one of the name.
            Some(after) => (name, rest) = (name + "\"", after),
            None => return Some((name, after)),
        }
    }
}

impl NamedFile {
    /// A table on a file that the command line names in its own way.
    pub(crate) fn new(name: &str, file: &Path) -> Self {
        Self { name: name.to_owned(), file: file.to_owned() }
    }

    pub(crate) async fn register(&self, context: &SessionContext) -> Result<(), Box<dyn std::error::Error>> {
        self.register_as(&format!("--table {}={}", self.name, self.file.display()), context).await
    }

    /// The same; errors begin with what the command line calls the table.
    pub(crate) async fn register_as(
        &self,
        called: &str,
        context: &SessionContext,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let fail = |reason: String| format!("{called}: {reason}");
        match std::fs::metadata(&self.file) {
            Err(error) => return Err(fail(error.to_string()).into()),
            Ok(metadata) if !metadata.is_file() => {
                let what = "not a file; for a folder of files use CREATE EXTERNAL TABLE .. LOCATION 'folder/'";
                return Err(fail(what.to_owned()).into());
            }
            Ok(_) => {}
        }
        let sql = self.statement().map_err(fail)?;
        context.sql(&sql).await.map_err(|error| fail(explain_error(&error)))?;
        Ok(())
    }

    fn statement(&self) -> Result<String, String> {
        let extension = self.file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let (format, options) = match extension.to_ascii_lowercase().as_str() {
            "parquet" => ("PARQUET", ""),
            "arrow" | "ipc" | "feather" => ("ARROW", ""),
            "csv" => ("CSV", " OPTIONS ('format.has_header' 'true')"),
            _ => return Err("the file's name ends neither in .parquet, .arrow, .ipc, .feather nor in .csv".to_owned()),
        };
        let (name, url) = (quoted_name(&self.name), file_url(&self.file)?.replace('\'', "''"));
        Ok(format!("CREATE EXTERNAL TABLE {name} STORED AS {format} LOCATION '{url}'{options}"))
    }
}

/// An identifier in quotes.
pub(crate) fn quoted_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// As a URL, since DataFusion takes `*`, `?` and `[` in a path for patterns.
pub(crate) fn file_url(file: &Path) -> Result<String, String> {
    let absolute = std::path::absolute(file).map_err(|error| error.to_string())?;
    let path = absolute.to_str().ok_or("the file's path is not Unicode")?.replace(std::path::MAIN_SEPARATOR, "/");
    let mut url = if path.starts_with('/') { "file://".to_owned() } else { "file:///".to_owned() };
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => url.push(byte.into()),
            _ => url += &format!("%{byte:02X}"),
        }
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(text: &str) -> Result<String, String> {
        text.parse::<NamedFile>()?.statement()
    }

    #[test]
    fn names_and_paths_are_escaped() {
        assert_eq!(
            statement("Patients=/data/p.veil.parquet").unwrap(),
            "CREATE EXTERNAL TABLE \"patients\" STORED AS PARQUET LOCATION 'file:///data/p.veil.parquet'"
        );
        assert_eq!(
            statement("a \"b\"=/it's [1]=2.ARROW").unwrap(),
            "CREATE EXTERNAL TABLE \"a \"\"b\"\"\" STORED AS ARROW LOCATION 'file:///it%27s%20%5B1%5D%3D2.ARROW'"
        );
        assert_eq!(
            statement("\"Mixed\"=/x.csv").unwrap(),
            "CREATE EXTERNAL TABLE \"Mixed\" STORED AS CSV LOCATION 'file:///x.csv' OPTIONS ('format.has_header' 'true')"
        );
    }

    #[test]
    fn every_name_can_be_given() {
        for (name, text) in [
            ("people", "people=x.csv"),
            ("People", "\"People\"=x.csv"),
            ("Adult-1", "Adult-1=x.csv"),
            ("a=b", "\"a=b\"=x.csv"),
            ("a \"b\"=\"", "\"a \"\"b\"\"=\"\"\"=x.csv"),
        ] {
            let table = NamedFile::new(name, Path::new("x.csv"));
            assert_eq!(table.to_string(), text);
            assert_eq!(text.parse::<NamedFile>().unwrap(), table, "{text}");
        }
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for text in [
            "patients",
            "=x.csv",
            "patients=",
            "patients=x.xlsx",
            "patients=x",
            "\"\"=x.csv",
            "\"a=x.csv",
            "\"a\"x.csv",
        ] {
            assert!(statement(text).is_err(), "{text}");
        }
    }
}
