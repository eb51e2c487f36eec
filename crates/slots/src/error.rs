//! What can go wrong with slots.

use crate::parameters::DEGREE;

/// An error about slots. Each is one sentence.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotError {
    /// The bytes are not a ciphertext.
    #[error("malformed slot ciphertext: {0}; the message was damaged or comes from another version")]
    Malformed(&'static str),

    /// The ciphertext's noise is too large to hide.
    #[error(
        "a ciphertext on its way to P2 has noise 2^{noise_bits:.1}, and flooding hides up to 2^{limit_bits:.1}: \
         add up fewer terms before sending"
    )]
    NoiseBudget {
        /// Base-two logarithm of its noise.
        noise_bits: f64,
        /// Base-two logarithm of the limit.
        limit_bits: f64,
    },

    /// More numbers than slots.
    #[error("{0} numbers do not fit into {degree} slots", degree = DEGREE)]
    TooMany(usize),

    /// A number that is not reduced.
    #[error("{0} is not a number modulo the plaintext prime")]
    NotReduced(u64),
}
