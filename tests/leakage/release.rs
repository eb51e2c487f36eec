//! A release: P2 must see uniform numbers whatever is released, and a recipient nothing of suppressed rows.

use veil_cells::{Cell, CellView, DenseSum, Mechanism, message_of_phase};
use veil_protocols::ProtocolError;
use veil_protocols::anchors::Anchors;
use veil_protocols::census::{Counted, Granted};
use veil_protocols::redraw::{Draw, redraw};
use veil_protocols::release::check_classes::{Labelled, check_classes};
use veil_protocols::release::masks::{Masks, Modulus};
use veil_protocols::release::seal_parcel::{Column as ParcelColumn, DenseSample, MAX_DENSE, Parcel, seal_parcels};
use veil_protocols::release::{Admission, Asked, ClassSizes, Desk, OpenedParcel, SealedParcel};

use super::*;

/// A desk that grants everything and seals nothing: what it hands out is what a recipient opens, before the masks come off.
struct OpenDesk;

impl Desk for OpenDesk {
    fn apply(&self, _: &[u8], _: &dyn KeyHolder, _: &mut dyn CryptoRng) -> Result<Admission, ProtocolError> {
        Ok(Admission { permit: Vec::new(), header: Vec::new(), terms: Vec::new() })
    }

    fn census(&self, _: [u8; 16], _: &[u8], _: Counted, _: &mut dyn CryptoRng) -> Result<Granted, ProtocolError> {
        Ok(Granted { receipt: Vec::new(), permit: Vec::new() })
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
        let words = parcel.columns.iter().flat_map(|column| column.words.iter().flat_map(|word| word.to_le_bytes()));
        Ok(SealedParcel { sealed: words.collect(), receipt: Vec::new() })
    }

    fn attest(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        Ok(Vec::new())
    }
}

fn parties(seed: u64) -> Parties {
    let parties = Parties::new(seed);
    let recorder = Recorder { keys: parties.owner.p2(), opened: parties.opened.clone() };
    let responder = Responder::new(Arc::new(recorder), Limits::default(), Randomness::fixed(seed + 1));
    let channel = Arc::new(InProcess::new(Arc::new(responder.with_desk(Arc::new(OpenDesk)))));
    let sanitizer = Sanitizer::new(parties.owner.p1().public_key().clone());
    let session = Session::with(channel, parties.owner.key_id(), sanitizer, Randomness::fixed(seed + 2));
    Parties { session, ..parties }
}

/// Parcels of one column; what comes out of P2, and what P2 opened.
async fn sealed(parties: &Parties, columns: Vec<ParcelColumn>) -> (Vec<Vec<u64>>, Vec<Vec<u64>>) {
    let parcel = |(number, column): (usize, ParcelColumn)| Parcel {
        permit: Vec::new(),
        number: number as u32 + 1,
        rows: DEGREE,
        anchors: anchors(&column),
        columns: vec![column],
        seed: seed_of(number),
    };
    let parcels = columns.into_iter().enumerate().map(parcel).collect();
    let words = |sealed: SealedParcel| {
        sealed.sealed.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<u64>>()
    };
    let out = seal_parcels(&parties.session, parcels).await.unwrap().into_iter().map(words).collect();
    (out, parties.transcript())
}

/// The rows of the file that a column's cells are of.
fn anchors(column: &ParcelColumn) -> Anchors {
    let mut anchors = Anchors::default();
    if let ParcelColumn::Cells(lanes) = column {
        let samples = lanes.iter().flatten();
        samples.for_each(|sample| anchors.add(&sample.seed.anchor(sample.index).into_iter().collect()));
    }
    anchors
}

fn seed_of(number: usize) -> [u8; 32] {
    let mut rng = StdRng::seed_from_u64(77 + number as u64);
    std::array::from_fn(|_| plain::uniform_below(256, &mut rng) as u8)
}

/// Whatever cells hold, P2 opens uniform messages of 48 bits, and below them what was there before: noise of at most 8.
#[tokio::test(flavor = "multi_thread")]
async fn parcels_of_cells_are_uniform_whatever_they_hold() {
    for (seed, value) in [0i64, 1, -128, 127].into_iter().enumerate() {
        let mut parties = parties(1000 + seed as u64);
        let width = Width::of_range(-128, 127).unwrap();
        let cell_type = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([1; 8]));
        let mut column = || {
            let cells = encrypt_column(&parties.owner, &cell_type, &[value; DEGREE], None, &mut parties.rng).unwrap();
            let sample = |bytes: Option<&[u8]>| {
                let cell = CellView::parse(bytes.unwrap()).unwrap();
                let term = cell.terms().next().unwrap();
                Sample { seed: term.seed, index: term.index, body: cell.bodies().next().unwrap() }
            };
            ParcelColumn::Cells(vec![cells.iter().map(sample).collect()])
        };
        let columns = vec![column(), column()];
        let (out, opened) = sealed(&parties, columns).await;
        let phases = opened.concat();
        let message = |phase: &u64| message_of_phase(*phase) as u64 & ((1 << 48) - 1);
        assert_uniform("messages", phases.iter().map(message), 1 << 48);
        let neighbours = phases.array_windows().map(|[a, b]| message(b).wrapping_sub(message(a)) & ((1 << 48) - 1));
        assert_uniform("neighbours", neighbours, 1 << 48);
        let below = |phase: &u64| (phase.wrapping_add(1 << 15) & 0xffff).abs_diff(1 << 15);
        assert!(phases.iter().all(|phase| below(phase) <= 8));
        for (number, words) in out.iter().enumerate() {
            let mut masks = Masks::new(seed_of(number));
            assert!(words.iter().all(|word| Modulus::Cells.unmask(*word, masks.next(Modulus::Cells)) == value));
        }
    }
}

/// Whatever sums add up to and of however many rows, P2 opens uniform messages of 48 bits; below them is what the encryptions' noise adds up to, which no value is in.
#[tokio::test(flavor = "multi_thread")]
async fn parcels_of_sums_are_uniform_whatever_they_add_up_to() {
    for (seed, (value, count)) in [(0i64, 40), (127, 40), (-128, 3000), (1, 3000)].into_iter().enumerate() {
        let mut parties = parties(1040 + seed as u64);
        let width = Width::of_range(-128, 127).unwrap();
        let cell_type = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([1; 8]));
        let cells = encrypt_column(&parties.owner, &cell_type, &[value; 6000], None, &mut parties.rng).unwrap();
        let sum = |first: usize| {
            let mut sum = DenseSum::new();
            (first..first + count).for_each(|row| sum.add(&Cell::from_bytes(cells.value(row)).unwrap()).unwrap());
            let sum = sum.finish().unwrap().unwrap();
            (DenseSample { mask: sum.lwe_masks().into_owned(), body: sum.bodies()[0] }, sum.noise().bound())
        };
        // Many parcels of the same two sums: what differs is the masks.
        let sums = [sum(0), sum(1234)];
        let bound = sums[0].1;
        let column = || {
            let samples = sums.iter().map(|(sample, _)| sample.clone()).cycle().take(MAX_DENSE);
            ParcelColumn::Dense(vec![samples.collect()])
        };
        let (out, opened) = sealed(&parties, (0..24).map(|_| column()).collect()).await;
        let phases = opened.concat();
        assert_eq!(phases.len(), 24 * MAX_DENSE);
        let message = |phase: &u64| message_of_phase(*phase) as u64 & ((1 << 48) - 1);
        assert_uniform("messages", phases.iter().map(message), 1 << 48);
        let neighbours = phases.array_windows().map(|[a, b]| message(b).wrapping_sub(message(a)) & ((1 << 48) - 1));
        assert_uniform("neighbours", neighbours, 1 << 48);
        let below = |phase: &u64| (phase.wrapping_add(1 << 15) & 0xffff).abs_diff(1 << 15);
        assert!(phases.iter().all(|phase| below(phase) <= bound));
        let of_a_sum: std::collections::BTreeSet<u64> = phases.iter().step_by(2).map(|phase| phase & 0xffff).collect();
        assert_eq!(of_a_sum.len(), 1, "masks do not touch what is below a message");
        for (number, words) in out.iter().enumerate() {
            let mut masks = Masks::new(seed_of(number));
            let expected = value * count as i64;
            assert!(words.iter().all(|word| Modulus::Cells.unmask(*word, masks.next(Modulus::Cells)) == expected));
        }
    }
}

/// Whatever slots hold and whoever is suppressed, P2 opens uniform numbers. A recipient gets values, and of suppressed rows noise.
#[tokio::test(flavor = "multi_thread")]
async fn parcels_of_slots_are_uniform_and_suppressed_rows_are_noise() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = parties(1010 + seed as u64);
        for flag in [0, 1] {
            // The second is a lane of row keys: what P1 drew in clear.
            let vectors = [parties.constant(value, 1).remove(0), Slots::clear(&[value; DEGREE])];
            let flags = parties.constant(flag, 2);
            let columns =
                vectors.into_iter().zip(flags).map(|(lane, flag)| ParcelColumn::Slots(vec![lane], Some(flag)));
            let (out, opened) = sealed(&parties, columns.collect()).await;
            assert_eq!(opened.len(), 2);
            let all = opened.concat();
            assert_uniform("slots", all.iter().copied(), PLAIN_MODULUS);
            assert_uniform("neighbours", all.array_windows().map(|[a, b]| plain::sub(*b, *a)), PLAIN_MODULUS);
            let mut received = Vec::new();
            for (number, words) in out.iter().enumerate() {
                let mut masks = Masks::new(seed_of(number));
                received.extend(words.iter().map(|word| plain::sub(*word, masks.next(Modulus::Slots))));
            }
            match flag {
                0 => assert!(received.iter().all(|found| *found == value)),
                _ => assert_uniform("suppressed rows", received, PLAIN_MODULUS),
            }
        }
    }
}

/// Whatever leaf a row has, P2 sees any of them alike.
#[tokio::test(flavor = "multi_thread")]
async fn draws_show_uniform_numbers_whatever_they_are_for() {
    let codes: Arc<Vec<Vec<i64>>> = Arc::new((0..20).map(|leaf| vec![leaf, 0]).collect());
    for (seed, value) in [0, 7, 20].into_iter().enumerate() {
        let mut parties = parties(1020 + seed as u64);
        let vectors = parties.constant(value, 2);
        let draw = Draw { mechanism: Mechanism::RandomizedResponse, epsilon: 1_000_000, codes: codes.clone() };
        redraw(&parties.session, vectors, &draw).await.unwrap();
        let opened = parties.transcript();
        assert_eq!(opened.len(), 4, "two vectors, of 21 shifts in two groups each");
        let all = opened.concat();
        assert_uniform("draws", all.iter().copied(), PLAIN_MODULUS);
        let mut residues = [0usize; 21];
        all.iter().for_each(|word| residues[(word % 21) as usize] += 1);
        assert_equally_likely("which leaf", &residues);
    }
}

/// P2 sees the labels that P1 made and shuffled, and behind the rows nothing.
#[tokio::test(flavor = "multi_thread")]
async fn counted_classes_show_their_labels_and_nothing_behind_them() {
    let mut parties = parties(1030);
    let vectors = parties.constant(5, 3);
    let labelled = Labelled { permit: Vec::new(), vectors, rows: 100 };
    let (_, sizes) = check_classes(&parties.session, labelled).await.unwrap();
    assert_eq!(sizes, ClassSizes { rows: 100, suppressed: 0, classes: 1, smallest: 100 });
    let opened = parties.transcript().concat();
    assert!(opened[..100].iter().all(|label| *label == 5));
    assert_uniform("behind the rows", opened[100..].iter().copied(), PLAIN_MODULUS);
}
