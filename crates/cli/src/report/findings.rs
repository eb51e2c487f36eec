//! What a report says, as numbers and plain words: `--json` writes it, and the page is a function of it alone.

use serde::{Deserialize, Serialize};
use veil_release::Manifest;

/// The version of this object.
pub(super) const VERSION: u8 = 2;

/// Everything that a report says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Findings {
    /// The version of this object.
    pub(super) version: u8,
    /// The title of the page.
    pub(super) title: String,
    /// When it was made, as RFC 3339 says.
    pub(super) created: String,
    /// Which program made it.
    pub(super) software: String,
    /// Whether one process was both servers, which protects nothing.
    pub(super) embedded: bool,
    /// The table as it was.
    pub(super) original: TableFile,
    /// What became of it.
    pub(super) anonymised: TableFile,
    /// The columns by which people could be recognised.
    pub(super) quasi: Vec<String>,
    /// People that the rows are a sample of.
    pub(super) population: Option<u64>,
    /// What was done to each column.
    pub(super) columns: Vec<ColumnFinding>,
    /// Risk of both tables.
    pub(super) risk: Both<Vec<Measure>>,
    /// How many classes there are of every size.
    pub(super) class_sizes: Both<Vec<SizeCount>>,
    /// What was lost, of the table and of each column.
    pub(super) utility: Vec<Measure>,
    /// Risk and loss of other k, if they were tried.
    pub(super) sweep: Vec<SweepPoint>,
    /// How these tables were made.
    pub(super) sweep_settings: Option<SweepSettings>,
    /// Who learned what while the report was made.
    pub(super) leakage: Vec<Learned>,
    /// What it cost.
    pub(super) runs: Vec<RunCost>,
    /// What the reader should know.
    pub(super) notes: Vec<String>,
    /// The manifest of a release, if one was given.
    pub(super) manifest: Option<Paper>,
}

/// A file with a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TableFile {
    /// Its name, without folders.
    pub(super) file: String,
    /// Its rows, suppressed ones included.
    pub(super) rows: u64,
    /// Bytes on disk.
    pub(super) bytes: u64,
}

/// Of the original and of the anonymised table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Both<T> {
    pub(super) before: T,
    pub(super) after: T,
}

/// A column and what was done to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ColumnFinding {
    /// Its name.
    pub(super) name: String,
    /// The kind of an encrypted column, the Arrow type of a clear one.
    pub(super) kind: String,
    /// Whether it is encrypted.
    pub(super) encrypted: bool,
    /// What was done to it.
    pub(super) treatment: Treatment,
    /// The column of the original that it began as, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) was: Option<String>,
    /// Columns of the anonymised table that this one, dropped, may have gone into: their types do not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) perhaps_in: Vec<String>,
    /// Epsilon that was spent on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) epsilon: Option<f64>,
    /// Mechanisms whose noise P2 adds once more at the release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) awaits: Vec<String>,
}

/// What the types of two tables tell about a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Treatment {
    /// Rows of a class share their values.
    KAnonymised,
    /// Noise was added to all values.
    Noised,
    /// Noise was added to some values, and others may have none.
    PartlyNoised,
    /// Masked, or computed otherwise.
    Computed,
    /// As the owner encrypted it.
    Unchanged,
    /// Not encrypted.
    Clear,
    /// In the original, and not here: not by itself, and not under its name.
    Dropped,
    /// Says which rows are suppressed.
    Flag,
}

/// One number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measure {
    pub(super) measure: String,
    /// Of this column, or else of the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) column: Option<String>,
    /// Nothing where it cannot be told.
    pub(super) value: Option<f64>,
    /// What it means.
    pub(super) meaning: String,
}

/// So many classes of so many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SizeCount {
    pub(super) size: u64,
    pub(super) classes: u64,
}

/// One k that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SweepPoint {
    pub(super) k: u64,
    /// Measures of the whole table.
    pub(super) measures: Vec<(String, Option<f64>)>,
}

/// How the tables of a sweep were made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SweepSettings {
    /// The most rounds of clustering.
    pub(super) rounds: u32,
    /// The largest share of rows that could be held back.
    pub(super) suppress: f64,
}

/// Who learned what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Learned {
    /// From which questions.
    pub(super) from: Vec<String>,
    /// What the engine learned.
    pub(super) p1: String,
    /// What the key holder learned.
    pub(super) p2: String,
}

/// What one run cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunCost {
    pub(super) asked: String,
    pub(super) rows: u64,
    pub(super) rounds: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) seconds: f64,
}

/// The manifest of a release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Paper {
    /// Its file, without folders.
    pub(super) file: String,
    /// Why its signatures do not hold; nothing if they do.
    pub(super) refused: Option<String>,
    /// What it says.
    pub(super) manifest: Manifest,
}

impl Findings {
    /// A measure of the whole table before and after.
    pub(super) fn risk_of(&self, measure: &str) -> Both<Option<f64>> {
        Both { before: of_table(&self.risk.before, measure), after: of_table(&self.risk.after, measure) }
    }

    /// A loss of the whole table.
    pub(super) fn loss_of(&self, measure: &str) -> Option<f64> {
        of_table(&self.utility, measure)
    }

    /// A loss of a column.
    pub(super) fn loss_of_column(&self, measure: &str, column: &str) -> Option<f64> {
        of_column(&self.utility, measure, column)
    }

    /// Columns that recipients see and that no figure of the report speaks of.
    pub(super) fn not_judged(&self) -> Vec<&ColumnFinding> {
        let judged = |column: &&ColumnFinding| {
            matches!(column.treatment, Treatment::Dropped | Treatment::Flag) || self.quasi.contains(&column.name)
        };
        self.columns.iter().filter(|column| !judged(column)).collect()
    }

    /// A column of the anonymised table.
    pub(super) fn anonymised_column(&self, name: &str) -> Option<&ColumnFinding> {
        self.columns.iter().find(|column| column.treatment != Treatment::Dropped && column.name == name)
    }

    /// The share of rows that are held back.
    pub(super) fn share_held_back(&self) -> Option<f64> {
        let rows = self.risk_of("suppressed_rows").after?;
        Some(rows / self.anonymised.rows.max(1) as f64)
    }
}

impl ColumnFinding {
    /// Whether its noise is the engine's, and the key holder will add none.
    pub(super) fn has_noise_of_engine_alone(&self) -> bool {
        matches!(self.treatment, Treatment::Noised | Treatment::PartlyNoised) && self.awaits.is_empty()
    }
}

impl SweepPoint {
    pub(super) fn value(&self, measure: &str) -> Option<f64> {
        self.measures.iter().find(|(name, _)| name == measure).and_then(|(_, value)| *value)
    }
}

fn of_table(measures: &[Measure], name: &str) -> Option<f64> {
    measures.iter().find(|one| one.measure == name && one.column.is_none()).and_then(|one| one.value)
}

/// A measure of a column.
pub(super) fn of_column(measures: &[Measure], name: &str, column: &str) -> Option<f64> {
    measures.iter().find(|one| one.measure == name && one.column.as_deref() == Some(column)).and_then(|one| one.value)
}
