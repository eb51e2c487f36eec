//! How many rows of a list have a value that fewer than k rows share, by comparing all pairs: for values without equality tags.
//!
//! ```text
//!  rotate       the list under many shifts                                       a window at a time,
//!  match_pairs  how many others of its pairs have a row's value                  until all pairs were compared
//!  count_small  for how many rows that is below k, to P1
//! ```
//! `n` rows have `n (n - 1) / 2` pairs, 8192 of them a vector. P1 holds the rotations of two windows, some 64 MB, however many
//! there are.

use futures::{StreamExt, TryStreamExt, stream};
use veil_slots::{L0, L1, Slots};

use crate::count_small::{self, Counts};
use crate::match_pairs::{self, Pairs};
use crate::rotate::{self, Blocks, GROUP, Rotations};
use crate::{ProtocolError, Session};

pub use crate::rotate::MAX_ROWS;

/// Rotations of one window: half a megabyte each.
const WINDOW: usize = 64;

/// Windows under way at the same time: while one waits for an answer, the other has work.
const WINDOWS_IN_FLIGHT: usize = 2;

/// For every list, how many of its rows have a value that fewer than `k` of its rows share; without `detail`, one if there are any.
///
/// A list is one vector. It has the rows first in every block of [`block_of`] slots, and anything in the rest of a block.
pub async fn pairwise(
    session: &Session,
    rows: usize,
    k: u32,
    detail: bool,
    lists: Vec<Slots<L1>>,
) -> Result<Vec<u64>, ProtocolError> {
    if rows > MAX_ROWS {
        return Err(ProtocolError::Misuse(format!(
            "all pairs of up to {MAX_ROWS} rows are compared, not of {rows}; take fewer rows, or a column with equality tags"
        )));
    }
    if rows == 0 {
        return Ok(vec![0; lists.len()]);
    }
    let turns = turns(rows, &lists);
    let most = turns.iter().map(|(_, turn)| turn.vectors).max().unwrap_or(1) as usize;
    let windows: Vec<Vec<(usize, Rotations)>> = turns.chunks(WINDOW / most).map(<[_]>::to_vec).collect();
    let mut windows = stream::iter(windows).map(|turns| window(session, turns)).buffered(WINDOWS_IN_FLIGHT);
    let mut others: Vec<Slots<L0>> = vec![Slots::clear(&[]); lists.len()];
    while let Some(found) = windows.try_next().await? {
        for (list, found) in found {
            others[list].add(&found);
        }
    }
    let counts = others.into_iter().map(|others| Counts { others, rows: rows as u32, k, detail });
    count_small::count_small(session, counts.collect()).await
}

/// Vectors that a list of so many rows is compared in.
pub(crate) fn vectors(rows: usize) -> u64 {
    (rows / 2).div_ceil(Blocks::of(rows).count().max(1)) as u64
}

/// Messages in which so many vectors go.
pub(crate) fn messages(vectors: u64) -> u64 {
    vectors.div_ceil(GROUP as u64)
}

/// The most rounds that comparing so many vectors takes: windows may not be full where a list ends.
pub(crate) fn rounds(vectors: u64) -> u64 {
    2 * vectors.div_ceil((WINDOW - GROUP) as u64) + 1
}

/// In how many slots a list of so many rows begins anew: the next power of two.
pub fn block_of(rows: usize) -> usize {
    Blocks::of(rows).size
}

/// The rotations that meet all pairs of every list, with the number of the list.
fn turns(rows: usize, lists: &[Slots<L1>]) -> Vec<(usize, Rotations)> {
    let blocks = Blocks::of(rows);
    let vectors = (rows / 2).div_ceil(blocks.count());
    let turn = |slots: &Slots<L1>, done: usize| Rotations {
        slots: slots.clone(),
        rows: rows as u32,
        first: (1 + done * blocks.count()) as u32,
        vectors: GROUP.min(vectors - done) as u32,
    };
    let of_list = |(list, slots)| (0..vectors).step_by(GROUP).map(move |done| (list, turn(slots, done)));
    lists.iter().enumerate().flat_map(of_list).collect()
}

/// What a window adds to the counts of its lists.
async fn window(
    session: &Session,
    turns: Vec<(usize, Rotations)>,
) -> Result<impl Iterator<Item = (usize, Slots<L0>)>, ProtocolError> {
    let (lists, turns): (Vec<usize>, Vec<Rotations>) = turns.into_iter().unzip();
    let rotated = rotate::rotate(session, turns.clone()).await?;
    let pairs = turns.into_iter().zip(rotated).map(|(turn, rotated)| {
        let Rotations { slots, rows, first, .. } = turn;
        Pairs { slots, rotated, rows, first }
    });
    Ok(lists.into_iter().zip(match_pairs::match_pairs(session, pairs.collect()).await?))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use veil_slots::{DEGREE, OUTBOUND_BYTES, SEEDED_BYTES, plain};

    use super::*;
    use crate::testing::Parties;

    /// The list in every block, among numbers that must not matter: many of them equal to a row's.
    fn sealed(parties: &mut Parties, list: &[u64]) -> Slots<L1> {
        let padding = list.iter().copied().cycle().skip(1).take(block_of(list.len()) - list.len());
        let block: Vec<u64> = list.iter().copied().chain(padding).collect();
        parties.encrypt(&block.repeat(DEGREE / block.len()))
    }

    fn small(list: &[u64], k: u32) -> u64 {
        let mut counts: HashMap<u64, u64> = HashMap::new();
        list.iter().for_each(|value| *counts.entry(*value).or_default() += 1);
        list.iter().filter(|value| counts[value] < k.into()).count() as u64
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn small_classes_are_counted_in_lists_of_every_length() {
        let mut parties = Parties::new(54);
        for rows in [1, 2, 3, 4, 5, 100, 300] {
            let mut below = |bound| (0..rows).map(|_| plain::uniform_below(bound, &mut parties.rng)).collect();
            let some: Vec<u64> = below(rows as u64 / 2 + 1);
            let distinct: Vec<u64> = (0..rows as u64).map(|row| plain::neg(row * row)).collect();
            let lists = [some, distinct, vec![7; rows]];
            let slots: Vec<Slots<L1>> = lists.iter().map(|list| sealed(&mut parties, list)).collect();
            for k in [1, 3, rows as u32 + 1] {
                let expected: Vec<u64> = lists.iter().map(|list| small(list, k)).collect();
                let found = pairwise(&parties.session, rows, k, true, slots.clone()).await.unwrap();
                assert_eq!(found, expected, "{rows} rows, k {k}");
            }
            let found = pairwise(&parties.session, rows, 2, false, slots).await.unwrap();
            assert_eq!(found, lists.map(|list| small(&list, 2).min(1)));
        }
    }

    /// Several windows, and shifts that end in the middle of a vector.
    #[tokio::test(flavor = "multi_thread")]
    async fn long_lists_take_several_windows() {
        let mut parties = Parties::new(55);
        let list: Vec<u64> = (0..1800).map(|_| plain::uniform_below(1200, &mut parties.rng)).collect();
        let slots = sealed(&mut parties, &list);
        assert_eq!(turns(1800, std::slice::from_ref(&slots)).len(), 15);
        let found = pairwise(&parties.session, 1800, 3, true, vec![slots]).await.unwrap();
        assert_eq!(found, [small(&list, 3)]);
        // 225 vectors of pairs: rotations come back, differences go out; one more of either for sixteen, and the counts.
        let traffic = parties.session.traffic();
        assert_eq!(traffic.rounds(), 2 * 4 + 1);
        assert_eq!(traffic.bytes_up() as usize / OUTBOUND_BYTES, 15 + 225 + 1);
        assert_eq!(traffic.bytes_down() as usize / SEEDED_BYTES, 225 + 15);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn too_many_rows_are_refused_and_none_are_no_work() {
        let mut parties = Parties::new(56);
        let slots = parties.encrypt(&[7]);
        let error = pairwise(&parties.session, 8193, 3, true, vec![slots.clone()]).await.unwrap_err();
        assert!(error.to_string().ends_with("not of 8193; take fewer rows, or a column with equality tags"), "{error}");
        assert_eq!(pairwise(&parties.session, 0, 3, true, vec![slots]).await.unwrap(), [0]);
        assert!(pairwise(&parties.session, 5, 3, true, Vec::new()).await.unwrap().is_empty());
        assert_eq!(parties.session.traffic().rounds(), 0);
    }
}
