//! Whether every published category is the original one or stands above it, which the measures of categories take for granted.
//!
//! ```text
//!  per row and level     (p + 1) (p - o)       zero where the published lane p is -1, or the original one o        `multiply`
//!  per column            their sum, each times a uniform number of P1                                         `slot_sum`
//!  [sum = 0]             one bit a column, opened to P1                                                        `few`, `open`
//! ```
//! The sum of anything but zeros is uniform, and zero with probability 1/t. A category that was masked at random after or before anonymising, or one
//! of another table, looks as if it had lost nothing, and gains bits; nothing that is public about a column tells so.

use veil_slots::{DEGREE, Factor, L1, L2, Slots, plain};

use super::entropy::Frequencies;
use super::generalisation::{WINDOW, lane};
use super::{opened, packed};
use crate::few::zero_test_few;
use crate::multiply::multiply;
use crate::slot_sum::slot_sum;
use crate::{ProtocolError, Session};

/// For every column whether all that is published stands for what was there. Levels of the original and the published one must be of one hierarchy.
pub async fn ancestors(session: &Session, columns: &[Frequencies]) -> Result<Vec<bool>, ProtocolError> {
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let mut places = Vec::with_capacity(columns.len());
    for column in columns {
        let sums = slot_sum(session, differences(session, column).await?).await?;
        places.push(sums.into_iter().reduce(|mut all, sum| {
            all.add(&sum);
            all
        }));
    }
    // A hierarchy of one level has nothing to stand above.
    let places: Vec<_> = places.into_iter().map(|place| place.unwrap_or_else(|| Slots::clear(&[]))).collect();
    let bits = zero_test_few(session, columns.len(), vec![packed(&places, 1)]).await?;
    let bits = bits.into_iter().next().ok_or(ProtocolError::Cancelled)?;
    let bit = |found: i64| match found {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(ProtocolError::Malformed(format!("a bit is {found}"))),
    };
    opened(session, bits, columns.len()).await?.into_iter().map(bit).collect()
}

/// For every level below the root, what is zero where all rows are in order, and uniform elsewhere.
async fn differences(session: &Session, column: &Frequencies) -> Result<Vec<Slots<L2>>, ProtocolError> {
    let Frequencies { original, published } = column;
    let is_alike = (original.cells.len(), original.levels) == (published.cells.len(), published.levels);
    if !is_alike {
        return Err(ProtocolError::Misuse(
            "published categories are held against as many original ones of as many levels".to_owned(),
        ));
    }
    let (mut rng, mut levels) = (session.randomness().fork(), Vec::new());
    for level in 0..published.levels.saturating_sub(1) {
        let (ours, theirs) = (lane(session, original, level).await?, lane(session, published, level).await?);
        let mut sum: Option<Slots<L2>> = None;
        for (ours, theirs) in ours.chunks(WINDOW).zip(theirs.chunks(WINDOW)) {
            let pair = |(ours, theirs): (&Slots<L1>, &Slots<L1>)| {
                let (mut beyond, mut difference) = (theirs.clone(), theirs.clone());
                beyond.add_constant(1);
                difference.sub(ours);
                (beyond, difference)
            };
            for product in multiply(session, ours.iter().zip(theirs).map(pair).collect()).await? {
                let weighted = product.times(&Factor::new(&plain::uniform_vec(DEGREE, &mut rng)));
                match &mut sum {
                    Some(sum) => sum.add(&weighted),
                    None => sum = Some(weighted),
                }
            }
        }
        levels.extend(sum);
    }
    Ok(levels)
}

#[cfg(test)]
mod tests {
    use super::super::Published;
    use super::super::generalisation::tests::{cells, rows, shape};
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn one_row_that_stands_elsewhere_is_found() {
        let mut parties = Parties::new(655);
        for count in [1usize, 7, 8200] {
            let original: Vec<Vec<i64>> = (0..count).map(|row| shape()[row % 5].clone()).collect();
            let general = rows(count);
            // The last row is published as a leaf beside its own; as the group of others; and, once generalised, as a leaf again.
            let last = |lanes: [i64; 3]| {
                let mut rows = general.clone();
                rows[count - 1] = lanes.to_vec();
                rows
            };
            let own = &shape()[(count - 1) % 5];
            let beside = last([if own[0] == 0 { 10 } else { 0 }, own[1], 0]);
            let others = last([-1, if own[1] == 0 { 40 } else { 0 }, 0]);
            let mut column = |rows: &[Vec<i64>]| {
                let cells = cells(&mut parties, rows);
                Published { cells, levels: 3, bits: 8, shape: None }
            };
            let original = column(&original);
            let held = |published| Frequencies { original: original.clone(), published };
            let columns = [
                held(original.clone()),
                held(column(&general)),
                held(column(&beside)),
                held(column(&others)),
                held(column(&vec![vec![-1, -1, 0]; count])),
                Frequencies { original: column(&vec![vec![-1, -1, 0]; count]), published: original.clone() },
            ];
            let found = ancestors(&parties.session, &columns).await.unwrap();
            assert_eq!(found, [true, true, false, false, true, false], "{count} rows");
        }
        assert!(ancestors(&parties.session, &[]).await.unwrap().is_empty());
    }
}
