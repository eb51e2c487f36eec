//! The logical node of calls that run in rounds with P2, and how it becomes an operator.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::Field;
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, DFSchemaRef, internal_err};
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::expr_to_columns;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};

use crate::Veil;
use crate::assess::AssessNode;
use crate::identifiers::IdentifiersNode;
use crate::k_anonymize::KAnonymizeNode;
use crate::release::ReleaseNode;
use crate::rounds_exec::{Call, RoundsExec};

/// Columns that hold the results of calls.
pub(crate) const COLUMN_PREFIX: &str = "__veil_";

/// The input's columns, and one more for every call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoundsNode {
    input: Arc<LogicalPlan>,
    calls: Vec<Expr>,
    /// The number of the first call's column.
    first: usize,
    schema: DFSchemaRef,
}

impl RoundsNode {
    pub(crate) fn try_new(input: Arc<LogicalPlan>, calls: Vec<Expr>, first: usize) -> Result<Self> {
        let mut fields: Vec<_> =
            input.schema().iter().map(|(qualifier, field)| (qualifier.cloned(), field.clone())).collect();
        for (at, call) in calls.iter().enumerate() {
            let (_, field) = call.to_field(input.schema())?;
            let name = format!("{COLUMN_PREFIX}{}", first + at);
            fields.push((None, Arc::new(Field::clone(&field).with_name(name))));
        }
        let schema = DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?;
        Ok(Self { input, calls, first, schema: Arc::new(schema) })
    }

    fn names(&self) -> impl Iterator<Item = String> {
        let first = self.first;
        (0..self.calls.len()).map(move |at| format!("{COLUMN_PREFIX}{}", first + at))
    }
}

impl PartialOrd for RoundsNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (&self.calls, &self.input).partial_cmp(&(&other.calls, &other.input))
    }
}

impl UserDefinedLogicalNodeCore for RoundsNode {
    fn name(&self) -> &str {
        "VeilRounds"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.calls.clone()
    }

    // Filters on other columns go below: rows that are not wanted cost nothing.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.names().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VeilRounds: ")?;
        for (at, (name, call)) in self.names().zip(&self.calls).enumerate() {
            write!(f, "{}{name} = {call}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match <[LogicalPlan; 1]>::try_from(inputs) {
            Ok([input]) => Self::try_new(Arc::new(input), exprs, self.first),
            Err(inputs) => internal_err!("VeilRounds has one input, not {}", inputs.len()),
        }
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let inputs = self.input.schema();
        let mut columns = HashSet::new();
        self.calls.iter().try_for_each(|call| expr_to_columns(call, &mut columns)).ok()?;
        let used = columns.iter().filter_map(|column| inputs.maybe_index_of_column(column));
        let wanted = output_columns.iter().copied().filter(|at| *at < inputs.fields().len());
        let mut all: Vec<usize> = used.chain(wanted).collect();
        all.sort_unstable();
        all.dedup();
        Some(vec![all])
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}

/// Turns the nodes of this crate into their operators; add it to your own planner if you have one.
#[derive(Debug)]
pub struct RoundsPlanner(Veil);

impl RoundsPlanner {
    /// For sessions of this.
    pub fn new(veil: Veil) -> Self {
        Self(veil)
    }
}

#[async_trait]
impl ExtensionPlanner for RoundsPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        planning: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(node) = node.as_any().downcast_ref::<AssessNode>() {
            return Ok(Some(Arc::new(node.operator(&self.0, inputs.to_vec())?)));
        }
        let [input] = inputs else { return Ok(None) };
        if let Some(node) = node.as_any().downcast_ref::<IdentifiersNode>() {
            return Ok(Some(Arc::new(node.operator(&self.0, input.clone())?)));
        }
        if let Some(node) = node.as_any().downcast_ref::<KAnonymizeNode>() {
            return Ok(Some(Arc::new(node.operator(&self.0, input.clone())?)));
        }
        if let Some(node) = node.as_any().downcast_ref::<ReleaseNode>() {
            return Ok(Some(Arc::new(node.operator(&self.0, input.clone())?)));
        }
        let Some(node) = node.as_any().downcast_ref::<RoundsNode>() else { return Ok(None) };
        let calls = node.calls.iter().zip(node.names()).map(|(call, name)| {
            let call = planner.create_physical_expr(call, node.input.schema(), session, planning)?;
            Call::try_new(&call, name, &input.schema())
        });
        let calls = calls.collect::<Result<Vec<_>>>()?;
        Ok(Some(Arc::new(RoundsExec::try_new(self.0.clone(), input.clone(), calls)?)))
    }
}

/// DataFusion's planner, which knows the node.
#[derive(Debug)]
pub(crate) struct VeilQueryPlanner(Veil);

impl VeilQueryPlanner {
    pub(crate) fn new(veil: Veil) -> Self {
        Self(veil)
    }
}

#[async_trait]
impl QueryPlanner for VeilQueryPlanner {
    async fn create_physical_plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = RoundsPlanner::new(self.0.clone());
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(planner)]);
        planner.create_physical_plan(plan, session).await
    }
}
