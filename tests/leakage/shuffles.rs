//! Secret orders, and the factors of scaled cells.

use super::*;

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
