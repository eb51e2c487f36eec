//! What ended runs of a function leave in a session: a row each for `<function>_summary()`, and notes for the reader of results.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::{MemTable, TableFunction, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result;

/// The most runs, and notes, that are remembered.
const REMEMBERED: usize = 100;

/// A run that has ended.
pub(crate) trait Ended: Clone + Debug + Send + Sync + 'static {
    /// The function that was run.
    const FUNCTION: &'static str;

    /// What the reader of the result should know.
    fn note(&self) -> Option<String>;

    /// Runs by their numbers, a row each.
    fn table(ended: &[(u64, Self)]) -> Result<RecordBatch>;
}

/// The runs of a session, the latest last.
#[derive(Clone, Debug)]
pub(crate) struct RunLog<T>(Arc<Mutex<Log<T>>>);

#[derive(Debug)]
struct Log<T> {
    ended: VecDeque<(u64, T)>,
    /// How many there were.
    count: u64,
    notes: VecDeque<String>,
    /// Each once, so that there are only as many as there are sentences.
    warnings: Vec<&'static str>,
}

impl<T> Default for RunLog<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Log {
            ended: VecDeque::new(),
            count: 0,
            notes: VecDeque::new(),
            warnings: Vec::new(),
        })))
    }
}

impl<T: Ended> RunLog<T> {
    pub(crate) fn add(&self, run: T) {
        let mut log = self.lock();
        log.notes.extend(run.note());
        log.count += 1;
        let number = log.count;
        log.ended.push_back((number, run));
        while log.notes.len() > REMEMBERED {
            log.notes.pop_front();
        }
        while log.ended.len() > REMEMBERED {
            log.ended.pop_front();
        }
    }

    /// Warns of what a run is about to show. Of several runs that show the same it is told once, until somebody has taken it.
    pub(crate) fn warn(&self, warning: &'static str) {
        let warnings = &mut self.lock().warnings;
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().warnings).into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.lock().ended.iter().map(|(_, run)| run.clone()).collect()
    }

    pub(crate) fn take_notes(&self) -> Vec<String> {
        let notes = std::mem::take(&mut self.lock().notes);
        self.take_warnings().into_iter().chain(notes).collect()
    }

    /// `<function>_summary()`.
    pub(crate) fn table_function(&self) -> Arc<TableFunction> {
        Arc::new(TableFunction::new(format!("{}_summary", T::FUNCTION), Arc::new(self.clone())))
    }

    fn lock(&self) -> MutexGuard<'_, Log<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Ended> TableFunctionImpl for RunLog<T> {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let function = T::FUNCTION;
        if !args.exprs().is_empty() {
            return plan_err!(
                "{function}_summary takes no arguments: ask {function}(..) first, then SELECT * FROM {function}_summary()"
            );
        }
        let ended: Vec<(u64, T)> = self.lock().ended.iter().cloned().collect();
        let batch = T::table(&ended)?;
        Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
    }
}
