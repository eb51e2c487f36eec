//! The operator.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements,
    PlanProperties,
};
use futures::{StreamExt, TryStreamExt, stream};
use veil_protocols::Leakage;
use veil_protocols::k_anonymize::{Cost, Phase, Shape};
use veil_udfs::VeilOptions;

use super::Request;
use super::columns::Columns;
use super::progress::{PhaseMetrics, Progress, Watch};
use super::run::Run;
use crate::Veil;
use crate::census::QuestionRule;

/// Rows for which a cost is told where their number is not known.
const EXAMPLE_ROWS: usize = veil_slots::DEGREE;

/// The most rows for which a cost is told.
const MOST_ROWS: usize = 1 << 26;

/// Makes rows alike.
#[derive(Debug)]
pub struct KAnonymizeExec {
    veil: Veil,
    input: Arc<dyn ExecutionPlan>,
    /// Where the quasi-identifiers are, and their weights as the query has them.
    quasi: Vec<usize>,
    weights: Vec<Option<u32>>,
    names: Vec<String>,
    columns: Columns,
    request: Request,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    watch: Watch,
}

impl KAnonymizeExec {
    pub(super) fn try_new(
        veil: Veil,
        input: Arc<dyn ExecutionPlan>,
        quasi: Vec<usize>,
        weights: Vec<Option<u32>>,
        request: Request,
    ) -> Result<Self> {
        let schema = input.schema();
        let fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        let columns = Columns::of(&fields, &quasi, &weights, &request)?;
        let names = quasi.iter().filter_map(|place| fields.get(*place)).map(|field| field.name().clone()).collect();
        let result: SchemaRef = Arc::new(Schema::new_with_metadata(columns.fields.clone(), schema.metadata().clone()));
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(result),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            input.boundedness(),
        ));
        let (metrics, watch) = (ExecutionPlanMetricsSet::new(), Watch::default());
        Ok(Self { veil, input, quasi, weights, names, columns, request, properties, metrics, watch })
    }

    /// The same run of the rows of another source. How far it is and what it has done is told here, too.
    pub(crate) fn reading(&self, input: Arc<dyn ExecutionPlan>) -> Result<Self> {
        let (quasi, weights, request) = (self.quasi.clone(), self.weights.clone(), self.request.clone());
        let other = Self::try_new(self.veil.clone(), input, quasi, weights, request)?;
        Ok(Self { metrics: self.metrics.clone(), watch: self.watch.clone(), ..other })
    }

    /// How far a run is, while there is one.
    pub fn progress(&self) -> Option<Progress> {
        self.watch.progress()
    }

    /// What a run tells whom.
    pub fn leakage(&self) -> Leakage {
        self.request.settings().leakage()
    }

    /// What a run may cost, for the number of rows that is known.
    pub fn cost(&self) -> Cost {
        let (_, rows) = self.rows();
        shape(&self.columns, &self.request, rows).cost(&self.request.settings())
    }

    /// How many rows there are, and how well that is known.
    fn rows(&self) -> (&'static str, usize) {
        let known = StatisticsContext::new().compute(self.input.as_ref(), &StatisticsArgs::new()).ok();
        match known.map(|statistics| statistics.num_rows) {
            Some(Precision::Exact(rows)) => ("for", rows.min(MOST_ROWS)),
            // A join may be taken for any number of them.
            Some(Precision::Inexact(rows)) => ("for about", rows.min(MOST_ROWS)),
            Some(Precision::Absent) | None => ("in a table of", EXAMPLE_ROWS),
        }
    }
}

/// What the cost of a run of so many rows follows from.
pub(super) fn shape(columns: &Columns, request: &Request, rows: usize) -> Shape {
    let centres = request.centre_count(rows).unwrap_or(1);
    Shape { rows, centres, columns: columns.quasi.len(), lanes: columns.lanes() }
}

impl DisplayAs for KAnonymizeExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VeilKAnonymizeExec: quasi=[{}], {}", self.names.join(", "), self.request)?;
        if self.columns.weights.iter().any(|weight| *weight != 1) {
            write!(f, ", weights={:?}", self.columns.weights)?;
        }
        let (of, rows) = self.rows();
        let settings = self.request.settings();
        let shape = shape(&self.columns, &self.request, rows);
        write!(f, ", estimate {of} {rows} rows and {} centres: [", shape.centres)?;
        for (name, cost) in Phase::NAMES.iter().zip(shape.phases(&settings)) {
            let Cost { rounds, milliseconds, .. } = cost;
            write!(f, "{name} {rounds} rounds {:.1} s, ", milliseconds as f64 / 1000.0)?;
        }
        let Cost { rounds, ciphertexts, bytes_up, bytes_down, milliseconds } = shape.cost(&settings);
        write!(f, "all {rounds} rounds {:.1} s]", milliseconds as f64 / 1000.0)?;
        let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
        write!(f, ", ciphertexts={ciphertexts}, MB_up={}, MB_down={}", megabytes(bytes_up), megabytes(bytes_down))?;
        write!(f, ", MB_memory={}", megabytes(shape.memory(&settings) as u64))?;
        let leakage = self.leakage();
        write!(f, ", p1_learns=[{}], p2_learns=[{}], {QuestionRule}", leakage.p1, leakage.p2)
    }
}

impl ExecutionPlan for KAnonymizeExec {
    fn name(&self) -> &str {
        "VeilKAnonymizeExec"
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
                let (quasi, weights) = (self.quasi.clone(), self.weights.clone());
                Ok(Arc::new(Self::try_new(self.veil.clone(), input, quasi, weights, self.request.clone())?))
            }
            Err(children) => internal_err!("VeilKAnonymizeExec has one input, not {}", children.len()),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context.clone())?;
        let run = Run {
            veil: self.veil.clone(),
            options: VeilOptions::of(context.session_config().options()),
            schema: self.schema(),
            names: self.names.clone(),
            columns: self.columns.clone(),
            request: self.request.clone(),
            memory: MemoryConsumer::new("VeilKAnonymizeExec").register(context.memory_pool()),
            baseline: BaselineMetrics::new(&self.metrics, partition),
            census: MetricBuilder::new(&self.metrics).subset_time("census_time", partition),
            phases: PhaseMetrics::new(&self.metrics, partition),
            watch: self.watch.clone(),
        };
        let batches = stream::once(run.anonymise(input)).map_ok(|batches| stream::iter(batches).map(Ok)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
