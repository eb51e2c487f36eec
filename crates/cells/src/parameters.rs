//! The parameters of the cell scheme: GLWE of dimension 1 over `Z_{2^64}[X]/(X^4096 + 1)`, binary key.
//!
//! A message of 48 bits sits above 16 bits that absorb noise. Fresh noise is `TUniform(2^3)`: bounded by
//! 8 with certainty, standard deviation 4.6. With 4096 coefficients and a 64-bit modulus the
//! homomorphic encryption standard (Albrecht et al. 2018, table 1: 4096 coefficients allow a modulus
//! of up to 109 bits at 128-bit security) leaves a wide margin.

use crate::CellError;

/// Coefficients of one GLWE ciphertext, hence the number of messages that share a seed.
pub const POLYNOMIAL_SIZE: usize = 4096;

/// Bits of a message. Numbers are signed; text and tags use all 48 bits modulo `2^48`.
pub const MESSAGE_BITS: u32 = 48;

/// Bits below the message.
pub const NOISE_BITS: u32 = 16;

/// Base-two logarithm of the bound of fresh noise.
pub const FRESH_NOISE_LOG2: u32 = 3;

/// The largest absolute noise of a freshly encrypted message.
pub const FRESH_NOISE: u64 = 1 << FRESH_NOISE_LOG2;

/// Bytes of text in one lane.
pub const TEXT_BYTES_PER_LANE: usize = (MESSAGE_BITS / 8) as usize;

/// The most lanes a cell may have.
pub const MAX_LANES: usize = 255;

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

    #[test]
    fn half_a_step_of_noise_is_too_much() {
        let phase = phase_of_message(7).wrapping_add(1 << (NOISE_BITS - 1));
        assert_ne!(message_of_phase(phase), 7);
    }
}
