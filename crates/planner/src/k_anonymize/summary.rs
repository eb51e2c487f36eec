//! `k_anonymize_summary()`: the runs of a session, what became of the clusters, and what they cost; and what the reader of a result should know.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder,
};
use datafusion::error::Result;
use veil_privacy::clusters::Reassignment;
use veil_protocols::k_anonymize::Outcome;

use super::Request;
use super::request::{STRATEGIES, name_of};
use crate::run_log::Ended;

/// A run that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Anonymisation {
    /// What was asked.
    pub request: Request,
    /// The quasi-identifiers.
    pub quasi: Vec<String>,
    /// Rows of the table.
    pub rows: usize,
    /// Clusters to begin with.
    pub centres: usize,
    /// What became of them.
    pub outcome: Outcome,
    /// The sizes of clusters of fewer than k rows, the smallest first.
    pub small_sizes: Vec<usize>,
    /// Rounds with P2.
    pub rounds: u64,
    /// Bytes sent to P2.
    pub bytes_sent: u64,
    /// Bytes received from P2.
    pub bytes_received: u64,
    /// Time on the clock.
    pub seconds: f64,
}

impl Anonymisation {
    /// Rows of an average class.
    pub fn average_class(&self) -> f64 {
        (self.rows - self.outcome.suppressed_rows) as f64 / self.outcome.classes.max(1) as f64
    }

    /// What would help where classes are few, the cheapest first. The sizes of small clusters tell what a smaller k would have kept.
    fn relaxations(&self) -> Vec<String> {
        let (k, mut ways) = (self.request.k as usize, Vec::new());
        let large = self.outcome.clusters - self.outcome.small_clusters;
        // The largest k with which two clusters would have stayed.
        let largest = self.small_sizes.iter().rev().nth(1usize.saturating_sub(large)).copied();
        if let Some(smaller) = largest.filter(|smaller| (2..k).contains(smaller)) {
            let classes = large + self.small_sizes.iter().filter(|size| **size >= smaller).count();
            ways.push(format!("k => {smaller} (some {classes} classes)"));
        }
        let left_over = self.outcome.small_rows - self.outcome.suppressed_rows;
        if large > 1 && left_over > 0 {
            let share = (self.outcome.small_rows as f64 / self.rows as f64 * 1000.0).ceil() / 1000.0;
            ways.push(format!(
                "suppress => {share} ({} rows fewer, and {large} classes stay as they are)",
                self.outcome.small_rows
            ));
        }
        if self.request.reassign == Reassignment::ClusterToCluster && large > 1 {
            ways.push("reassign => 'point_to_cluster' (small clusters go to several others)".to_owned());
        }
        if self.quasi.len() > 1 {
            ways.push(format!("fewer columns than {} in quasi", self.quasi.len()));
        }
        ways
    }
}

impl Ended for Anonymisation {
    const FUNCTION: &'static str = super::NAME;

    fn note(&self) -> Option<String> {
        let Outcome { classes, small_clusters, small_rows, suppressed_rows, .. } = self.outcome;
        let mut note = match (classes, self.rows < 2 * self.request.k as usize) {
            (0 | 1, true) => {
                format!(
                    "{} rows are too few for two classes of {}, so that all rows are alike",
                    self.rows, self.request.k
                )
            }
            (0 | 1, false) if small_clusters == 0 => format!(
                "all rows are in one class and alike: {} of {} clusters had rows, since the others began at rows that are equal in quasi or were \
                 not asked for",
                classes, self.centres
            ),
            (0 | 1, false) => format!(
                "all rows ended in one class and are alike: {small_clusters} of {} clusters, with {small_rows} rows, had fewer than {} and joined \
                 others",
                self.outcome.clusters, self.request.k
            ),
            _ => format!(
                "{} rows in {classes} classes of {:.1} on average",
                self.rows - suppressed_rows,
                self.average_class()
            ),
        };
        if suppressed_rows > 0 {
            note += &format!("; {suppressed_rows} of {} rows are suppressed", self.rows);
        }
        // Classes far larger than asked for say little about their rows.
        let poor = classes < 2 || self.average_class() > 4.0 * f64::from(self.request.k);
        let ways = if poor { self.relaxations() } else { Vec::new() };
        if !ways.is_empty() {
            note += &format!("; what would help: {}", ways.join(", or "));
        }
        let fitting = self.rows / (self.request.k as usize).max(1);
        if self.request.centres.is_none() && self.centres < fitting {
            note +=
                &format!("; clusters began at {} rows, the most there can be, where {fitting} would fit", self.centres);
        }
        Some(note)
    }

    fn table(ended: &[(u64, Self)]) -> Result<RecordBatch> {
        let runs: Vec<&Anonymisation> = ended.iter().map(|(_, run)| run).collect();
        let numbers = |of: fn(&Anonymisation) -> u64| -> ArrayRef {
            Arc::new(runs.iter().map(|run| Some(of(run) as i64)).collect::<Int64Array>())
        };
        let mut quasi = ListBuilder::new(StringBuilder::new());
        for run in &runs {
            quasi.append_value(run.quasi.iter().map(Some));
        }
        let strategy = |run: &&Anonymisation| Some(name_of(&STRATEGIES, &run.request.reassign));
        let averages = runs.iter().map(|run| Some(run.average_class())).collect::<Float64Array>();
        let seconds = runs.iter().map(|run| Some(run.seconds)).collect::<Float64Array>();
        let notes = runs.iter().map(|run| run.note()).collect::<StringArray>();
        let run: ArrayRef = Arc::new(ended.iter().map(|(number, _)| Some(*number as i64)).collect::<Int64Array>());
        Ok(RecordBatch::try_from_iter_with_nullable([
            ("run", run, false),
            ("quasi", Arc::new(quasi.finish()), false),
            ("rows", numbers(|run| run.rows as u64), false),
            ("k", numbers(|run| run.request.k.into()), false),
            ("reassign", Arc::new(runs.iter().map(strategy).collect::<StringArray>()), false),
            ("centres", numbers(|run| run.centres as u64), false),
            ("rounds_of_clustering", numbers(|run| run.outcome.rounds_run as u64), false),
            ("clusters", numbers(|run| run.outcome.clusters as u64), false),
            ("small_clusters", numbers(|run| run.outcome.small_clusters as u64), false),
            ("small_rows", numbers(|run| run.outcome.small_rows as u64), false),
            ("suppressed_rows", numbers(|run| run.outcome.suppressed_rows as u64), false),
            ("classes", numbers(|run| run.outcome.classes as u64), false),
            ("average_class", Arc::new(averages), false),
            ("rounds", numbers(|run| run.rounds), false),
            ("bytes_sent", numbers(|run| run.bytes_sent), false),
            ("bytes_received", numbers(|run| run.bytes_received), false),
            ("seconds", Arc::new(seconds), false),
            ("note", Arc::new(notes), true),
        ])?)
    }
}
