//! One run: rows in, rows like k - 1 others out.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{Array, ArrayRef, BinaryArray, RecordBatch};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput, Time};
use futures::TryStreamExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tracing::warn;
use veil_cells::{CellArray, CellType, Provenance, carry_rows, set_rows};
use veil_privacy::clusters::draw_centres;
use veil_protocols::k_anonymize::{Anonymised, Phase, Quasi, Settings, Shape, k_anonymize};
use veil_protocols::{ProtocolError, Session, census};
use veil_udfs::{VeilOptions, damaged_cell};

use super::columns::{Columns, Source};
use super::exec::shape;
use super::progress::{PhaseMetrics, Watch};
use super::{Anonymisation, NAME, Request, Start};
use crate::Veil;
use crate::census::{Compared, Counted, RowAnchors, ask_under, take_census};
use crate::error::protocol;
use crate::row_bytes::row_bytes;

/// One run.
pub(super) struct Run {
    pub(super) veil: Veil,
    pub(super) options: VeilOptions,
    pub(super) schema: SchemaRef,
    pub(super) names: Vec<String>,
    pub(super) columns: Columns,
    pub(super) request: Request,
    pub(super) memory: MemoryReservation,
    pub(super) baseline: BaselineMetrics,
    pub(super) census: Time,
    pub(super) phases: PhaseMetrics,
    pub(super) watch: Watch,
}

/// All rows of the input.
struct Input {
    rows: usize,
    /// The quasi-identifiers, each in one piece.
    quasi: Vec<ArrayRef>,
    /// The batches as they came, without the quasi-identifiers.
    rest: Vec<Rest>,
}

/// What passes of a batch: for every column of the result but the flag its array, or nothing where a quasi-identifier goes.
struct Rest {
    rows: usize,
    arrays: Vec<Option<ArrayRef>>,
}

impl Run {
    pub(super) async fn anonymise(self, input: SendableRecordBatchStream) -> Result<Vec<RecordBatch>> {
        let started = Instant::now();
        let input = self.collect(input).await?;
        // Nobody is in an empty table.
        if input.rows == 0 {
            return Ok(Vec::new());
        }
        let (rows, settings) = (input.rows, self.request.settings());
        let timer = self.census.timer();
        let counted = self.counted(&input);
        let columns = counted.iter().filter(|counted| counted.is_compared()).map(|counted| counted.column).collect();
        let (census, anchors) = take_census(NAME, rows, counted).await?;
        timer.done();
        let (quasi, initial) = self.prepared(&input).await?;
        let shape = shape(&self.columns, &self.request, rows);
        self.memory.try_grow(shape.memory(&settings)).map_err(|_| too_large(shape, &settings))?;
        let session = self.veil.session(self.columns.key, &self.options).await?;
        self.phases.enter(Some(Phase::Prepare), &session);
        let timer = self.census.timer();
        let session = ask_under(&session, census::Question::KAnonymize, columns, &census).await?;
        timer.done();
        // Before it begins: a run that is given up has shown some of it, too.
        if let Some(warning) = self.request.warning() {
            warn!("{warning}");
            self.veil.anonymisation_log().warn(warning);
        }
        let watched = self.watch.begin(&session, shape.phases(&settings));
        let progress = |phase: Phase| {
            self.watch.enter(phase);
            self.phases.enter(Some(phase), &session);
        };
        let anonymised = k_anonymize(&session, rows, quasi, &initial, &settings, &progress).await;
        self.phases.enter(None, &session);
        drop(watched);
        let anonymised = anonymised.map_err(|error| self.located(error, &input.quasi))?;
        self.remember(&session, rows, initial.len(), &anonymised, started);
        self.result(input, anonymised, &anchors)
    }

    /// The encrypted columns: quasi-identifiers, which are compared, and all that pass.
    fn counted(&self, input: &Input) -> Vec<Counted> {
        // What is published has the id of what it was made from.
        let column =
            |at: usize| CellType::of_field(self.schema.fields().get(at)?).ok()?.map(|cell_type| cell_type.column);
        let quasi = self.names.iter().zip(&input.quasi).zip(&self.columns.quasi);
        let compared = quasi.filter(|(_, (_, source))| !matches!(source, Source::Clear(_)));
        let compared = compared.filter_map(|((name, array), (place, _))| {
            let column = column(self.columns.sources.iter().position(|source| source == place)?)?;
            Some(Counted { name: name.clone(), cells: vec![array.clone()], column, compared: Compared::Averaged })
        });
        let passes =
            self.schema.fields().iter().take(self.columns.sources.len()).enumerate().filter_map(|(at, field)| {
                let cells = input.rest.iter().filter_map(|rest| rest.arrays.get(at).cloned().flatten());
                let (name, column, cells) = (field.name().clone(), column(at)?, cells.collect::<Vec<_>>());
                (!cells.is_empty()).then_some(Counted { name, cells, column, compared: Compared::Not })
            });
        compared.chain(passes).collect()
    }

    /// All rows, the quasi-identifiers column by column.
    async fn collect(&self, mut input: SendableRecordBatchStream) -> Result<Input> {
        let mut parts: Vec<Vec<ArrayRef>> = vec![Vec::new(); self.columns.quasi.len()];
        let (mut rows, mut rest) = (0, Vec::new());
        while let Some(batch) = input.try_next().await? {
            // Once as it comes, once in one piece or as it goes.
            self.memory.try_grow(2 * row_bytes(&batch))?;
            rows += batch.num_rows();
            for (parts, (place, _)) in parts.iter_mut().zip(&self.columns.quasi) {
                parts.push(batch.column(*place).clone());
            }
            let passes = |place: &usize| {
                let is_quasi = self.columns.quasi.iter().any(|(quasi, _)| quasi == place);
                (!is_quasi).then(|| batch.column(*place).clone())
            };
            rest.push(Rest { rows: batch.num_rows(), arrays: self.columns.sources.iter().map(passes).collect() });
        }
        let whole = |parts: Vec<ArrayRef>| concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>());
        let quasi = match rows {
            0 => Vec::new(),
            _ => parts.into_iter().map(whole).collect::<Result<_, _>>()?,
        };
        Ok(Input { rows, quasi, rest })
    }

    /// The quasi-identifiers as the protocol takes them, and where clusters begin.
    async fn prepared(&self, input: &Input) -> Result<(Vec<Quasi>, Vec<usize>)> {
        let (columns, names, arrays) = (self.columns.clone(), self.names.clone(), input.quasi.clone());
        let (request, rows) = (self.request.clone(), input.rows);
        let mut random = self.veil.context().randomness(&self.options).fork();
        let read = move || {
            let mut quasi = Vec::with_capacity(arrays.len());
            for ((((_, source), weight), name), array) in
                columns.quasi.iter().zip(&columns.weights).zip(&names).zip(arrays)
            {
                quasi.push(Quasi { values: source.values(name, array)?, weight: *weight });
            }
            Ok((quasi, initial_rows(&request, rows, &mut random)?))
        };
        // Clear columns are converted: away from the threads that others wait for.
        let read = SpawnedTask::spawn_blocking(read).join().await;
        read.map_err(|error| DataFusionError::External(Box::new(error)))?
    }

    /// The error of a damaged cell with its place.
    fn located(&self, error: ProtocolError, arrays: &[ArrayRef]) -> DataFusionError {
        let is_misuse = matches!(error, ProtocolError::Misuse(_) | ProtocolError::Malformed(_));
        let damaged = |((name, array), (_, source)): ((&String, &ArrayRef), &(usize, Source))| match source {
            Source::Clear(_) => None,
            _ => damaged_cell(name, CellArray::try_new(array).ok()?),
        };
        let mut damaged = self.names.iter().zip(arrays).zip(&self.columns.quasi).filter_map(damaged);
        match is_misuse.then(|| damaged.next()).flatten() {
            Some(cell) => DataFusionError::External(Box::new(cell)),
            None => protocol(error),
        }
    }

    fn remember(&self, session: &Session, rows: usize, centres: usize, anonymised: &Anonymised, started: Instant) {
        let traffic = session.traffic();
        self.veil.anonymisation_log().add(Anonymisation {
            request: self.request.clone(),
            quasi: self.names.clone(),
            rows,
            centres,
            outcome: anonymised.outcome,
            small_sizes: anonymised.small_sizes.clone(),
            rounds: traffic.rounds(),
            bytes_sent: traffic.bytes_up(),
            bytes_received: traffic.bytes_down(),
            seconds: started.elapsed().as_secs_f64(),
        });
    }

    /// The batches as they came, with the anonymised columns in their places.
    fn result(&self, input: Input, anonymised: Anonymised, anchors: &RowAnchors) -> Result<Vec<RecordBatch>> {
        let Anonymised { columns, suppressed, .. } = anonymised;
        let external = |error| DataFusionError::External(Box::new(error));
        // What is published of a row, and its flag, is of that row, as the values were that went in.
        let of_row = |cells: &BinaryArray| {
            let rows = |row: usize| Ok(Some(Provenance::of_row(&anchors.of_row(row), NAME)));
            set_rows(CellArray::Binary(cells), rows).map_err(external)
        };
        let published = columns.iter().zip(&input.quasi).zip(&self.columns.quasi);
        let published = published.map(|((made, from), (_, source))| match source {
            Source::Clear(_) => of_row(made),
            _ => {
                let from = CellArray::try_new(from).map_err(external)?;
                carry_rows(from, CellArray::Binary(made), NAME, false).map_err(external)
            }
        });
        let (columns, suppressed) = (published.collect::<Result<Vec<_>>>()?, of_row(&suppressed)?);
        let replaced = |place: usize| {
            let at = self.columns.quasi.iter().position(|(quasi, _)| *quasi == place);
            at.and_then(|at| columns.get(at))
        };
        let (mut first, mut batches) = (0, Vec::with_capacity(input.rest.len()));
        for Rest { rows, arrays } in input.rest {
            let places = self.columns.sources.iter().zip(arrays);
            let array = |(place, array): (&usize, Option<ArrayRef>)| match array {
                Some(array) => Some(array),
                None => Some(Arc::new(replaced(*place)?.slice(first, rows)) as ArrayRef),
            };
            let mut arrays: Vec<ArrayRef> = places.filter_map(array).collect();
            arrays.push(Arc::new(suppressed.slice(first, rows)));
            batches.push(RecordBatch::try_new(self.schema.clone(), arrays)?.record_output(&self.baseline));
            first += rows;
        }
        Ok(batches)
    }
}

/// A run for which there is no memory, with a quarter of its centres to try.
fn too_large(shape: Shape, settings: &Settings) -> DataFusionError {
    let (memory, fewer) = (shape.memory(settings), (shape.centres / 4).max(1));
    DataFusionError::ResourcesExhausted(format!(
        "k_anonymize of {} rows from {} centres takes about {} MiB, more than this session may use: ask for a larger k, for fewer rows, \
         or for fewer and larger classes (centres => {fewer})",
        shape.rows,
        shape.centres,
        memory >> 20
    ))
}

/// Where clusters begin. Rows that are none, or are named twice, are refused by the run.
fn initial_rows(request: &Request, rows: usize, random: &mut StdRng) -> Result<Vec<usize>> {
    let external = |error| DataFusionError::External(Box::new(error));
    let centres = request.centre_count(rows).map_err(external)?;
    let seed = match &request.start {
        Start::Rows(initial) => return Ok(initial.iter().map(|row| *row as usize).collect()),
        Start::Random(seed) => *seed,
    };
    let drawn = match seed {
        Some(seed) => draw_centres(rows, centres, &mut StdRng::seed_from_u64(seed)),
        None => draw_centres(rows, centres, random),
    };
    drawn.map_err(external)
}
