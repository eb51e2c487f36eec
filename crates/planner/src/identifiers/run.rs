//! One search: rows in, identifiers out.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{
    Array, ArrayRef, Int64Array, ListBuilder, RecordBatch, StringArray, StringBuilder, new_empty_array,
};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DataFusionError;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, RecordOutput, Time};
use futures::TryStreamExt;
use veil_cells::{CellArray, KeyId};
use veil_privacy::lattice::LatticeSearch;
use veil_protocols::identifiers::{Method, Table};
use veil_protocols::{ProtocolError, Session, census};
use veil_udfs::{EncryptedField, VeilOptions, damaged_cell};

use super::columns::Source;
use super::exec::Compared;
use super::node::schema;
use super::{Question, Search};
use crate::Veil;
use crate::census::{Compared as Rows, Counted, ask_under, take_census};
use crate::error::protocol;
use crate::row_bytes::row_bytes;

/// One run.
pub(super) struct Run {
    pub(super) veil: Veil,
    pub(super) options: VeilOptions,
    pub(super) compared: Compared,
    pub(super) sources: Vec<Source>,
    pub(super) question: Question,
    pub(super) method: Method,
    pub(super) key: Option<KeyId>,
    pub(super) memory: MemoryReservation,
    pub(super) baseline: BaselineMetrics,
    pub(super) census: Time,
    pub(super) checked: Count,
    pub(super) known: Count,
    pub(super) rounds: Count,
    pub(super) sent: Count,
    pub(super) received: Count,
}

impl Run {
    pub(super) async fn search(self, input: SendableRecordBatchStream) -> Result<RecordBatch> {
        let started = Instant::now();
        let fields = input.schema();
        let (rows, arrays) = self.collect(input).await?;
        let Question { k, max_size, rows_at_risk, .. } = self.question;
        let external = |error| DataFusionError::External(Box::new(error));
        let mut search = LatticeSearch::new(self.compared.names.len(), max_size as usize).map_err(external)?;
        let mut session = None;
        // No row, no class: nothing identifies anybody, and P2 has nothing to answer.
        if rows > 0 {
            let timer = self.census.timer();
            let counted = self.counted(&fields, &arrays)?;
            let columns = counted.iter().map(|counted| counted.column).collect();
            let (census, _) = take_census("identifiers", rows, counted).await?;
            if let Some(key) = self.key {
                let asking = self.veil.session(key, &self.options).await?;
                session = Some(ask_under(&asking, census::Question::Identifiers, columns, &census).await?);
            }
            timer.done();
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
        self.veil.search_log().add(Search {
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
            self.memory.try_grow(2 * row_bytes(&batch))?;
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

    /// The encrypted columns that are compared.
    fn counted(&self, fields: &Schema, arrays: &[ArrayRef]) -> Result<Vec<Counted>> {
        let mut counted = Vec::with_capacity(arrays.len());
        for ((name, array), place) in self.compared.names.iter().zip(arrays).zip(&self.compared.places) {
            if let Some(column) = EncryptedField::of(fields.field(*place))? {
                let (name, cells) = (name.clone(), vec![array.clone()]);
                counted.push(Counted { name, cells, column: column.cell_type.column, compared: Rows::Held });
            }
        }
        Ok(counted)
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
