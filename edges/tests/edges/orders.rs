//! Lists in another order, and what is counted of them.

use std::collections::HashMap;

use veil_protocols::Layout;
use veil_protocols::count_classes::{Labels, count_classes};
use veil_protocols::gather::{Places, gather};
use veil_protocols::group::group;
use veil_protocols::pairwise::{block_of, pairwise};
use veil_protocols::shuffle::{Orders, shuffle};
use veil_protocols::size_histogram::{Sizes, size_histogram};
use veil_slots::{DEGREE, Slots};

use crate::{EDGES, Parties};

/// The vectors of a list, whose last ones may have no row.
fn list(parties: &mut Parties, layout: Layout, values: &[u64]) -> Vec<Slots<veil_slots::L1>> {
    let mut vectors = parties.vectors(values);
    vectors.resize(layout.vectors_per_list(), Slots::clear(&[]));
    vectors
}

fn sorted(values: &[u64]) -> Vec<u64> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_every_length_are_shuffled() {
    let mut parties = Parties::new(60);
    for rows in EDGES {
        let layout = Layout::new(rows);
        // Different numbers in each of three lists.
        let values: Vec<Vec<u64>> =
            (0..3).map(|of| (0..rows as u64).map(|row| 1000 * of + row + 1).collect()).collect();
        let groups = values.iter().map(|values| list(&mut parties, layout, values)).collect();
        let shuffled = shuffle(&parties.session, layout, Orders::Independent, groups).await.unwrap();
        assert_eq!(shuffled.len(), 3);
        let opened: Vec<Vec<u64>> = shuffled.iter().map(|vectors| parties.open(vectors)).collect();
        for (opened, values) in opened.iter().zip(&values) {
            assert_eq!(opened.len(), layout.vectors_per_list() * DEGREE);
            assert_eq!(sorted(&opened[..rows]), *values, "{rows} rows");
            assert!(opened[rows..].iter().all(|slot| *slot == 0), "{rows} rows");
            assert!(rows < 31 || opened[..rows] != values[..], "{rows} rows");
        }
    }
}

/// Several lists in a vector, each in an order of its own, or all alike.
#[tokio::test(flavor = "multi_thread")]
async fn lists_that_share_a_vector_keep_to_their_block() {
    let mut parties = Parties::new(61);
    for rows in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32] {
        let layout = Layout::new(rows);
        let (block, lists) = (layout.block(), layout.lists_per_vector());
        let value = |slot: usize| if slot % block < rows { 1 + slot as u64 } else { 0 };
        let values: Vec<u64> = (0..DEGREE).map(value).collect();
        for orders in [Orders::Independent, Orders::Alike] {
            let vector = parties.seal(&values);
            let shuffled = shuffle(&parties.session, layout, orders, vec![vec![vector]]).await.unwrap();
            let opened = parties.open(&shuffled[0]);
            for at in 0..lists {
                let own = at * block..at * block + rows;
                assert_eq!(sorted(&opened[own.clone()]), values[own.clone()], "{rows} rows, list {at}");
                assert!(opened[own.end..(at + 1) * block].iter().all(|slot| *slot == 0));
                let moved = opened[own.clone()].iter().map(|value| value - (at * block) as u64);
                assert!(orders == Orders::Independent || moved.eq(opened[..rows].iter().copied()));
            }
        }
    }
}

fn sizes_of(values: &[u64]) -> HashMap<u64, u64> {
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    values.iter().for_each(|value| *sizes.entry(*value).or_default() += 1);
    sizes
}

/// Zero is the label of suppressed rows.
fn histogram(values: &[u64]) -> Sizes {
    let mut sizes = sizes_of(values);
    let suppressed = sizes.remove(&0).unwrap_or(0);
    let mut classes: HashMap<u64, u64> = HashMap::new();
    sizes.into_values().for_each(|size| *classes.entry(size).or_default() += 1);
    let mut classes: Vec<(u64, u64)> = classes.into_iter().collect();
    classes.sort_unstable();
    Sizes { suppressed, classes }
}

#[tokio::test(flavor = "multi_thread")]
async fn classes_are_counted_in_lists_of_every_length() {
    let mut parties = Parties::new(62);
    for rows in EDGES {
        let layout = Layout::new(rows);
        let lists: Vec<Vec<u64>> =
            (1..=2).map(|of| (0..rows as u64).map(|row| row * row * of % 13).collect()).collect();
        let labels: Vec<Labels> =
            lists.iter().map(|values| Labels { vectors: list(&mut parties, layout, values), lists: 1 }).collect();
        let (session, block) = (&parties.session, layout.block());
        for (k, detail) in [(1, true), (2, true), (5, false), (rows as u32 + 1, true)] {
            let found = count_classes(session, rows, block, k, detail, labels.clone()).await.unwrap();
            let expected = lists.iter().map(|values| {
                let small: u64 = sizes_of(values).into_values().filter(|size| *size < u64::from(k)).sum();
                if detail { small } else { small.min(1) }
            });
            assert_eq!(found, expected.collect::<Vec<_>>(), "{rows} rows, k = {k}");
        }
        let found = size_histogram(session, rows, block, labels).await.unwrap();
        assert_eq!(found, lists.iter().map(|values| histogram(values)).collect::<Vec<_>>(), "{rows} rows");
    }
}

/// As many lists as fit a vector, and as many as may be told of at once.
#[tokio::test(flavor = "multi_thread")]
async fn lists_side_by_side_are_counted_apart() {
    let mut parties = Parties::new(63);
    for rows in [1, 2, 3, 7, 8, 31, 32] {
        let layout = Layout::new(rows);
        let block = layout.block();
        let lists = layout.lists_per_vector().min(DEGREE / 2);
        let values: Vec<u64> = (0..DEGREE as u64).map(|slot| slot * slot % 5 + 1).collect();
        let labels = Labels { vectors: vec![parties.seal(&values)], lists };
        let found = count_classes(&parties.session, rows, block, 3, true, vec![labels.clone(), labels]).await.unwrap();
        let small = |list: &[u64]| sizes_of(&list[..rows]).into_values().filter(|size| *size < 3).sum::<u64>();
        let expected: Vec<u64> = values.chunks(block).take(lists).map(small).collect();
        assert_eq!(found, [expected.clone(), expected].concat(), "{rows} rows");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pairs_are_compared() {
    let mut parties = Parties::new(64);
    for rows in [1usize, 2, 3, 16, 17, 31, 32, 33, 63, 64] {
        let lists: Vec<Vec<u64>> =
            (1..=3).map(|of| (0..rows as u64).map(|row| row * row * of % 11).collect()).collect();
        let block = block_of(rows);
        let repeated = |values: &Vec<u64>| {
            (0..DEGREE).map(|slot| values.get(slot % block).copied().unwrap_or(7)).collect::<Vec<_>>()
        };
        let sealed: Vec<_> = lists.iter().map(|values| parties.seal(&repeated(values))).collect();
        for k in [1, 2, 4, 65] {
            let found = pairwise(&parties.session, rows, k, true, sealed.clone()).await.unwrap();
            let small =
                |values: &Vec<u64>| sizes_of(values).into_values().filter(|size| *size < u64::from(k)).sum::<u64>();
            assert_eq!(found, lists.iter().map(small).collect::<Vec<_>>(), "{rows} rows, k = {k}");
        }
    }
}

/// Every column moves with the labels, the largest class first, suppressed rows last.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_class_come_together() {
    let mut parties = Parties::new(65);
    for rows in EDGES {
        let layout = Layout::new(rows);
        // Classes of different sizes, and some rows that are suppressed.
        let labels: Vec<u64> = (0..rows as u64).map(|row| (row as f64).sqrt() as u64 % 9).collect();
        let columns: Vec<Vec<u64>> =
            (1..=3).map(|of| (0..rows as u64).map(|row| of * 10_000 + row).collect()).collect();
        let sealed = list(&mut parties, layout, &labels);
        let moving = columns.iter().map(|values| list(&mut parties, layout, values)).collect();
        let moved = group(&parties.session, rows, sealed, moving).await.unwrap();
        let opened: Vec<Vec<u64>> = moved.iter().map(|vectors| parties.open(vectors)[..rows].to_vec()).collect();
        for row in 0..rows {
            let origin = opened[0][row] - 10_000;
            assert!(opened.iter().zip(1..).all(|(column, of)| column[row] == of * 10_000 + origin), "{rows} rows");
        }
        let of_place: Vec<u64> = opened[0].iter().map(|value| labels[(value - 10_000) as usize]).collect();
        assert_eq!(sorted(&opened[0]), columns[0], "{rows} rows");
        let runs: Vec<&[u64]> = of_place.chunk_by(|a, b| a == b).collect();
        assert_eq!(runs.len(), sizes_of(&labels).len(), "{rows} rows: a class lies in two places");
        let published: Vec<usize> = runs.iter().filter(|run| run[0] != 0).map(|run| run.len()).collect();
        assert!(published.is_sorted_by(|a, b| a >= b) && runs[..published.len()].iter().all(|run| run[0] != 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_taken_from_wherever_they_lie() {
    let mut parties = Parties::new(66);
    for rows in EDGES {
        let values: Vec<u64> = (0..rows as u64).map(|row| row * 17 + 3).collect();
        let vectors = parties.vectors(&values);
        for count in [1, 63, 64, 65, 129, 193] {
            let places: Vec<u64> = (0..count as u64).map(|at| at * 37 % rows as u64).collect();
            let wanted = vec![Places { vectors: vectors.clone(), places: places.clone() }; 2];
            for found in gather(&parties.session, wanted).await.unwrap() {
                let opened = parties.open(&found);
                assert_eq!(opened.len(), usize::div_ceil(count, DEGREE) * DEGREE);
                let expected = places.iter().map(|place| values[*place as usize]);
                assert!(opened[..count].iter().copied().eq(expected), "{count} of {rows}");
                assert!(opened[count..].iter().all(|slot| *slot == 0));
            }
        }
    }
}
