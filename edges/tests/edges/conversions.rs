//! Cells into slots and back.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray};
use arrow::buffer::NullBuffer;
use arrow::compute::concat;
use veil_cells::{CellArray, CellType, ColumnId, Kind, Lanes, Mechanism, Width, add_constant, scale_cells};
use veil_keys::{decrypt_column, encrypt_column, encrypt_constants};
use veil_protocols::add_laplace::add_laplace;
use veil_protocols::choose::{Categories, choose};
use veil_protocols::laplace_scale::scale;
use veil_protocols::lift::lift_column;
use veil_protocols::lift_tags::{TagColumn, lift_tag_columns};
use veil_protocols::lift_wide::lift_wide_column;
use veil_protocols::lower::{self, lower};
use veil_protocols::redraw::{redraw_bits, redraw_categories};
use veil_protocols::zeros::{self, fresh_cells};
use veil_slots::{DEGREE, PLAIN_MODULUS, plain};

use crate::{EDGES, Parties};

/// So many numbers from 0, every fifth of them NULL.
fn some(rows: usize) -> Vec<Option<i64>> {
    (0..rows as i64).map(|row| (row % 5 != 3).then_some(row % 250 - 100)).collect()
}

fn zero_where_null(values: &[Option<i64>]) -> Vec<i64> {
    values.iter().map(|value| value.unwrap_or(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_every_length_are_lifted() {
    let mut parties = Parties::new(20);
    for rows in EDGES {
        let values = some(rows);
        let cells = parties.numbers((-128, 127), &values);
        let lifted = lift_column(&parties.session, CellArray::Binary(&cells), 0, 8).await.unwrap();
        assert_eq!((lifted.rows(), lifted.len()), (rows, rows.div_ceil(DEGREE)));
        let expected = zero_where_null(&values);
        let opened = parties.open_signed(&lifted);
        assert_eq!(opened[..rows], expected, "{rows} rows");
        assert!(opened[rows..].iter().all(|slot| *slot == 0), "{rows} rows");
        // The second half was multiplied, so that some vectors go the long way and one may do so in part.
        let scaled = scale_cells(CellArray::Binary(&cells), 3).unwrap();
        let scaled = add_constant(CellArray::Binary(&scaled), 7).unwrap();
        let half = rows / 2;
        let mixed = concat(&[&cells.slice(0, half) as &dyn Array, &scaled.slice(half, rows - half)]).unwrap();
        let lifted = lift_column(&parties.session, CellArray::try_new(&mixed).unwrap(), 0, 16).await.unwrap();
        let of_row = |(row, value): (usize, &Option<i64>)| value.map_or(0, |x| if row < half { x } else { 3 * x + 7 });
        let expected: Vec<i64> = values.iter().enumerate().map(of_row).collect();
        let opened = parties.open_signed(&lifted);
        assert_eq!(opened[..rows], expected, "{rows} rows");
        assert!(opened[rows..].iter().all(|slot| *slot == 0), "{rows} rows");
    }
}

/// Texts and tags, of several columns whose lengths differ.
#[tokio::test(flavor = "multi_thread")]
async fn wide_lanes_and_tags_are_lifted() {
    let mut parties = Parties::new(21);
    for rows in EDGES {
        let cell_type = CellType::new(Kind::Text, Width::FULL, 2, parties.owner.key_id(), ColumnId([5; 8]));
        let messages: Vec<i64> = parties.below(1 << 48, 2 * rows).iter().map(|message| *message as i64).collect();
        let nulls = NullBuffer::from_iter((0..rows).map(|row| row % 4 != 1));
        let cells = encrypt_column(&parties.owner, &cell_type, &messages, Some(&nulls), &mut parties.rng).unwrap();
        for lane in 0..2 {
            let lifted = lift_wide_column(&parties.session, CellArray::Binary(&cells), lane).await.unwrap();
            let of_row =
                |row: usize| if nulls.is_valid(row) { messages[2 * row + lane] as u64 % PLAIN_MODULUS } else { 0 };
            let opened = parties.open(&lifted);
            assert_eq!(opened[..rows], (0..rows).map(of_row).collect::<Vec<_>>(), "{rows} rows, lane {lane}");
            assert!(opened[rows..].iter().all(|slot| *slot == 0), "{rows} rows, lane {lane}");
        }
        let key = parties.owner.key_id();
        let lengths = [rows, rows + 1, 1, rows];
        let columns: Vec<Vec<Option<i64>>> = lengths.iter().map(|rows| some(*rows)).collect();
        let tag = |column: usize, value: i64| 1_000_000 * (column as u64 + 1) + (value + 128) as u64;
        let read = columns.iter().enumerate().map(|(at, values)| {
            let values: Vec<Option<i64>> = values.iter().map(|value| value.map(|value| value + 128)).collect();
            let cells = parties.tagged(&values, |value| tag(at, value - 128));
            TagColumn::read(CellArray::Binary(&cells), key).unwrap()
        });
        let read = read.collect();
        let lifted = lift_tag_columns(&parties.session, read).await.unwrap();
        assert_eq!(lifted.iter().map(|column| column.rows()).collect::<Vec<_>>(), lengths);
        for (at, (column, values)) in lifted.iter().zip(&columns).enumerate() {
            let expected: Vec<u64> = values.iter().map(|value| value.map_or(0, |value| tag(at, value))).collect();
            assert_eq!(parties.open(column)[..values.len()], expected, "column {at} of {rows} rows");
        }
    }
}

/// Chunks have room for some rows of several lanes, and a message for a vector of rows.
#[tokio::test(flavor = "multi_thread")]
async fn slots_and_messages_become_cells() {
    let mut parties = Parties::new(22);
    let key_id = parties.owner.key_id();
    for (value, tag) in [(1, false), (1, true), (3, false), (3, true), (31, true)] {
        let shape = Lanes { value, nulls: false, tag };
        let magnitude = (value == 1).then_some(128);
        for rows in [1, 2, 31, 32, 33, 63, 64] {
            let lanes: Vec<Vec<i64>> = (0..shape.total() as i64)
                .map(|lane| (0..rows as i64).map(|row| (row * 3 + lane) % 100).collect())
                .collect();
            let signed = |lane: &Vec<i64>| lane.iter().map(|number| plain::from_signed(*number)).collect::<Vec<_>>();
            let sealed = lanes.iter().map(|lane| parties.seal(&signed(lane))).collect();
            let chunk = lower::Rows { lanes: sealed, count: rows, shape, width: 8, magnitude, key_id };
            let cells = lower(&parties.session, vec![chunk]).await.unwrap().remove(0);
            let kind = if value == 1 { Kind::Integer } else { Kind::Category };
            let width = Width::of_range(-128, 127).unwrap();
            let cell_type = CellType { tag, ..CellType::new(kind, width, value, key_id, ColumnId([6; 8])) };
            let opened = decrypt_column(parties.owner.cell(), key_id, &cell_type, CellArray::Binary(&cells)).unwrap();
            let expected: Vec<i64> =
                (0..rows).flat_map(|row| lanes[..usize::from(value)].iter().map(move |lane| lane[row])).collect();
            assert_eq!(opened.messages, expected, "{rows} rows of {value} lanes");

            let messages: Vec<i64> = (0..rows * shape.total()).map(|at| at as i64 % 100).collect();
            let chunks = vec![zeros::Rows { messages: messages.clone(), shape, magnitude }; 3];
            for cells in fresh_cells(&parties.session, chunks).await.unwrap() {
                let opened =
                    decrypt_column(parties.owner.cell(), key_id, &cell_type, CellArray::Binary(&cells)).unwrap();
                let lanes = messages.chunks(shape.total()).flat_map(|row| &row[..usize::from(value)]);
                assert_eq!(opened.messages, lanes.copied().collect::<Vec<_>>(), "{rows} rows of {value} lanes");
            }
        }
    }
}

/// The noise of a step is a 32nd of the range, filled up with less than another.
#[tokio::test(flavor = "multi_thread")]
async fn noise_reaches_the_row_that_it_was_drawn_for() {
    let mut parties = Parties::new(23);
    let cell_type = parties.number_type((-128, 127), false);
    let bits = cell_type.width.bits();
    let constants = encrypt_constants(&parties.owner, &cell_type, -128, 127).unwrap();
    let scale = scale(&parties.session, &constants, bits).await.unwrap();
    for rows in EDGES {
        let values = some(rows);
        let cells = parties.numbers((-128, 127), &values);
        let scaled = scale_cells(CellArray::Binary(&cells), 2).unwrap();
        let half = rows / 2;
        let mixed = concat(&[&cells.slice(0, half) as &dyn Array, &scaled.slice(half, rows - half)]).unwrap();
        let steps: Vec<i64> = (0..rows as i64).map(|row| row % 41 - 20).collect();
        let column = CellArray::try_new(&mixed).unwrap();
        let noisy = add_laplace(&parties.session, &scale, column, steps.clone(), 20).await.unwrap();
        let wide = parties.number_type((-100_000, 100_000), false);
        let key = parties.owner.key_id();
        let opened = decrypt_column(parties.owner.cell(), key, &wide, CellArray::Binary(&noisy)).unwrap();
        assert_eq!(opened.messages.len(), rows);
        for row in 0..rows {
            assert_eq!(noisy.is_valid(row), values[row].is_some());
            let Some(value) = values[row] else { continue };
            let value = if row < half { value } else { 2 * value };
            let beside = opened.messages[row] - value - 255 * steps[row] / 32;
            assert!(beside.abs() <= 255 / 64 + 3, "row {row} of {rows}: {beside}");
        }
    }
}

/// Leaf, group, root.
fn codes() -> Vec<Vec<i64>> {
    vec![vec![0, 5, 9], vec![10, 5, 9], vec![20, 25, 9], vec![30, 25, 9], vec![40, 25, 9]]
}

fn categories(parties: &mut Parties, leaves: &[Option<usize>]) -> (CellType, BinaryArray) {
    let width = Width::of_range(-1, 100).unwrap();
    let cell_type = CellType::new(Kind::Category, width, 3, parties.owner.key_id(), ColumnId([7; 8]));
    let messages: Vec<i64> = leaves.iter().flat_map(|leaf| codes()[leaf.unwrap_or(0)].clone()).collect();
    let nulls = NullBuffer::from_iter(leaves.iter().map(Option::is_some));
    let cells = encrypt_column(&parties.owner, &cell_type, &messages, Some(&nulls), &mut parties.rng).unwrap();
    (cell_type, cells)
}

#[tokio::test(flavor = "multi_thread")]
async fn categories_become_what_was_drawn_for_their_row() {
    let mut parties = Parties::new(24);
    for rows in EDGES {
        let leaves: Vec<Option<usize>> = (0..rows).map(|row| (row % 6 != 5).then_some(row % 5)).collect();
        let (cell_type, cells) = categories(&mut parties, &leaves);
        let known = Categories::new(&codes(), cell_type.width.bits()).unwrap();
        let drawn_for = |row: usize, leaf: usize| (leaf + row) % 5;
        let answers = move |rows: std::ops::Range<usize>| {
            rows.flat_map(|row| (0..5).map(move |leaf| drawn_for(row, leaf) as u32)).collect()
        };
        let column = CellArray::Binary(&cells);
        let chosen = choose(&parties.session, column, &known, answers).await.unwrap();
        let key = parties.owner.key_id();
        let opened = decrypt_column(parties.owner.cell(), key, &cell_type, CellArray::Binary(&chosen)).unwrap();
        for (row, leaf) in leaves.iter().enumerate() {
            assert_eq!(chosen.is_valid(row), leaf.is_some());
            let Some(leaf) = leaf else { continue };
            assert_eq!(opened.messages[3 * row..3 * row + 3], codes()[drawn_for(row, *leaf)], "row {row} of {rows}");
        }
        // With so large an epsilon nothing changes.
        let draws = [(Mechanism::RandomizedResponse, 40_000_000)];
        let drawn = redraw_categories(&parties.session, column, &known, Arc::new(codes()), &draws).await.unwrap();
        for (level, vectors) in drawn.iter().enumerate() {
            let opened = parties.open_signed(vectors);
            for (row, leaf) in leaves.iter().enumerate() {
                if let Some(leaf) = leaf {
                    assert_eq!(opened[row], codes()[*leaf][level], "row {row} of {rows}, level {level}");
                }
            }
        }
        let bits: Vec<Option<i64>> = (0..rows as i64).map(|row| Some(row % 3 % 2)).collect();
        let cells: ArrayRef = Arc::new(parties.numbers((0, 1), &bits));
        let width = Width::of_range(0, 1).unwrap().bits();
        let column = CellArray::try_new(&cells).unwrap();
        let draws = [(Mechanism::Binary, 40_000_000)];
        let drawn = redraw_bits(&parties.session, column, width, &draws).await.unwrap();
        let expected: Vec<i64> = bits.into_iter().flatten().collect();
        assert_eq!(parties.open_signed(&drawn)[..rows], expected, "{rows} rows");
    }
}
