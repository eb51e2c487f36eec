//! Protocols that work slot by slot: on any number of vectors at once, to the last slot of each.

use std::sync::Arc;

use veil_protocols::and::and;
use veil_protocols::compare_and_select::{self, compare_and_select};
use veil_protocols::compare_exact::{self, compare_exact};
use veil_protocols::few::{truncate_half, truncate_wide, zero_test_few};
use veil_protocols::fold::{fold, refresh};
use veil_protocols::less_than::{Masked, less_than};
use veil_protocols::lookup::{Question, Table, lookup};
use veil_protocols::multiply::multiply;
use veil_protocols::open::{Aggregate, Purpose, open};
use veil_protocols::relabel::{Combination, Label, relabel};
use veil_protocols::slot_sum::slot_sum;
use veil_protocols::truncate::{Dividend, Rounding, truncate};
use veil_protocols::zero_test::zero_test;
use veil_protocols::{Layout, Tiles};
use veil_slots::{DEGREE, L1, PLAIN_MODULUS, Slots, plain};

use crate::Parties;

/// One, two, no power of two, and as many as do not go in one batch.
const VECTORS: [usize; 5] = [1, 2, 3, 5, 17];

#[tokio::test(flavor = "multi_thread")]
async fn products_bits_and_sums() {
    let mut parties = Parties::new(1);
    for count in VECTORS {
        let slots = count * DEGREE;
        let (a, b) = (parties.below(PLAIN_MODULUS, slots), parties.below(PLAIN_MODULUS, slots));
        let (x, y) = (parties.vectors(&a), parties.vectors(&b));
        let session = &parties.session;
        let products = multiply(session, x.iter().cloned().zip(y.iter().cloned()).collect()).await.unwrap();
        let expected: Vec<u64> = a.iter().zip(&b).map(|(a, b)| plain::mul(*a, *b)).collect();
        assert_eq!(parties.open(&products), expected, "{count} vectors");
        let sums = slot_sum(session, x.clone()).await.unwrap();
        let sums: Vec<Slots<L1>> = sums.iter().map(Slots::raised).collect();
        let of_vector = |values: &[u64]| values.iter().fold(0, |sum, value| plain::add(sum, *value));
        let expected: Vec<u64> = a.chunks(DEGREE).flat_map(|values| [of_vector(values); DEGREE]).collect();
        assert_eq!(parties.open(&sums), expected, "{count} vectors");
        assert_eq!(parties.open(&refresh(session, x.clone()).await.unwrap()), a);

        let bits: Vec<Vec<u64>> = (0..3).map(|_| parties.below(2, slots)).collect();
        let sealed: Vec<Vec<Slots<L1>>> = bits.iter().map(|bits| parties.vectors(bits)).collect();
        let groups = (0..count).map(|at| sealed.iter().map(|bits| bits[at].clone()).collect()).collect();
        let all = and(&parties.session, groups).await.unwrap();
        let expected: Vec<u64> = (0..slots).map(|slot| bits.iter().map(|bits| bits[slot]).product()).collect();
        assert_eq!(parties.open(&all), expected, "{count} vectors");

        let aggregate = |slots: &Slots<L1>| Aggregate { slots: slots.clone(), count: 32, purpose: Purpose::Metric };
        let opened = open(&parties.session, x.iter().map(aggregate).collect()).await.unwrap();
        let expected: Vec<Vec<i64>> =
            a.chunks(DEGREE).map(|values| values[..32].iter().map(|value| plain::centred(*value)).collect()).collect();
        assert_eq!(opened, expected);
    }
}

/// Rows of short tables in every block.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_added_up_in_every_block() {
    let mut parties = Parties::new(2);
    for rows in [1, 2, 5, 31, 32, 33, 64, 193] {
        let tiles = Tiles::new(rows, 1);
        let values = parties.below(1000, rows);
        let vectors = parties.vectors(&values);
        let folded = fold(&parties.session, &tiles, vectors).await.unwrap();
        let opened = parties.open(&folded);
        for (slot, found) in opened.iter().enumerate() {
            let row = tiles.row_of(slot / DEGREE, slot % DEGREE);
            assert_eq!(*found, row.map_or(0, |row| values[row]), "{rows} rows, slot {slot}");
        }
        assert_eq!(folded.len(), rows.div_ceil(DEGREE));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comparisons_and_quotients() {
    let mut parties = Parties::new(3);
    for count in VECTORS {
        let slots = count * DEGREE;
        let (mut a, b) = (parties.below(1 << 30, slots), parties.below(1 << 30, slots));
        // Ties, also in the first and the last slot.
        (0..slots).step_by(7).chain([0, slots - 1]).for_each(|slot| a[slot] = b[slot]);
        let (x, y) = (parties.vectors(&a), parties.vectors(&b));
        let session = &parties.session;
        let pairs = || x.iter().cloned().zip(y.iter().cloned());
        let exact = pairs().map(|(a, b)| compare_exact::Pair { a, b, bits: 31 }).collect();
        let less = parties.open(&compare_exact(session, exact).await.unwrap());
        let blinded = pairs().map(|(a, b)| compare_and_select::Pair { a, b, bits: 31 }).collect();
        let selected = compare_and_select(session, blinded).await.unwrap();
        let (min, first): (Vec<_>, Vec<_>) = selected.into_iter().map(|made| (made.min, made.first)).unzip();
        let (min, first) = (parties.open(&min), parties.open(&first));
        for slot in 0..slots {
            let (a, b) = (a[slot], b[slot]);
            assert_eq!((less[slot], min[slot], first[slot]), (u64::from(a < b), a.min(b), u64::from(a <= b)));
        }
        let masks: Vec<Vec<u64>> = (0..count).map(|_| parties.below(PLAIN_MODULUS, DEGREE)).collect();
        let masked = x.iter().zip(&masks).map(|(slots, mask)| Masked { slots: slots.clone(), mask: mask.clone() });
        let wrapped = parties.open(&less_than(&parties.session, masked.collect()).await.unwrap());
        let expected: Vec<u64> =
            a.iter().zip(masks.concat()).map(|(x, mask)| u64::from(plain::add(*x, mask) < mask)).collect();
        assert_eq!(wrapped, expected, "{count} vectors");

        let dividends =
            |rounding| x.iter().map(|slots| Dividend { slots: slots.clone(), shift: 11, rounding }).collect::<Vec<_>>();
        let floor: Vec<u64> = a.iter().map(|x| x >> 11).collect();
        let nearest: Vec<u64> = a.iter().map(|x| (x + (1 << 10)) >> 11).collect();
        let session = &parties.session;
        let exact = truncate(session, dividends(Rounding::Floor)).await.unwrap();
        assert_eq!(parties.open(&exact), floor, "{count} vectors");
        // Digits side by side, of one number up to a whole vector.
        for used in [1, 2, 31, 32, 33, 63, 64] {
            let half = truncate_half(session, used, dividends(Rounding::Floor)).await.unwrap();
            let wide = truncate_wide(session, used, dividends(Rounding::Nearest)).await.unwrap();
            let (half, wide) = (parties.open(&half), parties.open(&wide));
            for slot in (0..slots).filter(|slot| slot % DEGREE < used) {
                assert_eq!((half[slot], wide[slot]), (floor[slot], nearest[slot]), "{used} numbers, slot {slot}");
            }
            if used < DEGREE / 2 {
                assert!((0..slots).filter(|slot| slot % DEGREE >= used).all(|slot| half[slot] == 0));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_over_domains() {
    let mut parties = Parties::new(4);
    for count in VECTORS {
        let slots = count * DEGREE;
        let values = parties.below(20, slots);
        let vectors = parties.vectors(&values);
        let session = &parties.session;
        let zeros = zero_test(session, vectors.clone()).await.unwrap();
        let expected: Vec<u64> = values.iter().map(|value| u64::from(*value == 0)).collect();
        assert_eq!(parties.open(&zeros), expected, "{count} vectors");
        for used in [1, 2, 31, 33, 64] {
            let found = parties.open(&zero_test_few(session, used, vectors.clone()).await.unwrap());
            let of_slot = |slot: usize| if slot % DEGREE < used { expected[slot] } else { 0 };
            assert_eq!(found, (0..slots).map(of_slot).collect::<Vec<_>>(), "{used} numbers");
        }
        // A range goes another way than scattered numbers.
        let scattered: Arc<[u64]> = (0..20).map(|value: u64| value * value).collect();
        let squares: Vec<u64> = values.iter().map(|value| value * value).collect();
        let sealed = parties.vectors(&squares);
        let cubes = Table::Shared((0..20).map(|value: u64| value.pow(3)).collect());
        let question = |slots: Slots<L1>, domain: Arc<[u64]>| Question { slots, domain, tables: vec![cubes.clone()] };
        let range: Arc<[u64]> = (0..20).collect();
        let questions: Vec<Question> = vectors
            .into_iter()
            .map(|slots| question(slots, range.clone()))
            .chain(sealed.into_iter().map(|slots| question(slots, scattered.clone())))
            .collect();
        let found = lookup(&parties.session, questions).await.unwrap().concat();
        let expected: Vec<u64> = values.iter().chain(&values).map(|value| value.pow(3)).collect();
        assert_eq!(parties.open(&found), expected, "{count} vectors");
    }
}

/// Labels of one list, of as many vectors as there are, are one function of what is labelled.
#[tokio::test(flavor = "multi_thread")]
async fn labels_are_one_function_over_all_vectors() {
    let mut parties = Parties::new(5);
    for rows in [1, 2, 33, 64, 65, 193, 321] {
        let layout = Layout::new(rows);
        let (a, b) = (parties.below(5, rows), parties.below(5, rows));
        let (x, y) = (parties.vectors(&a), parties.vectors(&b));
        let label = Arc::new(Label::draw(&mut parties.rng));
        let combination = |vector: usize| Combination {
            terms: vec![(x[vector].clone(), vec![3]), (y[vector].clone(), vec![1000])],
            clear: None,
            labels: vec![label.clone()],
            block: layout.block(),
            repeated: false,
        };
        let made = relabel(&parties.session, (0..x.len()).map(combination).collect()).await.unwrap();
        let expected: Vec<u64> = a.iter().zip(&b).map(|(a, b)| label.of(3 * a + 1000 * b)).collect();
        assert_eq!(parties.open(&made)[..rows], expected, "{rows} rows");
    }
}
