//! One run: tables in, measures out.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, RecordOutput, Time};
use futures::TryStreamExt;
use veil_cells::CellType;
use veil_privacy::ClassSizes;
use veil_protocols::Session;
use veil_protocols::assess::{Suppressed, class_sizes};
use veil_protocols::identifiers::{Column, Method};
use veil_udfs::VeilOptions;

use super::align::{Aligned, aligned};
use super::losses::Losses;
use super::measures::{self, Measure};
use super::pairs::Pairs;
use super::read_once::reading;
use super::shape::shape;
use super::summary::Assessment;
use super::table::Table;
use super::{Matched, Question};
use crate::Veil;
use crate::census::{Compared, Counted, ask_under, take_census};
use crate::error::protocol;
use crate::identifiers::Source;
use crate::row_bytes::row_bytes;

/// One run.
pub(super) struct Run {
    pub(super) veil: Veil,
    pub(super) options: VeilOptions,
    pub(super) question: Question,
    pub(super) quasi: Vec<String>,
    pub(super) inputs: Vec<Arc<dyn ExecutionPlan>>,
    pub(super) tables: Vec<Table>,
    pub(super) pairs: Vec<Pairs>,
    pub(super) memory: MemoryReservation,
    pub(super) context: Arc<TaskContext>,
    pub(super) baseline: BaselineMetrics,
    pub(super) census: Time,
    pub(super) done: Count,
    pub(super) known: Count,
    pub(super) rounds: Count,
    pub(super) sent: Count,
    pub(super) received: Count,
}

/// What a run has found out beside its result.
#[derive(Default)]
struct Noted {
    /// Columns that were not measured, and why.
    left_out: Vec<(String, String)>,
    /// What told which rows belong together.
    matched: Option<Matched>,
    rows: usize,
    /// Whatever else the reader of the result should know.
    remarks: Vec<String>,
}

impl Noted {
    fn of_population(&mut self, sizes: &ClassSizes, population: Option<u64>) {
        let rows = sizes.rows();
        if let Some(people) = population.filter(|people| *people < rows) {
            self.remarks.push(format!(
                "a population of {people} is smaller than the {rows} published rows, so that these were taken for all people"
            ));
        }
    }
}

impl Run {
    pub(super) async fn assess(self) -> Result<RecordBatch> {
        let started = Instant::now();
        let (schema, mut noted) = (measures::schema(&self.question), Noted::default());
        let session = match self.tables.iter().find_map(|table| table.key) {
            Some(key) => Some(self.veil.session(key, &self.options).await?),
            None => None,
        };
        let session = session.as_ref();
        let result = match &self.question {
            Question::Risk { population, contributions } => {
                let sizes = self.risk(session, *contributions, &mut noted).await?;
                let Some((all, without)) = sizes.split_first() else { return exec_err!("no class was counted") };
                noted.of_population(all, *population);
                let mut listed = measures::of_risk(all, *population);
                let each = self.quasi.iter().zip(without);
                listed.extend(each.flat_map(|(column, without)| measures::of_contribution(column, all, without)));
                measures::listed(schema, &listed)?
            }
            Question::ClassSizes => {
                let sizes = self.risk(session, false, &mut noted).await?;
                measures::histogram(schema, sizes.first().unwrap_or(&ClassSizes::new([], 0)))?
            }
            Question::Utility { k, .. } => {
                let (original, session) = self.collect(0, session).await?;
                let (_, listed) = self.utility(session.as_ref(), &original, 1, *k, &mut noted).await?;
                measures::listed(schema, &listed)?
            }
            Question::Sweep { k, population, .. } => {
                let (original, session) = self.collect(0, session).await?;
                let session = session.as_ref();
                let mut rows = Vec::with_capacity(k.len());
                for (at, k) in k.iter().enumerate() {
                    let (started, reserved) = (Instant::now(), self.memory.size());
                    // No class of so many rows: all other k are told.
                    if (1..*k as usize).contains(&original.num_rows()) {
                        noted
                            .remarks
                            .push(format!("k = {k} is more than the {} rows that there are", original.num_rows()));
                        rows.push((*k, Vec::new(), 0.0));
                        continue;
                    }
                    let (sizes, utility) = self.utility(session, &original, at + 1, Some(*k), &mut noted).await?;
                    let listed = [measures::of_risk(&sizes, *population), utility].concat();
                    noted.of_population(&sizes, *population);
                    rows.push((*k, listed, started.elapsed().as_secs_f64()));
                    // What one k took, the next one may take.
                    self.memory.try_resize(reserved)?;
                }
                measures::swept(schema, &rows)?
            }
        };
        self.record(session);
        self.remember(session, noted, started);
        Ok(result.record_output(&self.baseline))
    }

    /// All rows of an input, and the session in which they are asked about.
    async fn collect(&self, at: usize, session: Option<&Session>) -> Result<(RecordBatch, Option<Session>)> {
        let Some(input) = self.inputs.get(at) else { return exec_err!("VeilAssessExec has no input {at}") };
        self.collect_from(input, session).await
    }

    async fn collect_from(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        session: Option<&Session>,
    ) -> Result<(RecordBatch, Option<Session>)> {
        let mut rows = input.execute(0, self.context.clone())?;
        let mut batches = Vec::new();
        while let Some(batch) = rows.try_next().await? {
            // Once as it comes, once in one piece.
            self.memory.try_grow(2 * row_bytes(&batch))?;
            batches.push(batch);
        }
        let rows = concat_batches(&rows.schema(), &batches)?;
        let _timer = self.census.timer();
        let counted = self.counted(&rows);
        let columns = counted.iter().filter(|counted| counted.is_compared()).map(|counted| counted.column).collect();
        let (census, _) = take_census(self.question.function(), rows.num_rows(), counted).await?;
        let session = match session.filter(|_| rows.num_rows() > 0) {
            Some(session) => Some(ask_under(session, self.question.asked(), columns, &census).await?),
            None => None,
        };
        Ok((rows, session))
    }

    /// The encrypted columns of an input. What its rows are recognised by is compared.
    fn counted(&self, rows: &RecordBatch) -> Vec<Counted> {
        let columns = rows.schema_ref().fields().iter().zip(rows.columns());
        let counted = columns.filter_map(|(field, array)| {
            let column = CellType::of_field(field).ok().flatten()?.column;
            let (name, cells) = (field.name().clone(), vec![array.clone()]);
            let compared = if self.quasi.contains(&name) { Compared::Held } else { Compared::Not };
            Some(Counted { name, cells, column, compared })
        });
        counted.collect()
    }

    /// Class sizes of the only input; with contributions, then those of all quasi-identifiers but each.
    async fn risk(&self, session: Option<&Session>, contributions: bool, noted: &mut Noted) -> Result<Vec<ClassSizes>> {
        let (Some(table), (rows, session)) = (self.tables.first(), self.collect(0, session).await?) else {
            return Ok(Vec::new());
        };
        let session = session.as_ref();
        noted.rows = rows.num_rows();
        let suppressed = self.suppressed(session, table, &rows).await?;
        let count = table.quasi.len();
        let all = u64::MAX >> (u64::BITS as usize - count.clamp(1, 64));
        let without = (0..count).map(|at| all & !(1 << at)).filter(|_| contributions && count > 1);
        let sets: Vec<u64> = [all].into_iter().chain(without).collect();
        let mut sizes = self.sizes(session, table, &rows, suppressed.as_ref(), &sets).await?;
        if let Some(all) = sizes.first().filter(|_| contributions && count == 1) {
            // Without its only column all rows look alike.
            let published = all.rows();
            sizes.push(ClassSizes::new((published > 0).then_some((published, 1)), all.suppressed()));
        }
        Ok(sizes)
    }

    async fn suppressed(
        &self,
        session: Option<&Session>,
        table: &Table,
        rows: &RecordBatch,
    ) -> Result<Option<Suppressed>> {
        match table.flag.zip(session).filter(|_| rows.num_rows() > 0) {
            Some((flag, session)) => Ok(Some(Suppressed::lift(session, rows.column(flag)).await.map_err(protocol)?)),
            None => Ok(None),
        }
    }

    /// The class sizes of sets of quasi-identifiers.
    async fn sizes(
        &self,
        session: Option<&Session>,
        table: &Table,
        rows: &RecordBatch,
        suppressed: Option<&Suppressed>,
        sets: &[u64],
    ) -> Result<Vec<ClassSizes>> {
        // Nobody is in an empty table.
        if rows.num_rows() == 0 {
            return Ok(sets.iter().map(|_| ClassSizes::new([], 0)).collect());
        }
        let columns = self.columns(table, rows)?;
        let lanes = table.quasi.iter().map(|(_, source)| source.lanes()).sum();
        self.memory.try_grow(Method::Shuffled.memory(rows.num_rows(), lanes))?;
        self.known.add(sets.len());
        let done = |sets: usize| self.step(sets, session);
        let found = class_sizes(session, rows.num_rows(), columns, suppressed, sets, &done).await.map_err(protocol)?;
        Ok(found.into_iter().map(|sizes| ClassSizes::new(sizes.classes, sizes.suppressed)).collect())
    }

    /// The quasi-identifiers as rounds compare them.
    fn columns(&self, table: &Table, rows: &RecordBatch) -> Result<Vec<Column>> {
        let mut rng = self.veil.context().randomness(&self.options).fork();
        let column = |(place, source): &(usize, Source)| source.column(rows.column(*place).clone(), &mut rng);
        table.quasi.iter().map(column).collect()
    }

    /// Class sizes and losses of an anonymised table.
    async fn utility(
        &self,
        session: Option<&Session>,
        original: &RecordBatch,
        at: usize,
        k: Option<u32>,
        noted: &mut Noted,
    ) -> Result<(ClassSizes, Vec<Measure>)> {
        let (Some(table), Some(pairs)) = (self.tables.get(at), self.pairs.get(at - 1)) else {
            return exec_err!("VeilAssessExec has no table {at}");
        };
        // A sweep anonymises the rows that it has read.
        let again = match (&self.question, self.inputs.get(at)) {
            (Question::Sweep { .. }, Some(input)) => reading(input, original)?,
            _ => None,
        };
        let anonymised = match &again {
            Some(input) => self.collect_from(input, session).await?,
            None => self.collect(at, session).await?,
        };
        let (anonymised, session) = anonymised;
        let session = session.as_ref();
        let by_order = again.is_some() || self.question.by_order();
        let Aligned { original, matched, absent } = aligned(original.clone(), &anonymised, &pairs.shared, by_order)?;
        noted.rows = anonymised.num_rows();
        if absent > 0 {
            noted.remarks.push(format!(
                "{absent} rows of the original are not in the anonymised table, so that what is told leaves them out"
            ));
        }
        noted.matched = Some(matched).filter(|_| again.is_none());
        let suppressed = self.suppressed(session, table, &anonymised).await?;
        let all = u64::MAX >> (u64::BITS as usize - table.quasi.len().clamp(1, 64));
        let sizes = self.sizes(session, table, &anonymised, suppressed.as_ref(), &[all]).await?.pop();
        let sizes = sizes.unwrap_or_else(|| ClassSizes::new([], 0));
        let mut listed = measures::of_classes(&sizes, k);
        let (rows, ranges) = (anonymised.num_rows(), self.question.ranges());
        if rows > 0 {
            let losses = Losses::of(pairs, &original, &anonymised, &mut noted.left_out)?;
            // Of clear columns nothing but classes is measured, and P2 is not asked.
            let Some(session) = session else { return Ok((sizes, listed)) };
            self.memory.try_grow(shape(table, Some(pairs), &self.question, rows).memory())?;
            self.known.add(losses.steps(ranges));
            let widths = if ranges { Some((self.columns(table, &anonymised)?, &sizes)) } else { None };
            let done = |steps: usize| self.step(steps, Some(session));
            let left_out = &mut noted.left_out;
            let found = losses.measure(session, rows, suppressed.as_ref(), widths, left_out, &done).await;
            listed.extend(found.map_err(protocol)?);
        }
        Ok((sizes, listed))
    }

    fn step(&self, steps: usize, session: Option<&Session>) {
        self.done.add(steps);
        self.record(session);
    }

    fn record(&self, session: Option<&Session>) {
        let Some(traffic) = session.map(Session::traffic) else { return };
        let set = |count: &Count, value: u64| count.add((value as usize).saturating_sub(count.value()));
        set(&self.rounds, traffic.rounds());
        set(&self.sent, traffic.bytes_up());
        set(&self.received, traffic.bytes_down());
    }

    fn remember(&self, session: Option<&Session>, noted: Noted, started: Instant) {
        // A sweep leaves out the same columns for every k.
        let mut left_out = Vec::with_capacity(noted.left_out.len());
        for column in noted.left_out {
            if !left_out.contains(&column) {
                left_out.push(column);
            }
        }
        let mut remarks = noted.remarks;
        remarks.dedup();
        let traffic = |of: fn(&Session) -> u64| session.map_or(0, of);
        self.veil.assessment_log().add(Assessment {
            question: self.question.clone(),
            quasi: self.quasi.clone(),
            rows: noted.rows,
            left_out,
            matched: noted.matched,
            remarks,
            rounds: traffic(|session| session.traffic().rounds()),
            bytes_sent: traffic(|session| session.traffic().bytes_up()),
            bytes_received: traffic(|session| session.traffic().bytes_down()),
            seconds: started.elapsed().as_secs_f64(),
        });
    }
}
