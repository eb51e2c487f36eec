//! The logical node.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{DFSchema, DFSchemaRef, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::physical_plan::ExecutionPlan;
use veil_udfs::EncryptedField;

use super::align::{REMEDY, shared_columns};
use super::measures::schema;
use super::table::Table;
use super::{AssessExec, Question};
use crate::Veil;
use crate::read_in_order::keeping_sorts;

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
        if let (Question::Utility { by_order: false, .. }, [original, anonymised]) = (&question, inputs.as_slice())
            && shared_columns(&fields(original), &fields(anonymised), &quasi)?.is_empty()
        {
            return plan_err!("no column tells which rows of the two tables belong together: {REMEDY}");
        }
        let schema = Arc::new(DFSchema::try_from(schema(&question).as_ref().clone())?);
        Ok(Self { question, quasi, inputs, schema })
    }

    /// The operator.
    pub(crate) fn operator(&self, veil: &Veil, inputs: Vec<Arc<dyn ExecutionPlan>>) -> Result<AssessExec> {
        let inputs = match self.question.by_order() {
            true => inputs.into_iter().map(keeping_sorts).collect::<Result<_>>()?,
            false => inputs,
        };
        AssessExec::try_new(veil.clone(), self.question.clone(), self.quasi.clone(), inputs)
    }

    /// Places of the columns that are read of each input.
    fn used(&self) -> Result<Vec<Vec<usize>>> {
        let mut used = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let table = Table::of(self.question.function(), &fields(input), &self.quasi)?;
            used.push(table.quasi.iter().map(|(place, _)| *place).chain(table.flag).collect::<Vec<usize>>());
        }
        if let (Question::Sweep { .. }, [original, ..], [used, ..]) =
            (&self.question, self.inputs.as_slice(), used.as_mut_slice())
        {
            used.extend(key_column(&fields(original), used)?);
        }
        // A sweep anonymises the rows that it has read, in their order.
        if let (Question::Utility { .. }, [original, anonymised], [of_original, of_anonymised]) =
            (&self.question, self.inputs.as_slice(), used.as_mut_slice())
        {
            for shared in shared_columns(&fields(original), &fields(anonymised), &self.quasi)? {
                of_original.push(shared.original);
                of_anonymised.push(shared.anonymised);
            }
        }
        for used in &mut used {
            used.sort_unstable();
            used.dedup();
        }
        Ok(used)
    }
}

/// What k_anonymize takes its keys from, where none of these columns is encrypted: without it the rows that were read could not be anonymised.
fn key_column(fields: &[FieldRef], used: &[usize]) -> Result<Option<usize>> {
    let encrypted =
        fields.iter().map(|field| Ok(EncryptedField::of(field)?.is_some())).collect::<Result<Vec<bool>>>()?;
    let has_key = used.iter().any(|place| encrypted.get(*place) == Some(&true));
    Ok(encrypted.iter().position(|is_encrypted| *is_encrypted).filter(|_| !has_key))
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
