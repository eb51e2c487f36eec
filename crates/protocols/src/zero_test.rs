//! `[x = 0]`, encrypted: nobody learns anything, not even how many slots are zero.
//!
//! ```text
//!  P1: rho uniform              x + rho  -->  w
//!                                        <--  thermometers of the digits of w                           P2
//!  P1: picks eq of every digit;  x = 0 exactly where w = rho
//!  three rounds of `and`: three digits fold into one
//! ```
//! Sending `r x` would be cheaper, and would show P2 which slots are zero; dummies in secret order hide that only in part.

use rand::CryptoRng;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L1, Outbound, SeededSlots, Slots, plain};

use crate::less_than::BITS;
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload, and, digits};

/// The protocol.
#[derive(Debug)]
pub struct ZeroTest;

message! {
    /// The masked vector.
    Query<C: Outbound => Inbound> {
        /// `x + rho`.
        masked: C,
    }
}

message! {
    /// The digits of the masked vector.
    Answer<C: SeededSlots => Fresh> {
        /// Thermometers, most significant digit first.
        digits: Vec<C>,
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        Ok(digits::ciphertexts(BITS))
    }
}

impl Protocol for ZeroTest {
    const NAME: &'static str = "zero_test";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "whether encrypted numbers are zero";
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
        Ok(Answer { digits: digits::thermometers(&holder.open(query.masked), BITS, holder, rng) })
    }
}

/// What P1 remembers: its masks.
pub struct Asked(Vec<u64>);

/// P1 masks.
pub fn ask(slots: Slots<L1>, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
    let query = Query { masked: asker.send(&slots, &mask)? };
    Ok((Asked(mask), query))
}

/// P1 picks from the digits: which are equal, yet to be multiplied.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    if answer.digits.len() != digits::ciphertexts(BITS) {
        return Err(ProtocolError::Malformed(format!("{} digits", answer.digits.len())));
    }
    let replies = answer.digits;
    let orders = digits::orders(&asked.0, BITS, &replies)?;
    Ok(orders.into_iter().filter_map(|order| order.equal).collect())
}

/// `[x = 0]` for many vectors.
pub async fn zero_test(session: &Session, vectors: Vec<Slots<L1>>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let weight = digits::ciphertexts(BITS);
    let mut equal = session.round::<ZeroTest, _, _, _>(vectors, weight, ask, finish).await?;
    while equal.iter().any(|digits| digits.len() > 1) {
        let groups: Vec<Vec<Slots<L1>>> = equal
            .iter()
            .flat_map(|digits| digits.chunks(and::MAX_BITS).filter(|group| group.len() > 1))
            .map(<[_]>::to_vec)
            .collect();
        let mut products = and::and(session, groups).await?.into_iter();
        for digits in &mut equal {
            let mut next = Vec::with_capacity(digits.len().div_ceil(and::MAX_BITS));
            for group in digits.chunks(and::MAX_BITS) {
                match group {
                    [single] => next.push(single.clone()),
                    _ => next.push(products.next().ok_or(ProtocolError::Cancelled)?),
                }
            }
            *digits = next;
        }
    }
    equal.into_iter().map(|mut digits| digits.pop().ok_or(ProtocolError::Cancelled)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn zeros_are_found_and_nothing_else() {
        let mut parties = Parties::new(12);
        let mut values = parties.numbers();
        values.iter_mut().step_by(3).for_each(|value| *value = 0);
        let sealed = parties.encrypt(&values);
        let zeros = zero_test(&parties.session, vec![sealed]).await.unwrap();
        let expected: Vec<u64> = values.iter().map(|value| u64::from(*value == 0)).collect();
        assert_eq!(parties.open(&zeros[0]), expected);
    }
}
