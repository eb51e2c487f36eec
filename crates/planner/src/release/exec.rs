//! The operator.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements,
    PlanProperties,
};
use veil_protocols::catalog;
use veil_udfs::VeilOptions;

use super::columns::{Columns, schema};
use super::run::{PROTOCOLS, Run};
use crate::Veil;
use crate::census::RELEASE_RULE;

/// Seals rows to a recipient.
#[derive(Debug)]
pub struct ReleaseExec {
    veil: Veil,
    input: Arc<dyn ExecutionPlan>,
    recipient: String,
    query: String,
    columns: Columns,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ReleaseExec {
    pub(super) fn try_new(veil: Veil, input: Arc<dyn ExecutionPlan>, recipient: String, query: String) -> Result<Self> {
        let fields: Vec<FieldRef> = input.schema().fields().iter().cloned().collect();
        let columns = Columns::of(&fields)?;
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            input.boundedness(),
        ));
        Ok(Self { veil, input, recipient, query, columns, properties, metrics: ExecutionPlanMetricsSet::new() })
    }
}

impl DisplayAs for ReleaseExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VeilReleaseExec: recipient={}, encrypted={}", self.recipient, self.columns.encrypted.len())?;
        let told = |of: fn(&veil_protocols::Leakage) -> &'static str| {
            let entries = PROTOCOLS.iter().filter_map(|name| catalog::find(name));
            let mut told: Vec<&str> =
                entries.map(|entry| of(&entry.leakage)).filter(|told| *told != "nothing").collect();
            told.dedup();
            told.join("; ")
        };
        write!(f, ", p1_learns=[{}], p2_learns=[{}], {RELEASE_RULE}", told(|of| of.p1), told(|of| of.p2))
    }
}

impl ExecutionPlan for ReleaseExec {
    fn name(&self) -> &str {
        "VeilReleaseExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    // Rows arrive as they come.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
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
            Ok([input]) => {
                Ok(Arc::new(Self::try_new(self.veil.clone(), input, self.recipient.clone(), self.query.clone())?))
            }
            Err(children) => internal_err!("VeilReleaseExec has one input, not {}", children.len()),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context.clone())?;
        let counter = |name: &'static str| MetricBuilder::new(&self.metrics).counter(name, partition);
        let run = Run {
            veil: self.veil.clone(),
            options: VeilOptions::of(context.session_config().options()),
            columns: self.columns.clone(),
            recipient: self.recipient.clone(),
            query: self.query.clone(),
            memory: MemoryConsumer::new("VeilReleaseExec").register(context.memory_pool()),
            baseline: BaselineMetrics::new(&self.metrics, partition),
            census: MetricBuilder::new(&self.metrics).subset_time("census_time", partition),
            rounds: counter("p2_rounds"),
            sent: counter("p2_sent_bytes"),
            received: counter("p2_received_bytes"),
        };
        // Dropping the stream ends the task, and with it the release.
        let mut builder = RecordBatchReceiverStream::builder(schema(), 2);
        let out = builder.tx();
        builder.spawn(async move { run.release(input, out).await });
        Ok(builder.build())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
