//! The logical node.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::physical_plan::ExecutionPlan;

use super::align::shared_column;
use super::measures::schema;
use super::table::Table;
use super::{AssessExec, Question};
use crate::Veil;

/// Risk or utility of its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AssessNode {
    question: Question,
    /// Names of the quasi-identifiers, in all inputs.
    quasi: Vec<String>,
    /// One table; or an original one and what became of it.
    inputs: Vec<Arc<LogicalPlan>>,
    schema: DFSchemaRef,
}

impl AssessNode {
    pub(super) fn try_new(question: Question, quasi: Vec<String>, inputs: Vec<Arc<LogicalPlan>>) -> Result<Self> {
        // What cannot be assessed is refused when a query is planned.
        for input in &inputs {
            Table::of(question.function(), &fields(input), &quasi)?;
        }
        let schema = Arc::new(DFSchema::try_from(schema(&question).as_ref().clone())?);
        Ok(Self { question, quasi, inputs, schema })
    }

    /// The operator.
    pub(crate) fn operator(&self, veil: &Veil, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Result<AssessExec> {
        AssessExec::try_new(veil.clone(), self.question.clone(), self.quasi.clone(), inputs)
    }

    /// Places of the columns that are read of each input.
    fn used(&self) -> Result<Vec<Vec<usize>>> {
        let mut used = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let table = Table::of(self.question.function(), &fields(input), &self.quasi)?;
            used.push(table.quasi.iter().map(|(place, _)| *place).chain(table.flag).collect::<Vec<usize>>());
        }
        if self.question.compares()
            && let Some((original, anonymised)) = self.inputs.split_first()
        {
            let mut of_original = Vec::new();
            for (input, used) in anonymised.iter().zip(used.iter_mut().skip(1)) {
                if let Some((ours, theirs)) = shared_column(&fields(original), &fields(input), &self.quasi)? {
                    of_original.push(ours);
                    used.push(theirs);
                }
            }
            if let Some(used) = used.first_mut() {
                used.extend(of_original);
            }
        }
        for used in &mut used {
            used.sort_unstable();
            used.dedup();
        }
        Ok(used)
    }
}

fn fields(input: &LogicalPlan) -> Vec<FieldRef> {
    input.schema().fields().iter().cloned().collect()
}

impl PartialOrd for AssessNode {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        (&self.question, &self.quasi, &self.inputs).partial_cmp(&(&other.question, &other.quasi, &other.inputs))
    }
}

impl UserDefinedLogicalNodeCore for AssessNode {
    fn name(&self) -> &str {
        "VeilAssess"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().map(AsRef::as_ref).collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VeilAssess: {}, quasi=[{}]", self.question, self.quasi.join(", "))
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        Self::try_new(self.question.clone(), self.quasi.clone(), inputs.into_iter().map(Arc::new).collect())
    }

    // Whatever is asked of the result, the same columns are read.
    fn necessary_children_exprs(&self, _: &[usize]) -> Option<Vec<Vec<usize>>> {
        self.used().ok()
    }
}
