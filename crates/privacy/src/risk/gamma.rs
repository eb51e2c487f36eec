//! The logarithm of the gamma function and its first two derivatives, for arguments above zero.
//!
//! The recurrence lifts an argument to at least ten, where a few terms of Stirling's series (Abramowitz and Stegun 1964, 6.1.40,
//! 6.3.18 and 6.4.12) are exact to fifteen digits.

/// Arguments from here on go into the series.
const LARGE: f64 = 10.0;

/// ln Gamma(x).
pub(super) fn ln_gamma(x: f64) -> f64 {
    let (x, product) = lift(x, 1.0, |product, x| product * x);
    let inverse = 1.0 / x;
    let y = inverse * inverse;
    let series = horner(&[1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360_360.0], y);
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series * inverse - product.ln()
}

/// Arguments from here on lose more digits in a difference of logarithms than the series below leaves out.
const FAR: f64 = 1e4;

/// `ln Gamma(x + by) - ln Gamma(x)`, for a `by` of at most one either way: of large arguments by the series of the quotient (Tricomi and
/// Erdelyi 1951), since both logarithms grow as `x ln x`.
pub(super) fn ln_gamma_step(x: f64, by: f64) -> f64 {
    if x < FAR {
        return ln_gamma(x + by) - ln_gamma(x);
    }
    let curve = by * (by - 1.0) / (2.0 * x);
    by * x.ln() + curve - curve * (2.0 * by - 1.0) / (6.0 * x)
}

/// The derivative of ln Gamma(x).
pub(super) fn digamma(x: f64) -> f64 {
    let (x, sum) = lift(x, 0.0, |sum, x| sum + 1.0 / x);
    let y = 1.0 / (x * x);
    let series =
        horner(&[1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32760.0, 1.0 / 12.0], y);
    x.ln() - 0.5 / x - series * y - sum
}

/// The second derivative of ln Gamma(x).
pub(super) fn trigamma(x: f64) -> f64 {
    let (x, sum) = lift(x, 0.0, |sum, x| sum + 1.0 / (x * x));
    let y = 1.0 / (x * x);
    let series = horner(&[1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 5.0 / 66.0, -691.0 / 2730.0, 7.0 / 6.0], y);
    (1.0 + 0.5 / x + series * y) / x + sum
}

fn lift(mut x: f64, start: f64, step: impl Fn(f64, f64) -> f64) -> (f64, f64) {
    let mut folded = start;
    while x < LARGE {
        folded = step(folded, x);
        x += 1.0;
    }
    (x, folded)
}

fn horner(coefficients: &[f64], y: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * y + coefficient)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::*;

    /// Euler's constant.
    const EULER: f64 = 0.577_215_664_901_532_9;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 2e-13 * expected.abs().max(1.0), "{found} {expected}");
    }

    #[test]
    fn known_values() {
        close(ln_gamma(0.5), PI.sqrt().ln());
        close(ln_gamma(1.0), 0.0);
        close(ln_gamma(6.0), 120f64.ln());
        close(ln_gamma(31.0), (1..=30).map(|i| f64::from(i).ln()).sum());
        close(digamma(1.0), -EULER);
        close(digamma(0.5), -EULER - 2.0 * 2f64.ln());
        close(digamma(101.0), -EULER + (1..=100).map(|i| 1.0 / f64::from(i)).sum::<f64>());
        close(trigamma(1.0), PI * PI / 6.0);
        close(trigamma(0.5), PI * PI / 2.0);
        close(trigamma(101.0), PI * PI / 6.0 - (1..=100).map(|i| f64::from(i).powi(-2)).sum::<f64>());
    }

    /// By sixty digits.
    #[test]
    fn steps_far_out_keep_their_digits() {
        for (x, by, expected) in [
            (1e4, -0.7, -6.447_178_758_003_21),
            (12345.5, 0.25, 2.355_254_131_885_31),
            (1e9, -0.3, -6.216_979_750_888_92),
            (1e13, 0.5, 14.966_803_104_461_3),
            (1e18, -0.9, -37.301_878_506_503_5),
        ] {
            let found = ln_gamma_step(x, by);
            assert!((found - expected).abs() < 1e-13 * expected.abs(), "{x} {by}: {found} {expected}");
        }
        for by in [-0.7, 0.3, 1.0] {
            let below = ln_gamma_step(FAR * (1.0 - f64::EPSILON), by);
            assert!((ln_gamma_step(FAR, by) - below).abs() < 1e-10, "{by}");
        }
    }

    #[test]
    fn steps_of_one() {
        for x in [1e-3, 0.3, 2.5, 9.9, 10.0, 1e3, 1e6] {
            // Differences lose what the values have in common.
            let lost = 1.0 + ln_gamma(x + 1.0).abs();
            assert!((ln_gamma(x + 1.0) - ln_gamma(x) - x.ln()).abs() < 1e-14 * lost);
            assert!(((digamma(x + 1.0) - digamma(x)) * x - 1.0).abs() < 1e-14 * (1.0 + x) * 20.0);
        }
    }
}
