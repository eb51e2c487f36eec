//! Cells into coordinates of the grid.
//!
//! ```text
//!  numbers       x in every block;  z = (x - lower) S / 2^32                        `lift`, `multiply`, `few`, `fold`
//!  categories    all levels;  z = the lowest level that is not -1                   `lift`, `fold`, `zero_test`, `multiply`
//!  clear ones    P1 alone
//! ```
//! See [`clusters::coordinate`](veil_privacy::clusters::coordinate) for the formula, and `constants` for `S`. Rows of short tables are repeated in
//! every block.

use arrow::array::ArrayRef;
use futures::{StreamExt, TryStreamExt, stream};
use veil_cells::{CellArray, ColumnConstants};
use veil_privacy::clusters::{GRID_BITS, SCALE_BITS, coordinate};
use veil_slots::{DEGREE, L1, Offset, Slots, plain};

use super::constants::Scale;
use super::{Bounds, Quasi, Values};
use crate::few::truncate_wide;
use crate::fold::fold;
use crate::lift::lift_column;
use crate::multiply::multiply;
use crate::truncate::{Dividend, Rounding};
use crate::zero_test::zero_test;
use crate::{ProtocolError, Session, Tiles};

/// Vectors that are divided at the same time: the digits of one take 25 MB.
const WINDOW: usize = 8;

/// Columns whose rounds are under way at the same time, so that neither side waits for the other.
pub(super) const COLUMNS_AT_ONCE: usize = 2;

/// Keeps quotients of numbers a little below their lower bound from wrapping: the mean of a large class may have been rounded there.
const BELOW: u64 = 1 << 40;

/// A table as the rounds take it.
pub(super) struct Grid {
    /// For every chunk of rows and column, its coordinates.
    pub(super) coordinates: Vec<Vec<Slots<L1>>>,
    /// For every category, for every level, the chunks of its codes.
    pub(super) levels: Vec<Vec<Vec<Slots<L1>>>>,
    /// For every column of numbers, how they are scaled.
    pub(super) scales: Vec<Option<Scale>>,
}

/// Lifts and scales all columns, some of them at the same time.
pub(super) async fn prepare(session: &Session, rows: usize, quasi: &[Quasi]) -> Result<Grid, ProtocolError> {
    let tiles = Tiles::new(rows, 1);
    let scales = scales_of(session, quasi).await?;
    let prepared =
        quasi.iter().zip(&scales).map(|(quasi, scale)| prepare_column(session, &tiles, quasi, scale.as_ref()));
    // Gathered first: a stream of borrowing futures is not `Send` otherwise.
    let prepared: Vec<_> = prepared.collect();
    let prepared: Vec<Prepared> = stream::iter(prepared).buffered(COLUMNS_AT_ONCE).try_collect().await?;
    let (columns, levels): (Vec<_>, Vec<_>) = prepared.into_iter().map(|of| (of.coordinates, of.levels)).unzip();
    let of_chunk = |chunk: usize| columns.iter().map(|column| column.get(chunk).cloned()).collect::<Option<Vec<_>>>();
    let coordinates = (0..tiles.chunks()).map(of_chunk).collect::<Option<Vec<_>>>();
    let coordinates =
        coordinates.ok_or_else(|| ProtocolError::Misuse("the columns are of different lengths".to_owned()))?;
    Ok(Grid { coordinates, levels: levels.into_iter().flatten().collect(), scales })
}

/// A column, in chunks of rows.
struct Prepared {
    coordinates: Vec<Slots<L1>>,
    /// Of a category, the codes of every level.
    levels: Option<Vec<Vec<Slots<L1>>>>,
}

async fn prepare_column(
    session: &Session,
    tiles: &Tiles,
    quasi: &Quasi,
    scale: Option<&Scale>,
) -> Result<Prepared, ProtocolError> {
    match &quasi.values {
        Values::Numbers { cells, bits, .. } => {
            Ok(Prepared { coordinates: scaled(session, tiles, scale, cells, *bits).await?, levels: None })
        }
        Values::Categories { cells, levels: count, bits, generalised } => {
            let mut lanes = Vec::with_capacity(*count);
            for lane in 0..*count {
                lanes.push(repeated(session, tiles, cells, lane, *bits).await?);
            }
            let coordinates = if *generalised { lowest(session, &lanes).await? } else { first_of(&lanes)?.clone() };
            Ok(Prepared { coordinates, levels: Some(lanes) })
        }
        Values::Clear(numbers) => Ok(Prepared { coordinates: clear_coordinates(tiles.rows(), numbers), levels: None }),
    }
}

/// A lane of a column, with rows of short tables in every block. Each cell is lifted once: copies that were lifted on their own would show
/// P2 the same number behind many masks.
async fn repeated(
    session: &Session,
    tiles: &Tiles,
    cells: &ArrayRef,
    lane: usize,
    bits: u32,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    // Behind the rows, and so in all blocks but the first, a lifted vector is zero.
    fold(session, tiles, lift_column(session, CellArray::try_new(cells)?, lane, bits).await?.into_vectors()).await
}

fn first_of(lanes: &[Vec<Slots<L1>>]) -> Result<&Vec<Slots<L1>>, ProtocolError> {
    lanes.first().ok_or_else(|| ProtocolError::Misuse("a category has no level".to_owned()))
}

/// The smallest and the largest number.
pub(crate) fn clear_bounds(numbers: &[i64]) -> (i64, i64) {
    let lower = numbers.iter().copied().min().unwrap_or(0);
    (lower, numbers.iter().copied().max().unwrap_or(lower))
}

fn clear_coordinates(rows: usize, numbers: &[i64]) -> Vec<Slots<L1>> {
    let (lower, upper) = clear_bounds(numbers);
    let tiles = Tiles::new(rows, 1);
    let slot = |row: Option<usize>| {
        let number = row.and_then(|row| numbers.get(row)).copied().unwrap_or(lower);
        plain::from_signed(coordinate(number, lower, upper))
    };
    // A tile of one centre still repeats its rows.
    let chunk = |chunk| Slots::clear(&(0..DEGREE).map(|at| slot(tiles.row_of(chunk, at))).collect::<Vec<_>>());
    (0..tiles.chunks()).map(chunk).collect()
}

/// Of the levels of a category the lowest that is not -1: `z_h = z_(h+1) + [a_h != -1] (a_h - z_(h+1))`, from the root down.
async fn lowest(session: &Session, lanes: &[Vec<Slots<L1>>]) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let Some((root, below)) = lanes.split_last() else { return Ok(first_of(lanes)?.clone()) };
    let mut lowest = root.clone();
    for level in below.iter().rev() {
        for (lowest, level) in lowest.chunks_mut(WINDOW).zip(level.chunks(WINDOW)) {
            let plus_one = |code: &Slots<L1>| {
                let mut code = code.clone();
                code.add_constant(1);
                code
            };
            let beyond = zero_test(session, level.iter().map(plus_one).collect()).await?;
            let pairs = beyond.into_iter().zip(level).zip(lowest.iter()).map(|((beyond, code), above)| {
                let mut difference = above.clone();
                difference.sub(code);
                (beyond, difference)
            });
            let products = multiply(session, pairs.collect()).await?;
            for ((lowest, code), mut product) in lowest.iter_mut().zip(level).zip(products) {
                product.add(code);
                *lowest = product;
            }
        }
    }
    Ok(lowest)
}

/// What makes numbers coordinates; nothing for a category.
async fn scales_of(session: &Session, quasi: &[Quasi]) -> Result<Vec<Option<Scale>>, ProtocolError> {
    let constants = |quasi: &'_ Quasi| match &quasi.values {
        Values::Numbers { bounds: Bounds::Encrypted(constants), .. } => Some(constants.clone()),
        _ => None,
    };
    let constants: Vec<_> = quasi.iter().filter_map(constants).collect();
    let constants: Vec<&ColumnConstants> = constants.iter().map(AsRef::as_ref).collect();
    let mut encrypted = Scale::encrypted(session, &constants).await?.into_iter();
    let scale = |quasi: &Quasi| match &quasi.values {
        Values::Numbers { bounds: Bounds::Encrypted(_), .. } => encrypted.next(),
        Values::Numbers { bounds: Bounds::Public(lower, upper), .. } => Some(Scale::public(*lower, *upper)),
        Values::Clear(numbers) => {
            let (lower, upper) = clear_bounds(numbers);
            Some(Scale::public(lower, upper))
        }
        Values::Categories { .. } => None,
    };
    Ok(quasi.iter().map(scale).collect())
}

/// The coordinates of a column, repeated in every block.
async fn scaled(
    session: &Session,
    tiles: &Tiles,
    scale: Option<&Scale>,
    cells: &ArrayRef,
    bits: u32,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let scale = scale.ok_or_else(|| ProtocolError::Misuse("a column of numbers has no bounds".to_owned()))?;
    // Rows of short tables are divided once, and then repeated.
    if tiles.rows() < DEGREE / 2 {
        let lifted = lift_column(session, CellArray::try_new(cells)?, 0, bits).await?;
        return fold(session, tiles, on_grid(session, tiles.rows(), scale, &lifted).await?).await;
    }
    on_grid(session, tiles.rows(), scale, &repeated(session, tiles, cells, 0, bits).await?).await
}

/// The coordinates of numbers that were lifted. In slots without a row is zero in short tables, in others whatever comes of it.
pub(crate) async fn on_grid(
    session: &Session,
    rows: usize,
    scale: &Scale,
    lifted: &[Slots<L1>],
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let mut coordinates = Vec::with_capacity(lifted.len());
    for window in lifted.chunks(WINDOW) {
        let above = |x: &Slots<L1>| {
            let mut above = x.clone();
            above.sub(&scale.lower.raised());
            (above, scale.scale.raised())
        };
        let mut products = multiply(session, window.iter().map(above).collect()).await?;
        let shift = SCALE_BITS - GRID_BITS;
        products.iter_mut().for_each(|product| product.add_constant(BELOW));
        let dividend = |slots| Dividend { slots, shift, rounding: Rounding::Nearest };
        // Products are up to 2^47, and what is as little above the upper bound as others are below the lower one.
        let dividends = products.into_iter().map(dividend).collect();
        let mut scaled = truncate_wide(session, rows.min(DEGREE), dividends).await?;
        // Quotients of short tables are zero behind their rows, and stay so.
        let below = if rows < DEGREE / 2 { rows } else { DEGREE };
        let below = Offset::new(&vec![BELOW >> shift; below]);
        scaled.iter_mut().for_each(|scaled| scaled.sub_clear(&below));
        coordinates.extend(scaled);
    }
    Ok(coordinates)
}
