//! New centres: the mean of each cluster's rows, exactly rounded from a reciprocal; an empty cluster keeps its old centre.
//!
//! ```text
//!  sum' = sum + 2^16 count,                so that it is not negative
//!  `lookup_long`:  R = floor((2^30 + floor(count / 2)) / count),  empty = [count = 0]
//!  `multiply`:     sum' R,  empty old
//!  `truncate`:     floor((sum' R + 2^29) / 2^30)
//!  P1: minus 2^16, and for an empty cluster plus 2^16 + old
//! ```
//! Numbers are of magnitude up to `2^16 - 2^10`, so `sum' <= (2^17 - 2^10) count`; and `R count <= 2^30 + count / 2`. With `n` rows `sum' R + 2^29` is
//! at most `2^47 - 2^40 + 2^16 n + 2^29`: below `t / 2` for up to [`MAX_ROWS`]. (With 31 bits it is not.) A centre is within `1/2 + count / 2^14`
//! of the mean: the reciprocal of a large cluster has few bits.
//!
//! Eight rounds. For every packed vector: 5 ciphertexts each in two products, one quotient by 2^30 of [`few`](crate::few), and the lookup of
//! [`lookup_long`](crate::lookup_long) with `n + 1` numbers, two tables.

use std::sync::Arc;

use veil_privacy::clusters::{CENTRE_FRACTION, CENTRE_OFFSET, reciprocal};
use veil_slots::{DEGREE, L0, L1, Offset, Slots, plain};

use crate::cluster_sums::Sums;
use crate::few::truncate_half;
use crate::lists::together;
use crate::lookup_long::{self, Question, lookup_long};
use crate::multiply::multiply;
use crate::truncate::{Dividend, Rounding};
use crate::{ProtocolError, Session, Tiles};

/// The most rows.
pub const MAX_ROWS: usize = lookup_long::MAX_NUMBERS - 1;

/// The new centres, packed as the sums of [`cluster_sums`](crate::cluster_sums) are. `columns` is how many columns a centre has;
/// slots that are no centre's keep what the old centres have there.
pub async fn centres(
    session: &Session,
    tiles: &Tiles,
    columns: usize,
    sums: &Sums,
    old: Vec<Slots<L1>>,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let (rows, packed) = (tiles.rows(), sums.sums.len());
    if rows > MAX_ROWS || sums.counts.len() != packed || old.len() != packed {
        let text =
            format!("centres take up to {MAX_ROWS} rows, not {rows}, and as many old centres as sums and counts");
        return Err(ProtocolError::Misuse(text));
    }
    let reciprocals: Arc<[u64]> = (0..=rows as u64).map(|count| reciprocal(count, CENTRE_FRACTION)).collect();
    let is_empty: Arc<[u64]> = (0..=rows).map(|count| u64::from(count == 0)).collect();
    let question = Question {
        slots: sums.counts.iter().map(Slots::raised).collect(),
        centres: tiles.centres(),
        columns,
        tables: vec![reciprocals, is_empty],
    };
    let mut found = lookup_long(session, question).await?.into_iter();
    let (Some(reciprocals), Some(empty)) = (found.next(), found.next()) else {
        return Err(ProtocolError::Cancelled);
    };
    // A slot without a centre counts as one without rows.
    let unused = |(vector, empty): (usize, Slots<L0>)| {
        let used = (tiles.centres() * columns).saturating_sub(vector * DEGREE);
        let ones: Vec<u64> = (0..DEGREE).map(|slot| u64::from(slot >= used)).collect();
        let mut empty = empty.raised();
        empty.add_clear(&Offset::new(&ones));
        empty
    };
    let empty: Vec<Slots<L1>> = empty.into_iter().enumerate().map(unused).collect();
    let shifted = sums.sums.iter().zip(&sums.counts).map(|(sum, count)| {
        let mut shifted = count.clone();
        shifted.scale(CENTRE_OFFSET as i32);
        shifted.add(sum);
        shifted.raised()
    });
    let quotients = shifted.zip(reciprocals.iter().map(Slots::raised)).collect();
    let kept = empty.iter().cloned().zip(old).collect();
    let (pairs, lengths) = together([quotients, kept]);
    let [products, kept] = lengths.each(multiply(session, pairs).await?)?;
    let dividend = |slots| Dividend { slots, shift: CENTRE_FRACTION, rounding: Rounding::Nearest };
    // Sums are of coordinates of up to 2^16 - 2^10, so dividends are below t / 2. Where nothing was summed the quotient is zero.
    let used = (tiles.centres() * columns).min(DEGREE);
    let means = truncate_half(session, used, products.into_iter().map(dividend).collect()).await?;
    let centre = |((mut mean, kept), mut empty): ((Slots<L1>, Slots<L1>), Slots<L1>)| {
        empty.scale(CENTRE_OFFSET as i32);
        mean.add_constant(plain::neg(CENTRE_OFFSET as u64));
        mean.add(&empty);
        mean.add(&kept);
        mean
    };
    Ok(means.into_iter().zip(kept).zip(empty).map(centre).collect())
}

#[cfg(test)]
mod tests {
    use veil_privacy::clusters::{MAX_VALUE, centre_coordinate};

    use super::*;
    use crate::cluster_sums::cluster_sums;
    use crate::cluster_sums::tests::{Clusters, opened};
    use crate::testing::Parties;

    /// The new centre of a cluster in the clear.
    fn clear_centre(sum: i64, count: i64, old: i64) -> i64 {
        centre_coordinate(sum, count as u64).unwrap_or(old)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn centres_are_those_of_the_clear() {
        let mut parties = Parties::new(330);
        for (rows, count, columns, together) in
            [(3, 2, 1, false), (100, 7, 3, false), (1000, 33, 2, false), (9000, 5, 2, false), (256, 3, 2, true)]
        {
            let clusters = Clusters::new(rows, count, columns, together, &mut parties);
            let [sealed, assignment] = clusters.encrypt(&mut parties);
            let sums = cluster_sums(&parties.session, &clusters.tiles, &sealed, &assignment).await.unwrap();
            let old: Vec<i64> = (0..DEGREE as i64).map(|slot| slot * 31 % 131_073 - 65_536).collect();
            let before = parties.session.traffic().rounds();
            let vectors = vec![parties.encrypt_signed(&old)];
            let found = centres(&parties.session, &clusters.tiles, columns, &sums, vectors).await.unwrap();
            assert_eq!(parties.session.traffic().rounds() - before, 8);
            let [sums, counts] = clusters.expected();
            let mut expected = old.clone();
            for ((centre, sum), count) in expected.iter_mut().zip(sums).zip(counts) {
                *centre = clear_centre(sum, count, *centre);
            }
            assert!(opened(&parties, &found) == expected, "{rows} rows, {count} centres, {columns} columns");
        }
    }

    /// Rows at the ends of the range, in clusters of one row and of all of them.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_ends_of_the_range_fit() {
        let mut parties = Parties::new(331);
        let (rows, most) = (5000i64, MAX_VALUE);
        let ends = [-most, 1 - most, most - 1, most];
        let tiles = Tiles::new(rows as usize, 12);
        let counts: Vec<i64> = [1, 3, rows].iter().flat_map(|count| [*count; 4]).collect();
        let totals: Vec<i64> = counts.iter().zip(ends.iter().cycle()).map(|(count, end)| count * end).collect();
        // As P2 answers: at level 0.
        let mut fresh = |numbers: &[i64]| -> Vec<Slots<L0>> {
            let numbers: Vec<u64> = numbers.iter().map(|number| plain::from_signed(*number)).collect();
            vec![parties.keys.slot().seal(&numbers, &mut parties.rng).expand().unwrap().into()]
        };
        let sums = Sums { sums: fresh(&totals), counts: fresh(&counts) };
        let old = vec![parties.encrypt(&[])];
        let found = centres(&parties.session, &tiles, 1, &sums, old).await.unwrap();
        let expected = totals.iter().zip(&counts).map(|(total, count)| clear_centre(*total, *count, 0));
        assert!(opened(&parties, &found).into_iter().take(12).eq(expected));
    }
}
