//! A sweep anonymises the rows that it has read.
//!
//! Rows of several partitions come in any order, another one each time. So every k is given the same rows in the same order, which then tells what
//! became of each of them; and the table is read once.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;

use super::table::place;
use crate::k_anonymize::KAnonymizeExec;

/// The plan of an anonymisation, which reads these rows. Nothing if they do not have all of its columns.
pub(super) fn reading(plan: &Arc<dyn ExecutionPlan>, rows: &RecordBatch) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut is_replaced = false;
    let replaced = plan.clone().transform_down(|node| {
        let Some(anonymisation) = node.downcast_ref::<KAnonymizeExec>() else { return Ok(Transformed::no(node)) };
        let schema = node.children().first().map(|input| input.schema());
        let Some(source) = schema.and_then(|schema| source(rows, &schema)) else {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Stop));
        };
        is_replaced = true;
        let replaced = Arc::new(anonymisation.reading(source)?);
        Ok(Transformed::new(replaced as Arc<dyn ExecutionPlan>, true, TreeNodeRecursion::Stop))
    })?;
    Ok(is_replaced.then_some(replaced.data))
}

/// The rows as a source of these columns.
fn source(rows: &RecordBatch, schema: &SchemaRef) -> Option<Arc<dyn ExecutionPlan>> {
    let fields: Vec<FieldRef> = rows.schema().fields().iter().cloned().collect();
    let column = |name: &String| rows.columns().get(place("sweep", &fields, name).ok()?).cloned();
    let columns = schema.fields().iter().map(|field| column(field.name())).collect::<Option<Vec<_>>>()?;
    let batch = RecordBatch::try_new(schema.clone(), columns).ok()?;
    let source = MemorySourceConfig::try_new_exec(&[vec![batch]], schema.clone(), None).ok()?;
    Some(source)
}
