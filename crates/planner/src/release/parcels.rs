//! Rows as the rounds take them: plain cells straight, all others through slots.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use veil_cells::{CellArray, CellError, CellView, KeyId, Kind, Nulls};
use veil_protocols::choose::Categories;
use veil_protocols::lift::{MAX_WIDTH, lift_column};
use veil_protocols::lift_wide::lift_wide_column;
use veil_protocols::redraw::{redraw_bits, redraw_categories};
use veil_protocols::release::seal_parcel::Column;
use veil_protocols::truncate::{Dividend, Rounding, truncate};
use veil_protocols::{ProtocolError, Session};
use veil_slots::{L1, Sample, Slots, plain};

use super::columns::EncryptedColumn;

/// A column of at most 8192 rows, and which of them P1 sees to be NULL, if any are.
pub(super) struct Prepared {
    pub(super) column: Column,
    pub(super) present: Option<BooleanArray>,
}

/// Prepares a column. `suppressed` is in every slot whether its row is.
pub(super) async fn prepare(
    session: &Session,
    column: &EncryptedColumn,
    cells: &ArrayRef,
    suppressed: Option<&Slots<L1>>,
) -> Result<Prepared, ProtocolError> {
    let present = cells.nulls().filter(|nulls| nulls.null_count() > 0);
    let present = present.map(|nulls| BooleanArray::new(nulls.inner().clone(), None));
    let is_plain = suppressed.is_none() && column.draws().is_empty() && column.cell_type.fraction_bits == 0;
    if is_plain && let Some(lanes) = plain_samples(column, CellArray::try_new(cells)?, session.key_id())? {
        return Ok(Prepared { column: Column::Cells(lanes), present });
    }
    let lanes = lanes_in_slots(session, column, CellArray::try_new(cells)?).await?;
    Ok(Prepared { column: Column::Slots(lanes, suppressed.cloned()), present })
}

/// Whether each row is suppressed.
pub(super) async fn flags(
    session: &Session,
    column: &EncryptedColumn,
    cells: &ArrayRef,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    lift_column(session, CellArray::try_new(cells)?, 0, column.cell_type.width.bits()).await
}

/// The samples of every lane, if every cell is one plain sample a lane.
fn plain_samples(
    column: &EncryptedColumn,
    cells: CellArray<'_>,
    key: KeyId,
) -> Result<Option<Vec<Vec<Sample>>>, ProtocolError> {
    let lanes = column.cell_type.cell_lanes();
    let count = usize::from(lanes.value) + usize::from(lanes.nulls);
    let mut samples = vec![Vec::with_capacity(cells.len()); count];
    let mut known = None;
    for (row, bytes) in (0..cells.len()).filter_map(|row| Some((row, cells.bytes(row)?))) {
        let at = |error: CellError| ProtocolError::Misuse(format!("{}, row {}: {error}", column.name, row + 1));
        let cell = CellView::parse_next(&mut known, bytes).map_err(at)?;
        if cell.key_id() != key {
            return Err(at(CellError::WrongKey { expected: key, found: cell.key_id() }));
        }
        if (cell.lanes().value, cell.lanes().nulls) != (lanes.value, lanes.nulls) {
            return Err(at(CellError::Malformed("it has other lanes than its column's type says".to_owned())));
        }
        if cell.dense_mask(0).is_some() || cell.divisor() != 1 {
            let text = "a sum or average of many rows cannot be released: release the rows that it is of".to_owned();
            return Err(at(CellError::Unsupported(text)));
        }
        let mut terms = cell.terms();
        let (Some(term), None) = (terms.next().filter(|term| term.coefficient == 1), terms.next()) else {
            return Ok(None);
        };
        for ((lane, samples), body) in samples.iter_mut().enumerate().zip(cell.bodies()) {
            samples.push(Sample { seed: term.seed, index: term.index + lane as u16, body });
        }
    }
    Ok(Some(samples))
}

/// The vector of every lane: one, since there are at most 8192 rows.
async fn lanes_in_slots(
    session: &Session,
    column: &EncryptedColumn,
    cells: CellArray<'_>,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let (cell_type, draws) = (&column.cell_type, column.draws());
    let (bits, count) = (cell_type.width.bits(), usize::from(cell_type.lanes));
    let misuse = |text: String| Err(ProtocolError::Misuse(text));
    if bits > MAX_WIDTH && cell_type.kind != Kind::Text {
        return misuse(format!(
            "{} may have numbers of more than {MAX_WIDTH} bits, too large to be released",
            column.name
        ));
    }
    let mut lanes: Vec<Vec<Slots<L1>>> = Vec::with_capacity(count + 1);
    match (cell_type.kind, draws.is_empty()) {
        (Kind::Boolean | Kind::Binary, false) => lanes.push(redraw_bits(session, cells, bits, &draws).await?),
        (Kind::Category, false) => {
            let Some(shape) = &column.shape else {
                let text = "and the shape of its hierarchy is not known any more: add noise last";
                return misuse(format!("{} awaits noise of P2, {text}", column.name));
            };
            let (categories, codes) = (Categories::new(shape.codes(), bits)?, Arc::new(shape.codes().to_vec()));
            lanes.extend(redraw_categories(session, cells, &categories, codes, &draws).await?);
        }
        (_, false) => return misuse(format!("{} awaits noise that is not for its kind", column.name)),
        (Kind::Text, true) => {
            for lane in 0..count {
                lanes.push(lift_wide_column(session, cells, lane).await?);
            }
        }
        (_, true) => {
            for lane in 0..count {
                let lifted = lift_column(session, cells, lane, bits).await?;
                lanes.push(rounded(session, lifted, bits, cell_type.fraction_bits.into()).await?);
            }
        }
    }
    if cell_type.nulls == Nulls::Hidden {
        lanes.push(lift_column(session, cells, count, bits.min(MAX_WIDTH)).await?);
    }
    let single = |vectors: Vec<Slots<L1>>| <[_; 1]>::try_from(vectors).map(|[vector]| vector);
    let lanes = lanes.into_iter().map(single).collect::<Result<Vec<_>, _>>();
    lanes.map_err(|vectors| ProtocolError::Misuse(format!("{} vectors are no parcel", vectors.len())))
}

/// Rounds places below the unit away, as a decryption does: an unrounded product gives its factor away.
async fn rounded(
    session: &Session,
    vectors: Vec<Slots<L1>>,
    bits: u32,
    fraction_bits: u32,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    if fraction_bits == 0 {
        return Ok(vectors);
    }
    let above = 1u64 << (bits - 1);
    let dividend = |mut slots: Slots<L1>| {
        slots.add_constant(above);
        Dividend { slots, shift: fraction_bits, rounding: Rounding::Nearest }
    };
    let mut quotients = truncate(session, vectors.into_iter().map(dividend).collect()).await?;
    quotients.iter_mut().for_each(|quotient| quotient.add_constant(plain::neg(above >> fraction_bits)));
    Ok(quotients)
}
