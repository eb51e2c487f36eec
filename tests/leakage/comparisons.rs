//! Blinded comparisons, and equality of pairs: what the blur leaves, and nothing else.

use super::*;

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
