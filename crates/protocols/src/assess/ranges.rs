//! How wide the classes of a number are: the sum over published rows of `max - min` of their class, of `max - min` of all.
//!
//! ```text
//!  labels of classes, numbers        both in one secret order of P1          `relabel`, `shuffle`
//!  rows of a class together          in an order that P2 alone knows         `group`
//!  ends of every class, of all       exact comparisons                       `gather`, `few`, `multiply`
//!  sum |class| width / (N' range)    in 2^-20, opened to P1                  `slot_sum`, `ratio`, `open`
//! ```
//! P2 learns the sizes of the classes once more, under other labels and in another order. Sizes are all that P1 knows of the classes: nobody sees a
//! number, an end, or which row is where.

use std::collections::BTreeMap;

use veil_cells::CellArray;
use veil_privacy::clusters::GRID_BITS;
use veil_privacy::utility::lengthened;
use veil_slots::{DEGREE, Factor, L1, L2, Slots, plain};

use super::ends::{Ends, ends_of};
use super::information_loss::{Numbers, clear_grid, scales};
use super::ratio::{Fractions, MAX_NUMBERS, block_of, ratio};
use super::{Suppressed, opened, packed};
use crate::group::{self, group};
use crate::identifiers::{Column, Table};
use crate::k_anonymize::Values;
use crate::k_anonymize::constants::Scale;
use crate::k_anonymize::coordinates::{clear_bounds, on_grid};
use crate::lift::lift_column;
use crate::lists::together;
use crate::size_histogram::Sizes;
use crate::slot_sum::slot_sum;
use crate::{ColumnVectors, ProtocolError, Session};

/// The most rows.
const MAX_ROWS: usize = group::MAX_ROWS;

/// Sums of widths have fewer bits than this; where they could have more, widths are measured on the grid of clusters.
const SUM_BITS: u32 = 46;

/// A table whose classes are as wide as is asked.
#[derive(Clone, Debug)]
pub struct Classes<'a> {
    /// The quasi-identifiers as they are published.
    pub columns: Vec<Column>,
    /// Which rows are suppressed.
    pub suppressed: Option<&'a Suppressed>,
    /// The sizes of its classes, as [`class_sizes`](super::class_sizes) found them.
    pub sizes: &'a Sizes,
}

/// Bits of the differences of a column's numbers, and whether these are places on the grid.
pub fn width_bits(values: &Values, rows: usize) -> (u32, bool) {
    let bits = match values {
        Values::Numbers { bits, .. } => *bits,
        Values::Clear(numbers) => {
            let (lower, upper) = clear_bounds(numbers);
            u64::BITS - upper.abs_diff(lower).leading_zeros()
        }
        Values::Categories { .. } => 0,
    };
    match bits.max(1) + log2(rows) > SUM_BITS {
        true => (GRID_BITS + 1, true),
        false => (bits.max(1), false),
    }
}

/// The logarithm to base two, rounded up.
fn log2(number: usize) -> u32 {
    number.max(1).next_power_of_two().ilog2()
}

/// For every column of numbers the mean width of the classes of published rows, in units of `2^-20` of the width of the whole column.
pub async fn ranges(
    session: &Session,
    rows: usize,
    classes: Classes<'_>,
    numbers: &[Numbers],
    done: &(dyn Fn(usize) + Send + Sync),
) -> Result<Vec<u64>, ProtocolError> {
    let published = (rows as u64).saturating_sub(classes.sizes.suppressed);
    if numbers.is_empty() || published == 0 {
        return Ok(vec![0; numbers.len()]);
    }
    if rows > MAX_ROWS {
        return Err(ProtocolError::Misuse(format!(
            "widths of classes are told for tables of up to {MAX_ROWS} rows, and this one has {rows}: ask without ranges"
        )));
    }
    let values = values(session, rows, numbers).await?;
    let all = u64::MAX >> (u64::BITS as usize - classes.columns.len().clamp(1, 64));
    let (groups, weights) = places(classes.sizes);
    let table = Table::prepare_hidden(session, rows, classes.columns).await?;
    let gone = match classes.suppressed {
        Some(suppressed) => Some(suppressed.as_labels(session).await?),
        None => None,
    };
    let (labels, values) = table.shuffled_with(all, gone.as_ref(), values).await?;
    let moved = group(session, rows, labels, values).await?;
    let bits: Vec<u32> = numbers.iter().map(|column| width_bits(&column.original, rows).0).collect();
    let columns =
        moved.into_iter().zip(&bits).map(|(column, bits)| Ends { lows: column.clone(), highs: column, bits: *bits });
    let of_classes = ends_of(session, columns.collect(), groups, true).await?;
    let as_one = vec![(0..weights.len() as u64).collect::<Vec<u64>>()];
    let of_all = ends_of(session, of_classes.clone(), as_one, false).await?;
    let widths = of_classes.iter().map(|ends| weighted_width(ends, &weights));
    let ranges = of_all.iter().map(|ends| weighted_width(ends, &[1]));
    let sums = [widths.collect::<Option<_>>(), ranges.collect()].map(|sums| sums.ok_or(ProtocolError::Cancelled));
    let [widths, ranges] = sums;
    let (sums, lengths) = together([widths?, ranges?]);
    let [widths, ranges] = lengths.each(slot_sum(session, sums).await?)?;
    // A quotient needs to know how large its denominator may be.
    let mut alike: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    bits.iter().enumerate().for_each(|(at, bits)| alike.entry(*bits).or_default().push(at));
    let mut found = vec![0; numbers.len()];
    let mut some: Vec<(u32, &[usize])> = Vec::new();
    alike.iter().for_each(|(bits, columns)| some.extend(columns.chunks(MAX_NUMBERS).map(|columns| (*bits, columns))));
    for (bits, columns) in some {
        let bits = bits + log2(published as usize);
        let by = lengthened(bits);
        let numerators = packed(columns.iter().filter_map(|at| widths.get(*at)), 1 << by);
        let denominators = packed(columns.iter().filter_map(|at| ranges.get(*at)), published << by);
        let bits = bits + by;
        let fractions = Fractions { block: block_of(columns.len()), numerators, denominators, bits, least: 0 };
        let quotients = opened(session, ratio(session, fractions).await?, columns.len()).await?;
        for (at, quotient) in columns.iter().zip(quotients) {
            let quotient = u64::try_from(quotient);
            let quotient = quotient.map_err(|_| ProtocolError::Malformed("a width is negative".to_owned()))?;
            if let Some(found) = found.get_mut(*at) {
                *found = quotient;
            }
        }
    }
    done(numbers.len());
    Ok(found)
}

/// Where the rows of every class lie when they are grouped, and how many of them are published. Suppressed rows are one more class, which counts
/// for the ends of the column alone.
fn places(sizes: &Sizes) -> (Vec<Vec<u64>>, Vec<u64>) {
    let of_size = |(size, classes): &(u64, u64)| std::iter::repeat_n((*size, *size), *classes as usize);
    let published = sizes.classes.iter().rev().flat_map(of_size);
    let suppressed = (sizes.suppressed > 0).then_some((sizes.suppressed, 0));
    let mut next = 0;
    let class = |(size, weight): (u64, u64)| {
        next += size;
        ((next - size..next).collect(), weight)
    };
    published.chain(suppressed).map(class).unzip()
}

/// The numbers of every column.
async fn values(session: &Session, rows: usize, numbers: &[Numbers]) -> Result<Vec<ColumnVectors>, ProtocolError> {
    let scales = scales(session, numbers).await?;
    let mut columns = Vec::with_capacity(numbers.len());
    for (column, scale) in numbers.iter().zip(&scales) {
        columns.push(ColumnVectors::new(rows, numbers_of(session, rows, &column.original, scale).await?)?);
    }
    Ok(columns)
}

async fn numbers_of(
    session: &Session,
    rows: usize,
    values: &Values,
    scale: &Scale,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let (_, is_on_grid) = width_bits(values, rows);
    match values {
        Values::Numbers { cells, bits, .. } => {
            let lifted = lift_column(session, CellArray::try_new(cells)?, 0, *bits).await?;
            if is_on_grid { on_grid(session, rows, scale, &lifted).await } else { Ok(lifted.into_vectors()) }
        }
        Values::Clear(numbers) if is_on_grid => Ok(clear_grid(numbers)),
        Values::Clear(numbers) => {
            let (lower, _) = clear_bounds(numbers);
            let above = |number: &i64| number.abs_diff(lower) % veil_slots::PLAIN_MODULUS;
            let chunk = |chunk: &[i64]| Slots::clear(&chunk.iter().map(above).collect::<Vec<_>>());
            Ok(numbers.chunks(DEGREE).map(chunk).collect())
        }
        Values::Categories { .. } => Err(ProtocolError::Misuse("a category is no number".to_owned())),
    }
}

/// The widths of classes, each times a number, on their way to be added up.
fn weighted_width(ends: &Ends, weights: &[u64]) -> Option<Slots<L2>> {
    let both = ends.highs.iter().zip(&ends.lows).zip(weights.chunks(DEGREE));
    let weighted = both.map(|((high, low), weights)| {
        let mut width = high.clone();
        width.sub(low);
        width.times(&Factor::new(&weights.iter().map(|weight| plain::from_signed(*weight as i64)).collect::<Vec<_>>()))
    });
    weighted.reduce(|mut sum, slots| {
        sum.add(&slots);
        sum
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::ArrayRef;
    use veil_cells::{CellType, ColumnId, Kind, Nulls, Width};
    use veil_keys::encrypt_column;
    use veil_privacy::clusters::coordinate;
    use veil_privacy::utility::RangeLoss;

    use super::super::class_sizes;
    use super::*;
    use crate::k_anonymize::Bounds;
    use crate::testing::Parties;

    fn cells(parties: &mut Parties, bits: (i64, i64), numbers: &[i64]) -> ArrayRef {
        let width = Width::of_range(bits.0, bits.1).unwrap();
        let cell_type = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([3; 8]));
        Arc::new(encrypt_column(&parties.owner, &cell_type, numbers, None, &mut parties.rng).unwrap())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn widths_are_those_of_the_clear_numbers() {
        let mut parties = Parties::new(690);
        for rows in [2usize, 50, 9000] {
            let class = |row: usize| if row % 10 == 3 { 7 } else { row % 6 };
            let tags: Vec<u64> = (0..rows).map(|row| 100 + class(row) as u64).collect();
            let gone: Vec<i64> = (0..rows).map(|row| i64::from(row % 9 == 8)).collect();
            let small: Vec<i64> = (0..rows).map(|row| (row * 37 % 50 + 20 * (row % 6)) as i64 - 30).collect();
            let large: Vec<i64> = (0..rows).map(|row| (row * row * 7919) as i64 % (1 << 31) - (1 << 30)).collect();
            let tagged: ArrayRef = Arc::new(parties.tagged_cells(Nulls::default(), &tags, None));
            let columns = vec![Column::Tags(tagged)];
            let flags = cells(&mut parties, (0, 1), &gone);
            let ends = [(-128, 127), (-(1 << 31), (1 << 31) - 1)];
            let sealed = [cells(&mut parties, ends[0], &small), cells(&mut parties, ends[1], &large)];
            let number = |at: usize, bits: u32| Numbers {
                original: Values::Numbers {
                    cells: sealed[at].clone(),
                    bits,
                    bounds: Bounds::Public(ends[at].0, ends[at].1),
                },
                published: sealed[at].clone(),
                bits,
            };
            let clear = Numbers { original: Values::Clear(small.clone().into()), ..number(0, 8) };
            let numbers = [number(0, 8), number(1, 32), clear];
            let session = parties.session.clone();
            let suppressed = Suppressed::lift(&session, &flags).await.unwrap();
            for suppressed in [None, Some(&suppressed)] {
                let sizes =
                    class_sizes(Some(&session), rows, columns.clone(), suppressed, &[1], &|_| ()).await.unwrap();
                let classes = Classes { columns: columns.clone(), suppressed, sizes: &sizes[0] };
                let found = ranges(&session, rows, classes, &numbers, &|_| ()).await.unwrap();
                let of_rows: Vec<Option<usize>> =
                    (0..rows).map(|row| (suppressed.is_none() || gone[row] == 0).then_some(class(row))).collect();
                for (at, (found, values)) in found.into_iter().zip([&small, &large, &small]).enumerate() {
                    let (bits, grid) = width_bits(&numbers[at].original, rows);
                    assert_eq!(grid, at == 1 && rows > 1 << 14, "{at}: {bits} bits");
                    let loss = RangeLoss::of(values, &of_rows).unwrap();
                    assert_eq!(found, loss.steps(bits), "column {at} of {rows} rows");
                    assert!(rows == 2 || (found > 0 && found < 1 << 20), "{found}");
                }
            }
        }
    }

    /// Numbers so wide that their sums would not fit are compared on the grid.
    #[tokio::test(flavor = "multi_thread")]
    async fn wide_numbers_are_compared_on_the_grid() {
        let mut parties = Parties::new(691);
        let rows = (1 << 14) + 1;
        let tags: Vec<u64> = (0..rows as u64).map(|row| 100 + row / 300).collect();
        let wide: Vec<i64> = (0..rows as i64).map(|row| (row * 104_729) % (1 << 31) - (1 << 30)).collect();
        let tagged: ArrayRef = Arc::new(parties.tagged_cells(Nulls::default(), &tags, None));
        let columns = vec![Column::Tags(tagged)];
        let (lower, upper) = (-(1 << 31), (1 << 31) - 1);
        let cells = cells(&mut parties, (lower, upper), &wide);
        let original = Values::Numbers { cells: cells.clone(), bits: 32, bounds: Bounds::Public(lower, upper) };
        let (bits, grid) = width_bits(&original, rows);
        assert!(grid);
        let session = parties.session.clone();
        let sizes = class_sizes(Some(&session), rows, columns.clone(), None, &[1], &|_| ()).await.unwrap();
        let classes = Classes { columns, suppressed: None, sizes: &sizes[0] };
        let numbers = [Numbers { original, published: cells, bits: 32 }];
        let found = ranges(&session, rows, classes, &numbers, &|_| ()).await.unwrap();
        let places: Vec<i64> = wide.iter().map(|number| coordinate(*number, lower, upper)).collect();
        let of_rows: Vec<Option<u64>> = tags.iter().copied().map(Some).collect();
        assert_eq!(found, [RangeLoss::of(&places, &of_rows).unwrap().steps(bits)]);
    }
}
