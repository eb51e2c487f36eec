//! The engine as an answerer: how statements are planned and run for callers.

use async_trait::async_trait;
use datafusion::catalog::SchemaProvider;
use datafusion::logical_expr::{LogicalPlan, TableType};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::DFParser;
use datafusion::sql::sqlparser::dialect::Dialect;
use futures::{StreamExt, TryStreamExt, stream};
use veil_flight_sql::{AnswerError, Answers, Caller, Kind, Prepared, Rows, Run, TableEntry};
use veil_planner::told_statement;

use super::known_tables::KnownTables;
use super::recipient_statement::has_release;
use super::roles;
use super::told::Told;
use crate::sql::copy_target::CopyTarget;
use crate::sql::engine;

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

    async fn plan(&self, sql: &str, told: Told) -> Result<LogicalPlan, AnswerError> {
        let parsed = DFParser::parse_sql_with_dialect(sql, self.dialect().as_ref());
        let mut statements = parsed.map_err(|error| told.planning(&error))?.into_iter();
        match (statements.next(), statements.next()) {
            (Some(statement), None) => {
                self.context.state().statement_to_plan(statement).await.map_err(|error| told.planning(&error))
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
        let told = Told::to(&caller.role);
        let plan = self.plan(sql, told).await?;
        roles::check(caller, &plan, &KnownTables::of(&self.context))?;
        if roles::changes_something(&plan) {
            let context = self.context.clone();
            return Ok(Prepared { schema: None, run: Run::new(move || change(context, plan, told)), keep: false });
        }
        let keep = has_release(&plan).map_err(|error| told.planning(&error))?;
        // The whole of planning now: what the columns are, and whether they can be had, is known only after all its rules.
        let state = self.context.state();
        let plan = state.create_physical_plan(&plan).await.map_err(|error| told.planning(&error))?;
        let schema = plan.schema();
        let run = Run::new(move || async move {
            let rows = execute_stream(plan, state.task_ctx()).map_err(|error| told.running(&error))?;
            Ok(Rows { schema: rows.schema(), batches: rows.map_err(move |error| told.running(&error)).boxed() })
        });
        Ok(Prepared { schema: Some(schema), run, keep })
    }

    async fn tables(&self, caller: &Caller) -> Result<Vec<TableEntry>, AnswerError> {
        let mut entries = Vec::new();
        // What a recipient may have of which tables is in the owner's policy, which the engine does not know.
        if !caller.role.may_ask() {
            return Ok(entries);
        }
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
    let Some(table) = tables.table(name).await.map_err(|error| Told::Fully.planning(&error))? else { return Ok(None) };
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
async fn change(context: SessionContext, plan: LogicalPlan, told: Told) -> Result<Rows, AnswerError> {
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
    let (schema, batches) = done.await.map_err(|error| told.running(&error))?;
    Ok(Rows { schema, batches: stream::iter(batches.into_iter().map(Ok)).boxed() })
}

#[cfg(test)]
mod tests {
    use veil_flight_sql::Role;

    use super::*;

    fn answers() -> EngineAnswers {
        EngineAnswers::new(engine::session(&veil_planner::Veil::default()))
    }

    async fn kind(answers: &EngineAnswers, sql: &str) -> Option<Kind> {
        answers.prepare(&Caller::local(), sql).await.err().map(|error| error.kind)
    }

    #[tokio::test]
    async fn queries_are_for_stewards_and_changes_are_not() {
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

    #[tokio::test]
    async fn nothing_is_changed_before_it_is_run() {
        let (answers, admin) = (answers(), Caller { name: "root".to_owned(), role: Role::Admin });
        let prepared = answers.prepare(&admin, "CREATE TABLE t AS SELECT 1 AS n").await.unwrap();
        assert!(prepared.schema.is_none() && answers.tables(&admin).await.unwrap().is_empty());
        prepared.run.start().await.unwrap();
        let tables = answers.tables(&admin).await.unwrap();
        assert_eq!((tables[0].table.as_str(), tables[0].table_type.as_str()), ("t", "TABLE"));
        assert_eq!(tables[0].columns.as_ref().unwrap().field(0).name(), "n");
    }
}
