//! What P2 sees, statistically: for chosen inputs that should be indistinguishable, everything that P2 decrypts follows the
//! same known distribution. Every check has a false-alarm rate of 10^-6; inputs and draws of
//! P1 have fixed seeds, the order in which P2 opens what travels together has not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "leakage/assess.rs"]
mod assess;
#[path = "leakage/clusters.rs"]
mod clusters;
#[path = "leakage/comparisons.rs"]
mod comparisons;
#[path = "leakage/conversions.rs"]
mod conversions;
#[path = "leakage/k_anonymize.rs"]
mod k_anonymize;
#[path = "leakage/release.rs"]
mod release;
#[path = "leakage/shuffles.rs"]
mod shuffles;
#[path = "leakage/tags.rs"]
mod tags;
#[path = "leakage/uniform.rs"]
mod uniform;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::AsArray;
use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use veil_cells::{
    CellArray, CellType, ColumnId, KeyId, Kind, Lanes, NOISE_BITS, Nulls, Seed, Width, message_of_phase, phase_of_tag,
    scale_cells, tag_of_phase,
};
use veil_keys::{OwnerKeys, P2Keys, encrypt_column, encrypt_constants};
use veil_protocols::add_laplace::add_laplace;
use veil_protocols::arrange::{self, Arrange, Picks};
use veil_protocols::broadcast::broadcast;
use veil_protocols::cluster_sums::cluster_sums;
use veil_protocols::compare_and_select::{Pair, compare_and_select};
use veil_protocols::count_classes::{Labels, count_classes};
use veil_protocols::count_tags::{Source, TagTable, count_tags};
use veil_protocols::distances::distances;
use veil_protocols::identifiers::{Column, Method, Table};
use veil_protocols::less_than::{Masked, less_than};
use veil_protocols::lift_tags::{Rows, TagColumn, lift_tags};
use veil_protocols::lookup::{self, Question};
use veil_protocols::nearest::{Comparison, nearest};
use veil_protocols::open::{Aggregate, Purpose, open};
use veil_protocols::relabel::{Combination, Label, relabel};
use veil_protocols::shuffle::{Orders, shuffle};
use veil_protocols::testing::AnyQuestion;
use veil_protocols::truncate::{Dividend, Rounding, truncate};
use veil_protocols::{Channel, Frame, Frames, InProcess, Layout, Limits, Randomness, Responder, Session, Tiles};
use veil_protocols::{
    and, catalog, compare_exact, laplace_scale, lift, lift_wide, lookup_long, lower, multiply, pairwise, rotate,
    slot_sum, zero_test, zeros,
};
use veil_slots::{DEGREE, Inbound, KeyHolder, L1, PLAIN_MODULUS, Sample, Sanitizer, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

/// Keys that remember what they opened.
struct Recorder {
    keys: P2Keys,
    opened: Arc<Mutex<Vec<Vec<u64>>>>,
}

impl KeyHolder for Recorder {
    fn key_id(&self) -> KeyId {
        self.keys.key_id()
    }

    fn open(&self, ciphertext: Inbound) -> Zeroizing<Vec<u64>> {
        let values = self.keys.open(ciphertext);
        self.opened.lock().unwrap().push(values.to_vec());
        values
    }

    fn seal(&self, values: &[u64], rng: &mut dyn CryptoRng) -> SeededSlots {
        KeyHolder::seal(&self.keys, values, rng)
    }

    fn open_samples(&self, samples: &[Sample]) -> Zeroizing<Vec<u64>> {
        let phases = self.keys.open_samples(samples);
        self.opened.lock().unwrap().push(phases.to_vec());
        phases
    }

    fn open_dense(&self, masks: &[u64], bodies: &[u64]) -> Zeroizing<Vec<u64>> {
        let phases = self.keys.open_dense(masks, bodies);
        self.opened.lock().unwrap().push(phases.to_vec());
        phases
    }

    fn seal_samples(&self, messages: &[u64], rng: &mut dyn CryptoRng) -> (Seed, Vec<u64>) {
        self.keys.seal_samples(messages, rng)
    }
}

/// Both parties, with everything that P2 opens on record.
struct Parties {
    owner: OwnerKeys,
    session: Session,
    opened: Arc<Mutex<Vec<Vec<u64>>>>,
    rng: StdRng,
}

impl Parties {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let owner = OwnerKeys::generate(&mut rng);
        let opened = Arc::new(Mutex::new(Vec::new()));
        let recorder = Recorder { keys: owner.p2(), opened: opened.clone() };
        let responder = Responder::new(Arc::new(recorder), Limits::default(), Randomness::fixed(seed + 1));
        let channel = Arc::new(InProcess::new(Arc::new(responder.with_desk(Arc::new(AnyQuestion)))));
        let sanitizer = Sanitizer::new(owner.p1().public_key().clone());
        let session = Session::with(channel, owner.key_id(), sanitizer, Randomness::fixed(seed + 2));
        Self { owner, session, opened, rng }
    }

    /// The same number in every slot of so many vectors.
    fn constant(&mut self, value: u64, vectors: usize) -> Vec<Slots<L1>> {
        let keys = self.owner.p2();
        let seal = |_| keys.slot().seal(&[value; DEGREE], &mut self.rng).expand().unwrap().raised();
        (0..vectors).map(seal).collect()
    }

    /// What P2 has opened since the last call.
    fn transcript(&self) -> Vec<Vec<u64>> {
        std::mem::take(&mut self.opened.lock().unwrap())
    }
}

/// A channel that writes requests down, and has one answered at a time: the last on record is the one that P2 works on.
#[derive(Debug)]
struct Listener {
    responder: Arc<Responder>,
    requests: Arc<Mutex<Vec<Frame>>>,
    turn: Arc<Mutex<()>>,
}

impl Listener {
    fn new(responder: Arc<Responder>, requests: Arc<Mutex<Vec<Frame>>>) -> Self {
        Self { responder, requests, turn: Arc::default() }
    }
}

impl Channel for Listener {
    fn exchange(&self, requests: Frames) -> Frames {
        let (responder, heard, turn) = (self.responder.clone(), self.requests.clone(), self.turn.clone());
        let answer = move |request: Result<Frame, _>| {
            let request = request?;
            let _turn = turn.lock().unwrap();
            heard.lock().unwrap().push(request.clone());
            responder.answer(request)
        };
        requests.map(answer).boxed()
    }

    fn limits(&self) -> Limits {
        self.responder.limits()
    }
}

/// Refuses samples that are not uniform in `0..bound`: the Kolmogorov-Smirnov distance exceeds `2.69 / sqrt(n)` with probability
/// 10^-6 (Kolmogorov 1933; 2 exp(-2 x^2) = 10^-6 at x = 2.69).
fn assert_uniform(what: &str, samples: impl IntoIterator<Item = u64>, bound: u64) {
    let mut samples: Vec<u64> = samples.into_iter().collect();
    samples.sort_unstable();
    let n = samples.len() as f64;
    assert!(n > 10_000.0, "{what}: {n} samples prove nothing");
    let distance = samples.iter().enumerate().fold(0f64, |distance, (rank, sample)| {
        let expected = *sample as f64 / bound as f64;
        distance.max((rank as f64 / n - expected).abs()).max(((rank + 1) as f64 / n - expected).abs())
    });
    assert!(distance * n.sqrt() < 2.69, "{what}: distance {distance} over {n} samples");
}

/// Refuses counts that do not fit equal probabilities: chi-square with `k - 1` degrees of freedom, in the normal approximation of
/// Wilson and Hilferty (1931), at 10^-6.
fn assert_equally_likely(what: &str, counts: &[usize]) {
    let (total, cells) = (counts.iter().sum::<usize>() as f64, counts.len() as f64);
    let expected = total / cells;
    assert!(expected > 100.0, "{what}: {total} samples prove nothing");
    let chi_square: f64 = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
    let freedom = cells - 1.0;
    let z = ((chi_square / freedom).cbrt() - (1.0 - 2.0 / (9.0 * freedom))) / (2.0 / (9.0 * freedom)).sqrt();
    assert!(z < 4.75, "{what}: chi-square {chi_square:.1} at {freedom} degrees of freedom, {counts:?}");
}

/// The inputs that P2 must not tell apart: zero, one, and the largest.
const CHOSEN: [u64; 3] = [0, 1, PLAIN_MODULUS - 1];

/// A column of cells with these equality tags.
fn tag_column(parties: &mut Parties, tags: &[u64]) -> TagColumn {
    let width = Width::of_range(0, 100).unwrap();
    let plain = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([4; 8]));
    let cell_type = CellType { tag: true, ..plain };
    let messages: Vec<i64> = tags.iter().flat_map(|tag| [7, *tag as i64]).collect();
    let cells = encrypt_column(&parties.owner, &cell_type, &messages, None, &mut parties.rng).unwrap();
    TagColumn::read(CellArray::Binary(&cells), parties.owner.key_id()).unwrap()
}

/// A table of fifteen rows whose classes have 1, 2, 4 and 8 of them: as one column, or as two, of which the classes are the pairs.
fn fifteen_rows(parties: &mut Parties, pairs: bool, order: impl Fn(usize) -> usize) -> Vec<Column> {
    let class = |place: usize| (place + 1).ilog2() as u64;
    let classes: Vec<u64> = (0..15).map(|row| class(order(row))).collect();
    let lanes: Vec<Vec<u64>> = match pairs {
        // Small numbers, whose sums are full of relations.
        true => {
            vec![classes.iter().map(|class| class % 2).collect(), classes.iter().map(|class| 5 * (class / 2)).collect()]
        }
        false => vec![classes],
    };
    let width = Width::of_range(0, 100).unwrap();
    let column = |tags: &Vec<u64>| {
        let plain = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([4; 8]));
        let messages: Vec<i64> = tags.iter().flat_map(|tag| [7, *tag as i64]).collect();
        let cell_type = CellType { tag: true, ..plain };
        let cells = encrypt_column(&parties.owner, &cell_type, &messages, None, &mut parties.rng).unwrap();
        Column::Tags(Arc::new(cells))
    };
    lanes.iter().map(column).collect()
}

/// The declared leakage is what these tests check: a protocol that declares something new has to be added here.
#[test]
fn only_these_protocols_declare_leakage() {
    let declared: Vec<&str> =
        catalog::CATALOG.iter().filter(|entry| entry.leakage.p2 != "nothing").map(|entry| entry.name).collect();
    let expected = [
        "lift",
        "lift_affine",
        "lower",
        "zeros",
        "compare_and_select",
        "lookup",
        "lookup_range",
        "arrange",
        "open",
        "laplace_scale",
        "add_laplace",
        "lift_tags",
        "count_classes",
        "count_tags",
        "lift_wide",
        "match_pairs",
        "count_small",
        "lookup_long",
        "few_select",
        "apply",
        "redraw",
        "check_classes",
        "seal_parcel",
        "attest",
        "size_histogram",
        "group",
        "gather",
        "census",
    ];
    assert_eq!(declared, expected);
    let to_p1: Vec<&str> =
        catalog::CATALOG.iter().filter(|entry| entry.leakage.p1 != "nothing").map(|entry| entry.name).collect();
    assert_eq!(
        to_p1,
        ["open", "count_classes", "count_tags", "count_small", "apply", "check_classes", "size_histogram", "census"]
    );
}
