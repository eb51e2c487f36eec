//! Uniqueness by Pitman's sampling formula (Hoshino 2001, "Applying Pitman's sampling formula to microdata disclosure risk
//! assessment").
//!
//! Table and population are draws of one process with parameters `0 <= alpha < 1` and `theta > -alpha`. With `n` rows, `u` classes,
//! `s_j` of them of `j` rows, the logarithm of the likelihood is, up to a constant,
//!
//! ```text
//! L = sum_{i=1}^{u-1} ln(theta + i alpha) - sum_{i=1}^{n-1} ln(theta + i) + sum_j s_j sum_{i=1}^{j-1} ln(i - alpha)
//! ```
//! and of `P` people the share that is unique is expected to be
//!
//! ```text
//! U_1 / P = Gamma(theta + 1) Gamma(theta + alpha + P - 1) / (Gamma(theta + alpha) Gamma(theta + P))
//! ```
//! of which Hoshino's `Gamma(theta + 1) / Gamma(theta + alpha) * P^(alpha - 1)` is the limit for many people.
//!
//! The maximum is found by Newton's method in coordinates without borders, `ln(theta + alpha)` and `ln(alpha / (1 - alpha))`: where L
//! is not concave it goes the way that a concave one would, and it halves steps that do not climb. A likelihood that climbs for ever has no
//! solution: one class, or only unique rows.

use super::gamma::{digamma, ln_gamma, ln_gamma_step, trigamma};
use super::uniqueness::{certain, share};
use crate::ClassSizes;

const MAX_STEPS: usize = 200;
/// Alpha from here down is Ewens's formula, alpha = 0, for every purpose; from here up there is no solution.
const SMALLEST_LOGIT: f64 = -20.0;
const LARGEST_LOGIT: f64 = 16.0;
/// Theta beyond e^30 has no solution.
const LARGEST_LN: f64 = 30.0;

/// The expected share of the population's rows that are unique in it.
pub fn hoshino(sizes: &ClassSizes, population: u64) -> Option<f64> {
    certain(sizes, population).or_else(|| {
        let Parameters { theta, alpha } = fit(sizes)?;
        let people = population as f64;
        let ln_share = ln_gamma_step(theta + alpha, 1.0 - alpha) + ln_gamma_step(theta + people, alpha - 1.0);
        share(ln_share.exp())
    })
}

#[derive(Clone, Copy, Debug)]
struct Parameters {
    theta: f64,
    alpha: f64,
}

/// A point without borders: `ln(theta + alpha)`, `ln(alpha / (1 - alpha))`.
type Point = [f64; 2];

fn parameters([x, y]: Point) -> Parameters {
    let alpha = 1.0 / (1.0 + (-y).exp());
    Parameters { theta: x.exp() - alpha, alpha }
}

/// The likeliest parameters.
fn fit(sizes: &ClassSizes) -> Option<Parameters> {
    if sizes.classes() < 2 || sizes.largest() < 2 {
        return None;
    }
    let mut at = start(sizes);
    let mut height = log_likelihood(sizes, parameters(at));
    for _ in 0..MAX_STEPS {
        let slope = Slope::at(sizes, at);
        let step = slope.step();
        let climb = step[0] * slope.gradient[0] + step[1] * slope.gradient[1];
        // No step climbs by more than rounding: this is the top, or a ridge that leads out of bounds.
        let mut taken = false;
        let mut length = 1.0;
        while climb > 1e-12 && length > 1e-9 {
            let next = bounded([at[0] + length * step[0], at[1] + length * step[1]]);
            let reached = log_likelihood(sizes, parameters(next));
            if reached > height {
                (at, height, taken) = (next, reached, true);
                break;
            }
            length *= 0.5;
        }
        if !taken {
            break;
        }
    }
    let inside = at[0] < LARGEST_LN && at[1] < LARGEST_LOGIT;
    inside.then(|| parameters(at))
}

fn bounded([x, y]: Point) -> Point {
    [x.clamp(-LARGEST_LN, LARGEST_LN), y.clamp(SMALLEST_LOGIT, LARGEST_LOGIT)]
}

/// The best point of a coarse grid, so that Newton's method begins on the right hill.
fn start(sizes: &ClassSizes) -> Point {
    let mut best = ([0.0, 0.0], f64::NEG_INFINITY);
    for x in [-2.0, 1.0, 4.0, 7.0, 10.0, 14.0] {
        for y in [-4.0, -1.0, 0.0, 1.0, 3.0] {
            let height = log_likelihood(sizes, parameters([x, y]));
            if height > best.1 {
                best = ([x, y], height);
            }
        }
    }
    best.0
}

fn log_likelihood(sizes: &ClassSizes, Parameters { theta, alpha }: Parameters) -> f64 {
    let classes: f64 = (1..sizes.classes()).map(|i| (theta + i as f64 * alpha).ln()).sum();
    let rows = ln_gamma(theta + sizes.rows() as f64) - ln_gamma(theta + 1.0);
    let inside = sizes.counts().filter(|(size, _)| *size > 1);
    let first = ln_gamma(1.0 - alpha);
    classes - rows + inside.map(|(size, count)| count as f64 * (ln_gamma(size as f64 - alpha) - first)).sum::<f64>()
}

/// First and second derivatives of L at a point, in its coordinates.
struct Slope {
    gradient: Point,
    /// By x twice, by both, by y twice.
    hessian: [f64; 3],
}

impl Slope {
    fn at(sizes: &ClassSizes, at: Point) -> Self {
        let Parameters { theta, alpha } = parameters(at);
        // By theta and alpha.
        let (mut by_theta, mut by_alpha, mut second) = (0.0, 0.0, [0.0; 3]);
        for i in (1..sizes.classes()).map(|i| i as f64) {
            let inverse = 1.0 / (theta + i * alpha);
            let square = inverse * inverse;
            by_theta += inverse;
            by_alpha += i * inverse;
            second = [second[0] - square, second[1] - i * square, second[2] - i * i * square];
        }
        let rows = sizes.rows() as f64;
        by_theta -= digamma(theta + rows) - digamma(theta + 1.0);
        second[0] -= trigamma(theta + rows) - trigamma(theta + 1.0);
        for (size, count) in sizes.counts().filter(|(size, _)| *size > 1) {
            let (size, count) = (size as f64, count as f64);
            by_alpha -= count * (digamma(size - alpha) - digamma(1.0 - alpha));
            second[2] += count * (trigamma(size - alpha) - trigamma(1.0 - alpha));
        }
        // theta = e^x - alpha(y), so that d/dx = e^x d/dtheta and d/dy = alpha' (d/dalpha - d/dtheta).
        let (scale, slope) = (theta + alpha, alpha * (1.0 - alpha));
        let along = by_alpha - by_theta;
        let mixed = second[1] - second[0];
        let twice = second[2] - 2.0 * second[1] + second[0];
        Self {
            gradient: [scale * by_theta, slope * along],
            hessian: [
                scale * scale * second[0] + scale * by_theta,
                scale * slope * mixed,
                slope * slope * twice + slope * (1.0 - 2.0 * alpha) * along,
            ],
        }
    }

    /// Newton's step with all curvatures taken as downwards, so that it climbs wherever L is not concave; none longer than a few units.
    fn step(&self) -> Point {
        let ([gx, gy], [xx, xy, yy]) = (self.gradient, self.hessian);
        // The two directions of curvature, and the curvature along each.
        let (mean, turn) = ((xx + yy) / 2.0, ((xx - yy) / 2.0).hypot(xy));
        let (sin, cos) = (0.5 * (2.0 * xy).atan2(xx - yy)).sin_cos();
        let least = 1e-9 * (mean.abs() + turn) + f64::MIN_POSITIVE;
        let along = |slope: f64, curvature: f64| slope / curvature.abs().max(least);
        let (one, other) = (along(cos * gx + sin * gy, mean + turn), along(cos * gy - sin * gx, mean - turn));
        let step = [cos * one - sin * other, sin * one + cos * other];
        let length = step[0].hypot(step[1]);
        let scale = if length > 3.0 { 3.0 / length } else { 1.0 };
        [step[0] * scale, step[1] * scale]
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    /// L as it is written: factor by factor.
    fn direct(counts: &[(u64, u64)], theta: f64, alpha: f64) -> f64 {
        let rows: u64 = counts.iter().map(|(size, count)| size * count).sum();
        let classes: u64 = counts.iter().map(|(_, count)| count).sum();
        let above: f64 = (1..classes).map(|i| (theta + i as f64 * alpha).ln()).sum();
        let below: f64 = (1..rows).map(|i| (theta + i as f64).ln()).sum();
        let inside = |size: u64| (1..size).map(|i| (i as f64 - alpha).ln()).sum::<f64>();
        above - below + counts.iter().map(|(size, count)| *count as f64 * inside(*size)).sum::<f64>()
    }

    /// By brute force: from the best point of a grid, to whichever of sixteen neighbours is higher, ever nearer ones.
    fn brute_force(counts: &[(u64, u64)]) -> (f64, f64) {
        let height = |(x, alpha): (f64, f64)| {
            let inside = alpha > 1e-12 && alpha < 1.0;
            if inside { direct(counts, x.exp() - alpha, alpha) } else { f64::NEG_INFINITY }
        };
        let grid = (-40..=120).flat_map(|i| (1..50).map(move |j| (f64::from(i) / 10.0, f64::from(j) / 50.0)));
        let mut best = grid.max_by(|one, other| height(*one).total_cmp(&height(*other))).unwrap();
        let mut width = 0.1;
        while width > 1e-7 {
            let around = (0..16).map(|i| (f64::from(i) * std::f64::consts::PI / 8.0).sin_cos());
            let next = around.map(|(sin, cos)| (best.0 + width * sin, best.1 + width * cos));
            match next.max_by(|one, other| height(*one).total_cmp(&height(*other))) {
                Some(next) if height(next) > height(best) => best = next,
                _ => width *= 0.7,
            }
        }
        (best.0.exp() - best.1, best.1)
    }

    #[test]
    fn the_likelihood_has_its_maximum_where_brute_force_finds_it() {
        for counts in [
            vec![(1, 30), (2, 8), (3, 4), (7, 1)],
            vec![(1, 5), (2, 3), (4, 2), (11, 2)],
            vec![(1, 100), (2, 2)],
            vec![(1, 3), (50, 1)],
        ] {
            let found = fit(&ClassSizes::new(counts.iter().copied(), 0)).unwrap();
            let (theta, alpha) = brute_force(&counts);
            let near = (found.alpha - alpha).abs() < 1e-4 && ((found.theta - theta) / (1.0 + theta)).abs() < 1e-3;
            assert!(near, "{counts:?}: {found:?} {theta} {alpha}");
        }
    }

    #[test]
    fn the_logarithms_are_those_of_the_definition() {
        let counts = [(1, 9), (2, 4), (13, 2)];
        let sizes = ClassSizes::new(counts, 0);
        for (theta, alpha) in [(-0.2, 0.5), (3.0, 0.01), (4000.0, 0.99)] {
            let difference = log_likelihood(&sizes, Parameters { theta, alpha }) - direct(&counts, theta, alpha);
            assert!(difference.abs() < 1e-9, "{difference}");
        }
    }

    #[test]
    fn no_solution_is_no_answer() {
        assert_eq!(hoshino(&ClassSizes::new([(1, 50)], 0), 1000), None);
        assert_eq!(hoshino(&ClassSizes::new([(1, 1)], 0), 1000), None);
    }

    /// Ewens: alpha = 0, where the share is theta / (theta + P - 1).
    #[test]
    fn few_large_classes_fall_back_to_ewens() {
        let sizes = ClassSizes::new([(1, 1), (40, 20)], 0);
        let found = fit(&sizes).unwrap();
        assert!(found.alpha < 1e-6, "{found:?}");
        let share = hoshino(&sizes, 5000).unwrap();
        assert!((share - found.theta / (found.theta + 4999.0)).abs() < 1e-6 * share);
    }

    /// The limit for many people, in which nothing is subtracted.
    #[test]
    fn many_people_lose_no_digits() {
        let sizes = ClassSizes::new([(1, 30), (2, 8), (3, 4), (7, 1)], 0);
        let Parameters { theta, alpha } = fit(&sizes).unwrap();
        for people in [1u64 << 40, 1 << 50, u64::MAX] {
            let limit = (ln_gamma(theta + 1.0) - ln_gamma(theta + alpha)).exp() * (people as f64).powf(alpha - 1.0);
            let found = hoshino(&sizes, people).unwrap();
            assert!((found / limit - 1.0).abs() < 1e-9, "{people}: {found} {limit}");
        }
    }

    /// A population drawn from the process itself: new kinds come with probability (theta + u alpha) / (theta + i).
    #[test]
    fn a_population_of_the_process() {
        let (theta, alpha, people, rows) = (300.0, 0.4, 60_000usize, 4_000);
        let mut rng = StdRng::seed_from_u64(5);
        let mut kinds: Vec<usize> = Vec::new();
        let mut sizes: Vec<u64> = Vec::new();
        for i in 0..people {
            let new = (theta + alpha * sizes.len() as f64) / (theta + i as f64);
            let kind = if rng.random::<f64>() < new {
                sizes.len()
            } else {
                // A kind of size c with weight c - alpha: a former row, refused with probability alpha / c.
                loop {
                    let kind = kinds[rng.random_range(0..i)];
                    if rng.random::<f64>() >= alpha / sizes[kind] as f64 {
                        break kind;
                    }
                }
            };
            if kind == sizes.len() {
                sizes.push(0);
            }
            sizes[kind] += 1;
            kinds.push(kind);
        }
        let truth = sizes.iter().filter(|size| **size == 1).count() as f64 / people as f64;
        // Rows are exchangeable, so that the first ones are a random sample.
        let sample = ClassSizes::from_labels(kinds.iter().take(rows));
        let found = fit(&sample).unwrap();
        assert!((found.alpha - alpha).abs() < 0.08 && (found.theta / theta - 1.0).abs() < 0.3, "{found:?}");
        let share = hoshino(&sample, people as u64).unwrap();
        assert!((share / truth - 1.0).abs() < 0.2, "{share} {truth}");
    }
}
