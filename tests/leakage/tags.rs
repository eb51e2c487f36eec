//! Equality tags: which rows are equal, and nothing of their values.

use super::*;

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

/// Of sums of tags P2 sees which are equal and how they differ; where they lie is uniform for every set, and what is below is flood.
#[tokio::test(flavor = "multi_thread")]
async fn counted_tags_show_differences_and_nothing_else() {
    let mut parties = Parties::new(230);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let responder = Responder::new(Arc::new(parties.owner.p2()), Limits::default(), Randomness::fixed(231));
    let channel = Listener::new(Arc::new(responder.with_desk(Arc::new(AnyQuestion))), requests.clone());
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
