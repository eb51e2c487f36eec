//! How far from corruption a cell is.
//!
//! A cell combines independent samples `j` with integer coefficients `c_j`; each sample's noise is
//! symmetric and bounded by [`FRESH_NOISE`] = 8. Two bounds hold for the noise of the combination:
//!
//! * always: `8 * sum |c_j|`;
//! * except with probability `2^-64`: `76 * sqrt(sum c_j^2)`, by Hoeffding's inequality (1963, theorem 2):
//!   `P(|S| >= t) <= 2 exp(-t^2 / (2 * 8^2 * sum c_j^2))`, which is below `2^-64` at `t = 76 * sqrt(..)`.
//!
//! The smaller of the two is the cell's noise. It must stay below half a message step, `2^15`.

use crate::CellError;
use crate::parameters::{FRESH_NOISE, NOISE_BITS};

/// `ceil(8 * sqrt(2 * 65 * ln 2))`: the factor of the tail bound at `2^-64`.
const TAIL_FACTOR: u64 = 76;

/// The norms of a combination's coefficients, from which the noise bound follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise {
    /// `sum |c_j|`.
    pub(crate) absolute: u64,
    /// An upper bound of `sum c_j^2`.
    pub(crate) squares: u64,
}

impl Noise {
    /// The first noise that could corrupt a message.
    pub const LIMIT: u64 = 1 << (NOISE_BITS - 1);

    /// Of a freshly encrypted message.
    pub const FRESH: Self = Self { absolute: 1, squares: 1 };

    /// Of a combination of distinct samples.
    pub fn of_coefficients(coefficients: impl Iterator<Item = i64>) -> Self {
        coefficients.fold(Self { absolute: 0, squares: 0 }, |noise, c| {
            let c = c.unsigned_abs();
            Self {
                absolute: noise.absolute.saturating_add(c),
                squares: noise.squares.saturating_add(c.saturating_mul(c)),
            }
        })
    }

    /// Of the sum of two combinations that may share samples: norms obey the triangle inequality.
    pub fn plus(self, other: Self) -> Self {
        let twice_product = ceil_sqrt((self.squares as u128).saturating_mul(other.squares as u128).saturating_mul(4));
        Self {
            absolute: self.absolute.saturating_add(other.absolute),
            squares: self
                .squares
                .saturating_add(other.squares)
                .saturating_add(u64::try_from(twice_product).unwrap_or(u64::MAX)),
        }
    }

    /// Of the combination times an integer.
    pub fn times(self, factor: i64) -> Self {
        let factor = factor.unsigned_abs();
        Self {
            absolute: self.absolute.saturating_mul(factor),
            squares: self.squares.saturating_mul(factor.saturating_mul(factor)),
        }
    }

    /// The bound on the absolute noise, in units of `2^-64`.
    pub fn bound(self) -> u64 {
        let always = self.absolute.saturating_mul(FRESH_NOISE);
        let tail = u64::try_from(ceil_sqrt(self.squares as u128)).unwrap_or(u64::MAX).saturating_mul(TAIL_FACTOR);
        always.min(tail)
    }

    /// Itself, if a message under it decrypts correctly.
    pub fn checked(self) -> Result<Self, CellError> {
        // Nearly always the simple bound suffices, and needs no square root.
        if self.absolute < Self::LIMIT / FRESH_NOISE {
            return Ok(self);
        }
        let noise = self.bound();
        if noise < Self::LIMIT { Ok(self) } else { Err(CellError::NoiseBudget { noise, limit: Self::LIMIT - 1 }) }
    }
}

fn ceil_sqrt(square: u128) -> u128 {
    let root = square.isqrt();
    if root * root == square { root } else { root + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_are_bounded_with_certainty() {
        assert_eq!(Noise::FRESH.bound(), FRESH_NOISE);
        assert_eq!(Noise::of_coefficients([3, -4].into_iter()).bound(), 7 * FRESH_NOISE);
    }

    #[test]
    fn long_sums_grow_with_the_square_root() {
        let sum = Noise::of_coefficients(std::iter::repeat_n(1, 10_000));
        assert_eq!(sum.bound(), 76 * 100);
        assert!(Noise::of_coefficients(std::iter::repeat_n(1, 185_761)).checked().is_ok());
        assert!(Noise::of_coefficients(std::iter::repeat_n(1, 186_000)).checked().is_err());
    }

    #[test]
    fn the_limit_is_sharp() {
        assert!(Noise::FRESH.times(431).checked().is_ok());
        assert!(Noise::FRESH.times(4095).checked().is_ok());
        assert!(Noise::FRESH.times(-4096).checked().is_err());
    }

    #[test]
    fn a_sum_with_itself_counts_as_double() {
        let sum = Noise::of_coefficients(std::iter::repeat_n(1, 100));
        assert_eq!(sum.plus(sum), sum.times(2));
    }

    #[test]
    fn the_tail_factor_reaches_the_stated_probability() {
        let log2 = 1.0 - (TAIL_FACTOR * TAIL_FACTOR) as f64 / (2.0 * 64.0) / std::f64::consts::LN_2;
        assert!(log2 < -64.0, "2^{log2}");
    }

    #[test]
    fn nothing_overflows() {
        let huge = Noise { absolute: u64::MAX, squares: u64::MAX };
        assert!(huge.plus(huge).times(i64::MIN).checked().is_err());
    }
}
