//! Refuses operators on encrypted columns while SQL is read, before DataFusion wonders how to compare bytes with numbers.

use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};

use crate::guard::{encrypted, instead_of, refuse};

/// The planner of expressions.
#[derive(Debug)]
pub(crate) struct RefuseOperators;

impl ExprPlanner for RefuseOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        for side in [&expr.left, &expr.right] {
            if let Some(column) = encrypted(side, schema)? {
                return refuse(&side.to_string(), &column, instead_of(&expr.op.to_string()));
            }
        }
        Ok(PlannerResult::Original(expr))
    }
}
