//! `assess_summary()`: what risk, class_sizes, utility and sweep have cost in this session, and what the reader of a result should know.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::error::Result;

use super::{Matched, Question};
use crate::run_log::Ended;

/// A run that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    /// What was asked.
    pub question: Question,
    /// Of which columns.
    pub quasi: Vec<String>,
    /// Rows of the table.
    pub rows: usize,
    /// Columns that were not measured, and why.
    pub left_out: Vec<(String, String)>,
    /// How rows were found to belong together, where tables are compared.
    pub matched: Option<Matched>,
    /// What else the reader of the result should know, a sentence each.
    pub remarks: Vec<String>,
    /// Rounds with P2.
    pub rounds: u64,
    /// Bytes sent to P2.
    pub bytes_sent: u64,
    /// Bytes received from P2.
    pub bytes_received: u64,
    /// Time on the clock.
    pub seconds: f64,
}

impl Ended for Assessment {
    const FUNCTION: &'static str = "assess";

    fn note(&self) -> Option<String> {
        let left_out = self.left_out.iter().map(|(name, why)| format!("{name} {why}"));
        let matched = match &self.matched {
            Some(Matched::Order) => Some(
                "no column that both tables share tells which rows belong together, so they were taken in their order: what is told of numbers is right only if it is the same in both".to_owned(),
            ),
            Some(Matched::Column(name)) => Some(format!("rows belong together by their value of {name}")),
            Some(Matched::Cells) | None => None,
        };
        let all: Vec<String> = left_out.chain(matched).chain(self.remarks.iter().cloned()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn table(ended: &[(u64, Self)]) -> Result<RecordBatch> {
        let numbers = |of: &dyn Fn(&Self) -> u64| -> ArrayRef {
            Arc::new(ended.iter().map(|(_, run)| of(run) as i64).collect::<Int64Array>())
        };
        let texts = |of: &dyn Fn(&Self) -> Option<String>| -> ArrayRef {
            Arc::new(ended.iter().map(|(_, run)| of(run)).collect::<StringArray>())
        };
        Ok(RecordBatch::try_from_iter_with_nullable([
            (
                "run",
                Arc::new(ended.iter().map(|(number, _)| *number as i64).collect::<Int64Array>()) as ArrayRef,
                false,
            ),
            ("function", texts(&|run| Some(run.question.function().to_owned())), false),
            ("quasi", texts(&|run| Some(run.quasi.join(", "))), false),
            ("rows", numbers(&|run| run.rows as u64), false),
            ("rounds", numbers(&|run| run.rounds), false),
            ("bytes_sent", numbers(&|run| run.bytes_sent), false),
            ("bytes_received", numbers(&|run| run.bytes_received), false),
            ("seconds", Arc::new(ended.iter().map(|(_, run)| Some(run.seconds)).collect::<Float64Array>()), false),
            ("note", texts(&Self::note), true),
        ])?)
    }
}
