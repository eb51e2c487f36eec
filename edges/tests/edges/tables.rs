//! Classes of sets of columns: tagged, untagged, clear, with NULLs, one and several, against plain grouping.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use veil_protocols::assess::{Suppressed, class_sizes};
use veil_protocols::identifiers::{Column, Method, Table, Values};
use veil_protocols::size_histogram::Sizes;
use veil_slots::plain;

use crate::{EDGES, Parties};

/// A column of a kind, whose values are `Some`, or NULL.
type Clear = Vec<Option<i64>>;

/// Two tagged columns, two untagged ones, two that P1 sees; every second one has NULLs.
fn columns_of(rows: usize) -> [Clear; 6] {
    let column = |of: usize, nulls: bool| -> Clear {
        let value = |row: usize| (row * row * (of + 3) + row / (of + 2)) as i64 % (4 + of as i64);
        let mut values: Clear = (0..rows).map(|row| (!nulls || row % 11 != 5).then(|| value(row))).collect();
        // The last row is like no other.
        *values.last_mut().unwrap() = Some(90 + of as i64);
        values
    };
    std::array::from_fn(|of| column(of, of % 2 == 1))
}

fn label(column: usize, value: Option<i64>) -> u64 {
    value.map_or(4711 + column as u64, |value| plain::pow(value as u64 + 2, 12_345 + column as u64))
}

fn sealed(parties: &mut Parties, columns: &[Clear; 6], method: Method) -> Vec<Column> {
    let column = |(at, values): (usize, &Clear)| match at / 2 {
        1 if method != Method::Tags => {
            let cells: ArrayRef = Arc::new(parties.numbers((0, 1000), values));
            let bits = parties.number_type((0, 1000), false).width.bits();
            Column::Values(cells, Values { lanes: 1, bits, fraction_bits: 0 })
        }
        2 => Column::Clear(values.iter().map(|value| label(at, *value)).collect()),
        _ => Column::Tags(Arc::new(parties.tagged(values, |value| label(at, Some(value))))),
    };
    columns.iter().enumerate().map(column).collect()
}

/// Of every row the values of a set.
fn of_set(columns: &[Clear; 6], set: u64) -> Vec<Vec<Option<i64>>> {
    let own = || columns.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
    (0..columns[0].len()).map(|row| own().map(|(_, column)| column[row]).collect()).collect()
}

fn sizes(rows: &[Vec<Option<i64>>]) -> Vec<u64> {
    let mut classes: HashMap<&Vec<Option<i64>>, u64> = HashMap::new();
    rows.iter().for_each(|row| *classes.entry(row).or_default() += 1);
    classes.into_values().collect()
}

/// Each alone, two and three of a kind or of several, and all.
const SETS: [u64; 14] = [
    0b00_00_01, 0b00_00_10, 0b00_01_00, 0b00_10_00, 0b01_00_00, 0b10_00_00, 0b00_00_11, 0b00_11_00, 0b11_00_00,
    0b00_01_01, 0b01_00_10, 0b10_10_00, 0b01_01_01, 0b11_11_11,
];

#[tokio::test(flavor = "multi_thread")]
async fn every_method_counts_what_grouping_counts() {
    let mut parties = Parties::new(80);
    let methods =
        [Method::Tags, Method::Shuffled, Method::Pairwise { shuffle: true }, Method::Pairwise { shuffle: false }];
    for rows in EDGES {
        let columns = columns_of(rows);
        for method in methods.into_iter().filter(|method| method.max_rows().is_none_or(|most| rows <= most)) {
            let sealed = sealed(&mut parties, &columns, method);
            let table = Table::prepare(Some(parties.session.clone()), method, rows, sealed).await.unwrap();
            for k in [2, 5] {
                let found = table.small_classes(&SETS, k, true, |_| {}).await.unwrap();
                let small = |set: &u64| {
                    sizes(&of_set(&columns, *set)).into_iter().filter(|size| *size < u64::from(k)).sum::<u64>()
                };
                assert_eq!(found, SETS.iter().map(small).collect::<Vec<_>>(), "{rows} rows, {method:?}, k = {k}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn class_sizes_leave_suppressed_rows_out() {
    let mut parties = Parties::new(81);
    for rows in EDGES {
        let columns = columns_of(rows);
        let sealed = sealed(&mut parties, &columns, Method::Shuffled);
        for every in [usize::MAX, 4, 1] {
            let gone: Vec<bool> = (0..rows).map(|row| row % every == every.min(rows) - 1).collect();
            let flags = parties.flags(&gone);
            let suppressed = Suppressed::lift(&parties.session, &flags).await.unwrap();
            let suppressed = (every < usize::MAX).then_some(&suppressed);
            let found =
                class_sizes(Some(&parties.session), rows, sealed.clone(), suppressed, &SETS, &|_| {}).await.unwrap();
            let expected = |set: &u64| {
                let is_told = |row: usize| suppressed.is_none() || !gone[row];
                let told: Vec<_> =
                    of_set(&columns, *set).into_iter().enumerate().filter(|(row, _)| is_told(*row)).collect();
                let mut classes: HashMap<u64, u64> = HashMap::new();
                let told: Vec<_> = told.into_iter().map(|(_, row)| row).collect();
                sizes(&told).into_iter().for_each(|size| *classes.entry(size).or_default() += 1);
                let mut classes: Vec<(u64, u64)> = classes.into_iter().collect();
                classes.sort_unstable();
                Sizes { suppressed: (rows - told.len()) as u64, classes }
            };
            assert_eq!(found, SETS.iter().map(expected).collect::<Vec<_>>(), "{rows} rows, {every}");
        }
    }
}
