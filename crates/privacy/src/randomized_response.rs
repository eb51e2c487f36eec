//! Randomised response over categories: the true one, or any other.
//!
//! **Function.** truth -> truth with probability exp(epsilon) / (exp(epsilon) + k - 1), else one of the k - 1 other
//! categories, all alike.
//!
//! **Privacy map.** Any two categories cost epsilon.
//!
//! **Proof.** An answer has probability exp(epsilon) / (exp(epsilon) + k - 1) for its own category and
//! 1 / (exp(epsilon) + k - 1) for every other; the ratio is exp(epsilon).
//!
//! Kairouz, Bonawitz, Ramage, "Discrete Distribution Estimation under Local Privacy" (2016): optimal for large epsilon.

use crate::bernoulli::{bernoulli_exp, bernoulli_two_over_e, uniform_below};
use crate::epsilon::Epsilon;
use crate::losses::CategoryError;
use rand::CryptoRng;

/// Answers about one of several categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomizedResponse {
    categories: u64,
    epsilon: Epsilon,
    /// The whole part of epsilon that the proposal takes care of, see [`RandomizedResponse::draw`].
    proposed: u32,
}

/// One draw: an answer for every possible truth, so that whoever draws need not know the truth.
///
/// Does not print: with the answer it gives the truth away.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// From the truth to the answer, around the circle of the categories.
    shift: u64,
    categories: u64,
}

impl RandomizedResponse {
    /// The most categories.
    pub const MAX_CATEGORIES: usize = 1 << 30;

    /// Over at least two categories.
    pub fn new(categories: usize, epsilon: Epsilon) -> Result<Self, CategoryError> {
        CategoryError::check_count(categories, Self::MAX_CATEGORIES)?;
        let (numerator, denominator) = epsilon.ratio();
        let categories = categories as u64;
        let enough = (categories - 1).next_power_of_two().trailing_zeros();
        let proposed = enough.min((numerator / denominator) as u32);
        Ok(Self { categories, epsilon, proposed })
    }

    /// One draw.
    ///
    /// Proposes the truth with weight 2^m and every other category with weight 1, and accepts the others with
    /// probability 2^m exp(-epsilon) = (2/e)^m exp(m - epsilon). The weights that remain are 1 and exp(-epsilon), for
    /// any whole m up to epsilon; a larger m proposes less in vain. With m = 0 a large epsilon over k categories
    /// would take k proposals, with this one it takes a handful.
    #[inline]
    pub fn draw<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> Response {
        let truth_weight = 1u64 << self.proposed;
        let (numerator, denominator) = self.epsilon.ratio();
        let rest = numerator - u64::from(self.proposed) * denominator;
        loop {
            let proposal = uniform_below(truth_weight + self.categories - 1, rng);
            let Some(other) = proposal.checked_sub(truth_weight) else {
                return Response { shift: 0, categories: self.categories };
            };
            if (0..self.proposed).all(|_| bernoulli_two_over_e(rng)) && bernoulli_exp(rest, denominator, rng) {
                return Response { shift: other + 1, categories: self.categories };
            }
        }
    }

    /// The probability of an answer given the truth, to the nearest float.
    pub fn probability(&self, truth: usize, answer: usize) -> f64 {
        let other = (-self.epsilon.to_f64()).exp();
        let total = 1.0 + (self.categories - 1) as f64 * other;
        if truth == answer { 1.0 / total } else { other / total }
    }
}

impl Response {
    /// The answer if this is the truth, counted modulo the number of categories.
    pub fn answer(&self, truth: usize) -> usize {
        // Both are below 2^30.
        ((truth as u64 % self.categories + self.shift) % self.categories) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn a_draw_answers_every_truth() {
        let mechanism = RandomizedResponse::new(5, "0.1".parse().unwrap()).unwrap();
        let mut rng = StdRng::seed_from_u64(1);
        for _ in 0..100 {
            let draw = mechanism.draw(&mut rng);
            let mut answers: Vec<_> = (0..5).map(|truth| draw.answer(truth)).collect();
            answers.sort_unstable();
            assert_eq!(answers, [0, 1, 2, 3, 4]);
            assert!(draw.answer(usize::MAX) < 5);
        }
    }

    #[test]
    fn probabilities_sum_to_one_and_differ_by_epsilon() {
        let mechanism = RandomizedResponse::new(7, "2.5".parse().unwrap()).unwrap();
        let total: f64 = (0..7).map(|answer| mechanism.probability(3, answer)).sum();
        assert!((total - 1.0).abs() < 1e-12);
        assert!(((mechanism.probability(3, 3) / mechanism.probability(2, 3)).ln() - 2.5).abs() < 1e-12);
    }

    #[test]
    fn extremes_neither_hang_nor_overflow() {
        let mut rng = StdRng::seed_from_u64(2);
        for categories in [2, 3, RandomizedResponse::MAX_CATEGORIES] {
            let certain = RandomizedResponse::new(categories, Epsilon::MAX).unwrap();
            assert!((0..100).all(|_| certain.draw(&mut rng).answer(1) == 1));
            let noisy = RandomizedResponse::new(categories, "0.000001".parse().unwrap()).unwrap();
            assert!((0..100).any(|_| noisy.draw(&mut rng).answer(1) != 1));
        }
    }

    #[test]
    fn one_category_is_no_choice() {
        for categories in [0, 1] {
            let refused = RandomizedResponse::new(categories, Epsilon::MAX);
            assert_eq!(refused, Err(CategoryError::TooFew { categories }));
        }
        let categories = RandomizedResponse::MAX_CATEGORIES + 1;
        let refused = RandomizedResponse::new(categories, Epsilon::MAX);
        assert_eq!(refused, Err(CategoryError::TooMany { categories, limit: categories - 1 }));
    }
}
