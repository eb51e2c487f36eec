//! How many rows are in small classes: whether the columns behind a list of labels tell some row from almost all others.
//!
//! ```text
//!  P1:                          labels, k  -->  sorts them, counts equal ones
//!                                          <--  per list: is there a class of fewer than k rows, or how many rows are      P2
//! ```
//! Labels go to P2 sanitised but not blinded (the slots between lists are): that it sees which are equal is the point. So they must be of a secret function
//! ([`relabel`](crate::relabel)), new for every list, in an order that P2 does not know; then P2 learns the sizes of the
//! classes and nothing else.
//!
//! A list of more than 8192 rows lies in several vectors, shorter ones side by side in one, in blocks of a power of two. The rows behind
//! a list's last are not looked at.

use rand::CryptoRng;
use rayon::prelude::*;
use veil_slots::{DEGREE, Inbound, KeyHolder, L1, Outbound, Slots, plain};
use zeroize::Zeroizing;

use crate::limits::BATCH_CIPHERTEXTS;
use crate::message::message;
use crate::open::{MAX_OPENED, Purpose};
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct CountClasses;

/// The most slots of one list: as many vectors as one batch takes.
pub const MAX_BLOCK: usize = 256 * DEGREE;

message! {
    /// Labels of one long list, or of several short ones.
    Query<C: Outbound => Inbound> {
        /// The labels.
        labels: Vec<C>,
        /// How many lists.
        lists: u32,
        /// Rows of every list.
        rows: u32,
        /// Slots from the beginning of one list to that of the next.
        block: u32,
        /// Classes of fewer rows are small.
        k: u32,
        /// 1 to count rows, 0 to say whether there are any.
        detail: u32,
    }
}

message! {
    /// What was found.
    Answer {
        /// One number a list.
        found: Vec<u64>,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let layout = Layout { rows: self.rows as usize, block: self.block as usize };
        layout.check(self.labels.len(), self.lists as usize).map_err(ProtocolError::Malformed)?;
        if self.detail > 1 {
            return Err(ProtocolError::Unsupported(format!("nothing is found in detail {}", self.detail)));
        }
        Ok(1)
    }

    fn opens(&self) -> Option<(Purpose, u32)> {
        Some((Purpose::SmallClasses, self.lists))
    }
}

/// How lists lie in vectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) rows: usize,
    pub(crate) block: usize,
}

impl Layout {
    /// Refuses vectors that do not hold so many lists.
    pub(crate) fn check(self, vectors: usize, lists: usize) -> Result<(), String> {
        let Self { rows, block } = self;
        if !block.is_power_of_two() || block > MAX_BLOCK || rows > block {
            return Err(format!("{rows} rows do not lie in blocks of {block} slots"));
        }
        let most = (DEGREE / block).clamp(1, MAX_OPENED as usize);
        if vectors != (block / DEGREE).max(1) || lists > most {
            return Err(format!("{lists} lists in blocks of {block} slots do not lie in {vectors} vectors"));
        }
        Ok(())
    }

    /// Sanitises labels, and hides all slots that are no rows.
    pub(crate) fn send(self, labels: &Labels, asker: &mut Asker<'_>) -> Result<Vec<Outbound>, ProtocolError> {
        let Self { rows, block } = self;
        let send = |(vector, slots): (usize, &Slots<L1>)| {
            // What is no row would have the label of zero, which some row may have too.
            let is_row = |place: usize| place % block < rows && place / block < labels.lists;
            let blind = (vector * DEGREE..(vector + 1) * DEGREE).map(|place| match is_row(place) {
                true => 0,
                false => plain::uniform(&mut asker.rng),
            });
            let blind: Vec<u64> = blind.collect();
            asker.send(slots, &blind)
        };
        Ok(labels.vectors.iter().enumerate().map(send).collect::<Result<_, _>>()?)
    }

    /// P2 opens labels, and gives those of each list to `count`.
    pub(crate) fn open<T: Send>(
        self,
        labels: Vec<Inbound>,
        lists: usize,
        holder: &dyn KeyHolder,
        count: impl Fn(&mut [u64]) -> T + Sync,
    ) -> Vec<T> {
        let opened: Vec<_> = labels.into_par_iter().map(|labels| holder.open(labels)).collect();
        // Room for all of it at once: a vector that grows leaves copies behind.
        let mut labels = Zeroizing::new(Vec::with_capacity(opened.len() * DEGREE));
        opened.iter().for_each(|opened| labels.extend_from_slice(opened));
        let lists = labels.par_chunks_mut(self.block.max(1)).take(lists);
        lists.map(|list| count(list.get_mut(..self.rows).unwrap_or_default())).collect()
    }
}

impl Protocol for CountClasses {
    const NAME: &'static str = "count_classes";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "whether, or how many, rows are in classes of fewer than k equal labels";
    const LEAKAGE: Leakage = Leakage {
        p1: "whether some class of the asked columns is smaller than k; if asked, how many rows are in such classes",
        p2: "the sizes of the classes, in a secret order if the labels were relabelled and shuffled",
    };
    const OPENS: Opens = Opens(&[Purpose::SmallClasses]);
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query<Inbound>, holder: &dyn KeyHolder, _: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        let layout = Layout { rows: query.rows as usize, block: query.block as usize };
        let (k, detail) = (query.k, query.detail == 1);
        let count = |list: &mut [u64]| in_small_classes(list, k, detail);
        Ok(Answer { found: layout.open(query.labels, query.lists as usize, holder, count) })
    }
}

/// How many values occur fewer than `k` times, counted as often as they occur; or, without detail, 1 if there is one and 0 if not.
pub(crate) fn in_small_classes(values: &mut [u64], k: u32, detail: bool) -> u64 {
    values.sort_unstable();
    let mut small = values.chunk_by(|a, b| a == b).map(<[u64]>::len).filter(|size| *size < k as usize);
    match detail {
        true => small.sum::<usize>() as u64,
        false => u64::from(small.next().is_some()),
    }
}

/// P1 checks what P2 says that it found: so many numbers, none larger than there are rows.
pub(crate) fn checked(found: Vec<u64>, count: usize, rows: usize, detail: bool) -> Result<Vec<u64>, ProtocolError> {
    let most = if detail { rows as u64 } else { 1 };
    if found.len() != count {
        return Err(ProtocolError::Malformed(format!("{} numbers instead of {count}", found.len())));
    }
    match found.iter().find(|found| **found > most) {
        Some(found) => Err(ProtocolError::Malformed(format!("{found} were found where there are at most {most}"))),
        None => Ok(found),
    }
}

/// The labels of one long list, in as many vectors as its block takes; or one vector of short lists.
#[derive(Clone, Debug)]
pub struct Labels {
    /// The vectors.
    pub vectors: Vec<Slots<L1>>,
    /// How many lists they hold.
    pub lists: usize,
}

/// What P1 asks about one input.
pub struct Part {
    labels: Labels,
    layout: Layout,
    k: u32,
    detail: bool,
}

/// What P1 remembers: how many numbers it expects, and how large they can be.
pub struct Asked {
    lists: usize,
    rows: usize,
    detail: bool,
}

/// P1 sanitises, and hides all slots that are no rows.
pub fn ask(part: Part, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Part { labels, layout, k, detail } = part;
    let (Layout { rows, block }, lists) = (layout, labels.lists);
    let labels = layout.send(&labels, asker)?;
    let query =
        Query { labels, lists: lists as u32, rows: rows as u32, block: block as u32, k, detail: u32::from(detail) };
    Ok((Asked { lists, rows, detail }, query))
}

/// P1 takes the numbers.
pub fn finish(asked: Asked, answer: Answer) -> Result<Vec<u64>, ProtocolError> {
    checked(answer.found, asked.lists, asked.rows, asked.detail)
}

/// One round for many lists of `rows` labels, each in a block of so many slots: for each, in order, how many rows are in classes of
/// fewer than `k`, or (without detail) 1 if any is.
pub async fn count_classes(
    session: &Session,
    rows: usize,
    block: usize,
    k: u32,
    detail: bool,
    inputs: Vec<Labels>,
) -> Result<Vec<u64>, ProtocolError> {
    let layout = Layout { rows, block };
    let check = |labels: &Labels| layout.check(labels.vectors.len(), labels.lists).map_err(ProtocolError::Misuse);
    inputs.iter().try_for_each(check)?;
    // So few rows a batch that it does not open more than it may.
    let opened = |labels: &Labels| (BATCH_CIPHERTEXTS * labels.lists).div_ceil(MAX_OPENED as usize);
    let weight = inputs.iter().map(|labels| labels.vectors.len().max(opened(labels))).max().unwrap_or(1);
    let parts = inputs.into_iter().map(|labels| Part { labels, layout, k, detail }).collect();
    Ok(session.round::<CountClasses, _, _, _>(parts, weight, ask, finish).await?.concat())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::testing::Parties;

    fn expected(list: &[u64], k: u32, detail: bool) -> u64 {
        let mut sizes: HashMap<u64, u64> = HashMap::new();
        list.iter().for_each(|value| *sizes.entry(*value).or_default() += 1);
        let rows: u64 = sizes.values().filter(|size| **size < u64::from(k)).sum();
        if detail { rows } else { rows.min(1) }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn short_lists_lie_side_by_side() {
        let mut parties = Parties::new(67);
        let values: Vec<u64> = parties.numbers().iter().map(|value| value % 30).collect();
        let sealed = parties.encrypt(&values);
        for (block, rows, lists) in [(64, 64, 128), (64, 50, 3), (4096, 3000, 2), (8192, 8000, 1), (2, 2, 4096)] {
            for (k, detail) in [(1, true), (2, true), (3, false), (100, true), (u32::MAX, true), (u32::MAX, false)] {
                let inputs = vec![
                    Labels { vectors: vec![sealed.clone()], lists },
                    Labels { vectors: vec![sealed.clone()], lists: lists / 2 },
                ];
                let found = count_classes(&parties.session, rows, block, k, detail, inputs).await.unwrap();
                let list = |list: &[u64]| expected(&list[..rows], k, detail);
                let all: Vec<u64> = values.chunks(block).map(list).collect();
                assert_eq!(found, [&all[..lists], &all[..lists / 2]].concat(), "{lists} of {block}, k = {k}");
            }
        }
        let none = vec![Labels { vectors: vec![sealed], lists: 1 }];
        assert_eq!(count_classes(&parties.session, 0, 1024, 5, true, none).await.unwrap(), [0]);
        assert!(count_classes(&parties.session, 1, 1, 5, true, Vec::new()).await.unwrap().is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_long_list_lies_in_several_vectors() {
        let mut parties = Parties::new(68);
        // Classes reach over vectors; the rows behind the last are all different.
        let (rows, block) = (3 * DEGREE + 100, 4 * DEGREE);
        let values: Vec<u64> =
            (0..block as u64).map(|row| if row < rows as u64 { row % 5000 } else { 1 << 40 | row }).collect();
        let vectors = values.chunks(DEGREE).map(|values| parties.encrypt(values)).collect();
        let found = count_classes(&parties.session, rows, block, 5, true, vec![Labels { vectors, lists: 1 }]).await;
        assert_eq!(found.unwrap(), [expected(&values[..rows], 5, true)]);
        assert_eq!(expected(&values[..rows], 5, true), 4 * 324);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn impossible_layouts_are_refused_by_both() {
        let mut parties = Parties::new(69);
        let sealed = parties.encrypt(&[1]);
        let ask = async |rows: usize, block: usize, vectors: usize, lists: usize| {
            let labels = Labels { vectors: vec![sealed.clone(); vectors], lists };
            count_classes(&parties.session, rows, block, 2, true, vec![labels]).await.unwrap_err().to_string()
        };
        assert_eq!(ask(5, 3, 1, 1).await, "5 rows do not lie in blocks of 3 slots");
        assert_eq!(ask(5, 4, 1, 1).await, "5 rows do not lie in blocks of 4 slots");
        assert_eq!(ask(5, 8, 1, 1025).await, "1025 lists in blocks of 8 slots do not lie in 1 vectors");
        assert_eq!(ask(5, 2 * DEGREE, 1, 1).await, "1 lists in blocks of 16384 slots do not lie in 1 vectors");
        assert_eq!(ask(5, 2 * MAX_BLOCK, 1, 1).await, "5 rows do not lie in blocks of 4194304 slots");
        assert_eq!(ask(1, 1, 1, 4097).await, "4097 lists in blocks of 1 slots do not lie in 1 vectors");
        assert_eq!(ask(0, 0, 1, 1).await, "0 rows do not lie in blocks of 0 slots");
        let query = |detail| Query::<Inbound> { labels: Vec::new(), lists: 1, rows: 1, block: 1, k: 1, detail };
        assert!(matches!(query(0).answer_ciphertexts(), Err(ProtocolError::Malformed(_))));
    }

    #[test]
    fn p1_does_not_believe_everything() {
        assert_eq!(checked(vec![3, 0], 2, 3, true).unwrap(), [3, 0]);
        let error = |found, detail| checked(found, 2, 3, detail).unwrap_err().to_string();
        assert_eq!(error(vec![1], true), "malformed message: 1 numbers instead of 2");
        assert_eq!(error(vec![0, 4], true), "malformed message: 4 were found where there are at most 3");
        assert_eq!(error(vec![2, 0], false), "malformed message: 2 were found where there are at most 1");
    }
}
