//! 10^5 samples of everything against its exact probabilities, false alarms in 10^-6 of the seeds.

use crate::{FALSE_ALARM, SAMPLES, epsilon, seeded};
use veil_privacy::statistics::chi_square;
use veil_privacy::{
    BinaryMechanism, DiscreteLaplace, Epsilon, ExponentialMechanism, GeometricMechanism, GridLaplace, LaplaceMechanism,
    Losses, RandomizedResponse, bernoulli, bernoulli_exp, geometric_exp, uniform_below,
};

/// Samples within plus or minus reach one a cell, the others in a last cell.
fn check(name: &str, reach: i64, samples: impl Iterator<Item = i64>, probability: impl Fn(i64) -> f64) {
    let cells = 2 * reach as usize + 1;
    let mut observed = vec![0; cells + 1];
    for sample in samples.take(SAMPLES) {
        observed[usize::try_from(sample + reach).map_or(cells, |cell| cell.min(cells))] += 1;
    }
    let mut expected: Vec<f64> = (-reach..=reach).map(|sample| probability(sample) * SAMPLES as f64).collect();
    // A right probability function leaves a little for the last cell; rounding may leave less than nothing.
    let rest = SAMPLES as f64 - expected.iter().sum::<f64>();
    assert!(rest > -1e-3, "{name}: probabilities sum to more than one");
    expected.push(rest.max(0.0));
    let distance = chi_square(&observed, &expected);
    assert!(distance.is_plausible(FALSE_ALARM), "{name}: {distance:?}");
}

fn check_coin(name: &str, mut coin: impl FnMut() -> bool, probability: f64) {
    let flips = std::iter::repeat_with(|| i64::from(coin()));
    check(name, 1, flips, |side| [0.0, 1.0 - probability, probability][(side + 1) as usize]);
}

#[test]
fn uniform_numbers() {
    let mut rng = seeded(1);
    for bound in [1, 2, 3, 10, 63, 64, 65, 100] {
        let samples = std::iter::repeat_with(|| uniform_below(bound, &mut rng) as i64);
        let share = |sample: i64| if (0..bound as i64).contains(&sample) { 1.0 / bound as f64 } else { 0.0 };
        check(&format!("uniform below {bound}"), bound as i64, samples, share);
    }
    // A bound that rejects a third of the words: the fourths of the range are still alike.
    let bound = u64::MAX / 3 * 2;
    let samples = std::iter::repeat_with(|| (uniform_below(bound, &mut rng) / (bound / 4 + 1)) as i64);
    check("wide", 4, samples, |fourth| if (0..4).contains(&fourth) { 0.25 } else { 0.0 });
}

#[test]
fn coins() {
    let mut rng = seeded(2);
    for (numerator, denominator) in [(1, 2), (1, 3), (999, 1000), (u64::MAX / 5, u64::MAX)] {
        let probability = numerator as f64 / denominator as f64;
        check_coin("bernoulli", || bernoulli(numerator, denominator, &mut rng), probability);
    }
}

#[test]
fn exponential_coins() {
    let mut rng = seeded(3);
    // Below one, one, above, far above, and denominators too large for the single draws.
    for (numerator, denominator) in [(1, 10), (1, 2), (9, 10), (1, 1), (3, 2), (5, 1), (1 << 62, (1 << 63) + 1)] {
        let probability = (-(numerator as f64) / denominator as f64).exp();
        check_coin("bernoulli_exp", || bernoulli_exp(numerator, denominator, &mut rng), probability);
    }
}

#[test]
fn geometric_counts() {
    let mut rng = seeded(4);
    for (numerator, denominator) in [(1, 1), (10, 1), (1, 3), (7, 2), (u64::MAX - 1, u64::MAX / 4)] {
        let samples = std::iter::repeat_with(|| geometric_exp(numerator, denominator, &mut rng) as i64);
        let p = (-(denominator as f64) / numerator as f64).exp();
        let mass = |count: i64| if count < 0 { 0.0 } else { p.powi(count as i32) * (1.0 - p) };
        check(&format!("geometric {numerator}/{denominator}"), 60, samples, mass);
    }
}

#[test]
fn discrete_laplace() {
    let mut rng = seeded(5);
    for (numerator, denominator) in [(1, 1), (20, 1), (1, 3), (7, 2), (1_000_000, 300_001), (u64::MAX, u64::MAX / 9)] {
        let noise = DiscreteLaplace::new(numerator, denominator).unwrap();
        let samples = std::iter::repeat_with(|| noise.sample(&mut rng));
        check(&format!("{noise:?}"), 100, samples, |sample| noise.probability(sample));
    }
}

#[test]
fn wide_discrete_laplace_in_steps() {
    // A scale of 2^40: cells of half a scale, whose mass is a difference of two tails.
    let scale = 1u64 << 40;
    let noise = DiscreteLaplace::new(scale, 1).unwrap();
    let mut samples = vec![0; SAMPLES];
    noise.fill(&mut samples, &mut seeded(6));
    let width = 1i64 << 39;
    let below = |sample: i64| {
        let x = sample as f64 / scale as f64;
        if x < 0.0 { 0.5 * x.exp() } else { 1.0 - 0.5 * (-x).exp() }
    };
    let mass = |step: i64| below((step + 1) * width) - below(step * width);
    check("wide", 30, samples.into_iter().map(|sample| sample.div_euclid(width)), mass);
}

#[test]
fn laplace_and_geometric_mechanisms() {
    let mut rng = seeded(7);
    for (diameter, eps) in [(1, "1"), (10, "0.5"), (33, "2.75"), (1, "0.1")] {
        let laplace = LaplaceMechanism::new(diameter, epsilon(eps)).unwrap();
        let samples = std::iter::repeat_with(|| laplace.noise(&mut rng));
        check(&format!("{laplace:?}"), 150, samples, |noise| laplace.probability(noise));
        let geometric = GeometricMechanism::new(diameter, epsilon(eps)).unwrap();
        let mut samples = vec![0; SAMPLES];
        geometric.fill(&mut samples, &mut rng);
        check(&format!("{geometric:?}"), 150, samples.into_iter(), |noise| geometric.probability(noise));
    }
}

/// The noise that both parties make together.
pub(crate) fn grid_noise(mechanism: &GridLaplace, diameter: u64, rng: &mut rand::rngs::StdRng) -> i64 {
    let z = mechanism.sample(rng);
    let v = uniform_below(diameter, rng) as i64;
    let r = uniform_below(1 << GridLaplace::GRID_BITS, rng) as i64;
    let diameter = diameter as i64;
    (diameter * z + v - diameter / 2 + r) >> GridLaplace::GRID_BITS
}

#[test]
fn grid_laplace_mechanism() {
    let mut rng = seeded(8);
    for (diameter, eps) in [(0, "1"), (1, "1"), (7, "0.5"), (32, "2"), (50, "1"), (100, "3.3")] {
        let mechanism = GridLaplace::new(epsilon(eps));
        let samples = std::iter::repeat_with(|| grid_noise(&mechanism, diameter, &mut rng));
        check(&format!("{mechanism:?} {diameter}"), 200, samples, |noise| mechanism.probability(diameter, noise));
    }
}

#[test]
fn binary_mechanism() {
    let mut rng = seeded(9);
    for eps in ["0.000001", "0.5", "1", "2.5", "8"] {
        let mechanism = BinaryMechanism::new(epsilon(eps));
        check_coin(eps, || mechanism.flips(&mut rng), mechanism.flip_probability());
    }
}

#[test]
fn randomized_response() {
    let mut rng = seeded(10);
    for (categories, eps) in [(2, "1"), (3, "0.5"), (10, "2.3"), (10, "6"), (40, "3.9"), (40, "0.1")] {
        let mechanism = RandomizedResponse::new(categories, epsilon(eps)).unwrap();
        for truth in [0, categories - 1] {
            let answers = std::iter::repeat_with(|| mechanism.draw(&mut rng).answer(truth) as i64);
            let mass = |answer: i64| match usize::try_from(answer) {
                Ok(answer) if answer < categories => mechanism.probability(truth, answer),
                _ => 0.0,
            };
            check(&format!("{mechanism:?} {truth}"), categories as i64, answers, mass);
        }
    }
}

#[test]
fn exponential_mechanism() {
    let mut rng = seeded(11);
    let codes: Vec<Vec<i64>> = (0..8).map(|leaf| vec![leaf, leaf / 2, leaf / 4, 0]).collect();
    let matrix = [vec![0, 1, 9], vec![4, 0, 4], vec![2, 3, 0]];
    let cases: [(Losses, Epsilon); 4] = [
        (Losses::equality(5).unwrap(), epsilon("1")),
        (Losses::order(6).unwrap(), epsilon("4.5")),
        (Losses::hierarchy(&codes).unwrap(), epsilon("2")),
        (Losses::new(&matrix).unwrap(), epsilon("0.3")),
    ];
    for (losses, eps) in cases {
        let categories = losses.categories();
        let mechanism = ExponentialMechanism::new(losses, eps);
        let mut answers = vec![0u32; categories];
        let mut rows = Vec::with_capacity(SAMPLES * categories);
        for _ in 0..SAMPLES {
            mechanism.draw_all(&mut answers, &mut rng);
            rows.extend_from_slice(&answers);
        }
        // Every truth on its own: only its own answer is ever used.
        for truth in 0..categories {
            let answers = rows.iter().skip(truth).step_by(categories).map(|answer| i64::from(*answer));
            let mass = |answer: i64| usize::try_from(answer).map_or(0.0, |answer| mechanism.probability(truth, answer));
            check(&format!("{eps} {truth}"), categories as i64, answers, mass);
        }
    }
}
