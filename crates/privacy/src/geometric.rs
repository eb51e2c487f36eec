//! The two-sided geometric mechanism for whole numbers of a public range.
//!
//! **Function.** value -> value + N, with P(N = n) = (1 - a) / (1 + a) * a^|n| and a = exp(-epsilon / diameter).
//!
//! **Privacy map.** Two values at distance x cost epsilon * x / diameter, and any two of the range at most epsilon.
//!
//! **Proof.** P(v + N = y) / P(w + N = y) = a^(|y - v| - |y - w|) <= a^-|v - w| = exp(epsilon |v - w| / diameter).
//! Moving samples to the bound adds delta <= 2^-64 (see [`DiscreteLaplace`]).
//!
//! Ghosh, Roughgarden, Sundararajan, "Universally Utility-Maximizing Privacy Mechanisms" (2012): for counts no other
//! mechanism of this epsilon loses less, whatever the user knows and however loss is counted. The noise is
//! that of [`LaplaceMechanism`] with one whole number as the unit, so a column with fractions must use the other one:
//! whole noise would leave the fractions as they are.
//!
//! [`DiscreteLaplace`]: crate::DiscreteLaplace

use crate::discrete_laplace::NoiseError;
use crate::epsilon::Epsilon;
use crate::laplace::LaplaceMechanism;
use rand::CryptoRng;

/// Whole noise for a diameter and an epsilon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeometricMechanism(LaplaceMechanism);

impl GeometricMechanism {
    /// For whole numbers of which any two differ by at most the diameter.
    pub fn new(diameter: u64, epsilon: Epsilon) -> Result<Self, NoiseError> {
        LaplaceMechanism::new(diameter, epsilon).map(Self)
    }

    /// Noise for one value.
    #[inline]
    pub fn noise<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> i64 {
        self.0.noise(rng)
    }

    /// Noise for several values.
    pub fn fill<R: CryptoRng + ?Sized>(&self, noise: &mut [i64], rng: &mut R) {
        self.0.fill(noise, rng);
    }

    /// The largest magnitude of the noise.
    pub fn bound(&self) -> u64 {
        self.0.bound()
    }

    /// What tells two values at a distance apart, to the nearest float. Values of the range cost epsilon at most.
    pub fn privacy_map(&self, distance: u64) -> f64 {
        self.0.privacy_map(distance)
    }

    /// The probability of the noise, up to the rounding of floats and to 2^-64 for the move to the bound.
    pub fn probability(&self, noise: i64) -> f64 {
        self.0.probability(noise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_paper() {
        let mechanism = GeometricMechanism::new(3, "0.6".parse().unwrap()).unwrap();
        let a = (-0.2f64).exp();
        for noise in -20..=20i64 {
            let expected = (1.0 - a) / (1.0 + a) * a.powi(noise.unsigned_abs() as i32);
            assert!((mechanism.probability(noise) - expected).abs() < 1e-12, "{noise}");
        }
        assert!((mechanism.privacy_map(3) - 0.6).abs() < 1e-12);
    }
}
