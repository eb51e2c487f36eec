//! `floor(x / 2^f)`, or rounded to the nearest: exact, and nobody learns anything.
//!
//! ```text
//!  P1: rho uniform mod t        x + rho, f  -->  w = x + rho mod t
//!                                           <--  w_hi,  k = carry of w_lo + t_lo,  digits of w_lo, of (w + t)_lo, of w_hi      P2
//!  `and` rounds: l0 = [w_lo < rho_lo],  l1 = [(w + t)_lo < rho_lo],  [w_hi < rho_hi],  [w_hi = rho_hi]
//!  `and`:        c  = [w < rho] = [w_hi < rho_hi] + [w_hi = rho_hi] l0
//!  `multiply`:   c (t_hi + k - l1 + l0)
//!  P1: w_hi - rho_hi - l0 + c (t_hi + k - l1 + l0)
//! ```
//! As `x = w - rho + t [w < rho]`, the quotient is `w_hi - rho_hi - [w_lo < rho_lo]`, or, where the sum wrapped, the same with
//! `w + t` in the place of `w`.

use rand::CryptoRng;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L1, Offset, Outbound, PLAIN_MODULUS, SeededSlots, Slots, plain};

use crate::and::{self, Products};
use crate::digits::{self, Folding, Order};
use crate::less_than::BITS;
use crate::message::message;
use crate::multiply::multiply;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Truncate;

message! {
    /// The masked vector.
    Query<C: Outbound => Inbound> {
        /// `x + rho`.
        masked: C,
        /// Bits to drop.
        shift: u32,
    }
}

message! {
    /// Quotient and digits of the masked vector.
    Answer<C: SeededSlots => Fresh> {
        /// `w_hi`.
        high: C,
        /// Whether `w_lo + t_lo` carries.
        carry: C,
        /// Thermometers of `w_lo`, `(w + t)_lo` and `w_hi`.
        digits: Vec<C>,
    }
}

fn digits_of(shift: u32) -> usize {
    2 * digits::ciphertexts(shift) + digits::ciphertexts(BITS - shift)
}

fn checked(shift: u32) -> Result<u32, ProtocolError> {
    match shift {
        1..BITS => Ok(shift),
        _ => Err(ProtocolError::Malformed(format!("{shift} bits cannot be dropped of {BITS}"))),
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        Ok(2 + digits_of(checked(self.shift)?))
    }
}

impl Protocol for Truncate {
    const NAME: &'static str = "truncate";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "the quotient by a power of two, exactly";
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
        let shift = checked(query.shift)?;
        let low = (1 << shift) - 1;
        let w = holder.open(query.masked);
        let map = |of: &dyn Fn(u64) -> u64| -> Vec<u64> { w.iter().map(|w| of(*w)).collect() };
        let (high, wrapped_low) = (map(&|w| w >> shift), map(&|w| (w + PLAIN_MODULUS) & low));
        let carry = map(&|w| ((w & low) + (PLAIN_MODULUS & low)) >> shift);
        let mut sealed = digits::thermometers(&map(&|w| w & low), shift, holder, rng);
        sealed.extend(digits::thermometers(&wrapped_low, shift, holder, rng));
        sealed.extend(digits::thermometers(&high, BITS - shift, holder, rng));
        Ok(Answer { high: holder.seal(&high, rng), carry: holder.seal(&carry, rng), digits: sealed })
    }
}

/// How a quotient becomes an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Towards minus infinity.
    Floor,
    /// To the nearest, halves up.
    Nearest,
}

/// A vector of numbers in `0..t` (with [`Rounding::Nearest`], in `0..t - 2^(shift-1)`).
#[derive(Clone, Debug)]
pub struct Dividend {
    /// `x`.
    pub slots: Slots<L1>,
    /// Divide by `2^shift`.
    pub shift: u32,
    /// And round.
    pub rounding: Rounding,
}

/// What P1 remembers.
pub struct Asked {
    mask: Vec<u64>,
    shift: u32,
}

/// The answer taken apart, on its way to the quotient.
#[derive(Debug)]
pub struct Parts {
    high: Slots<L1>,
    carry: Slots<L1>,
    low: Vec<Order>,
    wrapped_low: Vec<Order>,
    high_digits: Vec<Order>,
    shift: u32,
}

/// P1 masks.
pub fn ask(mut dividend: Dividend, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let shift = checked(dividend.shift).map_err(|error| ProtocolError::Misuse(error.to_string()))?;
    if dividend.rounding == Rounding::Nearest {
        dividend.slots.add_constant(1 << (shift - 1));
    }
    let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
    let query = Query { masked: asker.send(&dividend.slots, &mask)?, shift };
    Ok((Asked { mask, shift }, query))
}

/// P1 picks from the digits.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Parts, ProtocolError> {
    let Asked { mask, shift } = asked;
    if answer.digits.len() != digits_of(shift) {
        return Err(ProtocolError::Malformed(format!("{} digits", answer.digits.len())));
    }
    let replies = answer.digits;
    let (low, rest) = replies.split_at(digits::ciphertexts(shift));
    let (wrapped_low, high_digits) = rest.split_at(digits::ciphertexts(shift));
    let mask_low: Vec<u64> = mask.iter().map(|mask| mask & ((1 << shift) - 1)).collect();
    let mask_high: Vec<u64> = mask.iter().map(|mask| mask >> shift).collect();
    let mut high = answer.high.raised();
    high.sub_clear(&Offset::new(&mask_high));
    Ok(Parts {
        high,
        carry: answer.carry.raised(),
        low: digits::orders(&mask_low, shift, low)?,
        wrapped_low: digits::orders(&mask_low, shift, wrapped_low)?,
        high_digits: digits::orders(&mask_high, BITS - shift, high_digits)?,
        shift,
    })
}

/// The quotients of many vectors: as many rounds as for one.
pub async fn truncate(session: &Session, dividends: Vec<Dividend>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let weight = dividends.first().map_or(1, |dividend| 2 + digits_of(dividend.shift.clamp(1, BITS - 1)));
    let parts = session.round::<Truncate, _, _, _>(dividends, weight, ask, finish).await?;
    let mut foldings = Vec::with_capacity(3 * parts.len());
    let mut rest = Vec::with_capacity(parts.len());
    for part in parts {
        foldings.push(Folding::new(part.low, false));
        foldings.push(Folding::new(part.wrapped_low, false));
        foldings.push(Folding::new(part.high_digits, true));
        rest.push((part.high, part.carry, part.shift));
    }
    let folded = digits::fold(session, foldings).await?;
    let orders = folded.as_chunks::<3>().0;

    // c = [w_hi < rho_hi] + [w_hi = rho_hi] l0
    let mut groups = Vec::with_capacity(orders.len());
    for [low, _, high] in orders {
        let equal = high.equal.clone().ok_or(ProtocolError::Cancelled)?;
        groups.push(Products { bits: vec![equal, low.less.clone()], wanted: vec![vec![0, 1]] });
    }
    let both = and::products(session, groups).await?;
    let mut factors = Vec::with_capacity(orders.len());
    for (([low, wrapped_low, high], mut both), (_, carry, shift)) in orders.iter().zip(both).zip(&rest) {
        let mut wrapped = both.pop().ok_or(ProtocolError::Cancelled)?;
        wrapped.add(&high.less);
        let mut difference = carry.clone();
        difference.sub(&wrapped_low.less);
        difference.add(&low.less);
        difference.add_constant(PLAIN_MODULUS >> shift);
        factors.push((wrapped, difference));
    }
    let corrections = multiply(session, factors).await?;
    let quotients = rest.into_iter().zip(orders).zip(corrections).map(|(((mut high, ..), [low, ..]), correction)| {
        high.sub(&low.less);
        high.add(&correction);
        high
    });
    Ok(quotients.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn quotients_are_exact_for_every_shift() {
        let mut parties = Parties::new(13);
        for (shift, rounding) in
            [(1, Rounding::Floor), (16, Rounding::Nearest), (31, Rounding::Floor), (47, Rounding::Floor)]
        {
            let half = if rounding == Rounding::Nearest { 1 << (shift - 1) } else { 0 };
            let mut values = parties.numbers_below(PLAIN_MODULUS - half);
            values[2..6].copy_from_slice(&[1 << shift, (1 << shift) - 1, 1 << (shift - 1), (1 << (shift - 1)) - 1]);
            let dividend = Dividend { slots: parties.encrypt(&values), shift, rounding };
            let quotients = truncate(&parties.session, vec![dividend]).await.unwrap();
            let expected: Vec<u64> = values.iter().map(|value| (value + half) >> shift).collect();
            assert_eq!(parties.open(&quotients[0]), expected, "shift {shift}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn quotients_can_be_divided_again_and_shifts_may_differ() {
        let mut parties = Parties::new(14);
        let values = parties.numbers();
        let slots = parties.encrypt(&values);
        let dividend = |slots: &Slots<L1>, shift| Dividend { slots: slots.clone(), shift, rounding: Rounding::Floor };
        let once = truncate(&parties.session, vec![dividend(&slots, 5), dividend(&slots, 20)]).await.unwrap();
        let twice = truncate(&parties.session, vec![dividend(&once[0], 15)]).await.unwrap();
        assert_eq!(parties.open(&twice[0]), parties.open(&once[1]));
        assert!(truncate(&parties.session, vec![dividend(&slots, 48)]).await.is_err());
        assert!(truncate(&parties.session, vec![dividend(&slots, 0)]).await.is_err());
    }
}
