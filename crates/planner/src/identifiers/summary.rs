//! `identifiers_summary()`: the searches of a session, and what they cost.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder,
};
use datafusion::error::Result;

use super::Question;
use crate::run_log::Ended;

/// A search that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// What was asked.
    pub question: Question,
    /// Of which columns.
    pub columns: Vec<String>,
    /// Columns that were not compared, though nobody left them out.
    pub left_out: Vec<String>,
    /// Rows of the input.
    pub rows: usize,
    /// Identifiers that were found.
    pub identifiers: usize,
    /// Sets of columns that were asked about.
    pub checked: u64,
    /// Sets that others answered for.
    pub pruned: u64,
    /// Whether larger sets may identify too.
    pub cut: bool,
    /// Rounds with P2.
    pub rounds: u64,
    /// Bytes sent to P2.
    pub bytes_sent: u64,
    /// Bytes received from P2.
    pub bytes_received: u64,
    /// Time on the clock.
    pub seconds: f64,
}

impl Ended for Search {
    const FUNCTION: &'static str = super::NAME;

    fn note(&self) -> Option<String> {
        let size = self.question.max_size;
        let cut = self.cut.then(|| {
            format!(
                "sets of more than {size} columns were not looked at, and some of those may identify: ask with max_size => {}",
                size.saturating_add(1)
            )
        });
        let left_out = (!self.left_out.is_empty()).then(|| {
            let names = self.left_out.join(", ");
            format!(
                "without equality tags, so not looked at: {names}; name them in columns => (..) to compare their values"
            )
        });
        match (cut, left_out) {
            (Some(cut), Some(left_out)) => Some(format!("{cut}; {left_out}")),
            (cut, left_out) => cut.or(left_out),
        }
    }

    fn table(ended: &[(u64, Self)]) -> Result<RecordBatch> {
        let searches: Vec<&Search> = ended.iter().map(|(_, search)| search).collect();
        let numbers = |of: fn(&Search) -> u64| -> ArrayRef {
            Arc::new(searches.iter().map(|search| Some(of(search) as i64)).collect::<Int64Array>())
        };
        let mut columns = ListBuilder::new(StringBuilder::new());
        for search in &searches {
            columns.append_value(search.columns.iter().map(Some));
        }
        let methods = searches.iter().map(|search| Some(search.question.comparison.name())).collect::<StringArray>();
        let shuffle = searches.iter().map(|search| Some(search.question.shuffle)).collect::<BooleanArray>();
        let seconds = searches.iter().map(|search| Some(search.seconds)).collect::<Float64Array>();
        let notes = searches.iter().map(|search| search.note()).collect::<StringArray>();
        let run: ArrayRef = Arc::new(ended.iter().map(|(number, _)| Some(*number as i64)).collect::<Int64Array>());
        Ok(RecordBatch::try_from_iter_with_nullable([
            ("run", run, false),
            ("columns", Arc::new(columns.finish()), false),
            ("rows", numbers(|search| search.rows as u64), false),
            ("k", numbers(|search| search.question.k.into()), false),
            ("max_size", numbers(|search| search.question.max_size.into()), false),
            ("method", Arc::new(methods), false),
            ("shuffle", Arc::new(shuffle), false),
            ("identifiers", numbers(|search| search.identifiers as u64), false),
            ("checked", numbers(|search| search.checked), false),
            ("pruned", numbers(|search| search.pruned), false),
            ("rounds", numbers(|search| search.rounds), false),
            ("bytes_sent", numbers(|search| search.bytes_sent), false),
            ("bytes_received", numbers(|search| search.bytes_received), false),
            ("seconds", Arc::new(seconds), false),
            ("note", Arc::new(notes), true),
        ])?)
    }
}
