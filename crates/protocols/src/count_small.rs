//! How many rows share their value with fewer than k, to P1.
//!
//! ```text
//!  P1:                          how many rows share each row's value, k  -->
//!                                                                        <--  for how many rows that is below k, in clear          P2
//! ```
//! P2 sees the counts. It has seen them before, in [`match_pairs`](crate::match_pairs). P1 sees one number, or one bit; P2 logs and counts
//! it as it does what [`open`](crate::open) shows.

use rand::CryptoRng;
use veil_slots::{Inbound, KeyHolder, L0, Outbound, Slots};

use crate::message::message;
use crate::open::Purpose;
use crate::rotate::MAX_ROWS;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct CountSmall;

message! {
    /// The counts.
    Query<C: Outbound => Inbound> {
        /// For every row, how many rows have its value: itself among them.
        counts: C,
        /// How many rows there are, from the first slot.
        rows: u32,
        /// What is small: fewer than so many.
        k: u32,
        /// One to count such rows, zero to tell whether there are any.
        detail: u32,
    }
}

message! {
    /// What was found.
    Answer {
        /// One number.
        found: Vec<u64>,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let Self { rows, detail, .. } = *self;
        if !(1..=MAX_ROWS as u32).contains(&rows) || detail > 1 {
            return Err(ProtocolError::Malformed(format!("no counts of {rows} rows in detail {detail}")));
        }
        Ok(0)
    }

    fn opens(&self) -> Option<(Purpose, u32)> {
        Some((Purpose::SmallClasses, 1))
    }
}

impl Protocol for CountSmall {
    const NAME: &'static str = "count_small";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "how many rows share their value with fewer than k, shown to P1";
    const LEAKAGE: Leakage = Leakage {
        p1: "how many rows have a value that fewer than k rows share, or only whether there are any",
        p2: "how many rows share each row's value, in the order in which P1 sends them (a secret one after a shuffle)",
    };
    const OPENS: Opens = Opens(&[Purpose::SmallClasses]);
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query<Inbound>, holder: &dyn KeyHolder, _: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        let Query { counts, rows, k, detail } = query;
        let opened = holder.open(counts);
        let counts = opened.get(..rows as usize).unwrap_or_default();
        // A row has its own value, and no more rows than all have it. What else comes is no vector of counts.
        if counts.iter().any(|count| !(1..=u64::from(rows)).contains(count)) {
            return Err(ProtocolError::Malformed(format!("a count is not one of 1 to {rows}")));
        }
        let found = counts.iter().filter(|count| **count < k.into()).count() as u64;
        Ok(Answer { found: vec![if detail == 1 { found } else { found.min(1) }] })
    }
}

/// How many others share each row's value, and what is wanted of it.
#[derive(Clone, Debug)]
pub struct Counts {
    /// For every row, how many other rows have its value, in the first slots.
    pub others: Slots<L0>,
    /// How many rows there are.
    pub rows: u32,
    /// What is small: fewer than so many, the row itself among them.
    pub k: u32,
    /// Whether such rows are counted, or only told to exist.
    pub detail: bool,
}

/// What P1 remembers: the largest number that it may get.
pub struct Asked(u64);

/// P1 counts every row itself in.
pub fn ask(counts: Counts, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Counts { others, rows, k, detail } = counts;
    if !(1..=MAX_ROWS as u32).contains(&rows) {
        return Err(ProtocolError::Misuse(format!("1 to {MAX_ROWS} rows are counted at once, not {rows}")));
    }
    let counts = asker.send(&others, &vec![1; rows as usize])?;
    let most = if detail { rows.into() } else { 1 };
    Ok((Asked(most), Query { counts, rows, k, detail: detail.into() }))
}

/// P1 reads the number.
pub fn finish(asked: Asked, answer: Answer) -> Result<u64, ProtocolError> {
    match answer.found.as_slice() {
        [found] if *found <= asked.0 => Ok(*found),
        found => Err(ProtocolError::Malformed(format!("{found:?} instead of one number up to {}", asked.0))),
    }
}

/// One round for many vectors of counts.
pub async fn count_small(session: &Session, counts: Vec<Counts>) -> Result<Vec<u64>, ProtocolError> {
    session.round::<CountSmall, _, _, _>(counts, 1, ask, finish).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn small_counts_are_counted_or_told_to_exist() {
        let mut parties = Parties::new(53);
        // Three, two, one of a kind; the slot beyond the rows does not count.
        let others = [2, 1, 0, 2, 1, 2, 0];
        let others: Slots<L0> = parties.keys.slot().seal(&others, &mut parties.rng).expand().unwrap().into();
        let ask = |rows, k, detail| vec![Counts { others: others.clone(), rows, k, detail }];
        for (k, expected) in [(0, 0), (1, 0), (2, 1), (3, 3), (4, 6), (u32::MAX, 6)] {
            assert_eq!(count_small(&parties.session, ask(6, k, true)).await.unwrap(), [expected]);
            assert_eq!(count_small(&parties.session, ask(6, k, false)).await.unwrap(), [expected.min(1)]);
        }
        let error = count_small(&parties.session, ask(2, 3, true)).await.unwrap_err().to_string();
        assert!(error.contains("a count is not one of 1 to 2"), "{error}");
        let error = count_small(&parties.session, ask(8193, 3, true)).await.unwrap_err().to_string();
        assert_eq!(error, "1 to 8192 rows are counted at once, not 8193");
        for found in [vec![], vec![7], vec![1, 1]] {
            assert!(finish(Asked(6), Answer { found }).is_err());
        }
    }
}
