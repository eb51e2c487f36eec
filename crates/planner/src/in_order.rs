//! All rows of an input, in an order that is the same each time it is read.
//!
//! Operators that need all rows get them through DataFusion's merging of partitions, in the order in which these happen to answer. Where rows of two relations belong
//! together by their order, that would match other rows at each run: partitions are read one after the other instead.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::{StreamExt, TryStreamExt, stream};

/// Reads them. A query that is cut anywhere has no order to keep.
pub(crate) fn in_order(input: &Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
    let merged = input.downcast_ref::<CoalescePartitionsExec>().filter(|merged| merged.fetch().is_none());
    let Some(merged) = merged else { return input.execute(0, context) };
    let parts = merged.input().clone();
    let (schema, count) = (parts.schema(), parts.output_partitioning().partition_count());
    let rows = stream::iter(0..count).map(move |part| parts.execute(part, context.clone())).try_flatten();
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}
