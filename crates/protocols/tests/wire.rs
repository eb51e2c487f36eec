//! The wire: pinned messages of every protocol in the catalog, and a hundred thousand damaged ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, UInt32Type};
use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{CryptoRng, Rng, RngCore, SeedableRng};
use sha2::{Digest, Sha256};
use veil_cells::{Cell, CellArray, CellType, CellView, ColumnId, KeyId, Kind, Lanes, Mechanism, Width, scale_cells};
use veil_keys::{OwnerKeys, encrypt_column, encrypt_constants};
use veil_protocols::add_laplace::add_laplace;
use veil_protocols::anchors::Anchors;
use veil_protocols::blend::blend;
use veil_protocols::broadcast::broadcast;
use veil_protocols::census::{self, Census, Counted, Granted, take_release_census};
use veil_protocols::centres::centres;
use veil_protocols::cluster_sums::cluster_sums;
use veil_protocols::compare_and_select::{Pair, compare_and_select};
use veil_protocols::count_classes::{Labels, count_classes};
use veil_protocols::count_tags::{Source, TagTable, count_tags};
use veil_protocols::distances::distances;
use veil_protocols::few::truncate_half;
use veil_protocols::few_pairs::{Numbers, few_pairs};
use veil_protocols::few_pick::{Picks, few_pick};
use veil_protocols::few_select::few_select;
use veil_protocols::gather::{Places, gather};
use veil_protocols::group::group;
use veil_protocols::less_than::{Masked, less_than};
use veil_protocols::lift_tags::{Rows, TagColumn, lift_tags};
use veil_protocols::lookup::{Question, Table, lookup};
use veil_protocols::open::{Aggregate, Purpose, open};
use veil_protocols::redraw::{Draw, redraw};
use veil_protocols::relabel::{Combination, Label, relabel};
use veil_protocols::release::apply::apply;
use veil_protocols::release::attest::attest;
use veil_protocols::release::check_classes::{Labelled, check_classes};
use veil_protocols::release::masks::{Masks, Modulus};
use veil_protocols::release::seal_parcel::{Column, DenseSample, Parcel, seal_parcels};
use veil_protocols::release::{Admission, Asked, ClassSizes, Desk, OpenedParcel, SealedParcel};
use veil_protocols::shuffle::{Orders, shuffle};
use veil_protocols::size_histogram::{Sizes, size_histogram};
use veil_protocols::truncate::{Dividend, Rounding, truncate};
use veil_protocols::{
    Channel, Frame, Frames, Header, Layout, Limits, ProtocolError, Randomness, Responder, Session, Tiles, and, catalog,
    laplace_scale, lift, lift_wide, lower, multiply, pairwise, slot_sum, zero_test, zeros,
};
use veil_slots::{DEGREE, KeyHolder, L1, Sample, Sanitizer, Slots};

/// The first request and answer of every protocol.
type Recorded = Arc<Mutex<BTreeMap<String, (Frame, Frame)>>>;

/// A channel that writes down what passes, one batch after the other, so that P2 draws its randomness in the same order each time.
#[derive(Debug)]
struct Tap {
    responder: Arc<Responder>,
    recorded: Recorded,
}

impl Channel for Tap {
    fn exchange(&self, requests: Frames) -> Frames {
        let (responder, recorded) = (self.responder.clone(), self.recorded.clone());
        let answer = move |request: Result<Frame, ProtocolError>| {
            let request = request?;
            let answer = responder.answer(request.clone())?;
            let (header, _) = answer.clone().open()?;
            recorded.lock().unwrap().entry(header.protocol).or_insert((request, answer.clone()));
            Ok(answer)
        };
        requests.map(answer).boxed()
    }

    fn limits(&self) -> Limits {
        self.responder.limits()
    }
}

struct Run {
    responder: Arc<Responder>,
    recorded: BTreeMap<String, (Frame, Frame)>,
}

/// Runs every protocol once, with all randomness fixed, one row each.
fn run() -> Run {
    let mut rng = StdRng::seed_from_u64(2024);
    let owner = OwnerKeys::generate(&mut rng);
    let keys = owner.p2();
    let responder = Responder::new(Arc::new(owner.p2()), Limits::default(), Randomness::fixed(1));
    let responder = Arc::new(responder.with_desk(Arc::new(Generous)));
    let recorded = Recorded::default();
    let tap = Tap { responder: responder.clone(), recorded: recorded.clone() };
    let sanitizer = Sanitizer::new(owner.p1().public_key().clone());
    let session = Session::with(Arc::new(tap), owner.key_id(), sanitizer, Randomness::fixed(2));
    let mut seal =
        |value: u64| -> Slots<L1> { keys.slot().seal(&[value; DEGREE], &mut rng).expand().unwrap().raised() };
    let (x, y, bit) = (seal(1234), seal(77), seal(1));
    let cell_type = CellType::new(Kind::Integer, Width::of_range(0, 100).unwrap(), 1, owner.key_id(), ColumnId([3; 8]));
    let cells = encrypt_column(&owner, &cell_type, &[1, 2, 3], None, &mut rng).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        lift::lift_column(&session, CellArray::Binary(&cells), 0, 8).await.unwrap();
        let scaled = scale_cells(CellArray::Binary(&cells), 5).unwrap();
        lift::lift_column(&session, CellArray::Binary(&scaled), 0, 16).await.unwrap();
        let rows = lower::Rows {
            lanes: vec![x.clone()],
            count: 3,
            shape: Lanes::NUMBER,
            width: 16,
            magnitude: Some(2000),
            key_id: owner.key_id(),
        };
        lower::lower(&session, vec![rows]).await.unwrap();
        multiply::multiply(&session, vec![(x.clone(), y.clone())]).await.unwrap();
        and::and(&session, vec![vec![bit.clone(), bit.clone()]]).await.unwrap();
        less_than(&session, vec![Masked { slots: x.clone(), mask: vec![5; DEGREE] }]).await.unwrap();
        truncate(&session, vec![Dividend { slots: x.clone(), shift: 4, rounding: Rounding::Floor }]).await.unwrap();
        compare_and_select(&session, vec![Pair { a: x.clone(), b: y.clone(), bits: 20 }]).await.unwrap();
        for domain in [[77, 78], [78, 77]] {
            let domain: Arc<[u64]> = Arc::new(domain);
            let question = Question { slots: y.clone(), domain: domain.clone(), tables: vec![Table::Shared(domain)] };
            lookup(&session, vec![question]).await.unwrap();
        }
        zero_test::zero_test(&session, vec![x.clone()]).await.unwrap();
        slot_sum::slot_sum(&session, vec![x.clone()]).await.unwrap();
        open(&session, vec![Aggregate { slots: x, count: 2, purpose: Purpose::Metric }]).await.unwrap();
        let rows = zeros::Rows { messages: vec![4, 5, 6], shape: Lanes::NUMBER, magnitude: Some(10) };
        zeros::fresh_cells(&session, vec![rows]).await.unwrap();
        let constants = encrypt_constants(&owner, &cell_type, 0, 100).unwrap();
        let scale = laplace_scale::scale(&session, &constants, 8).await.unwrap();
        add_laplace(&session, &scale, CellArray::Binary(&cells), vec![7, 0, -7], 10).await.unwrap();
        classes(&session, &owner, y.clone()).await;
        shuffle(&session, Layout::new(4), Orders::Independent, vec![vec![y.clone()]]).await.unwrap();
        let (seed, bodies) = keys.seal_samples(&[7, 8], &mut StdRng::seed_from_u64(5));
        let samples = bodies.into_iter().zip(0..).map(|(body, index)| Sample { seed, index, body }).collect();
        lift_wide::lift_wide(&session, vec![lift::Rows { samples, present: None, width: 48 }]).await.unwrap();
        pairwise::pairwise(&session, 3, 2, true, vec![y.clone()]).await.unwrap();
        nearest_centres(&session, y.clone()).await;
        clusters(&session, y.clone(), bit).await;
        few(&session, y.clone()).await;
        releases(&session, y.clone(), CellArray::Binary(&cells)).await;
        assessments(&session, y).await;
    });
    let recorded = std::mem::take(&mut *recorded.lock().unwrap());
    Run { responder, recorded }
}

/// The protocols that find the nearest centre: three of two columns, for five rows.
async fn nearest_centres(session: &Session, slots: Slots<L1>) {
    let (tiles, packed, rows) = (Tiles::new(5, 3), vec![slots.clone()], vec![slots; 2]);
    let centres = broadcast(session, &tiles, 2, &packed, 0..1).await.unwrap();
    distances(session, &tiles, &[1, 3], 0, &rows, &packed, &centres, 0..1).await.unwrap();
}

/// The protocols of clusters: three rows that belong to both of two centres.
async fn clusters(session: &Session, column: Slots<L1>, belongs: Slots<L1>) {
    let tiles = Tiles::new(3, 2);
    let assignment = [vec![belongs]];
    let sums = cluster_sums(session, &tiles, &[vec![column.clone()]], &assignment).await.unwrap();
    centres(session, &tiles, 1, &sums, vec![column.clone()]).await.unwrap();
    blend(session, &tiles, 1, &[column], &assignment).await.unwrap();
}

/// The protocols of risk and utility: sizes of classes, rows of a class together, and slots from their places.
async fn assessments(session: &Session, labels: Slots<L1>) {
    let sizes = size_histogram(session, 3, 16, vec![Labels { vectors: vec![labels.clone()], lists: 1 }]).await.unwrap();
    assert_eq!(sizes, [Sizes { suppressed: 0, classes: vec![(3, 1)] }]);
    let grouped = group(session, 3, vec![labels.clone()], vec![vec![labels]]).await.unwrap().remove(0);
    gather(session, vec![Places { vectors: grouped, places: vec![2, 1] }]).await.unwrap();
}

/// The protocols of few numbers: a quotient, and the smallest of three sums of two.
async fn few(session: &Session, slots: Slots<L1>) {
    let dividend = Dividend { slots: slots.clone(), shift: 5, rounding: Rounding::Floor };
    truncate_half(session, 3, vec![dividend]).await.unwrap();
    let picks = Picks { vectors: vec![slots.clone()], centres: 3, columns: 2 };
    few_pick(session, vec![picks]).await.unwrap();
    let ring = few_pairs(session, Numbers { vectors: vec![slots], centres: 3, columns: 2 }).await.unwrap();
    few_select(session, ring, 3, 30, |_| false).await.unwrap();
}

/// A desk that grants everything, and seals nothing.
struct Generous;

impl Desk for Generous {
    fn apply(&self, asked: &[u8], _: &dyn KeyHolder, _: &mut dyn CryptoRng) -> Result<Admission, ProtocolError> {
        Ok(Admission { permit: b"permit".to_vec(), header: b"header".to_vec(), terms: asked.to_vec() })
    }

    fn census(
        &self,
        session: [u8; 16],
        _: &[u8],
        counted: Counted,
        _: &mut dyn CryptoRng,
    ) -> Result<Granted, ProtocolError> {
        Ok(Granted { receipt: [&session[..], counted.question.name().as_bytes()].concat(), permit: counted.permit })
    }

    fn opens(&self, _: Asked<'_>) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn classes(&self, permit: &[u8], sizes: &ClassSizes, _: &mut dyn CryptoRng) -> Result<Vec<u8>, ProtocolError> {
        Ok([permit, &[sizes.smallest as u8]].concat())
    }

    fn lanes(&self, permit: &[u8]) -> Result<Vec<usize>, ProtocolError> {
        match permit {
            b"permit" => Ok(vec![1, 1, 1]),
            _ => Err(ProtocolError::Denied("no permit".to_owned())),
        }
    }

    fn seal(&self, parcel: OpenedParcel<'_>, _: &mut dyn CryptoRng) -> Result<SealedParcel, ProtocolError> {
        let words = parcel.columns.iter().flat_map(|column| column.words.iter().flat_map(|word| word.to_le_bytes()));
        Ok(SealedParcel { sealed: words.collect(), receipt: parcel.number.to_le_bytes().to_vec() })
    }

    fn attest(&self, _: &[u8], manifest: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        Ok(manifest.to_vec())
    }
}

/// The rows of cells, each of which is of one row of its file.
fn anchors_of(cells: CellArray<'_>) -> Anchors {
    let mut anchors = Anchors::default();
    for row in 0..cells.len() {
        let provenance = CellView::parse(cells.bytes(row).unwrap()).unwrap().provenance().unwrap();
        anchors.add(&provenance.unwrap().anchors());
    }
    anchors
}

/// The protocols of a release: a column from cells, one from slots of which some rows are suppressed, and one of sums.
async fn releases(session: &Session, slots: Slots<L1>, cells: CellArray<'_>) {
    let admission = apply(session, b"{}".to_vec()).await.unwrap();
    let census = Census {
        question: census::Question::Release,
        columns: vec![ColumnId([3; 8])],
        rows: 3,
        constants: 0,
        files: anchors_of(cells).0,
        least: 1,
        least_sum: Some(2),
        permit: admission.permit,
    };
    let (session, permit) = take_release_census(session, census).await.unwrap();
    let admission = Admission { permit, ..admission };
    let session = &session;
    let labelled = Labelled { permit: admission.permit.clone(), vectors: vec![slots.clone()], rows: 3 };
    let (permit, sizes) = check_classes(session, labelled).await.unwrap();
    assert_eq!((permit.as_slice(), sizes.classes), (&b"permit\x03"[..], 1));
    let codes = Arc::new(vec![vec![0], vec![1]]);
    let draw = Draw { mechanism: Mechanism::Binary, epsilon: 1_000_000, codes };
    redraw(session, vec![Slots::clear(&[1; DEGREE])], &draw).await.unwrap();
    let sample = |row: usize| {
        let cell = CellView::parse(cells.bytes(row).unwrap()).unwrap();
        let term = cell.terms().next().unwrap();
        Sample { seed: term.seed, index: term.index, body: cell.bodies().next().unwrap() }
    };
    let sum = |rows: [usize; 2]| {
        let [mut one, other] = rows.map(|row| Cell::from_bytes(cells.bytes(row).unwrap()).unwrap());
        one.add(&other).unwrap();
        DenseSample { mask: one.lwe_masks().into_owned(), body: one.bodies()[0] }
    };
    let columns = vec![
        Column::Cells(vec![(0..3).map(sample).collect()]),
        Column::Slots(vec![slots], Some(Slots::clear(&[0, 1, 0]))),
        // The third row is NULL.
        Column::Dense(vec![vec![sum([0, 1]), sum([1, 2])]]),
    ];
    let anchors = anchors_of(cells);
    let parcel = Parcel { permit: admission.permit.clone(), number: 7, rows: 3, anchors, columns, seed: [9; 32] };
    let sealed = seal_parcels(session, vec![parcel]).await.unwrap().remove(0);
    assert_eq!(sealed.receipt, [7, 0, 0, 0]);
    let (mut masks, words) = (Masks::new([9; 32]), sealed.sealed.as_chunks::<8>().0);
    let mut next = |modulus: Modulus, at: usize| modulus.unmask(u64::from_le_bytes(words[at]), masks.next(modulus));
    assert_eq!([0, 1, 2].map(|at| next(Modulus::Cells, at)), [1, 2, 3]);
    let [first, gone, third] = [3, 4, 5].map(|at| next(Modulus::Slots, at));
    assert!((first, third) == (77, 77) && gone != 77, "{first} {gone} {third}");
    assert_eq!([6, 7].map(|at| next(Modulus::Cells, at)), [3, 5]);
    assert_eq!(words.len(), 8);
    assert_eq!(attest(session, admission.permit, b"manifest".to_vec()).await.unwrap(), b"manifest");
}

/// The protocols that find identifying columns.
async fn classes(session: &Session, owner: &OwnerKeys, labels: Slots<L1>) {
    let mut rng = StdRng::seed_from_u64(2025);
    let width = Width::of_range(0, 100).unwrap();
    let plain = CellType::new(Kind::Integer, width, 1, owner.key_id(), ColumnId([4; 8]));
    let cell_type = CellType { tag: true, ..plain };
    let cells = encrypt_column(owner, &cell_type, &[1, 1000, 2, 2000, 1, 1000], None, &mut rng).unwrap();
    let column = TagColumn::read(CellArray::Binary(&cells), owner.key_id()).unwrap();
    lift_tags(session, vec![Rows::new(column.samples.iter().copied())]).await.unwrap();
    let label = Arc::new(Label::draw(&mut rng));
    let terms = vec![(labels.clone(), vec![3])];
    relabel(session, vec![Combination { terms, clear: None, labels: vec![label], block: DEGREE, repeated: false }])
        .await
        .unwrap();
    let labels = Labels { vectors: vec![labels], lists: 2 };
    assert_eq!(count_classes(session, 3, 16, 4, true, vec![labels]).await.unwrap(), [3, 3]);
    let columns = vec![Source::Tags(column), Source::Clear(vec![7, 8, 9])];
    let table = Arc::new(TagTable::new(columns, 3).unwrap());
    assert_eq!(count_tags(session, table, vec![0b01, 0b11], 2, true).await.unwrap(), [1, 3]);
}

fn digest(frame: &Frame) -> String {
    let mut hash = Sha256::new();
    hash.update(&frame.header);
    for column in frame.batch.columns() {
        for row in 0..column.len() {
            match column.data_type() {
                DataType::LargeBinary => hash.update(column.as_binary::<i64>().value(row)),
                _ => hash.update(column.as_primitive::<UInt32Type>().value(row).to_le_bytes()),
            }
        }
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn columns(schema: &arrow::datatypes::Schema) -> String {
    let field = |field: &arrow::datatypes::FieldRef| format!("{} {}", field.name(), field.data_type());
    schema.fields().iter().map(field).collect::<Vec<_>>().join(", ")
}

/// Every protocol has a pinned schema, request and answer. A change of any is a new version of that protocol.
/// `VEIL_BLESS=1` writes the file anew.
#[test]
fn messages_are_those_of_the_vectors() {
    let run = run();
    let mut vectors = serde_json::Map::new();
    for entry in catalog::CATALOG {
        let (request, answer) = run.recorded.get(entry.name).unwrap_or_else(|| panic!("no run of {}", entry.name));
        let vector = serde_json::json!({
            "version": entry.version,
            "query": columns(&(entry.query)()),
            "answer": columns(&(entry.answer)()),
            "request_header": request.header.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
            "request_digest": digest(request),
            "answer_digest": digest(answer),
        });
        assert_eq!(columns(request.batch.schema_ref()), columns(&(entry.query)()));
        vectors.insert(entry.name.to_owned(), vector);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/protocols-v1.json");
    let found = serde_json::to_string_pretty(&vectors).unwrap() + "\n";
    if std::env::var_os("VEIL_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(&path).unwrap());
}

/// Rows with one value changed, lengthened, shortened, emptied; or columns dropped, swapped, renamed, retyped.
fn damaged(batch: &RecordBatch, rng: &mut StdRng) -> RecordBatch {
    let mut columns = batch.columns().to_vec();
    let mut fields: Vec<_> = batch.schema_ref().fields().iter().map(|field| field.as_ref().clone()).collect();
    let at = rng.random_range(0..columns.len());
    match rng.random_range(0..10) {
        0 => {
            columns.remove(at);
            fields.remove(at);
        }
        1 => fields[at] = fields[at].clone().with_name("other"),
        2 => {
            columns.push(columns[at].clone());
            fields.push(fields[at].clone());
        }
        3 => {
            let column: ArrayRef = Arc::new(UInt32Array::from(vec![rng.next_u32(); batch.num_rows()]));
            fields[at] = fields[at].clone().with_data_type(column.data_type().clone());
            columns[at] = column;
        }
        4 => {
            fields[at] = fields[at].clone().with_nullable(true);
            columns[at] = arrow::array::new_null_array(fields[at].data_type(), batch.num_rows());
        }
        _ if *columns[at].data_type() == DataType::UInt32 => {
            columns[at] =
                Arc::new(UInt32Array::from(vec![rng.next_u32() >> rng.random_range(0..32); batch.num_rows()]));
        }
        kind => {
            let values = columns[at].as_binary::<i64>().iter().map(|value| {
                let mut value = value.unwrap_or_default().to_vec();
                match kind {
                    5 => value.truncate(rng.random_range(0..=value.len())),
                    6 => value.extend_from_slice(&[0xff; 7][..rng.random_range(0..7)]),
                    7 => value.clear(),
                    8 => value.truncate(value.len() / 8 * 4),
                    _ => {
                        let length = value.len();
                        if let Some(byte) = value.get_mut(rng.random_range(0..length.max(1))) {
                            *byte = rng.random();
                        }
                    }
                }
                value
            });
            columns[at] = Arc::new(LargeBinaryArray::from_iter_values(values.collect::<Vec<_>>()));
        }
    }
    let schema = Arc::new(arrow::datatypes::Schema::new(fields));
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema, columns, &options).unwrap()
}

/// Damaged on the way (the checksum is not made anew): refused before any key is touched, always.
#[test]
fn damaged_messages_never_get_an_answer() {
    let run = run();
    let frames: Vec<&Frame> = run.recorded.values().map(|(request, _)| request).collect();
    let mut rng = StdRng::seed_from_u64(7);
    for round in 0..90_000 {
        let mut frame = frames[round % frames.len()].clone();
        let original = frame.clone();
        match rng.random_range(0..20) {
            0 => frame.batch = damaged(&frame.batch, &mut rng),
            1 => frame.batch = frames[rng.random_range(0..frames.len())].batch.clone(),
            2 => frame.header = frames[rng.random_range(0..frames.len())].header.clone(),
            3 => frame.header.truncate(rng.random_range(0..frame.header.len())),
            4 => frame.header.extend_from_slice(&[0; 3]),
            _ => {
                let at = rng.random_range(0..frame.header.len());
                frame.header[at] ^= 1 << rng.random_range(0..8);
            }
        }
        if frame.header == original.header && frame.batch == original.batch {
            continue;
        }
        let answer = catch_unwind(AssertUnwindSafe(|| run.responder.answer(frame)));
        let error = answer.expect("P2 panicked").expect_err("P2 answered a damaged message");
        assert!(
            matches!(error, ProtocolError::Malformed(_) | ProtocolError::Mismatch { .. }),
            "round {round}: {error:?}"
        );
    }
}

/// Damaged by someone who makes the checksum anew: no panic, and no answer to what is not well-formed, not for this key, or not of
/// this version.
#[test]
fn forged_messages_never_panic_p2() {
    let run = run();
    // Those with small answers, and for the others a share.
    let frames: Vec<&Frame> = run.recorded.values().map(|(request, _)| request).collect();
    let mut rng = StdRng::seed_from_u64(8);
    let (mut answered, mut refused) = (0, 0);
    for round in 0..10_000 {
        let frame = frames[round % frames.len()];
        let (mut header, _) = frame.clone().open().unwrap();
        let mut batch = frame.batch.clone();
        let mut must_refuse = true;
        match rng.random_range(0..8) {
            0 => header.key_id = KeyId(rng.random()),
            1 => header.version = header.version.wrapping_add(rng.random_range(1..u16::MAX)),
            2 => header.protocol = ["", "multiplyx", "\u{7}", "LIFT"][rng.random_range(0..4)].to_owned(),
            3 => header.protocol = catalog::CATALOG[rng.random_range(0..catalog::CATALOG.len())].name.to_owned(),
            _ => batch = damaged(&batch, &mut rng),
        }
        let entry = catalog::find(&header.protocol);
        let well_formed = entry.is_some_and(|entry| columns(&(entry.query)()) == columns(batch.schema_ref()));
        if header.key_id == run.responder.key_id() && entry.is_some_and(|entry| entry.version == header.version) {
            must_refuse = !well_formed;
        }
        let heavy = matches!(header.protocol.as_str(), "less_than" | "zero_test" | "truncate" | "lift_wide");
        if !must_refuse && heavy && round % 50 != 0 {
            continue;
        }
        let forged = Frame::new(&header, batch);
        match catch_unwind(AssertUnwindSafe(|| run.responder.answer(forged))).expect("P2 panicked") {
            Ok(_) if must_refuse => panic!("round {round}: P2 answered {header:?}"),
            Ok(_) => answered += 1,
            Err(ProtocolError::Internal(why)) => panic!("round {round}: {why}"),
            Err(_) => refused += 1,
        }
    }
    assert!(answered > 100 && refused > 3000, "{answered} answered, {refused} refused");
}

#[test]
fn too_much_at_once_is_refused() {
    let run = run();
    let (request, _) = &run.recorded["less_than"];
    let (header, batch) = request.clone().open().unwrap();
    let many = arrow::compute::concat_batches(&batch.schema(), std::iter::repeat_n(&batch, 4)).unwrap();
    let error = run.responder.answer(Frame::new(&header, many)).unwrap_err();
    assert!(matches!(error, ProtocolError::TooLarge { what: "an answer", .. }), "{error}");
    let many = arrow::compute::concat_batches(&batch.schema(), std::iter::repeat_n(&batch, 400)).unwrap();
    let error = run.responder.answer(Frame::new(&header, many)).unwrap_err();
    assert!(matches!(error, ProtocolError::TooLarge { what: "a batch", .. }), "{error}");
}

/// Many rows must not open more together than one may alone.
#[test]
fn a_batch_opens_no_more_than_a_row_may() {
    let run = run();
    let (header, batch) = run.recorded["open"].0.clone().open().unwrap();
    let ask = |counts: Vec<u32>| {
        let many = arrow::compute::concat_batches(&batch.schema(), std::iter::repeat_n(&batch, counts.len())).unwrap();
        let columns = vec![many.column(0).clone(), Arc::new(UInt32Array::from(counts)), many.column(2).clone()];
        run.responder.answer(Frame::new(&header, RecordBatch::try_new(batch.schema(), columns).unwrap()))
    };
    assert!(ask(vec![4000, 96]).is_ok());
    let error = ask(vec![4000, 97]).unwrap_err();
    assert!(matches!(error, ProtocolError::TooLarge { found: 4097, limit: 4096, .. }), "{error}");
    let metrics = run.responder.counters().opened().filter(|(purpose, _)| *purpose == Purpose::Metric);
    let opened: u64 = metrics.map(|(_, count)| count).sum();
    assert_eq!(opened, 2 + 4096, "what is refused is not opened");
}

/// The same request twice: both answers finish to the same result, whichever P1 gets.
#[test]
fn a_repeated_request_gets_an_equivalent_answer() {
    let run = run();
    let (request, first) = &run.recorded["open"];
    let again = run.responder.answer(request.clone()).unwrap();
    assert_eq!(digest(&again), digest(first), "what is opened is the same");
    let header = Header::open(&again.header, &again.batch).unwrap();
    assert_eq!(header, request.clone().open().unwrap().0.answered());
}

/// The table of docs/protocols is the catalog. `VEIL_BLESS=1` writes it anew.
#[test]
fn the_documentation_lists_the_catalog() {
    let mut table = "| protocol | computes | P1 learns | P2 learns |\n|---|---|---|---|\n".to_owned();
    for entry in catalog::CATALOG {
        let (name, version) = (entry.name, entry.version);
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let file = ["", "release/"].map(|folder| format!("{folder}{name}.rs"));
        let file = file.iter().find(|file| sources.join(file).is_file()).unwrap_or_else(|| panic!("no file of {name}"));
        table += &format!("| [`{name}`](../../crates/protocols/src/{file}) v{version} ");
        table += &format!("| {} | {} | {} |\n", entry.summary, entry.leakage.p1, entry.leakage.p2);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols/README.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("<!-- catalog -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end of catalog -->").unwrap();
    let expected = format!("{before}<!-- catalog -->\n{table}<!-- end of catalog -->{after}");
    if std::env::var_os("VEIL_BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
}
