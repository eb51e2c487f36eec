//! How far published numbers are from the original ones: `SSE / SST` of every column.
//!
//! ```text
//!  z, z'       both on the grid of the original column's bounds                          `lift`, `multiply`, `few`
//!  sums        of z, z^2, (z - z')^2; and of s z, s z^2, s, where s tells suppressed rows   `multiply`, `slot_sum`
//!  m           the mean of z, rounded                                                    `few`
//!  SST         sum (z - m)^2 = sum z^2 - m (2 sum z - N m)                               `multiply`
//!  SSE         sum (1 - s) (z - z')^2, and s (z - m)^2 for suppressed rows
//!  SSE / SST   in 2^-20, or that SST < N, opened to P1                                   `ratio`, `open`
//! ```
//! Neither the mean nor the variance of a column is shown to anybody, but that it is less than a step of the grid, where there is no loss to tell. See `veil_privacy::utility` for the same in clear.

use std::sync::Arc;

use arrow::array::ArrayRef;
use veil_cells::{CellArray, ColumnConstants};
use veil_privacy::clusters::{coordinate, reciprocal};
use veil_privacy::utility::{MEAN_FRACTION, least_variation, total_bits};
use veil_slots::{DEGREE, L0, L1, Offset, Slots, plain};

use super::ratio::{Fractions, MAX_NUMBERS, block_of, ratio};
use super::{Suppressed, column_sums, opened, packed};
use crate::few::truncate_half;
use crate::k_anonymize::constants::Scale;
use crate::k_anonymize::coordinates::{clear_bounds, on_grid};
use crate::k_anonymize::{Bounds, Values};
use crate::lift::lift_column;
use crate::lists::together;
use crate::multiply::multiply;
use crate::truncate::{Dividend, Rounding};
use crate::{ProtocolError, Session};

/// The most rows: sums of squares of coordinates are then below the plaintext modulus.
pub const MAX_ROWS: usize = 1 << 17;

/// Keeps sums a little below zero from wrapping.
const BELOW: u64 = 1 << 40;

/// A column of numbers, and what was published of it.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// The original numbers, encrypted or clear.
    pub original: Values,
    /// Cells of the published ones, in the same order.
    pub published: ArrayRef,
    /// Their width.
    pub bits: u32,
}

/// What a column lost, in units of `2^-20`; 16 is as much as is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// With suppressed rows at the mean of all.
    pub all: u64,
    /// Of the rows that are published.
    pub retained: u64,
}

/// Sums of a column over all rows, each in every slot.
struct Sums {
    z: Slots<L0>,
    squares: Slots<L0>,
    /// Squared distances of published rows.
    errors: Slots<L0>,
    /// Of suppressed rows, `z` and `z^2`.
    suppressed: Option<[Slots<L0>; 2]>,
}

/// What every column lost; nothing where the original numbers vary by less than a step of the grid, which cannot tell.
pub async fn information_loss(
    session: &Session,
    rows: usize,
    columns: &[Numbers],
    suppressed: Option<&Suppressed>,
    done: &(dyn Fn(usize) + Send + Sync),
) -> Result<Vec<Option<Loss>>, ProtocolError> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    if rows == 0 || rows > MAX_ROWS {
        return Err(ProtocolError::Misuse(format!(
            "information loss is told for tables of 1 to {MAX_ROWS} rows, not of {rows}: ask about fewer"
        )));
    }
    let scales = scales(session, columns).await?;
    let mut sums = Vec::with_capacity(columns.len());
    for (column, scale) in columns.iter().zip(&scales) {
        sums.push(sums_of(session, rows, column, scale, suppressed).await?);
        done(1);
    }
    let gone = match suppressed {
        Some(suppressed) => column_sums(session, rows, &[suppressed.flags().to_vec()]).await?.pop(),
        None => None,
    };
    let mut losses = Vec::with_capacity(columns.len());
    // Every column has two quotients if rows are suppressed.
    for sums in sums.chunks(MAX_NUMBERS / 2) {
        let (fractions, count) = fractions(session, rows, sums, gone.as_ref()).await?;
        let found = opened(session, ratio(session, fractions).await?, count).await?;
        for at in 0..sums.len() {
            let retained = if gone.is_some() { at + sums.len() } else { at };
            let both = loss_of(&found, at)?.zip(loss_of(&found, retained)?);
            losses.push(both.map(|(all, retained)| Loss { all, retained }));
        }
    }
    Ok(losses)
}

/// A quotient that was opened; nothing where the denominator cannot tell.
fn loss_of(found: &[i64], at: usize) -> Result<Option<u64>, ProtocolError> {
    match found.get(at) {
        Some(-1) => Ok(None),
        Some(found) => match u64::try_from(*found) {
            Ok(found) => Ok(Some(found)),
            Err(_) => Err(ProtocolError::Malformed(format!("a loss is {found}"))),
        },
        None => Err(ProtocolError::Cancelled),
    }
}

pub(super) async fn scales(session: &Session, columns: &[Numbers]) -> Result<Vec<Scale>, ProtocolError> {
    let encrypted = columns.iter().filter_map(|column| match &column.original {
        Values::Numbers { bounds: Bounds::Encrypted(constants), .. } => Some(constants.clone()),
        _ => None,
    });
    let encrypted: Vec<Arc<ColumnConstants>> = encrypted.collect();
    let constants: Vec<&ColumnConstants> = encrypted.iter().map(AsRef::as_ref).collect();
    let mut encrypted = Scale::encrypted(session, &constants).await?.into_iter();
    let scale = |column: &Numbers| match &column.original {
        Values::Numbers { bounds: Bounds::Encrypted(_), .. } => encrypted.next().ok_or(ProtocolError::Cancelled),
        Values::Numbers { bounds: Bounds::Public(lower, upper), .. } => Ok(Scale::public(*lower, *upper)),
        Values::Clear(numbers) => {
            let (lower, upper) = clear_bounds(numbers);
            Ok(Scale::public(lower, upper))
        }
        Values::Categories { .. } => Err(ProtocolError::Misuse("a category is no number".to_owned())),
    };
    columns.iter().map(scale).collect()
}

async fn sums_of(
    session: &Session,
    rows: usize,
    column: &Numbers,
    scale: &Scale,
    suppressed: Option<&Suppressed>,
) -> Result<Sums, ProtocolError> {
    let grid = async |cells: &ArrayRef, bits: u32| {
        on_grid(session, rows, scale, &lift_column(session, CellArray::try_new(cells)?, 0, bits).await?).await
    };
    let z = match &column.original {
        Values::Numbers { cells, bits, .. } => grid(cells, *bits).await?,
        Values::Clear(numbers) => clear_grid(numbers),
        Values::Categories { .. } => return Err(ProtocolError::Misuse("a category is no number".to_owned())),
    };
    let published = grid(&column.published, column.bits).await?;
    if z.len() != published.len() {
        return Err(ProtocolError::Misuse("the original and the published column differ in length".to_owned()));
    }
    let difference = |(z, published): (&Slots<L1>, &Slots<L1>)| {
        let mut difference = z.clone();
        difference.sub(published);
        difference
    };
    let differences: Vec<Slots<L1>> = z.iter().zip(&published).map(difference).collect();
    let twice = |vectors: &[Slots<L1>]| vectors.iter().map(|slots| (slots.clone(), slots.clone())).collect::<Vec<_>>();
    let (pairs, lengths) = together([twice(&z), twice(&differences)]);
    let [squares, mut errors] = lengths.each(multiply(session, pairs).await?)?;
    let mut lost = None;
    if let Some(suppressed) = suppressed {
        let flags = suppressed.flags();
        let of_all = [&z, &squares, &errors];
        let (pairs, lengths) = together(of_all.map(|of| flags.iter().cloned().zip(of.iter().cloned()).collect()));
        let [z, squares, gone] = lengths.each(multiply(session, pairs).await?)?;
        errors.iter_mut().zip(&gone).for_each(|(error, gone)| error.sub(gone));
        lost = Some([z, squares]);
    }
    let lists: Vec<_> = [z, squares, errors].into_iter().chain(lost.into_iter().flatten()).collect();
    let mut sums = column_sums(session, rows, &lists).await?.into_iter();
    let mut next = || sums.next().ok_or(ProtocolError::Cancelled);
    let (z, squares, errors) = (next()?, next()?, next()?);
    let suppressed = if suppressed.is_some() { Some([next()?, next()?]) } else { None };
    Ok(Sums { z, squares, errors, suppressed })
}

pub(super) fn clear_grid(numbers: &[i64]) -> Vec<Slots<L1>> {
    let (lower, upper) = clear_bounds(numbers);
    let place = |number: &i64| plain::from_signed(coordinate(*number, lower, upper));
    numbers.chunks(DEGREE).map(|chunk| Slots::clear(&chunk.iter().map(place).collect::<Vec<_>>())).collect()
}

/// For every column `SSE / SST`; if rows are suppressed, with them first, and then without.
async fn fractions(
    session: &Session,
    rows: usize,
    sums: &[Sums],
    gone: Option<&Slots<L0>>,
) -> Result<(Fractions, usize), ProtocolError> {
    let twice = if gone.is_some() { 2 } else { 1 };
    let count = twice * sums.len();
    let all = |of: fn(&Sums) -> &Slots<L0>| (0..count).filter_map(move |at| sums.get(at % sums.len())).map(of);
    let mut mean = packed(all(|sums| &sums.z), reciprocal(rows as u64, MEAN_FRACTION));
    mean.add_constant(BELOW);
    let dividend = Dividend { slots: mean, shift: MEAN_FRACTION, rounding: Rounding::Nearest };
    let one = |mut vectors: Vec<Slots<L1>>| vectors.pop().ok_or(ProtocolError::Cancelled);
    let mut mean = one(truncate_half(session, count, vec![dividend]).await?)?;
    mean.sub_clear(&Offset::new(&vec![BELOW >> MEAN_FRACTION; count]));
    let mut denominators = packed(all(|sums| &sums.squares), 1);
    let mut numerators = packed(all(|sums| &sums.errors), 1);
    let about_mean = twice_minus(packed(all(|sums| &sums.z), 1), scaled(&mean, rows));
    denominators.sub(&one(multiply(session, vec![(mean.clone(), about_mean)]).await?)?);
    if let Some(gone) = gone {
        // Only in the first half of the numbers.
        let of = |at: usize| sums.iter().filter_map(move |sums| sums.suppressed.as_ref()?.get(at));
        numerators.add(&packed(of(1), 1));
        let shares = packed(sums.iter().map(|_| gone), 1);
        let of_mean = one(multiply(session, vec![(mean.clone(), shares)]).await?)?;
        let about_mean = twice_minus(packed(of(0), 1), of_mean);
        numerators.sub(&one(multiply(session, vec![(mean, about_mean)]).await?)?);
    }
    let bits = total_bits(rows as u64);
    let least = least_variation(rows as u64);
    Ok((Fractions { block: block_of(count), numerators, denominators, bits, least }, count))
}

fn scaled(slots: &Slots<L1>, by: usize) -> Slots<L1> {
    let mut scaled = slots.clone();
    scaled.scale(by as i32);
    scaled
}

/// `2 a - b`.
fn twice_minus(mut a: Slots<L1>, b: Slots<L1>) -> Slots<L1> {
    a.scale(2);
    a.sub(&b);
    a
}

#[cfg(test)]
mod tests {
    use veil_cells::{CellType, ColumnId, Kind, Width};
    use veil_keys::encrypt_column;
    use veil_privacy::utility::SquaredErrors;

    use super::*;
    use crate::testing::Parties;

    fn cells(parties: &mut Parties, numbers: &[i64]) -> ArrayRef {
        let width = Width::of_range(-2000, 2000).unwrap();
        let cell_type = CellType::new(Kind::Integer, width, 1, parties.owner.key_id(), ColumnId([3; 8]));
        Arc::new(encrypt_column(&parties.owner, &cell_type, numbers, None, &mut parties.rng).unwrap())
    }

    /// The same in clear.
    fn expected(original: &[i64], published: &[i64], flags: &[i64], (lower, upper): (i64, i64)) -> Option<Loss> {
        let grid = |numbers: &[i64]| numbers.iter().map(|x| coordinate(*x, lower, upper)).collect::<Vec<_>>();
        let flags: Vec<bool> = flags.iter().map(|flag| *flag == 1).collect();
        let errors = SquaredErrors::of(&grid(original), &grid(published), &flags).unwrap();
        errors.varies().then(|| Loss { all: errors.all_ratio(), retained: errors.retained_ratio() })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn losses_are_those_of_the_clear_numbers() {
        let mut parties = Parties::new(640);
        for rows in [9usize, 8200] {
            let original: Vec<i64> = (0..rows as i64).map(|row| row * 7919 % 1000 - 200).collect();
            let published: Vec<i64> = original.iter().map(|x| x.div_euclid(50) * 50 + 25).collect();
            // A suppressed row is published as zero, wherever the bounds are.
            let flags: Vec<i64> = (0..rows).map(|row| i64::from(row % 4 == 1)).collect();
            let blank = |numbers: &[i64]| -> Vec<i64> {
                numbers.iter().zip(&flags).map(|(number, flag)| if *flag == 1 { -2000 } else { *number }).collect()
            };
            let far: Vec<i64> = original.iter().map(|x| 599 - x).collect();
            let bounds = (-200, 800);
            let column = |original: Values, published: ArrayRef| Numbers { original, published, bits: 12 };
            let sealed = cells(&mut parties, &original);
            let values = |bounds| Values::Numbers { cells: sealed.clone(), bits: 12, bounds };
            let columns = [
                column(values(Bounds::Public(-200, 800)), cells(&mut parties, &published)),
                column(Values::Clear(original.clone().into()), cells(&mut parties, &far)),
                column(values(Bounds::Public(-200, 800)), cells(&mut parties, &original)),
            ];
            let session = parties.session.clone();
            let found = information_loss(&session, rows, &columns, None, &|_| ()).await.unwrap();
            let own = (*original.iter().min().unwrap(), *original.iter().max().unwrap());
            let clear = |flags: &[i64]| {
                [(&published, bounds), (&far, own), (&original, bounds)]
                    .map(|(published, bounds)| expected(&original, published, flags, bounds))
            };
            assert_eq!(found, clear(&vec![0; rows]));
            assert_eq!(found[2], Some(Loss { all: 0, retained: 0 }));
            assert!(found[0].unwrap().all > 0 && found[1].unwrap().all > 1 << 20, "{found:?}");
            let flag_cells = cells(&mut parties, &flags);
            let suppressed = Suppressed::lift(&session, &flag_cells).await;
            // The flag's own width is narrower: these cells are of numbers.
            let suppressed = suppressed.unwrap();
            let blanked = [&published, &far, &original].map(|numbers| cells(&mut parties, &blank(numbers)));
            let columns = columns.into_iter().zip(blanked).map(|(column, published)| Numbers { published, ..column });
            let columns: Vec<Numbers> = columns.collect();
            let found = information_loss(&session, rows, &columns, Some(&suppressed), &|_| ()).await.unwrap();
            assert_eq!(found, clear(&flags));
            assert!(found[0].unwrap().all > found[0].unwrap().retained);
        }
    }

    /// 2000 of a range of 2^27 is half a step of the grid, on which all of it is one place or two.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_varies_by_less_than_a_step_has_no_loss_to_tell() {
        let mut parties = Parties::new(642);
        let numbers: Vec<i64> = (0..30).map(|row| 2000 * (row % 2)).collect();
        let cells = cells(&mut parties, &numbers);
        let column = |upper: i64| {
            let original = Values::Numbers { cells: cells.clone(), bits: 12, bounds: Bounds::Public(0, upper) };
            Numbers { original, published: cells.clone(), bits: 12 }
        };
        let columns = [column(1 << 27), column(1 << 26), column(1 << 25)];
        let gone = (0..30).map(|row| i64::from(row % 4 == 1)).collect::<Vec<_>>();
        let flags = self::cells(&mut parties, &gone);
        let suppressed = Suppressed::lift(&parties.session, &flags).await.unwrap();
        for suppressed in [None, Some(&suppressed)] {
            let found = information_loss(&parties.session, 30, &columns, suppressed, &|_| ()).await.unwrap();
            let told: Vec<bool> = found.iter().map(Option::is_some).collect();
            // Places 0 and 0; 0 and 1; 0 and 2, one step from their mean.
            assert_eq!(told, [false, false, true], "{found:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_constant_column_has_no_loss_and_too_many_rows_are_refused() {
        let mut parties = Parties::new(641);
        let cells = cells(&mut parties, &[5; 20]);
        let original = Values::Numbers { cells: cells.clone(), bits: 12, bounds: Bounds::Public(0, 100) };
        let columns = [Numbers { original, published: cells, bits: 12 }];
        let found = information_loss(&parties.session, 20, &columns, None, &|_| ()).await.unwrap();
        assert_eq!(found, [None]);
        // Who has no numbers may have any number of rows.
        assert_eq!(information_loss(&parties.session, MAX_ROWS + 1, &[], None, &|_| ()).await.unwrap(), []);
        let error = information_loss(&parties.session, MAX_ROWS + 1, &columns, None, &|_| ()).await.unwrap_err();
        assert!(error.to_string().contains("not of 131073: ask about fewer"), "{error}");
    }
}
