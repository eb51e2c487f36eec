//! Moves calls that need rounds with P2 out of expressions, into nodes of their own.
//!
//! ```text
//!  Projection: mask_shift(dp_laplace(age, 1), 3)        Projection: mask_shift(__veil_0, 3)
//!    TableScan                                    ──>     VeilRounds: __veil_0 = dp_laplace(age, 1)
//!                                                           TableScan
//! ```
//! Every call in the text of a query becomes one column of one node, so it runs once for each row, and two calls that look the
//! same draw different noise. A call inside another becomes a node below.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable, Extension, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;
use veil_udfs::CellUdf;

use crate::rounds_node::{COLUMN_PREFIX, RoundsNode};

/// The rule.
#[derive(Debug)]
pub(crate) struct FindRounds;

impl AnalyzerRule for FindRounds {
    fn name(&self) -> &str {
        "veil_find_rounds"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(find).map(|plan| plan.data)
    }
}

fn find(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let [input] = plan.inputs()[..] else { return check_none(plan) };
    if matches!(&plan, LogicalPlan::Extension(extension) if extension.node.as_any().is::<RoundsNode>()) {
        return Ok(Transformed::no(plan));
    }
    let mut input = input.clone();
    let names = NamePreserver::new(&plan);
    let mut exprs = plan.expressions();
    let mut found = false;
    // One layer of calls after the other, innermost first.
    loop {
        let first = input.schema().fields().iter().filter(|field| field.name().starts_with(COLUMN_PREFIX)).count();
        let mut calls: Vec<Expr> = Vec::new();
        let mut rewritten = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let name = names.save(&expr);
            let replaced = expr.transform_up(|expr| match is_innermost_call(&expr, input.schema())? {
                true => {
                    let column = Column::new_unqualified(format!("{COLUMN_PREFIX}{}", first + calls.len()));
                    calls.push(expr);
                    Ok(Transformed::yes(Expr::Column(column)))
                }
                false => Ok(Transformed::no(expr)),
            })?;
            rewritten.push(name.restore(replaced.data));
        }
        exprs = rewritten;
        if calls.is_empty() {
            break;
        }
        found = true;
        let node = RoundsNode::try_new(Arc::new(input), calls, first)?;
        input = LogicalPlan::Extension(Extension { node: Arc::new(node) });
    }
    if !found {
        // Types may have come to the node from below.
        return Ok(Transformed::yes(plan.recompute_schema()?));
    }
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) => {
            Ok(Transformed::yes(plan.with_new_exprs(exprs, vec![input])?.recompute_schema()?))
        }
        _ => plan_err!(
            "a function that needs rounds with P2 belongs into the SELECT list: write it there, in a subquery or view if need be, \
             and use its result here"
        ),
    }
}

/// Joins and the like have no place for rounds.
fn check_none(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let inputs = plan.inputs();
    let schema = datafusion::logical_expr::utils::merge_schema(&inputs);
    plan.apply_expressions(|expr| {
        expr.apply(|expr| match is_call(expr, &schema)? {
            true => plan_err!(
                "{expr} needs rounds with P2, and has no place here: write it into the SELECT list of a subquery"
            ),
            false => Ok(TreeNodeRecursion::Continue),
        })
    })?;
    Ok(Transformed::no(plan))
}

/// A call that needs rounds, and has no other in its arguments.
fn is_innermost_call(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let Expr::ScalarFunction(call) = expr else { return Ok(false) };
    // Bottom up, calls in the arguments have been replaced by columns that the input does not have yet.
    let mut waits = false;
    for argument in &call.args {
        argument.apply(|argument| {
            if let Expr::Column(column) = argument {
                waits |= !schema.has_column(column);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if waits { Ok(false) } else { is_call(expr, schema) }
}

/// Whether a call needs rounds. Also where the last check of types happens: by now they have all been restored.
fn is_call(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return Ok(false) };
    let Some(function) = func.inner().downcast_ref::<CellUdf>() else { return Ok(false) };
    let fields = args.iter().map(|argument| Ok(argument.to_field(schema)?.1)).collect::<Result<Vec<_>>>()?;
    let scalars: Vec<Option<&ScalarValue>> = args
        .iter()
        .map(|argument| match argument {
            Expr::Literal(value, _) => Some(value),
            _ => None,
        })
        .collect();
    let arguments = function.arguments(&fields, scalars);
    function.function().result(&arguments)?;
    Ok(function.function().rounds(&arguments)?.is_some())
}
