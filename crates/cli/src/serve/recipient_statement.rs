//! What a recipient may ask: one release to itself, and nothing around it.

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, LogicalPlan};
use veil_flight_sql::AnswerError;
use veil_planner::ReleaseNode;

use super::known_tables::KnownTables;
use super::recipient_columns::RecipientColumns;
use super::roles::denied;

/// Refuses what a recipient of this name may not ask.
pub(super) fn check(plan: &LogicalPlan, recipient: &str, tables: &KnownTables) -> Result<(), AnswerError> {
    let Some(release) = release_alone(plan) else {
        return Err(denied(match has_release(plan) {
            Ok(false) => format!(
                "a recipient has rows released and asks nothing else, only stewards and admins may ask about tables: write \
                 SELECT * FROM release((SELECT ..), recipient => '{recipient}'), as `veil fetch` and `veil gateway` do with a query"
            ),
            _ => format!(
                "a recipient's statement is SELECT * FROM release((SELECT ..), recipient => '{recipient}') and nothing around it, only \
                 stewards and admins may write more: compute in the query inside"
            ),
        }));
    };
    if release.recipient() != recipient {
        return Err(denied(format!(
            "rows are released to {recipient} for this caller, only stewards and admins may have them released to somebody else: write \
             recipient => '{recipient}'"
        )));
    }
    RecipientColumns::new(tables).check(release.input())
}

/// Whether rows are released anywhere in a statement. What a release spends is spent, so that it is run once.
pub(super) fn has_release(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= release(node).is_some();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// The node, if it is a release.
fn release(plan: &LogicalPlan) -> Option<&ReleaseNode> {
    match plan {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
        _ => None,
    }
}

/// The release that a statement consists of: above it there are names of columns and tables alone.
fn release_alone(mut plan: &LogicalPlan) -> Option<&ReleaseNode> {
    loop {
        plan = match plan {
            LogicalPlan::Projection(projection) if projection.expr.iter().all(is_column) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            plan => return release(plan),
        }
    }
}

/// A column as it is, perhaps under another name.
fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Column(_) => true,
        Expr::Alias(alias) => matches!(*alias.expr, Expr::Column(_)),
        _ => false,
    }
}
