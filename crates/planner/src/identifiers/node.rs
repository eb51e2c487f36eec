//! The logical node.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DFSchema, DFSchemaRef, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::physical_plan::ExecutionPlan;

use super::exec::Compared;
use super::{IdentifiersExec, Question};
use crate::Veil;

/// What comes out: one row a minimal identifier.
static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let names = Field::new_list_field(DataType::Utf8, false);
    Arc::new(Schema::new(vec![
        Field::new("columns", DataType::List(Arc::new(names)), false),
        Field::new("size", DataType::Int64, false),
        Field::new("kind", DataType::Utf8, false),
        Field::new("rows_at_risk", DataType::Int64, true),
    ]))
});

pub(super) fn schema() -> SchemaRef {
    SCHEMA.clone()
}

/// A search for identifying columns of the input.
#[derive(Clone, Debug)]
pub struct IdentifiersNode {
    input: Arc<LogicalPlan>,
    /// Columns of the input.
    columns: Vec<Expr>,
    /// Names of columns that nobody named and that have no tags.
    left_out: Vec<String>,
    question: Question,
    schema: DFSchemaRef,
}

impl IdentifiersNode {
    pub(super) fn try_new(
        input: Arc<LogicalPlan>,
        columns: Vec<Expr>,
        left_out: Vec<String>,
        question: Question,
    ) -> Result<Self> {
        let schema = Arc::new(DFSchema::try_from(schema().as_ref().clone())?);
        Ok(Self { input, columns, left_out, question, schema })
    }

    /// The columns' names, with those of their tables where that takes it to tell them apart.
    fn names(&self) -> Vec<String> {
        let plain: Vec<String> = self.columns.iter().map(|column| column.qualified_name().1).collect();
        let name = |(column, name): (&Expr, &String)| match plain.iter().filter(|other| *other == name).count() {
            1 => name.clone(),
            _ => column.schema_name().to_string(),
        };
        self.columns.iter().zip(&plain).map(name).collect()
    }

    /// The operator.
    pub(crate) fn operator(&self, veil: &Veil, input: Arc<dyn ExecutionPlan>) -> Result<IdentifiersExec> {
        let places = self.columns.iter().map(|expr| match expr {
            Expr::Column(column) => self.input.schema().index_of_column(column),
            other => internal_err!("VeilIdentifiers compares columns, not {other}"),
        });
        let places = places.collect::<Result<Vec<_>>>()?;
        let compared = Compared { places, names: self.names(), left_out: self.left_out.clone() };
        IdentifiersExec::try_new(veil.clone(), input, compared, self.question)
    }

    fn identity(&self) -> (&Vec<Expr>, &Question, &Arc<LogicalPlan>) {
        (&self.columns, &self.question, &self.input)
    }
}

// The schema is always the same.
impl PartialEq for IdentifiersNode {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for IdentifiersNode {}

impl Hash for IdentifiersNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl PartialOrd for IdentifiersNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.identity().partial_cmp(&other.identity())
    }
}

impl UserDefinedLogicalNodeCore for IdentifiersNode {
    fn name(&self) -> &str {
        "VeilIdentifiers"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.columns.clone()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VeilIdentifiers: columns=[{}], {}", self.names().join(", "), self.question)
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match <[LogicalPlan; 1]>::try_from(inputs) {
            Ok([input]) => Self::try_new(Arc::new(input), exprs, self.left_out.clone(), self.question),
            Err(inputs) => internal_err!("VeilIdentifiers has one input, not {}", inputs.len()),
        }
    }

    // Whatever is asked of the result, all columns are compared.
    fn necessary_children_exprs(&self, _: &[usize]) -> Option<Vec<Vec<usize>>> {
        let inputs = self.input.schema();
        let column = |expr: &Expr| match expr {
            Expr::Column(column) => inputs.maybe_index_of_column(column),
            _ => None,
        };
        let mut used = self.columns.iter().map(column).collect::<Option<Vec<_>>>()?;
        used.sort_unstable();
        used.dedup();
        Some(vec![used])
    }
}
