//! What callers may run, by their roles.
//!
//! ```text
//!  recipient   SELECT * FROM release((..), recipient => 'its own name')        recipient_statement
//!                the query inside: plain SQL on tables and views               recipient_columns
//!                functions and operators from a list                           recipient_expressions
//!                                                                              known_tables
//!                errors without what stands in rows                            told
//!  steward     SELECT, WITH, EXPLAIN, questions about tables, any release
//!  admin       everything
//! ```
//! All of it is decided on the logical plan, before it is optimised: names in a text can be quoted, aliased and hidden in comments,
//! while a plan has the function itself.

use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use veil_flight_sql::{AnswerError, Caller, Kind, Role};

use super::known_tables::KnownTables;
use super::recipient_statement;

/// Refuses a statement that the caller's role may not run.
pub(super) fn check(caller: &Caller, plan: &LogicalPlan, tables: &KnownTables) -> Result<(), AnswerError> {
    if changes_something(plan) && !caller.role.may_change() {
        return Err(denied(
            "only callers with the role `admin` may change tables or settings, or read and write the server's files; a steward may \
             SELECT and EXPLAIN, and a recipient has rows released",
        ));
    }
    match &caller.role {
        Role::Recipient(recipient) => recipient_statement::check(plan, recipient, tables),
        Role::Steward | Role::Admin => Ok(()),
    }
}

/// Anything but a query, wherever it stands: EXPLAIN ANALYZE runs what it explains.
pub(super) fn changes_something(plan: &LogicalPlan) -> bool {
    let queries = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    queries.verify_plan(plan).is_err()
}

/// A refusal because of the caller's role.
pub(super) fn denied(sentence: impl Into<String>) -> AnswerError {
    AnswerError::new(Kind::Denied, sentence)
}

/// A refusal of something in the query that a recipient wants to have released.
pub(super) fn not_for_recipients(what: &str) -> AnswerError {
    denied(format!(
        "a recipient's query cannot have {what}: only stewards and admins may, and an admin can put it into a view that recipients \
         may read"
    ))
}
