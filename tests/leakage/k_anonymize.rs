//! A whole k-anonymisation: P2 must not tell two tables of the same shape apart, but for the blur of comparisons.

use std::collections::BTreeMap;

use veil_privacy::clusters::{self, Reassignment};
use veil_protocols::Counters;
use veil_protocols::blend::blend;
use veil_protocols::few_pairs::{Numbers, few_pairs};
use veil_protocols::few_select::few_select;
use veil_protocols::fold::refresh;
use veil_protocols::k_anonymize::{Bounds, Outcome, Quasi, Settings, Values, k_anonymize};
use veil_protocols::merge::merge;

use super::*;

/// Rows of a table, and blocks that repeat them.
const ROWS: usize = 12;
const BLOCK: usize = 16;

/// A protocol, and a vector that was opened for it.
type Opened = (String, Vec<u64>);

/// Both parties, with what P2 opens on record by the protocol for which it was opened.
pub(super) struct Heard {
    pub(super) parties: Parties,
    responder: Arc<Responder>,
    requests: Arc<Mutex<Vec<Frame>>>,
    opened: Arc<Mutex<Vec<Opened>>>,
}

/// Keys that remember what they opened and why: the last request is the one that is answered.
struct Witness {
    keys: P2Keys,
    requests: Arc<Mutex<Vec<Frame>>>,
    opened: Arc<Mutex<Vec<Opened>>>,
}

impl Witness {
    fn note(&self, values: &[u64]) {
        let last = self.requests.lock().unwrap().last().cloned().unwrap();
        let (header, _) = last.open().unwrap();
        self.opened.lock().unwrap().push((header.protocol, values.to_vec()));
    }
}

impl KeyHolder for Witness {
    fn key_id(&self) -> KeyId {
        self.keys.key_id()
    }

    fn open(&self, ciphertext: Inbound) -> Zeroizing<Vec<u64>> {
        let values = self.keys.open(ciphertext);
        self.note(&values);
        values
    }

    fn seal(&self, values: &[u64], rng: &mut dyn CryptoRng) -> SeededSlots {
        KeyHolder::seal(&self.keys, values, rng)
    }

    fn open_samples(&self, samples: &[Sample]) -> Zeroizing<Vec<u64>> {
        let phases = self.keys.open_samples(samples);
        self.note(&phases);
        phases
    }

    fn open_dense(&self, masks: &[u64], bodies: &[u64]) -> Zeroizing<Vec<u64>> {
        let phases = self.keys.open_dense(masks, bodies);
        self.note(&phases);
        phases
    }

    fn seal_samples(&self, messages: &[u64], rng: &mut dyn CryptoRng) -> (Seed, Vec<u64>) {
        self.keys.seal_samples(messages, rng)
    }
}

impl Heard {
    pub(super) fn new(seed: u64) -> Self {
        let mut parties = Parties::new(seed);
        let (requests, opened) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let witness = Witness { keys: parties.owner.p2(), requests: requests.clone(), opened: opened.clone() };
        let responder = Responder::new(Arc::new(witness), Limits::default(), Randomness::fixed(seed + 1));
        let responder = Arc::new(responder.with_desk(Arc::new(AnyQuestion)));
        let channel = Listener::new(responder.clone(), requests.clone());
        let sanitizer = Sanitizer::new(parties.owner.p1().public_key().clone());
        parties.session =
            Session::with(Arc::new(channel), parties.owner.key_id(), sanitizer, Randomness::fixed(seed + 2));
        Self { parties, responder, requests, opened }
    }

    /// What was asked: of every message its protocol, rows, and the length of every value. In no order: rounds that do not wait for each other
    /// overtake each other, whatever the table.
    pub(super) fn shape(&self) -> Vec<(String, Vec<usize>)> {
        let shape = |frame: &Frame| {
            let (header, batch) = frame.clone().open().unwrap();
            let lengths = |column: &arrow::array::ArrayRef| match column.as_binary_opt::<i64>() {
                Some(column) => column.iter().map(|value| value.unwrap().len()).collect(),
                None => column
                    .as_primitive::<arrow::datatypes::UInt32Type>()
                    .values()
                    .iter()
                    .map(|number| *number as usize)
                    .collect::<Vec<_>>(),
            };
            (header.protocol, batch.columns().iter().flat_map(lengths).collect())
        };
        let mut shapes: Vec<_> = self.requests.lock().unwrap().iter().map(shape).collect();
        shapes.sort();
        shapes
    }

    /// What was opened, by protocol.
    pub(super) fn by_protocol(&self) -> BTreeMap<String, Vec<Vec<u64>>> {
        let mut all: BTreeMap<String, Vec<Vec<u64>>> = BTreeMap::new();
        for (protocol, values) in self.opened.lock().unwrap().iter() {
            all.entry(protocol.clone()).or_default().push(values.clone());
        }
        all
    }
}

/// A table of three columns, and rows to begin at.
struct Chosen {
    ages: [i64; ROWS],
    wages: [i64; ROWS],
    leaves: [i64; ROWS],
    initial: &'static [usize],
}

/// Three groups of four, four and three rows and one row alone, near together and in the order of the rows.
const NEAR: Chosen = Chosen {
    ages: [0, 0, 1, 1, 30, 30, 31, 31, 60, 60, 61, 90],
    wages: [0, 0, 0, 0, 10, 10, 10, 10, 20, 20, 20, 30],
    leaves: [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
    initial: &[0, 4, 8, 11],
};

/// The same sizes, far apart, in another order, and another cluster is the small one.
const FAR: Chosen = Chosen {
    ages: [127, -128, 127, 127, -128, -128, 127, -128, 0, 5, 3, -60],
    wages: [
        2_000_000_000,
        -2_000_000_000,
        1_999_999_999,
        2_000_000_000,
        -2_000_000_000,
        -1_999_999_999,
        1_900_000_000,
        -1_900_000_000,
        77,
        0,
        1,
        900_000_000,
    ],
    leaves: [7, 0, 7, 6, 1, 0, 6, 1, 3, 4, 3, 5],
    initial: &[11, 8, 1, 0],
};

/// Three rows alone that join each other one after the other: who receives is who goes next.
const CHAIN: Chosen = Chosen {
    ages: [-128, -120, -110, 60, 60, 60, 61, 61, 120, 120, 120, 120],
    wages: [0; ROWS],
    leaves: [0; ROWS],
    initial: &[0, 1, 2, 3, 8],
};

/// As many merges and classes, and who receives never goes.
const STAR: Chosen = Chosen {
    ages: [50, 70, -128, -128, -128, 60, 60, 60, 60, 120, 120, 120],
    wages: [0; ROWS],
    leaves: [0; ROWS],
    initial: &[0, 1, 2, 5, 9],
};

async fn run(seed: u64, chosen: &Chosen, settings: &Settings) -> (Heard, Outcome) {
    let mut heard = Heard::new(seed);
    let parties = &mut heard.parties;
    let mut column = |kind, lower, upper, lanes: u8, messages: &[i64]| {
        let width = Width::of_range(lower, upper).unwrap();
        let cell_type = CellType::new(kind, width, lanes, parties.owner.key_id(), ColumnId([lanes; 8]));
        let cells = encrypt_column(&parties.owner, &cell_type, messages, None, &mut parties.rng).unwrap();
        let constants =
            (kind == Kind::Integer).then(|| encrypt_constants(&parties.owner, &cell_type, lower, upper).unwrap());
        (Arc::new(cells) as arrow::array::ArrayRef, constants)
    };
    let codes: Vec<i64> = chosen.leaves.iter().flat_map(|leaf| [leaf << 12, (leaf / 4) << 14, 1 << 14]).collect();
    let (ages, bounds) = column(Kind::Integer, -128, 127, 1, &chosen.ages);
    let (wages, _) = column(Kind::Integer, -2_000_000_000, 2_000_000_000, 1, &chosen.wages);
    let (categories, _) = column(Kind::Category, -1, (1 << 15) - 1, 3, &codes);
    let values = [
        Values::Numbers { cells: ages, bits: 8, bounds: Bounds::Encrypted(Arc::new(bounds.unwrap())) },
        Values::Numbers { cells: wages, bits: 32, bounds: Bounds::Public(-2_000_000_000, 2_000_000_000) },
        Values::Categories { cells: categories, levels: 3, bits: 16, generalised: true },
    ];
    let quasi = values.into_iter().map(|values| Quasi { values, weight: 1 }).collect();
    let found = k_anonymize(&heard.parties.session, ROWS, quasi, chosen.initial, settings, &|_| {}).await.unwrap();
    (heard, found.outcome)
}

fn settings(strategy: Reassignment, comparison: Comparison) -> Settings {
    let clusters = clusters::Settings { k: 3, rounds: 2, early_stop: false, suppress: 0, strategy };
    Settings { clusters, comparison }
}

/// What P2 opened is as it should be, whatever the table.
fn check_openings(heard: &Heard, centres: usize, exact: bool) {
    let mut seen = Vec::new();
    for (protocol, vectors) in heard.by_protocol() {
        let what = protocol.as_str();
        let rounded = |phase: &u64| phase.wrapping_add(1 << (NOISE_BITS - 1)) >> NOISE_BITS;
        match what {
            // Few numbers each, masked as tests of their own show with many.
            "lift" | "lift_wide" => assert!(vectors.concat().iter().map(rounded).all(|message| message < 1 << 48)),
            "and" => check_bits(what, &vectors),
            "few_fold" => {
                let mut places = [0usize; 4];
                vectors.iter().flatten().for_each(|bits| places[*bits as usize] += 1);
                assert_equally_likely(what, &places);
            }
            "compare_and_select" => check_blur(&vectors, centres),
            "lookup_range" => {
                let mut residues = [0; 2];
                vectors.iter().flatten().for_each(|w| residues[(w % 2) as usize] += 1);
                assert_equally_likely("which of two", &residues);
            }
            _ => check_uniform(what, &vectors),
        }
        seen.push(protocol);
    }
    let blurs = ["compare_and_select", "few_select"];
    assert_eq!(seen.iter().any(|protocol| blurs.contains(&protocol.as_str())), !exact, "{seen:?}");
    assert!(seen.len() >= 15, "{seen:?}");
}

/// Uniform in all slots, in those without a row, and from one vector to the next.
fn check_uniform(what: &str, vectors: &[Vec<u64>]) {
    let uniform = |what: &str, values: Vec<u64>| match values.len() {
        // Too few for their distance from a line; enough to count them.
        0..=10_000 => {
            let mut sixteenths = [0; 16];
            values.iter().for_each(|value| sixteenths[(value / (PLAIN_MODULUS / 16 + 1)) as usize] += 1);
            assert_equally_likely(what, &sixteenths);
        }
        _ => assert_uniform(what, values, PLAIN_MODULUS),
    };
    uniform(what, vectors.concat());
    let padding = vectors.iter().flat_map(|vector| vector.iter().enumerate());
    uniform(what, padding.filter(|(slot, _)| slot % BLOCK >= ROWS).map(|(_, value)| *value).collect());
    let neighbours = vectors.iter().flat_map(|vector| vector.array_windows().map(|[a, b]| plain::sub(*b, *a)));
    uniform(what, neighbours.collect());
    if vectors.len() > 1 {
        let between = vectors.array_windows().flat_map(|[a, b]| a.iter().zip(b).map(|(a, b)| plain::sub(*b, *a)));
        uniform(what, between.collect());
    }
}

fn check_bits(what: &str, vectors: &[Vec<u64>]) {
    let mut places = [[0usize; 8]; 2];
    for bits in vectors {
        let group = usize::from(bits.iter().any(|bits| *bits > 3));
        bits.iter().for_each(|bits| places[group][*bits as usize] += 1);
    }
    assert_equally_likely(what, &places[1]);
    assert_equally_likely(what, &places[0][..4]);
}

/// Signs are uniform, and slots without a row show ties: nothing about clusters.
fn check_blur(vectors: &[Vec<u64>], centres: usize) {
    let all: Vec<i64> = vectors.iter().flatten().map(|y| plain::centred(*y)).collect();
    let negative = all.iter().filter(|y| **y < 0).count();
    assert_equally_likely("signs", &[negative, all.len() - negative]);
    // Below 2^15 for a tie, whatever the bits of a difference are from 33 up.
    let is_row = |slot: usize| slot < centres * BLOCK && slot % BLOCK < ROWS;
    let others = vectors.iter().flat_map(|vector| vector.iter().enumerate()).filter(|(slot, _)| !is_row(*slot));
    let mut magnitudes = others.map(|(_, y)| plain::centred(*y).unsigned_abs());
    // A block that has no centre, as one behind an odd number of them has none, is out in all its slots.
    assert!(!centres.is_power_of_two() || magnitudes.all(|y| y < 1 << 15));
}

/// What P1 learnt, by purpose.
fn opened_to_p1(counters: &Counters) -> Vec<(Purpose, u64)> {
    counters.opened().filter(|(_, count)| *count > 0).collect()
}

/// Two tables that have nothing in common but their size: the same messages, of the same lengths, and of all that is opened the same
/// distribution.
#[tokio::test(flavor = "multi_thread")]
async fn runs_over_different_tables_look_alike() {
    for (seed, strategy) in [Reassignment::ClusterToCluster, Reassignment::PointToCluster].into_iter().enumerate() {
        let settings = settings(strategy, Comparison::Blinded);
        let merges = strategy == Reassignment::ClusterToCluster;
        let mut shapes = Vec::new();
        for chosen in [&NEAR, &FAR] {
            let (heard, outcome) = run(950 + 2 * seed as u64 + shapes.len() as u64, chosen, &settings).await;
            assert_eq!((outcome.small_clusters, outcome.small_rows, outcome.classes), (1, 1, 3));
            check_openings(&heard, chosen.initial.len(), false);
            // The sizes of four clusters, and where one went.
            let opened = opened_to_p1(heard.responder.counters());
            assert_eq!(opened, [(Purpose::ClusterFlags, 4 + u64::from(merges))], "{strategy:?}");
            shapes.push(heard.shape());
        }
        assert_eq!(shapes[0], shapes[1], "{strategy:?}");
    }
}

/// P2 sees how many clusters join, and not whether the one that goes next is the one that has just received.
#[tokio::test(flavor = "multi_thread")]
async fn who_joins_whom_does_not_show() {
    let settings = settings(Reassignment::ClusterToCluster, Comparison::Blinded);
    let mut shapes = Vec::new();
    for (chosen, small) in [(&CHAIN, 3), (&STAR, 2)] {
        let (heard, outcome) = run(955 + shapes.len() as u64, chosen, &settings).await;
        assert_eq!((outcome.small_clusters, outcome.classes), (small, 3));
        check_openings(&heard, chosen.initial.len(), false);
        // The sizes of five clusters, and where two went.
        assert_eq!(opened_to_p1(heard.responder.counters()), [(Purpose::ClusterFlags, 5 + 2)]);
        shapes.push(heard.shape());
    }
    assert_eq!(shapes[0], shapes[1]);
}

/// With exact comparisons nothing is blurred, and everything is uniform; an early end opens a bit a round.
#[tokio::test(flavor = "multi_thread")]
async fn exact_runs_show_uniform_numbers_alone() {
    let mut settings = settings(Reassignment::PointToCluster, Comparison::Exact);
    settings.clusters.rounds = 1;
    let mut shapes = Vec::new();
    for (seed, chosen) in [&NEAR, &FAR].into_iter().enumerate() {
        let (heard, outcome) = run(960 + seed as u64, chosen, &settings).await;
        assert_eq!(outcome.classes, 3);
        check_openings(&heard, chosen.initial.len(), true);
        shapes.push(heard.shape());
    }
    assert_eq!(shapes[0], shapes[1]);
}

/// What is opened is what is declared: a bit for every round that might be the last, sizes, and who joins.
#[tokio::test(flavor = "multi_thread")]
async fn an_early_end_opens_a_bit_a_round() {
    let mut settings = settings(Reassignment::PointToPoint, Comparison::Blinded);
    (settings.clusters.early_stop, settings.clusters.rounds) = (true, 5);
    let (heard, outcome) = run(970, &NEAR, &settings).await;
    assert!(outcome.rounds_run < 5);
    let opened = opened_to_p1(heard.responder.counters());
    assert_eq!(opened, [(Purpose::ClusterFlags, 4), (Purpose::StopBit, outcome.rounds_run as u64)]);
    let told = settings.leakage();
    assert!(told.p1.contains("whether a round moved a centre") && told.p2.contains("which rows small clusters have"));
    settings.comparison = Comparison::Exact;
    assert!(!settings.leakage().p2.contains("blur"));
}

/// A contest of few numbers: all slots are uniform, and of the sums of two parts, which are blurred differences, the signs are. Equal
/// numbers, and numbers far apart.
#[tokio::test(flavor = "multi_thread")]
async fn contests_show_blurred_differences_alone() {
    const NUMBERS: usize = 1600;
    for (seed, far) in [(0, 0), (1, 1 << 30)] {
        let mut parties = Parties::new(990 + seed);
        let numbers: Vec<u64> = (0..NUMBERS as u64).map(|at| at % 2 * far).collect();
        let sealed = parties.owner.p2().slot().seal(&numbers, &mut parties.rng).expand().unwrap().raised();
        let numbers = Numbers { vectors: vec![sealed], centres: NUMBERS, columns: 1 };
        let ring = few_pairs(&parties.session, numbers).await.unwrap();
        check_uniform("few_pairs", &parties.transcript());
        few_select(&parties.session, ring, NUMBERS, 35, |_| false).await.unwrap();
        let transcript = parties.transcript();
        check_uniform("few_select", &transcript[..1]);
        // Ranges of 800 pairs: two of places, then y, of one side and five ranges later of the other.
        let pairs = NUMBERS / 2;
        let part = |side: usize, pair: usize| transcript[0][(5 * side + 2) * pairs + pair];
        let blurred: Vec<i64> =
            (0..pairs).map(|pair| plain::centred(plain::add(part(0, pair), part(1, pair)))).collect();
        let negative = blurred.iter().filter(|y| **y < 0).count();
        assert_equally_likely("signs", &[negative, pairs - negative]);
        // |2 (A - B) - 1| is 1 or some 2^31, times a multiplier of at least 8.
        let least = if far == 0 { 1 } else { far };
        assert!(blurred.iter().all(|y| y.unsigned_abs() >= least), "{far}");
    }
}

/// Rows and their classes are masked, whatever they hold and wherever they go.
#[tokio::test(flavor = "multi_thread")]
async fn rows_and_classes_are_uniform_whatever_they_hold() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(980 + seed as u64);
        let (tiles, to) = (Tiles::new(1000, 24), Tiles::new(1000, 5));
        let (packed, assignment) = (parties.constant(value, 1), vec![parties.constant(value, 3)]);
        blend(&parties.session, &tiles, 2, &packed, &assignment).await.unwrap();
        let transcript = parties.transcript();
        // The packed vector for `broadcast` and again with three tiles, then two columns to fold.
        assert_eq!(transcript.len(), 1 + (3 + 1) + 2);
        check_uniform("blend", &transcript);

        let noisy = parties.constant(value, 2);
        refresh(&parties.session, noisy).await.unwrap();
        check_uniform("fold", &parties.transcript());

        // All clusters in one class, every one in its own of five, none in any: the same questions.
        let maps: [fn(usize) -> Option<usize>; 3] = [|_| Some(0), |cluster| Some(cluster % 5), |_| None];
        for class_of in maps {
            let class_of: Vec<Option<usize>> = (0..24).map(class_of).collect();
            merge(&parties.session, &tiles, &to, &class_of, &assignment).await.unwrap();
            let transcript = parties.transcript();
            assert_eq!(transcript.len(), 3);
            check_uniform("merge", &transcript);
        }
    }
}
