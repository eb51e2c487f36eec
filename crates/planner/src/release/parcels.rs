//! Rows as the rounds take them: plain cells and sums straight, all others through slots.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array};
use rand::CryptoRng;
use veil_cells::{Cell, CellArray, CellError, CellView, KeyId, Kind, Nulls, POLYNOMIAL_SIZE};
use veil_protocols::choose::Categories;
use veil_protocols::lift::{MAX_WIDTH, lift_column};
use veil_protocols::lift_wide::lift_wide_column;
use veil_protocols::redraw::{redraw_bits, redraw_categories};
use veil_protocols::release::seal_parcel::{Column, DenseSample, most_rows};
use veil_protocols::truncate::{Dividend, Rounding, truncate};
use veil_protocols::{ColumnVectors, ProtocolError, Session};
use veil_release::{ROW_KEY_LANES, RowKey};
use veil_slots::{L1, Sample, Slots, plain};

use super::columns::EncryptedColumn;

/// A column of at most 8192 rows, and what P1 sees of it.
pub(super) struct Prepared {
    pub(super) column: Column,
    /// Which rows have a value, if not all do.
    pub(super) present: Option<BooleanArray>,
    /// What numbers are yet to be divided by, if any are.
    pub(super) divisors: Option<UInt32Array>,
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
    let array = CellArray::try_new(cells)?;
    let stays = suppressed.is_none() && column.draws().is_empty() && column.cell_type.fraction_bits == 0;
    if stays {
        let divisors = divisors(column, array)?;
        match samples(column, array, session.key_id())? {
            Samples::Plain(lanes) => return Ok(Prepared { column: Column::Cells(lanes), present, divisors }),
            Samples::Affine if !column.is_wide() => {}
            Samples::Affine | Samples::Dense => {
                return Ok(Prepared { column: Column::Dense(dense_samples(column, array)?), present, divisors });
            }
        }
    }
    let lanes = lanes_in_slots(session, column, array).await?;
    Ok(Prepared { column: Column::Slots(lanes, suppressed.cloned()), present, divisors: None })
}

/// How many rows of a table fit a parcel: sums have masks of 32 KiB.
pub(super) fn parcel_rows<'a>(
    columns: impl Iterator<Item = (&'a EncryptedColumn, &'a ArrayRef)>,
    key: KeyId,
) -> Result<usize, ProtocolError> {
    let mut dense = 0;
    for (column, cells) in columns.filter(|(column, _)| column.is_wide()) {
        if !matches!(samples(column, CellArray::try_new(cells)?, key)?, Samples::Plain(_)) {
            dense += column.lanes();
        }
    }
    Ok(most_rows(dense))
}

/// Whether each row is suppressed.
pub(super) async fn flags(
    session: &Session,
    column: &EncryptedColumn,
    cells: &ArrayRef,
) -> Result<ColumnVectors, ProtocolError> {
    let mut flags = lift_column(session, CellArray::try_new(cells)?, 0, column.cell_type.width.bits()).await?;
    // Rows of which nothing tells are not to be published.
    if let Some(nulls) = cells.nulls().filter(|nulls| nulls.null_count() > 0) {
        flags.add_clear(&nulls.iter().map(|is_valid| u64::from(!is_valid)).collect::<Vec<_>>());
    }
    Ok(flags)
}

/// Keys of rows, one for each, and as a column of a parcel: those of suppressed rows reach the recipient as noise.
pub(super) fn row_keys(rows: usize, suppressed: &Slots<L1>, rng: &mut impl CryptoRng) -> (Vec<RowKey>, Column) {
    let keys: Vec<RowKey> = (0..rows).map(|_| std::array::from_fn(|_| plain::uniform(rng))).collect();
    let lane = |lane: usize| Slots::clear(&keys.iter().map(|key| key[lane]).collect::<Vec<u64>>());
    let lanes = (0..ROW_KEY_LANES).map(lane).collect();
    (keys, Column::Slots(lanes, Some(suppressed.clone())))
}

/// What the cells of a column are made of.
enum Samples {
    /// One plain sample a lane: for every lane those of the rows that are not NULL.
    Plain(Vec<Vec<Sample>>),
    /// A few, or with factors.
    Affine,
    /// Some are sums of many, or quotients.
    Dense,
}

fn at(column: &EncryptedColumn, row: usize) -> impl Fn(CellError) -> ProtocolError {
    move |error| ProtocolError::Misuse(format!("{}, row {}: {error}", column.name, row + 1))
}

fn samples(column: &EncryptedColumn, cells: CellArray<'_>, key: KeyId) -> Result<Samples, ProtocolError> {
    let lanes = column.cell_type.cell_lanes();
    let mut plain = Some(vec![Vec::with_capacity(cells.len()); column.lanes()]);
    let (mut is_dense, mut known) = (false, None);
    for (row, bytes) in (0..cells.len()).filter_map(|row| Some((row, cells.bytes(row)?))) {
        let at = at(column, row);
        let cell = CellView::parse_next(&mut known, bytes).map_err(&at)?;
        if cell.key_id() != key {
            return Err(at(CellError::WrongKey { expected: key, found: cell.key_id() }));
        }
        if (cell.lanes().value, cell.lanes().nulls) != (lanes.value, lanes.nulls) {
            return Err(at(CellError::Malformed("it has other lanes than its column's type says".to_owned())));
        }
        is_dense |= cell.dense_mask(0).is_some() || cell.divisor() != 1;
        let mut terms = cell.terms();
        let (Some(term), None) = (terms.next().filter(|term| term.coefficient == 1), terms.next()) else {
            plain = None;
            continue;
        };
        for ((lane, samples), body) in plain.iter_mut().flatten().enumerate().zip(cell.bodies()) {
            samples.push(Sample { seed: term.seed, index: term.index + lane as u16, body });
        }
    }
    Ok(match plain {
        Some(lanes) => Samples::Plain(lanes),
        None if is_dense => Samples::Dense,
        None => Samples::Affine,
    })
}

/// Every value with the mask that its samples add up to.
fn dense_samples(column: &EncryptedColumn, cells: CellArray<'_>) -> Result<Vec<Vec<DenseSample>>, ProtocolError> {
    let mut lanes = vec![Vec::with_capacity(cells.len()); column.lanes()];
    for (row, bytes) in (0..cells.len()).filter_map(|row| Some((row, cells.bytes(row)?))) {
        let cell = Cell::from_bytes(bytes).map_err(at(column, row))?;
        let masks = cell.lwe_masks();
        for ((lane, mask), body) in lanes.iter_mut().zip(masks.chunks_exact(POLYNOMIAL_SIZE)).zip(cell.bodies()) {
            lane.push(DenseSample { mask: mask.to_vec(), body: *body });
        }
    }
    Ok(lanes)
}

/// The divisors of a column that has quotients.
fn divisors(column: &EncryptedColumn, cells: CellArray<'_>) -> Result<Option<UInt32Array>, ProtocolError> {
    if !(0..cells.len()).any(|row| cells.bytes(row).is_some_and(CellView::is_quotient)) {
        return Ok(None);
    }
    let divisor = |row: usize| match cells.bytes(row) {
        Some(bytes) => Ok(CellView::parse(bytes).map_err(at(column, row))?.divisor()),
        None => Ok(1),
    };
    (0..cells.len()).map(divisor).collect::<Result<Vec<u32>, ProtocolError>>().map(|all| Some(all.into()))
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
                lanes.push(lift_wide_column(session, cells, lane).await?.into_vectors());
            }
        }
        (_, true) => {
            for lane in 0..count {
                let lifted = lift_column(session, cells, lane, bits).await?.into_vectors();
                lanes.push(rounded(session, lifted, bits, cell_type.fraction_bits.into()).await?);
            }
        }
    }
    if cell_type.nulls == Nulls::Hidden {
        lanes.push(lift_column(session, cells, count, bits.min(MAX_WIDTH)).await?.into_vectors());
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
