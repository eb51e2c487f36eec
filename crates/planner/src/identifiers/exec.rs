//! The operator: collects the input, then asks level by level.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{
    Array, ArrayRef, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder, new_empty_array,
};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements,
    PlanProperties,
};
use futures::{TryStreamExt, stream};
use veil_cells::{CellArray, ColumnId, KeyId};
use veil_privacy::lattice::{LatticeSearch, sets_up_to};
use veil_protocols::identifiers::{Cost, Method, Table};
use veil_protocols::{ProtocolError, Session};
use veil_udfs::{VeilOptions, damaged_cell};

use super::columns::Source;
use super::node::schema;
use super::{Comparison, Question, Search};
use crate::Veil;
use crate::error::protocol;

/// Rows for which a cost is told where their number is not known.
const EXAMPLE_ROWS: usize = 8192;

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
        let probed = |size: usize| of_size(size) + u64::from(size <= 2 && columns > 2);
        (1..=(self.question.max_size as usize).min(columns)).map(probed).collect()
    }

    /// What they may take in a table of so many rows.
    fn cost(&self, rows: usize) -> Cost {
        let tagged = self.sources.iter().filter(|source| matches!(source, Source::Tags(..))).count();
        Cost::of(self.method(), rows, tagged, &self.levels())
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
        write!(f, ", p1_learns=[{}], p2_learns=[{}]", leakage.p1, leakage.p2)
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

/// One run.
struct Run {
    veil: Veil,
    options: VeilOptions,
    compared: Compared,
    sources: Vec<Source>,
    question: Question,
    method: Method,
    key: Option<KeyId>,
    memory: MemoryReservation,
    baseline: BaselineMetrics,
    checked: Count,
    known: Count,
    rounds: Count,
    sent: Count,
    received: Count,
}

impl Run {
    async fn search(self, input: SendableRecordBatchStream) -> Result<RecordBatch> {
        let started = Instant::now();
        let (rows, arrays) = self.collect(input).await?;
        let Question { k, max_size, rows_at_risk, .. } = self.question;
        let external = |error| DataFusionError::External(Box::new(error));
        let mut search = LatticeSearch::new(self.compared.names.len(), max_size as usize).map_err(external)?;
        let mut session = None;
        // No row, no class: nothing identifies anybody, and P2 has nothing to answer.
        if rows > 0 {
            if let Some(key) = self.key {
                session = Some(self.veil.session(key, &self.options).await?);
            }
            self.memory.try_grow(self.expected_memory(rows))?;
            let table =
                self.table(session.clone(), rows, &arrays).await.map_err(|error| self.located(error, &arrays))?;
            while let Some(sets) = search.next_level() {
                self.known.add(sets.len());
                let sets: Vec<u64> = sets.iter().map(|set| set.bits()).collect();
                let done = |sets: usize| {
                    self.checked.add(sets);
                    self.record(session.as_ref());
                };
                let found = table.small_classes(&sets, k, rows_at_risk, done).await.map_err(protocol)?;
                search.answer(&found).map_err(external)?;
            }
            self.record(session.as_ref());
        }
        let traffic = |of: fn(&Session) -> u64| session.as_ref().map_or(0, of);
        self.veil.add_search(Search {
            question: self.question,
            columns: self.compared.names.clone(),
            left_out: self.compared.left_out.clone(),
            rows,
            identifiers: search.identifiers().len(),
            checked: search.checked(),
            pruned: search.pruned(),
            cut: search.is_cut(),
            rounds: traffic(|session| session.traffic().rounds()),
            bytes_sent: traffic(|session| session.traffic().bytes_up()),
            bytes_received: traffic(|session| session.traffic().bytes_down()),
            seconds: started.elapsed().as_secs_f64(),
        });
        Ok(self.result(&search)?.record_output(&self.baseline))
    }

    /// What a search keeps beside the rows.
    fn expected_memory(&self, rows: usize) -> usize {
        let lanes = self.sources.iter().map(Source::lanes).sum();
        let clear = self.sources.iter().filter(|source| source.key().is_none()).count();
        let method = if self.key.is_some() { self.method.memory(rows, lanes) } else { 0 };
        // Labels of clear values, while they are made and after.
        method.saturating_add(rows.saturating_mul(32 * clear))
    }

    /// All rows, column by column.
    async fn collect(&self, mut input: SendableRecordBatchStream) -> Result<(usize, Vec<ArrayRef>)> {
        let fields = input.schema();
        let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.compared.places.len()];
        let mut rows = 0;
        while let Some(batch) = input.try_next().await? {
            // Once as it comes, once in one piece.
            self.memory.try_grow(2 * batch.get_array_memory_size())?;
            rows += batch.num_rows();
            for (parts, place) in parts.iter_mut().zip(&self.compared.places) {
                parts.push(batch.column(*place).clone());
            }
        }
        let whole = parts.iter().zip(&self.compared.places).map(|(parts, place)| match parts.as_slice() {
            [] => Ok(new_empty_array(fields.field(*place).data_type())),
            [single] => Ok(single.clone()),
            several => Ok(concat(&several.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>())?),
        });
        Ok((rows, whole.collect::<Result<_>>()?))
    }

    async fn table(&self, session: Option<Session>, rows: usize, arrays: &[ArrayRef]) -> Result<Table> {
        let mut rng = self.veil.context().randomness(&self.options).fork();
        let (sources, arrays) = (self.sources.clone(), arrays.to_vec());
        let read = move || {
            let columns = sources.iter().zip(arrays).map(|(source, array)| source.column(array, &mut rng));
            columns.collect::<Result<Vec<_>>>()
        };
        // Rows of clear columns are hashed: away from the threads that others wait for.
        let columns = SpawnedTask::spawn_blocking(read).join().await;
        let columns = columns.map_err(|error| DataFusionError::External(Box::new(error)))??;
        Table::prepare(session, self.method, rows, columns).await.map_err(protocol)
    }

    /// The error of a damaged cell with its place.
    fn located(&self, error: DataFusionError, arrays: &[ArrayRef]) -> DataFusionError {
        let is_misuse = |error: &DataFusionError| match error {
            DataFusionError::External(error) => {
                matches!(error.downcast_ref(), Some(ProtocolError::Misuse(_) | ProtocolError::Malformed(_)))
            }
            _ => false,
        };
        let mut damaged =
            self.compared.names.iter().zip(arrays).zip(&self.sources).filter_map(|((name, array), source)| {
                source.key()?;
                damaged_cell(name, CellArray::try_new(array).ok()?)
            });
        match is_misuse(&error).then(|| damaged.next()).flatten() {
            Some(cell) => DataFusionError::External(Box::new(cell)),
            None => error,
        }
    }

    fn result(&self, search: &LatticeSearch) -> Result<RecordBatch> {
        let found = search.identifiers();
        let item = Arc::new(Field::new_list_field(DataType::Utf8, false));
        let mut columns = ListBuilder::new(StringBuilder::new()).with_field(item);
        for identifier in found {
            let names = identifier.columns.columns().filter_map(|column| self.compared.names.get(column));
            columns.append_value(names.map(Some));
        }
        let sizes: Int64Array = found.iter().map(|found| Some(found.columns.len() as i64)).collect();
        let kinds: StringArray =
            found.iter().map(|found| Some(if found.columns.len() == 1 { "direct" } else { "quasi" })).collect();
        let at_risk: Int64Array =
            found.iter().map(|found| self.question.rows_at_risk.then_some(found.found as i64)).collect();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(columns.finish()), Arc::new(sizes), Arc::new(kinds), Arc::new(at_risk)];
        Ok(RecordBatch::try_new(schema(), columns)?)
    }

    /// Traffic so far, for EXPLAIN ANALYZE and for those who wait.
    fn record(&self, session: Option<&Session>) {
        let Some(traffic) = session.map(Session::traffic) else { return };
        for (count, now) in
            [(&self.rounds, traffic.rounds()), (&self.sent, traffic.bytes_up()), (&self.received, traffic.bytes_down())]
        {
            count.add((now as usize).saturating_sub(count.value()));
        }
    }
}
