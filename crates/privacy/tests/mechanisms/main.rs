//! The samplers and mechanisms against their mathematics, against OpenDP, and against what an attacker could measure.
//!
//! Seeds are fixed where the sampler takes one, so those tests pass or fail for good. A right sampler would fail one of
//! them for the fewest seeds: the rate is stated with each.

#![allow(clippy::unwrap_used, reason = "tests panic on failure")]

mod distributions;
mod empirical_epsilon;
mod oracle;

use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_privacy::Epsilon;

/// Samples of a distribution test.
const SAMPLES: usize = 100_000;

/// Seeds out of which one would fail a right sampler.
const FALSE_ALARM: f64 = 1e-6;

fn seeded(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

fn epsilon(text: &str) -> Epsilon {
    text.parse().unwrap()
}
