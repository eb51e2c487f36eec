//! The engine as an answerer: what a caller may ask, how it is planned and run, and what errors mean.

use async_trait::async_trait;
use datafusion::catalog::SchemaProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::{LogicalPlan, TableType};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::dialect::Dialect;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinError;
use veil_flight_p2::status_of;
use veil_flight_sql::{AnswerError, Answers, Caller, Kind, Prepared, Rows, Run, TableEntry};
use veil_owner::OwnerError;
use veil_planner::{explain_error, told_statement};
use veil_protocols::ProtocolError;

use crate::sql::copy_target::CopyTarget;
use crate::sql::engine;

/// The logical node of a release: what it spends is spent, so that it is run once.
const RELEASE: &str = "VeilRelease";

/// One session for all callers.
pub(crate) struct EngineAnswers {
    context: SessionContext,
}

impl EngineAnswers {
    pub(crate) fn new(context: SessionContext) -> Self {
        Self { context }
    }

    pub(crate) fn dialect(&self) -> Box<dyn Dialect> {
        engine::dialect(&self.context)
    }

    async fn plan(&self, sql: &str) -> Result<LogicalPlan, AnswerError> {
        let parsed = DFParser::parse_sql_with_dialect(sql, self.dialect().as_ref());
        let mut statements = parsed.map_err(|error| explained(&error))?.into_iter();
        match (statements.next(), statements.next()) {
            (Some(statement), None) => {
                self.context.state().statement_to_plan(statement).await.map_err(|error| explained(&error))
            }
            (None, _) => Err(AnswerError::new(Kind::Invalid, "there is no statement in the text")),
            (Some(_), Some(_)) => {
                Err(AnswerError::new(Kind::Invalid, "there are several statements in the text; send one at a time"))
            }
        }
    }
}

#[async_trait]
impl Answers for EngineAnswers {
    async fn prepare(&self, caller: &Caller, sql: &str) -> Result<Prepared, AnswerError> {
        let plan = self.plan(sql).await?;
        if changes_something(&plan) {
            if !caller.admin {
                let sentence = "only callers that the token file marks `admin` may change tables or settings, or read and write \
                                the server's files; SELECT, WITH and EXPLAIN are for everybody";
                return Err(AnswerError::new(Kind::Denied, sentence));
            }
            let context = self.context.clone();
            return Ok(Prepared { schema: None, run: Run::new(|| change(context, plan)), keep: false });
        }
        let keep = is_release(&plan).map_err(|error| explained(&error))?;
        // The whole of planning now: what the columns are, and whether they can be had, is known only after all its rules.
        let state = self.context.state();
        let plan = state.create_physical_plan(&plan).await.map_err(|error| explained(&error))?;
        let schema = plan.schema();
        let run = Run::new(move || async move {
            let rows = execute_stream(plan, state.task_ctx()).map_err(|error| explained(&error))?;
            Ok(Rows { schema: rows.schema(), batches: rows.map_err(|error| explained(&error)).boxed() })
        });
        Ok(Prepared { schema: Some(schema), run, keep })
    }

    async fn tables(&self, _: &Caller) -> Result<Vec<TableEntry>, AnswerError> {
        let mut entries = Vec::new();
        for catalog in self.context.catalog_names() {
            let Some(provider) = self.context.catalog(&catalog) else { continue };
            for schema in provider.schema_names() {
                let Some(tables) = provider.schema(&schema) else { continue };
                for table in tables.table_names() {
                    entries.extend(entry(&catalog, &schema, &table, tables.as_ref()).await?);
                }
            }
        }
        Ok(entries)
    }

    /// Without what only the engine may know, such as seeds.
    fn told(&self, sql: &str) -> String {
        match DFParser::parse_sql_with_dialect(sql, self.dialect().as_ref()) {
            Ok(statements) => statements.iter().map(told_statement).collect::<Vec<_>>().join("; "),
            Err(_) => "(not a statement)".to_owned(),
        }
    }
}

/// A table, unless it was dropped meanwhile.
async fn entry(
    catalog: &str,
    schema: &str,
    name: &str,
    tables: &dyn SchemaProvider,
) -> Result<Option<TableEntry>, AnswerError> {
    let Some(table) = tables.table(name).await.map_err(|error| explained(&error))? else { return Ok(None) };
    let table_type = match table.table_type() {
        TableType::Base => "TABLE",
        TableType::View => "VIEW",
        TableType::Temporary => "LOCAL TEMPORARY",
    };
    Ok(Some(TableEntry {
        catalog: catalog.to_owned(),
        schema: schema.to_owned(),
        table: name.to_owned(),
        table_type: table_type.to_owned(),
        columns: Some(table.schema()),
    }))
}

/// Runs a statement that is no query, to its end. It gives a count, or the text of EXPLAIN ANALYZE.
async fn change(context: SessionContext, plan: LogicalPlan) -> Result<Rows, AnswerError> {
    let done = async {
        let (plan, target) = CopyTarget::divert(plan, false)?;
        let frame = context.execute_logical_plan(plan).await?;
        let tasks = frame.task_ctx().into();
        let rows = execute_stream(frame.create_physical_plan().await?, tasks)?;
        let schema = rows.schema();
        let batches: Vec<_> = rows.try_collect().await?;
        target.map_or(Ok(()), CopyTarget::keep)?;
        Ok((schema, batches))
    };
    let (schema, batches) = done.await.map_err(|error| explained(&error))?;
    Ok(Rows { schema, batches: stream::iter(batches.into_iter().map(Ok)).boxed() })
}

/// Anything but a query, wherever it stands: EXPLAIN ANALYZE runs what it explains.
fn changes_something(plan: &LogicalPlan) -> bool {
    let queries = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    queries.verify_plan(plan).is_err()
}

fn is_release(plan: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Extension(extension) if extension.node.name() == RELEASE);
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The task of P1's own that broke off, if it was that.
fn task_of(error: &DataFusionError) -> Option<&JoinError> {
    match error.find_root() {
        DataFusionError::ExecutionJoin(failed) => Some(failed),
        DataFusionError::External(inner) => inner.downcast_ref(),
        _ => None,
    }
}

/// One sentence, and whose fault it is.
fn explained(error: &DataFusionError) -> AnswerError {
    if let Some(failed) = task_of(error) {
        return match failed.is_cancelled() {
            true => AnswerError::new(Kind::Unavailable, "P1 is stopping; ask again when it is back"),
            false => AnswerError::new(Kind::Internal, "a worker of P1 failed; its log says more"),
        };
    }
    let kind = match error.find_root() {
        DataFusionError::External(inner) => match inner.downcast_ref::<ProtocolError>() {
            Some(error) => AnswerError::of_status(&status_of(error)).kind,
            None if inner.downcast_ref::<OwnerError>().is_some() => Kind::Precondition,
            None => Kind::Invalid,
        },
        DataFusionError::NotImplemented(_) => Kind::Unsupported,
        DataFusionError::ResourcesExhausted(_) => Kind::Exhausted,
        DataFusionError::Internal(_) | DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => Kind::Internal,
        _ => Kind::Invalid,
    };
    AnswerError::new(kind, explain_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers() -> EngineAnswers {
        EngineAnswers::new(engine::session(&veil_planner::Veil::default()))
    }

    async fn kind(answers: &EngineAnswers, sql: &str) -> Option<Kind> {
        answers.prepare(&Caller::local(), sql).await.err().map(|error| error.kind)
    }

    #[tokio::test]
    async fn queries_are_for_everybody_and_changes_are_not() {
        let answers = answers();
        for sql in ["SELECT 1", "WITH a AS (SELECT 1 AS n) SELECT n FROM a", "EXPLAIN SELECT 1", "SHOW TABLES"] {
            assert_eq!(kind(&answers, sql).await, None, "{sql}");
        }
        for sql in [
            "CREATE TABLE t AS SELECT 1",
            "CREATE VIEW v AS SELECT 1",
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
            "COPY (SELECT 1) TO 'x.csv'",
            "EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'",
            "SET datafusion.execution.batch_size = 1",
            "PREPARE p AS SELECT 1",
        ] {
            assert_eq!(kind(&answers, sql).await, Some(Kind::Denied), "{sql}");
        }
        for sql in ["", "SELECT 1; SELECT 2", "SELEC 1", "SELECT * FROM '/etc/passwd'", "SELECT * FROM absent"] {
            assert_eq!(kind(&answers, sql).await, Some(Kind::Invalid), "{sql}");
        }
    }

    #[test]
    fn the_log_has_no_secrets_of_the_engine() {
        let answers = answers();
        let sql = "SELECT * FROM k_anonymize(t, k => 5, quasi => (a), seed => 7331) -- 7331";
        assert_eq!(answers.told(sql), "SELECT * FROM k_anonymize(t, k => 5, quasi => (a), seed => ..)");
        assert_eq!(answers.told("SELECT 1; SET veil.seed = 7331"), "SELECT 1; SET veil.seed = ..");
        assert_eq!(answers.told("SELEC seed => 7331"), "(not a statement)");
    }

    /// A caller may ask again what an ending server did not do, and is not to blame for what a broken one did.
    #[tokio::test]
    async fn tasks_that_break_off_are_not_the_callers_fault() {
        let stopped = tokio::spawn(std::future::pending::<()>());
        stopped.abort();
        let failed = tokio::task::spawn_blocking(|| std::panic::resume_unwind(Box::new(())));
        let (stopped, failed) = (stopped.await.unwrap_err(), failed.await.unwrap_err());
        assert_eq!(explained(&DataFusionError::External(Box::new(stopped))).kind, Kind::Unavailable);
        assert_eq!(explained(&DataFusionError::ExecutionJoin(Box::new(failed))).kind, Kind::Internal);
    }

    #[tokio::test]
    async fn nothing_is_changed_before_it_is_run() {
        let (answers, admin) = (answers(), Caller { name: "root".to_owned(), admin: true });
        let prepared = answers.prepare(&admin, "CREATE TABLE t AS SELECT 1 AS n").await.unwrap();
        assert!(prepared.schema.is_none() && answers.tables(&admin).await.unwrap().is_empty());
        prepared.run.start().await.unwrap();
        let tables = answers.tables(&admin).await.unwrap();
        assert_eq!((tables[0].table.as_str(), tables[0].table_type.as_str()), ("t", "TABLE"));
        assert_eq!(tables[0].columns.as_ref().unwrap().field(0).name(), "n");
    }
}
