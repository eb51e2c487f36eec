//! The operator of calls that run in rounds with P2.
//!
//! Batches are collected up to `veil.batch_rows`, since a ciphertext holds 8192 rows and a round has a price of its own; two are on
//! their way at a time, so that P1 works while P2 does. Every partition runs its own rounds.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::stream::FuturesOrdered;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use veil_cells::{CellArray, KeyId, carry_rows};
use veil_protocols::Session;
use veil_udfs::{CellUdf, EncryptedField, Rounds, VeilOptions, damaged_cell};

use crate::Veil;
use crate::error::protocol;

/// Batches that are in rounds at a time.
const IN_FLIGHT: usize = 2;

/// Adds a column for every call.
#[derive(Debug)]
pub struct RoundsExec {
    veil: Veil,
    input: Arc<dyn ExecutionPlan>,
    calls: Vec<Call>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    expr: Arc<dyn PhysicalExpr>,
    column: Arc<dyn PhysicalExpr>,
    fields: Vec<FieldRef>,
    constants: Vec<Option<ScalarValue>>,
    result: FieldRef,
    key: KeyId,
    protocols: &'static [&'static str],
}

impl Call {
    pub(crate) fn try_new(expr: &Arc<dyn PhysicalExpr>, name: String, input: &SchemaRef) -> Result<Self> {
        let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() else {
            return internal_err!("VeilRounds calls functions, not {expr}");
        };
        let fields = function.args().iter().map(|argument| argument.return_field(input)).collect::<Result<Vec<_>>>()?;
        let constants = function
            .args()
            .iter()
            .map(|argument| argument.downcast_ref::<Literal>().map(|literal| literal.value().clone()));
        let Some(column) = function.args().first() else { return internal_err!("{expr} has no arguments") };
        let Some(encrypted) = fields.first().map(|field| EncryptedField::of(field)).transpose()?.flatten() else {
            return internal_err!("{expr} has no encrypted argument");
        };
        let mut call = Self {
            expr: expr.clone(),
            column: column.clone(),
            result: Arc::new(expr.return_field(input)?.as_ref().clone().with_name(name)),
            constants: constants.collect(),
            key: encrypted.cell_type.key,
            protocols: &[],
            fields,
        };
        call.protocols = call.rounds()?.protocols();
        Ok(call)
    }

    /// How it runs.
    fn rounds(&self) -> Result<Box<dyn Rounds>> {
        let function = self.expr.downcast_ref::<ScalarFunctionExpr>().map(ScalarFunctionExpr::fun);
        let function = function.and_then(|function| function.inner().downcast_ref::<CellUdf>());
        let Some(function) = function else { return internal_err!("{} is not a function of ours", self.expr) };
        let arguments = function.arguments(&self.fields, self.constants.iter().map(Option::as_ref).collect());
        match function.function().rounds(&arguments)? {
            Some(rounds) => Ok(rounds),
            None => internal_err!("{} needs no rounds", self.expr),
        }
    }
}

impl RoundsExec {
    pub(crate) fn try_new(veil: Veil, input: Arc<dyn ExecutionPlan>, calls: Vec<Call>) -> Result<Self> {
        let inputs = input.schema();
        let fields = inputs.fields().iter().cloned().chain(calls.iter().map(|call| call.result.clone()));
        let schema = Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), inputs.metadata().clone()));
        let mut equivalences = EquivalenceProperties::new(schema);
        if let Some(ordering) = input.output_ordering() {
            equivalences.add_ordering(ordering.clone());
        }
        let properties = Arc::new(PlanProperties::new(
            equivalences,
            input.output_partitioning().clone(),
            input.pipeline_behavior(),
            input.boundedness(),
        ));
        Ok(Self { veil, input, calls, properties, metrics: ExecutionPlanMetricsSet::new() })
    }
}

impl DisplayAs for RoundsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<String> =
            self.calls.iter().map(|call| format!("{} = {}", call.result.name(), call.expr)).collect();
        let mut protocols: Vec<&str> = Vec::new();
        for protocol in self.calls.iter().flat_map(|call| call.protocols) {
            if !protocols.contains(protocol) {
                protocols.push(protocol);
            }
        }
        write!(f, "VeilRoundsExec: calls=[{}], protocols=[{}]", calls.join(", "), protocols.join(", "))
    }
}

impl ExecutionPlan for RoundsExec {
    fn name(&self) -> &str {
        "VeilRoundsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let mut recursion = TreeNodeRecursion::Continue;
        for call in &self.calls {
            recursion = visit(&call.expr)?;
            if recursion == TreeNodeRecursion::Stop {
                break;
            }
        }
        Ok(recursion)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[Arc<dyn ExecutionPlan>; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::try_new(self.veil.clone(), input, self.calls.clone())?)),
            Err(children) => internal_err!("VeilRoundsExec has one input, not {}", children.len()),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context.clone())?;
        let options = VeilOptions::of(context.session_config().options());
        let run = Run {
            veil: self.veil.clone(),
            calls: self.calls.clone(),
            schema: self.schema(),
            baseline: BaselineMetrics::new(&self.metrics, partition),
            rounds: MetricBuilder::new(&self.metrics).counter("rounds", partition),
            sent: MetricBuilder::new(&self.metrics).counter("p2_sent_bytes", partition),
            received: MetricBuilder::new(&self.metrics).counter("p2_received_bytes", partition),
            options,
        };
        let memory = MemoryConsumer::new(format!("VeilRoundsExec[{partition}]")).register(context.memory_pool());
        let batches = collected(input, run.options.batch_rows.max(1));
        let start = async move {
            let run = Arc::new(run);
            let active = Arc::new(run.start().await?);
            let results = batches
                .map(move |batch| {
                    let (run, active) = (run.clone(), active.clone());
                    let reservation = memory.new_empty();
                    async move {
                        let batch = batch?;
                        let rounds =
                            batch.num_rows() * active.iter().map(|call| call.rounds.row_bytes()).sum::<usize>();
                        reservation.try_grow(batch.get_array_memory_size() + rounds)?;
                        let result = run.evaluate(&active, batch).await;
                        drop(reservation);
                        result
                    }
                })
                .buffered(IN_FLIGHT);
            Ok::<_, DataFusionError>(results)
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::once(start).try_flatten())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// One partition's run.
struct Run {
    veil: Veil,
    calls: Vec<Call>,
    schema: SchemaRef,
    options: VeilOptions,
    baseline: BaselineMetrics,
    rounds: Count,
    sent: Count,
    received: Count,
}

/// A call that has begun.
struct Active {
    session: Session,
    rounds: Box<dyn Rounds>,
    column: Arc<dyn PhysicalExpr>,
    /// The column's name.
    name: String,
}

impl Run {
    async fn start(&self) -> Result<Vec<Active>> {
        let mut active = Vec::with_capacity(self.calls.len());
        for call in &self.calls {
            let session = self.veil.session(call.key, &self.options).await?;
            let name = call.fields.first().map(|field| field.name().clone()).unwrap_or_default();
            active.push(Active { session, rounds: call.rounds()?, column: call.column.clone(), name });
        }
        Ok(active)
    }

    async fn evaluate(&self, active: &[Active], batch: RecordBatch) -> Result<RecordBatch> {
        let mut columns = batch.columns().to_vec();
        let running: FuturesOrdered<_> = active
            .iter()
            .map(|call| {
                let column = call.column.evaluate(&batch).and_then(|column| column.into_array(batch.num_rows()));
                async move {
                    let column = column?;
                    match call.rounds.evaluate(&call.session, column.clone()).await {
                        // P2 has made new cells: they are of the rows of the old ones.
                        Ok(made) => {
                            let external = |error| DataFusionError::External(Box::new(error));
                            let from = CellArray::try_new(&column).map_err(external)?;
                            let made_by = call.rounds.protocols().first().copied().unwrap_or_default();
                            let made = CellArray::Binary(&made);
                            let made = carry_rows(from, made, made_by, call.rounds.draws_anew());
                            Ok::<ArrayRef, DataFusionError>(Arc::new(made.map_err(external)?))
                        }
                        Err(error) => {
                            let cells = CellArray::try_new(&column).ok();
                            let damaged = cells.and_then(|cells| damaged_cell(&call.name, cells));
                            Err(damaged
                                .map_or_else(|| protocol(error), |cell| DataFusionError::External(Box::new(cell))))
                        }
                    }
                }
            })
            .collect();
        columns.extend(running.try_collect::<Vec<_>>().await?);
        self.record(active);
        let batch = RecordBatch::try_new(self.schema.clone(), columns)?;
        Ok(batch.record_output(&self.baseline))
    }

    /// Traffic so far, for EXPLAIN ANALYZE.
    fn record(&self, active: &[Active]) {
        let total = |of: fn(&Session) -> u64| active.iter().map(|call| of(&call.session) as usize).sum::<usize>();
        for (count, now) in [
            (&self.rounds, total(|session| session.traffic().rounds())),
            (&self.sent, total(|session| session.traffic().bytes_up())),
            (&self.received, total(|session| session.traffic().bytes_down())),
        ] {
            count.add(now.saturating_sub(count.value()));
        }
    }
}

/// Batches of so many rows, or the last one with fewer.
fn collected(
    input: SendableRecordBatchStream,
    rows: usize,
) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
    let schema = input.schema();
    stream::try_unfold((input, schema), move |(mut input, schema)| async move {
        let (mut waiting, mut count) = (Vec::new(), 0);
        while count < rows {
            match input.try_next().await? {
                Some(batch) if batch.num_rows() == 0 => {}
                Some(batch) => {
                    count += batch.num_rows();
                    waiting.push(batch);
                }
                None => break,
            }
        }
        if waiting.is_empty() {
            return Ok(None);
        }
        let batch = concat_batches(&schema, &waiting)?;
        Ok(Some((batch, (input, schema))))
    })
}
