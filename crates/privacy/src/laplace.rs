//! The Laplace mechanism for numbers of a public range.
//!
//! **Function.** value -> value + N, with N discrete Laplace of scale diameter / epsilon in units of the column, where
//! the diameter is the upper minus the lower end of the range.
//!
//! **Privacy map.** Two values at distance x cost epsilon * x / diameter, and any two of the range at most epsilon.
//!
//! **Proof.** P(v + N = y) is proportional to exp(-|y - v| epsilon / diameter), with the same factor for every v. For
//! values v and w the ratio is at most exp(|v - w| epsilon / diameter), because ||y - v| - |y - w|| <= |v - w|.
//! Noise on the lattice of the units keeps every residue possible; coarser noise would show the value modulo its step.
//! Moving samples to the bound adds delta <= 2^-64 (see [`DiscreteLaplace`]).
//!
//! Dwork, McSherry, Nissim, Smith, "Calibrating Noise to Sensitivity in Private Data Analysis" (2006); discrete and
//! exact as in Canonne, Kamath, Steinke (2020).

use crate::discrete_laplace::{DiscreteLaplace, NoiseError};
use crate::epsilon::Epsilon;
use rand::CryptoRng;

/// The widest range.
const MAX_DIAMETER: u64 = 1 << 44;

/// Noise for a diameter and an epsilon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaplaceMechanism {
    diameter: u64,
    epsilon: Epsilon,
    noise: DiscreteLaplace,
}

impl LaplaceMechanism {
    /// For values of which any two differ by at most the diameter, in units of the column.
    pub fn new(diameter: u64, epsilon: Epsilon) -> Result<Self, NoiseError> {
        if diameter > MAX_DIAMETER {
            return Err(NoiseError::TooWide { diameter });
        }
        // 2^44 million is less than 2^64.
        let (numerator, denominator) = epsilon.ratio();
        let noise = DiscreteLaplace::protecting(diameter * denominator, numerator, diameter)?;
        Ok(Self { diameter, epsilon, noise })
    }

    /// Noise for one value.
    #[inline]
    pub fn noise<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> i64 {
        self.noise.sample(rng)
    }

    /// Noise for several values.
    pub fn fill<R: CryptoRng + ?Sized>(&self, noise: &mut [i64], rng: &mut R) {
        self.noise.fill(noise, rng);
    }

    /// The largest magnitude of the noise.
    pub fn bound(&self) -> u64 {
        self.noise.bound()
    }

    /// What tells two values at a distance apart, to the nearest float. Values of the range cost epsilon at most.
    pub fn privacy_map(&self, distance: u64) -> f64 {
        match distance {
            0 => 0.0,
            // Division by a diameter of zero gives infinity: without noise any difference shows.
            _ => self.epsilon.to_f64() * (distance as f64 / self.diameter as f64),
        }
    }

    /// The probability of the noise, see [`DiscreteLaplace::probability`].
    pub fn probability(&self, noise: i64) -> f64 {
        self.noise.probability(noise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epsilon(text: &str) -> Epsilon {
        text.parse().unwrap()
    }

    #[test]
    fn the_map_bounds_every_ratio_and_is_tight() {
        for (diameter, eps) in [(1, "1"), (10, "0.5"), (100, "3"), (7, "0.1")] {
            let mechanism = LaplaceMechanism::new(diameter, epsilon(eps)).unwrap();
            for distance in 0..=diameter as i64 {
                let ratio = |y: i64| (mechanism.probability(y) / mechanism.probability(y - distance)).ln().abs();
                let worst = (-300..300).map(ratio).fold(0.0, f64::max);
                assert!((worst - mechanism.privacy_map(distance as u64)).abs() < 1e-9, "{mechanism:?} at {distance}");
            }
            assert_eq!(mechanism.privacy_map(diameter), epsilon(eps).to_f64());
        }
    }

    #[test]
    fn the_bound_leaves_room_for_the_diameter() {
        // Without that room a large epsilon would put two values at opposite ends into disjoint ranges.
        let mechanism = LaplaceMechanism::new(1000, Epsilon::MAX).unwrap();
        assert!(mechanism.bound() > 1000);
        let mechanism = LaplaceMechanism::new(1000, epsilon("1")).unwrap();
        assert_eq!(mechanism.bound(), 45_060 + 1 + 1000);
    }

    #[test]
    fn a_range_of_one_value_needs_no_noise() {
        let mechanism = LaplaceMechanism::new(0, epsilon("0.000001")).unwrap();
        assert_eq!((mechanism.bound(), mechanism.privacy_map(0)), (0, 0.0));
        assert_eq!(mechanism.privacy_map(1), f64::INFINITY);
    }

    #[test]
    fn ranges_too_wide_are_refused() {
        assert!(LaplaceMechanism::new(1 << 44, Epsilon::MAX).is_ok());
        assert_eq!(
            LaplaceMechanism::new((1 << 44) + 1, Epsilon::MAX),
            Err(NoiseError::TooWide { diameter: (1 << 44) + 1 })
        );
        assert!(matches!(LaplaceMechanism::new(1 << 44, epsilon("1")), Err(NoiseError::TooLarge { .. })));
    }
}
