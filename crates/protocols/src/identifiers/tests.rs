//! All methods, on small tables, against plain grouping.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, BinaryArray};
use arrow::buffer::NullBuffer;
use proptest::prelude::*;
use tokio::runtime::Runtime;
use veil_cells::{CellType, ColumnId, Kind, Nulls, Width};
use veil_keys::encrypt_column;
use veil_slots::plain;

use super::*;
use crate::testing::Parties;

const METHODS: [Method; 4] =
    [Method::Tags, Method::Shuffled, Method::Pairwise { shuffle: true }, Method::Pairwise { shuffle: false }];

/// Values of columns, NULL where there is none.
type Values3 = Vec<[Option<u8>; 3]>;

/// What stands for a value: a tag, or a label.
fn tag_of(column: usize, value: u8) -> u64 {
    plain::pow(u64::from(value) + 2, 12345 + column as u64)
}

/// A column of numbers, with tags if asked.
fn cells(parties: &mut Parties, values: &[Option<u8>], tagged: Option<usize>) -> ArrayRef {
    let width = Width::of_range(0, 100).unwrap();
    let cell_type = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([3; 8]));
    let cell_type = CellType { tag: tagged.is_some(), nulls: Nulls::Public, ..cell_type };
    let messages: Vec<i64> = values
        .iter()
        .map(|value| value.unwrap_or_default())
        .flat_map(|value| {
            [Some(i64::from(value)), tagged.map(|column| tag_of(column, value) as i64)].into_iter().flatten()
        })
        .collect();
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    let cells: BinaryArray =
        encrypt_column(&parties.owner, &cell_type, &messages, Some(&nulls), &mut parties.rng).unwrap();
    Arc::new(cells)
}

/// Tags in the first column, tags or values in the second, clear values in the third.
fn columns(parties: &mut Parties, table: &Values3, method: Method) -> Vec<Column> {
    let column = |at: usize| -> Vec<Option<u8>> { table.iter().map(|row| row[at]).collect() };
    let second = match method {
        Method::Tags => Column::Tags(cells(parties, &column(1), Some(1))),
        _ => Column::Values(cells(parties, &column(1), None), Values { lanes: 1, bits: 8, fraction_bits: 0 }),
    };
    let label = |value: Option<u8>| value.map_or(4711, |value| tag_of(2, value));
    let clear = column(2).into_iter().map(label).collect();
    vec![Column::Tags(cells(parties, &column(0), Some(0))), second, Column::Clear(clear)]
}

fn expected(table: &Values3, set: u64, k: u32) -> u64 {
    let mut classes: HashMap<Vec<Option<u8>>, u64> = HashMap::new();
    for row in table {
        let key = (0..3).filter(|column| set >> column & 1 == 1).map(|column| row[column]).collect();
        *classes.entry(key).or_default() += 1;
    }
    classes.values().filter(|size| **size < u64::from(k)).sum()
}

async fn check(parties: &mut Parties, table: &Values3, k: u32) {
    let sets: Vec<u64> = (1..8).collect();
    let wanted: Vec<u64> = sets.iter().map(|set| expected(table, *set, k)).collect();
    for method in METHODS {
        let columns = columns(parties, table, method);
        let prepared = Table::prepare(Some(parties.session.clone()), method, table.len(), columns).await.unwrap();
        let done = std::sync::atomic::AtomicUsize::new(0);
        let count = |sets: usize| {
            done.fetch_add(sets, std::sync::atomic::Ordering::Relaxed);
        };
        let found = prepared.small_classes(&sets, k, true, count).await.unwrap();
        assert_eq!(found, wanted, "{method:?}, k = {k}, {table:?}");
        assert_eq!(done.into_inner(), 7);
        let flags = prepared.small_classes(&sets, k, false, |_| {}).await.unwrap();
        assert_eq!(flags, wanted.iter().map(|rows| (*rows).min(1)).collect::<Vec<_>>(), "{method:?}");
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 0, ..ProptestConfig::default() })]
    #[test]
    fn all_methods_count_what_grouping_counts(
        table in proptest::collection::vec(proptest::array::uniform3(proptest::option::weighted(0.8, 0u8..4)), 1..40), k in 1u32..6,
    ) {
        RUNTIME.block_on(check(&mut Parties::new(200), &table, k));
    }
}

/// Several vectors a list, and the last rows count too.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_table() {
    let mut parties = Parties::new(201);
    let mut table: Values3 = (0..9000u32).map(|row| [Some((row % 3) as u8), Some((row % 7) as u8), Some(1)]).collect();
    table.push([Some(3), Some(1), None]);
    let columns = columns(&mut parties, &table, Method::Shuffled);
    let prepared = Table::prepare(Some(parties.session.clone()), Method::Shuffled, 9001, columns).await.unwrap();
    let sets: Vec<u64> = (1..8).collect();
    let found = prepared.small_classes(&sets, 429, true, |_| {}).await.unwrap();
    let wanted: Vec<u64> = sets.iter().map(|set| expected(&table, *set, 429)).collect();
    assert_eq!(found, wanted);
    assert!(wanted[0] == 1 && wanted[2] > 1 && wanted[3] == 1);
}

/// A list of 20,000 rows takes four vectors, and its columns have three each.
#[tokio::test(flavor = "multi_thread")]
async fn columns_lie_in_line_however_many_vectors_they_have() {
    let mut parties = Parties::new(204);
    // Classes of 1, 9,955 and 10,044 rows: the first row is like no other.
    let class = |row: u32| if row == 0 { 2 } else { u8::from(row <= 9955) };
    let table: Values3 = (0..20_000).map(|row| [Some(class(row) & 1), Some(class(row)), None]).collect();
    let column = |at: usize| -> Vec<Option<u8>> { table.iter().map(|row| row[at]).collect() };
    let columns = [0, 1].map(|at| Column::Tags(cells(&mut parties, &column(at), Some(at))));
    let session = Some(parties.session.clone());
    let prepared = Table::prepare(session, Method::Shuffled, table.len(), columns.into()).await.unwrap();
    let found = prepared.small_classes(&[1, 2, 3], 10, true, |_| {}).await.unwrap();
    assert_eq!(found, [0, 1, 1]);
    let sizes = prepared.class_sizes(&[3], None, |_| {}).await.unwrap();
    assert_eq!((sizes[0].suppressed, &sizes[0].classes[..]), (0, &[(1, 1), (9_955, 1), (10_044, 1)][..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_compared_is_refused() {
    let mut parties = Parties::new(202);
    let session = Some(parties.session.clone());
    let refused = async |method: Method, rows: usize, columns: Vec<Column>| {
        Table::prepare(session.clone(), method, rows, columns).await.map(|_| ()).unwrap_err().to_string()
    };
    let few = cells(&mut parties, &[Some(1), Some(2)], Some(0));
    let text = refused(Method::Shuffled, 3, vec![Column::Tags(few.clone())]).await;
    assert_eq!(text, "a column of 2 rows does not fit a table of 3");
    let values = Column::Values(few.clone(), Values { lanes: 1, bits: 8, fraction_bits: 0 });
    let text = refused(Method::Tags, 2, vec![values]).await;
    assert_eq!(text, "a column without equality tags cannot be compared by tags");
    let untagged = cells(&mut parties, &[Some(1), None], None);
    let text = refused(Method::Shuffled, 2, vec![Column::Tags(untagged)]).await;
    assert!(text.starts_with("row 0 has no equality tag"), "{text}");
    let text = refused(Method::Shuffled, 2, vec![Column::Clear(vec![0, plain::neg(1) + 1])]).await;
    assert!(text.contains("281474976694273"), "{text}");
    let many = cells(&mut parties, &[Some(1); 8193], Some(0));
    let text = refused(Method::Pairwise { shuffle: true }, 8193, vec![Column::Tags(many)]).await;
    assert_eq!(text, "8193 rows are more than the 8192 that can be compared: ask about fewer, or use method => 'tags'");
    let clear = Table::prepare(None, Method::Shuffled, 2, vec![Column::Clear(vec![7, 7])]).await.unwrap();
    assert_eq!(clear.small_classes(&[1, 0], 3, true, |_| {}).await.unwrap(), [2, 2]);
    assert!(Table::prepare(None, Method::Shuffled, 2, vec![Column::Tags(few)]).await.is_err());
}

/// What is announced bounds what happens.
#[tokio::test(flavor = "multi_thread")]
async fn the_cost_is_known_before() {
    let mut parties = Parties::new(203);
    let table: Values3 = (0..300u32).map(|row| [Some((row % 9) as u8), Some((row % 7) as u8), None]).collect();
    for method in METHODS {
        let columns = vec![
            Column::Tags(cells(&mut parties, &table.iter().map(|row| row[0]).collect::<Vec<_>>(), Some(0))),
            Column::Tags(cells(&mut parties, &table.iter().map(|row| row[1]).collect::<Vec<_>>(), Some(1))),
        ];
        let (rounds, bytes) = (parties.session.traffic().rounds(), traffic(&parties));
        let prepared = Table::prepare(Some(parties.session.clone()), method, 300, columns).await.unwrap();
        prepared.small_classes(&[1, 2], 5, true, |_| {}).await.unwrap();
        prepared.small_classes(&[3], 5, true, |_| {}).await.unwrap();
        let (rounds, bytes) = (parties.session.traffic().rounds() - rounds, traffic(&parties) - bytes);
        let cost = Cost::of(method, 300, 2, &[2, 1]);
        assert!(rounds <= cost.rounds && cost.rounds <= 2 * rounds, "{method:?}: {rounds} of {cost:?}");
        // Headers and schemas are not counted.
        assert!(bytes <= cost.bytes + 2000 * rounds && cost.bytes <= 2 * bytes, "{method:?}: {bytes} of {cost:?}");
    }
}

fn traffic(parties: &Parties) -> u64 {
    parties.session.traffic().bytes_up() + parties.session.traffic().bytes_down()
}
