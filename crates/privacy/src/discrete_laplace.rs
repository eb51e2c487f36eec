//! Discrete Laplace noise: P(x) proportional to exp(-|x| / scale) on the integers, sampled exactly.
//!
//! The sampler is CKS20 Algorithm 2 (Canonne, Kamath, Steinke 2020). A cell holds numbers of bounded size, so a
//! sample beyond a public bound is moved to the bound; that happens with probability at most 2^-64.

use crate::bernoulli::geometric_exp;
use rand::CryptoRng;

/// The distribution of a rational scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscreteLaplace {
    /// The scale in lowest terms; a numerator of zero means no noise.
    numerator: u64,
    denominator: u64,
    bound: u64,
}

/// Why there is no such noise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoiseError {
    /// Larger than a cell.
    #[error(
        "noise could reach {bound}, more than the 2^47 that a cell holds; choose a larger epsilon or a narrower range"
    )]
    TooLarge {
        /// The largest sample.
        bound: u64,
    },
    /// A range that no scale in millionths fits.
    #[error(
        "the range is {diameter} units wide, more than the 2^44 that noise is made for; narrow it or use larger units"
    )]
    TooWide {
        /// Upper bound minus lower bound.
        diameter: u64,
    },
    /// A division by zero.
    #[error("the scale of the noise has the denominator zero; give at least one")]
    NoDenominator,
}

impl DiscreteLaplace {
    /// The largest bound that is accepted.
    pub const MAX_BOUND: u64 = 1 << 47;

    /// Of the scale numerator / denominator. A scale of zero is no noise at all.
    pub fn new(scale_numerator: u64, scale_denominator: u64) -> Result<Self, NoiseError> {
        Self::protecting(scale_numerator, scale_denominator, 0)
    }

    /// For values that lie up to a distance apart.
    ///
    /// The bound moves outwards by the distance. A sample moved to the bound then lies so far out that the samples
    /// that would tell two values apart, those within the distance of the bound, weigh at most 2^-64 together: moving
    /// costs delta <= 2^-64, whatever epsilon is. With the nearer bound the cost would be exp(epsilon) times that.
    pub(crate) fn protecting(numerator: u64, denominator: u64, distance: u64) -> Result<Self, NoiseError> {
        if denominator == 0 {
            return Err(NoiseError::NoDenominator);
        }
        let noise = Self::unlimited(numerator, denominator, distance);
        if noise.bound <= Self::MAX_BOUND { Ok(noise) } else { Err(NoiseError::TooLarge { bound: noise.bound }) }
    }

    /// The same for a denominator of at least one and a scale that is known to fit.
    pub(crate) fn unlimited(numerator: u64, denominator: u64, distance: u64) -> Self {
        let bound = if numerator == 0 { 0 } else { tail_start(numerator, denominator) + u128::from(distance) };
        let divisor = greatest_common_divisor(numerator, denominator);
        Self {
            numerator: numerator / divisor,
            denominator: denominator / divisor,
            bound: u64::try_from(bound).unwrap_or(u64::MAX),
        }
    }

    /// One sample.
    #[inline]
    pub fn sample<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> i64 {
        if self.numerator == 0 {
            return 0;
        }
        loop {
            let magnitude = geometric_exp(self.numerator, self.denominator, rng);
            let negative = rng.next_u32() & 1 == 1;
            // Zero would be drawn twice, once a sign.
            if negative && magnitude == 0 {
                continue;
            }
            let magnitude = magnitude.min(self.bound) as i64;
            return if negative { -magnitude } else { magnitude };
        }
    }

    /// Independent samples.
    pub fn fill<R: CryptoRng + ?Sized>(&self, samples: &mut [i64], rng: &mut R) {
        samples.fill_with(|| self.sample(rng));
    }

    /// The largest magnitude of a sample. A sample not yet moved reaches it with probability at most 2^-64.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// The probability of a sample, up to the rounding of floats and to 2^-64 for the move to the bound.
    pub fn probability(&self, sample: i64) -> f64 {
        if self.numerator == 0 {
            return if sample == 0 { 1.0 } else { 0.0 };
        }
        let rate = self.denominator as f64 / self.numerator as f64;
        (rate / 2.0).tanh() * (-rate * sample.unsigned_abs() as f64).exp()
    }
}

/// The least n, or a little more, for which P(|X| >= n) <= 2^-64.
///
/// P(|X| >= n) = 2 p^n / (1 + p) <= 2 p^n with p = exp(-1 / scale), so n >= 65 ln 2 * scale suffices, and
/// 65 ln 2 = 45.0546.. < 45.06 = 2253 / 50. A `u64` times 2253 is far from the end of a `u128`.
fn tail_start(numerator: u64, denominator: u64) -> u128 {
    u128::from(numerator) * 2253 / (u128::from(denominator) * 50) + 1
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn no_scale_is_no_noise() {
        let none = DiscreteLaplace::new(0, 7).unwrap();
        let mut samples = [1; 5];
        none.fill(&mut samples, &mut StdRng::seed_from_u64(1));
        assert_eq!((samples, none.bound()), ([0; 5], 0));
        assert_eq!((none.probability(0), none.probability(1)), (1.0, 0.0));
    }

    #[test]
    fn the_bound_holds_all_but_a_tail_of_two_to_the_minus_64() {
        for (numerator, denominator) in [(1, 1), (10, 1), (1, 3), (1, 100), (7, 2), (1_000_000, 3), (1 << 41, 1)] {
            let noise = DiscreteLaplace::new(numerator, denominator).unwrap();
            // P(|X| >= n) = 2 exp(-n / scale) / (1 + exp(-1 / scale)), in logarithms.
            let rate = denominator as f64 / numerator as f64;
            let tail = 2f64.ln() - noise.bound() as f64 * rate - (-rate).exp().ln_1p();
            assert!(tail <= -64.0 * 2f64.ln(), "{noise:?}: {tail}");
            assert!(noise.bound() as f64 <= 45.06 / rate + 1.0, "{noise:?}");
        }
    }

    #[test]
    fn samples_stay_within_the_bound() {
        // A bound of one, far inside the mass: only a test can make it.
        let noise = DiscreteLaplace { bound: 1, ..DiscreteLaplace::new(100, 1).unwrap() };
        let mut rng = StdRng::seed_from_u64(2);
        let samples: Vec<_> = (0..1000).map(|_| noise.sample(&mut rng)).collect();
        assert!(samples.iter().all(|sample| (-1..=1).contains(sample)));
        assert!(samples.contains(&1) && samples.contains(&-1));
    }

    #[test]
    fn scales_are_reduced_and_probabilities_sum_to_one() {
        assert_eq!(DiscreteLaplace::new(10, 4), DiscreteLaplace::new(5, 2));
        let noise = DiscreteLaplace::new(5, 2).unwrap();
        let total: f64 = (-200..=200).map(|sample| noise.probability(sample)).sum();
        assert!((total - 1.0).abs() < 1e-12, "{total}");
    }

    #[test]
    fn noise_larger_than_a_cell_is_refused() {
        assert!(DiscreteLaplace::new(3_123_000_000_000, 1).is_ok());
        assert_eq!(DiscreteLaplace::new(1, 0), Err(NoiseError::NoDenominator));
        for (numerator, distance) in [(3_124_000_000_000, 0), (u64::MAX, 0), (1, u64::MAX)] {
            let refused = DiscreteLaplace::protecting(numerator, 1, distance).unwrap_err();
            assert!(matches!(refused, NoiseError::TooLarge { .. }), "{refused}");
            assert!(refused.to_string().contains("larger epsilon"), "{refused}");
        }
    }
}
