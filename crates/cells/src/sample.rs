//! From a seed to the mask of a chunk and of one row.
//!
//! A chunk is one seeded GLWE ciphertext `(A(X), B(X))`; row `i` is its sample extraction at
//! coefficient `i`, an LWE sample with mask `a_j = A_{i-j}` for `j <= i` and `a_j = -A_{N+i-j}` for
//! `j > i` (Chillotti, Gama, Georgieva, Izabachène 2020, definition 4.4).

use tfhe::core_crypto::commons::math::random::Seed as TfheSeed;
use tfhe_csprng::generators::aes_ctr::{AES_CALLS_PER_BATCH, Aes128Key, AesBlockCipher};
use tfhe_csprng::generators::default::DefaultAes128BlockCipher;

use crate::Seed;
use crate::parameters::POLYNOMIAL_SIZE;

/// Words of one batch of the cipher.
const BATCH_WORDS: usize = 2 * AES_CALLS_PER_BATCH;

/// Expands a seed into the chunk's mask polynomial, exactly as tfhe decompresses a seeded GLWE ciphertext: AES-128 under
/// the seed, in counter mode from zero. tfhe's generator hands out single bytes, so its block cipher is used directly.
pub fn expand_mask(seed: Seed, mask: &mut [u64]) {
    let mut cipher = DefaultAes128BlockCipher::new(Aes128Key::new(u128::from_ne_bytes(seed.0)));
    for (batch, words) in mask.chunks_mut(BATCH_WORDS).enumerate() {
        let first = (batch * AES_CALLS_PER_BATCH) as u128;
        let bytes = cipher.generate_batch(std::array::from_fn(|call| (first + call as u128).to_le()));
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }
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

#[cfg(test)]
mod tests {
    use tfhe::core_crypto::commons::math::random::{DefaultRandomGenerator, RandomGenerator, Uniform};

    use super::*;

    #[test]
    fn masks_are_those_of_tfhe() {
        for (seed, length) in [(Seed([0; 16]), POLYNOMIAL_SIZE), (Seed(*b"0123456789abcdef"), 1), (Seed([255; 16]), 37)]
        {
            let (mut ours, mut theirs) = (vec![0u64; length], vec![0u64; length]);
            expand_mask(seed, &mut ours);
            RandomGenerator::<DefaultRandomGenerator>::new(tfhe_seed(seed))
                .fill_slice_with_random_from_distribution(&mut theirs, Uniform);
            assert_eq!(ours, theirs);
        }
    }
}
