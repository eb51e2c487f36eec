//! The binary mechanism: one of two values, or the other one.
//!
//! **Function.** value -> the other value with probability 1 / (1 + exp(epsilon)), else value.
//!
//! **Privacy map.** The two values cost epsilon.
//!
//! **Proof.** An answer is given for its own value with probability exp(epsilon) / (1 + exp(epsilon)) and for the other
//! one with 1 / (1 + exp(epsilon)); the ratio is exp(epsilon).
//!
//! Warner, "Randomized Response: A Survey Technique for Eliminating Evasive Answer Bias" (1965).

use crate::bernoulli::bernoulli_exp;
use crate::epsilon::Epsilon;
use rand::CryptoRng;

/// Flips of an epsilon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryMechanism {
    epsilon: Epsilon,
}

impl BinaryMechanism {
    /// Of an epsilon.
    pub fn new(epsilon: Epsilon) -> Self {
        Self { epsilon }
    }

    /// Whether the other value is answered.
    ///
    /// A fair coin proposes, to keep or to flip; a flip stands with probability exp(-epsilon), else all starts again.
    /// That gives odds of exp(-epsilon) to 1, exactly.
    #[inline]
    pub fn flips<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> bool {
        let (numerator, denominator) = self.epsilon.ratio();
        loop {
            if rng.next_u32() & 1 == 0 {
                return false;
            }
            if bernoulli_exp(numerator, denominator, rng) {
                return true;
            }
        }
    }

    /// The probability of a flip, to the nearest float.
    pub fn flip_probability(&self) -> f64 {
        1.0 / (1.0 + self.epsilon.to_f64().exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odds_are_epsilon() {
        let flips = BinaryMechanism::new("1.5".parse().unwrap()).flip_probability();
        assert!((((1.0 - flips) / flips).ln() - 1.5).abs() < 1e-12);
        assert_eq!(BinaryMechanism::new(Epsilon::MAX).flip_probability(), 0.0);
    }
}
