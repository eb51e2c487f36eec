//! How far from corruption a ciphertext is.
//!
//! [`Noise`] is the sub-Gaussian parameter `s` of each noise coefficient: `P(|e| > x) <= 2 exp(-x^2 / 2 s^2)`. It adds up when
//! ciphertexts are added, whether they are independent or not (Hölder), and in squares when they are independent.
//!
//! Multiplying by a clear polynomial with coefficients in `(-t/2, t/2]`:
//! * at level 0 noise coefficients are independent, so `s` grows by the polynomial's 2-norm, at most `sqrt(n) t/2`;
//! * at level 1 they are not any more, so `s` grows by its 1-norm, at most `n t/2`.
//!
//! Rounding in encodings (at most half a unit) is counted as noise of parameter 1/2, by the usual heuristic that rounding errors
//! behave like independent ones. A test takes the worst permitted path and measures.

use crate::parameters::{DEGREE, PLAIN_MODULUS, VARIANCE, largest_noise};
use crate::{Level, SlotError};

/// `|e| > TAIL * s` has probability below `2^-79` for each coefficient.
const TAIL: f64 = 10.6;

/// The sub-Gaussian parameter of a ciphertext's noise.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Noise(f64);

impl Noise {
    /// Of a reply of P2.
    pub fn fresh() -> Self {
        Self((VARIANCE as f64 + 0.25).sqrt())
    }

    /// Of a public-key encryption, `u e + e1 + e2 s`: given one factor, each product is sub-Gaussian with parameter `sqrt(10)` times
    /// the factor's 2-norm, which is below `sqrt(8192 * 11)` but for a probability of `2^-80`.
    pub fn public() -> Self {
        Self(2.0 * (VARIANCE as f64 * DEGREE as f64 * 11.0).sqrt() + Self::fresh().0)
    }

    /// Of a sum.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// Of a sum of independent parts.
    pub fn plus_independent(self, other: Self) -> Self {
        Self(self.0.hypot(other.0))
    }

    /// After a clear vector was added.
    pub fn plus_rounding(self) -> Self {
        Self(self.0 + 0.5)
    }

    /// After multiplying by a number.
    pub fn scaled(self, factor: i64) -> Self {
        Self(self.0 * factor.unsigned_abs() as f64)
    }

    /// After multiplying a ciphertext of level `L` by a clear vector.
    pub fn times_clear<L: Level>(self) -> Self {
        let norm = if L::DEPTH == 0 { (DEGREE as f64).sqrt() } else { DEGREE as f64 };
        Self(self.0 * norm * (PLAIN_MODULUS / 2) as f64)
    }

    /// The largest noise coefficient, with overwhelming probability.
    pub fn bound(self) -> f64 {
        TAIL * self.0
    }

    /// Refuses what flooding cannot hide.
    pub fn checked_for_flooding(self) -> Result<(), SlotError> {
        if self.bound() <= largest_noise() {
            return Ok(());
        }
        Err(SlotError::NoiseBudget { noise_bits: self.bound().log2(), limit_bits: largest_noise().log2() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{L0, L1};

    /// The level rule's arithmetic: two multiplications and a sum of 256 terms fit, a sum of 512 does not.
    #[test]
    fn two_levels_and_a_sum_of_256_fit_under_the_flood() {
        let twice = Noise::fresh().times_clear::<L0>().times_clear::<L1>();
        assert!((118.0..119.0).contains(&twice.bound().log2()), "2^{}", twice.bound().log2());
        twice.scaled(256).checked_for_flooding().unwrap();
        assert!(matches!(twice.scaled(512).checked_for_flooding(), Err(SlotError::NoiseBudget { .. })));
    }

    #[test]
    fn independent_noise_adds_in_squares() {
        let sum = (0..100).fold(Noise(0.0), |sum, _| sum.plus_independent(Noise::fresh()));
        assert!((sum.0 / Noise::fresh().0 - 10.0).abs() < 1e-9);
    }
}
