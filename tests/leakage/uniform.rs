//! Values, bits and lookups: whatever they are, what P2 opens is uniform.

use super::*;

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
