//! The operator.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use futures::stream;
use veil_protocols::Leakage;
use veil_protocols::assess::MAX_ROWS;
use veil_protocols::k_anonymize::Cost;
use veil_udfs::VeilOptions;

use super::Question;
use super::measures::schema;
use super::pairs::{Pair, Pairs};
use super::run::Run;
use super::shape::shape;
use super::table::Table;
use crate::Veil;
use crate::census::QuestionRule;

/// Rows for which a cost is told where their number is not known.
const EXAMPLE_ROWS: usize = veil_slots::DEGREE;

/// The most rows for which a cost is told.
const MOST_ROWS: usize = 1 << 32;

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

    /// Whether rows of its inputs may belong together by their order.
    pub(crate) fn is_by_order(&self) -> bool {
        self.question.by_order()
    }

    /// What it may cost, for the number of rows that is known. Runs of k_anonymize below tell their own.
    fn write_cost(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let input = self
            .inputs
            .first()
            .and_then(|input| StatisticsContext::new().compute(input.as_ref(), &StatisticsArgs::new()).ok());
        let (of, rows) = match input.map(|statistics| statistics.num_rows) {
            Some(Precision::Exact(rows)) => ("for", rows),
            Some(Precision::Inexact(rows)) => ("for about", rows),
            Some(Precision::Absent) | None => ("in a table of", EXAMPLE_ROWS),
        };
        // Nobody assesses so many rows; a join may be taken for any number of them.
        let rows = rows.min(MOST_ROWS);
        let assessed = self.tables.iter().skip(usize::from(self.question.compares())).enumerate();
        let shapes = assessed.map(|(at, table)| shape(table, self.pairs.get(at), &self.question, rows));
        let (mut all, mut memory) = (Cost::default(), 0);
        for shape in shapes {
            let Cost { rounds, ciphertexts, bytes_up, bytes_down, milliseconds } = shape.cost();
            all.rounds += rounds;
            all.ciphertexts += ciphertexts;
            all.bytes_up += bytes_up;
            all.bytes_down += bytes_down;
            all.milliseconds += milliseconds;
            memory = memory.max(shape.memory());
        }
        let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
        write!(f, ", estimate {of} {rows} rows: {} rounds {:.1} s", all.rounds, all.milliseconds as f64 / 1000.0)?;
        write!(f, ", MB_up={}, MB_down={}", megabytes(all.bytes_up), megabytes(all.bytes_down))?;
        write!(f, ", MB_memory={}", megabytes(memory as u64))?;
        let has_numbers = self.pairs.iter().flat_map(|pairs| &pairs.columns).any(Pair::is_of_numbers);
        match rows > MAX_ROWS && has_numbers {
            true => write!(f, ", without losses of numbers, which are told for up to {MAX_ROWS} rows"),
            false => Ok(()),
        }
    }

    /// What it tells whom, unless all columns are clear and P2 is not asked.
    pub fn leakage(&self) -> Option<Leakage> {
        self.tables.iter().any(|table| table.key.is_some()).then(|| self.declared())
    }

    fn declared(&self) -> Leakage {
        let sizes =
            "how many classes of the quasi-identifiers there are of every size, and how many rows are suppressed";
        let p2 = "the same sizes, in no order; which samples of a file take part and which are NULL";
        match &self.question {
            Question::Risk { contributions: true, .. } => Leakage {
                p1: "how many classes of the quasi-identifiers, and of all but each of them, there are of every size, and how many rows are suppressed",
                p2,
            },
            Question::Risk { .. } | Question::ClassSizes => Leakage { p1: sizes, p2 },
            Question::Utility { .. } => Leakage {
                p1: "the measures; whether published categories stand above the original ones; how many classes of the quasi-identifiers there are of every size, and how many rows are suppressed",
                p2,
            },
            Question::Sweep { .. } => Leakage {
                p1: "the measures; whether published categories stand above the original ones; how many classes there are of every size, and how many rows are suppressed, for every k; what k_anonymize tells it",
                p2: "the same sizes, in no order; which samples of a file take part and which are NULL; what k_anonymize tells it",
            },
        }
    }
}

impl DisplayAs for AssessExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VeilAssessExec: {}, quasi=[{}]", self.question, self.quasi.join(", "))?;
        let Some(leakage) = self.leakage() else {
            return write!(f, ", rounds=0");
        };
        self.write_cost(f)?;
        write!(f, ", p1_learns=[{}], p2_learns=[{}], {QuestionRule}", leakage.p1, leakage.p2)
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
            census: MetricBuilder::new(&self.metrics).subset_time("census_time", partition),
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
