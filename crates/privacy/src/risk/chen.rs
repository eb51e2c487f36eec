//! Uniqueness by the slide negative binomial distribution of class sizes (Chen and Keller-McNulty 1998, "Estimation of
//! identification disclosure risk in microdata").
//!
//! Every one of the population's `K` classes has one row, and others by a negative binomial distribution with parameters `a > 0` and
//! `0 < b < 1`; a class is of one row with probability `b^a`. Rows are sampled independently with probability `f = n / P`, so that with
//! `d = (1 - f)(1 - b)` the expected numbers of classes with one and with two rows in the sample are
//!
//! ```text
//! E_1 = K f   (b / (1-d))^a (1 + a d / (1-d))
//! E_2 = K f^2 (b / (1-d))^a (1 + (a-1) d / 2) a (1-b) / (1-d)^2
//! ```
//! They are set to what was counted, `s_1` and `s_2`, and `U_1 / P = K b^a / P`. `K` comes from Shlosser's estimator as Haas and Stokes
//! modified it (1998, "Estimating the number of classes in a finite population"):
//!
//! ```text
//! K = u + s_1 * sum_i i f^2 (1-f^2)^(i-1) s_i / sum_i (1-f)^i ((1+f)^i - 1) s_i * (sum_i (1-f)^i s_i / sum_i i f (1-f)^(i-1) s_i)^2
//! ```
//! The equations are solved by Newton's method in `ln a` and `ln(b / (1-b))` from several places. Should several places lead to
//! different solutions, the one counts whose classes come nearest to `P` rows in all. There may be none.

use super::uniqueness::{certain, share};
use crate::ClassSizes;

const MAX_STEPS: usize = 100;
/// Both equations hold to this relative error.
const PRECISION: f64 = 1e-9;

/// The expected share of the population's rows that are unique in it.
pub fn chen(sizes: &ClassSizes, population: u64) -> Option<f64> {
    certain(sizes, population).or_else(|| {
        let model = Model::of(sizes, population)?;
        let people = population as f64;
        let solutions = STARTS.iter().filter_map(|start| model.solve(*start));
        let misfit = |solution: &Point| (model.people(*solution) / people).ln().abs();
        let best = solutions.min_by(|one, other| misfit(one).total_cmp(&misfit(other)))?;
        share(model.classes * ln_unique(best).exp() / people)
    })
}

/// `ln a` and `ln(b / (1-b))`.
type Point = [f64; 2];

const STARTS: [Point; 9] = [
    [0.0, 0.0],
    [-2.0, -2.0],
    [-2.0, 2.0],
    [2.0, -2.0],
    [2.0, 2.0],
    [-1.0, -5.0],
    [0.0, -4.0],
    [-4.0, 0.0],
    [5.0, 5.0],
];

struct Model {
    /// K.
    classes: f64,
    /// f.
    sampled: f64,
    /// s_1 and s_2.
    counted: [f64; 2],
}

impl Model {
    fn of(sizes: &ClassSizes, population: u64) -> Option<Self> {
        let counted = [1, 2].map(|size| sizes.classes_of(size) as f64);
        let sampled = sizes.rows() as f64 / population as f64;
        let classes = shlosser(sizes, sampled);
        (counted[1] > 0.0 && classes.is_finite()).then_some(Self { classes, sampled, counted })
    }

    /// How far the logarithms of the expected numbers are from those of the counted ones.
    ///
    /// `a` may be as large as `b` is near to one. The logarithm of a number near to one has no digits left, which times `a` would pass for a
    /// solution, so logarithms are taken of the distance to one.
    fn errors(&self, at: Point) -> Point {
        let (a, rest) = (at[0].exp(), logistic(-at[1]));
        let d = (1.0 - self.sampled) * rest;
        let ln_of_seen = (-d).ln_1p();
        let one = self.classes.ln() + self.sampled.ln() + a * (ln_logistic(at[1]) - ln_of_seen);
        let first = one + (a * d / (1.0 - d)).ln_1p();
        let second = one + self.sampled.ln() + (1.0 + (a - 1.0) * d / 2.0).ln() + (a * rest).ln() - 2.0 * ln_of_seen;
        [first - self.counted[0].ln(), second - self.counted[1].ln()]
    }

    /// Rows of all classes: K (1 + a (1-b) / b).
    fn people(&self, at: Point) -> f64 {
        self.classes * (1.0 + (at[0] - at[1]).exp())
    }

    fn solve(&self, start: Point) -> Option<Point> {
        let norm = |errors: Point| errors[0].hypot(errors[1]);
        let mut at = start;
        for _ in 0..MAX_STEPS {
            let errors = self.errors(at);
            if norm(errors) < PRECISION {
                return Some(at);
            }
            let step = self.step(at, errors)?;
            // Half as far, until the errors shrink.
            let mut lengths = (0..30).map(|halvings| 0.5f64.powi(halvings));
            let next = |length: f64| [at[0] - length * step[0], at[1] - length * step[1]];
            at = lengths.find(|length| norm(self.errors(next(*length))) < norm(errors)).map(next)?;
        }
        None
    }

    /// Newton's step, with slopes from differences.
    fn step(&self, at: Point, errors: Point) -> Option<Point> {
        const WIDTH: f64 = 1e-6;
        let slope = |along: Point| {
            let [up, down] = [WIDTH, -WIDTH].map(|way| self.errors([at[0] + way * along[0], at[1] + way * along[1]]));
            [(up[0] - down[0]) / (2.0 * WIDTH), (up[1] - down[1]) / (2.0 * WIDTH)]
        };
        let ([xa, ya], [xb, yb]) = (slope([1.0, 0.0]), slope([0.0, 1.0]));
        let determinant = xa * yb - xb * ya;
        let step = [(errors[0] * yb - errors[1] * xb) / determinant, (errors[1] * xa - errors[0] * ya) / determinant];
        let length = step[0].hypot(step[1]);
        let scale = if length > 2.0 { 2.0 / length } else { 1.0 };
        length.is_finite().then_some([step[0] * scale, step[1] * scale])
    }
}

/// a ln b.
fn ln_unique(at: Point) -> f64 {
    at[0].exp() * ln_logistic(at[1])
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn ln_logistic(x: f64) -> f64 {
    -(-x).exp().ln_1p()
}

/// The number of classes in the population.
fn shlosser(sizes: &ClassSizes, f: f64) -> f64 {
    let sum = |term: &dyn Fn(f64) -> f64| {
        sizes.counts().map(|(size, classes)| classes as f64 * term(size as f64)).sum::<f64>()
    };
    let twice_seen = sum(&|i| i * f * f * (1.0 - f * f).powf(i - 1.0));
    let unseen = sum(&|i| (1.0 - f).powf(i));
    let missed = sum(&|i| (1.0 - f * f).powf(i) - (1.0 - f).powf(i));
    let once_seen = sum(&|i| i * f * (1.0 - f).powf(i - 1.0));
    let unique = sizes.classes_of(1) as f64;
    sizes.classes() as f64 + unique * (twice_seen / missed) * (unseen / once_seen).powi(2)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    /// P(size of a class = 1 + y), by its recurrence.
    fn law(a: f64, b: f64) -> Vec<f64> {
        let next = |p: f64, y: u32| p * (a + f64::from(y)) / f64::from(y + 1) * (1.0 - b);
        let first = b.powf(a);
        (0..2000)
            .scan(first, |p, y| {
                let now = *p;
                *p = next(now, y);
                Some(now)
            })
            .collect()
    }

    /// Classes with so many sampled rows, summed over all sizes: what the equations are closed forms of.
    fn expected(model: &Model, a: f64, b: f64, sampled: u32) -> f64 {
        let f = model.sampled;
        let choose = |n: f64| if sampled == 1 { n } else { n * (n - 1.0) / 2.0 };
        let seen = |n: f64| choose(n) * f.powi(sampled as i32) * (1.0 - f).powf(n - f64::from(sampled));
        let terms = law(a, b).into_iter().enumerate().map(|(y, p)| p * seen(y as f64 + 1.0));
        model.classes * terms.sum::<f64>()
    }

    #[test]
    fn the_equations_are_sums_over_all_sizes() {
        for (a, b, sampled) in [(0.7, 0.2, 0.3), (3.0, 0.5, 0.1), (0.1, 0.05, 0.9), (1.0, 0.5, 0.5)] {
            let mut model = Model { classes: 1000.0, sampled, counted: [1.0, 1.0] };
            model.counted = [expected(&model, a, b, 1), expected(&model, a, b, 2)];
            let at: Point = [a.ln(), (b / (1.0 - b)).ln()];
            assert!(model.errors(at).iter().all(|error| error.abs() < 1e-9), "{:?}", model.errors(at));
            // And solved from elsewhere they come back to a solution.
            let solved = STARTS.iter().find_map(|start| model.solve(*start)).unwrap();
            assert!(model.errors(solved).iter().all(|error| error.abs() < 1e-8));
            // Classes of a law have so many rows: K times the mean.
            let mean: f64 = law(a, b).iter().enumerate().map(|(y, p)| p * (y as f64 + 1.0)).sum();
            assert!((model.people(at) / 1000.0 - mean).abs() < 1e-6 * mean);
        }
    }

    #[test]
    fn shlosser_by_hand() {
        // f = 1/2, s_1 = 4, s_2 = 2: 6 + 4 * (1 + 0.75) / (1 + 0.625) * (2.5 / 3)^2, with
        // sum i f^2 (1-f^2)^(i-1) s_i = 4/4 + 2 * 2/4 * 3/4 = 1.75, sum (1-f)^i ((1+f)^i - 1) s_i = 4/4 + 2 * (9/16 - 1/4) = 1.625,
        // sum (1-f)^i s_i = 2 + 0.5, sum i f (1-f)^(i-1) s_i = 2 + 1.
        let found = shlosser(&ClassSizes::new([(1, 4), (2, 2)], 0), 0.5);
        assert!((found - (6.0 + 4.0 * 1.75 / 1.625 * (2.5f64 / 3.0).powi(2))).abs() < 1e-12, "{found}");
    }

    /// Up the ridge where `a` grows and `b` goes to one nothing solves the equations. All solutions from a grid of 520 places, in Python by
    /// `log1p`: there is one.
    #[test]
    fn a_ridge_is_no_solution() {
        for (counts, population, expected) in [
            (vec![(1, 100), (2, 2)], 988, 0.916_053_842),
            (vec![(1, 1000), (2, 20)], 8320, 0.915_627_815),
            (vec![(1, 20), (2, 1), (3, 20)], 8200, 0.031_146_111),
            (vec![(1, 200), (2, 1)], 1000, 0.977_989_727),
        ] {
            let found = chen(&ClassSizes::new(counts.iter().copied(), 0), population).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-6, "{counts:?}: {found} {expected}");
        }
    }

    #[test]
    fn no_pairs_no_answer() {
        assert_eq!(chen(&ClassSizes::new([(1, 50)], 0), 1000), None);
    }

    /// A population drawn from the law itself.
    #[test]
    fn a_population_of_the_law() {
        let mut rng = StdRng::seed_from_u64(3);
        let weights = law(0.8, 0.15);
        let mut draw = || {
            let mut left: f64 = rng.random();
            1 + weights
                .iter()
                .take_while(|weight| {
                    left -= **weight;
                    left > 0.0
                })
                .count()
        };
        let people: Vec<usize> = (0..8000).flat_map(|class| std::iter::repeat_n(class, draw())).collect();
        let truth = ClassSizes::from_labels(&people).classes_of(1) as f64 / people.len() as f64;
        let mut rng = StdRng::seed_from_u64(4);
        let sample = ClassSizes::from_labels(people.iter().filter(|_| rng.random::<f64>() < 0.4));
        let found = chen(&sample, people.len() as u64).unwrap();
        assert!((found / truth - 1.0).abs() < 0.3, "{found} {truth}");
    }
}
