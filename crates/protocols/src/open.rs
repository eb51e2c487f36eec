//! A declared aggregate, to P1.
//!
//! ```text
//!  P1: rho uniform              x + rho, how many slots, and why  -->
//!                                                                 <--  x + rho of the first slots, in clear          P2
//!  P1: minus rho
//! ```
//! The only protocol that shows P1 a number of P1's choice. It carries its purpose, which P2 logs and counts, and opens few slots: it
//! is for flags, cluster sizes and metrics, never for rows.

use rand::CryptoRng;
use veil_slots::{DEGREE, Inbound, KeyHolder, L1, Outbound, Slots, plain};

use crate::limits::BATCH_CIPHERTEXTS;
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Open;

/// The most slots that one ciphertext, and one batch, opens.
pub const MAX_OPENED: u32 = (DEGREE / 2) as u32;

/// Why a number is opened: each is leakage that some SQL function declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// The final value of a risk or utility metric.
    Metric,
    /// Which clusters are smaller than k, the sizes of those, and which clusters they join.
    ClusterFlags,
    /// Whether an iteration changed anything.
    StopBit,
    /// A histogram of class sizes.
    SizeHistogram,
    /// Whether, or how many, rows are in small classes: see [`count_classes`](crate::count_classes).
    SmallClasses,
    /// How many classes a release has, the size of the smallest, and how many of its rows are suppressed.
    ClassCheck,
}

impl Purpose {
    /// All purposes; the place is the number on the wire.
    pub const ALL: [Self; 6] =
        [Self::Metric, Self::ClusterFlags, Self::StopBit, Self::SizeHistogram, Self::SmallClasses, Self::ClassCheck];

    /// For logs and counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metric => "metric",
            Self::ClusterFlags => "cluster_flags",
            Self::StopBit => "stop_bit",
            Self::SizeHistogram => "size_histogram",
            Self::SmallClasses => "small_classes",
            Self::ClassCheck => "class_check",
        }
    }

    fn from_wire(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    fn to_wire(self) -> u32 {
        Self::ALL.iter().position(|purpose| *purpose == self).unwrap_or_default() as u32
    }
}

message! {
    /// The masked aggregate.
    Query<C: Outbound => Inbound> {
        /// `x + rho`.
        masked: C,
        /// How many slots to open, from the first.
        count: u32,
        /// Why.
        purpose: u32,
    }
}

message! {
    /// The masked numbers.
    Answer {
        /// `x + rho` in clear.
        values: Vec<u64>,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        if Purpose::from_wire(self.purpose).is_none() {
            return Err(ProtocolError::Unsupported(format!("nothing is opened for purpose {}", self.purpose)));
        }
        if self.count > MAX_OPENED {
            let (found, limit) = (self.count as usize, MAX_OPENED as usize);
            return Err(ProtocolError::TooLarge { what: "a number of opened slots", found, limit });
        }
        Ok(1)
    }

    fn opens(&self) -> Option<(Purpose, u32)> {
        Purpose::from_wire(self.purpose).map(|purpose| (purpose, self.count))
    }
}

impl Protocol for Open {
    const NAME: &'static str = "open";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "a declared aggregate, shown to P1";
    const LEAKAGE: Leakage =
        Leakage { p1: "the declared aggregate", p2: "the purpose and how many numbers are opened" };
    const OPENS: Opens = Opens(&[Purpose::Metric, Purpose::ClusterFlags, Purpose::StopBit]);
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query<Inbound>, holder: &dyn KeyHolder, _: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        let mut values = holder.open(query.masked).to_vec();
        values.truncate(query.count as usize);
        Ok(Answer { values })
    }
}

/// An aggregate to open.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// The encrypted numbers.
    pub slots: Slots<L1>,
    /// How many of them, from the first slot.
    pub count: u32,
    /// Why.
    pub purpose: Purpose,
}

/// What P1 remembers: its masks.
pub struct Asked(Vec<u64>);

/// P1 masks every slot, those that stay closed too.
pub fn ask(aggregate: Aggregate, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Aggregate { slots, count, purpose } = aggregate;
    let mut mask = plain::uniform_vec(DEGREE, &mut asker.rng);
    let query = Query { masked: asker.send(&slots, &mask)?, count, purpose: purpose.to_wire() };
    mask.truncate(count as usize);
    Ok((Asked(mask), query))
}

/// P1 takes the masks off: numbers modulo the plaintext prime, nearest to zero.
pub fn finish(asked: Asked, answer: Answer) -> Result<Vec<i64>, ProtocolError> {
    plain::checked(&answer.values)?;
    if answer.values.len() != asked.0.len() {
        return Err(ProtocolError::Malformed(format!("{} numbers instead of {}", answer.values.len(), asked.0.len())));
    }
    Ok(answer.values.iter().zip(asked.0).map(|(value, mask)| plain::centred(plain::sub(*value, mask))).collect())
}

/// One round for many aggregates.
pub async fn open(session: &Session, aggregates: Vec<Aggregate>) -> Result<Vec<Vec<i64>>, ProtocolError> {
    // So few rows a batch that it does not open more than it may.
    let most = aggregates.iter().map(|aggregate| aggregate.count).max().unwrap_or(1) as usize;
    let weight = (BATCH_CIPHERTEXTS * most).div_ceil(MAX_OPENED as usize);
    session.round::<Open, _, _, _>(aggregates, weight, ask, finish).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_first_slots_open_with_their_signs() {
        let mut parties = Parties::new(9);
        let slots = parties.encrypt_signed(&[7, -3, 0, 1 << 46, 99]);
        let aggregate = Aggregate { slots, count: 4, purpose: Purpose::Metric };
        assert_eq!(open(&parties.session, vec![aggregate]).await.unwrap(), [[7, -3, 0, 1 << 46]]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn p2_opens_few_slots_and_only_for_a_known_purpose() {
        let mut parties = Parties::new(10);
        let slots = parties.encrypt(&[7]);
        let aggregate = Aggregate { slots, count: MAX_OPENED + 1, purpose: Purpose::StopBit };
        let error = open(&parties.session, vec![aggregate]).await.unwrap_err();
        assert!(matches!(error, ProtocolError::TooLarge { found: 4097, limit: 4096, .. }), "{error}");
        let many = vec![Aggregate { slots: parties.encrypt(&[7; 3000]), count: 3000, purpose: Purpose::Metric }; 2];
        assert_eq!(open(&parties.session, many).await.unwrap(), vec![vec![7; 3000]; 2]);
        for (number, purpose) in Purpose::ALL.into_iter().enumerate() {
            assert_eq!(Purpose::from_wire(number as u32), Some(purpose));
        }
        assert_eq!(Purpose::from_wire(Purpose::ALL.len() as u32), None);
    }
}
