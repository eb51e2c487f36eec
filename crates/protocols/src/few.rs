//! Quotients and zero tests of few numbers: their digits lie in the slots that are free.
//!
//! ```text
//!  few_digits    thermometers of all digits (base 4), digit p of number i of n in slot p n + i
//!  few_fold      neighbouring digits become one, half as many slots a round
//! ```
//!
//! [`truncate`](mod@crate::truncate) and [`zero_test`](mod@crate::zero_test) take hundreds of ciphertexts, whether a vector has one number or 8192. Here a quotient by
//! `2^30` of up to 546 numbers takes 5 ciphertexts up and 32 down, in five rounds; a zero test of up to 341 numbers 6 up and 18 down, in six.
//!
//! Quotients are of numbers not above `t / 2`, or a little more, so that P1 knows from its mask and P2 from what it opens where a mask wraps, see
//! [`few_digits`](crate::few_digits). That saves two of the three comparisons of [`truncate`](mod@crate::truncate), also for whole vectors, whose
//! digits are folded by [`and`](crate::and).

use veil_slots::{DEGREE, L1, Slots};

use crate::digits::{self, Folding, Order};
use crate::few_digits::{Number, few_digits};
use crate::few_fold::few_fold;
use crate::truncate::Dividend;
use crate::{ProtocolError, Session};

/// Where digits lie, most significant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// Numbers, from the first slot on.
    pub used: usize,
    /// Digits of each.
    pub digits: usize,
}

/// The most digits of a number.
pub(crate) const MAX_DIGITS: usize = 24;

impl Units {
    /// Of numbers from outside. Says what is wrong with them.
    pub(crate) fn checked(used: u32, digits: u32) -> Result<Self, String> {
        let (used, digits) = (used as usize, digits as usize);
        match (1..=DEGREE).contains(&used) && (1..=MAX_DIGITS).contains(&digits) {
            true => Ok(Self { used, digits }),
            false => Err(format!("no vectors hold {digits} digits of {used} numbers")),
        }
    }

    /// Slots of all digits.
    pub(crate) fn slots(self) -> usize {
        self.used * self.digits
    }

    /// Vectors of all digits.
    pub fn vectors(self) -> usize {
        self.slots().div_ceil(DEGREE)
    }

    /// After a fold.
    pub(crate) fn folded(self) -> Self {
        Self { digits: self.digits.div_ceil(2), ..self }
    }
}

/// How digits of P2's numbers compare with P1's, all in their slots.
#[derive(Clone, Debug)]
pub struct Orders {
    /// Where they lie.
    pub units: Units,
    /// `[P2's < P1's]`; nothing if nobody asks.
    pub less: Vec<Slots<L1>>,
    /// `[P2's = P1's]`; nothing if nobody asks.
    pub equal: Vec<Slots<L1>>,
}

impl Orders {
    /// Of whole vectors, each of which is a digit.
    fn into_folding(self) -> Folding {
        let pairs = self.less.into_iter().zip(self.equal);
        Folding::new(pairs.map(|(less, equal)| Order { less, equal: Some(equal) }).collect(), false)
    }
}

/// The quotients of the first `used` numbers of every vector, which are at most `t / 2`. If these are fewer than half of the slots, the
/// quotients of all others are zero.
pub async fn truncate_half(
    session: &Session,
    used: usize,
    dividends: Vec<Dividend>,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    quotients(session, used, false, dividends).await
}

/// The same for numbers of up to `2^47 + 2^42`: half as many ciphertexts more.
pub async fn truncate_wide(
    session: &Session,
    used: usize,
    dividends: Vec<Dividend>,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    quotients(session, used, true, dividends).await
}

async fn quotients(
    session: &Session,
    used: usize,
    wide: bool,
    dividends: Vec<Dividend>,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let is_whole = (DEGREE / 2..=DEGREE).contains(&used);
    let used = if is_whole { DEGREE } else { used };
    let numbers = dividends.into_iter().map(|dividend| Number::quotient(used, wide, dividend)).collect();
    let (quotients, orders): (Vec<_>, Vec<_>) = few_digits(session, numbers).await?.into_iter().unzip();
    let folded: Vec<Option<Slots<L1>>> = if is_whole {
        let foldings = orders.into_iter().map(Orders::into_folding).collect();
        digits::fold(session, foldings).await?.into_iter().map(|order| Some(order.less)).collect()
    } else {
        few_fold(session, orders).await?.into_iter().map(|order| order.less.into_iter().next()).collect()
    };
    let less = |(quotient, less): (Option<Slots<L1>>, Option<Slots<L1>>)| {
        let mut quotient = quotient?;
        quotient.sub(&less?);
        Some(quotient)
    };
    quotients.into_iter().zip(folded).map(less).collect::<Option<_>>().ok_or(ProtocolError::Cancelled)
}

/// `[x = 0]` for the first `used` numbers of every vector; zero in all other slots.
pub async fn zero_test_few(
    session: &Session,
    used: usize,
    vectors: Vec<Slots<L1>>,
) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let numbers = vectors.into_iter().map(|slots| Number::test(used, slots)).collect();
    let orders = few_digits(session, numbers).await?.into_iter().map(|(_, orders)| orders).collect();
    let equal = |order: Orders| order.equal.into_iter().next();
    let folded = few_fold(session, orders).await?;
    folded.into_iter().map(equal).collect::<Option<_>>().ok_or(ProtocolError::Cancelled)
}

#[cfg(test)]
mod tests {
    use veil_slots::{PLAIN_MODULUS, plain};

    use super::*;
    use crate::few_digits::{HALF, WIDE};
    use crate::testing::Parties;
    use crate::truncate::Rounding;

    #[tokio::test(flavor = "multi_thread")]
    async fn quotients_are_exact() {
        let mut parties = Parties::new(500);
        for (used, shift) in [(1, 30), (3, 1), (360, 30), (547, 30), (5000, 15), (8192, 2), (7, 47), (40, 46)] {
            for rounding in [Rounding::Floor, Rounding::Nearest] {
                let half = if rounding == Rounding::Nearest { 1 << (shift - 1) } else { 0 };
                let wide = used % 2 == 0;
                let bound = if wide { WIDE + 1 } else { HALF + 1 };
                let mut values: Vec<u64> = (0..DEGREE).map(|_| plain::uniform_below(bound, &mut parties.rng)).collect();
                let ends = [bound - 1, 0, 1 << shift, (1 << shift) - 1, 1 << (shift - 1)];
                let ends = ends.into_iter().filter(|end| *end < bound);
                values.iter_mut().zip(ends).for_each(|(value, end)| *value = end);
                // What is in the other slots does not matter.
                values[used..].fill(PLAIN_MODULUS - 5);
                let beyond = if used < DEGREE / 2 { used } else { DEGREE };
                let dividend = Dividend { slots: parties.encrypt(&values), shift, rounding };
                let dividends = vec![dividend.clone(), dividend];
                let found = match wide {
                    true => truncate_wide(&parties.session, used, dividends).await.unwrap(),
                    false => truncate_half(&parties.session, used, dividends).await.unwrap(),
                };
                let expected: Vec<u64> = values[..used].iter().map(|value| (value + half) >> shift).collect();
                for found in found {
                    let found = parties.open(&found);
                    assert!(
                        found[..used] == expected && found[beyond..].iter().all(|slot| *slot == 0),
                        "{used} {shift}"
                    );
                }
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn zeros_of_few_are_found_and_nothing_else() {
        let mut parties = Parties::new(501);
        for used in [1, 2, 342, 8192] {
            let mut values = parties.numbers();
            values.iter_mut().step_by(3).for_each(|value| *value = 0);
            let sealed = parties.encrypt(&values);
            let found = zero_test_few(&parties.session, used, vec![sealed]).await.unwrap();
            let expected = (0..DEGREE).map(|slot| u64::from(slot < used && values[slot] == 0)).collect::<Vec<_>>();
            assert!(parties.open(&found[0]) == expected, "{used}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn impossible_questions_are_refused() {
        let mut parties = Parties::new(502);
        let slots = parties.encrypt(&[1]);
        for (used, shift) in [(0, 3), (DEGREE + 1, 3), (1, 0), (1, 48)] {
            let dividend = Dividend { slots: slots.clone(), shift, rounding: Rounding::Floor };
            let error = truncate_half(&parties.session, used, vec![dividend]).await.unwrap_err();
            assert!(matches!(error, ProtocolError::Misuse(_)), "{error}");
        }
    }
}
