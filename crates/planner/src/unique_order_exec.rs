//! Rows in an order that leaves no two of them open.
//!
//! Rows that a sort takes for equal come in any order, another one at each run. Where tables are compared by their order, [`ReadInOrder`](crate::read_in_order)
//! puts this above a sort, which DataFusion would drop as nobody asks for it: it passes rows on, and refuses two that have the same in all that they are sorted by. A sort that ends after some rows is
//! made to give one more, so that none is taken instead of its equal.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, InputDistributionRequirements, PlanProperties,
    Statistics,
};
use futures::{TryStreamExt, stream};

/// Passes rows on that differ in what they are sorted by.
#[derive(Debug)]
pub(crate) struct UniqueOrderExec {
    input: Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    /// How many rows it passes on, if not all.
    fetch: Option<usize>,
}

impl UniqueOrderExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, order: LexOrdering, fetch: Option<usize>) -> Self {
        Self { input, order, fetch }
    }

    fn names(&self) -> String {
        let name = |expr: &Arc<dyn PhysicalExpr>| match expr.downcast_ref::<Column>() {
            Some(column) => column.name().to_owned(),
            None => expr.to_string(),
        };
        self.order.iter().map(|sort| name(&sort.expr)).collect::<Vec<_>>().join(", ")
    }
}

impl DisplayAs for UniqueOrderExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VeilUniqueOrderExec: [{}]", self.names())?;
        if let Some(rows) = self.fetch { write!(f, ", fetch={rows}") } else { Ok(()) }
    }
}

impl ExecutionPlan for UniqueOrderExec {
    fn name(&self) -> &str {
        "VeilUniqueOrderExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![Some(OrderingRequirements::from(self.order.clone()))]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[Arc<dyn ExecutionPlan>; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(input, self.order.clone(), self.fetch))),
            Err(children) => internal_err!("VeilUniqueOrderExec has one input, not {}", children.len()),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(&self, inputs: &[Arc<Statistics>], _: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let Some(input) = inputs.first() else { return internal_err!("VeilUniqueOrderExec has an input") };
        Ok(Arc::new(input.as_ref().clone().with_fetch(self.fetch, 0, 1)?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = Rows {
            input: self.input.execute(partition, context)?,
            neighbours: Neighbours::of(&self.order, &self.schema(), self.names())?,
            held: None,
            left: self.fetch.unwrap_or(usize::MAX),
        };
        let rows = stream::try_unfold(rows, |mut rows: Rows| async move {
            let batch = rows.next().await?;
            Ok(batch.map(|batch| (batch, rows)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// Rows on their way.
struct Rows {
    input: SendableRecordBatchStream,
    neighbours: Neighbours,
    /// Goes on when the row behind its last one is known.
    held: Option<RecordBatch>,
    left: usize,
}

impl Rows {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(batch) = self.input.try_next().await? {
            if batch.num_rows() == 0 {
                continue;
            }
            self.neighbours.check(&batch)?;
            if let Some(held) = self.held.replace(batch) {
                return Ok(Some(self.cut(&held)));
            }
        }
        let last = self.held.take();
        Ok(last.map(|batch| self.cut(&batch)))
    }

    fn cut(&mut self, batch: &RecordBatch) -> RecordBatch {
        let rows = batch.num_rows().min(self.left);
        self.left -= rows;
        batch.slice(0, rows)
    }
}

/// What rows are sorted by, and that of the last one.
struct Neighbours {
    order: LexOrdering,
    names: String,
    converter: RowConverter,
    last: Option<OwnedRow>,
}

impl Neighbours {
    fn of(order: &LexOrdering, schema: &SchemaRef, names: String) -> Result<Self> {
        let field = |expr: &Arc<dyn PhysicalExpr>| Ok(SortField::new(expr.data_type(schema)?));
        let fields = order.iter().map(|sort| field(&sort.expr)).collect::<Result<Vec<_>>>()?;
        Ok(Self { order: order.clone(), names, converter: RowConverter::new(fields)?, last: None })
    }

    fn check(&mut self, batch: &RecordBatch) -> Result<()> {
        let values = self.order.iter().map(|sort| sort.expr.evaluate(batch)?.into_array(batch.num_rows()));
        let rows = self.converter.convert_columns(&values.collect::<Result<Vec<_>>>()?)?;
        let mut before = self.last.as_ref().map(OwnedRow::row);
        for row in &rows {
            if before == Some(row) {
                return exec_err!(
                    "rows are sorted by {}, in which some are equal, so that tables cannot be compared by their order: sort by a column too that has \
                     another value in every row, or leave out ORDER BY",
                    self.names
                );
            }
            before = Some(row);
        }
        self.last = before.map(|row| row.owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;
    use datafusion::catalog::memory::MemorySourceConfig;
    use datafusion::physical_expr::PhysicalSortExpr;
    use datafusion::physical_plan::collect;

    use super::*;

    /// Batches of these numbers through it, and what is left of them.
    async fn passed(batches: &[&[i64]], fetch: Option<usize>) -> Result<Vec<i64>> {
        let batch = |numbers: &&[i64]| {
            RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(numbers.to_vec())) as ArrayRef)]).unwrap()
        };
        let batches: Vec<RecordBatch> = batches.iter().map(batch).collect();
        let schema = batches[0].schema();
        let input = MemorySourceConfig::try_new_exec(&[batches], schema, None).unwrap();
        let order = LexOrdering::new([PhysicalSortExpr::new_default(Arc::new(Column::new("id", 0)))]).unwrap();
        let rows =
            collect(Arc::new(UniqueOrderExec::new(input, order, fetch)), Arc::new(TaskContext::default())).await?;
        Ok(rows.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect())
    }

    #[tokio::test]
    async fn equal_neighbours_are_found_across_batches_and_behind_the_last_row() {
        assert_eq!(passed(&[&[1, 2], &[], &[3], &[4, 5]], None).await.unwrap(), [1, 2, 3, 4, 5]);
        assert_eq!(passed(&[&[1, 2], &[3], &[4]], Some(3)).await.unwrap(), [1, 2, 3]);
        for (batches, fetch) in
            [(&[&[1, 2, 2][..], &[3]][..], None), (&[&[1, 2], &[], &[2, 3]], None), (&[&[1], &[2], &[2]], Some(2))]
        {
            let error = passed(batches, fetch).await.unwrap_err().to_string();
            assert!(error.contains("rows are sorted by id, in which some are equal"), "{error}");
        }
    }
}
