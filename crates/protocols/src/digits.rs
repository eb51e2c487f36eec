//! Comparing a clear number of P2 with a clear number of P1, digit by digit.
//!
//! P2 writes each digit (base 8) of its number as a thermometer: `g_v = [digit < v]` for `v = 1..8`, encrypted. P1 picks, with clear
//! 0/1 vectors, the one that its own digit points at: `lt = g_rho`, and `eq = g_(rho + 1) - g_rho` with `g_8 = 1`. Neighbouring
//! digits fold into one, `lt = lt_hi + eq_hi lt_lo` and `eq = eq_hi eq_lo`, by the protocol [`and`](crate::and): as many rounds as
//! the logarithm of the number of digits.

use rand::CryptoRng;
use veil_slots::{Factor, Fresh, KeyHolder, L1, Offset, SeededSlots, Slots};

use crate::and::{self, Products};
use crate::{ProtocolError, Session};

/// Bits of a digit.
const DIGIT_BITS: u32 = 3;

/// The digits of a number of so many bits, most significant first: how far to shift, and how many bits.
fn layout(bits: u32) -> impl Iterator<Item = (u32, u32)> {
    let digits = bits.div_ceil(DIGIT_BITS);
    (0..digits).rev().map(move |digit| (digit * DIGIT_BITS, DIGIT_BITS.min(bits - digit * DIGIT_BITS)))
}

/// Ciphertexts that a number of so many bits takes.
pub(crate) fn ciphertexts(bits: u32) -> usize {
    layout(bits).map(|(_, width)| (1 << width) - 1).sum()
}

/// P2's half: thermometers of all digits.
pub(crate) fn thermometers(
    values: &[u64],
    bits: u32,
    holder: &dyn KeyHolder,
    rng: &mut dyn CryptoRng,
) -> Vec<SeededSlots> {
    let mut sealed = Vec::with_capacity(ciphertexts(bits));
    for (shift, width) in layout(bits) {
        for bound in 1..1 << width {
            let below: Vec<u64> =
                values.iter().map(|value| u64::from((value >> shift & ((1 << width) - 1)) < bound)).collect();
            sealed.push(holder.seal(&below, rng));
        }
    }
    sealed
}

/// How a digit, or a run of digits, of P2 compares with P1's.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// `[P2's < P1's]`.
    pub(crate) less: Slots<L1>,
    /// `[P2's = P1's]`, where it is needed.
    pub(crate) equal: Option<Slots<L1>>,
}

/// P1's half: picks from the thermometers. `replies` are those of one number.
pub(crate) fn orders(own: &[u64], bits: u32, replies: &[Fresh]) -> Result<Vec<Order>, ProtocolError> {
    let mut replies = replies.iter();
    let mut orders = Vec::new();
    for (shift, width) in layout(bits) {
        let thermometer: Vec<&Fresh> = replies.by_ref().take((1 << width) - 1).collect();
        let points_at: Vec<Factor> = (0..1 << width)
            .map(|digit| {
                let is = |value: &u64| u64::from(value >> shift & ((1 << width) - 1) == digit);
                Factor::new(&own.iter().map(is).collect::<Vec<_>>())
            })
            .collect();
        let missing = || ProtocolError::Malformed("digits are missing".to_owned());
        let pick = |from: usize| Slots::dot(thermometer.iter().copied().zip(points_at.iter().skip(from)));
        let (less, less_or_equal) = (pick(1).ok_or_else(missing)?, pick(0).ok_or_else(missing)?);
        let largest = (1 << width) - 1;
        let is_largest: Vec<u64> = own.iter().map(|value| u64::from(value >> shift & largest == largest)).collect();
        let mut equal = less_or_equal;
        equal.sub(&less);
        equal.add_clear(&Offset::new(&is_largest));
        orders.push(Order { less, equal: Some(equal) });
    }
    Ok(orders)
}

/// Digits of one comparison, most significant first, on their way to one.
#[derive(Debug)]
pub(crate) struct Folding {
    orders: Vec<Order>,
    /// Whether equality of the whole is wanted too.
    equality: bool,
}

impl Folding {
    pub(crate) fn new(orders: Vec<Order>, equality: bool) -> Self {
        Self { orders, equality }
    }

    /// The products that the next round needs: one group for each pair of neighbours.
    fn asks(&self) -> Result<Vec<Products>, ProtocolError> {
        let pairs = self.orders.as_chunks::<2>().0;
        let last = self.orders.len() / 2;
        let group = |(at, [high, low]): (usize, &[Order; 2])| {
            let missing = || ProtocolError::Misuse("a digit lacks its equality".to_owned());
            let mut bits = vec![high.equal.clone().ok_or_else(missing)?, low.less.clone()];
            let mut wanted = vec![vec![0, 1]];
            // Nobody asks whether the least significant digits are equal, unless the whole comparison does.
            let is_last = at + 1 == last && self.orders.len().is_multiple_of(2);
            if self.equality || !is_last {
                bits.push(low.equal.clone().ok_or_else(missing)?);
                wanted.push(vec![0, 2]);
            }
            Ok(Products { bits, wanted })
        };
        pairs.iter().enumerate().map(group).collect()
    }

    /// Half as many digits.
    fn next(self, answers: &mut impl Iterator<Item = Vec<Slots<L1>>>) -> Result<Self, ProtocolError> {
        let mut orders = Vec::with_capacity(self.orders.len().div_ceil(2));
        let mut digits = self.orders.into_iter();
        while let Some(high) = digits.next() {
            if digits.next().is_none() {
                orders.push(high);
                break;
            }
            let mut products = answers.next().ok_or(ProtocolError::Cancelled)?.into_iter();
            let mut less = products.next().ok_or(ProtocolError::Cancelled)?;
            less.add(&high.less);
            orders.push(Order { less, equal: products.next() });
        }
        Ok(Self { orders, equality: self.equality })
    }
}

/// Folds many comparisons together, level by level.
pub(crate) async fn fold(session: &Session, mut foldings: Vec<Folding>) -> Result<Vec<Order>, ProtocolError> {
    while foldings.iter().any(|folding| folding.orders.len() > 1) {
        let mut asks = Vec::new();
        for folding in &foldings {
            asks.extend(folding.asks()?);
        }
        let mut answers = and::products(session, asks).await?.into_iter();
        foldings = foldings.into_iter().map(|folding| folding.next(&mut answers)).collect::<Result<_, _>>()?;
    }
    let root = |folding: Folding| folding.orders.into_iter().next();
    foldings
        .into_iter()
        .map(|folding| root(folding).ok_or_else(|| ProtocolError::Misuse("a number has no digits".to_owned())))
        .collect()
}
