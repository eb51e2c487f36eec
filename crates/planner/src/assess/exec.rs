//! The operator.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use futures::stream;
use veil_protocols::{Leakage, catalog};
use veil_udfs::VeilOptions;

use super::Question;
use super::measures::schema;
use super::pairs::Pairs;
use super::run::Run;
use super::table::Table;
use crate::Veil;

/// Tells risk or utility.
#[derive(Debug)]
pub struct AssessExec {
    veil: Veil,
    question: Question,
    quasi: Vec<String>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
    /// Each input as it is assessed.
    tables: Vec<Table>,
    /// The first input with each of the others, where these come from it.
    pairs: Vec<Pairs>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl AssessExec {
    pub(super) fn try_new(
        veil: Veil,
        question: Question,
        quasi: Vec<String>,
        inputs: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Self> {
        let function = question.function();
        let fields: Vec<Vec<FieldRef>> =
            inputs.iter().map(|input| input.schema().fields().iter().cloned().collect()).collect();
        let tables = fields.iter().map(|fields| Table::of(function, fields, &quasi)).collect::<Result<Vec<_>>>()?;
        let pairs = match fields.split_first().filter(|_| question.compares()) {
            Some((original, others)) => {
                others.iter().map(|other| Pairs::of(function, original, other, &quasi)).collect::<Result<_>>()?
            }
            None => Vec::new(),
        };
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema(&question)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        Ok(Self { veil, question, quasi, inputs, tables, pairs, properties, metrics: ExecutionPlanMetricsSet::new() })
    }

    /// What it tells whom.
    fn leakage(&self) -> Leakage {
        let sizes =
            "how many classes of the quasi-identifiers there are of every size, and how many rows are suppressed";
        let p2 = "the same sizes, in no order; which samples of a file take part and which are NULL";
        match &self.question {
            Question::Risk { contributions: true, .. } => Leakage {
                p1: "how many classes of the quasi-identifiers, and of all but each of them, there are of every size, and how many rows are suppressed",
                p2,
            },
            Question::Risk { .. } | Question::ClassSizes => Leakage { p1: sizes, p2 },
            Question::Utility => Leakage {
                p1: "the measures; how many classes of the quasi-identifiers there are of every size, and how many rows are suppressed",
                p2,
            },
            Question::Sweep { .. } => Leakage {
                p1: "the measures; how many classes there are of every size, and how many rows are suppressed, for every k; what k_anonymize tells it",
                p2: "the same sizes, in no order; which samples of a file take part and which are NULL; what k_anonymize tells it",
            },
        }
    }
}

impl DisplayAs for AssessExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VeilAssessExec: {}, quasi=[{}]", self.question.function(), self.quasi.join(", "))?;
        let leakage = self.leakage();
        let version = catalog::find("size_histogram").map_or(0, |entry| entry.version);
        write!(f, ", size_histogram v{version}, p1_learns=[{}], p2_learns=[{}]", leakage.p1, leakage.p2)
    }
}

impl ExecutionPlan for AssessExec {
    fn name(&self) -> &str {
        "VeilAssessExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inputs.iter().collect()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition; self.inputs.len()])
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
        Ok(Arc::new(Self::try_new(self.veil.clone(), self.question.clone(), self.quasi.clone(), children)?))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let counter = |name: &'static str| MetricBuilder::new(&self.metrics).counter(name, partition);
        let run = Run {
            veil: self.veil.clone(),
            options: VeilOptions::of(context.session_config().options()),
            question: self.question.clone(),
            quasi: self.quasi.clone(),
            inputs: self.inputs.clone(),
            tables: self.tables.clone(),
            pairs: self.pairs.clone(),
            memory: MemoryConsumer::new("VeilAssessExec").register(context.memory_pool()),
            context,
            baseline: BaselineMetrics::new(&self.metrics, partition),
            done: counter("steps_done"),
            known: counter("steps_known"),
            rounds: counter("rounds"),
            sent: counter("p2_sent_bytes"),
            received: counter("p2_received_bytes"),
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::once(run.assess()))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
