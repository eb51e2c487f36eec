//! From cells to slots and back, with and without noise: masked, or uniform.

use super::*;

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
