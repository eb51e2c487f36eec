//! One release: rows in, sealed parts out.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, LargeBinaryArray, RecordBatch, RecordBatchOptions, StringArray, UInt32Array,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DataFusionError, plan_err};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, RecordOutput, Time};
use futures::TryStreamExt;
use tokio::sync::mpsc::Sender;
use veil_protocols::anchors::Anchors;
use veil_protocols::identifiers::{Method, Table};
use veil_protocols::release::apply::apply;
use veil_protocols::release::attest::attest;
use veil_protocols::release::check_classes::{Labelled, check_classes};
use veil_protocols::release::seal_parcel::{Column, Parcel, seal_parcels};
use veil_protocols::release::{Admission, ClassSizes, SealedParcel};
use veil_protocols::{ProtocolError, Session, catalog};
use veil_release::{
    Application, Attestation, Attester, ClassCheck, Digest, HiddenRows, MANIFEST_CONTEXT, MANIFEST_VERSION, Manifest,
    ManifestColumn, NoiseBy, PARCEL_ROWS, ParcelDigests, Party, ReleaseError, ReleaseId, SEAL_INFO, SeenValues,
    SignedManifest, Terms, Unsigned, associated, moment_now, seal_to,
};
use veil_udfs::VeilOptions;
use zeroize::Zeroizing;

use super::columns::{Columns, schema};
use super::parcels::{flags, parcel_rows, prepare, row_keys};
use crate::Veil;
use crate::census::{Compared, Counted, RowAnchors, release_under, take_census};
use crate::error::protocol;
use crate::identifiers::Source;
use crate::row_bytes::row_bytes;

/// The protocols of a release; some take only those of columns that need them.
pub(super) const PROTOCOLS: [&str; 6] = ["apply", "check_classes", "lift", "redraw", "seal_parcel", "attest"];

/// One run.
pub(super) struct Run {
    pub(super) veil: Veil,
    pub(super) options: VeilOptions,
    pub(super) columns: Columns,
    pub(super) recipient: String,
    pub(super) query: String,
    pub(super) memory: MemoryReservation,
    pub(super) baseline: BaselineMetrics,
    pub(super) census: Time,
    pub(super) rounds: Count,
    pub(super) sent: Count,
    pub(super) received: Count,
}

/// A release under way.
struct Underway {
    id: ReleaseId,
    session: Session,
    signer: Arc<dyn Attester>,
    permit: Vec<u8>,
    /// Of every row.
    anchors: RowAnchors,
    header: Digest,
    terms: Terms,
    classes: Option<ClassSizes>,
    /// Whether some values went through slots.
    lifted: bool,
    rows: u64,
    parcels: u32,
    digests: BTreeMap<u32, ParcelDigests>,
    receipts: BTreeMap<u32, Digest>,
}

impl Run {
    pub(super) async fn release(
        self,
        input: SendableRecordBatchStream,
        out: Sender<Result<RecordBatch>>,
    ) -> Result<()> {
        let session = self.veil.session(self.columns.key, &self.options).await?;
        let signer = self.veil.signer(self.columns.key).await?;
        let id = ReleaseId::generate(&mut session.randomness().fork());
        let application = Application {
            release: id,
            key_set: self.columns.key,
            recipient: self.recipient.clone(),
            query: self.query.clone(),
            software: software(),
            columns: self.columns.asked(),
        };
        let (admission, terms) = self.apply(&session, &application).await?;
        // A row that counts twice may stand anywhere, so that nothing leaves before all rows have been seen.
        let rows = self.collect(input).await?;
        let (session, permit, anchors) = self.count(&session, &rows, admission.permit, &terms).await?;
        let mut underway = Underway {
            id,
            session,
            signer,
            permit,
            anchors,
            header: Digest::of(&admission.header),
            terms,
            classes: None,
            lifted: false,
            rows: 0,
            parcels: 0,
            digests: BTreeMap::new(),
            receipts: BTreeMap::new(),
        };
        let header = self.part(&underway, 0, Some(&admission.header), None, None)?;
        if out.send(Ok(header)).await.is_err() {
            return Ok(());
        }
        // Nobody is in an empty table.
        if let Some((_, places)) = underway.terms.k.clone().filter(|_| rows.num_rows() > 0) {
            self.check(&mut underway, &rows, &places).await?;
        }
        for first in (0..rows.num_rows()).step_by(PARCEL_ROWS) {
            let some = rows.slice(first, PARCEL_ROWS.min(rows.num_rows() - first));
            if self.seal_some(&mut underway, some, &out).await?.is_none() {
                return Ok(());
            }
        }
        let manifest = self.manifest(&underway).await?;
        let last = self.part(&underway, underway.parcels + 1, None, None, Some(&manifest))?;
        // Nobody may be there to read it.
        let _ = out.send(Ok(last)).await;
        Ok(())
    }

    /// Asks P2 for a permit, and what there is to do.
    async fn apply(&self, session: &Session, application: &Application) -> Result<(Admission, Terms)> {
        let admission = apply(session, application.to_json().map_err(external)?).await.map_err(protocol)?;
        let terms = serde_json::from_slice(&admission.terms)
            .map_err(|error| protocol(ProtocolError::Malformed(error.to_string())))?;
        Ok((admission, terms))
    }

    /// All rows in one piece.
    async fn collect(&self, mut input: SendableRecordBatchStream) -> Result<RecordBatch> {
        let mut batches = Vec::new();
        while let Some(batch) = input.try_next().await? {
            // Once as it comes, once in one piece.
            self.memory.try_grow(2 * row_bytes(&batch))?;
            batches.push(batch);
        }
        Ok(concat_batches(&input.schema(), &batches)?)
    }

    /// Counts the rows, each row of an encrypted file once, and has P2 hold them against the policy.
    async fn count(
        &self,
        session: &Session,
        rows: &RecordBatch,
        permit: Vec<u8>,
        terms: &Terms,
    ) -> Result<(Session, Vec<u8>, RowAnchors)> {
        let _timer = self.census.timer();
        let k_columns = terms.k.as_ref().map_or(&[][..], |(_, places)| places);
        let counted = self.columns.encrypted.iter().filter(|(place, _)| self.columns.flag != Some(*place));
        let counted = counted.filter_map(|(place, column)| {
            let name = self.columns.fields.get(*place)?.name().clone();
            let compared = if k_columns.contains(place) { Compared::Released } else { Compared::Not };
            let cells = vec![rows.columns().get(*place)?.clone()];
            Some(Counted { name, cells, column: column.cell_type.column, compared })
        });
        let counted: Vec<Counted> = counted.collect();
        let columns = counted.iter().map(|counted| counted.column).collect();
        let (census, anchors) = take_census("release", rows.num_rows(), counted).await?;
        let (session, permit) = release_under(session, permit, columns, &census).await?;
        Ok((session, permit, anchors))
    }

    /// Has P2 count the classes.
    async fn check(&self, underway: &mut Underway, rows: &RecordBatch, places: &[usize]) -> Result<()> {
        let session = underway.session.clone();
        let mut rng = session.randomness().fork();
        let (mut compared, mut lanes) = (Vec::with_capacity(places.len()), 0);
        for place in places {
            let (Some(field), Some(array)) = (self.columns.fields.get(*place), rows.columns().get(*place)) else {
                return Err(protocol(ProtocolError::Malformed(format!("P2 asks about a column {place}"))));
            };
            if self.columns.encrypted.iter().any(|(other, column)| other == place && column.is_wide()) {
                return plan_err!(
                    "the policy wants rows that share {}, which is a sum or average, or may have more than 32 bits, so that P2 cannot count who does: leave it \
                     out, or ask the owner",
                    field.name()
                );
            }
            let source = Source::shuffled(field)?;
            lanes += source.lanes();
            compared.push(source.column(array.clone(), &mut rng)?);
        }
        let (count, set) =
            (rows.num_rows(), places.iter().enumerate().fold(0u64, |set, (at, _)| set | 1u64 << (at & 63)));
        self.memory.try_grow(Method::Shuffled.memory(count, lanes))?;
        let gone = match self.flag(rows) {
            Some((column, cells)) => Some(flags(&session, column, cells).await.map_err(protocol)?),
            None => None,
        };
        let table = Table::prepare(Some(session.clone()), Method::Shuffled, count, compared).await.map_err(protocol)?;
        let vectors = table.shuffled_labels(set, gone.as_ref()).await.map_err(protocol)?;
        let labelled = Labelled { permit: underway.permit.clone(), vectors, rows: count };
        let (permit, sizes) = check_classes(&session, labelled).await.map_err(protocol)?;
        (underway.permit, underway.classes) = (permit, Some(sizes));
        Ok(())
    }

    /// The column that tells which rows are suppressed.
    fn flag<'a>(&'a self, rows: &'a RecordBatch) -> Option<(&'a super::columns::EncryptedColumn, &'a ArrayRef)> {
        let flag = self.columns.flag?;
        let (_, column) = self.columns.encrypted.iter().find(|(place, _)| *place == flag)?;
        Some((column, rows.columns().get(flag)?))
    }

    /// Seals up to 8192 rows, in as many parcels as they take; nothing if nobody is there.
    async fn seal_some(
        &self,
        underway: &mut Underway,
        rows: RecordBatch,
        out: &Sender<Result<RecordBatch>>,
    ) -> Result<Option<()>> {
        let encrypted = self.columns.encrypted.iter().map(|(place, column)| (column, rows.column(*place)));
        let step = parcel_rows(encrypted, self.columns.key).map_err(protocol)?;
        for first in (0..rows.num_rows()).step_by(step) {
            let parcel = rows.slice(first, step.min(rows.num_rows() - first));
            if self.seal(underway, parcel, out).await?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    /// Seals the rows of a parcel and sends them on; nothing if nobody is there.
    async fn seal(
        &self,
        underway: &mut Underway,
        rows: RecordBatch,
        out: &Sender<Result<RecordBatch>>,
    ) -> Result<Option<()>> {
        let session = underway.session.clone();
        let suppressed = match self.flag(&rows) {
            Some((column, cells)) => flags(&session, column, cells).await.map_err(protocol)?.into_vectors().pop(),
            None => None,
        };
        let (mut columns, mut seen, mut hidden) = (Vec::new(), Seen::default(), Seen::default());
        for (place, (field, array)) in self.columns.fields.iter().zip(rows.columns()).enumerate() {
            let Some((_, column)) = self.columns.encrypted.iter().find(|(other, _)| *other == place) else {
                let to = if suppressed.is_some() { &mut hidden } else { &mut seen };
                to.push((Field::new(format!("clear.{place}"), field.data_type().clone(), true), array.clone()));
                continue;
            };
            // The flag itself must arrive as it is.
            let suppressed = suppressed.as_ref().filter(|_| self.columns.flag != Some(place));
            let prepared = prepare(&session, column, array, suppressed).await.map_err(protocol)?;
            underway.lifted |= matches!(prepared.column, Column::Slots(..));
            columns.push(prepared.column);
            let present = Field::new(format!("present.{place}"), DataType::Boolean, false);
            match (prepared.present, suppressed.is_some()) {
                (Some(is_present), false) => seen.push((present, Arc::new(is_present))),
                (None, false) => {}
                // Whether there are any NULLs is not told either.
                (is_present, true) if field.is_nullable() => {
                    let is_present = is_present.unwrap_or_else(|| BooleanArray::from(vec![true; rows.num_rows()]));
                    hidden.push((present, Arc::new(is_present)));
                }
                (_, true) => {}
            }
            if let Some(divisors) = prepared.divisors {
                seen.push((Field::new(format!("divisor.{place}"), DataType::UInt32, false), Arc::new(divisors)));
            }
        }
        let number = underway.parcels + 1;
        let mut rng = session.randomness().fork();
        let seed = Zeroizing::new(session.randomness().seed());
        let hidden = match &suppressed {
            None => None,
            Some(suppressed) => {
                let (keys, column) = row_keys(rows.num_rows(), suppressed, &mut rng);
                columns.push(column);
                Some(HiddenRows::seal(&batch_of(hidden, rows.num_rows())?, &keys).map_err(|error| self.named(error))?)
            }
        };
        let (permit, mut anchors) = (underway.permit.clone(), Anchors::default());
        let first = underway.rows as usize;
        (first..first + rows.num_rows()).for_each(|row| anchors.add(&underway.anchors.of_row(row)));
        let parcel = Parcel { permit, number, rows: rows.num_rows(), anchors, columns, seed: *seed };
        let mut sealed = seal_parcels(&session, vec![parcel]).await.map_err(protocol)?;
        let SealedParcel { sealed, receipt } = sealed.pop().ok_or_else(|| protocol(ProtocolError::Cancelled))?;
        let receipt = <[u8; 32]>::try_from(receipt)
            .map_err(|_| protocol(ProtocolError::Malformed("a receipt of P2 is cut".to_owned())))?;
        let batch = batch_of(seen, rows.num_rows())?;
        let own = SeenValues { seed, batch, hidden }.to_bytes().map_err(external)?;
        let bound = associated(underway.id, Party::P1, number);
        let own = seal_to(&underway.terms.recipient_key, SEAL_INFO, &bound, &own, &mut rng).map_err(external)?;
        let digests = ParcelDigests { p1: Digest::of(&own), p2: Digest::of(&sealed) };
        underway.digests.insert(number, digests);
        underway.receipts.insert(number, Digest(receipt));
        (underway.parcels, underway.rows) = (number, underway.rows + rows.num_rows() as u64);
        self.record(&session);
        let part = self.part(underway, number, Some(&sealed), Some(&own), None)?;
        Ok(out.send(Ok(part)).await.ok())
    }

    /// An error about a column of P1's part, by the name that the column has in the query.
    fn named(&self, error: ReleaseError) -> DataFusionError {
        let ReleaseError::Column { column, why } = error else { return external(error) };
        let place = column.split_once('.').and_then(|(_, place)| place.parse::<usize>().ok());
        let field = place.and_then(|place| self.columns.fields.get(place));
        let column = field.map_or(column, |field| field.name().clone());
        external(ReleaseError::Column { column, why })
    }

    /// A row of the result.
    fn part(
        &self,
        underway: &Underway,
        number: u32,
        from_p2: Option<&[u8]>,
        from_p1: Option<&[u8]>,
        manifest: Option<&str>,
    ) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(vec![underway.id.to_string()])),
            Arc::new(UInt32Array::from(vec![number])),
            Arc::new(LargeBinaryArray::from(vec![from_p2])),
            Arc::new(LargeBinaryArray::from(vec![from_p1])),
            Arc::new(StringArray::from(vec![manifest])),
        ];
        Ok(RecordBatch::try_new(schema(), columns)?.record_output(&self.baseline))
    }

    fn record(&self, session: &Session) {
        let traffic = session.traffic();
        let set = |count: &Count, value: u64| count.add((value as usize).saturating_sub(count.value()));
        set(&self.rounds, traffic.rounds());
        set(&self.sent, traffic.bytes_up());
        set(&self.received, traffic.bytes_down());
    }

    /// What the release was, signed by both.
    async fn manifest(&self, underway: &Underway) -> Result<String> {
        let manifest = self.unsigned(underway);
        let bytes = manifest.to_bytes().map_err(external)?;
        let p1 = underway.signer.attest(MANIFEST_CONTEXT, &bytes);
        let unsigned = Unsigned { manifest, receipts: underway.receipts.clone() };
        let text = serde_json::to_vec(&unsigned).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let p2 = attest(&underway.session, underway.permit.clone(), text).await.map_err(protocol)?;
        let p2: Attestation = serde_json::from_slice(&p2)
            .map_err(|error| protocol(ProtocolError::Malformed(format!("P2's signature cannot be read: {error}"))))?;
        self.record(&underway.session);
        SignedManifest { manifest: unsigned.manifest, p1, p2 }.to_json().map_err(external)
    }

    fn unsigned(&self, underway: &Underway) -> Manifest {
        let column = |(place, field): (usize, &Arc<Field>)| {
            let encrypted = self.columns.encrypted.iter().find(|(other, _)| *other == place).map(|(_, column)| column);
            let cell_type = encrypted.map(|column| &column.cell_type);
            ManifestColumn {
                name: field.name().clone(),
                kind: cell_type.map_or_else(|| field.data_type().to_string(), |cell_type| cell_type.kind.to_string()),
                encrypted: encrypted.is_some(),
                epsilon: cell_type.filter(|cell_type| !cell_type.mixed).map_or(0, |cell_type| cell_type.spent),
                // Noise in some rows protects nobody in others.
                noise: match cell_type.filter(|cell_type| cell_type.is_noised()) {
                    Some(cell_type) if !cell_type.awaits.is_empty() => NoiseBy::Both,
                    Some(_) => NoiseBy::P1,
                    None => NoiseBy::Nobody,
                },
            }
        };
        let columns: Vec<ManifestColumn> = self.columns.fields.iter().enumerate().map(column).collect();
        let names = |places: &[usize]| {
            places.iter().filter_map(|place| Some(self.columns.fields.get(*place)?.name().clone())).collect()
        };
        let classes = underway.terms.k.as_ref().zip(underway.classes).map(|((k, places), sizes)| ClassCheck {
            required: *k,
            columns: names(places),
            passed: true,
            smallest: Some(sizes.smallest.into()),
        });
        let drawn = self.columns.encrypted.iter().any(|(_, column)| !column.draws().is_empty());
        let taken = |name: &&&str| match **name {
            "check_classes" => underway.classes.is_some(),
            "redraw" => drawn,
            "lift" => underway.lifted,
            _ => true,
        };
        let entries = || PROTOCOLS.iter().filter(taken).filter_map(|name| catalog::find(name));
        let told = |party: &str, what: &str| (what != "nothing").then(|| format!("{party} learns {what}"));
        let leakage = entries().flat_map(|of| [told("P1", of.leakage.p1), told("P2", of.leakage.p2)]);
        Manifest {
            version: MANIFEST_VERSION,
            release: underway.id,
            key_set: self.columns.key,
            owner: underway.signer.owner(),
            recipient: self.recipient.clone(),
            query: self.query.clone(),
            created: moment_now(),
            software: BTreeMap::from([("p1".to_owned(), software())]),
            protocols: entries().map(|entry| (entry.name.to_owned(), entry.version)).collect(),
            columns,
            rows: underway.rows,
            parcels: underway.parcels,
            classes,
            suppressed: underway.classes.map(|sizes| sizes.suppressed.into()),
            // Nothing is spent on nothing.
            spent: if underway.parcels == 0 { BTreeMap::new() } else { underway.terms.spent.clone() },
            leakage: leakage.flatten().collect(),
            header: underway.header,
            digests: underway.digests.clone(),
        }
    }
}

/// Columns that P1 sees.
type Seen = Vec<(Field, ArrayRef)>;

fn batch_of(seen: Seen, rows: usize) -> Result<RecordBatch> {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = seen.into_iter().unzip();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
}

fn software() -> String {
    format!("veil {}", env!("CARGO_PKG_VERSION"))
}

fn external(error: ReleaseError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
