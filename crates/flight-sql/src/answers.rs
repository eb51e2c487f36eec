//! Who answers statements, and what an answer is.

use std::fmt;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::{AnswerError, Caller};

/// Answers SQL.
#[async_trait]
pub trait Answers: Send + Sync + 'static {
    /// Plans a statement, and runs nothing. It is called when a client asks about a statement, so that mistakes and refusals come
    /// before the rows.
    async fn prepare(&self, caller: &Caller, sql: &str) -> Result<Prepared, AnswerError>;

    /// What the caller may read from.
    async fn tables(&self, caller: &Caller) -> Result<Vec<TableEntry>, AnswerError>;

    /// A statement as a verbose log has it: as it was written, unless parts of it are nobody else's business.
    fn told(&self, sql: &str) -> String {
        sql.to_owned()
    }
}

/// A statement that can be run.
#[derive(Debug)]
pub struct Prepared {
    /// The columns of its rows, exactly as they will come. None if they are not known before it runs, or if it is no query.
    pub schema: Option<SchemaRef>,
    /// How to run it.
    pub run: Run,
    /// It is worth running only once: rows go to a spool, and a broken download goes on where it broke.
    pub keep: bool,
}

/// A table for `GetTables`.
#[derive(Clone, Debug)]
pub struct TableEntry {
    /// Its catalog.
    pub catalog: String,
    /// Its schema, as SQL means it.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// `TABLE`, `VIEW`, ..
    pub table_type: String,
    /// Its columns, if they are known.
    pub columns: Option<SchemaRef>,
}

/// Rows as they come.
pub type Batches = BoxStream<'static, Result<RecordBatch, AnswerError>>;

/// What a run yields. Dropping it ends the run.
pub struct Rows {
    /// The columns of every batch.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Batches,
}

impl fmt::Debug for Rows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Rows").field("schema", &self.schema).finish_non_exhaustive()
    }
}

type Start = Box<dyn FnOnce() -> BoxFuture<'static, Result<Rows, AnswerError>> + Send>;

/// Something that is run once.
pub struct Run(Start);

impl Run {
    /// Runs this. A statement that changes something has done so when the future is ready.
    pub fn new<F>(start: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<Rows, AnswerError>> + Send + 'static,
    {
        Self(Box::new(move || Box::pin(start())))
    }

    /// Runs it.
    pub async fn start(self) -> Result<Rows, AnswerError> {
        (self.0)().await
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Run")
    }
}
