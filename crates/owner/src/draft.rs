//! A first declaration, from looking at the data. The owner edits it: only a person knows what identifies a person.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use veil_cells::{TEXT_BYTES_PER_LANE, TimeUnit, Width};

use crate::codec::{NumberFormat, NumberKind, is_encodable};
use crate::hierarchy_file::read_hierarchy;
use crate::table_file::{TableReader, report};
use crate::{OwnerError, Progress, Watch};

/// A column with more labels is text.
const MOST_LABELS: usize = 100;

/// A category repeats its labels at least so often on average.
const LEAST_REPEATS: usize = 4;

/// What to draft with.
#[derive(Clone, Debug, Default)]
pub struct DraftOptions {
    /// The table's name; the file's if not given.
    pub table: Option<String>,
    /// A folder of hierarchies, taken for columns whose name a file's name ends with.
    pub hierarchies: Option<PathBuf>,
    /// The folder in which the declaration will stand, for the paths in it.
    pub folder: PathBuf,
}

/// Reads all of `input` and writes the text of a declaration.
pub fn draft_declaration(input: &Path, options: &DraftOptions, watch: Watch<'_>) -> Result<String, OwnerError> {
    let mut reader = TableReader::open(input)?;
    let mut observed: Vec<Observed> = reader.schema.fields().iter().map(|_| Observed::default()).collect();
    let mut rows = 0;
    while let Some(batch) = reader.next() {
        let batch = batch?;
        for (column, observed) in batch.columns().iter().zip(&mut observed) {
            if is_encodable(column.data_type()) {
                let texts = cast(column, &DataType::Utf8).map_err(OwnerError::arrow(input))?;
                observed.add(texts.as_string());
            }
        }
        rows += batch.num_rows() as u64;
        report(watch, Progress { rows, per_mille: reader.per_mille() })?;
    }
    let stem = input.file_stem().and_then(|stem| stem.to_str()).unwrap_or("table");
    let table = options.table.as_deref().unwrap_or(stem);
    let name = input.file_name().unwrap_or_default().to_string_lossy();
    let mut draft = format!(
        "# Drafted from {name} ({rows} rows). Check every column before you encrypt:\n\
         #   range       what values may occur at all, not only what did; it is encrypted too\n\
         #   identifier  whether the column may help to find a person; costs 8 bytes a row\n\
         #   kind        \"clear\" leaves a column readable, for WHERE, GROUP BY and JOIN\n\n\
         [table]\nname = {}\n",
        quoted(table)
    );
    for (field, observed) in reader.schema.fields().iter().zip(&observed) {
        let _ = write!(draft, "\n[column.{}]\n", key(field.name()));
        if !is_encodable(field.data_type()) {
            let _ = writeln!(draft, "kind = \"clear\"  # {} cannot be encrypted", field.data_type());
            continue;
        }
        let hierarchy = match &options.hierarchies {
            Some(folder) if !observed.is_number() => find_hierarchy(folder, field.name(), observed)?,
            _ => None,
        };
        draft.push_str(&observed.declare(hierarchy.as_deref(), &options.folder));
    }
    Ok(draft)
}

/// What a column's values have shown so far.
struct Observed {
    values: usize,
    nulls: usize,
    /// Formats that every value so far has, with the smallest and largest.
    numbers: Vec<(NumberFormat, i64, i64)>,
    /// Decimal places seen.
    places: usize,
    longest: usize,
    /// Until there are too many.
    labels: Option<BTreeSet<String>>,
}

impl Default for Observed {
    fn default() -> Self {
        let kinds = [
            NumberKind::Integer,
            NumberKind::Decimal(9),
            NumberKind::Date,
            NumberKind::Timestamp(TimeUnit::Hour),
            NumberKind::Timestamp(TimeUnit::Minute),
            NumberKind::Timestamp(TimeUnit::Second),
            NumberKind::Boolean,
        ];
        let numbers = kinds.map(|kind| (NumberFormat(kind), i64::MAX, i64::MIN)).to_vec();
        Self { values: 0, nulls: 0, numbers, places: 0, longest: 0, labels: Some(BTreeSet::new()) }
    }
}

impl Observed {
    fn add(&mut self, texts: &StringArray) {
        self.nulls += texts.null_count();
        for text in texts.iter().flatten() {
            self.values += 1;
            self.longest = self.longest.max(text.len());
            self.places = self.places.max(text.trim().split_once('.').map_or(0, |(_, places)| places.len()));
            self.numbers.retain_mut(|(format, low, high)| match format.parse(text) {
                // A ZIP code 01234 is no number: it would come back as 1234.
                Ok(number) if comes_back(*format, number, text) => {
                    (*low, *high) = (number.min(*low), number.max(*high));
                    true
                }
                _ => false,
            });
            if let Some(labels) = &mut self.labels {
                if !labels.contains(text) {
                    labels.insert(text.to_owned());
                }
                if labels.len() > MOST_LABELS {
                    self.labels = None;
                }
            }
        }
    }

    fn is_number(&self) -> bool {
        self.number().is_some()
    }

    /// The first format that fits, if its numbers have a width.
    fn number(&self) -> Option<(NumberFormat, i64, i64)> {
        let narrowed = self.numbers.iter().filter(|_| self.values > 0).map(|(format, low, high)| match format.0 {
            NumberKind::Decimal(scale) => {
                let places = (self.places as u8).min(scale);
                let one = 10i64.pow((scale - places).into());
                (NumberFormat(NumberKind::Decimal(places)), low / one, high / one)
            }
            _ => (*format, *low, *high),
        });
        narrowed.into_iter().find(|(_, low, high)| Width::of_range(*low, *high).is_some())
    }

    fn declare(&self, hierarchy: Option<&Path>, folder: &Path) -> String {
        let mut text = match (self.number(), &self.labels, hierarchy) {
            (_, _, Some(file)) => {
                format!("kind = \"category\"\nhierarchy = {}\n", quoted(&relative(file, folder)))
            }
            (Some((format, low, high)), _, _) => declare_number(format, low, high),
            (None, Some(labels), _) if labels.len() == 2 => {
                format!("kind = \"binary\"\nvalues = {}\n", list(labels))
            }
            (None, Some(labels), _) if !labels.is_empty() && self.values >= LEAST_REPEATS * labels.len() => {
                format!("kind = \"category\"\nvalues = {}\n", list(labels))
            }
            _ => {
                let length = self.longest.max(1).next_multiple_of(TEXT_BYTES_PER_LANE);
                format!("kind = \"text\"\nmax_length = {length}\n")
            }
        };
        text.push_str("identifier = true\n");
        if self.nulls > 0 {
            let _ = writeln!(
                text,
                "hide_nulls = false  # {} values are missing, which stays visible unless true",
                self.nulls
            );
        }
        text
    }
}

/// Whether a number prints as it was written, where that is one spelling.
fn comes_back(format: NumberFormat, number: i64, text: &str) -> bool {
    match format.0 {
        NumberKind::Timestamp(_) => true,
        // Places may differ from row to row, leading zeros may not.
        NumberKind::Decimal(_) => {
            let whole = text.trim_start_matches('-').split('.').next().unwrap_or_default();
            whole == "0" || !whole.is_empty() && !whole.starts_with(['0', '+'])
        }
        NumberKind::Integer | NumberKind::Date | NumberKind::Boolean => format.print(number) == text,
    }
}

fn declare_number(format: NumberFormat, low: i64, high: i64) -> String {
    let kind = format.kind();
    let range = match format.0 {
        NumberKind::Boolean => return format!("kind = \"{kind}\"\n"),
        NumberKind::Integer | NumberKind::Decimal(_) => format!("[{}, {}]", format.print(low), format.print(high)),
        _ => format!("[{}, {}]", quoted(&format.print(low)), quoted(&format.print(high))),
    };
    let extra = match format.0 {
        NumberKind::Decimal(scale) => format!("scale = {scale}\n"),
        NumberKind::Timestamp(TimeUnit::Minute) => "unit = \"minute\"\n".to_owned(),
        NumberKind::Timestamp(TimeUnit::Hour) => "unit = \"hour\"\n".to_owned(),
        _ => String::new(),
    };
    format!("kind = \"{kind}\"\n{extra}range = {range}\n")
}

/// A hierarchy whose name ends with the column's and whose leaves include all values seen.
fn find_hierarchy(folder: &Path, column: &str, observed: &Observed) -> Result<Option<PathBuf>, OwnerError> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(OwnerError::io(folder))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "csv"))
        .filter(|path| {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            stem.strip_suffix(column).is_some_and(|before| before.is_empty() || before.ends_with(['_', '-', '.']))
        })
        .collect();
    files.sort();
    for file in files {
        let hierarchy = read_hierarchy(&file)?;
        if observed.labels.as_ref().is_some_and(|labels| labels.iter().all(|label| hierarchy.leaf(label).is_some())) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// The path from the declaration's folder, or an absolute one.
fn relative(file: &Path, folder: &Path) -> String {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (file, folder) = (absolute(file), absolute(folder));
    let path = file.strip_prefix(&folder).map(Path::to_owned).unwrap_or(file);
    path.to_string_lossy().into_owned()
}

fn list(labels: &BTreeSet<String>) -> String {
    let labels: Vec<String> = labels.iter().map(|label| quoted(label)).collect();
    format!("[{}]", labels.join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A TOML key, quoted only where it must be.
fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if bare { name.to_owned() } else { serde_json::Value::from(name).to_string() }
}
