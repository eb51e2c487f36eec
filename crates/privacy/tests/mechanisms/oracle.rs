//! The samplers against OpenDP's, which follow the same paper on big rational numbers.
//!
//! OpenDP seeds itself, so these are the only tests that could fail by chance: in one run of 10^9.

use crate::{SAMPLES, seeded};
use dashu::integer::IBig;
use dashu::rational::RBig;
use opendp::traits::samplers::{sample_bernoulli_rational, sample_discrete_laplace};
use veil_privacy::statistics::chi_square_two_samples;
use veil_privacy::{DiscreteLaplace, bernoulli, bernoulli_exp};

const FALSE_ALARM: f64 = 1e-9;

fn ratio(numerator: u64, denominator: u64) -> RBig {
    RBig::from_parts(numerator.into(), denominator.into())
}

#[test]
fn discrete_laplace_is_opendps() {
    let mut rng = seeded(20);
    for (numerator, denominator) in [(1, 1), (30, 1), (10, 7), (2, 5)] {
        let noise = DiscreteLaplace::new(numerator, denominator).unwrap();
        let mut cells = [vec![0u64; 402], vec![0u64; 402]];
        let cell = |sample: i64| usize::try_from(sample + 200).map_or(401, |cell| cell.min(401));
        for _ in 0..SAMPLES {
            let theirs: IBig = sample_discrete_laplace(ratio(numerator, denominator)).unwrap();
            cells[0][cell(noise.sample(&mut rng))] += 1;
            cells[1][cell(i64::try_from(theirs).unwrap())] += 1;
        }
        let distance = chi_square_two_samples(&cells[0], &cells[1]);
        assert!(distance.is_plausible(FALSE_ALARM), "{noise:?}: {distance:?}");
    }
}

#[test]
fn coins_are_opendps() {
    let mut rng = seeded(21);
    for (numerator, denominator) in [(1, 3), (17, 19)] {
        let mut sides = [[0u64; 2]; 2];
        for _ in 0..SAMPLES {
            sides[0][usize::from(bernoulli(numerator, denominator, &mut rng))] += 1;
            sides[1][usize::from(sample_bernoulli_rational(ratio(numerator, denominator)).unwrap())] += 1;
        }
        let distance = chi_square_two_samples(&sides[0], &sides[1]);
        assert!(distance.is_plausible(FALSE_ALARM), "{distance:?}");
    }
}

#[test]
fn exponential_coins_are_opendps() {
    // OpenDP keeps its exponential coin to itself, but its noise shows it: a positive sample of scale 1 / x goes beyond
    // one with probability exp(-x).
    let mut rng = seeded(22);
    for (numerator, denominator) in [(1, 2), (5, 3)] {
        let mut sides = [[0u64; 2]; 2];
        while sides[1].iter().sum::<u64>() < SAMPLES as u64 {
            let theirs: IBig = sample_discrete_laplace(ratio(denominator, numerator)).unwrap();
            if theirs > IBig::ZERO {
                sides[1][usize::from(theirs > IBig::ONE)] += 1;
            }
        }
        for _ in 0..SAMPLES {
            sides[0][usize::from(bernoulli_exp(numerator, denominator, &mut rng))] += 1;
        }
        let distance = chi_square_two_samples(&sides[0], &sides[1]);
        assert!(distance.is_plausible(FALSE_ALARM), "{distance:?}");
    }
}
