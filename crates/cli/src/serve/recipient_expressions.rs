//! What the expressions of a recipient's query may do.
//!
//! Functions are allowed one by one. What is not in the lists draws numbers, tells the time or the server's version, looks into types,
//! makes rows of lists, or has not been looked at yet.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use veil_flight_sql::{AnswerError, Kind};
use veil_planner::{is_own_aggregate, is_own_scalar};

use super::roles::not_for_recipients;

/// Functions of clear values that depend on their arguments alone.
const SCALARS: [&str; 48] = [
    "abs",
    "btrim",
    "ceil",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "contains",
    "date_bin",
    "date_part",
    "date_trunc",
    "ends_with",
    "exp",
    "floor",
    "greatest",
    "initcap",
    "isnan",
    "iszero",
    "least",
    "left",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "make_date",
    "nanvl",
    "nullif",
    "nvl",
    "nvl2",
    "power",
    "replace",
    "reverse",
    "right",
    "round",
    "rtrim",
    "signum",
    "split_part",
    "sqrt",
    "starts_with",
    "strpos",
    "substr",
    "substr_index",
    "to_char",
    "translate",
    "trunc",
    "upper",
];

/// Functions of clear values of a group. None of them makes a list.
const AGGREGATES: [&str; 13] = [
    "avg",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "max",
    "median",
    "min",
    "stddev",
    "stddev_pop",
    "sum",
    "var",
    "var_pop",
];

/// Refuses an expression that recipients may not write, and gives the subqueries in it.
pub(super) fn check(expr: &Expr) -> Result<Vec<Arc<LogicalPlan>>, AnswerError> {
    let (mut refused, mut subqueries) = (None, Vec::new());
    let walked = expr.apply(|expr| {
        refused = refused_part(expr);
        subqueries.extend(subquery(expr));
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    match (refused, walked) {
        (Some(what), _) => Err(not_for_recipients(&what)),
        (None, Ok(_)) => Ok(subqueries),
        (None, Err(_)) => {
            Err(AnswerError::new(Kind::Internal, "an expression of the statement cannot be looked through"))
        }
    }
}

/// What of an expression is not for recipients, without what stands in it. What is not known is not for them.
fn refused_part(expr: &Expr) -> Option<String> {
    let unless = |allowed: bool, name: &str| (!allowed).then(|| format!("the function {name}"));
    match expr {
        Expr::ScalarFunction(call) => {
            unless(is_own_scalar(&call.func) || SCALARS.contains(&call.func.name()), call.func.name())
        }
        Expr::AggregateFunction(call) => {
            unless(is_own_aggregate(&call.func) || AGGREGATES.contains(&call.func.name()), call.func.name())
        }
        // A type with metadata could make cells of what is none.
        Expr::Cast(cast) if cast.field.metadata().is_empty() => None,
        Expr::TryCast(cast) if cast.field.metadata().is_empty() => None,
        Expr::Alias(alias) if alias.metadata.as_ref().is_none_or(|metadata| metadata.is_empty()) => None,
        Expr::Literal(_, metadata) if metadata.as_ref().is_none_or(|metadata| metadata.is_empty()) => None,
        Expr::Column(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::BinaryExpr(_)
        | Expr::Like(_)
        | Expr::SimilarTo(_)
        | Expr::Not(_)
        | Expr::IsNotNull(_)
        | Expr::IsNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Negative(_)
        | Expr::Between(_)
        | Expr::Case(_)
        | Expr::InList(_)
        | Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::SetComparison(_)
        | Expr::ScalarSubquery(_) => None,
        Expr::WindowFunction(call) => Some(format!("the window function {}", call.fun.name())),
        Expr::HigherOrderFunction(call) => Some(format!("the function {}", call.name())),
        Expr::GroupingSet(_) => Some("grouping sets".to_owned()),
        Expr::Placeholder(_) => Some("parameters".to_owned()),
        Expr::Unnest(_) => Some("unnest".to_owned()),
        other => Some(format!("an expression of the kind {}", other.variant_name())),
    }
}

/// The subquery of an expression.
fn subquery(expr: &Expr) -> Option<Arc<LogicalPlan>> {
    let subquery = match expr {
        Expr::Exists(of) => &of.subquery,
        Expr::InSubquery(of) => &of.subquery,
        Expr::SetComparison(of) => &of.subquery,
        Expr::ScalarSubquery(of) => of,
        _ => return None,
    };
    Some(subquery.subquery.clone())
}

#[cfg(test)]
mod tests {
    use datafusion::execution::FunctionRegistry;
    use datafusion::logical_expr::Volatility;

    use super::*;
    use crate::sql::engine;

    /// A name that the engine does not know protects nothing, and one that is volatile draws numbers.
    #[test]
    fn the_lists_have_names_of_functions_that_draw_nothing() {
        let context = engine::session(&veil_planner::Veil::default());
        let state = context.state();
        for name in SCALARS {
            let function = state.udf(name).unwrap();
            assert_eq!(function.name(), name, "an alias would never be found");
            assert_eq!(function.signature().volatility, Volatility::Immutable, "{name}");
        }
        for name in AGGREGATES {
            let function = state.udaf(name).unwrap();
            assert_eq!(function.name(), name);
            assert_eq!(function.signature().volatility, Volatility::Immutable, "{name}");
        }
        assert!(SCALARS.is_sorted() && AGGREGATES.is_sorted());
    }

    #[test]
    fn what_draws_tells_time_or_makes_lists_is_in_no_list() {
        for name in [
            "random",
            "uuid",
            "now",
            "current_date",
            "current_time",
            "version",
            "arrow_cast",
            "arrow_typeof",
            "arrow_metadata",
            "with_metadata",
            "cast_to_type",
            "get_field",
            "make_array",
            "range",
            "generate_series",
            "input_file_name",
            "file_row_index",
            "octet_length",
            "repeat",
            "lpad",
            "md5",
            "regexp_like",
        ] {
            assert!(!SCALARS.contains(&name), "{name}");
        }
        for name in ["array_agg", "string_agg", "first_value", "approx_distinct", "grouping"] {
            assert!(!AGGREGATES.contains(&name), "{name}");
        }
    }
}
