//! The text of calls and statements as others get it: the key holder, manifests and logs.
//!
//! Some arguments are secrets of the engine: who knows where clusters begin knows which row each of them is about, and that is for P1 alone to
//! know. Their values, and comments of all kinds, stay with the engine. What is told is printed from what was parsed and never cut out of the
//! text, so that no way of writing a call gets past it: names in quotes or capitals, calls within calls, subqueries, common table expressions.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Select, Set, TableFactor,
    VisitMut, VisitorMut,
};

use crate::k_anonymize;

/// What stands in the place of a secret.
const HIDDEN: &str = "..";

/// A call of a function with these arguments, without secrets.
pub(crate) fn told_call(function: &str, arguments: &[FunctionArg]) -> String {
    let mut arguments = arguments.to_vec();
    hide(&mut arguments);
    let _ = VisitMut::visit(&mut arguments, &mut Secrets);
    let written: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    format!("{function}({})", written.join(", "))
}

/// A statement, without secrets.
pub fn told_statement(statement: &Statement) -> String {
    let mut statement = statement.clone();
    hide_in_statement(&mut statement);
    statement.to_string()
}

fn hide_in_statement(statement: &mut Statement) {
    let mut inner = statement;
    while let Statement::Explain(explain) = inner {
        inner = &mut explain.statement;
    }
    let _ = match inner {
        Statement::Statement(statement) => VisitMut::visit(statement, &mut Secrets),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => VisitMut::visit(query, &mut Secrets),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) | Statement::Explain(_) => ControlFlow::Continue(()),
    };
}

/// Takes secrets out of what it visits.
struct Secrets;

impl VisitorMut for Secrets {
    type Break = ();

    fn pre_visit_table_factor(&mut self, relation: &mut TableFactor) -> ControlFlow<()> {
        match relation {
            TableFactor::Table { args: Some(call), .. } => hide(&mut call.args),
            TableFactor::Function { args, .. } => hide(args),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(call) = expression {
            hide_in_call(call);
        }
        ControlFlow::Continue(())
    }

    /// The one kind of comment that the parser keeps.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.optimizer_hints.clear();
        ControlFlow::Continue(())
    }

    fn pre_visit_statement(&mut self, statement: &mut ast::Statement) -> ControlFlow<()> {
        match statement {
            ast::Statement::Call(call) => hide_in_call(call),
            ast::Statement::Set(set) => hide_setting(set),
            ast::Statement::Insert(insert) => insert.optimizer_hints.clear(),
            ast::Statement::Update(update) => update.optimizer_hints.clear(),
            ast::Statement::Delete(delete) => delete.optimizer_hints.clear(),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn hide_in_call(call: &mut Function) {
    for arguments in [&mut call.parameters, &mut call.args] {
        if let FunctionArguments::List(list) = arguments {
            hide(&mut list.args);
        }
    }
}

/// Whatever the function is: one that is not known is refused, and was perhaps misspelt.
fn hide(arguments: &mut [FunctionArg]) {
    for argument in arguments {
        let (name, value) = match argument {
            FunctionArg::Named { name, arg, .. } => (name.value.clone(), arg),
            FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, .. } => (name.value.clone(), arg),
            FunctionArg::ExprNamed { name, arg, .. } => (name.to_string(), arg),
            FunctionArg::Unnamed(_) => continue,
        };
        if is_secret(&name) {
            *value = FunctionArgExpr::Expr(hidden());
        }
    }
}

/// `SET veil.seed`.
fn hide_setting(set: &mut Set) {
    let is_seed =
        |name: &ObjectName| name.0.last().and_then(|part| part.as_ident()).is_some_and(|part| is_secret(&part.value));
    match set {
        Set::SingleAssignment { variable, values, .. } if is_seed(variable) => *values = vec![hidden()],
        Set::ParenthesizedAssignments { variables, values } if variables.iter().any(is_seed) => {
            *values = vec![hidden()]
        }
        Set::MultipleAssignments { assignments } => {
            for assignment in assignments.iter_mut().filter(|assignment| is_seed(&assignment.name)) {
                assignment.value = hidden();
            }
        }
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    k_anonymize::SECRETS.contains(&name.to_lowercase().as_str())
}

fn hidden() -> Expr {
    Expr::Identifier(Ident::new(HIDDEN))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;
    use datafusion::sql::sqlparser::dialect::{
        Dialect, DuckDbDialect, GenericDialect, MySqlDialect, PostgreSqlDialect,
    };

    use super::*;

    fn told(dialect: &dyn Dialect, sql: &str) -> String {
        let statement = DFParser::parse_sql_with_dialect(sql, dialect).unwrap().pop_front().unwrap();
        told_statement(&statement)
    }

    #[test]
    fn secrets_are_hidden_however_they_are_written() {
        let call = "k_anonymize(t, k => 5, quasi => (a), seed => ..)";
        for (sql, expected) in [
            ("SELECT * FROM k_anonymize(t, k => 5, quasi => (a), seed => 7331)", format!("SELECT * FROM {call}")),
            (
                "select * from K_ANONYMIZE(t, SEED => 7331, \"Init_Rows\" => (7331, 12))",
                "SELECT * FROM K_ANONYMIZE(t, SEED => .., \"Init_Rows\" => ..)".to_owned(),
            ),
            (
                "SELECT * FROM sweep((SELECT a FROM k_anonymize(t, k => 5, quasi => (a), seed => 7331)), \"seed\" => '7331')",
                format!("SELECT * FROM sweep((SELECT a FROM {call}), \"seed\" => ..)"),
            ),
            (
                "SELECT * FROM risk(k_anonymize(k_anonymize(t, seed => 7331), init_rows => [7331], k => 2))",
                "SELECT * FROM risk(k_anonymize(k_anonymize(t, seed => ..), init_rows => .., k => 2))".to_owned(),
            ),
            (
                "WITH x AS (SELECT * FROM k_anonymize(t, k => 5, quasi => (a), seed => 7331)) SELECT 1 FROM x WHERE a IN \
                 (SELECT a FROM y, LATERAL k_anonymize(z, seed => 7330 + 1))",
                format!(
                    "WITH x AS (SELECT * FROM {call}) SELECT 1 FROM x WHERE a IN \
                     (SELECT a FROM y, LATERAL k_anonymize(z, seed => ..))"
                ),
            ),
            (
                "CREATE TABLE anon AS SELECT * FROM k_anonymize(t, k => 5, quasi => (a), seed => 7331) -- seed 7331",
                format!("CREATE TABLE anon AS SELECT * FROM {call}"),
            ),
            (
                "CREATE VIEW v AS SELECT /*+ seed 7331 */ a FROM k_anonymize(t, k => 5, quasi => (a), seed => 7331)",
                format!("CREATE VIEW v AS SELECT a FROM {call}"),
            ),
            (
                "EXPLAIN ANALYZE SELECT * FROM k_anonymize(t /* 7331 */, k => 5, quasi => (a), seed => 7331)",
                format!("EXPLAIN ANALYZE SELECT * FROM {call}"),
            ),
            (
                "COPY (SELECT * FROM k_anonymize(t, k => 5, quasi => (a), seed => 7331)) TO 'anon.parquet'",
                format!("COPY (SELECT * FROM {call}) TO anon.parquet"),
            ),
            (
                "PREPARE p AS SELECT * FROM k_anonymize(t, k => 5, quasi => (a), seed => 7331)",
                format!("PREPARE p AS SELECT * FROM {call}"),
            ),
            ("INSERT INTO u SELECT f(seed => 7331) FROM t", "INSERT INTO u SELECT f(seed => ..) FROM t".to_owned()),
            ("CALL k_anonymize(seed => 7331)", "CALL k_anonymize(seed => ..)".to_owned()),
            ("SET veil.seed = 7331", "SET veil.seed = ..".to_owned()),
            ("SET \"veil\".\"SEED\" TO '7331'", "SET \"veil\".\"SEED\" = ..".to_owned()),
            // What is no secret stays.
            ("SELECT seed, 7331 AS init_rows FROM t", "SELECT seed, 7331 AS init_rows FROM t".to_owned()),
            ("SET veil.batch_rows = 7331", "SET veil.batch_rows = 7331".to_owned()),
        ] {
            for dialect in [&GenericDialect as &dyn Dialect, &PostgreSqlDialect {}] {
                assert_eq!(told(dialect, sql), expected, "{sql}");
            }
        }
        let assigned = "SELECT * FROM k_anonymize(t, seed := 7331)";
        assert_eq!(told(&DuckDbDialect, assigned), "SELECT * FROM k_anonymize(t, seed := ..)");
        let hinted = "SELECT /*+ seed 7331 */ 1 FROM k_anonymize(t, `Seed` => 7331)";
        assert_eq!(told(&MySqlDialect {}, hinted), "SELECT 1 FROM k_anonymize(t, `Seed` => ..)");
        assert_eq!(told(&MySqlDialect {}, "SET a = 1, veil.seed = 7331"), "SET a = 1, veil.seed = ..");
    }
}
