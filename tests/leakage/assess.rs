//! Risk and utility: P2 must not tell two tables apart whose classes have the same sizes, and sees these in no order.

use arrow::array::ArrayRef;
use veil_protocols::assess::{
    Classes, Frequencies, Numbers, Published, Suppressed, ancestors, class_sizes, entropy, generalisation,
    information_loss, ranges,
};
use veil_protocols::gather::{Places, gather};
use veil_protocols::group::group;
use veil_protocols::k_anonymize::{Bounds, Values};

use super::k_anonymize::Heard;
use super::*;

fn cells(parties: &mut Parties, kind: Kind, lanes: u8, messages: &[i64]) -> ArrayRef {
    let width = Width::of_range(-1, 100).unwrap();
    let cell_type = CellType::new(kind, width, lanes, parties.owner.key_id(), ColumnId([2; 8]));
    Arc::new(encrypt_column(&parties.owner, &cell_type, messages, None, &mut parties.rng).unwrap())
}

/// Whichever rows are suppressed and whatever the order of all is: P2 sees classes of the same sizes, at any place with the same probability.
#[tokio::test(flavor = "multi_thread")]
async fn size_histograms_show_sizes_of_classes_and_nothing_else() {
    const VECTORS: usize = 24;
    const LISTS: usize = DEGREE / 16;
    let orders: [fn(usize) -> usize; 2] = [|row| row, |row| 14 - row];
    for (seed, order) in orders.into_iter().enumerate() {
        let mut parties = Parties::new(1100 + seed as u64);
        let columns = fifteen_rows(&mut parties, seed == 1, order);
        // The only row of its class, and one of the largest.
        let gone: Vec<i64> = (0..15).map(|row| i64::from([0, 14].contains(&order(row)))).collect();
        let flags = cells(&mut parties, Kind::Boolean, 1, &gone);
        let suppressed = Suppressed::lift(&parties.session, &flags).await.unwrap();
        let set = if seed == 1 { 0b11 } else { 0b1 };
        parties.transcript();
        let sets = [set; VECTORS * LISTS];
        let found = class_sizes(Some(&parties.session), 15, columns, Some(&suppressed), &sets, &|_| ()).await.unwrap();
        assert!(found.iter().all(|sizes| sizes.suppressed == 2 && sizes.classes == [(2, 1), (4, 1), (7, 1)]));

        let mut opened = parties.transcript();
        let labels = opened.split_off(opened.len() - VECTORS).concat();
        let (mut places, mut of_pair, mut behind) = (vec![0; 15], Vec::new(), Vec::new());
        for list in labels.as_chunks::<16>().0 {
            behind.push(list[15]);
            let mut classes: BTreeMap<u64, usize> = BTreeMap::new();
            list[..15].iter().for_each(|label| *classes.entry(*label).or_default() += 1);
            assert_eq!(classes.get(&0), Some(&2));
            list[..15].iter().enumerate().filter(|(_, label)| **label == 0).for_each(|(place, _)| places[place] += 1);
            of_pair.extend(classes.iter().filter(|(label, rows)| **label != 0 && **rows == 2).map(|(label, _)| *label));
        }
        assert_uniform("behind the rows", behind, PLAIN_MODULUS);
        assert_equally_likely("where suppressed rows are", &places);
        assert_uniform("the label of a class", of_pair.iter().copied(), PLAIN_MODULUS);
        let between = of_pair.array_windows().map(|[a, b]| plain::sub(*b, *a));
        assert_uniform("labels of one class in two lists", between, PLAIN_MODULUS);
    }
}

/// What is moved and gathered is masked, whatever it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_grouped_is_uniform_whatever_it_holds() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(1110 + seed as u64);
        let (labels, column) = (parties.constant(7, 1), parties.constant(value, 1));
        group(&parties.session, 100, labels, vec![column.clone(), column.clone()]).await.unwrap();
        let transcript = parties.transcript();
        // Seven bits take five stages; each opens labels and two columns.
        assert_eq!(transcript.len() % 3, 0);
        for stage in transcript.as_chunks::<3>().0 {
            assert!(stage[0][..100].iter().all(|label| *label == 7));
        }
        let behind = transcript.chunks(3).flat_map(|stage| stage[0][100..].to_vec());
        assert_uniform("behind the labels", behind, PLAIN_MODULUS);
        let masked: Vec<&Vec<u64>> = transcript.chunks(3).flat_map(|stage| &stage[1..]).collect();
        assert_uniform("group", masked.iter().flat_map(|values| values.iter().copied()), PLAIN_MODULUS);
        let differences = masked.array_windows().flat_map(|[a, b]| a.iter().zip(*b).map(|(a, b)| plain::sub(*a, *b)));
        assert_uniform("columns that hold the same", differences, PLAIN_MODULUS);
        let wanted = Places { vectors: [column.clone(), column].concat(), places: vec![5, 5, 8192] };
        gather(&parties.session, vec![wanted]).await.unwrap();
        assert_uniform("gather", parties.transcript().concat(), PLAIN_MODULUS);
    }
}

/// A table of fifteen rows, two of them suppressed, and all that is measured of it.
async fn assessed(seed: u64, order: fn(usize) -> usize, spread: i64, in_order: bool) -> Heard {
    let mut heard = Heard::new(seed);
    let parties = &mut heard.parties;
    let columns = fifteen_rows(parties, false, order);
    let gone: Vec<i64> = (0..15).map(|row| i64::from([0, 14].contains(&order(row)))).collect();
    let flags = cells(parties, Kind::Boolean, 1, &gone);
    let ages: Vec<i64> = (0..15).map(|row| spread * order(row) as i64).collect();
    let published: Vec<i64> = (0..15).map(|row| spread * (order(row) as i64 / 4)).collect();
    let leaf = |row: usize, level: usize| if level == 0 { 10 * (order(row) as i64 % 4) } else { 0 };
    let original: Vec<i64> = (0..15).flat_map(|row| [leaf(row, 0), leaf(row, 1)]).collect();
    // Out of order, somebody is published as the leaf of others.
    let beside = |row: usize| leaf(row, 0) + if in_order || order(row) != 14 { 0 } else { 10 };
    let general: Vec<i64> = (0..15).flat_map(|row| [if order(row) < 9 { -1 } else { beside(row) }, 0]).collect();
    let cell_columns = [(Kind::Integer, 1, &ages), (Kind::Integer, 1, &published)];
    let [ages, published] = cell_columns.map(|(kind, lanes, messages)| cells(parties, kind, lanes, messages));
    let [original, general] = [&original, &general].map(|messages| cells(parties, Kind::Category, 2, messages));
    let session = parties.session.clone();
    let shape: Arc<[Vec<i64>]> = (0..4).map(|leaf| vec![10 * leaf, 0]).collect();
    let category = |cells: ArrayRef| Published { cells, levels: 2, bits: 8, shape: Some(shape.clone()) };
    let suppressed = Suppressed::lift(&session, &flags).await.unwrap();
    let sizes = class_sizes(Some(&session), 15, columns.clone(), Some(&suppressed), &[1], &|_| ()).await.unwrap();
    generalisation(&session, &[category(general.clone())], &|_| ()).await.unwrap();
    let frequencies = [Frequencies { original: category(original), published: category(general) }];
    assert_eq!(ancestors(&session, &frequencies).await.unwrap(), [in_order]);
    entropy(&session, &frequencies, &|_| ()).await.unwrap();
    let values = Values::Numbers { cells: ages, bits: 8, bounds: Bounds::Public(0, 100) };
    let numbers = [Numbers { original: values, published, bits: 8 }];
    information_loss(&session, 15, &numbers, Some(&suppressed), &|_| ()).await.unwrap();
    let classes = Classes { columns, suppressed: Some(&suppressed), sizes: &sizes[0] };
    ranges(&session, 15, classes, &numbers, &|_| ()).await.unwrap();
    heard
}

/// Two tables that have nothing in common but how large their classes are, of one of which categories are not in order: the same messages, and what P2 opens of them is masked in both.
#[tokio::test(flavor = "multi_thread")]
async fn assessments_of_tables_with_classes_alike_look_alike() {
    let (one, other) = (assessed(1120, |row| row, 1, true).await, assessed(1130, |row| 14 - row, 7, false).await);
    assert_eq!(one.shape(), other.shape());
    let (one, other) = (one.by_protocol(), other.by_protocol());
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for seen in [one, other] {
        for protocol in ["multiply", "slot_sum", "gather", "fold", "arrange", "relabel"] {
            let Some(opened) = seen.get(protocol) else { panic!("no run of {protocol}") };
            assert_uniform(protocol, opened.concat(), PLAIN_MODULUS);
        }
        let sizes = |labels: &[u64]| {
            let mut classes: BTreeMap<u64, usize> = BTreeMap::new();
            labels.iter().for_each(|label| *classes.entry(*label).or_default() += 1);
            let mut sizes: Vec<usize> = classes.into_values().collect();
            sizes.sort_unstable();
            sizes
        };
        for opened in seen["size_histogram"].iter().chain(seen["group"].iter().step_by(2)) {
            assert_eq!(sizes(&opened[..15]), [2, 2, 4, 7]);
        }
    }
}
