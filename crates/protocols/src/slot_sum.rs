//! The sum of all slots, in every slot.
//!
//! ```text
//!  P1: rho uniform              x + rho  -->
//!                                        <--  sum of all slots, in every slot               P2
//!  P1: minus the sum of rho
//! ```
//! (The sum is also the degree times coefficient 0 of the plaintext, so that no rotation is ever needed.)

use rand::CryptoRng;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L0, Level, Outbound, SeededSlots, Slots, plain};

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct SlotSum;

message! {
    /// The masked vector.
    Query<C: Outbound => Inbound> {
        /// `x + rho`.
        masked: C,
    }
}

message! {
    /// The masked sum.
    Answer<C: SeededSlots => Fresh> {
        /// `sum (x + rho)` in every slot.
        sum: C,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        Ok(1)
    }
}

impl Protocol for SlotSum {
    const NAME: &'static str = "slot_sum";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "the sum of all slots, in every slot";
    const LEAKAGE: Leakage = Leakage::NOTHING;
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let sum = holder.open(query.masked).iter().fold(0, |sum, value| plain::add(sum, *value));
        Ok(Answer { sum: holder.seal(&[sum; DEGREE], rng) })
    }
}

/// What P1 remembers: the sum of its mask.
pub struct Asked(u64);

/// P1 masks every slot.
pub fn ask<L: Level>(slots: Slots<L>, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
    let sum = mask.iter().fold(0, |sum, value| plain::add(sum, *value));
    Ok((Asked(sum), Query { masked: asker.send(&slots, &mask)? }))
}

/// P1 takes the mask off.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Slots<L0>, ProtocolError> {
    let mut sum: Slots<L0> = answer.sum.into();
    sum.add_constant(plain::neg(asked.0));
    Ok(sum)
}

/// One round for many vectors.
pub async fn slot_sum<L: Level>(session: &Session, vectors: Vec<Slots<L>>) -> Result<Vec<Slots<L0>>, ProtocolError> {
    session.round::<SlotSum, _, _, _>(vectors, 1, ask, finish).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_slot_holds_the_sum() {
        let mut parties = Parties::new(8);
        let values = parties.numbers();
        let sealed = parties.encrypt(&values);
        let sums = slot_sum(&parties.session, vec![sealed]).await.unwrap();
        let expected = values.iter().fold(0, |sum, value| plain::add(sum, *value));
        assert_eq!(parties.open(&sums[0].raised()), vec![expected; DEGREE]);
        // The sum is also the degree times coefficient 0.
        let coefficients = veil_slots::coefficients_of_slots(&values);
        assert_eq!(plain::mul(coefficients[0], DEGREE as u64), expected);
    }
}
