//! A column, as the protocol takes it: chunks with their values where all cells are plain, and without them where not.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray};
use veil_cells::{Cell, CellArray, CellArrayBuilder, CellError, CellView, KeyId, Lanes, Seed, Width};
use veil_slots::{DEGREE, Sample};

use super::{AddLaplace, MAX_STEP_BOUND, Rows, Values, ask, finish, noise_bound};
use crate::laplace_scale::EncryptedScale;
use crate::{ProtocolError, Session};

/// One round for a whole column of numbers: each gets the noise of its step. NULLs stay as they are, tags are dropped. No step may be
/// beyond the bound, which shows in the cells' magnitude and should follow from public parameters alone.
pub async fn add_laplace(
    session: &Session,
    scale: &EncryptedScale,
    column: CellArray<'_>,
    steps: Vec<i64>,
    step_bound: u64,
) -> Result<BinaryArray, ProtocolError> {
    check(&column, &steps, step_bound)?;
    let mut chunks = Vec::with_capacity(steps.len().div_ceil(DEGREE));
    for (at, steps) in steps.chunks(DEGREE).enumerate() {
        chunks.push(rows_of(&column, at * DEGREE, steps, step_bound, scale, session.key_id())?);
    }
    let alone: Vec<bool> = chunks.iter().map(|rows| rows.values.is_none()).collect();
    let noisy = session.round::<AddLaplace, _, _, _>(chunks, scale.limbs.len() + 1, ask, finish).await?;
    let mut parts: Vec<ArrayRef> = Vec::with_capacity(noisy.len());
    for (at, (noisy, alone)) in noisy.into_iter().zip(alone).enumerate() {
        parts.push(Arc::new(if alone { added(&column, at * DEGREE, &noisy)? } else { noisy }));
    }
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    match parts.is_empty() {
        true => Ok(CellArrayBuilder::default().finish()?),
        false => Ok(arrow::compute::concat(&parts).map_err(CellError::from)?.as_binary().clone()),
    }
}

/// Refuses steps that cannot be hidden.
fn check(column: &CellArray<'_>, steps: &[i64], step_bound: u64) -> Result<(), ProtocolError> {
    let text = if steps.len() != column.len() {
        format!("{} noise steps cannot be added to {} rows", steps.len(), column.len())
    } else if step_bound > MAX_STEP_BOUND {
        format!(
            "noise of up to {step_bound} steps cannot be hidden from P2 (the limit is {MAX_STEP_BOUND}): use a larger epsilon, or declare the column's bounds public"
        )
    } else if steps.iter().any(|step| step.unsigned_abs() > step_bound) {
        "a noise step lies beyond the bound that was given for it".to_owned()
    } else {
        return Ok(());
    };
    Err(ProtocolError::Misuse(text))
}

/// The rows of a chunk: with their values if all of them are plain.
pub(super) fn rows_of(
    column: &CellArray<'_>,
    start: usize,
    steps: &[i64],
    step_bound: u64,
    scale: &EncryptedScale,
    key_id: KeyId,
) -> Result<Rows, ProtocolError> {
    let (mut known, mut shape, mut largest, mut plain) = (None, None, 0, true);
    let mut cells: Vec<Option<(Sample, CellView<'_>)>> = Vec::with_capacity(steps.len());
    for row in start..start + steps.len() {
        let Some(bytes) = column.bytes(row) else {
            cells.push(None);
            continue;
        };
        let at = |error: CellError| ProtocolError::Misuse(format!("row {row}: {error}"));
        let unsupported = |text: &str| at(CellError::Unsupported(text.to_owned()));
        let cell = CellView::parse_next(&mut known, bytes).map_err(at)?;
        if cell.key_id() != key_id {
            return Err(at(CellError::WrongKey { expected: key_id, found: cell.key_id() }));
        }
        if cell.divisor() != 1 {
            return Err(unsupported("an average cannot go into a round; compute before averaging"));
        }
        let magnitude = cell.magnitude().ok_or_else(|| unsupported("noise is for numbers, not text or categories"))?;
        largest = largest.max(magnitude);
        let lanes = Lanes { tag: false, ..cell.lanes() };
        if *shape.get_or_insert(lanes) != lanes {
            return Err(unsupported("some cells of the column hide NULLs and some do not"));
        }
        let mut terms = cell.terms();
        let first = terms.next().filter(|term| term.coefficient == 1 && terms.next().is_none());
        plain &= first.is_some();
        // Without a first term the chunk is not plain, and no sample of it counts.
        let (seed, index) = first.map_or((Seed([0; 16]), 0), |term| (term.seed, term.index));
        cells.push(Some((Sample { seed, index, body: 0 }, cell)));
    }
    let shape = shape.unwrap_or(Lanes::NUMBER);
    let noise = noise_bound(scale.width, step_bound);
    // Where the noise stays alone, adding it adds the magnitudes.
    let sum = largest.saturating_add(noise);
    if sum > Width::FULL.magnitude() {
        return Err(CellError::MessageOverflow.into());
    }
    let all = cells.iter().all(Option::is_some);
    let present = cells.iter().map(Option::is_some).collect();
    let values = plain.then(|| {
        // A NULL borrows the place of the first cell; a chunk of NULLs alone any place.
        let spare = cells.iter().flatten().next().map(|(sample, _)| *sample);
        let spare = spare.unwrap_or(Sample { seed: Seed([0; 16]), index: 0, body: 0 });
        let mut bodies = Vec::with_capacity(cells.len() * shape.total());
        for cell in &cells {
            match cell {
                Some((_, cell)) => bodies.extend(cell.bodies().take(shape.total())),
                None => bodies.resize(bodies.len() + shape.total(), 0),
            }
        }
        Values { first: cells.iter().map(|cell| cell.as_ref().map_or(spare, |(sample, _)| *sample)).collect(), bodies }
    });
    Ok(Rows {
        scale: scale.clone(),
        steps: steps.to_vec(),
        step_bound,
        shape,
        magnitude: if plain { sum } else { noise },
        key_id,
        present: (!all).then_some(present),
        values,
    })
}

/// The column's cells plus those of the noise.
fn added(column: &CellArray<'_>, start: usize, noise: &BinaryArray) -> Result<BinaryArray, ProtocolError> {
    let mut builder = CellArrayBuilder::with_capacity(noise.len(), 80);
    for row in 0..noise.len() {
        let Some(bytes) = column.bytes(start + row) else {
            builder.push_null()?;
            continue;
        };
        let at = |error: CellError| ProtocolError::Misuse(format!("row {}: {error}", start + row));
        let (mut cell, mut noise) = (Cell::from_bytes(bytes).map_err(at)?, Cell::from_bytes(noise.value(row))?);
        // Noise has no sign of its own; hidden NULLs need one sign throughout.
        if cell.lanes().nulls && cell.terms().iter().any(|term| term.coefficient < 0) {
            noise.negate()?;
        }
        cell.add(&noise).map_err(at)?;
        builder.push(&cell)?;
    }
    Ok(builder.finish()?)
}

#[cfg(test)]
mod tests {
    use arrow::buffer::NullBuffer;
    use veil_cells::{CellType, ColumnId, Kind, Nulls, negate_cells, scale_cells};
    use veil_keys::encrypt_column;

    use super::super::tests::{column_type, constants, opened, support};
    use super::*;
    use crate::laplace_scale::scale;
    use crate::testing::Parties;

    /// Two chunks, in one round: public NULLs stay NULL, hidden ones keep their lane, tags go.
    #[tokio::test(flavor = "multi_thread")]
    async fn nulls_stay_and_tags_go() {
        let mut parties = Parties::new(42);
        let (constants, width) = constants(&parties, 0, 100);
        let scale = scale(&parties.session, &constants, width).await.unwrap();
        let rows = DEGREE + 100;
        let present: Vec<bool> = (0..rows).map(|row| row % 5 != 2).collect();
        for (hidden, tag) in [(false, false), (false, true), (true, false), (true, true)] {
            let mut cell_type = column_type(&parties, 0, 100);
            cell_type.tag = tag;
            cell_type.nulls = if hidden { Nulls::Hidden } else { Nulls::Public };
            let message = |row: usize| {
                let lanes = [Some((row % 100) as i64), hidden.then_some(i64::from(!present[row])), tag.then_some(77)];
                lanes.into_iter().flatten()
            };
            let messages: Vec<i64> = (0..rows).flat_map(message).collect();
            let nulls = (!hidden).then(|| NullBuffer::from(present.clone()));
            let cells =
                encrypt_column(&parties.owner, &cell_type, &messages, nulls.as_ref(), &mut parties.rng).unwrap();
            let rounds = parties.session.traffic().rounds();
            let noisy = add_laplace(&parties.session, &scale, CellArray::Binary(&cells), vec![2; rows], 2);
            let noisy = noisy.await.unwrap();
            assert_eq!(parties.session.traffic().rounds(), rounds + 1);
            assert_eq!(noisy.nulls(), nulls.as_ref());
            let shape = CellView::parse(noisy.value(0)).unwrap().lanes();
            assert_eq!(shape, Lanes { value: 1, nulls: hidden, tag: false });
            let opened = opened(&parties, &cell_type, &noisy);
            let (lanes, support) = (shape.total(), support(100, 2));
            for row in 0..rows {
                let noise = opened[row * lanes] - (row % 100) as i64;
                assert!(support.contains(&noise) || nulls.is_some() && !present[row], "row {row}: {noise}");
                assert!(!hidden || opened[row * lanes + 1] == i64::from(!present[row]), "row {row}");
            }
        }
        let nothing = CellArrayBuilder::default().finish().unwrap();
        let none = add_laplace(&parties.session, &scale, CellArray::Binary(&nothing), vec![], 2).await.unwrap();
        assert_eq!(none.len(), 0);
        let nulls: BinaryArray = BinaryArray::from_iter(vec![None::<&[u8]>; 3]);
        let noisy = add_laplace(&parties.session, &scale, CellArray::Binary(&nulls), vec![1; 3], 2).await.unwrap();
        assert_eq!(noisy.null_count(), 3);
    }

    /// Factors, sums and dense cells do not go to P2: the noise comes alone and is added.
    #[tokio::test(flavor = "multi_thread")]
    async fn cells_that_are_not_plain_get_noise_too() {
        let mut parties = Parties::new(43);
        let (constants, width) = constants(&parties, 0, 100);
        let scale = scale(&parties.session, &constants, width).await.unwrap();
        let (rows, step_bound) = (60, 9);
        let steps: Vec<i64> = (0..rows).map(|row| row % 19 - 9).collect();
        for (hidden, factor) in [(false, 3), (true, 3), (false, -1), (true, -1)] {
            let cell_type =
                CellType { nulls: if hidden { Nulls::Hidden } else { Nulls::Public }, ..column_type(&parties, 0, 100) };
            let messages: Vec<i64> = match hidden {
                true => (0..rows).flat_map(|row| [row, i64::from(row % 4 == 0)]).collect(),
                false => (0..rows).collect(),
            };
            let nulls = NullBuffer::from_iter((0..rows).map(|row| hidden || row % 4 != 0));
            let cells = encrypt_column(&parties.owner, &cell_type, &messages, Some(&nulls), &mut parties.rng).unwrap();
            let cells = match factor {
                -1 => negate_cells(CellArray::Binary(&cells)).unwrap(),
                _ => scale_cells(CellArray::Binary(&cells), factor).unwrap(),
            };
            let up = parties.session.traffic().bytes_up();
            let noisy = add_laplace(&parties.session, &scale, CellArray::Binary(&cells), steps.clone(), step_bound);
            let noisy = noisy.await.unwrap();
            let up = parties.session.traffic().bytes_up() - up;
            assert!(up < veil_slots::OUTBOUND_BYTES as u64 + 600, "{up} bytes: no samples go up");
            assert_eq!(noisy.null_count(), cells.null_count());
            let lanes = 1 + usize::from(hidden);
            let opened = opened(&parties, &cell_type, &noisy);
            for row in (0..rows as usize).filter(|row| cells.is_valid(*row)) {
                let sign = if hidden && factor < 0 { -1 } else { 1 };
                let noise = sign * (opened[row * lanes] - factor * row as i64);
                let support = support(100, steps[row]);
                assert!(support.contains(&noise), "row {row}: {noise} in {support:?}");
                assert!(!hidden || (opened[row * 2 + 1] != 0) == (row % 4 == 0), "row {row}");
                let magnitude = CellView::parse(noisy.value(row)).unwrap().magnitude().unwrap();
                assert_eq!(magnitude, 128 * factor.unsigned_abs() + noise_bound(width, step_bound));
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_cannot_be_done_is_refused_in_a_sentence() {
        let mut parties = Parties::new(44);
        let (constants, width) = constants(&parties, 0, 100);
        let wide = scale(&parties.session, &constants, 32).await.unwrap();
        let scale = scale(&parties.session, &constants, width).await.unwrap();
        let cell_type = column_type(&parties, 0, 100);
        let cells = encrypt_column(&parties.owner, &cell_type, &[1, 2], None, &mut parties.rng).unwrap();
        let text = CellType::new(Kind::Text, Width::FULL, 1, parties.owner.key_id(), ColumnId([1; 8]));
        let texts = encrypt_column(&parties.owner, &text, &[1, 2], None, &mut parties.rng).unwrap();
        for (scale, cells, steps, bound, expected) in [
            (&scale, &cells, vec![1], 5, "1 noise steps cannot be added to 2 rows"),
            (&scale, &cells, vec![1, -6], 5, "a noise step lies beyond the bound that was given for it"),
            (&scale, &cells, vec![i64::MIN, 0], 5, "a noise step lies beyond the bound that was given for it"),
            (&scale, &cells, vec![1, 1], MAX_STEP_BOUND + 1, "cannot be hidden from P2 (the limit is 4194304): use a"),
            (&scale, &cells, vec![1, 1], u64::MAX, "use a larger epsilon, or declare the column's bounds public"),
            (&wide, &cells, vec![1, 1], 1 << 20, "the result could exceed 48 bits"),
            (&scale, &texts, vec![1, 1], 5, "row 0: noise is for numbers, not text or categories"),
        ] {
            let error = add_laplace(&parties.session, scale, CellArray::Binary(cells), steps, bound).await.unwrap_err();
            assert!(matches!(error, ProtocolError::Misuse(_)) && error.to_string().contains(expected), "{error}");
        }
        let other = Parties::new(45);
        let error = add_laplace(&other.session, &scale, CellArray::Binary(&cells), vec![1, 1], 5).await.unwrap_err();
        assert!(error.to_string().starts_with("row 0: wrong key"), "{error}");
    }
}
