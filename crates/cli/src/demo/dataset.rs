//! What the demo works on: the sample, or a file of the user's own; and which columns play which part.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use veil_owner::{ColumnKind, Declaration, DraftOptions, NumberKind, draft_declaration, unwatched};

use super::canaries::SHORTEST;
use super::patients;
use super::table::Table;
use crate::sql::completion::{identifier, is_keyword};
use crate::sql::tables::{NamedFile, quoted_name};

type Failure = Box<dyn std::error::Error>;

/// Rows that are k-anonymised, with exact comparisons: few enough for a minute on two cores.
pub(super) const STUDY: usize = 200;

/// Rows that are taken from a file of the user's, unless the user says how many.
pub(super) const ROWS_OF_A_FILE: u32 = 1000;

/// Quasi-identifiers that are taken from a file of the user's.
const MOST_QUASI: usize = 5;

/// The column that says which rows are suppressed.
const FLAG: &str = "suppressed";

/// Names that the demo gives to tables and files of its own.
const OWN_NAMES: [&str; 5] = ["anon", "back", "masked", "policy", "study"];

/// A table and its declaration.
pub(super) struct Dataset {
    /// Its name in SQL and in the policy.
    pub(super) table: String,
    /// Its rows, as the owner has them.
    pub(super) clear: Table,
    /// Whether it is the sample.
    pub(super) is_sample: bool,
    declaration: Declaration,
    /// By which people could be recognised, and which are made alike.
    pub(super) quasi: Vec<String>,
    /// Which names a person, and is not released.
    pub(super) names: Vec<String>,
    /// Which is released with noise.
    pub(super) noised: Option<String>,
    /// What nothing happens to: by these the owner finds the same people again.
    pub(super) untouched: Vec<String>,
}

impl Dataset {
    /// Writes the sample into the folder.
    pub(super) fn sample(folder: &Path, rows: usize, seed: u64) -> Result<Self, Failure> {
        fs::write(folder.join("patients.csv"), patients::patients(rows, seed))?;
        fs::write(folder.join("patients.toml"), patients::DECLARATION)?;
        fs::write(folder.join("diagnosis.csv"), patients::diagnosis_hierarchy())?;
        fs::write(folder.join("names.txt"), patients::names())?;
        let clear = Table::read(&folder.join("patients.csv"), usize::MAX)?.0;
        let declaration = Declaration::load(&folder.join("patients.toml"))?;
        Ok(Self {
            table: "patients".to_owned(),
            clear,
            is_sample: true,
            declaration,
            quasi: ["born", "sex", "zip", "diagnosis"].map(str::to_owned).into(),
            names: vec!["name".to_owned()],
            noised: Some("smoker".to_owned()),
            untouched: ["admitted", "region"].map(str::to_owned).into(),
        })
    }

    /// Copies what was read of a CSV file into the folder, and drafts its declaration.
    pub(super) fn of_file(folder: &Path, file: &Path, clear: Table) -> Result<Self, Failure> {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("table");
        let stem = if OWN_NAMES.contains(&stem) { format!("{stem}_data") } else { stem.to_owned() };
        let data = folder.join(format!("{stem}.csv"));
        clear.write(&data)?;
        let options = DraftOptions { folder: folder.to_owned(), ..DraftOptions::default() };
        // The copy may not outlive what is wrong with it.
        let of_original = |text: String| text.replace(&data.display().to_string(), &file.display().to_string());
        let draft = draft_declaration(&data, &options, &unwatched).map_err(|error| of_original(error.to_string()))?;
        let toml = folder.join(format!("{stem}.toml"));
        super::parties::write_secret(&toml, &draft)?;
        let declaration = Declaration::load(&toml)?;
        let mut dataset = Self {
            table: stem,
            clear,
            is_sample: false,
            declaration,
            quasi: Vec::new(),
            names: Vec::new(),
            noised: None,
            untouched: Vec::new(),
        };
        // What has two values, and the last of them: there a table often has what it is about.
        let last = |wanted: fn(&ColumnKind) -> bool| {
            let names = dataset.clear.names.iter().rev();
            names.filter(|name| dataset.kind(name).is_some_and(wanted)).map(String::clone).next()
        };
        dataset.noised = last(|kind| matches!(kind, ColumnKind::Binary(_)))
            .or_else(|| last(|kind| matches!(kind, ColumnKind::Category(..))));
        // The search may take columns away, and brings no others.
        let mut others = dataset.clear.names.iter().filter(|name| dataset.noised.as_ref() != Some(name));
        match others.any(|name| dataset.can_be_alike(name)) {
            true => Ok(dataset),
            false => Err(dataset.nothing_alike()),
        }
    }

    /// `--table`, with a file of these rows.
    pub(super) fn named(&self, file: &str) -> String {
        NamedFile::new(&self.table, Path::new(file)).to_string()
    }

    /// Columns that stay in clear.
    pub(super) fn clear_columns(&self) -> Vec<String> {
        let is_clear = |name: &&String| matches!(self.kind(name), Some(ColumnKind::Clear(_)));
        self.clear.names.iter().filter(is_clear).cloned().collect()
    }

    pub(super) fn rows(&self) -> usize {
        self.clear.rows.len()
    }

    pub(super) fn kind(&self, column: &str) -> Option<&ColumnKind> {
        self.declaration.columns.get(column).map(|column| &column.kind)
    }

    /// Takes parts from what the search has found: sets of columns with the rows that each puts at risk.
    pub(super) fn cast(&mut self, found: &[(Vec<String>, usize)]) -> Result<(), Failure> {
        if self.is_sample {
            return Ok(());
        }
        let (rows, names) = (self.rows(), self.clear.names.clone());
        let is_found = |name: &String| found.iter().any(|(set, _)| set.as_slice() == std::slice::from_ref(name));
        // A text, or what hardly two rows share, is a name, whatever it is called.
        let distinct = |name: &String| self.clear.by(std::slice::from_ref(name)).len();
        let is_name = |name: &&String| is_found(name) && (self.is_text(name) || 2 * distinct(name) > rows);
        self.names = names.iter().filter(is_name).cloned().collect();
        let able: Vec<String> = names
            .iter()
            .filter(|name| !self.names.contains(name) && self.noised.as_ref() != Some(name) && self.can_be_alike(name))
            .cloned()
            .collect();
        // The most rows at risk first, of columns alone before those in company.
        let risk = |name: &String| {
            let sets = found.iter().filter(|(set, _)| set.contains(name));
            sets.map(|(set, rows)| (usize::MAX - set.len(), *rows)).max().unwrap_or_default()
        };
        let mut chosen = able.clone();
        chosen.sort_by_key(|name| std::cmp::Reverse(risk(name)));
        chosen.truncate(MOST_QUASI);
        self.quasi = able.into_iter().filter(|name| chosen.contains(name)).collect();
        if self.quasi.is_empty() {
            return Err(self.nothing_alike());
        }
        let is_left =
            |name: &&String| !self.quasi.contains(name) && self.noised.as_ref() != Some(name) && !self.is_text(name);
        let mut left: Vec<String> = names.iter().filter(is_left).cloned().collect();
        left.sort_by_key(|name| std::cmp::Reverse(self.clear.by(std::slice::from_ref(name)).len()));
        left.truncate(2);
        self.untouched = left;
        Ok(())
    }

    fn nothing_alike(&self) -> Failure {
        let what = "has no column of numbers, dates, truth values or categories without missing values that could be \
                    made alike; if it has some, are they separated by commas?";
        format!("{} {what}", self.table).into()
    }

    fn is_text(&self, column: &str) -> bool {
        matches!(self.kind(column), Some(ColumnKind::Text(_)))
    }

    /// Numbers, truth values and categories, without a NULL.
    fn can_be_alike(&self, column: &str) -> bool {
        let kind = matches!(
            self.kind(column),
            Some(ColumnKind::Number { .. } | ColumnKind::Binary(_) | ColumnKind::Category(..))
        );
        let place = self.clear.place(column);
        kind && self.clear.rows.iter().all(|row| place.and_then(|at| row.get(at)).is_some_and(|text| !text.is_empty()))
    }

    /// A masked and noised column, in SQL, if there is a function for its kind.
    pub(super) fn masked(&self, column: &str) -> Option<String> {
        let name = quoted(column);
        let call = match self.kind(column)? {
            ColumnKind::Clear(_) => return None,
            ColumnKind::Text(_) => format!("mask_redact({name})"),
            ColumnKind::Binary(_) => format!("dp_binary({name}, 1.0)"),
            ColumnKind::Category(..) => format!("dp_exponential({name}, 2.0)"),
            ColumnKind::Number { format, .. } => match format.0 {
                NumberKind::Integer | NumberKind::Decimal(_) => format!("mask_noise({name}, 0.1)"),
                NumberKind::Date | NumberKind::Timestamp(_) => format!("mask_shift({name}, 30)"),
                NumberKind::Boolean => format!("dp_binary({name}, 1.0)"),
            },
        };
        Some(format!("{call} AS {name}"))
    }

    /// The call that adds noise to a released column, and the epsilon it spends.
    pub(super) fn noise(&self) -> Option<(String, f64)> {
        let name = self.noised.as_ref()?;
        match self.kind(name)? {
            ColumnKind::Category(..) => Some((format!("dp_exponential({0}, 2.0) AS {0}", quoted(name)), 2.0)),
            _ => Some((format!("dp_binary({0}, 1.0) AS {0}", quoted(name)), 1.0)),
        }
    }

    /// Rows of people that can be found again by what nothing happens to: the first few.
    pub(super) fn people(&self, most: usize) -> Vec<usize> {
        let alike: HashMap<Vec<String>, Vec<usize>> = self.clear.by(&self.untouched);
        let is_alone = |row: &usize| {
            let values = self.clear.rows.get(*row).map(|row| self.clear.values(row, &self.untouched));
            values.and_then(|values| alike.get(&values)).is_some_and(|rows| rows.len() == 1)
        };
        match self.untouched.is_empty() {
            true => Vec::new(),
            false => (0..self.rows()).filter(is_alone).take(most).collect(),
        }
    }

    /// Texts and labels of encrypted columns: none of them may be readable anywhere else. What is public anyway is left out.
    pub(super) fn canaries(&self) -> BTreeSet<String> {
        let (mut secret, mut public) = (BTreeSet::new(), self.clear.names.join("\n") + "\n" + &self.table);
        for (at, name) in self.clear.names.iter().enumerate() {
            let values = self.clear.rows.iter().filter_map(|row| row.get(at)).filter(|text| text.len() >= SHORTEST);
            let distinct: BTreeSet<&String> = values.collect();
            match self.kind(name) {
                Some(ColumnKind::Text(_) | ColumnKind::Binary(_) | ColumnKind::Category(..)) => {
                    secret.extend(distinct.into_iter().cloned());
                }
                Some(ColumnKind::Clear(_)) => distinct.into_iter().for_each(|text| {
                    public.push('\n');
                    public.push_str(text);
                }),
                _ => {}
            }
        }
        secret.retain(|word| !public.contains(word.as_str()));
        secret
    }
}

/// The first rows of a CSV file, if they are enough; and whether there are more.
pub(super) fn read(file: &Path, rows: usize) -> Result<(Table, bool), Failure> {
    let (mut clear, more) = Table::read(file, rows)?;
    let (shown, rows) = (file.display(), clear.rows.len());
    if rows < 4 {
        return Err(format!("{shown}: {rows} rows are too few to hide anybody among: give at least 4").into());
    }
    if clear.names.iter().any(|name| name == FLAG) {
        return Err(
            format!("{shown}: k_anonymize adds a column {FLAG} of its own: rename the one that is there").into()
        );
    }
    // As the first column of a table with row numbers often has none.
    for at in 0..clear.names.len() {
        let new = format!("column_{}", at + 1);
        if let Some(name) = clear.names.get_mut(at).filter(|name| name.is_empty()) {
            *name = new;
        }
    }
    Ok((clear, more))
}

/// A name in SQL, in quotes only where it must be.
pub(super) fn quoted(name: &str) -> String {
    match is_keyword(name) {
        true => quoted_name(name),
        false => identifier(name),
    }
}

/// Names in SQL, one after the other, in lines that are not too long.
pub(super) fn listed(names: &[String]) -> String {
    in_lines(names.iter().map(|name| quoted(name)))
}

/// Pieces with commas between, in lines that are not too long.
pub(super) fn in_lines(pieces: impl Iterator<Item = String>) -> String {
    const ROOM: usize = 60;
    let (mut text, mut line) = (String::new(), 0);
    for piece in pieces {
        let length = piece.chars().count();
        let between = if text.is_empty() {
            ""
        } else if line + length > ROOM {
            ",\n        "
        } else {
            ", "
        };
        line = if between.contains('\n') { length } else { line + length + between.len() };
        text.extend([between, &piece]);
    }
    text
}
