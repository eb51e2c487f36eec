//! `[w < rho]` between a clear number of P2 and a clear number of P1, encrypted: nobody learns anything.
//!
//! ```text
//!  P1:                          x + rho  -->  w
//!                                        <--  thermometers of the digits of w                           P2
//!  P1: picks lt and eq of every digit (see the module `digits`)
//!  four rounds of `and`: neighbouring digits fold into one
//! ```
//! With `rho` uniform and secret, `w = x + rho mod t` is uniform, and `[w < rho]` says whether the sum wrapped: what exact truncation
//! and exact conversions need.

use rand::CryptoRng;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L1, Outbound, SeededSlots, Slots, plain};

use crate::digits::{self, Folding, Order};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct LessThan;

/// Numbers modulo `t` have so many bits.
pub(crate) const BITS: u32 = 48;

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

impl Protocol for LessThan {
    const NAME: &'static str = "less_than";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "whether a clear number of P2 is below a clear number of P1";
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

/// A vector and the mask that P1 adds to it: one uniform number modulo `t` a slot.
#[derive(Clone)]
pub struct Masked {
    /// `x`.
    pub slots: Slots<L1>,
    /// `rho`.
    pub mask: Vec<u64>,
}

/// What P1 remembers: its own numbers.
pub struct Asked(Vec<u64>);

/// P1 masks.
pub fn ask(input: Masked, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    // A slot without a mask would be a slot that P2 sees.
    if input.mask.len() != DEGREE {
        return Err(ProtocolError::Misuse(format!("{} masks do not hide {DEGREE} slots", input.mask.len())));
    }
    plain::checked(&input.mask)?;
    let query = Query { masked: asker.send(&input.slots, &input.mask)? };
    Ok((Asked(input.mask), query))
}

/// P1 picks from the digits; they are yet to be folded.
pub(crate) fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Vec<Order>, ProtocolError> {
    if answer.digits.len() != digits::ciphertexts(BITS) {
        return Err(ProtocolError::Malformed(format!("{} digits", answer.digits.len())));
    }
    let replies = answer.digits;
    digits::orders(&asked.0, BITS, &replies)
}

/// `[x + rho mod t < rho]`: whether the mask wrapped.
pub async fn less_than(session: &Session, inputs: Vec<Masked>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let weight = digits::ciphertexts(BITS);
    let orders = session.round::<LessThan, _, _, _>(inputs, weight, ask, finish).await?;
    let foldings = orders.into_iter().map(|orders| Folding::new(orders, false)).collect();
    Ok(digits::fold(session, foldings).await?.into_iter().map(|order| order.less).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn masks_that_wrap_are_found() {
        let mut parties = Parties::new(11);
        let (values, mask) = (parties.numbers(), parties.numbers());
        let input = Masked { slots: parties.encrypt(&values), mask: mask.clone() };
        let wrapped = less_than(&parties.session, vec![input]).await.unwrap();
        let expected: Vec<u64> =
            values.iter().zip(&mask).map(|(value, mask)| u64::from(plain::add(*value, *mask) < *mask)).collect();
        assert_eq!(parties.open(&wrapped[0]), expected);
        let short = Masked { slots: parties.encrypt(&values), mask: mask[1..].to_vec() };
        let error = less_than(&parties.session, vec![short]).await.unwrap_err();
        assert_eq!(error.to_string(), "8191 masks do not hide 8192 slots");
    }
}
