//! Restores the type of cells where expressions drop it.
//!
//! DataFusion gives the result of CASE, coalesce and casts a plain binary type. Their rows come from branches that are
//! encrypted alike, or else they are refused here; so the result has the branches' common type, and the rule says so by wrapping
//! the expression. The inputs of a UNION get their common type the same way.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Case, Cast, Expr, ExprSchemable, LogicalPlan, Projection, TryCast, Union};
use datafusion::optimizer::AnalyzerRule;
use veil_udfs::EncryptedField;

use crate::guard::is_null;
use crate::restore_type::RestoreType;

/// The rule.
#[derive(Debug)]
pub(crate) struct CarryTypes;

/// Functions that return one of their arguments.
pub(crate) const CHOOSING_FUNCTIONS: [&str; 2] = ["coalesce", "nvl2"];

/// A plan as releases have it: with the types of cells wherever DataFusion drops them.
pub fn with_types(plan: LogicalPlan) -> Result<LogicalPlan> {
    CarryTypes.analyze(plan, &ConfigOptions::default())
}

impl AnalyzerRule for CarryTypes {
    fn name(&self) -> &str {
        "veil_carry_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(carry).map(|plan| plan.data)
    }
}

fn carry(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let source = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
        schema.merge(&source);
    }
    let names = NamePreserver::new(&plan);
    let carried = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let restored = expr.transform_up(|expr| restore(expr, &schema))?;
        Ok(restored.update_data(|expr| name.restore(expr)))
    })?;
    let carried = carried.transform_data(|plan| match plan {
        LogicalPlan::Union(union) => unite(union),
        plan => Ok(Transformed::no(plan)),
    })?;
    match carried.transformed {
        true => carried.map_data(LogicalPlan::recompute_schema),
        // The inputs may have got types.
        false => Ok(Transformed::yes(carried.data.recompute_schema()?)),
    }
}

/// An expression with the type of its branches.
fn restore(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    // Plans are analysed more than once: a type that has been restored before stays as it is.
    if let Some(inner) = RestoreType::wrapped(&expr)
        && RestoreType::wrapped(inner).is_some()
    {
        return Ok(Transformed::yes(inner.clone()));
    }
    let branches: Vec<&Expr> = match &expr {
        Expr::Case(Case { when_then_expr, else_expr, .. }) => {
            when_then_expr.iter().map(|(_, then)| then.as_ref()).chain(else_expr.as_deref()).collect()
        }
        Expr::ScalarFunction(call) if CHOOSING_FUNCTIONS.contains(&call.name()) => {
            // nvl2 returns its second or third argument.
            call.args.iter().skip(usize::from(call.name() == "nvl2")).collect()
        }
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) if is_binary(field.data_type()) => {
            vec![expr.as_ref()]
        }
        _ => return Ok(Transformed::no(expr)),
    };
    let mut common: Option<EncryptedField> = None;
    let mut clear = None;
    for branch in branches {
        let (_, field) = branch.to_field(schema)?;
        if field.data_type().is_null() || is_null(branch) {
            continue;
        }
        common = match (common, EncryptedField::of(&field)?) {
            (common, None) => {
                clear.get_or_insert(branch);
                common
            }
            (None, found) => found,
            (Some(common), Some(found)) => Some(common.or(&found)?),
        };
    }
    match (common, clear) {
        (Some(common), Some(clear)) => mixed(&clear.to_string(), &common),
        (Some(common), None) => {
            let nullable = common.nullable || expr.nullable(schema)?;
            Ok(Transformed::yes(RestoreType::wrap(expr, &common.with_nullable(nullable))?))
        }
        (None, _) => Ok(Transformed::no(expr)),
    }
}

/// Clear values among cells would be taken for cells.
fn mixed<T>(clear: &str, encrypted: &EncryptedField) -> Result<T> {
    plan_err!(
        "{clear} is clear and cannot be mixed with an encrypted {} in one column: use NULL, or mask_redact for a constant",
        encrypted.cell_type.kind
    )
}

/// Gives the inputs of a union their common types.
fn unite(union: Union) -> Result<Transformed<LogicalPlan>> {
    let width = union.schema.fields().len();
    let mut common: Vec<Option<EncryptedField>> = vec![None; width];
    let mut differ = false;
    for (at, common) in common.iter_mut().enumerate() {
        for input in &union.inputs {
            let Some(found) = EncryptedField::of(input.schema().field(at))? else { continue };
            *common = Some(match common.take() {
                Some(common) => common.or(&found)?,
                None => found,
            });
        }
        let Some(common) = common else { continue };
        for input in &union.inputs {
            let field = input.schema().field(at);
            let found = EncryptedField::of(field)?;
            differ |= found.as_ref() != Some(common);
            if found.is_none() && !field.data_type().is_null() {
                return mixed(field.name(), common);
            }
        }
    }
    if !differ {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = union.inputs.iter().map(|input| {
        let columns = input.schema().iter().zip(&common).map(|((qualifier, field), common)| {
            let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
            match common {
                Some(common) => {
                    Ok(RestoreType::wrap(column, common)?.alias_qualified(qualifier.cloned(), field.name()))
                }
                None => Ok(column),
            }
        });
        let projection = Projection::try_new(columns.collect::<Result<_>>()?, input.clone())?;
        Ok(Arc::new(LogicalPlan::Projection(projection)))
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}
