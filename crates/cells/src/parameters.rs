//! The parameters of the cell scheme: GLWE of dimension 1 over `Z_{2^64}[X]/(X^4096 + 1)`, binary key.
//!
//! A message of 48 bits sits above 16 bits that absorb noise. Fresh noise is `TUniform(2^3)`: bounded by
//! 8 with certainty, standard deviation 4.6. With 4096 coefficients and a 64-bit modulus the
//! homomorphic encryption standard (Albrecht et al. 2018, table 1: 4096 coefficients allow a modulus
//! of up to 109 bits at 128-bit security) leaves a wide margin.

use crate::CellError;

#[cfg(all(feature = "small-vectors", not(debug_assertions)))]
compile_error!(
    "ciphertexts of the feature `small-vectors` hide nothing: it is for tests, and never for a release build"
);

/// Coefficients of one GLWE ciphertext, hence the number of messages that share a seed. A vector of slots, a parcel and whatever else is as long as a vector follow
/// from it, so that tests with the feature `small-vectors` meet the edges of all of them with few rows.
pub const POLYNOMIAL_SIZE: usize = if cfg!(feature = "small-vectors") { 32 } else { 4096 };

/// Bits of a message. Numbers are signed; text uses all 48 bits modulo `2^48`.
pub const MESSAGE_BITS: u32 = 48;

/// Bits below the message.
pub const NOISE_BITS: u32 = 16;

/// Base-two logarithm of the bound of fresh noise.
pub const FRESH_NOISE_LOG2: u32 = 3;

/// The largest absolute noise of a freshly encrypted message.
pub const FRESH_NOISE: u64 = 1 << FRESH_NOISE_LOG2;

/// Bytes of text in one lane.
pub const TEXT_BYTES_PER_LANE: usize = (MESSAGE_BITS / 8) as usize;

/// The most lanes a cell may have: all of them come from one chunk.
pub const MAX_LANES: usize = if POLYNOMIAL_SIZE < 255 { POLYNOMIAL_SIZE } else { 255 };

/// The largest absolute value that a number in a cell may take.
pub(crate) const MAX_MAGNITUDE: u64 = (1 << (MESSAGE_BITS - 1)) - 1;

/// Moves a message above the noise bits. Only its low 48 bits count.
#[inline]
pub const fn phase_of_message(message: i64) -> u64 {
    (message as u64) << NOISE_BITS
}

/// Rounds the noise away and returns the signed message.
#[inline]
pub const fn message_of_phase(phase: u64) -> i64 {
    (phase.wrapping_add(1 << (NOISE_BITS - 1)) as i64) >> NOISE_BITS
}

/// Equality tags are numbers modulo this prime, which is the plaintext modulus of slots: a tag in a lane and the same tag in a
/// slot add up, and are masked, modulo the same number, so that a tag goes from one to the other without a carry.
pub const TAG_MODULUS: u64 = 281_474_976_694_273;

/// `2^112 / t - 2^64`, rounded.
const TAG_STEP: u128 = 1073676288;

/// Spreads the tags over all phases: `tag * 2^64 / t`, to within one unit of the last place.
#[inline]
pub const fn phase_of_tag(tag: u64) -> u64 {
    (tag << NOISE_BITS).wrapping_add(((tag as u128 * TAG_STEP + (1 << 47)) >> 48) as u64)
}

/// Rounds the noise away and returns the tag.
#[inline]
pub const fn tag_of_phase(phase: u64) -> u64 {
    let tag = ((phase as u128 * TAG_MODULUS as u128 + (1 << 63)) >> 64) as u64;
    if tag == TAG_MODULUS { 0 } else { tag }
}

/// Refuses a bound on a number's magnitude that does not fit the message space.
pub(crate) fn checked_magnitude(bound: Option<u64>) -> Result<u64, CellError> {
    bound.filter(|bound| *bound <= MAX_MAGNITUDE).ok_or(CellError::MessageOverflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_any_noise_below_half_a_step() {
        for message in [0, 1, -1, 4711, -(1 << 47), (1 << 47) - 1] {
            for noise in [0i64, 1, -1, (1 << 15) - 1, -(1 << 15)] {
                let phase = phase_of_message(message).wrapping_add(noise as u64);
                assert_eq!(message_of_phase(phase), message, "noise {noise}");
            }
        }
    }

    /// Sums of tags wrap modulo the prime, with noise up to a quarter of a step.
    #[test]
    fn tags_add_up_modulo_the_prime() {
        let tags = [0, 1, 2, TAG_MODULUS / 2, TAG_MODULUS / 2 + 1, 0x1234_5678_9abc, TAG_MODULUS - 2, TAG_MODULUS - 1];
        for a in tags {
            let exact = ((u128::from(a) << 64) + u128::from(TAG_MODULUS) / 2) / u128::from(TAG_MODULUS);
            assert!((exact as u64).abs_diff(phase_of_tag(a)) <= 1);
            for b in tags {
                for noise in [0i64, 1 << 14, -(1 << 14)] {
                    let phase = phase_of_tag(a).wrapping_add(phase_of_tag(b)).wrapping_add(noise as u64);
                    assert_eq!(tag_of_phase(phase), (a + b) % TAG_MODULUS);
                }
            }
        }
    }

    #[test]
    fn half_a_step_of_noise_is_too_much() {
        let phase = phase_of_message(7).wrapping_add(1 << (NOISE_BITS - 1));
        assert_ne!(message_of_phase(phase), 7);
    }
}
