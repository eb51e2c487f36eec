//! The logical node.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{DFSchema, DFSchemaRef, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::physical_plan::ExecutionPlan;

use super::ReleaseExec;
use super::columns::{Columns, schema};
use crate::Veil;

/// Rows on their way to a recipient.
#[derive(Clone, Debug)]
pub struct ReleaseNode {
    input: Arc<LogicalPlan>,
    recipient: String,
    query: String,
    schema: DFSchemaRef,
}

impl ReleaseNode {
    pub(super) fn try_new(input: Arc<LogicalPlan>, recipient: String, query: String) -> Result<Self> {
        let fields: Vec<FieldRef> = input.schema().fields().iter().cloned().collect();
        Columns::of(&fields)?;
        let fields = schema().fields().iter().map(|field| (None, field.clone())).collect();
        let schema = Arc::new(DFSchema::new_with_metadata(fields, Default::default())?);
        Ok(Self { input, recipient, query, schema })
    }

    /// Who is to get the rows.
    pub fn recipient(&self) -> &str {
        &self.recipient
    }

    /// The rows.
    pub fn input(&self) -> &LogicalPlan {
        &self.input
    }

    /// The operator.
    pub(crate) fn operator(&self, veil: &Veil, input: Arc<dyn ExecutionPlan>) -> Result<ReleaseExec> {
        ReleaseExec::try_new(veil.clone(), input, self.recipient.clone(), self.query.clone())
    }

    fn identity(&self) -> (&String, &String, &Arc<LogicalPlan>) {
        (&self.recipient, &self.query, &self.input)
    }
}

impl PartialEq for ReleaseNode {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for ReleaseNode {}

impl Hash for ReleaseNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl PartialOrd for ReleaseNode {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.identity().partial_cmp(&other.identity())
    }
}

impl UserDefinedLogicalNodeCore for ReleaseNode {
    fn name(&self) -> &str {
        "VeilRelease"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VeilRelease: recipient={}", self.recipient)
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match <[LogicalPlan; 1]>::try_from(inputs) {
            Ok([input]) => Self::try_new(Arc::new(input), self.recipient.clone(), self.query.clone()),
            Err(inputs) => internal_err!("VeilRelease has one input, not {}", inputs.len()),
        }
    }

    // All columns belong to the release, whatever is looked at of its parts.
    fn necessary_children_exprs(&self, _: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![(0..self.input.schema().fields().len()).collect()])
    }
}
