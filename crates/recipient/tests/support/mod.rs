//! A release from end to end in one process: the owner's keys, P2 with its desk, and what P1 does by hand.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several test programs; a test fails by panicking")]

pub(crate) mod engine;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, LargeBinaryArray, RecordBatch, RecordBatchOptions, StringArray, UInt32Array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use arrow::ipc::reader::FileReader;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use veil_cells::{
    AnchorSet, CONSTANTS_METADATA_KEY, Cell, CellArray, CellType, CellView, ColumnId, Kind, POLYNOMIAL_SIZE, Role,
    SEALED_METADATA_KEY, Width,
};
use veil_keys::{OwnerKeys, RecipientKey, decrypt_column};
use veil_owner::{Declaration, Output, encrypt_file, unwatched};
use veil_protocols::anchors::Anchors;
use veil_protocols::census::{Census, Question, take_release_census};
use veil_protocols::release::apply::apply;
use veil_protocols::release::attest::attest;
use veil_protocols::release::seal_parcel::{Column, DenseSample, Parcel, seal_parcels};
use veil_protocols::{Channel, InProcess, Limits, ProtocolError, Randomness, Responder, Session};
use veil_recipient::sealed_schema;
use veil_release::testing::PERMISSIVE_ASK;
use veil_release::{
    Application, AskedColumn, Content, Digest, HiddenRows, Ledger, MANIFEST_CONTEXT, MANIFEST_VERSION, Manifest,
    ManifestColumn, NoiseBy, ParcelDigests, Party, Policy, ROW_KEY_LANES, ReleaseDesk, ReleaseId, RowKey, SEAL_INFO,
    SeenValues, SignedManifest, Terms, Unsigned, associated, seal_to,
};
use veil_slots::{DEGREE, L1, PLAIN_MODULUS, Sample, Sanitizer, Slots, plain};
use zeroize::Zeroizing;

/// Every kind, with NULLs that are seen and NULLs that are not.
pub(crate) const DECLARATION: &str = r#"
[table]
name = "t"
[column.id]
kind = "integer"
range = [-100, 100000]
[column.cost]
kind = "decimal"
scale = 2
range = ["0.00", "5000.00"]
public_range = true
[column.born]
kind = "date"
range = ["1900-01-01", "2030-01-01"]
[column.seen]
kind = "timestamp"
range = ["2000-01-01T00:00:00", "2030-01-01T00:00:00"]
[column.well]
kind = "boolean"
[column.sex]
kind = "binary"
values = ["f", "m"]
hide_nulls = true
[column.name]
kind = "text"
max_length = 24
[column.alias]
kind = "text"
max_length = 12
hide_nulls = true
identifier = true
[column.job]
kind = "category"
values = ["baker", "smith", "tailor"]
[column.age]
kind = "integer"
range = [0, 120]
hide_nulls = true
[column.region]
kind = "clear"
"#;

pub(crate) const CSV: &str = "\
id,cost,born,seen,well,sex,name,alias,job,age,region
1,12.50,1980-02-29,2020-01-01T10:00:00,true,f,Änne Müller,anne,baker,33,north
2,,,,,,,,,,
-100,0.00,1900-01-01,2000-01-01T00:00:00,false,m,,x,tailor,0,south
,5000.00,2029-12-31,2029-12-31T23:59:59,,m,Bo,,,120,
5,7.01,1999-09-09,,true,,a name of 24 letters now,zwei,smith,,west
100000,1.00,,2011-11-11T11:11:11,false,f,C,drei,,77,east
";

/// Where values come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Cells,
    Slots,
    Dense,
}

/// What to release, and how.
pub(crate) struct Plan<'a> {
    pub(crate) batch: &'a RecordBatch,
    pub(crate) form: Form,
    pub(crate) parcel_rows: usize,
    /// Rows that are suppressed.
    pub(crate) flag: Option<Vec<bool>>,
    /// The run that suppressed them; without one, what P1 sees of rows is not hidden.
    pub(crate) run: u64,
    pub(crate) id: ReleaseId,
    pub(crate) change: fn(&str, &mut CellType),
    /// By the place of a column.
    pub(crate) divisors: BTreeMap<usize, Vec<u32>>,
    /// The masks of a retry are those of the first try.
    pub(crate) seed: u64,
}

/// A parcel that waits to be sealed.
pub(crate) struct Ready {
    seed: [u8; 32],
    anchors: Anchors,
    columns: Vec<Column>,
    seen: RecordBatch,
    hidden: Option<HiddenRows>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(batch: &'a RecordBatch) -> Self {
        Self {
            batch,
            form: Form::Cells,
            parcel_rows: 4,
            flag: None,
            run: 1,
            id: ReleaseId([9; 16]),
            change: |_, _| {},
            divisors: BTreeMap::new(),
            seed: 5,
        }
    }
}

/// The parties before they meet.
pub(crate) struct Parties {
    pub(crate) owner: OwnerKeys,
    pub(crate) alice: RecipientKey,
    pub(crate) p2: Arc<Responder>,
    ledger: tempfile::TempDir,
}

impl Parties {
    pub(crate) fn new(epsilon: &str) -> Self {
        let mut rng = StdRng::seed_from_u64(31);
        let owner = OwnerKeys::generate(&mut rng);
        let alice = RecipientKey::generate("alice", &mut rng).unwrap();
        let text = format!(
            "[policy]\nkey_set = \"{}\"\n{PERMISSIVE_ASK}[recipient.alice]\nkey = \"{}\"\n[[recipient.alice.allow]]\ntable = \"t\"\n\
             columns = [\"id\", \"cost\", \"born\", \"seen\", \"well\", \"sex\", \"name\", \"alias\", \"job\", \"age\", \"region\"]\n{epsilon}\n",
            owner.key_id(),
            alice.public(),
        );
        let ledger = tempfile::tempdir().unwrap();
        let desk = ReleaseDesk::new(Policy::parse(&text).unwrap(), Ledger::open(ledger.path()).unwrap(), owner.p2());
        let p2 = Responder::new(Arc::new(owner.p2()), Limits::default(), Randomness::os());
        let p2 = Arc::new(p2.with_desk(Arc::new(desk)));
        Self { owner, alice, p2, ledger }
    }
}

/// The parties.
pub(crate) struct House {
    pub(crate) owner: OwnerKeys,
    pub(crate) alice: RecipientKey,
    pub(crate) session: Session,
    _ledger: tempfile::TempDir,
}

impl House {
    /// With an epsilon for `cost`, in the policy's words.
    pub(crate) fn new(epsilon: &str) -> Self {
        let parties = Parties::new(epsilon);
        let channel = Arc::new(InProcess::new(parties.p2.clone()));
        Self::reached_by(parties, channel)
    }

    /// With another way to P2.
    pub(crate) fn reached_by(parties: Parties, channel: Arc<dyn Channel>) -> Self {
        let Parties { owner, alice, ledger, .. } = parties;
        let sanitizer = Sanitizer::new(owner.p1().public_key().clone());
        let session = Session::with(channel, owner.key_id(), sanitizer, Randomness::os());
        Self { owner, alice, session, _ledger: ledger }
    }

    /// A clear table, encrypted.
    pub(crate) fn encrypted(&self, csv: &str) -> RecordBatch {
        let folder = tempfile::tempdir().unwrap();
        let (input, path) = (folder.path().join("t.csv"), folder.path().join("t.arrow"));
        std::fs::write(&input, csv).unwrap();
        let all = Declaration::parse(DECLARATION, Path::new("t.toml")).unwrap();
        let names: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        let mut declaration = all;
        declaration.columns.retain(|name, _| names.contains(&name.as_str()));
        let output = Output { path: path.clone(), force: false };
        let mut rng = StdRng::seed_from_u64(32);
        encrypt_file(&input, &declaration, &self.owner, &output, &mut rng, &unwatched).unwrap();
        let file = FileReader::try_new(std::fs::File::open(&path).unwrap(), None).unwrap();
        let schema = file.schema();
        concat_batches(&schema, &file.collect::<Result<Vec<_>, _>>().unwrap()).unwrap()
    }

    /// What P1 does.
    pub(crate) async fn release(&self, plan: Plan<'_>) -> Result<RecordBatch, ProtocolError> {
        let parcels = self.parcels(&plan);
        self.hand_over(&plan, parcels).await
    }

    /// What is to be sealed, as P1 has it.
    pub(crate) fn parcels(&self, plan: &Plan<'_>) -> Vec<Ready> {
        let mut rng = StdRng::seed_from_u64(plan.seed);
        let firsts = (0..plan.batch.num_rows()).step_by(plan.parcel_rows);
        let parcel = |first: usize| {
            let batch = plan.batch.slice(first, plan.parcel_rows.min(plan.batch.num_rows() - first));
            let mut seed = [0; 32];
            rng.fill_bytes(&mut seed);
            let hides = plan.flag.is_some() && plan.run != 0;
            let keys: Vec<RowKey> = match hides {
                true => (0..batch.num_rows()).map(|_| std::array::from_fn(|_| plain::uniform(&mut rng))).collect(),
                false => Vec::new(),
            };
            let columns = self.columns(plan, &batch, first, &keys, &mut rng);
            let (seen, anchors) = (seen(plan, &batch, first), anchors(&batch));
            match hides {
                true => {
                    let hidden = HiddenRows::seal(&seen, &keys).unwrap();
                    Ready { seed, anchors, columns, seen: nothing(batch.num_rows()), hidden: Some(hidden) }
                }
                false => Ready { seed, anchors, columns, seen, hidden: None },
            }
        };
        firsts.map(parcel).collect()
    }

    /// The release itself, parcel by parcel as the engine does it.
    pub(crate) async fn hand_over(&self, plan: &Plan<'_>, parcels: Vec<Ready>) -> Result<RecordBatch, ProtocolError> {
        let mut rng = StdRng::seed_from_u64(plan.seed + 1);
        let application = self.application(plan);
        let admitted = apply(&self.session, application.to_json().unwrap()).await?;
        let terms: Terms = serde_json::from_slice(&admitted.terms).unwrap();
        let header = Digest::of(&admitted.header);
        let mut rows = vec![(0, Some(admitted.header), None, None)];
        let (mut digests, mut receipts) = (BTreeMap::new(), BTreeMap::new());
        let mut number = 1;
        let (session, counted) = self.count(plan.batch, admitted.permit).await?;
        for Ready { seed, anchors, columns, seen, hidden } in parcels {
            let parcel = Parcel { permit: counted.clone(), number, rows: seen.num_rows(), anchors, columns, seed };
            let sealed = seal_parcels(&session, vec![parcel]).await?.remove(0);
            let seen = SeenValues { seed: Zeroizing::new(seed), batch: seen, hidden };
            let bound = associated(plan.id, Party::P1, number);
            let from_p1 =
                seal_to(&terms.recipient_key, SEAL_INFO, &bound, &seen.to_bytes().unwrap(), &mut rng).unwrap();
            digests.insert(number, ParcelDigests { p1: Digest::of(&from_p1), p2: Digest::of(&sealed.sealed) });
            receipts.insert(number, Digest(sealed.receipt.try_into().unwrap()));
            rows.push((number, Some(sealed.sealed), Some(from_p1), None));
            number += 1;
        }
        let manifest = Manifest { header, ..self.manifest(plan, application, digests) };
        let unsigned = serde_json::to_vec(&Unsigned { manifest: manifest.clone(), receipts }).unwrap();
        let p2 = serde_json::from_slice(&attest(&session, counted, unsigned).await?).unwrap();
        let p1 = self.owner.p1().signer().attest(MANIFEST_CONTEXT, &manifest.to_bytes().unwrap());
        let manifest = SignedManifest { manifest, p1, p2 }.to_json().unwrap();
        rows.push((number, None, None, Some(manifest)));
        Ok(table(plan.id, rows))
    }

    /// Has P2 count the rows of a release.
    async fn count(&self, batch: &RecordBatch, permit: Vec<u8>) -> Result<(Session, Vec<u8>), ProtocolError> {
        let (Anchors(files), rows) = (anchors(batch), batch.num_rows() as u64);
        let (question, columns) = (Question::Release, Vec::new());
        let census = Census { question, columns, rows, constants: 0, files, least: 1, least_sum: None, permit };
        take_release_census(&self.session, census).await
    }

    fn application(&self, plan: &Plan<'_>) -> Application {
        let column = |field: &arrow::datatypes::FieldRef| {
            let text = |key: &str| field.metadata().get(key).cloned();
            let content = match CellType::of_field(field).unwrap() {
                None => Content::Clear { data_type: field.data_type().to_string() },
                Some(mut cell_type) => {
                    (plan.change)(field.name(), &mut cell_type);
                    let (sealed, constants) = (text(SEALED_METADATA_KEY), text(CONSTANTS_METADATA_KEY));
                    Content::Encrypted { cell_type, sealed, constants, shape: None }
                }
            };
            AskedColumn { name: field.name().clone(), content }
        };
        let mut columns: Vec<AskedColumn> = plan.batch.schema().fields().iter().map(column).collect();
        if plan.flag.is_some() {
            let column = ColumnId::of(self.owner.key_id(), "t", "suppressed");
            let plain = CellType::new(Kind::Boolean, Width::of_range(0, 1).unwrap(), 1, self.owner.key_id(), column);
            let cell_type = CellType { role: Role::Suppressed, withheld: plan.run, ..plain };
            let content = Content::Encrypted { cell_type, sealed: None, constants: None, shape: None };
            columns.push(AskedColumn { name: "suppressed".to_owned(), content });
        }
        Application {
            release: plan.id,
            key_set: self.owner.key_id(),
            recipient: "alice".to_owned(),
            query: "SELECT * FROM t".to_owned(),
            software: "test".to_owned(),
            columns,
        }
    }

    fn slots(&self, numbers: impl Iterator<Item = i64>, rng: &mut StdRng) -> Slots<L1> {
        self.sealed(numbers.map(plain::from_signed).collect(), rng)
    }

    /// Lanes of text are numbers of 48 bits without a sign.
    fn text_slots(&self, lanes: impl Iterator<Item = i64>, rng: &mut StdRng) -> Slots<L1> {
        self.sealed(lanes.map(|lane| (lane as u64 & ((1 << 48) - 1)) % PLAIN_MODULUS).collect(), rng)
    }

    fn sealed(&self, mut values: Vec<u64>, rng: &mut StdRng) -> Slots<L1> {
        values.resize(DEGREE, 0);
        self.owner.p2().slot().seal(&values, rng).expand().unwrap().raised()
    }

    fn columns(
        &self,
        plan: &Plan<'_>,
        batch: &RecordBatch,
        from: usize,
        keys: &[RowKey],
        rng: &mut StdRng,
    ) -> Vec<Column> {
        let flags = plan.flag.as_ref().map(|flag| {
            let flag = flag.iter().skip(from).take(batch.num_rows()).map(|flag| i64::from(*flag)).collect::<Vec<_>>();
            self.slots(flag.into_iter(), rng)
        });
        let mut columns = Vec::new();
        for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
            let Some(cell_type) = CellType::of_field(field).unwrap() else { continue };
            let (cells, lanes) = (CellArray::try_new(array).unwrap(), cell_type.cell_lanes());
            let lanes = usize::from(lanes.value) + usize::from(lanes.nulls);
            columns.push(match plan.form {
                Form::Cells => Column::Cells((0..lanes).map(|lane| samples(cells, lane)).collect()),
                Form::Dense => Column::Dense((0..lanes).map(|lane| dense_samples(cells, lane)).collect()),
                Form::Slots => {
                    let opened = decrypt_column(self.owner.cell(), self.owner.key_id(), &cell_type, cells).unwrap();
                    assert_eq!(opened.lanes, lanes);
                    let lane = |lane: usize| opened.messages.iter().skip(lane).step_by(lanes).copied();
                    let texts = if cell_type.kind == Kind::Text { usize::from(cell_type.lanes) } else { 0 };
                    let mut sealed = |at: usize| match at < texts {
                        true => self.text_slots(lane(at), rng),
                        false => self.slots(lane(at), rng),
                    };
                    let lanes = (0..lanes).map(&mut sealed).collect();
                    Column::Slots(lanes, flags.clone())
                }
            });
        }
        let lane = |lane: usize| Slots::clear(&keys.iter().map(|key| key[lane]).collect::<Vec<u64>>());
        let keyed = flags.clone().filter(|_| !keys.is_empty());
        columns.extend(flags.map(|flags| Column::Slots(vec![flags], None)));
        columns.extend(keyed.map(|flags| Column::Slots((0..ROW_KEY_LANES).map(lane).collect(), Some(flags))));
        columns
    }

    fn manifest(&self, plan: &Plan<'_>, application: Application, digests: BTreeMap<u32, ParcelDigests>) -> Manifest {
        let mut spent = BTreeMap::new();
        let column = |column: AskedColumn| {
            let (kind, encrypted, epsilon) = match column.content {
                Content::Clear { data_type } => (data_type, false, 0),
                Content::Encrypted { cell_type, .. } => (cell_type.kind.to_string(), true, cell_type.spent),
            };
            if epsilon > 0 {
                spent.insert(column.name.clone(), epsilon);
            }
            ManifestColumn { name: column.name, kind, encrypted, epsilon, noise: NoiseBy::Nobody }
        };
        let columns = application.columns.into_iter().map(column).collect();
        Manifest {
            version: MANIFEST_VERSION,
            release: plan.id,
            key_set: self.owner.key_id(),
            owner: self.owner.public().key,
            recipient: application.recipient,
            query: application.query,
            created: "2026-11-18T01:02:03Z".to_owned(),
            software: BTreeMap::new(),
            protocols: BTreeMap::new(),
            columns,
            rows: plan.batch.num_rows() as u64,
            parcels: digests.len() as u32,
            classes: None,
            suppressed: None,
            spent,
            leakage: Vec::new(),
            header: Digest([0; 32]),
            digests,
        }
    }
}

/// The rows of the file that a batch is of.
fn anchors(batch: &RecordBatch) -> Anchors {
    let mut anchors = Anchors::default();
    let fields = batch.schema_ref().fields().iter();
    let encrypted = fields.zip(batch.columns()).filter(|(field, _)| CellType::of_field(field).unwrap().is_some());
    let columns: Vec<CellArray<'_>> = encrypted.map(|(_, array)| CellArray::try_new(array).unwrap()).collect();
    for row in 0..batch.num_rows() {
        let mut of_row = AnchorSet::default();
        for bytes in columns.iter().filter_map(|column| column.bytes(row)) {
            of_row.union(&CellView::parse(bytes).unwrap().provenance().unwrap().unwrap().anchors());
        }
        anchors.add(&of_row);
    }
    anchors
}

/// The samples of one lane, of rows that are not NULL.
fn samples(cells: CellArray<'_>, lane: usize) -> Vec<Sample> {
    let sample = |bytes: &[u8]| {
        let cell = CellView::parse(bytes).unwrap();
        let (term, body) = (cell.terms().next().unwrap(), cell.bodies().nth(lane).unwrap());
        assert_eq!((cell.terms().count(), term.coefficient), (1, 1));
        Sample { seed: term.seed, index: term.index + lane as u16, body }
    };
    (0..cells.len()).filter_map(|row| cells.bytes(row)).map(sample).collect()
}

/// The same, with the masks that seeds stand for.
fn dense_samples(cells: CellArray<'_>, lane: usize) -> Vec<DenseSample> {
    let sample = |bytes: &[u8]| {
        let cell = Cell::from_bytes(bytes).unwrap();
        let mask = cell.lwe_masks().chunks(POLYNOMIAL_SIZE).nth(lane).unwrap().to_vec();
        DenseSample { mask, body: cell.bodies()[lane] }
    };
    (0..cells.len()).filter_map(|row| cells.bytes(row)).map(sample).collect()
}

/// What P1 sees of a parcel.
fn seen(plan: &Plan<'_>, batch: &RecordBatch, from: usize) -> RecordBatch {
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    for (place, (field, array)) in batch.schema().fields().iter().zip(batch.columns()).enumerate() {
        if CellType::of_field(field).unwrap().is_none() {
            columns.push((format!("clear.{place}"), array.clone()));
            continue;
        }
        if array.null_count() > 0 {
            let present: BooleanArray = (0..array.len()).map(|row| Some(array.is_valid(row))).collect();
            columns.push((format!("present.{place}"), Arc::new(present)));
        }
        if let Some(divisors) = plan.divisors.get(&place) {
            let divisors = divisors[from..from + batch.num_rows()].to_vec();
            columns.push((format!("divisor.{place}"), Arc::new(UInt32Array::from(divisors))));
        }
    }
    if columns.is_empty() {
        return nothing(batch.num_rows());
    }
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Rows without columns.
fn nothing(rows: usize) -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap()
}

pub(crate) type Row = (u32, Option<Vec<u8>>, Option<Vec<u8>>, Option<String>);

/// The table that a release travels in.
pub(crate) fn table(release: ReleaseId, rows: Vec<Row>) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| Some(row.0)).collect::<UInt32Array>()),
        Arc::new(rows.iter().map(|row| row.1.as_deref()).collect::<LargeBinaryArray>()),
        Arc::new(rows.iter().map(|row| row.2.as_deref()).collect::<LargeBinaryArray>()),
        Arc::new(rows.iter().map(|row| row.3.as_deref()).collect::<StringArray>()),
    ];
    RecordBatch::try_new(sealed_schema(release), columns).unwrap()
}
