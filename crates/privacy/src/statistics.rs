//! Statistics for tests: do samples have the distribution that they claim, and what epsilon do they prove?
//!
//! Behind the feature `testing`. All bounds are one-sided and hold for every sample size, save that the chi-square
//! statistic is itself an approximation, which is why small cells are pooled.

use std::collections::{BTreeMap, BTreeSet};

/// Cells expected to hold less are pooled.
const SMALLEST_CELL: f64 = 5.0;

/// How far observations lie from expectations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChiSquare {
    /// The sum of squared differences, each over its variance.
    pub statistic: f64,
    /// Degrees of freedom: cells after pooling, less one.
    pub degrees: usize,
}

/// Counts against expected counts, cell by cell. Both must have the same sum; give what lies outside a cell as well.
/// One observation of the impossible makes the statistic infinite.
pub fn chi_square(observed: &[u64], expected: &[f64]) -> ChiSquare {
    let cells = observed.iter().zip(expected).map(|(observed, expected)| (*observed as f64, *expected));
    let impossible = cells.clone().any(|(observed, expected)| observed > 0.0 && expected <= 0.0);
    let pooled = pool(cells, |(_, expected)| expected);
    let term = |(observed, expected): &(f64, f64)| (observed - expected).powi(2) / expected.max(f64::MIN_POSITIVE);
    let statistic = if impossible { f64::INFINITY } else { pooled.iter().map(term).sum() };
    ChiSquare { statistic, degrees: pooled.len().saturating_sub(1) }
}

/// Counts of two samples, cell by cell: do they come from one distribution?
pub fn chi_square_two_samples(one: &[u64], other: &[u64]) -> ChiSquare {
    let [one_total, other_total] = [one, other].map(|counts| counts.iter().sum::<u64>() as f64);
    let cells = one.iter().zip(other).map(|(one, other)| (*one as f64, *other as f64));
    let smaller = one_total.min(other_total) / (one_total + other_total);
    let pooled = pool(cells, |(one, other)| (one + other) * smaller);
    let balance = (other_total / one_total).sqrt();
    let term = |(one, other): &(f64, f64)| (one * balance - other / balance).powi(2) / (one + other).max(1.0);
    ChiSquare { statistic: pooled.iter().map(term).sum(), degrees: pooled.len().saturating_sub(1) }
}

impl ChiSquare {
    /// Whether such a distance is to be expected. A right distribution fails with at most this probability.
    ///
    /// By the Chernoff bound P(X >= x) <= (x/n * exp(1 - x/n))^(n/2) for x > n degrees of freedom.
    pub fn is_plausible(&self, false_alarm: f64) -> bool {
        if self.degrees == 0 {
            return self.statistic < 1e-6;
        }
        let ratio = self.statistic / self.degrees as f64;
        ratio <= 1.0 || self.degrees as f64 / 2.0 * (ratio.ln() + 1.0 - ratio) > false_alarm.ln()
    }
}

/// How often each number occurs.
pub fn counts(samples: impl IntoIterator<Item = i64>) -> BTreeMap<i64, u64> {
    let mut counts = BTreeMap::new();
    for sample in samples {
        *counts.entry(sample).or_default() += 1;
    }
    counts
}

/// A lower bound, at a confidence such as 0.999999, on the largest ln(P(event) / Q(event)) in either direction, given
/// samples of P and of Q. More than epsilon proves that a mechanism with outputs P and Q on two inputs is not
/// epsilon-private; less proves nothing.
///
/// The events are single numbers and both tails at every number. Each gets a share of what the confidence leaves, by a
/// rule fixed beforehand (n and its tails 1 / (n (n + 1)) for the n-th integer 0, -1, 1, -2, ..), and two bounds on
/// probabilities of Chernoff and Hoeffding: a frequency f of m samples is as far from p as kl(f, p) > t with
/// probability at most exp(-m t). So the bound holds for all events at once.
pub fn worst_log_ratio_lower_bound(one: &BTreeMap<i64, u64>, other: &BTreeMap<i64, u64>, confidence: f64) -> f64 {
    let totals = [one, other].map(|counts| counts.values().sum::<u64>());
    let keys: BTreeSet<i64> = one.keys().chain(other.keys()).copied().collect();
    // Three events a number, two bounds an event, two directions.
    let share = (1.0 - confidence) / 12.0;
    let mut below = [0u64; 2];
    // The whole is an event too, and its ratio is one.
    let mut worst = 0f64;
    for key in keys {
        let at = [one, other].map(|counts| counts.get(&key).copied().unwrap_or(0));
        let place = if key < 0 { key.unsigned_abs() as f64 * 2.0 } else { key as f64 * 2.0 + 1.0 };
        let doubt = -(share / (place * (place + 1.0))).ln();
        let above = [0, 1].map(|side| totals[side] - below[side]);
        below = [below[0] + at[0], below[1] + at[1]];
        for event in [at, below, above] {
            for (p, q) in [(0, 1), (1, 0)] {
                // Most events cannot win, and the bounds take time.
                let frequency = |side: usize| event[side] as f64 / totals[side].max(1) as f64;
                if frequency(p).ln() - frequency(q).ln() > worst {
                    let low = lower_bound(frequency(p), doubt / totals[p] as f64);
                    let high = 1.0 - lower_bound(1.0 - frequency(q), doubt / totals[q] as f64);
                    worst = worst.max((low / high).ln());
                }
            }
        }
    }
    worst
}

/// The least p with kl(frequency, p) <= doubt, by bisection from the side where it does not hold.
fn lower_bound(frequency: f64, doubt: f64) -> f64 {
    let term = |share: f64, p: f64| if share == 0.0 { 0.0 } else { share * (share / p).ln() };
    let distance = |p: f64| term(frequency, p) + term(1.0 - frequency, 1.0 - p);
    let (mut low, mut high) = (0.0, frequency);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        *(if distance(middle) > doubt { &mut low } else { &mut high }) = middle;
    }
    low
}

/// Cells in order, small ones gathered in one; if that is still small, with the last of the others.
fn pool(cells: impl Iterator<Item = (f64, f64)>, expected: impl Fn((f64, f64)) -> f64) -> Vec<(f64, f64)> {
    let (mut large, small): (Vec<_>, Vec<_>) = cells.partition(|cell| expected(*cell) >= SMALLEST_CELL);
    if small.is_empty() {
        return large;
    }
    let rest = small.iter().fold((0.0, 0.0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    match large.last_mut() {
        Some(last) if expected(rest) < SMALLEST_CELL => *last = (last.0 + rest.0, last.1 + rest.1),
        _ => large.push(rest),
    }
    large
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_cells_are_pooled() {
        let all = chi_square(&[10, 20, 30], &[20.0, 20.0, 20.0]);
        assert_eq!(all, ChiSquare { statistic: 10.0, degrees: 2 });
        // 3 + 4 make a cell of seven.
        let pooled = chi_square(&[20, 3, 4], &[20.0, 3.0, 4.0]);
        assert_eq!(pooled, ChiSquare { statistic: 0.0, degrees: 1 });
        // 1 + 2 are too few and join the last.
        let joined = chi_square(&[20, 10, 1, 2], &[20.0, 10.0, 1.0, 2.0]);
        assert_eq!(joined, ChiSquare { statistic: 0.0, degrees: 1 });
        let same = chi_square_two_samples(&[10, 20, 1], &[20, 40, 2]);
        assert!(same.statistic < 1e-9 && same.degrees == 1, "{same:?}");
    }

    #[test]
    fn the_tail_bound_is_no_smaller_than_tables() {
        // Critical values at 0.001 from tables; they must pass at 0.001, and well beyond them must fail.
        for (degrees, critical) in [(1, 10.83), (5, 20.52), (10, 29.59), (50, 86.66), (100, 149.45)] {
            assert!(ChiSquare { statistic: critical, degrees }.is_plausible(0.001));
            assert!(!ChiSquare { statistic: critical * 1.7, degrees }.is_plausible(0.001));
        }
        assert!(ChiSquare { statistic: 0.0, degrees: 0 }.is_plausible(0.5));
        assert!(!ChiSquare { statistic: 0.1, degrees: 0 }.is_plausible(0.5));
    }

    #[test]
    fn wrong_distributions_are_implausible() {
        assert!(!chi_square(&[600, 400], &[500.0, 500.0]).is_plausible(1e-6));
        assert!(!chi_square(&[500, 499, 1], &[500.0, 500.0, 0.0]).is_plausible(1e-6));
        assert!(!chi_square_two_samples(&[600, 400], &[400, 600]).is_plausible(1e-6));
        assert!(chi_square_two_samples(&[510, 490], &[1000, 1000]).is_plausible(1e-6));
    }

    #[test]
    fn proven_ratios_lie_below_the_true_ones() {
        let one = BTreeMap::from([(0, 800_000), (1, 200_000)]);
        let other = BTreeMap::from([(0, 200_000), (1, 800_000)]);
        let proven = worst_log_ratio_lower_bound(&one, &other, 0.999999);
        assert!(proven < 4f64.ln() && proven > 4f64.ln() - 0.03, "{proven}");
        assert_eq!(worst_log_ratio_lower_bound(&one, &one, 0.999999), 0.0);
        assert_eq!(worst_log_ratio_lower_bound(&one, &BTreeMap::new(), 0.999999), 0.0);
        // What one side never shows is as improbable as its number of samples can tell.
        let never = BTreeMap::from([(0, 1_000_000)]);
        let proven = worst_log_ratio_lower_bound(&one, &never, 0.999999);
        assert!(proven > (0.19f64 * 1e6 / 30.0).ln(), "{proven}");
    }

    #[test]
    fn bounds_are_those_of_the_inequality() {
        // kl(0, p) = -ln(1 - p): the rule of three and its like.
        let high = 1.0 - lower_bound(1.0, 3.0 / 100.0);
        assert!((high - (1.0 - (-0.03f64).exp())).abs() < 1e-12, "{high}");
        assert_eq!(lower_bound(0.0, 0.1), 0.0);
        assert!(lower_bound(0.5, 0.01) < 0.5 && lower_bound(0.5, 0.01) > 0.4);
    }
}
