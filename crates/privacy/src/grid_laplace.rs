//! The Laplace mechanism for numbers whose range stays encrypted.
//!
//! **Function.** One party samples Z and does not know the diameter D. Another, which knows D, draws V uniform in
//! 0, .., D - 1 (zero if D is zero). With the grid G = 32 and R uniform in 0, .., G - 1, all independent,
//!
//! ```text
//! value -> value + N,   N = floor((D * Z + V - floor(D / 2) + R) / G)
//! ```
//!
//! Z is discrete Laplace on the integers, steps of D / G units. V fills the steps, so that the noise has the
//! lattice of the units and not that of the grid, which would show the value modulo D / G. R rounds without bias.
//!
//! **Privacy map.** Two values at distance x cost epsilon * ceil(G x / D) / (G + 1), so any two of the range less
//! than epsilon.
//!
//! **Proof.** The answer is floor((Y + R) / G) for Y = G * value + D * Z + V - floor(D / 2), so it is enough to
//! protect Y. Z has the scale (G + 1) / epsilon. For W = D * Z + V, P(W = w) = P(Z = floor(w / D)) / D, since w fixes
//! both Z and V. Values at distance x shift w by G x, which moves floor(w / D) by at most ceil(G x / D) steps of Z, and
//! every step changes the probability by a factor of at most exp(epsilon / (G + 1)). For x <= D these are at most G
//! steps. The one step to spare is kept: it covers values up to D / G out of their range, for example by the rounding
//! of its ends. Moving Z to its bound adds delta <= 2^-64 (see [`DiscreteLaplace`]).
//!
//! The guarantee is towards those who know neither Z nor V. Dwork, McSherry, Nissim, Smith (2006); Canonne, Kamath,
//! Steinke (2020) for Z.

use crate::discrete_laplace::DiscreteLaplace;
use crate::epsilon::Epsilon;
use rand::CryptoRng;

/// Grid noise of an epsilon, for any diameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridLaplace {
    epsilon: Epsilon,
    steps: DiscreteLaplace,
}

impl GridLaplace {
    /// Binary digits of the number of grid steps a diameter has.
    pub const GRID_BITS: u32 = 5;

    const GRID: u64 = 1 << Self::GRID_BITS;

    /// Of an epsilon.
    pub fn new(epsilon: Epsilon) -> Self {
        let (numerator, denominator) = epsilon.ratio();
        let room = Self::GRID + 1;
        let steps = DiscreteLaplace::unlimited(room * denominator, numerator, room);
        Self { epsilon, steps }
    }

    /// One Z.
    #[inline]
    pub fn sample<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> i64 {
        self.steps.sample(rng)
    }

    /// Independent Zs.
    pub fn fill<R: CryptoRng + ?Sized>(&self, samples: &mut [i64], rng: &mut R) {
        self.steps.fill(samples, rng);
    }

    /// The largest magnitude of Z; below 2^31 for every epsilon.
    pub fn bound(&self) -> u64 {
        self.steps.bound()
    }

    /// The largest magnitude of N for diameters up to a bound; the largest `u64` where it would be more.
    pub fn noise_bound(&self, diameter_bound: u64) -> u64 {
        // The lowest N is the farthest: Z at its bound, V and R zero, the quotient rounded down.
        let diameter = u128::from(diameter_bound);
        let lowest = diameter * u128::from(self.bound()) + diameter / 2;
        u64::try_from(lowest.div_ceil(u128::from(Self::GRID))).unwrap_or(u64::MAX)
    }

    /// What tells two values of a range of this diameter at a distance apart, to the nearest float.
    pub fn privacy_map(&self, diameter: u64, distance: u64) -> f64 {
        if distance == 0 {
            return 0.0;
        }
        let shift = u128::from(distance) * u128::from(Self::GRID);
        match diameter {
            0 => f64::INFINITY,
            _ => self.epsilon.to_f64() * shift.div_ceil(u128::from(diameter)) as f64 / (Self::GRID + 1) as f64,
        }
    }

    /// The probability of N = n, up to the rounding of floats and to 2^-64 for the move of Z to its bound.
    pub fn probability(&self, diameter: u64, n: i64) -> f64 {
        if diameter == 0 {
            return if n == 0 { 1.0 } else { 0.0 };
        }
        let (grid, diameter) = (i128::from(Self::GRID), i128::from(diameter));
        // A number at this distance from G * n is rounded to n by G - |distance| of the G values of R.
        let share = |distance: i128| (grid - distance.abs()) as f64 / grid as f64;
        let step = |distance: i128| (grid * i128::from(n) + distance + diameter / 2).div_euclid(diameter);
        let mass = |distance: i128| match i64::try_from(step(distance)) {
            Ok(z) => self.steps.probability(z) / diameter as f64,
            Err(_) => 0.0,
        };
        (1 - grid..grid).map(|distance| share(distance) * mass(distance)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIAMETERS: [u64; 10] = [1, 2, 3, 5, 10, 31, 32, 33, 50, 100];

    fn grid(epsilon: &str) -> GridLaplace {
        GridLaplace::new(epsilon.parse().unwrap())
    }

    /// The largest logarithm of P(value + N = y) / P(N = y) for each distance of two values, up to a largest one.
    fn worst_log_ratios(mechanism: &GridLaplace, diameter: u64, largest: u64) -> Vec<f64> {
        let reach = 6 * diameter as i64 + 60;
        let masses: Vec<_> = (-reach..=reach).map(|n| mechanism.probability(diameter, n)).collect();
        let ratios =
            |distance: usize| masses.iter().zip(&masses[distance..]).map(|(one, other)| (one / other).ln().abs());
        (0..=largest as usize).map(|distance| ratios(distance).fold(0.0, f64::max)).collect()
    }

    #[test]
    fn no_two_values_of_a_range_cost_more_than_epsilon() {
        for epsilon in ["0.1", "0.5", "1", "3.3", "10"] {
            let mechanism = grid(epsilon);
            let limit: f64 = epsilon.parse().unwrap();
            for diameter in DIAMETERS {
                // Values may lie D / 32 out of their range: the step to spare.
                let worst = worst_log_ratios(&mechanism, diameter, diameter + diameter / 32);
                for (distance, worst) in worst.iter().enumerate() {
                    let map = mechanism.privacy_map(diameter, distance as u64);
                    assert!(*worst <= map + 1e-9, "{mechanism:?}, {diameter}, {distance}: {worst} > {map}");
                    assert!(map <= limit, "{map}");
                }
                // Tight: the ends of the range cost G of the G + 1 steps that were paid for.
                let ends = worst[diameter as usize];
                assert!((ends - limit * 32.0 / 33.0).abs() < 1e-9, "{mechanism:?}, {diameter}: {ends}");
            }
        }
    }

    #[test]
    fn probabilities_sum_to_one_without_bias_or_gaps() {
        for diameter in DIAMETERS {
            let mechanism = grid("1");
            let reach = 60 * diameter as i64 + 60;
            let total: f64 = (-reach..=reach).map(|n| mechanism.probability(diameter, n)).sum();
            let mean: f64 = (-reach..=reach).map(|n| n as f64 * mechanism.probability(diameter, n)).sum();
            assert!((total - 1.0).abs() < 1e-9, "{diameter}: {total}");
            // V - floor(D / 2) has the mean zero, or minus one half for an even D.
            assert!(mean.abs() < 1.0 / 64.0 + 1e-9, "{diameter}: {mean}");
            assert!((-100..100).all(|n| mechanism.probability(diameter, n) > 0.0), "{diameter}");
        }
        assert_eq!((grid("1").probability(0, 0), grid("1").probability(0, 1)), (1.0, 0.0));
    }

    #[test]
    fn bounds_are_those_of_the_formula() {
        for epsilon in ["0.000001", "0.1", "1", "1000"] {
            let mechanism = grid(epsilon);
            assert!(mechanism.bound() < 1 << 31, "{epsilon}");
            let z = mechanism.bound() as i64;
            for diameter in [0i64, 1, 2, 31, 33, 64, 1001] {
                let noise = |z: i64, v: i64, r: i64| (diameter * z + v - diameter / 2 + r).div_euclid(32);
                let (lowest, highest) = (noise(-z, 0, 0), noise(z, (diameter - 1).max(0), 31));
                let expected = lowest.unsigned_abs().max(highest.unsigned_abs());
                assert_eq!(mechanism.noise_bound(diameter as u64), expected, "{epsilon}, {diameter}");
            }
        }
        assert_eq!(grid("0.000001").noise_bound(u64::MAX), u64::MAX);
    }
}
