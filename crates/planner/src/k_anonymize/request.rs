//! What a call asks for.

use std::fmt;

use veil_privacy::clusters::{self, ClusterError, MILLION, Reassignment, cluster_count};
use veil_protocols::k_anonymize::{Comparison, MAX_CENTRES, Settings};

/// What is asked, and how it is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The least rows that share their values.
    pub k: u32,
    /// The most rounds of clustering.
    pub rounds: u32,
    /// Whether clustering ends with the first round that moves no centre.
    pub early_stop: bool,
    /// The most rows to suppress, in millionths of all.
    pub suppress: u32,
    /// Where the rows of small clusters go.
    pub reassign: Reassignment,
    /// How distances are compared.
    pub comparison: Comparison,
    /// How many clusters to begin with; as many as can have k rows by default.
    pub centres: Option<u32>,
    /// Where they begin.
    pub start: Start,
    /// A number that tells this run from others, at least 1.
    pub run: u64,
}

/// The rows that clusters begin at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// Drawn at random, repeatably with a seed.
    Random(Option<u64>),
    /// These, counted from zero.
    Rows(Vec<u32>),
}

/// Names of strategies in SQL.
pub(super) const STRATEGIES: [(&str, Reassignment); 3] = [
    ("cluster_to_cluster", Reassignment::ClusterToCluster),
    ("point_to_cluster", Reassignment::PointToCluster),
    ("point_to_point", Reassignment::PointToPoint),
];

/// Names of comparisons in SQL.
pub(super) const COMPARISONS: [(&str, Comparison); 2] =
    [("exact", Comparison::Exact), ("blinded", Comparison::Blinded)];

/// What whoever asks for blinded comparisons should know.
const BLINDED: &str = "with comparison => 'blinded' the key holder can work out nearly all quasi-identifiers of the rows from what it sees: of \
    5,000 rows and eight columns, after ten rounds, seven up to scale and offset, and nearly every value exactly once it knows 100 rows; leave it \
    out, and it sees nothing of them";

/// The name of a value.
pub(super) fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    names.iter().find(|(_, other)| other == value).map_or("", |(name, _)| name)
}

impl Request {
    /// As the protocol takes them.
    pub(super) fn settings(&self) -> Settings {
        let clusters = clusters::Settings {
            k: self.k as usize,
            rounds: self.rounds as usize,
            early_stop: self.early_stop,
            suppress: self.suppress,
            strategy: self.reassign,
        };
        Settings { clusters, comparison: self.comparison }
    }

    /// How many clusters to begin with in a table of so many rows.
    pub(super) fn centre_count(&self, rows: usize) -> Result<usize, ClusterError> {
        let fitting = cluster_count(rows, self.k as usize)?;
        Ok(match (&self.start, self.centres) {
            (Start::Rows(rows), _) => rows.len(),
            (_, Some(centres)) => centres as usize,
            _ => fitting.min(MAX_CENTRES),
        })
    }

    /// What whoever asks for this should know, if it shows the key holder what it need not see.
    pub fn warning(&self) -> Option<&'static str> {
        (self.comparison == Comparison::Blinded).then_some(BLINDED)
    }

    /// The share of rows that may be suppressed.
    pub(super) fn share_suppressed(&self) -> f64 {
        f64::from(self.suppress) / f64::from(MILLION)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k={}, rounds<={}", self.k, self.rounds)?;
        if !self.early_stop {
            write!(f, ", early_stop=false")?;
        }
        write!(f, ", suppress<={}", self.share_suppressed())?;
        write!(f, ", reassign={}", name_of(&STRATEGIES, &self.reassign))?;
        write!(f, ", comparison={}", name_of(&COMPARISONS, &self.comparison))?;
        if let Some(centres) = self.centres {
            write!(f, ", centres={centres}")?;
        }
        match &self.start {
            Start::Random(None) => Ok(()),
            Start::Random(Some(seed)) => write!(f, ", seed={seed}"),
            Start::Rows(rows) => write!(f, ", init={} rows", rows.len()),
        }
    }
}
