//! Rounds: both parties on this machine, per slot.
//!
//! `cargo bench -p veil-flight-p2 --bench protocols [-- NAME..]` prints a table. "core" is processor time of both parties together
//! divided by the number of slots, so it is what one core would need; "clock" is what a person waits, on all cores. The first row
//! is the baseline: comparisons through ciphertext-by-ciphertext products, with `fhe`'s own calls.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and fails by panicking"
)]

#[path = "../crates/flight-p2/tests/support/mod.rs"]
mod support;
mod told;

use std::sync::Arc;
use std::time::Instant;

use self::told::Told;
use fhe::bfv::{BfvParametersBuilder, Ciphertext, Encoding, Plaintext, RelinearizationKey, SecretKey};
use fhe_traits::{FheDecoder, FheDecrypter, FheEncoder, FheEncrypter};
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_cells::{CellArray, CellType, ColumnId, Kind, Lanes, Seed, Width};
use veil_keys::{OwnerKeys, encrypt_column, encrypt_constants};
use veil_protocols::add_laplace::add_laplace;
use veil_protocols::broadcast::broadcast;
use veil_protocols::centres::centres;
use veil_protocols::cluster_sums::cluster_sums;
use veil_protocols::compare_and_select::{Pair, compare_and_select};
use veil_protocols::count_classes::{Labels, count_classes};
use veil_protocols::count_tags::{Source, TagTable, count_tags};
use veil_protocols::distances::distances;
use veil_protocols::lift_tags::{Rows, TagColumn, lift_tags};
use veil_protocols::lookup::{Question, Table, lookup};
use veil_protocols::nearest::{Comparison, nearest};
use veil_protocols::relabel::{Combination, Label, relabel};
use veil_protocols::shuffle::{Orders, shuffle};
use veil_protocols::testing::AnyQuestion;
use veil_protocols::{
    Channel, InProcess, Layout, Limits, Randomness, Responder, Session, Tiles, and, compare_exact, laplace_scale, lift,
    lift_wide, lower, multiply, pairwise, slot_sum, truncate, zero_test,
};
use veil_slots::{DEGREE, L1, PLAIN_MODULUS, PRIMES, Sample, Slots, plain};

/// The comparison that the baseline is one of, too.
const COMPARISON: &str = "compare_and_select";

/// Processor seconds of this process so far.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// Sums over all turns.
#[derive(Default)]
struct Measured {
    slots: f64,
    core: f64,
    clock: f64,
    up: f64,
    down: f64,
}

/// Runs `work` for one second and adds to the sums.
async fn turn<F: Future<Output = usize>>(session: &Session, measured: &mut Measured, work: impl Fn(Session) -> F) {
    work(session.clone()).await;
    let (up, down) = (session.traffic().bytes_up(), session.traffic().bytes_down());
    let (started, processor) = (Instant::now(), processor_seconds());
    while started.elapsed().as_secs_f64() < 1.0 {
        measured.slots += work(session.clone()).await as f64;
    }
    measured.core += (processor_seconds() - processor) * 1e6;
    measured.clock += started.elapsed().as_secs_f64() * 1e6;
    measured.up += (session.traffic().bytes_up() - up) as f64;
    measured.down += (session.traffic().bytes_down() - down) as f64;
}

fn print(name: &str, local: &Measured, flight: &Measured, baseline: Option<f64>) {
    let per_slot = |measured: &Measured| (measured.core / measured.slots, measured.clock / measured.slots);
    let ((core, clock), (flight_core, flight_clock)) = (per_slot(local), per_slot(flight));
    let overhead = (flight_clock / clock - 1.0) * 100.0;
    let (up, down) = (local.up / local.slots, local.down / local.slots);
    println!(
        "| {name} | {core:.2} | {clock:.2} | {flight_core:.2} | {flight_clock:.2} | {overhead:.0} % | {up:.0} | {down:.0} |"
    );
    let tell = |name: &str, value: f64, against: &str, ratio: f64, goal: &str| {
        Told { name: &format!("rounds: {name}"), value, unit: "µs a slot", against, ratio, goal }.tell();
    };
    tell(&format!("{name}, over Flight"), flight_clock, "in one process", flight_clock / clock, "1.35");
    if let Some(baseline) = baseline.filter(|_| name == COMPARISON) {
        tell(name, core, "a comparison by polynomials, as the paper has it", core / baseline, "2 µs");
    }
}

fn wanted(name: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| name.contains(&filter))
}

async fn all(local: &Session, flight: &Session, owner: &OwnerKeys, baseline: Option<f64>) {
    let mut rng = StdRng::seed_from_u64(1);
    let keys = owner.p2();
    let mut seal = |bound: u64| -> Slots<L1> {
        let values: Vec<u64> = (0..DEGREE).map(|_| plain::uniform_below(bound, &mut rng)).collect();
        keys.slot().seal(&values, &mut rng).expand().unwrap().raised()
    };
    let (a, b, bits): (Vec<_>, Vec<_>, Vec<_>) = (
        (0..8).map(|_| seal(1 << 34)).collect(),
        (0..8).map(|_| seal(1 << 34)).collect(),
        (0..8).map(|_| seal(2)).collect(),
    );
    let small = seal(64);
    let cell_type = CellType::new(Kind::Integer, Width::of_range(0, 120).unwrap(), 1, owner.key_id(), ColumnId([3; 8]));
    let numbers: Vec<i64> = (0..16 * DEGREE as i64).map(|row| row % 120).collect();
    let cells = encrypt_column(owner, &cell_type, &numbers, None, &mut StdRng::seed_from_u64(3)).unwrap();

    let pairs = || a.iter().zip(&b).map(|(a, b)| Pair { a: a.clone(), b: b.clone(), bits: 34 }).collect::<Vec<_>>();
    /// Measures one protocol, unless the command line names others: channels take turns, so that both meet the same machine.
    macro_rules! show {
        ($name:expr, |$session:ident| $work:expr) => {
            if wanted($name) {
                let (mut measured_local, mut measured_flight) = (Measured::default(), Measured::default());
                for _ in 0..4 {
                    for (session, measured) in [(local, &mut measured_local), (flight, &mut measured_flight)] {
                        let work = |session: Session| {
                            let work = async |$session: &Session| $work.await.unwrap().len() * DEGREE;
                            async move { work(&session).await }
                        };
                        turn(session, measured, work).await;
                    }
                }
                print($name, &measured_local, &measured_flight, baseline);
            }
        };
    }
    show!(COMPARISON, |session| compare_and_select(session, pairs()));
    let twos = || bits.as_chunks::<2>().0.iter().map(|pair| pair.to_vec()).collect::<Vec<_>>();
    show!("and, 2 bits", |session| and::and(session, twos()));
    let threes = || bits.as_chunks::<3>().0.iter().map(|three| three.to_vec()).collect::<Vec<_>>();
    show!("and, 3 bits", |session| and::and(session, threes()));
    let factors = || a.iter().cloned().zip(b.iter().cloned()).collect::<Vec<_>>();
    show!("multiply", |session| multiply::multiply(session, factors()));
    show!("lift", |session| lift::lift_column(session, CellArray::Binary(&cells), 0, 8));
    let rows = || {
        let row = |slots: &Slots<L1>| lower::Rows {
            lanes: vec![slots.clone()],
            count: DEGREE,
            shape: Lanes::NUMBER,
            width: 32,
            magnitude: Some(1 << 31),
            key_id: owner.key_id(),
        };
        bits.iter().map(row).collect::<Vec<_>>()
    };
    show!("lower", |session| lower::lower(session, rows()));
    let constants = encrypt_constants(owner, &cell_type, 0, 120).unwrap();
    let scale = laplace_scale::scale(local, &constants, 8).await.unwrap();
    let steps: Vec<i64> = (0..numbers.len() as i64).map(|row| row % 401 - 200).collect();
    let noisy = async |session: &Session| {
        let noisy = add_laplace(session, &scale, CellArray::Binary(&cells), steps.clone(), 1280).await?;
        Ok::<_, veil_protocols::ProtocolError>(vec![(); noisy.iter().len() / DEGREE])
    };
    show!("add_laplace, 8 bits", |session| noisy(session));
    let domain: Arc<[u64]> = (0..64).collect();
    let question =
        || vec![Question { slots: small.clone(), domain: domain.clone(), tables: vec![Table::Shared(domain.clone())] }];
    show!("lookup over 64", |session| lookup(session, question()));
    let shuffled = async |session: &Session, rows: usize| {
        let layout = Layout::new(rows);
        let groups = a.chunks(layout.vectors_per_list()).map(<[_]>::to_vec).collect();
        shuffle(session, layout, Orders::Independent, groups).await.map(|groups| groups.concat())
    };
    show!("shuffle of 8 rows", |session| shuffled(session, 8));
    show!("shuffle of 8192 rows", |session| shuffled(session, DEGREE));
    show!("shuffle of 32768 rows", |session| shuffled(session, 4 * DEGREE));
    show!("slot_sum", |session| slot_sum::slot_sum(session, a.clone()));
    let exact = || {
        a.iter()
            .zip(&b)
            .take(2)
            .map(|(a, b)| compare_exact::Pair { a: a.clone(), b: b.clone(), bits: 34 })
            .collect::<Vec<_>>()
    };
    show!("compare_exact, 34 bits", |session| compare_exact::compare_exact(session, exact()));
    let dividends = || {
        a.iter()
            .take(2)
            .map(|slots| truncate::Dividend { slots: slots.clone(), shift: 20, rounding: truncate::Rounding::Nearest })
            .collect::<Vec<_>>()
    };
    show!("truncate by 2^20", |session| truncate::truncate(session, dividends()));
    show!("zero_test", |session| zero_test::zero_test(session, a[..2].to_vec()));
    let texts = || {
        let samples = (0..DEGREE as u16).map(|row| Sample { seed: Seed([1; 16]), index: row % 4096, body: row.into() });
        vec![lift::Rows { samples: samples.collect(), present: None, width: 48 }; 2]
    };
    show!("lift_wide", |session| lift_wide::lift_wide(session, texts()));
    // A slot is a pair: 1024 rows have 512 shifts, eight a vector.
    let all_pairs = async |session: &Session| {
        pairwise::pairwise(session, 1024, 5, true, vec![small.clone()]).await?;
        Ok::<_, veil_protocols::ProtocolError>(vec![(); 64])
    };
    show!("pairwise", |session| all_pairs(session));
    // A slot is a pair of a row and a centre: 8192 rows of three columns, sixteen centres.
    let (tiles, weights) = (Tiles::new(DEGREE, 16), [1, 1, 1]);
    let spread_centres = broadcast(local, &tiles, 3, &a[..1], 0..16).await.unwrap();
    let spread =
        async |session: &Session| broadcast(session, &tiles, 3, &a[..1], 0..16).await.map(|made| made.concat());
    show!("broadcast", |session| spread(session));
    show!("distances, 3 columns", |session| distances(
        session,
        &tiles,
        &weights,
        0,
        &b[..3],
        &a[..1],
        &spread_centres,
        0..16
    ));
    let tournament = async |session: &Session| {
        let chunks = vec![[a.as_slice(), b.as_slice()].concat()];
        nearest(session, &tiles, Comparison::Blinded, 35, 0, chunks).await.map(|made| made.concat())
    };
    show!("nearest of 16", |session| tournament(session));
    let tagged = CellType { tag: true, ..cell_type.clone() };
    let messages: Vec<i64> = (0..8 * DEGREE as i64).flat_map(|row| [row % 120, row % 5000]).collect();
    let cells = encrypt_column(owner, &tagged, &messages, None, &mut StdRng::seed_from_u64(4)).unwrap();
    let tags = TagColumn::read(CellArray::Binary(&cells), owner.key_id()).unwrap();
    let chunks = || tags.samples.chunks(DEGREE).map(|chunk| Rows::new(chunk.iter().copied())).collect::<Vec<_>>();
    show!("lift_tags", |session| lift_tags(session, chunks()));
    let label = Arc::new(Label::draw(&mut StdRng::seed_from_u64(5)));
    let combination = |slots: &Slots<L1>| Combination {
        terms: vec![(slots.clone(), vec![1])],
        clear: None,
        labels: vec![label.clone()],
        block: DEGREE,
        repeated: false,
    };
    show!("relabel", |session| relabel(session, a.iter().map(combination).collect()));
    let lists = || a.iter().map(|slots| Labels { vectors: vec![slots.clone()], lists: 1 }).collect::<Vec<_>>();
    show!("count_classes", |session| count_classes(session, DEGREE, DEGREE, 5, true, lists()));
    let columns = tags.samples.chunks(DEGREE).map(|chunk| Source::Tags(TagColumn { samples: chunk.to_vec() }));
    let table = Arc::new(TagTable::new(columns.collect(), DEGREE).unwrap());
    // A slot is a pair of a row and a centre: 8192 rows, eight centres, two columns.
    let tiles = Tiles::new(DEGREE, 8);
    let (columns, assignment) = ([a[..2].to_vec()], [bits.clone()]);
    let clusters = async |session: &Session| {
        cluster_sums(session, &tiles, &columns, &assignment).await?;
        Ok::<_, veil_protocols::ProtocolError>(vec![(); 8])
    };
    show!("cluster_sums", |session| clusters(session));
    let sums = cluster_sums(local, &tiles, &columns, &assignment).await.unwrap();
    let means = async |session: &Session| centres(session, &tiles, 2, &sums, a[..1].to_vec()).await;
    show!("centres, 8192 rows, 8 centres", |session| means(session));
    show!("count_tags, 255 sets", |session| count_tags(session, table.clone(), (1..256).collect(), 5, true));
}

/// The comparison done as the paper does it, as far as it can be in BFV: for each of the two numbers a distance is squared and a
/// degree-2 polynomial evaluated, two ciphertext products with relinearisation; P2 opens both and returns the sign.
///
/// Its processor time in microseconds.
fn baseline() -> f64 {
    let mut rng = StdRng::seed_from_u64(1);
    let mut builder = BfvParametersBuilder::new();
    let parameters =
        builder.set_degree(DEGREE).set_plaintext_modulus(PLAIN_MODULUS).set_moduli(&PRIMES).build_arc().unwrap();
    let key = SecretKey::random(&parameters, &mut rng);
    let relinearization = RelinearizationKey::new(&key, &mut rng).unwrap();
    let encode = |value: u64| Plaintext::try_encode(&[value; DEGREE], Encoding::simd(), &parameters).unwrap();
    let differences: [Ciphertext; 2] = [3, 5].map(|value| key.try_encrypt(&encode(value), &mut rng).unwrap());
    let (a, b, c) = (encode(7), encode(11), encode(13));
    let square = |value: &Ciphertext| {
        let mut product = value * value;
        relinearization.relinearizes(&mut product).unwrap();
        product
    };
    let polynomial = |difference: &Ciphertext| {
        let distance = square(difference);
        &(&(&square(&distance) * &a) + &(&distance * &b)) + &c
    };
    let open = |value: &Ciphertext| {
        let opened: Plaintext = key.try_decrypt(value).unwrap();
        Vec::<u64>::try_decode(&opened, Encoding::simd()).unwrap()
    };
    let (started, processor) = (Instant::now(), processor_seconds());
    let mut comparisons = 0;
    while started.elapsed().as_secs_f64() < 5.0 {
        let [first, second] = differences.each_ref().map(|difference| open(&polynomial(difference)));
        assert_eq!((first[0], second[0]), (7 * 81 + 11 * 9 + 13, 7 * 625 + 11 * 25 + 13));
        let sign: Vec<u64> = first.iter().zip(&second).map(|(first, second)| u64::from(first < second)).collect();
        let reply = Plaintext::try_encode(&sign, Encoding::simd(), &parameters).unwrap();
        let reply: Ciphertext = key.try_encrypt(&reply, &mut rng).unwrap();
        std::hint::black_box(reply);
        comparisons += DEGREE;
    }
    let comparisons = comparisons as f64;
    let core = (processor_seconds() - processor) / comparisons * 1e6;
    let clock = started.elapsed().as_secs_f64() / comparisons * 1e6;
    println!("| baseline: comparison by polynomials | {core:.2} | {clock:.2} | | | | 108 | 54 |");
    core
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        println!("| µs a slot | core | clock | Flight, core | clock | overhead | bytes up | bytes down |");
        println!("|---|---|---|---|---|---|---|---|");
        let baseline = wanted("baseline").then(baseline);
        let owner = &*support::KEYS;
        let responder = Responder::new(Arc::new(owner.p2()), Limits::default(), Randomness::os());
        let responder = Arc::new(responder.with_desk(Arc::new(AnyQuestion)));
        let certificates = support::Certificates::new();
        let p2 = support::P2::start(support::with_tls(&certificates)).await;
        let channel = support::connect(support::client(&p2, Some(&certificates))).await.unwrap();
        let session =
            |channel: Arc<dyn Channel>| Session::new(channel, owner.key_id(), owner.p1().public_key().clone());
        all(&session(Arc::new(InProcess::new(responder))), &session(Arc::new(channel)), owner, baseline).await;
    });
}
