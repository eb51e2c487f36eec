//! The logical node.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{DFSchema, DFSchemaRef, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::physical_plan::ExecutionPlan;

use super::columns::Columns;
use super::{KAnonymizeExec, Request};
use crate::Veil;

/// A table whose rows are like k - 1 others.
#[derive(Clone, Debug)]
pub struct KAnonymizeNode {
    input: Arc<LogicalPlan>,
    /// The quasi-identifiers: columns of the input.
    quasi: Vec<Expr>,
    /// Their weights in thousandths, where the query gives them.
    weights: Vec<Option<u32>>,
    request: Request,
    columns: Columns,
    schema: DFSchemaRef,
}

impl KAnonymizeNode {
    pub(super) fn try_new(
        input: Arc<LogicalPlan>,
        quasi: Vec<Expr>,
        weights: Vec<Option<u32>>,
        request: Request,
    ) -> Result<Self> {
        let place = |expr: &Expr| match expr {
            Expr::Column(column) => input.schema().index_of_column(column),
            other => internal_err!("VeilKAnonymize takes columns, not {other}"),
        };
        let places = quasi.iter().map(place).collect::<Result<Vec<_>>>()?;
        let fields: Vec<FieldRef> = input.schema().fields().iter().cloned().collect();
        let columns = Columns::of(&fields, &places, &weights, &request)?;
        let fields = columns.fields.iter().map(|field| (None, field.clone())).collect();
        let schema = Arc::new(DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?);
        Ok(Self { input, quasi, weights, request, columns, schema })
    }

    /// The rows.
    pub fn input(&self) -> &LogicalPlan {
        &self.input
    }

    /// What is asked, and how it is found.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The column of the input that a column of the result comes from. The flag of suppressed rows comes from none.
    pub fn source(&self, column: usize) -> Option<usize> {
        self.columns.sources.get(column).copied()
    }

    /// The columns of the input that rows are made alike by.
    pub fn quasi(&self) -> impl Iterator<Item = usize> {
        self.columns.quasi.iter().map(|(place, _)| *place)
    }

    /// The operator.
    pub(crate) fn operator(&self, veil: &Veil, input: Arc<dyn ExecutionPlan>) -> Result<KAnonymizeExec> {
        let places = self.columns.quasi.iter().map(|(place, _)| *place).collect();
        KAnonymizeExec::try_new(veil.clone(), input, places, self.weights.clone(), self.request.clone())
    }

    fn names(&self) -> Vec<String> {
        self.quasi.iter().map(|column| column.qualified_name().1).collect()
    }

    fn identity(&self) -> (&Vec<Expr>, &Vec<Option<u32>>, &Arc<LogicalPlan>) {
        (&self.quasi, &self.weights, &self.input)
    }
}

// Columns and schema follow from the rest.
impl PartialEq for KAnonymizeNode {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity() && self.request == other.request
    }
}

impl Eq for KAnonymizeNode {}

impl Hash for KAnonymizeNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
        self.request.hash(state);
    }
}

impl PartialOrd for KAnonymizeNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let order = self.identity().partial_cmp(&other.identity());
        order.filter(|order| order.is_ne() || self.request == other.request)
    }
}

impl UserDefinedLogicalNodeCore for KAnonymizeNode {
    fn name(&self) -> &str {
        "VeilKAnonymize"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.quasi.clone()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VeilKAnonymize: quasi=[{}], {}", self.names().join(", "), self.request)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match <[LogicalPlan; 1]>::try_from(inputs) {
            Ok([input]) => Self::try_new(Arc::new(input), exprs, self.weights.clone(), self.request.clone()),
            Err(inputs) => internal_err!("VeilKAnonymize has one input, not {}", inputs.len()),
        }
    }

    // All quasi-identifiers, whatever is asked of the result, and of the others those that are asked for.
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let wanted = output_columns.iter().filter_map(|column| self.columns.sources.get(*column).copied());
        let needed = self.columns.quasi.iter().map(|(place, _)| *place).chain([self.columns.key_place]);
        let mut used: Vec<usize> = wanted.chain(needed).collect();
        used.sort_unstable();
        used.dedup();
        Some(vec![used])
    }
}
