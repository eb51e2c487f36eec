//! From a seed to the mask of a chunk and of one row.
//!
//! A chunk is one seeded GLWE ciphertext `(A(X), B(X))`; row `i` is its sample extraction at
//! coefficient `i`, an LWE sample with mask `a_j = A_{i-j}` for `j <= i` and `a_j = -A_{N+i-j}` for
//! `j > i` (Chillotti, Gama, Georgieva, Izabachène 2020, definition 4.4).

use tfhe::core_crypto::commons::math::random::{DefaultRandomGenerator, RandomGenerator, Seed as TfheSeed, Uniform};

use crate::Seed;
use crate::parameters::POLYNOMIAL_SIZE;

/// Expands a seed into the chunk's mask polynomial, exactly as tfhe decompresses a seeded GLWE ciphertext.
pub fn expand_mask(seed: Seed, mask: &mut [u64]) {
    let mut generator = RandomGenerator::<DefaultRandomGenerator>::new(tfhe_seed(seed));
    generator.fill_slice_with_random_from_distribution(mask, Uniform);
}

/// The same seed in tfhe's type.
pub fn tfhe_seed(seed: Seed) -> TfheSeed {
    TfheSeed(u128::from_le_bytes(seed.0))
}

/// Adds `coefficient` times the LWE mask of row `index` to `into`.
pub(crate) fn add_extracted_mask(mask: &[u64], index: usize, coefficient: i64, into: &mut [u64]) {
    let coefficient = coefficient as u64;
    let (upto, beyond) = into.split_at_mut(index + 1);
    for (target, source) in upto.iter_mut().zip(mask[..=index].iter().rev()) {
        *target = target.wrapping_add(coefficient.wrapping_mul(*source));
    }
    for (target, source) in beyond.iter_mut().zip(mask[index + 1..].iter().rev()) {
        *target = target.wrapping_sub(coefficient.wrapping_mul(*source));
    }
    debug_assert_eq!(mask.len(), POLYNOMIAL_SIZE);
}
