//! Columns of cells into messages.
//!
//! Every term of a cell reads coefficients of `A(X) * S(X)` for its chunk's mask `A`. Terms are grouped by
//! chunk, so that each chunk costs one ring product whatever order its rows come in.

use std::sync::atomic::{AtomicU64, Ordering};

use arrow::buffer::NullBuffer;
use rayon::prelude::*;
use veil_cells::{CellArray, CellError, CellType, CellView, KeyId, Lanes, Seed, message_of_phase};

use crate::cell_key::MaskProduct;
use crate::{CellKey, KeyError};

/// Messages of a column, without tags.
pub struct DecryptedColumn {
    /// Messages, row by row.
    pub messages: Vec<i64>,
    /// Messages a row: the value's lanes, and the hidden-NULL lane if there is one.
    pub lanes: usize,
    /// Which rows are Arrow nulls.
    pub nulls: Option<NullBuffer>,
}

/// One row's share in a chunk.
struct Use {
    seed: Seed,
    index: u16,
    coefficient: i16,
    row: u32,
}

/// Decrypts the value and the hidden-NULL lane of each cell; tags stay closed.
pub fn decrypt_column(
    key: &CellKey,
    key_id: KeyId,
    cell_type: &CellType,
    column: CellArray<'_>,
) -> Result<DecryptedColumn, KeyError> {
    if cell_type.key != key_id {
        return Err(CellError::WrongKey { expected: key_id, found: cell_type.key }.into());
    }
    let lanes = Lanes { tag: false, ..cell_type.cell_lanes() };
    let phases = phases(key, key_id, lanes, column)?;
    let mut messages: Vec<i64> = phases.into_iter().map(|phase| message_of_phase(phase.into_inner())).collect();
    divide(&mut messages, lanes.total(), cell_type.places, column)?;
    Ok(DecryptedColumn { messages, lanes: lanes.total(), nulls: column.nulls().cloned() })
}

/// Divides the numbers of cells that are quotients, to so many decimal places, halves away from zero.
fn divide(messages: &mut [i64], lanes: usize, places: u8, column: CellArray<'_>) -> Result<(), KeyError> {
    if places == 0 && !(0..column.len()).any(|row| column.bytes(row).is_some_and(CellView::is_quotient)) {
        return Ok(());
    }
    for (row, messages) in messages.chunks_exact_mut(lanes).enumerate() {
        let (Some(bytes), Some(message)) = (column.bytes(row), messages.first_mut()) else { continue };
        let divisor = CellView::parse(bytes).map_err(|source| KeyError::Row { row, source })?.divisor();
        *message = quotient(*message, divisor, places)?;
    }
    Ok(())
}

/// A number divided, to so many decimal places, halves away from zero.
pub fn quotient(number: i64, divisor: u32, places: u8) -> Result<i64, CellError> {
    let scale = 10i128.checked_pow(places.into()).filter(|_| places <= 9).ok_or(CellError::MessageOverflow)?;
    let (number, divisor) = (i128::from(number) * scale, i128::from(divisor));
    let quotient = (2 * number.abs() + divisor).checked_div(2 * divisor).ok_or(CellError::MessageOverflow)?;
    i64::try_from(quotient * number.signum()).map_err(|_| CellError::MessageOverflow)
}

/// Message and noise of each lane, row by row; zeros for NULL.
fn phases(key: &CellKey, key_id: KeyId, expected: Lanes, column: CellArray<'_>) -> Result<Vec<AtomicU64>, KeyError> {
    let lanes = expected.total();
    let mut phases: Vec<AtomicU64> = Vec::with_capacity(column.len() * lanes);
    let mut uses: Vec<Use> = Vec::with_capacity(column.len());
    let mut known = None;
    for row in 0..column.len() {
        let Some(bytes) = column.bytes(row) else {
            phases.extend((0..lanes).map(|_| AtomicU64::new(0)));
            continue;
        };
        let fault = |source| KeyError::Row { row, source };
        let cell = CellView::parse_next(&mut known, bytes).map_err(fault)?;
        if cell.key_id() != key_id {
            return Err(fault(CellError::WrongKey { expected: key_id, found: cell.key_id() }));
        }
        if cell.lanes().value != expected.value || cell.lanes().nulls != expected.nulls {
            return Err(fault(CellError::Malformed("it has other lanes than its column's type says".to_owned())));
        }
        uses.extend(cell.terms().map(|term| Use {
            seed: term.seed,
            index: term.index,
            coefficient: term.coefficient,
            row: row as u32,
        }));
        phases.extend(cell.bodies().take(lanes).enumerate().map(|(lane, body)| {
            let dense = cell.dense_mask(lane).map_or(0, |mask| key.inner_product(mask));
            AtomicU64::new(body.wrapping_sub(dense))
        }));
    }

    // Cells in their original order come grouped already; after a shuffle, sorting saves ring products.
    if uses.chunk_by(|a, b| a.seed == b.seed).count() > column.len() / 256 + 1 {
        uses.par_sort_unstable_by_key(|u| u.seed);
    }
    let groups: Vec<&[Use]> = uses.chunk_by(|a, b| a.seed == b.seed).collect();
    groups.par_iter().for_each(|group| {
        let product = MaskProduct::new(key, group[0].seed, group.len() * lanes);
        for u in *group {
            let row = u.row as usize * lanes;
            for (lane, phase) in phases[row..row + lanes].iter().enumerate() {
                let share = product.at(usize::from(u.index) + lane).wrapping_mul(u.coefficient as u64);
                phase.fetch_sub(share, Ordering::Relaxed);
            }
        }
    });
    Ok(phases)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use veil_cells::{Cell, CellArrayBuilder, ColumnId, DenseSum, Kind, Width, phase_of_message};

    use super::*;
    use crate::{OwnerKeys, encrypt_column};

    fn integers(keys: &OwnerKeys) -> CellType {
        let width = Width::of_range(-1000, 1000).unwrap();
        CellType::new(Kind::Integer, width, 1, keys.key_id(), ColumnId::default())
    }

    fn encrypted(keys: &OwnerKeys, values: &[i64], rng: &mut StdRng) -> Vec<Cell> {
        let column = encrypt_column(keys, &integers(keys), values, None, rng).unwrap();
        column.iter().map(|bytes| Cell::from_bytes(bytes.unwrap()).unwrap()).collect()
    }

    /// The message of a cell and the noise that is really in it.
    fn open(keys: &OwnerKeys, cell: &Cell) -> (i64, u64) {
        let mut builder = CellArrayBuilder::with_capacity(1, 64);
        builder.push(cell).unwrap();
        let column = builder.finish().unwrap();
        let phases = phases(keys.cell(), keys.key_id(), cell.lanes(), CellArray::Binary(&column)).unwrap();
        let phase = phases[0].load(Ordering::Relaxed);
        let message = message_of_phase(phase);
        (message, (phase.wrapping_sub(phase_of_message(message)) as i64).unsigned_abs())
    }

    #[test]
    fn quotients_are_rounded_halves_away_from_zero() {
        let mut rng = StdRng::seed_from_u64(5);
        let keys = OwnerKeys::generate(&mut rng);
        let cells = encrypted(&keys, &[7, -7, 1000, 5, 0], &mut rng);
        let mut builder = CellArrayBuilder::with_capacity(5, 64);
        for (mut cell, divisor) in cells.into_iter().zip([2, 2, 3, 1, 9]) {
            cell.divide(divisor).unwrap();
            builder.push(&cell).unwrap();
        }
        let column = builder.finish().unwrap();
        for (places, expected) in [(0, [4, -4, 333, 5, 0]), (2, [350, -350, 33_333, 500, 0])] {
            let cell_type = CellType { places, ..integers(&keys) };
            let decrypted = decrypt_column(keys.cell(), keys.key_id(), &cell_type, CellArray::Binary(&column)).unwrap();
            assert_eq!(decrypted.messages, expected, "{places} places");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Affine forms against clear arithmetic: what the cells allow is exact, and the noise is within its bound.
        #[test]
        fn affine_forms_are_exact(
            values in proptest::collection::vec(-1000i64..=1000, 4),
            steps in proptest::collection::vec((0u8..4, 0usize..4, 0usize..4, -40i64..=40), 1..24),
        ) {
            let mut rng = StdRng::seed_from_u64(3);
            let keys = OwnerKeys::generate(&mut rng);
            let mut cells = encrypted(&keys, &values, &mut rng);
            let mut clear = values;
            for (what, left, right, number) in steps {
                let mut cell = cells[left].clone();
                let (outcome, result) = match what {
                    0 => (cell.add_constant(number * 1_000_003), clear[left] + number * 1_000_003),
                    1 => (cell.add(&cells[right]), clear[left] + clear[right]),
                    2 => (cell.scale(number), clear[left] * number),
                    _ => (cell.negate(), -clear[left]),
                };
                if outcome.is_ok() {
                    let bytes = cell.to_bytes();
                    prop_assert_eq!(&Cell::from_bytes(&bytes).unwrap(), &cell);
                    (cells[left], clear[left]) = (cell, result);
                }
                let (message, noise) = open(&keys, &cells[left]);
                prop_assert_eq!(message, clear[left]);
                prop_assert!(noise <= cells[left].noise().bound());
                prop_assert!(Some(clear[left].unsigned_abs()) <= cells[left].magnitude());
            }
        }
    }

    #[test]
    fn long_sums_collapse_and_stay_exact() {
        let mut rng = StdRng::seed_from_u64(4);
        let keys = OwnerKeys::generate(&mut rng);
        let values: Vec<i64> = (0..20_000).map(|i| i % 1999 - 999).collect();
        let cells = encrypted(&keys, &values, &mut rng);
        let mut sum = DenseSum::new();
        cells.iter().for_each(|cell| sum.add(cell).unwrap());
        let sum = sum.finish().unwrap().unwrap();
        let (message, noise) = open(&keys, &sum);
        assert_eq!(message, values.iter().sum::<i64>());
        assert!(noise <= sum.noise().bound() && noise > 0, "noise {noise} of {}", sum.noise().bound());
        assert_eq!(sum.noise().bound(), 76 * 142);

        // Dense cells go on as numbers do, and merge with others.
        let mut twice = sum.clone();
        twice.scale(2).unwrap();
        twice.add_constant(7).unwrap();
        twice.add(&cells[5]).unwrap();
        assert_eq!(open(&keys, &twice).0, 2 * message + 7 + values[5]);
        assert_eq!(Cell::from_bytes(&twice.to_bytes()).unwrap(), twice);
        let mut merged = DenseSum::new();
        merged.add(&sum).unwrap();
        merged.add(&cells[5]).unwrap();
        cells[..3].iter().for_each(|cell| merged.add(cell).unwrap());
        let merged = merged.finish().unwrap().unwrap();
        assert_eq!(open(&keys, &merged).0, message + values[5] + values[..3].iter().sum::<i64>());
        // Four times the sum and more is beyond the budget, and said so.
        let mut five = sum.clone();
        assert!(matches!(five.scale(5), Err(CellError::NoiseBudget { .. })));
    }

    #[test]
    fn rows_that_repeat_count_as_one_sample() {
        let mut rng = StdRng::seed_from_u64(5);
        let keys = OwnerKeys::generate(&mut rng);
        let cells = encrypted(&keys, &[5, 6], &mut rng);
        let mut sum = DenseSum::new();
        (0..500).for_each(|_| cells.iter().for_each(|cell| sum.add(cell).unwrap()));
        let sum = sum.finish().unwrap().unwrap();
        assert_eq!((sum.terms().len(), sum.terms()[0].coefficient), (2, 500));
        assert_eq!(open(&keys, &sum).0, 5500);
        let mut more = DenseSum::new();
        (0..5000).for_each(|_| more.add(&cells[0]).unwrap());
        assert!(matches!(more.finish(), Err(CellError::NoiseBudget { .. })));
    }

    /// Many affine terms turn into a dense cell by themselves.
    #[test]
    fn adding_many_cells_becomes_dense() {
        let mut rng = StdRng::seed_from_u64(6);
        let keys = OwnerKeys::generate(&mut rng);
        let cells = encrypted(&keys, &(0..50).collect::<Vec<_>>(), &mut rng);
        let mut sum = cells[0].clone();
        cells[1..].iter().for_each(|cell| sum.add(cell).unwrap());
        assert!(sum.terms().is_empty() && sum.dense_mask(0).is_some());
        assert_eq!(open(&keys, &sum).0, 1225);
        let mut one_more = cells[1].clone();
        one_more.add(&sum).unwrap();
        assert_eq!(open(&keys, &one_more).0, 1226);
    }

    /// Rows in any order, with gaps: each row finds its samples.
    #[test]
    fn shuffled_and_filtered_rows_decrypt() {
        let mut rng = StdRng::seed_from_u64(7);
        let keys = OwnerKeys::generate(&mut rng);
        let values: Vec<i64> = (0..9000).map(|i| i % 1000).collect();
        let column = encrypt_column(&keys, &integers(&keys), &values, None, &mut rng).unwrap();
        let order: Vec<usize> = (0..3000).map(|i| i * 7919 % 9000).collect();
        let mut builder = CellArrayBuilder::with_capacity(order.len(), 64);
        for row in &order {
            builder.push_bytes(column.value(*row)).unwrap();
        }
        let shuffled = builder.finish().unwrap();
        let decrypted = decrypt_column(keys.cell(), keys.key_id(), &integers(&keys), CellArray::Binary(&shuffled));
        let expected: Vec<i64> = order.iter().map(|row| values[*row]).collect();
        assert_eq!(decrypted.unwrap().messages, expected);
    }

    #[test]
    fn the_wrong_key_is_named() {
        let mut rng = StdRng::seed_from_u64(8);
        let (keys, other) = (OwnerKeys::generate(&mut rng), OwnerKeys::generate(&mut rng));
        let column = encrypt_column(&keys, &integers(&keys), &[1], None, &mut rng).unwrap();
        let column = CellArray::Binary(&column);
        let error = decrypt_column(other.cell(), other.key_id(), &integers(&keys), column).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("wrong key: expected key"), "{error}");
        // Metadata that lies about the key does not help: the cell's header is the truth.
        let error = decrypt_column(other.cell(), other.key_id(), &integers(&other), column).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("row 1: wrong key: expected key"), "{error}");
    }

    /// Under another key, messages look uniform.
    #[test]
    fn another_key_opens_noise() {
        let mut rng = StdRng::seed_from_u64(9);
        let (keys, other) = (OwnerKeys::generate(&mut rng), OwnerKeys::generate(&mut rng));
        let cells = encrypted(&keys, &[0; 4096], &mut rng);
        let forged = OwnerKeys { key_id: keys.key_id(), ..other };
        let small = cells.iter().take(400).filter(|cell| open(&forged, cell).0.unsigned_abs() < 1 << 44).count();
        // A uniform 48-bit message is that small with probability 1/8: 50 of 400 expected, sigma 6.6.
        assert!((10..95).contains(&small), "{small}");
    }
}
