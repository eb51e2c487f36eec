//! Questions under a census: both parties running, P2 with a real desk.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use veil_cells::{AnchorSet, CellArray, CellType, CellView, ColumnId, FileId, KeyId, Kind, Seed, Width};
use veil_keys::{OwnerKeys, P2Keys, encrypt_column};
use veil_protocols::anchors::{Anchors, REPEATED};
use veil_protocols::census::{Census, Question, take_census};
use veil_protocols::open::{Aggregate, Purpose, open};
use veil_protocols::release::check_classes::{Labelled, check_classes};
use veil_protocols::release::seal_parcel::{Column, Parcel, seal_parcels};
use veil_protocols::release::{Admission, Asked, ClassSizes, Desk, OpenedParcel, SealedParcel};
use veil_protocols::testing::AnyQuestion;
use veil_protocols::{
    Channel, Frame, Frames, InProcess, Limits, ProtocolError, Randomness, Responder, Session, census, multiply,
};
use veil_release::testing::permissive_desk;
use veil_release::{Ledger, Policy, ReleaseDesk};
use veil_slots::{DEGREE, Inbound, KeyHolder, L1, Sample, Sanitizer, SeededSlots, Slots};
use zeroize::Zeroizing;

/// P2's keys, which count what they decrypt.
struct Counting {
    keys: P2Keys,
    opened: Arc<AtomicUsize>,
}

impl KeyHolder for Counting {
    fn key_id(&self) -> KeyId {
        self.keys.key_id()
    }

    fn open(&self, ciphertext: Inbound) -> Zeroizing<Vec<u64>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.keys.open(ciphertext)
    }

    fn seal(&self, values: &[u64], rng: &mut dyn CryptoRng) -> SeededSlots {
        KeyHolder::seal(&self.keys, values, rng)
    }

    fn open_samples(&self, samples: &[Sample]) -> Zeroizing<Vec<u64>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.keys.open_samples(samples)
    }

    fn open_dense(&self, masks: &[u64], bodies: &[u64]) -> Zeroizing<Vec<u64>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.keys.open_dense(masks, bodies)
    }

    fn seal_samples(&self, messages: &[u64], rng: &mut dyn CryptoRng) -> (Seed, Vec<u64>) {
        self.keys.seal_samples(messages, rng)
    }
}

/// A channel that keeps the requests.
#[derive(Debug)]
struct Tap {
    channel: InProcess,
    requests: Arc<Mutex<Vec<Frame>>>,
}

impl Channel for Tap {
    fn exchange(&self, requests: Frames) -> Frames {
        let kept = self.requests.clone();
        let keep = move |request: Result<Frame, ProtocolError>| {
            request.inspect(|request| kept.lock().unwrap().push(request.clone()))
        };
        self.channel.exchange(requests.map(keep).boxed())
    }

    fn limits(&self) -> Limits {
        self.channel.limits()
    }
}

struct Parties {
    owner: OwnerKeys,
    responder: Arc<Responder>,
    session: Session,
    opened: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Frame>>>,
}

impl Parties {
    /// With a P2 that requires a census, and this desk.
    fn new(desk: impl FnOnce(&OwnerKeys) -> Option<Arc<dyn Desk>>) -> Self {
        let owner = OwnerKeys::generate(&mut StdRng::seed_from_u64(77));
        let (opened, requests): (Arc<AtomicUsize>, Arc<Mutex<Vec<Frame>>>) = Default::default();
        let holder = Counting { keys: owner.p2(), opened: opened.clone() };
        let responder = Responder::new(Arc::new(holder), Limits::default(), Randomness::fixed(1));
        let responder = Arc::new(match desk(&owner) {
            Some(desk) => responder.with_desk(desk),
            None => responder,
        });
        let channel = Tap { channel: InProcess::new(responder.clone()), requests: requests.clone() };
        let sanitizer = Sanitizer::new(owner.p1().public_key().clone());
        let session = Session::with(Arc::new(channel), owner.key_id(), sanitizer, Randomness::fixed(2));
        Self { owner, responder, session, opened, requests }
    }

    /// What nobody may have been answered.
    fn decrypted(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

fn permissive(owner: &OwnerKeys) -> Option<Arc<dyn Desk>> {
    Some(Arc::new(permissive_desk(owner.key_id(), owner.p2())))
}

/// A P2 that was started without a policy.
fn cautious(owner: &OwnerKeys) -> Option<Arc<dyn Desk>> {
    Some(Arc::new(ReleaseDesk::new(None, Ledger::in_memory(), owner.p2())))
}

fn rows(numbers: impl IntoIterator<Item = u32>) -> Anchors {
    let mut anchors = Anchors::default();
    for row in numbers {
        anchors.add(&AnchorSet::from_iter([veil_cells::Anchor { file: FileId([1; 9]), row }]));
    }
    anchors
}

fn census(question: Question, anchors: Anchors) -> Census {
    Census {
        question,
        columns: vec![ColumnId([3; 8])],
        rows: anchors.occurrences(),
        constants: 0,
        files: anchors.0,
        least: 1,
        least_sum: None,
        permit: Vec::new(),
    }
}

fn metric(value: u64) -> Vec<Aggregate> {
    vec![Aggregate { slots: Slots::clear(&[value; DEGREE]), count: 1, purpose: Purpose::Metric }]
}

fn denied<T>(outcome: Result<T, ProtocolError>, says: &str) {
    match outcome {
        Err(ProtocolError::Denied(text)) if text.contains(says) => {}
        Err(other) => panic!("{says}: {other:?}"),
        Ok(_) => panic!("{says}: it was granted"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_opened_under_a_census_only() {
    let parties = Parties::new(cautious);
    denied(open(&parties.session, metric(5)).await, "only after a census of them, and none was taken");
    let counted = take_census(&parties.session, census(Question::Risk, rows(0..100))).await.unwrap();
    assert_eq!(open(&counted, metric(5)).await.unwrap(), [[5]]);
    // What opens nothing needs no receipt.
    multiply::multiply(&parties.session, vec![(Slots::clear(&[2]), Slots::clear(&[3]))]).await.unwrap();
    let before = parties.decrypted();
    let identifying = take_census(&parties.session, census(Question::Identifiers, rows(0..100))).await.unwrap();
    denied(open(&identifying, metric(5)).await, "numbers of the kind metric do not belong to identifiers");
    denied(open(&parties.session.under(b"mine".to_vec()), metric(5)).await, "is not one of this key holder");
    let few = take_census(&parties.session, census(Question::Risk, rows(0..99))).await;
    denied(few, "risk is asked about 99 rows, and the owner's rules want at least 100");
    let repeated = take_census(&parties.session, census(Question::Risk, rows((0..200).chain([7])))).await;
    denied(repeated, REPEATED);
    assert_eq!(parties.decrypted(), before, "nothing was decrypted for what is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_p2_without_a_desk_answers_no_question() {
    let parties = Parties::new(|_| None);
    let says = "it has no desk that holds them against the owner's rules";
    denied(take_census(&parties.session, census(Question::Risk, rows(0..1000))).await, says);
    denied(open(&parties.session, metric(5)).await, says);
    let labelled = Labelled { permit: Vec::new(), vectors: vec![Slots::<L1>::clear(&[1; DEGREE])], rows: 5 };
    denied(check_classes(&parties.session, labelled).await, says);
    assert_eq!(parties.decrypted(), 0);
}

/// A receipt of one run is nothing in another, though both are of the same P1.
#[tokio::test(flavor = "multi_thread")]
async fn receipts_stay_in_their_run() {
    let parties = Parties::new(permissive);
    let sanitizer = Sanitizer::new(parties.owner.p1().public_key().clone());
    let channel = Arc::new(InProcess::new(parties.responder.clone()));
    let other = Session::with(channel, parties.owner.key_id(), sanitizer, Randomness::fixed(99));
    take_census(&parties.session, census(Question::Risk, rows(0..1))).await.unwrap();
    let receipt = {
        let counted = take_census(&parties.session, census(Question::Risk, rows(0..1))).await.unwrap();
        open(&counted, metric(5)).await.unwrap();
        let requests = parties.requests.lock().unwrap();
        requests.last().unwrap().clone().open().unwrap().0.receipt.to_vec()
    };
    assert!(!receipt.is_empty());
    denied(open(&other.under(receipt), metric(5)).await, "is of another run");
}

/// The same batch again is answered again, and spends nothing; another batch with the same numbers does.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_not_counted_again() {
    let parties = Parties::new(|owner| {
        let text = format!("[policy]\nkey_set = \"{}\"\n[ask]\nmin_rows = 1\nnumbers = 2\n", owner.key_id());
        Some(Arc::new(ReleaseDesk::new(Policy::parse(&text).unwrap(), Ledger::in_memory(), owner.p2())))
    });
    let counted = take_census(&parties.session, census(Question::Risk, rows(0..1))).await.unwrap();
    open(&counted, metric(5)).await.unwrap();
    let request = parties.requests.lock().unwrap().last().unwrap().clone();
    for _ in 0..5 {
        parties.responder.answer(request.clone()).unwrap();
    }
    open(&counted, metric(5)).await.unwrap();
    let before = parties.decrypted();
    let spent = open(&counted, metric(5)).await.unwrap_err();
    assert!(matches!(spent, ProtocolError::Exhausted(_)), "{spent}");
    assert!(spent.to_string().contains("2 numbers a day by the owner's rules, 2 are spent today"), "{spent}");
    assert_eq!(parties.decrypted(), before);
    parties.responder.answer(request).unwrap();
}

/// A lie of P1's about repetitions is found by P2: the message says more occurrences than rows.
#[tokio::test(flavor = "multi_thread")]
async fn p2_finds_repeated_rows_itself() {
    let parties = Parties::new(permissive);
    take_census(&parties.session, census(Question::Risk, rows(0..50))).await.unwrap();
    let (header, batch) = parties.requests.lock().unwrap().last().unwrap().clone().open().unwrap();
    let with = |anchors: &Anchors, rows: u64| {
        let mut columns = batch.columns().to_vec();
        let counts: Vec<u8> = [rows, 0, 1, 0].iter().flat_map(|number: &u64| number.to_le_bytes()).collect();
        columns[2] = Arc::new(arrow::array::LargeBinaryArray::from_iter_values([counts]));
        columns[3] = Arc::new(arrow::array::LargeBinaryArray::from_iter_values([anchors.to_bytes()]));
        let batch = arrow::array::RecordBatch::try_new(batch.schema(), columns).unwrap();
        parties.responder.answer(Frame::new(&header, batch))
    };
    with(&rows(0..50), 50).unwrap();
    denied(with(&rows((0..50).chain([49])), 51), REPEATED);
    let more = with(&rows(0..50), 51).unwrap_err();
    assert!(matches!(&more, ProtocolError::Malformed(text) if text.contains("more rows than it names")), "{more}");
    let hostile = with(&Anchors::default(), 0).unwrap_err();
    assert!(matches!(hostile, ProtocolError::Denied(_)), "no rows are fewer than one: {hostile}");
}

/// A desk that seals nothing, and knows one permit.
struct OneColumn;

impl Desk for OneColumn {
    fn apply(&self, _: &[u8], _: &dyn KeyHolder, _: &mut dyn CryptoRng) -> Result<Admission, ProtocolError> {
        Ok(Admission { permit: Vec::new(), header: Vec::new(), terms: Vec::new() })
    }

    fn census(
        &self,
        session: [u8; 16],
        before: &[u8],
        counted: census::Counted,
        rng: &mut dyn CryptoRng,
    ) -> Result<census::Granted, ProtocolError> {
        AnyQuestion.census(session, before, counted, rng)
    }

    fn opens(&self, _: Asked<'_>) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn classes(&self, _: &[u8], _: &ClassSizes, _: &mut dyn CryptoRng) -> Result<Vec<u8>, ProtocolError> {
        Ok(Vec::new())
    }

    fn lanes(&self, _: &[u8]) -> Result<Vec<usize>, ProtocolError> {
        Ok(vec![1])
    }

    fn seal(&self, parcel: OpenedParcel<'_>, _: &mut dyn CryptoRng) -> Result<SealedParcel, ProtocolError> {
        Ok(SealedParcel { sealed: parcel.anchors.to_bytes(), receipt: Vec::new() })
    }

    fn attest(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        Ok(Vec::new())
    }
}

/// P2 sees the seeds of what it seals from cells, and so whose rows they are, at both sides of a chunk's edge.
#[tokio::test(flavor = "multi_thread")]
async fn a_parcel_names_the_rows_of_its_cells() {
    let parties = Parties::new(|_| Some(Arc::new(OneColumn)));
    let width = Width::of_range(0, 100).unwrap();
    let cell_type = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([3; 8]));
    let mut rng = StdRng::seed_from_u64(5);
    let cells = encrypt_column(&parties.owner, &cell_type, &vec![7; 5000], None, &mut rng).unwrap();
    let cells = CellArray::Binary(&cells);
    let seal = async |of: std::ops::Range<usize>, named: std::ops::Range<usize>, twice: bool| {
        let (mut samples, mut anchors) = (Vec::new(), Anchors::default());
        for row in of.start.min(named.start)..of.end.max(named.end) {
            let cell = CellView::parse(cells.bytes(row).unwrap()).unwrap();
            let (term, body) = (cell.terms().next().unwrap(), cell.bodies().next().unwrap());
            if of.contains(&row) {
                samples.push(Sample { seed: term.seed, index: term.index, body });
            }
            if named.contains(&row) {
                anchors.add(&cell.provenance().unwrap().unwrap().anchors());
            }
        }
        if twice {
            anchors.0.values_mut().for_each(|file| file.occurrences += 1);
        }
        let rows = of.len();
        let columns = vec![Column::Cells(vec![samples])];
        let parcel = Parcel { permit: Vec::new(), number: 1, rows, anchors, columns, seed: [9; 32] };
        seal_parcels(&parties.session, vec![parcel]).await.map(|mut sealed| sealed.remove(0).sealed)
    };
    for (first, last) in [(0, 1), (4095, 4097), (10, 5000)] {
        let sealed = seal(first..last, first..last, false).await.unwrap();
        assert_eq!(Anchors::from_bytes(&sealed).unwrap().rows(), (last - first) as u64);
        // More may be named than have a value, since some are NULL.
        seal(first..last, first.saturating_sub(1)..last, false).await.unwrap();
        let before = parties.decrypted();
        let says = "a parcel has a value of a row that it does not name";
        denied(seal(first..last, first..last - 1, false).await, says);
        denied(seal(first..last, first + 1..last, false).await, says);
        denied(seal(first..last, first..last, true).await, REPEATED);
        assert_eq!(parties.decrypted(), before, "nothing was decrypted");
    }
}
