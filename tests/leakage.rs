//! What P2 sees, statistically: for chosen inputs that should be indistinguishable, everything that P2 decrypts follows the
//! same known distribution. Every test has a false-alarm rate of 10^-6 and a fixed seed, so it does not flicker.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "leakage/assess.rs"]
mod assess;
#[path = "leakage/k_anonymize.rs"]
mod k_anonymize;
#[path = "leakage/release.rs"]
mod release;

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
        let channel = Arc::new(InProcess::new(Arc::new(responder)));
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

#[tokio::test(flavor = "multi_thread")]
async fn masked_vectors_are_uniform_whatever_they_hold() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(100 + seed as u64);
        let vectors = parties.constant(value, 4);
        let pairs = vectors.iter().map(|x| (x.clone(), x.clone())).collect();
        multiply::multiply(&parties.session, pairs).await.unwrap();
        // Both factors are the same vector: masked independently, their difference is uniform too.
        let transcript = parties.transcript();
        assert_eq!(transcript.len(), 8);
        assert_uniform("multiply", transcript.iter().flatten().copied(), PLAIN_MODULUS);

        slot_sum::slot_sum(&parties.session, vectors.clone()).await.unwrap();
        assert_uniform("slot_sum", parties.transcript().concat(), PLAIN_MODULUS);

        let aggregates = |slots: &Slots<L1>| Aggregate { slots: slots.clone(), count: 1, purpose: Purpose::Metric };
        open(&parties.session, vectors.iter().map(aggregates).collect()).await.unwrap();
        assert_uniform("open", parties.transcript().concat(), PLAIN_MODULUS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exact_protocols_show_uniform_numbers_and_uniform_bits() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(110 + seed as u64);
        let vectors = parties.constant(value, 2);
        // The first message of each is a masked vector, the rest are masked bits (and a product in `truncate`).
        let check = |what: &str, transcript: Vec<Vec<u64>>, masked: usize| {
            assert_uniform(what, transcript[..masked].concat(), PLAIN_MODULUS);
            let mut places = [[0usize; 8]; 2];
            for bits in &transcript[masked..] {
                let largest = bits.iter().max().copied().unwrap();
                if largest < 8 {
                    let group = usize::from(largest > 3);
                    bits.iter().for_each(|bits| places[group][*bits as usize] += 1);
                } else {
                    assert_uniform(what, bits.iter().copied().chain(transcript[0].iter().copied()), PLAIN_MODULUS);
                }
            }
            assert_equally_likely(what, &places[1]);
            if places[0].iter().any(|count| *count > 0) {
                assert_equally_likely(what, &places[0][..4]);
            }
        };
        zero_test::zero_test(&parties.session, vectors.clone()).await.unwrap();
        check("zero_test", parties.transcript(), 2);

        let masks: Vec<Vec<u64>> = (0..2).map(|_| plain::uniform_vec(DEGREE, &mut parties.rng)).collect();
        let masked = vectors.iter().zip(masks).map(|(slots, mask)| Masked { slots: slots.clone(), mask }).collect();
        less_than(&parties.session, masked).await.unwrap();
        check("less_than", parties.transcript(), 2);

        let dividend = |slots: &Slots<L1>| Dividend { slots: slots.clone(), shift: 20, rounding: Rounding::Floor };
        truncate(&parties.session, vectors.iter().map(dividend).collect()).await.unwrap();
        check("truncate", parties.transcript(), 2);

        let other = parties.constant(plain::sub(value, 5), 2);
        let pair = |(a, b): (&Slots<L1>, &Slots<L1>)| compare_exact::Pair { a: a.clone(), b: b.clone(), bits: 20 };
        compare_exact::compare_exact(&parties.session, vectors.iter().zip(&other).map(pair).collect()).await.unwrap();
        check("compare_exact", parties.transcript(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bits_are_uniform_whatever_they_are() {
    for (seed, pattern) in [[0, 0, 0], [1, 1, 1], [1, 0, 1]].into_iter().enumerate() {
        let mut parties = Parties::new(120 + seed as u64);
        let bits: Vec<Slots<L1>> = pattern.iter().map(|bit| parties.constant(*bit, 1).remove(0)).collect();
        and::and(&parties.session, vec![bits; 2]).await.unwrap();
        let mut counts = [0; 8];
        parties.transcript().concat().iter().for_each(|bits| counts[*bits as usize] += 1);
        assert_equally_likely("and", &counts);
    }
}

/// One zero in every slot, at a uniform place; all else uniform.
#[tokio::test(flavor = "multi_thread")]
async fn lookups_show_one_zero_at_a_uniform_place() {
    for (seed, value) in [0, 49, 225].into_iter().enumerate() {
        let mut parties = Parties::new(130 + seed as u64);
        let domain: Arc<[u64]> = (0..16).map(|place| place * place).collect();
        let question =
            |slots| Question { slots, domain: domain.clone(), tables: vec![lookup::Table::Shared(domain.clone())] };
        // One at a time, so that the candidates of a question lie together.
        for slots in parties.constant(value, 2) {
            lookup::lookup(&parties.session, vec![question(slots)]).await.unwrap();
        }
        let transcript = parties.transcript();
        let mut places = [0; 16];
        for candidates in transcript.as_chunks::<16>().0 {
            let mut zeros = vec![0; DEGREE];
            for (place, candidate) in candidates.iter().enumerate() {
                for (zeros, value) in zeros.iter_mut().zip(candidate) {
                    *zeros += usize::from(*value == 0);
                    places[place] += usize::from(*value == 0);
                }
            }
            assert!(zeros.iter().all(|zeros| *zeros == 1));
        }
        assert_equally_likely("place of the zero", &places);
        let others = transcript.concat().into_iter().filter(|value| *value != 0);
        assert_uniform("lookup", others, PLAIN_MODULUS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_in_ranges_show_uniform_numbers() {
    for (seed, value) in [0, 7, 15].into_iter().enumerate() {
        let mut parties = Parties::new(180 + seed as u64);
        let domain: Arc<[u64]> = (0..16).collect();
        let question =
            |slots| Question { slots, domain: domain.clone(), tables: vec![lookup::Table::Shared(domain.clone())] };
        let questions = parties.constant(value, 4).into_iter().map(question).collect();
        lookup::lookup(&parties.session, questions).await.unwrap();
        let seen = parties.transcript().concat();
        let mut residues = [0; 16];
        seen.iter().for_each(|w| residues[(w % 16) as usize] += 1);
        assert_equally_likely("residue", &residues);
        assert_uniform("lookup_range", seen, PLAIN_MODULUS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conversions_show_masked_numbers() {
    for (seed, value) in [-128, 0, 127].into_iter().enumerate() {
        let mut parties = Parties::new(140 + seed as u64);
        let cell_type = CellType::new(
            Kind::Integer,
            Width::of_range(-128, 127).unwrap(),
            1,
            parties.owner.key_id(),
            ColumnId([1; 8]),
        );
        let cells =
            encrypt_column(&parties.owner, &cell_type, &vec![value; 3 * DEGREE], None, &mut parties.rng).unwrap();
        lift::lift_column(&parties.session, CellArray::Binary(&cells), 0, 8).await.unwrap();
        let messages = parties.transcript().concat().into_iter().map(|phase| phase >> NOISE_BITS);
        assert_uniform("lift", messages, 1 << 48);

        // A secret factor: P2 sees uniform phases, all 64 bits of them.
        let scaled = scale_cells(CellArray::Binary(&cells), 121).unwrap();
        lift::lift_column(&parties.session, CellArray::Binary(&scaled), 0, 16).await.unwrap();
        let phases = parties.transcript().into_iter().take(3).flatten().collect::<Vec<_>>();
        assert_uniform("lift_affine", phases.iter().map(|phase| phase >> 16), 1 << 48);
        assert_uniform("lift_affine, low bits", phases.iter().map(|phase| phase & 0xffff), 1 << 16);

        let lanes = parties.constant(plain::from_signed(value), 2);
        let rows = |lane: Slots<L1>| lower::Rows {
            lanes: vec![lane],
            count: DEGREE,
            shape: Lanes::NUMBER,
            width: 8,
            magnitude: Some(128),
            key_id: parties.owner.key_id(),
        };
        lower::lower(&parties.session, lanes.into_iter().map(rows).collect()).await.unwrap();
        assert_uniform("lower", parties.transcript().concat(), PLAIN_MODULUS);
    }
}

/// Whatever P1 encrypts, it asks for zeros.
#[tokio::test(flavor = "multi_thread")]
async fn fresh_cells_show_nothing() {
    let parties = Parties::new(190);
    let rows = zeros::Rows { messages: vec![77; 100], shape: Lanes::NUMBER, magnitude: Some(100) };
    zeros::fresh_cells(&parties.session, vec![rows]).await.unwrap();
    assert!(parties.transcript().is_empty());
}

/// Of a column with noise P2 sees the bounds; values, hidden NULLs and steps are masked, whatever they are.
#[tokio::test(flavor = "multi_thread")]
async fn noise_shows_the_bounds_and_nothing_else() {
    // Values, hidden NULLs and steps: nothing, much, little.
    let chosen = [(0, 0, 0), (i64::from(i32::MAX), 1, 1000), (i64::from(i32::MIN), 0, -1000)];
    for (seed, (value, null, step)) in chosen.into_iter().enumerate() {
        let mut parties = Parties::new(191 + seed as u64);
        let (lower, upper) = (i32::MIN.into(), i32::MAX.into());
        let width = Width::of_range(lower, upper).unwrap();
        let plain = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([1; 8]));
        let cell_type = CellType { nulls: Nulls::Hidden, ..plain };
        let constants = encrypt_constants(&parties.owner, &cell_type, lower, upper).unwrap();
        let scale = laplace_scale::scale(&parties.session, &constants, width.bits()).await.unwrap();
        let bounds = |phases: &[u64]| phases.iter().map(|phase| message_of_phase(*phase)).collect::<Vec<_>>();
        let transcript = parties.transcript();
        assert_eq!(transcript.len(), 1);
        assert_eq!(bounds(&transcript[0]), [lower, upper]);

        let messages = [value, null].repeat(DEGREE);
        let cells = encrypt_column(&parties.owner, &cell_type, &messages, None, &mut parties.rng).unwrap();
        let scaled = scale_cells(CellArray::Binary(&cells), 5).unwrap();
        let (mut steps, mut values) = ([Vec::new(), Vec::new()], Vec::new());
        // One chunk at a time, so that what belongs together lies together; the last ones keep their values to themselves.
        for (cells, is_plain) in [(&cells, true), (&cells, true), (&scaled, false), (&scaled, false)] {
            let cells = CellArray::Binary(cells);
            add_laplace(&parties.session, &scale, cells, vec![step; DEGREE], 1000).await.unwrap();
            let transcript = parties.transcript();
            let [seen, low, high, phases] = transcript.as_slice() else { panic!("{} openings", transcript.len()) };
            assert_eq!(bounds(seen), [lower, upper]);
            steps[0].extend_from_slice(low);
            steps[1].extend_from_slice(high);
            assert_eq!(phases.len(), if is_plain { 2 * DEGREE } else { 0 });
            values.extend(phases.iter().map(|phase| phase.wrapping_add(1 << (NOISE_BITS - 1)) >> NOISE_BITS));
        }
        for steps in &steps {
            assert_uniform("steps", steps.iter().copied(), PLAIN_MODULUS);
            let mut residues = [0; 32];
            steps.iter().for_each(|step| residues[(step % 32) as usize] += 1);
            assert_equally_likely("steps modulo the grid", &residues);
        }
        // Limb and limb, row and row are masked independently of each other.
        let both = steps[0].iter().zip(&steps[1]).map(|(low, high)| plain::sub(*high, *low));
        assert_uniform("limbs", both, PLAIN_MODULUS);
        assert_uniform("values and NULLs", values.iter().copied(), 1 << 48);
        let neighbours = values.array_windows().map(|[a, b]| b.wrapping_sub(*a) % (1 << 48));
        assert_uniform("neighbours", neighbours, 1 << 48);
    }
}

/// Whatever the rows and their order are, P2 sees uniform vectors, and each time new ones.
#[tokio::test(flavor = "multi_thread")]
async fn shuffles_show_uniform_numbers() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(200 + seed as u64);
        // One round for lists of eight; eleven for a list in two vectors, which exchange rows on the way.
        for (rows, groups) in [(8, 4), (2 * DEGREE, 1)] {
            let layout = Layout::new(rows);
            let vectors = parties.constant(value, groups * layout.vectors_per_list());
            let groups = vectors.chunks(layout.vectors_per_list()).map(<[_]>::to_vec).collect();
            shuffle(&parties.session, layout, Orders::Independent, groups).await.unwrap();
            let transcript = parties.transcript();
            assert_eq!(transcript.len(), vectors.len() * layout.rounds());
            assert_uniform("shuffle", transcript.iter().flatten().copied(), PLAIN_MODULUS);
            let change = |[before, after]: &[Vec<u64>; 2]| {
                before.iter().zip(after).map(|(before, after)| plain::sub(*after, *before)).collect::<Vec<_>>()
            };
            let changes = transcript.array_windows().flat_map(change);
            assert_uniform("one vector and the next", changes, PLAIN_MODULUS);
        }
        // Every slot stays, or every slot moves as far as it can.
        for pick in [0, 7] {
            let vectors = parties.constant(value, 2);
            let picks = Picks {
                vectors,
                vector: vec![pick / 7; DEGREE],
                bits: vec![0, 6, 12],
                arrangement: vec![pick; DEGREE],
            };
            let asked = parties.session.round::<Arrange, _, _, _>(vec![picks; 2], 8, arrange::ask, arrange::finish);
            asked.await.unwrap();
            let transcript = parties.transcript();
            assert_uniform("arrange", transcript.concat(), PLAIN_MODULUS);
            let neighbours = transcript.concat();
            let neighbours = neighbours.array_windows().map(|[a, b]| plain::sub(*b, *a));
            assert_uniform("neighbours", neighbours, PLAIN_MODULUS);
        }
    }
}

/// All orders of few rows are equally likely, and what is beyond the rows stays.
#[tokio::test(flavor = "multi_thread")]
async fn all_orders_are_equally_likely() {
    let mut parties = Parties::new(210);
    let keys = parties.owner.p2();
    let values: Vec<u64> = (0..DEGREE as u64).map(|place| place % 4).collect();
    for (rows, orders) in [(4, 24), (3, 6)] {
        let mut seal = || keys.slot().seal(&values, &mut parties.rng).expand().unwrap().raised();
        let groups = (0..4).map(|_| vec![seal()]).collect();
        let groups = shuffle(&parties.session, Layout::new(rows), Orders::Independent, groups).await.unwrap();
        let mut counts = BTreeMap::new();
        for vector in groups.iter().flatten() {
            for list in keys.slot().open_slots(vector).as_chunks::<4>().0 {
                *counts.entry(*list).or_insert(0) += 1;
            }
        }
        assert_eq!(counts.len(), orders);
        assert!(rows == 4 || counts.keys().all(|list| list[3] == 3));
        assert_equally_likely("order", &counts.into_values().collect::<Vec<_>>());
    }
}

/// The factor of a scaled cell cannot be tested for: with the right one as with a wrong one, `c p` has uniform low bits.
#[tokio::test(flavor = "multi_thread")]
async fn factors_cannot_be_guessed_from_what_p2_opens() {
    let mut parties = Parties::new(150);
    let cell_type =
        CellType::new(Kind::Integer, Width::of_range(-128, 127).unwrap(), 1, parties.owner.key_id(), ColumnId([1; 8]));
    let cells = encrypt_column(&parties.owner, &cell_type, &vec![3; 2 * DEGREE], None, &mut parties.rng).unwrap();
    let scaled = scale_cells(CellArray::Binary(&cells), 121).unwrap();
    lift::lift_column(&parties.session, CellArray::Binary(&scaled), 0, 16).await.unwrap();
    let phases: Vec<u64> = parties.transcript().into_iter().take(2).flatten().collect();
    for guess in [121u64, 122] {
        let low = phases.iter().map(|phase| phase.wrapping_mul(guess) & 0xffff);
        if guess % 2 == 1 {
            assert_uniform("the right factor", low, 1 << 16);
        } else {
            assert_uniform("a wrong factor", low.map(|low| low >> 1), 1 << 15);
        }
    }
}

/// Signs are uniform; of a magnitude, only what the blur leaves.
#[tokio::test(flavor = "multi_thread")]
async fn blinded_comparisons_show_uniform_signs_and_blurred_magnitudes() {
    let mut measured = Vec::new();
    for bits in [20, 34] {
        let mut parties = Parties::new(160 + u64::from(bits));
        let keys = parties.owner.p2();
        let zero = parties.constant(0, 1).remove(0);
        // Differences of every magnitude, equally often: what tells P2 most.
        let vectors = 16;
        let mut octaves = Vec::new();
        let mut pairs = Vec::new();
        for _ in 0..vectors {
            let octave: Vec<u32> =
                (0..DEGREE).map(|_| plain::uniform_below(bits.into(), &mut parties.rng) as u32).collect();
            let values: Vec<u64> = octave
                .iter()
                .map(|octave| (1u64 << octave) + plain::uniform_below(1 << octave, &mut parties.rng))
                .collect();
            let a = keys.slot().seal(&values, &mut parties.rng).expand().unwrap().raised();
            pairs.push(Pair { a, b: zero.clone(), bits });
            octaves.extend(octave);
        }
        // One at a time, so that the transcript is in order.
        let mut seen = Vec::new();
        for pair in pairs {
            compare_and_select(&parties.session, vec![pair]).await.unwrap();
            seen.extend(parties.transcript().concat());
        }
        let signs = seen.iter().filter(|y| plain::centred(**y) < 0).count();
        assert_equally_likely("sign", &[signs, seen.len() - signs]);
        let mut joint = vec![[0f64; 50]; bits as usize];
        for (octave, y) in octaves.iter().zip(&seen) {
            joint[*octave as usize][plain::centred(*y).unsigned_abs().max(1).ilog2() as usize] += 1.0;
        }
        measured.push(mutual_information(&joint));
    }
    // The figures of docs/protocols: of log2(20) = 4.32 and log2(34) = 5.09 bits.
    assert!((0.6..1.0).contains(&measured[0]), "20 bits: {measured:?}");
    assert!((1.8..2.5).contains(&measured[1]), "34 bits: {measured:?}");
    println!("mutual information of octaves: {measured:.3?} bits");
}

fn mutual_information(joint: &[[f64; 50]]) -> f64 {
    let total: f64 = joint.iter().flatten().sum();
    let columns: Vec<f64> = (0..50).map(|column| joint.iter().map(|row| row[column]).sum()).collect();
    let terms = joint.iter().flat_map(|row| {
        let row_sum: f64 = row.iter().sum();
        let term = move |(count, column): (&f64, &f64)| match *count > 0.0 {
            true => count / total * (count * total / row_sum / column).log2(),
            false => 0.0,
        };
        row.iter().zip(&columns).map(term).collect::<Vec<_>>()
    });
    terms.sum()
}

/// Without the addend, the difference divides what P2 sees, and factoring finds it; with it, no more often than chance.
#[tokio::test(flavor = "multi_thread")]
async fn factoring_what_p2_sees_does_not_find_the_difference() {
    let mut parties = Parties::new(170);
    let difference = 1_000_003u64;
    let (a, b) = (parties.constant(difference, 8), parties.constant(0, 1).remove(0));
    let pairs = a.into_iter().map(|a| Pair { a, b: b.clone(), bits: 21 }).collect();
    compare_and_select(&parties.session, pairs).await.unwrap();
    let odd = 2 * difference - 1;
    let seen: Vec<u64> = parties.transcript().concat().iter().map(|y| plain::centred(*y).unsigned_abs()).collect();
    let divided = seen.iter().filter(|y| **y % odd == 0).count();
    // Only where r' = 0, which has probability 1 / (2r - 1): half a percent over 22 octaves from r = 8.
    assert!(divided * 100 < seen.len(), "{divided} of {} are multiples", seen.len());
    assert!(seen.iter().all(|y| *y != odd), "r is never one");
}

/// Texts are masked uniformly, NULLs among them, and the rounds that follow show uniform bits.
#[tokio::test(flavor = "multi_thread")]
async fn wide_conversions_show_uniform_numbers() {
    for (seed, message) in [0, 1, PLAIN_MODULUS, (1 << 48) - 1].into_iter().enumerate() {
        let mut parties = Parties::new(200 + seed as u64);
        let keys = parties.owner.p2();
        let sealed = [(); 2].map(|()| keys.seal_samples(&[message; DEGREE / 2], &mut parties.rng));
        let samples = sealed.iter().flat_map(|(seed, bodies)| {
            bodies.iter().zip(0..).map(|(body, index)| Sample { seed: *seed, index, body: *body })
        });
        let present = (0..DEGREE).map(|row| row % 5 != 0).collect();
        let rows = lift::Rows { samples: samples.collect(), present: Some(present), width: 48 };
        lift_wide::lift_wide(&parties.session, vec![rows.clone(), rows]).await.unwrap();
        let transcript = parties.transcript();
        let seen = transcript[..2].iter().flatten();
        let words = seen.map(|phase| phase.wrapping_add(1 << (NOISE_BITS - 1)) >> NOISE_BITS).collect::<Vec<_>>();
        assert_uniform("lift_wide", words.iter().copied(), 1 << 48);
        let mut low = [0; 16];
        words.iter().for_each(|word| low[(word % 16) as usize] += 1);
        assert_equally_likely("lift_wide, low bits", &low);
        // Both rows have the same samples: masked independently of each other, and from slot to slot.
        let between = words.iter().zip(&words[DEGREE..]).map(|(a, b)| a.wrapping_sub(*b) % (1 << 48));
        let neighbours = words.array_windows().map(|[a, b]| b.wrapping_sub(*a) % (1 << 48));
        assert_uniform("lift_wide, differences", between.chain(neighbours), 1 << 48);
        // Masked bits, and whether the mask wrapped, masked in its turn.
        let mut places = [0; 8];
        let (bits, wrapped): (Vec<_>, Vec<_>) =
            transcript[2..].iter().partition(|opened| opened.iter().all(|value| *value < 8));
        let threes = bits.iter().filter(|bits| bits.iter().any(|bits| *bits > 3));
        threes.flat_map(|bits| bits.iter()).for_each(|bits| places[*bits as usize] += 1);
        assert_equally_likely("lift_wide, bits", &places);
        assert_eq!(wrapped.len(), 2);
        assert_uniform("lift_wide, whether it wrapped", wrapped.into_iter().flatten().copied(), PLAIN_MODULUS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_lists_are_uniform_whatever_they_hold() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(210 + seed as u64);
        let list = |slots| rotate::Rotations { slots, rows: 1000, first: 1, vectors: 1 };
        let lists = parties.constant(value, 4).into_iter().map(list).collect();
        rotate::rotate(&parties.session, lists).await.unwrap();
        let transcript = parties.transcript();
        assert_uniform("rotate", transcript.iter().flatten().copied(), PLAIN_MODULUS);
        // Rows repeat from block to block, and their masks do not.
        let blocks = transcript.iter().flat_map(|slots| slots.iter().zip(&slots[1024..]));
        assert_uniform("rotate, block by block", blocks.map(|(a, b)| plain::sub(*b, *a)), PLAIN_MODULUS);
    }
}

/// Rows and centres are masked, and masked anew for every question about them.
#[tokio::test(flavor = "multi_thread")]
async fn rows_and_centres_are_uniform_whatever_they_hold() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(250 + seed as u64);
        let tiles = Tiles::new(DEGREE, 2 * DEGREE);
        let (packed, rows) = (parties.constant(value, 4), parties.constant(value, 2));
        let centres = broadcast(&parties.session, &tiles, 2, &packed, 0..17).await.unwrap();
        let transcript = parties.transcript();
        // Eight tiles a question.
        assert_eq!(transcript.len(), 3 * 4);
        let all_uniform = |what: &str, transcript: &[Vec<u64>]| {
            assert_uniform(what, transcript.concat(), PLAIN_MODULUS);
            let between = transcript.array_windows().flat_map(|[a, b]| a.iter().zip(b));
            assert_uniform(what, between.map(|(a, b)| plain::sub(*b, *a)), PLAIN_MODULUS);
        };
        all_uniform("broadcast", &transcript);

        distances(&parties.session, &tiles, &[1, 2], 0, &rows, &packed, &centres, 0..17).await.unwrap();
        let transcript = parties.transcript();
        // Sixteen tiles a question.
        assert_eq!(transcript.len(), 2 * (2 + 4));
        all_uniform("distances", &transcript);
    }
}

/// Between blocks P2 sees masked vectors and bits, and a difference once: in the other slot of a pair it sees a tie.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_compared_in_one_slot_of_a_pair() {
    let mut parties = Parties::new(253);
    let (tiles, keys) = (Tiles::new(4096, 2), parties.owner.p2());
    let far: Vec<u64> = (0..DEGREE).map(|slot| if slot < 4096 { 0 } else { 1 << 18 }).collect();
    let (mut masked, mut signs, mut bits) = (Vec::new(), [0; 4], [0; 4]);
    for _ in 0..2 {
        let distances = keys.slot().seal(&far, &mut parties.rng).expand().unwrap().raised();
        nearest(&parties.session, &tiles, Comparison::Blinded, 20, 0, vec![vec![distances]]).await.unwrap();
        let transcript = parties.transcript();
        let [exchanged, blinded, copied, flipped] = transcript.as_slice() else {
            panic!("{} openings", transcript.len())
        };
        masked.extend(exchanged.iter().chain(copied));
        for (slot, y) in blinded.iter().enumerate() {
            let y = plain::centred(*y);
            signs[2 * (slot / 4096) + usize::from(y < 0)] += 1;
            // The smallest multiplier is 8, the largest below 2^25.
            let (least, most) = if slot < 4096 { (8 << 18, 1 << 46) } else { (0, 1 << 26) };
            assert!((least..most).contains(&y.unsigned_abs()), "{y} in slot {slot}");
        }
        flipped.iter().for_each(|flipped| bits[*flipped as usize] += 1);
    }
    assert_uniform("arranged blocks", masked, PLAIN_MODULUS);
    assert_equally_likely("signs of differences", &signs);
    assert_equally_likely("bits of winners", &bits);
}

/// P2 sees a zero for a pair of equal rows and for nothing else; what is not zero is uniform, whatever the rows hold.
#[tokio::test(flavor = "multi_thread")]
async fn pairs_show_which_rows_are_equal_and_nothing_else() {
    // An odd list and an even one, values that are small and values that are far apart.
    for (seed, (rows, step)) in [(101, 1), (100, 1), (101, PLAIN_MODULUS / 8)].into_iter().enumerate() {
        let mut parties = Parties::new(220 + seed as u64);
        let list: Vec<u64> = (0..128).map(|row| plain::mul(row * row % 7, step)).collect();
        let slots = parties.owner.p2().slot().seal(&list.repeat(DEGREE / 128), &mut parties.rng);
        let slots = slots.expand().unwrap().raised();
        pairwise::pairwise(&parties.session, rows, 3, true, vec![slots.clone(), slots]).await.unwrap();
        let transcript = parties.transcript();
        let [rotated @ .., first, second, counts, again] = transcript.as_slice() else { panic!("too few openings") };
        assert_uniform("rotate", rotated.iter().flatten().copied(), PLAIN_MODULUS);
        for differences in [first, second] {
            for (block, shift) in differences.chunks(128).zip(1..) {
                // Half way around, the second half would meet the first again.
                let compared = if 2 * shift < rows {
                    rows
                } else if 2 * shift == rows {
                    shift
                } else {
                    0
                };
                let equal = |row: usize| row < compared && list[row] == list[(row + shift) % rows];
                assert!(block.iter().enumerate().all(|(row, difference)| (*difference == 0) == equal(row)));
            }
        }
        let others = [first, second].into_iter().flatten().copied().filter(|difference| *difference != 0);
        assert_uniform("match_pairs", others, PLAIN_MODULUS);
        // The same pairs twice: independent factors.
        let ratios =
            first.iter().zip(second).filter(|(a, _)| **a != 0).map(|(a, b)| plain::mul(*a, plain::inverse(*b)));
        let ratios: Vec<u64> = ratios.collect();
        let neighbours = first.array_windows().filter(|[a, b]| *a != 0 && *b != 0);
        let neighbours = neighbours.map(|[a, b]| plain::mul(*a, plain::inverse(*b)));
        assert_uniform("match_pairs, ratios", ratios.into_iter().chain(neighbours), PLAIN_MODULUS);
        // The counts follow from the pairs; slots beyond the rows are empty.
        let same = |row: usize| list[..rows].iter().filter(|value| **value == list[row]).count() as u64;
        let expected: Vec<u64> = (0..DEGREE).map(|row| if row < rows { same(row) } else { 0 }).collect();
        assert_eq!([counts, again], [&expected, &expected]);
    }
}

/// A column of cells with these equality tags.
fn tag_column(parties: &mut Parties, tags: &[u64]) -> TagColumn {
    let width = Width::of_range(0, 100).unwrap();
    let plain = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([4; 8]));
    let cell_type = CellType { tag: true, ..plain };
    let messages: Vec<i64> = tags.iter().flat_map(|tag| [7, *tag as i64]).collect();
    let cells = encrypt_column(&parties.owner, &cell_type, &messages, None, &mut parties.rng).unwrap();
    TagColumn::read(CellArray::Binary(&cells), parties.owner.key_id()).unwrap()
}

/// What lies below the steps of phases: uniform over the flood, whatever the tags are.
fn assert_flooded(what: &str, phases: &[u64]) {
    let rest = phases.iter().map(|phase| phase.wrapping_sub(phase_of_tag(tag_of_phase(*phase))).wrapping_add(1 << 14));
    // The cell's own noise reaches a little beyond.
    assert_uniform(what, rest.map(|rest| (rest as i64).clamp(0, (1 << 15) - 1) as u64), 1 << 15);
}

#[tokio::test(flavor = "multi_thread")]
async fn lifted_tags_are_uniform_whatever_they_are() {
    for (seed, tag) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(200 + seed as u64);
        let column = tag_column(&mut parties, &[tag; 2 * DEGREE]);
        let rows = column.samples.chunks(DEGREE).map(|samples| Rows::new(samples.iter().copied()));
        lift_tags(&parties.session, rows.collect()).await.unwrap();
        let phases = parties.transcript().concat();
        let tags: Vec<u64> = phases.iter().map(|phase| tag_of_phase(*phase)).collect();
        assert_uniform("lift_tags", tags.iter().copied(), PLAIN_MODULUS);
        let neighbours = tags.array_windows().map(|[a, b]| plain::sub(*b, *a));
        assert_uniform("lift_tags, neighbours", neighbours, PLAIN_MODULUS);
        assert_flooded("lift_tags, below the step", &phases);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn relabelling_shows_uniform_numbers() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(210 + seed as u64);
        let label = Arc::new(Label::draw(&mut parties.rng));
        let input = |slots| Combination {
            terms: vec![(slots, vec![1])],
            clear: None,
            labels: vec![label.clone()],
            block: DEGREE,
            repeated: false,
        };
        let inputs = parties.constant(value, 2).into_iter().map(input).collect();
        relabel(&parties.session, inputs).await.unwrap();
        // Equal numbers of one list: blinded independently, their quotients are uniform too.
        let seen = parties.transcript().concat();
        assert!(seen.iter().all(|z| *z != 0));
        let quotients = seen.array_windows().map(|[a, b]| plain::mul(*a, plain::inverse(*b)));
        assert_uniform("relabel, neighbours", quotients, PLAIN_MODULUS);
        assert_uniform("relabel", seen.iter().copied(), PLAIN_MODULUS);
    }
}

/// P2 sees which labels of a list are equal, and uniform numbers: not the values, not their differences, and nothing that two lists
/// have in common.
#[tokio::test(flavor = "multi_thread")]
async fn classes_show_their_sizes_and_nothing_else() {
    let mut parties = Parties::new(220);
    let keys = parties.owner.p2();
    // Neighbouring numbers, each twice in a list.
    let values: Vec<u64> = (0..DEGREE as u64).map(|slot| slot / 2).collect();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let slots = keys.slot().seal(&values, &mut parties.rng).expand().unwrap().raised();
        let labels = vec![Arc::new(Label::draw(&mut parties.rng))];
        let input = Combination { terms: vec![(slots, vec![1])], clear: None, labels, block: DEGREE, repeated: false };
        let vectors = relabel(&parties.session, vec![input]).await.unwrap();
        parties.transcript();
        let labels = vec![Labels { vectors, lists: 1 }];
        assert_eq!(count_classes(&parties.session, DEGREE, DEGREE, 2, true, labels).await.unwrap(), [0]);
        seen.extend(parties.transcript().concat());
    }
    let pairs = seen.as_chunks::<2>().0;
    assert!(pairs.iter().all(|[first, second]| first == second));
    let labels: Vec<u64> = pairs.iter().map(|[label, _]| *label).collect();
    assert_uniform("labels", labels.iter().copied(), PLAIN_MODULUS);
    let differences = labels.array_windows().map(|[a, b]| plain::sub(*b, *a));
    assert_uniform("differences of labels", differences, PLAIN_MODULUS);
    // Second differences of neighbouring numbers are zero; those of their labels are as uniform as they come.
    let bends = labels.array_windows().map(|[a, b, c]| plain::sub(plain::add(*a, *c), plain::add(*b, *b)));
    assert_uniform("second differences of labels", bends, PLAIN_MODULUS);
    let lists: Vec<&[u64]> = labels.chunks(DEGREE / 2).collect();
    let across = lists.array_windows().flat_map(|[a, b]| a.iter().zip(*b).map(|(a, b)| plain::sub(*a, *b)));
    assert_uniform("labels of the same number in two lists", across, PLAIN_MODULUS);
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

/// Of sums of tags P2 sees which are equal and how they differ; where they lie is uniform for every set, and what is below is flood.
#[tokio::test(flavor = "multi_thread")]
async fn counted_tags_show_differences_and_nothing_else() {
    let mut parties = Parties::new(230);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let responder = Responder::new(Arc::new(parties.owner.p2()), Limits::default(), Randomness::fixed(231));
    let channel = Listener::new(Arc::new(responder), requests.clone());
    let sanitizer = Sanitizer::new(parties.owner.p1().public_key().clone());
    let session = Session::with(Arc::new(channel), parties.owner.key_id(), sanitizer, Randomness::fixed(232));
    let tags = [[5, 5, 9, 9], [1, 1, 1, PLAIN_MODULUS - 1]];
    let columns: Vec<TagColumn> = tags.iter().map(|tags| tag_column(&mut parties, tags)).collect();
    let mut sources: Vec<Source> = columns.iter().cloned().map(Source::Tags).collect();
    sources.push(Source::Clear(vec![0, 1, 0, 1]));
    let table = Arc::new(TagTable::new(sources, 4).unwrap());
    let asked = [0b001, 0b010, 0b011, 0b111];
    let sets: Vec<u64> = asked.into_iter().cycle().take(12_000).collect();
    count_tags(&session, table, sets.clone(), 2, true).await.unwrap();

    let keys = parties.owner.p2();
    let mask = |column: &TagColumn| {
        let samples = column.samples.iter().flatten().map(|sample| Sample { body: 0, ..*sample });
        keys.open_samples(&samples.collect::<Vec<_>>())
    };
    let masks: Vec<_> = columns.iter().map(mask).collect();
    let mut bodies: Vec<u64> = Vec::new();
    for request in requests.lock().unwrap().iter() {
        let column = request.batch.column_by_name("bodies").unwrap().as_binary::<i64>();
        bodies.extend(column.value(0).as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
    }
    let rows = bodies.as_chunks::<4>().0;
    assert_eq!(rows.len(), sets.len());
    let (mut firsts, mut phases, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for (set, bodies) in sets.iter().zip(rows) {
        let used = masks.iter().enumerate().filter(|(column, _)| set >> column & 1 == 1).map(|(_, mask)| mask);
        let seen = used.fold(*bodies, |phases, mask| std::array::from_fn(|row| phases[row].wrapping_add(mask[row])));
        let sums: Vec<u64> = seen.iter().map(|phase| tag_of_phase(*phase)).collect();
        let differences: Vec<u64> = sums.iter().map(|sum| plain::sub(*sum, sums[0])).collect();
        let last = PLAIN_MODULUS - 2;
        match set {
            0b001 => assert_eq!(differences, [0, 0, 4, 4]),
            0b010 => assert_eq!(differences, [0, 0, 0, last]),
            0b011 => assert_eq!(differences, [0, 0, 4, plain::add(last, 4)]),
            _ => labels.push(differences[1]),
        }
        firsts.push(sums[0]);
        phases.extend(seen);
    }
    assert_uniform("where sums lie", firsts, PLAIN_MODULUS);
    assert_flooded("below the step", &phases);
    // One label of a clear value in a run, which says nothing about the value.
    assert!(labels.iter().all(|label| *label == labels[0] && *label > 1));
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

/// Whatever the order of the rows is, and whichever columns make the same classes: P2 sees classes of these sizes, each at any place
/// with the same probability, with labels that have nothing to do with each other or with those of another set.
#[tokio::test(flavor = "multi_thread")]
async fn a_shuffled_search_shows_sizes_of_classes_and_nothing_else() {
    const VECTORS: usize = 24;
    const LISTS: usize = DEGREE / 16;
    let orders: [fn(usize) -> usize; 2] = [|row| row, |row| 14 - row];
    for (seed, (pairs, order)) in [(false, orders[0]), (false, orders[1]), (true, orders[0])].into_iter().enumerate() {
        let mut parties = Parties::new(240 + seed as u64);
        let columns = fifteen_rows(&mut parties, pairs, order);
        let set = if pairs { 0b11 } else { 0b1 };
        let table = Table::prepare(Some(parties.session.clone()), Method::Shuffled, 15, columns).await.unwrap();
        parties.transcript();
        let found = table.small_classes(&[set; VECTORS * LISTS], 3, true, |_| {}).await.unwrap();
        assert!(found.iter().all(|rows| *rows == 3));

        let mut opened = parties.transcript();
        let labels = opened.split_off(opened.len() - VECTORS).concat();
        // Before the labels: one relabelling and three rounds of a shuffle, all masked.
        assert_eq!(opened.len(), 4 * VECTORS);
        assert_uniform("masked", opened.concat(), PLAIN_MODULUS);
        let mut places = vec![0; 15];
        let (mut smallest, mut bends, mut behind) = (Vec::new(), Vec::new(), Vec::new());
        for list in labels.as_chunks::<16>().0 {
            behind.push(list[15]);
            let mut classes: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            list[..15].iter().enumerate().for_each(|(place, label)| classes.entry(*label).or_default().push(place));
            let mut classes: Vec<(usize, u64, usize)> =
                classes.into_iter().map(|(label, places)| (places.len(), label, places[0])).collect();
            classes.sort_unstable();
            let [(1, a, place), (2, b, _), (4, c, _), (8, d, _)] = classes[..] else { panic!("{classes:?}") };
            places[place] += 1;
            smallest.push(a);
            // Zero for sums of pairs, and for labels that are linear in them.
            bends.push(plain::sub(plain::add(a, d), plain::add(b, c)));
        }
        // The first class has tag zero, which is what lies behind the rows: P2 must not see that.
        assert_uniform("behind the rows", behind, PLAIN_MODULUS);
        assert_equally_likely("where the only row of its class is", &places);
        assert_uniform("its label", smallest.iter().copied(), PLAIN_MODULUS);
        assert_uniform("what labels of pairs add up to", bends, PLAIN_MODULUS);
        let between = smallest.array_windows().map(|[a, b]| plain::sub(*b, *a));
        assert_uniform("labels of one class in two sets", between, PLAIN_MODULUS);
    }
}

/// Sums of clusters: tiles and columns, and then their products, are uniform whatever they hold.
#[tokio::test(flavor = "multi_thread")]
async fn sums_of_clusters_show_uniform_numbers() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(900 + seed as u64);
        let (columns, assignment) = (parties.constant(value, 2), parties.constant(value, 3));
        let tiles = Tiles::new(1000, 24);
        cluster_sums(&parties.session, &tiles, &[columns], &[assignment]).await.unwrap();
        let transcript = parties.transcript();
        // Three tiles and two columns, then one vector for each pair of them.
        assert_eq!(transcript.len(), 5 + 6);
        assert_uniform("tiles and columns", transcript[..5].concat(), PLAIN_MODULUS);
        assert_uniform("block_sums", transcript[5..].concat(), PLAIN_MODULUS);
        // Vectors that hold the same are masked independently: their differences are uniform too.
        let difference = |[a, b]: &[Vec<u64>; 2]| a.iter().zip(b).map(|(a, b)| plain::sub(*a, *b)).collect::<Vec<_>>();
        let differences = transcript.as_chunks::<2>().0.iter().map(difference).collect::<Vec<_>>();
        assert_uniform("differences", differences.concat(), PLAIN_MODULUS);
    }
}

/// Lookups over long ranges: every residue is as likely, whatever the number.
#[tokio::test(flavor = "multi_thread")]
async fn long_lookups_show_uniform_numbers() {
    for (seed, value) in [0, 7, 15].into_iter().enumerate() {
        let mut parties = Parties::new(910 + seed as u64);
        let table: Arc<[u64]> = (0..16).collect();
        let (mut masked, mut residues) = (Vec::new(), [0; 16]);
        for slots in parties.constant(value, 2) {
            let question =
                lookup_long::Question { slots: vec![slots], centres: DEGREE, columns: 1, tables: vec![table.clone()] };
            lookup_long::lookup_long(&parties.session, question).await.unwrap();
            let transcript = parties.transcript();
            // One masked vector for sixteen tiles, then what `block_sums` adds up.
            assert_eq!(transcript.len(), 1 + 16);
            transcript[0].iter().for_each(|w| residues[(w % 16) as usize] += 1);
            masked.extend_from_slice(&transcript[0]);
            assert_uniform("block_sums", transcript[1..].concat(), PLAIN_MODULUS);
        }
        assert_equally_likely("residue", &residues);
        assert_uniform("lookup_long", masked, PLAIN_MODULUS);
    }
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
    ];
    assert_eq!(declared, expected);
    let to_p1: Vec<&str> =
        catalog::CATALOG.iter().filter(|entry| entry.leakage.p1 != "nothing").map(|entry| entry.name).collect();
    assert_eq!(
        to_p1,
        ["open", "count_classes", "count_tags", "count_small", "apply", "check_classes", "size_histogram"]
    );
}
