//! The largest and the smallest number of every group of places, all groups and columns at once.
//!
//! ```text
//!  pairs of a group's numbers side by side              `gather`
//!  q = [A >= B]                                         `few`
//!  larger: B + q (A - B),  smaller: A - q (A - B)       `multiply`
//! ```
//! Half as many numbers are left after each turn, and the first one compares once for both ends: one and a half comparisons a row. Which places form
//! a group is public; nobody learns anything else.

use std::collections::BTreeSet;

use veil_slots::{DEGREE, L1, Slots};

use crate::few::truncate_half;
use crate::gather::{Places, gather};
use crate::lists::together;
use crate::multiply::multiply;
use crate::truncate::{Dividend, Rounding};
use crate::{ProtocolError, Session};

/// Vectors that are compared at the same time: each takes the memory of a hundred.
const WINDOW: usize = 8;

/// Numbers of a column, of which the largest and the smallest are wanted.
#[derive(Clone)]
pub(super) struct Ends {
    /// Where largest ones are looked for.
    pub(super) highs: Vec<Slots<L1>>,
    /// Where smallest ones are looked for.
    pub(super) lows: Vec<Slots<L1>>,
    /// Two of them differ by less than this power of two.
    pub(super) bits: u32,
}

/// For every column the largest and the smallest number of each group, in the order of the groups. `same` says that both are looked for among the
/// same numbers.
pub(super) async fn ends_of(
    session: &Session,
    mut columns: Vec<Ends>,
    mut groups: Vec<Vec<u64>>,
    mut same: bool,
) -> Result<Vec<Ends>, ProtocolError> {
    while groups.iter().any(|group| group.len() > 1) {
        let pool = columns.first().map_or(0, |column| column.highs.len());
        let (pairs, next) = paired(&groups, pool);
        let lows = columns.iter().filter(|_| !same).map(|column| column.lows.as_slice());
        let lists: Vec<&[Slots<L1>]> = columns.iter().map(|column| column.highs.as_slice()).chain(lows).collect();
        // All digits are folded in the same rounds, so that all must have as many.
        let bits = columns.iter().map(|column| column.bits).max().unwrap_or(1);
        let mut found = compared(session, &pairs, bits, &lists).await?;
        let of_lows = if same { found.clone() } else { found.split_off(columns.len()) };
        for ((column, of_highs), of_lows) in columns.iter_mut().zip(found).zip(of_lows) {
            column.highs.extend(of_highs.larger);
            column.lows.extend(of_lows.smaller);
        }
        (groups, same) = (next, false);
    }
    let places: Vec<u64> = groups.iter().filter_map(|group| group.first().copied()).collect();
    let wanted = columns.iter().flat_map(|column| [&column.highs, &column.lows]);
    let mut gathered = gather(session, wanted.map(|pool| needed(pool, &places)).collect()).await?.into_iter();
    let mut next = || gathered.next().ok_or(ProtocolError::Cancelled);
    columns.into_iter().map(|column| Ok(Ends { highs: next()?, lows: next()?, ..column })).collect()
}

/// Neighbours of every group; and where the groups are found when each pair has become one number, behind so many vectors.
fn paired(groups: &[Vec<u64>], pool: usize) -> (Vec<[u64; 2]>, Vec<Vec<u64>>) {
    let (mut pairs, mut next) = (Vec::new(), Vec::with_capacity(groups.len()));
    for group in groups {
        let (of_group, rest) = group.as_chunks::<2>();
        let first = (pool * DEGREE + pairs.len()) as u64;
        next.push((first..).take(of_group.len()).chain(rest.iter().copied()).collect());
        pairs.extend_from_slice(of_group);
    }
    (pairs, next)
}

/// All first numbers of pairs, then, from a new vector on, all second ones.
fn side_by_side(pairs: &[[u64; 2]]) -> Vec<u64> {
    let filled = pairs.len().next_multiple_of(DEGREE);
    let filler = pairs.first().map_or(0, |pair| pair[0]);
    let firsts = pairs.iter().map(|pair| pair[0]).chain(std::iter::repeat(filler)).take(filled);
    firsts.chain(pairs.iter().map(|pair| pair[1])).collect()
}

/// Places in those vectors alone that have any of them.
fn needed(pool: &[Slots<L1>], places: &[u64]) -> Places {
    let of = |place: &u64| *place as usize / DEGREE;
    let used: Vec<usize> = places.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect();
    let moved = |place: &u64| {
        let vector = used.binary_search(&of(place)).unwrap_or_default();
        (vector * DEGREE) as u64 + place % DEGREE as u64
    };
    let vectors = used.iter().filter_map(|vector| pool.get(*vector).cloned()).collect();
    Places { vectors, places: places.iter().map(moved).collect() }
}

/// Both of every pair.
#[derive(Clone)]
struct Compared {
    larger: Vec<Slots<L1>>,
    smaller: Vec<Slots<L1>>,
}

/// Compares pairs of places in every list of numbers, which differ by less than `2^bits`.
async fn compared(
    session: &Session,
    pairs: &[[u64; 2]],
    bits: u32,
    lists: &[&[Slots<L1>]],
) -> Result<Vec<Compared>, ProtocolError> {
    let places = side_by_side(pairs);
    let gathered = gather(session, lists.iter().map(|pool| needed(pool, &places)).collect()).await?;
    let vectors = pairs.len().div_ceil(DEGREE);
    let used = if vectors == 1 { pairs.len() } else { DEGREE };
    let sides_of = |mut firsts: Vec<Slots<L1>>| -> Vec<Sides> {
        let seconds = firsts.split_off(vectors.min(firsts.len()));
        firsts.into_iter().zip(seconds).map(|(a, b)| Sides::new(a, b)).collect()
    };
    let sides: Vec<Vec<Sides>> = gathered.into_iter().map(sides_of).collect();
    let dividend = |sides: &Sides| {
        let mut slots = sides.difference.clone();
        slots.add_constant(1 << bits);
        Dividend { slots, shift: bits, rounding: Rounding::Floor }
    };
    let (dividends, lengths) = together(sides.iter().map(|list| list.iter().map(dividend).collect()));
    let not_less = lengths.apart(in_windows(session, used, dividends).await?)?;
    let factors = not_less.into_iter().zip(&sides).map(|(bits, list)| {
        let differences = list.iter().map(|sides| sides.difference.clone());
        bits.into_iter().zip(differences).collect()
    });
    let (factors, lengths) = together(factors);
    let products = lengths.apart(multiply(session, factors).await?)?;
    let of_list = |(list, products): (Vec<Sides>, Vec<Slots<L1>>)| {
        let ends = list.into_iter().zip(products).map(|(Sides { a, b, .. }, product)| {
            let (mut larger, mut smaller) = (b, a);
            larger.add(&product);
            smaller.sub(&product);
            (larger, smaller)
        });
        let (larger, smaller) = ends.unzip();
        Compared { larger, smaller }
    };
    Ok(sides.into_iter().zip(products).map(of_list).collect())
}

/// What is compared with each other.
struct Sides {
    a: Slots<L1>,
    b: Slots<L1>,
    /// `a - b`.
    difference: Slots<L1>,
}

impl Sides {
    fn new(a: Slots<L1>, b: Slots<L1>) -> Self {
        let mut difference = a.clone();
        difference.sub(&b);
        Self { a, b, difference }
    }
}

/// Quotients, some vectors at a time.
async fn in_windows(session: &Session, used: usize, dividends: Vec<Dividend>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let (mut quotients, mut rest) = (Vec::with_capacity(dividends.len()), dividends.into_iter());
    while rest.len() > 0 {
        quotients.extend(truncate_half(session, used, rest.by_ref().take(WINDOW).collect()).await?);
    }
    Ok(quotients)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_group_ends_at_its_ends() {
        let mut parties = Parties::new(680);
        let numbers: Vec<i64> = (0..2 * DEGREE as i64).map(|at| at * 7919 % 1000 - 500).collect();
        let signed = |parties: &mut Parties, numbers: &[i64]| parties.encrypt_signed(numbers);
        let vectors: Vec<Slots<L1>> = numbers.chunks(DEGREE).map(|part| signed(&mut parties, part)).collect();
        let sizes = [1usize, 2, 3, 7, 1, 8191, 40];
        let mut next = 5u64;
        let group = |size: &usize| {
            let places: Vec<u64> = (next..next + *size as u64).collect();
            next += *size as u64;
            places
        };
        let groups: Vec<Vec<u64>> = sizes.iter().map(group).collect();
        let column = Ends { highs: vectors.clone(), lows: vectors, bits: 10 };
        let wide = Ends { bits: 31, ..column.clone() };
        let found = ends_of(&parties.session, vec![column, wide], groups.clone(), true).await.unwrap();
        // And of all groups together, whose ends are no longer the same numbers.
        let all = vec![(0..groups.len() as u64).collect()];
        for column in ends_of(&parties.session, found.clone(), all, false).await.unwrap() {
            let of = groups.iter().flatten().map(|place| numbers[*place as usize]);
            let expected = (of.clone().max().unwrap(), of.min().unwrap());
            let expected = [expected.0, expected.1].map(veil_slots::plain::from_signed);
            assert_eq!([parties.open(&column.highs[0])[0], parties.open(&column.lows[0])[0]], expected);
        }
        for column in found {
            let (highs, lows) = (parties.open(&column.highs[0]), parties.open(&column.lows[0]));
            for (at, group) in groups.iter().enumerate() {
                let of = group.iter().map(|place| numbers[*place as usize]);
                let signed = |number: i64| veil_slots::plain::from_signed(number);
                let expected = (signed(of.clone().max().unwrap()), signed(of.min().unwrap()));
                assert_eq!((highs[at], lows[at]), expected, "group {at}");
            }
        }
    }
}
