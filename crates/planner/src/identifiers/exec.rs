//! The operator.

use std::fmt;
use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{internal_err, plan_err};
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
use futures::stream;
use veil_cells::{ColumnId, KeyId};
use veil_privacy::lattice::sets_up_to;
use veil_protocols::identifiers::{Cost, Method};
use veil_udfs::VeilOptions;

use super::columns::Source;
use super::node::schema;
use super::run::Run;
use super::{Comparison, Question};
use crate::Veil;
use crate::census::QuestionRule;

/// Rows for which a cost is told where their number is not known.
const EXAMPLE_ROWS: usize = veil_slots::DEGREE;

/// Finds identifying columns.
#[derive(Debug)]
pub struct IdentifiersExec {
    veil: Veil,
    input: Arc<dyn ExecutionPlan>,
    compared: Compared,
    sources: Vec<Source>,
    question: Question,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// Which columns of the input are compared.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    /// Where they are.
    pub(super) places: Vec<usize>,
    /// What they are called.
    pub(super) names: Vec<String>,
    /// Columns that are not, though nobody said so.
    pub(super) left_out: Vec<String>,
}

impl IdentifiersExec {
    pub(super) fn try_new(
        veil: Veil,
        input: Arc<dyn ExecutionPlan>,
        compared: Compared,
        question: Question,
    ) -> Result<Self> {
        let fields = input.schema();
        let source = |place: &usize| match fields.fields().get(*place) {
            Some(field) => Source::of(field, &question),
            None => internal_err!("VeilIdentifiersExec has no column {place}"),
        };
        let sources = compared.places.iter().map(source).collect::<Result<Vec<_>>>()?;
        let mut keys = sources.iter().filter_map(Source::key);
        if let Some(first) = keys.next()
            && let Some(other) = keys.find(|key| *key != first)
        {
            return plan_err!(
                "columns of different key sets ({first} and {other}) cannot be compared together: name those of one"
            );
        }
        if question.comparison == Comparison::Tags && !question.shuffle {
            refuse_same_tags(&sources, &compared.names)?;
        }
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            input.boundedness(),
        ));
        Ok(Self { veil, input, compared, sources, question, properties, metrics: ExecutionPlanMetricsSet::new() })
    }

    fn method(&self) -> Method {
        match (self.question.comparison, self.question.shuffle) {
            (Comparison::Tags, false) => Method::Tags,
            (Comparison::Tags, true) => Method::Shuffled,
            (Comparison::Pairwise, shuffle) => Method::Pairwise { shuffle },
        }
    }

    fn key(&self) -> Option<KeyId> {
        self.sources.iter().find_map(Source::key)
    }

    /// The most sets of each size that are asked about.
    fn levels(&self) -> Vec<u64> {
        let columns = self.compared.names.len();
        let of_size = |size: usize| sets_up_to(columns, size).saturating_sub(sets_up_to(columns, size - 1));
        // A probe travels with each of the first two levels.
        let probed = |size: usize| of_size(size).saturating_add(u64::from(size <= 2 && columns > 2));
        (1..=(self.question.max_size as usize).min(columns)).map(probed).collect()
    }

    /// What they may take in a table of so many rows.
    fn cost(&self, rows: usize) -> Cost {
        let tagged = self.sources.iter().filter(|source| matches!(source, Source::Tags(..))).count();
        let Cost { rounds, bytes } = Cost::of(self.method(), rows, tagged, &self.levels());
        // The census: a bit a row and what is around it, for a file whose rows all take part.
        Cost { rounds: rounds + 1, bytes: bytes + rows as u64 / 8 + 1024 }
    }
}

/// Sums of the same tags would not tell (a, b) from (b, a).
fn refuse_same_tags(sources: &[Source], names: &[String]) -> Result<()> {
    let mut known: Vec<(ColumnId, &String)> = Vec::new();
    for (source, name) in sources.iter().zip(names) {
        let Source::Tags(_, column) = source else { continue };
        if let Some((_, other)) = known.iter().find(|(other, _)| other == column) {
            return plan_err!(
                "{other} and {name} are the same column of the owner's: leave one out, or leave out shuffle => false"
            );
        }
        known.push((*column, name));
    }
    Ok(())
}

impl DisplayAs for IdentifiersExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leakage = self.method().leakage();
        let subsets = self.levels().iter().fold(0u64, |sum, sets| sum.saturating_add(*sets));
        write!(
            f,
            "VeilIdentifiersExec: columns=[{}], {}, subsets<={subsets}",
            self.compared.names.join(", "),
            self.question
        )?;
        if self.key().is_none() {
            return write!(f, ", rounds=0");
        }
        let rows = StatisticsContext::new().compute(self.input.as_ref(), &StatisticsArgs::new()).ok();
        let (of, rows) = match rows.map(|statistics| statistics.num_rows) {
            Some(Precision::Exact(rows)) => ("for", rows),
            Some(Precision::Inexact(rows)) => ("for about", rows),
            Some(Precision::Absent) | None => ("in a table of", EXAMPLE_ROWS),
        };
        // How values come into slots depends on what was done to them.
        let values = self.sources.iter().any(|source| matches!(source, Source::Values(..)));
        let bound = if values { ">=" } else { "<=" };
        let Cost { rounds, bytes } = self.cost(rows);
        write!(f, ", rounds{bound}{rounds}, bytes{bound}{bytes} {of} {rows} rows")?;
        write!(f, ", p1_learns=[{}], p2_learns=[{}], {QuestionRule}", leakage.p1, leakage.p2)
    }
}

impl ExecutionPlan for IdentifiersExec {
    fn name(&self) -> &str {
        "VeilIdentifiersExec"
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
            Ok([input]) => Ok(Arc::new(Self::try_new(self.veil.clone(), input, self.compared.clone(), self.question)?)),
            Err(children) => internal_err!("VeilIdentifiersExec has one input, not {}", children.len()),
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
            compared: self.compared.clone(),
            sources: self.sources.clone(),
            question: self.question,
            method: self.method(),
            key: self.key(),
            memory: MemoryConsumer::new("VeilIdentifiersExec").register(context.memory_pool()),
            baseline: BaselineMetrics::new(&self.metrics, partition),
            census: MetricBuilder::new(&self.metrics).subset_time("census_time", partition),
            checked: counter("subsets_checked"),
            known: counter("subsets_known"),
            rounds: counter("rounds"),
            sent: counter("p2_sent_bytes"),
            received: counter("p2_received_bytes"),
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema(), stream::once(run.search(input)))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
