//! Epsilon: what one differentially private answer may cost, and what all of them have cost.
//!
//! Both are exact numbers of millionths. A sum of floats depends on its order, and a budget must not.

use std::fmt;
use std::str::FromStr;

const MILLION: u64 = 1_000_000;

/// The price of one answer: above zero, at most 1000, an exact number of millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epsilon(u64);

/// What was spent so far. Answers about the same value add up (sequential composition).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpentEpsilon(u64);

/// Why a number is no epsilon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EpsilonError {
    /// Zero.
    #[error("epsilon is zero, which allows no answer at all; give a number above zero")]
    Zero,
    /// Below zero.
    #[error("epsilon is negative; give a number above zero")]
    Negative,
    /// Above 1000, infinity included.
    #[error("epsilon is above 1000, which protects nothing; give at most 1000")]
    TooLarge,
    /// More than six decimal places.
    #[error("epsilon has more than six decimal places and would have to be rounded; give a number of millionths")]
    TooFine,
    /// Not a number in decimal notation.
    #[error("epsilon is `{0}`, which is no decimal number; write it with digits and a point, like 0.5")]
    NotDecimal(String),
}

impl Epsilon {
    /// The largest one, 1000.
    pub const MAX: Self = Self(1000 * MILLION);

    /// From millionths.
    pub fn from_millionths(millionths: u64) -> Result<Self, EpsilonError> {
        match millionths {
            0 => Err(EpsilonError::Zero),
            _ if millionths > Self::MAX.0 => Err(EpsilonError::TooLarge),
            _ => Ok(Self(millionths)),
        }
    }

    /// In millionths.
    pub fn millionths(self) -> u64 {
        self.0
    }

    /// The nearest float, for display and for probabilities in tests.
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / MILLION as f64
    }

    /// As a fraction: numerator, denominator.
    pub(crate) fn ratio(self) -> (u64, u64) {
        (self.0, MILLION)
    }
}

impl FromStr for Epsilon {
    type Err = EpsilonError;

    /// Exactly, or not at all. Zeros at the end of the decimal places do not count as places.
    fn from_str(text: &str) -> Result<Self, EpsilonError> {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, places) = digits.split_once('.').unwrap_or((digits, ""));
        let decimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !decimal(whole) || !decimal(places) || (whole.is_empty() && places.is_empty()) {
            return Err(EpsilonError::NotDecimal(text.to_owned()));
        }
        let (whole, places) = (whole.trim_start_matches('0'), places.trim_end_matches('0'));
        match (whole, places) {
            ("", "") => return Err(EpsilonError::Zero),
            _ if negative => return Err(EpsilonError::Negative),
            // Checked before the places, because a large number is wrong however fine it is.
            (whole, _) if whole.len() > 4 => return Err(EpsilonError::TooLarge),
            (_, places) if places.len() > 6 => return Err(EpsilonError::TooFine),
            _ => {}
        }
        let digits = whole.bytes().chain(format!("{places:0<6}").into_bytes());
        Self::from_millionths(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
    }
}

impl TryFrom<f64> for Epsilon {
    type Error = EpsilonError;

    /// By the shortest decimal number that names the float, so that 0.1 is a tenth.
    fn try_from(float: f64) -> Result<Self, EpsilonError> {
        if float == f64::INFINITY {
            return Err(EpsilonError::TooLarge);
        }
        if float == f64::NEG_INFINITY {
            return Err(EpsilonError::Negative);
        }
        float.to_string().parse()
    }
}

impl SpentEpsilon {
    /// With one more answer. Stops at the largest number of millionths, which no budget allows.
    #[must_use]
    pub fn plus(self, epsilon: Epsilon) -> Self {
        Self(self.0.saturating_add(epsilon.0))
    }

    /// In millionths.
    pub fn millionths(self) -> u64 {
        self.0
    }

    /// From millionths, as a ledger keeps them.
    pub fn from_millionths(millionths: u64) -> Self {
        Self(millionths)
    }
}

impl fmt::Display for Epsilon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_millionths(f, self.0)
    }
}

impl fmt::Display for SpentEpsilon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_millionths(f, self.0)
    }
}

fn write_millionths(f: &mut fmt::Formatter<'_>, millionths: u64) -> fmt::Result {
    let text = format!("{}.{:06}", millionths / MILLION, millionths % MILLION);
    f.pad(text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn epsilon(text: &str) -> Epsilon {
        text.parse().unwrap()
    }

    #[test]
    fn text_and_floats_are_exact() {
        for (text, millionths, printed) in [
            ("1", 1_000_000, "1"),
            ("0.5", 500_000, "0.5"),
            (".5", 500_000, "0.5"),
            ("002.", 2_000_000, "2"),
            ("0.1000000000", 100_000, "0.1"),
            ("0.000001", 1, "0.000001"),
            ("1000", 1_000_000_000, "1000"),
        ] {
            assert_eq!(epsilon(text).millionths(), millionths, "{text}");
            assert_eq!(epsilon(text).to_string(), printed);
        }
        for (float, millionths) in [(0.1, 100_000), (1e-6, 1), (3.0, 3_000_000), (999.999999, 999_999_999)] {
            assert_eq!(Epsilon::try_from(float).map(Epsilon::millionths), Ok(millionths));
        }
    }

    #[test]
    fn what_is_no_epsilon_is_refused() {
        use EpsilonError::{Negative, NotDecimal, TooFine, TooLarge, Zero};
        let not = |text: &str| NotDecimal(text.to_owned());
        for (text, error) in [
            ("0", Zero),
            ("-0.0", Zero),
            ("-1", Negative),
            ("1000.000001", TooLarge),
            ("99999999999999999999999999", TooLarge),
            ("0.0000001", TooFine),
            ("", not("")),
            (".", not(".")),
            ("1e-3", not("1e-3")),
            ("+1", not("+1")),
            ("1.2.3", not("1.2.3")),
            ("inf", not("inf")),
            ("٣", not("٣")),
        ] {
            assert_eq!(text.parse::<Epsilon>(), Err(error), "{text}");
        }
        for (float, error) in [
            (0.0, Zero),
            (-0.5, Negative),
            (f64::NEG_INFINITY, Negative),
            (f64::INFINITY, TooLarge),
            (1e300, TooLarge),
            (0.1 + 0.2, TooFine),
            (f64::NAN, not("NaN")),
        ] {
            assert_eq!(Epsilon::try_from(float), Err(error), "{float}");
        }
        assert_eq!(Epsilon::from_millionths(0), Err(Zero));
        assert_eq!(Epsilon::from_millionths(1_000_000_001), Err(TooLarge));
    }

    #[test]
    fn what_is_spent_adds_up() {
        let spent = [epsilon("0.1"); 10].into_iter().fold(SpentEpsilon::default(), SpentEpsilon::plus);
        assert_eq!((spent.millionths(), spent.to_string().as_str()), (1_000_000, "1"));
        assert_eq!(SpentEpsilon::default().to_string(), "0");
        assert_eq!(SpentEpsilon(u64::MAX).plus(Epsilon::MAX), SpentEpsilon(u64::MAX));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(millionths in 1u64..=1_000_000_000) {
            let epsilon = Epsilon::from_millionths(millionths).unwrap();
            prop_assert_eq!(epsilon.to_string().parse(), Ok(epsilon));
            prop_assert_eq!(Epsilon::try_from(epsilon.to_f64()), Ok(epsilon));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.einfNa]{0,12}") {
            if let Ok(epsilon) = text.parse::<Epsilon>() {
                prop_assert_eq!(epsilon.to_f64(), text.parse::<f64>().unwrap());
            }
        }
    }
}
