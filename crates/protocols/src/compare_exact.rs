//! `[A < B]`, exactly, and nobody learns anything: some kilobytes a comparison.
//!
//! ```text
//!  P1: x = 2^l + A - B, in 1 .. 2^(l+1)
//!  `few` (`truncate` for 46 bits): q = floor(x / 2^l) = [A >= B]
//!  P1: 1 - q
//! ```
//! Its messages are those of [`few`](crate::few) and [`truncate`](crate::truncate), so it has no entry of its own in the catalog.

use veil_slots::{DEGREE, L1, Slots, plain};

use crate::few::truncate_half;
use crate::truncate::{Dividend, Rounding, truncate};
use crate::{Leakage, ProtocolError, Session};

/// What it tells whom.
pub const LEAKAGE: Leakage = Leakage::NOTHING;

/// The widest difference.
pub const MAX_BITS: u32 = 46;

/// Two numbers to compare.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The first.
    pub a: Slots<L1>,
    /// The second.
    pub b: Slots<L1>,
    /// `|A - B| < 2^bits`.
    pub bits: u32,
}

/// `[A < B]` for many pairs.
pub async fn compare_exact(session: &Session, pairs: Vec<Pair>) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let dividend = |pair: Pair| {
        if !(1..=MAX_BITS).contains(&pair.bits) {
            let text = format!("an exact comparison takes differences of 1 to {MAX_BITS} bits, not {}", pair.bits);
            return Err(ProtocolError::Misuse(text));
        }
        let mut slots = pair.a;
        slots.sub(&pair.b);
        slots.add_constant(1 << pair.bits);
        Ok(Dividend { slots, shift: pair.bits, rounding: Rounding::Floor })
    };
    let dividends = pairs.into_iter().map(dividend).collect::<Result<Vec<_>, _>>()?;
    let mut quotients = match dividends.iter().all(|dividend| dividend.shift < MAX_BITS) {
        true => truncate_half(session, DEGREE, dividends).await?,
        false => truncate(session, dividends).await?,
    };
    for quotient in &mut quotients {
        quotient.scale(-1);
        quotient.add_constant(plain::from_signed(1));
    }
    Ok(quotients)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn strictly_less_at_the_edges_and_everywhere() {
        let mut parties = Parties::new(15);
        for bits in [1, 34, MAX_BITS] {
            let (mut a, b) = (parties.numbers_below(1 << bits), parties.numbers_below(1 << bits));
            a[2..50].copy_from_slice(&b[2..50]);
            a[50] = b[50].saturating_sub(1);
            let pair = Pair { a: parties.encrypt(&a), b: parties.encrypt(&b), bits };
            let less = compare_exact(&parties.session, vec![pair]).await.unwrap();
            let expected: Vec<u64> = a.iter().zip(&b).map(|(a, b)| u64::from(a < b)).collect();
            assert_eq!(parties.open(&less[0]), expected, "{bits} bits");
        }
    }
}
