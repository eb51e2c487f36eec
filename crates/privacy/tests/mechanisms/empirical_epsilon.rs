//! What an attacker could measure: the epsilon that a million outputs on each of two inputs prove.
//!
//! The bound holds with confidence 1 - 10^-6. Right mechanisms must stay below their epsilon, and the same function
//! must convict wrong ones, or it would be worth nothing.

use crate::distributions::grid_noise;
use crate::{epsilon, seeded};
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use veil_privacy::statistics::{counts, worst_log_ratio_lower_bound};
use veil_privacy::{
    BinaryMechanism, DiscreteLaplace, ExponentialMechanism, GridLaplace, LaplaceMechanism, Losses, RandomizedResponse,
};

const OUTPUTS: usize = 1_000_000;

/// The epsilon that outputs on two inputs prove.
fn proven_epsilon(inputs: [i64; 2], seed: u64, mechanism: impl Fn(i64, &mut StdRng) -> i64) -> f64 {
    let mut rng = seeded(seed);
    let mut outputs = |input: i64| -> BTreeMap<i64, u64> { counts((0..OUTPUTS).map(|_| mechanism(input, &mut rng))) };
    let [one, other] = [outputs(inputs[0]), outputs(inputs[1])];
    worst_log_ratio_lower_bound(&one, &other, 1.0 - 1e-6)
}

/// Not above epsilon, and near enough that the test means something.
fn check(proven: f64, epsilon: f64) {
    assert!(proven <= epsilon, "{proven} is proven, more than {epsilon}");
    assert!(proven >= 0.8 * epsilon, "only {proven} of {epsilon} is proven: more samples are needed");
}

#[test]
fn numbers_cost_no_more_than_epsilon() {
    for (diameter, eps) in [(10, "0.5"), (100, "1"), (1, "2")] {
        let limit = epsilon(eps).to_f64();
        let laplace = LaplaceMechanism::new(diameter, epsilon(eps)).unwrap();
        let ends = [-5, diameter as i64 - 5];
        check(proven_epsilon(ends, 30, |input, rng| input + laplace.noise(rng)), limit);
        let grid = GridLaplace::new(epsilon(eps));
        check(proven_epsilon(ends, 31, |input, rng| input + grid_noise(&grid, diameter, rng)), limit);
    }
}

#[test]
fn categories_cost_no_more_than_epsilon() {
    let limit = epsilon("1").to_f64();
    let binary = BinaryMechanism::new(epsilon("1"));
    check(proven_epsilon([0, 1], 32, |input, rng| input ^ i64::from(binary.flips(rng))), limit);
    let response = RandomizedResponse::new(6, epsilon("1")).unwrap();
    check(proven_epsilon([0, 5], 33, |input, rng| response.draw(rng).answer(input as usize) as i64), limit);
    let exponential = ExponentialMechanism::new(Losses::order(3).unwrap(), epsilon("1"));
    let proven = proven_epsilon([0, 2], 34, |input, rng| {
        let mut answers = [0; 3];
        exponential.draw_all(&mut answers, rng);
        i64::from(answers[input as usize])
    });
    // Both ends have the same sum of weights, so only the half of epsilon that is meant for the weights is spent.
    check(proven, limit / 2.0);
}

#[test]
fn half_the_noise_is_caught() {
    let half = DiscreteLaplace::new(100, 2).unwrap();
    let proven = proven_epsilon([0, 100], 35, |input, rng| input + half.sample(rng));
    assert!(proven > 1.5, "{proven}");
}

#[test]
fn a_little_less_noise_is_caught() {
    // Nine tenths of the scale.
    let less = DiscreteLaplace::new(90, 1).unwrap();
    let proven = proven_epsilon([0, 100], 36, |input, rng| input + less.sample(rng));
    assert!(proven > 1.0, "{proven}");
}

#[test]
fn noise_on_a_coarse_lattice_is_caught() {
    // Steps of a 32nd of the diameter, as the grid alone would give: the right scale, but it shows the residue.
    let steps = DiscreteLaplace::new(32, 1).unwrap();
    let proven = proven_epsilon([0, 127], 37, |input, rng| input + 4 * steps.sample(rng));
    assert!(proven > 3.0, "{proven}");
}

#[test]
fn a_flip_too_seldom_is_caught() {
    let binary = BinaryMechanism::new(epsilon("1.1"));
    let proven = proven_epsilon([0, 1], 38, |input, rng| input ^ i64::from(binary.flips(rng)));
    assert!(proven > 1.0, "{proven}");
}
