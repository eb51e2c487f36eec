//! ORDER BY of a subquery, where rows of tables belong together by their order.
//!
//! DataFusion drops it while it reads SQL, as it may: rows of a subquery have no order. A LIMIT that no table reaches keeps it, until the sort is planned.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, LimitClause, Query, Value,
};

/// More rows than there are.
const LIMIT: i64 = i64::MAX;

/// How many rows a query wants, without the limit that keeps a sort.
pub(crate) fn fetched(fetch: Option<usize>) -> Option<usize> {
    fetch.filter(|rows| i64::try_from(*rows).is_ok_and(|rows| rows < LIMIT))
}

/// The arguments of a function that compares by order, with the order of its subqueries, and of those within functions that these come from.
pub(crate) fn keep_sorts(arguments: &mut [FunctionArg]) {
    for argument in arguments {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(relation)) = argument else { continue };
        match relation {
            Expr::Subquery(query) => keep_sort(query),
            Expr::Function(call) => {
                if let FunctionArguments::List(list) = &mut call.args {
                    keep_sorts(&mut list.args);
                }
            }
            _ => {}
        }
    }
}

/// Whether a flag of this name is among the arguments and is set.
pub(crate) fn is_set(arguments: &[FunctionArg], wanted: &str) -> bool {
    arguments.iter().any(|argument| match argument {
        FunctionArg::Named { name, arg, .. } | FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, .. } => {
            name.value.eq_ignore_ascii_case(wanted) && !arg.to_string().eq_ignore_ascii_case("false")
        }
        _ => false,
    })
}

fn keep_sort(query: &mut Query) {
    if query.order_by.is_some() && query.limit_clause.is_none() && query.fetch.is_none() {
        let limit = Some(Expr::value(Value::Number(LIMIT.to_string(), false)));
        query.limit_clause = Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
    }
}
