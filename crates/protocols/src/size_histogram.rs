//! How many classes there are of every size: what risk is computed from.
//!
//! ```text
//!  P1:          labels, zero for rows that are suppressed  -->  sorts them, counts equal ones
//!                                                          <--  per list: suppressed rows, and how many classes have which size      P2
//! ```
//! As in [`count_classes`](mod@crate::count_classes) labels go to P2 sanitised but not blinded (the slots between lists are): that it sees which are equal is the point.
//! So they must be of a secret function ([`relabel`](crate::relabel)), new for every list, in an order that P2 does not know; then P2 learns the
//! sizes of the classes and nothing else. P1 learns the same.

use rand::CryptoRng;
use veil_slots::{Inbound, KeyHolder, Outbound};

use crate::count_classes::{Labels, Layout};
use crate::limits::BATCH_CIPHERTEXTS;
use crate::message::message;
use crate::open::{MAX_OPENED, Purpose};
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct SizeHistogram;

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
    }
}

message! {
    /// What was found.
    Answer {
        /// For every list: how many labels are zero, how many sizes there are, and for each of these the size and its classes.
        found: Vec<u64>,
    }
}

/// The most numbers of a histogram: sizes 1, 2 .. s need s (s + 1) / 2 rows, and each size comes with how many classes have it.
fn most_numbers(rows: u32) -> u32 {
    let sizes = ((8 * u64::from(rows) + 1).isqrt() - 1) / 2;
    1 + 2 * sizes as u32
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let layout = Layout { rows: self.rows as usize, block: self.block as usize };
        layout.check(self.labels.len(), self.lists as usize).map_err(ProtocolError::Malformed)?;
        Ok(1)
    }

    fn opens(&self) -> Option<(Purpose, u32)> {
        Some((Purpose::SizeHistogram, self.lists.saturating_mul(most_numbers(self.rows))))
    }
}

impl Protocol for SizeHistogram {
    const NAME: &'static str = "size_histogram";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "how many classes of equal labels there are of every size";
    const LEAKAGE: Leakage = Leakage {
        p1: "how many classes of the asked columns there are of every size, and how many rows are suppressed",
        p2: "the same, in a secret order",
    };
    const OPENS: Opens = Opens(&[Purpose::SizeHistogram]);
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query<Inbound>, holder: &dyn KeyHolder, _: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        let layout = Layout { rows: query.rows as usize, block: query.block as usize };
        let found = layout.open(query.labels, query.lists as usize, holder, |list| Sizes::of(list).to_wire());
        Ok(Answer { found: found.concat() })
    }
}

/// The sizes of the classes of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Rows that are suppressed, and so in no class.
    pub suppressed: u64,
    /// How many classes there are of a size, the smallest first.
    pub classes: Vec<(u64, u64)>,
}

impl Sizes {
    /// Counts equal labels; zero is that of suppressed rows.
    pub(crate) fn of(labels: &mut [u64]) -> Self {
        labels.sort_unstable();
        let suppressed = labels.partition_point(|label| *label == 0);
        let published = labels.get(suppressed..).unwrap_or_default();
        let mut sizes: Vec<usize> = published.chunk_by(|a, b| a == b).map(<[u64]>::len).collect();
        sizes.sort_unstable();
        let classes = sizes.chunk_by(|a, b| a == b).filter_map(|same| Some((*same.first()? as u64, same.len() as u64)));
        Self { suppressed: suppressed as u64, classes: classes.collect() }
    }

    fn to_wire(&self) -> Vec<u64> {
        let classes = self.classes.iter().flat_map(|(size, classes)| [*size, *classes]);
        [self.suppressed, self.classes.len() as u64].into_iter().chain(classes).collect()
    }

    /// Those of the next list, and what is behind them. P1 does not believe what does not add up to the rows that it sent.
    fn from_wire(found: &[u64], rows: usize) -> Result<(Self, &[u64]), ProtocolError> {
        let cut = || ProtocolError::Malformed("a list of class sizes is cut".to_owned());
        let ([suppressed, sizes], rest) = found.split_first_chunk::<2>().ok_or_else(cut)?;
        let length = usize::try_from(*sizes).ok().and_then(|sizes| sizes.checked_mul(2)).ok_or_else(cut)?;
        let (sizes, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
        let classes: Vec<(u64, u64)> =
            sizes.as_chunks::<2>().0.iter().map(|[size, classes]| (*size, *classes)).collect();
        let in_classes =
            classes.iter().try_fold(*suppressed, |sum, (size, classes)| sum.checked_add(size.checked_mul(*classes)?));
        if in_classes != Some(rows as u64)
            || !classes.is_sorted_by(|a, b| a.0 < b.0)
            || classes.iter().any(|(size, _)| *size == 0)
        {
            return Err(ProtocolError::Malformed(format!("class sizes do not add up to {rows} rows")));
        }
        Ok((Self { suppressed: *suppressed, classes }, rest))
    }
}

/// What P1 asks about one input, and remembers.
pub struct Part {
    labels: Labels,
    layout: Layout,
}

/// What P1 remembers: how many lists of how many rows.
pub struct Asked {
    lists: usize,
    rows: usize,
}

/// P1 sanitises, and hides all slots that are no rows.
pub fn ask(part: Part, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Part { labels, layout } = part;
    let Layout { rows, block } = layout;
    let sent = layout.send(&labels, asker)?;
    let query = Query { labels: sent, lists: labels.lists as u32, rows: rows as u32, block: block as u32 };
    Ok((Asked { lists: labels.lists, rows }, query))
}

/// P1 reads and checks the sizes.
pub fn finish(asked: Asked, answer: Answer) -> Result<Vec<Sizes>, ProtocolError> {
    let (mut rest, mut lists) = (answer.found.as_slice(), Vec::with_capacity(asked.lists));
    for _ in 0..asked.lists {
        let (sizes, behind) = Sizes::from_wire(rest, asked.rows)?;
        lists.push(sizes);
        rest = behind;
    }
    match rest.is_empty() {
        true => Ok(lists),
        false => Err(ProtocolError::Malformed(format!("more than {} lists of class sizes", asked.lists))),
    }
}

/// One round for many lists of `rows` labels, each in a block of so many slots: for each, in order, its class sizes.
pub async fn size_histogram(
    session: &Session,
    rows: usize,
    block: usize,
    inputs: Vec<Labels>,
) -> Result<Vec<Sizes>, ProtocolError> {
    let layout = Layout { rows, block };
    let check = |labels: &Labels| layout.check(labels.vectors.len(), labels.lists).map_err(ProtocolError::Misuse);
    inputs.iter().try_for_each(check)?;
    // So few rows a batch that it does not open more than it may.
    let opened = |labels: &Labels| (BATCH_CIPHERTEXTS * labels.lists).div_ceil(MAX_OPENED as usize);
    let weight = inputs.iter().map(|labels| labels.vectors.len().max(opened(labels))).max().unwrap_or(1);
    let parts = inputs.into_iter().map(|labels| Part { labels, layout }).collect();
    Ok(session.round::<SizeHistogram, _, _, _>(parts, weight, ask, finish).await?.concat())
}

#[cfg(test)]
mod tests {
    use veil_slots::DEGREE;

    use super::*;
    use crate::testing::Parties;

    fn sizes(suppressed: u64, classes: &[(u64, u64)]) -> Sizes {
        Sizes { suppressed, classes: classes.to_vec() }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lists_side_by_side_and_long_ones_are_counted() {
        let mut parties = Parties::new(600);
        let mut vector = vec![0; DEGREE];
        vector[..5].copy_from_slice(&[7, 9, 7, 0, 7]);
        vector[8..13].copy_from_slice(&[1, 2, 3, 4, 4]);
        let labels = Labels { vectors: vec![parties.encrypt(&vector)], lists: 2 };
        let found = size_histogram(&parties.session, 5, 8, vec![labels]).await.unwrap();
        assert_eq!(found, [sizes(1, &[(1, 1), (3, 1)]), sizes(0, &[(1, 3), (2, 1)])]);
        let halves: Vec<u64> = (0..2 * DEGREE as u64).map(|row| row / 2 + 1).collect();
        let vectors = halves.chunks(DEGREE).map(|half| parties.encrypt(half)).collect();
        let rows = 2 * DEGREE - 1;
        let found =
            size_histogram(&parties.session, rows, 2 * DEGREE, vec![Labels { vectors, lists: 1 }]).await.unwrap();
        assert_eq!(found, [sizes(0, &[(1, 1), (2, DEGREE as u64 - 1)])]);
    }

    #[test]
    fn histograms_are_charged_for_the_longest_that_their_rows_can_have() {
        for rows in [0u64, 1, 2, 3, 5, 6, 7, 8191, 8192, 8193, 1_000_000] {
            let mut sizes = 0;
            while (sizes + 1) * (sizes + 2) / 2 <= rows {
                sizes += 1;
            }
            assert_eq!(u64::from(most_numbers(rows as u32)), 1 + 2 * sizes, "{rows} rows");
        }
        assert_eq!(most_numbers(1_000_000), 2827);
    }

    #[test]
    fn p1_does_not_believe_everything() {
        let read = |found: &[u64]| finish(Asked { lists: 1, rows: 5 }, Answer { found: found.to_vec() });
        assert_eq!(read(&[1, 1, 2, 2]).unwrap(), [sizes(1, &[(2, 2)])]);
        for bad in [
            &[][..],
            &[1],
            &[1, 1, 2],
            &[1, 1, 2, 1],
            &[0, 2, 2, 1, 2, 1],
            &[0, 2, 3, 1, 2, 1],
            &[5, 1, 0, 1],
            &[5, u64::MAX],
            &[1, 1, u64::MAX, 4],
            &[5, 0, 0],
        ] {
            assert!(matches!(read(bad), Err(ProtocolError::Malformed(_))), "{bad:?}");
        }
    }
}
