//! The exponential mechanism over categories: near mistakes are likelier than far ones.
//!
//! **Function.** truth -> answer, with probability proportional to exp(-epsilon * loss(truth, answer) / (2 max)), where
//! max is the largest loss.
//!
//! **Privacy map.** Any two truths cost at most epsilon.
//!
//! **Proof.** The utility -loss / max lies in [-1, 0], so two truths change it by at most 1: its sensitivity. The
//! weight of an answer then changes by a factor of at most exp(epsilon / 2), and the sum of the weights by another.
//!
//! **Sampler.** An answer is proposed uniformly and accepted if its loss is at most G, with P(G >= n) =
//! exp(-epsilon * n / (2 max)). The first accepted one has the distribution of the mechanism, exactly. The same
//! proposals serve every possible truth: each takes the first that it accepts. Answers for different truths depend on
//! each other, and that harms nothing as long as only the one for the truth is ever used.
//!
//! McSherry, Talwar, "Mechanism Design via Differential Privacy" (2007).

use crate::bernoulli::{geometric_exp, uniform_below};
use crate::epsilon::Epsilon;
use crate::losses::Losses;
use rand::CryptoRng;

/// Answers about one of several categories, by their losses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExponentialMechanism {
    losses: Losses,
    epsilon: Epsilon,
}

impl ExponentialMechanism {
    /// Of losses and an epsilon.
    pub fn new(losses: Losses, epsilon: Epsilon) -> Self {
        Self { losses, epsilon }
    }

    /// Categories.
    pub fn categories(&self) -> usize {
        self.losses.categories()
    }

    /// One answer for every possible truth, at the place of the truth.
    ///
    /// Takes about k ln k proposals for k categories at most, and never more time for one truth than for another.
    /// Places past the last category stay as they are; truths without a place get no answer.
    pub fn draw_all<R: CryptoRng + ?Sized>(&self, answers: &mut [u32], rng: &mut R) {
        let categories = self.categories();
        let (numerator, denominator) = self.epsilon.ratio();
        // Below 2^33 million, hence below 2^53.
        let scale = 2 * u64::from(self.losses.max()) * denominator;
        let mut waiting: Vec<usize> = (0..categories.min(answers.len())).collect();
        while !waiting.is_empty() {
            let answer = uniform_below(categories as u64, rng);
            let accepted = geometric_exp(scale, numerator, rng);
            let losses = self.losses.of_answer(answer as usize);
            waiting.retain(|truth| {
                let waits = u64::from(losses[*truth]) > accepted;
                if !waits {
                    answers[*truth] = answer as u32;
                }
                waits
            });
        }
    }

    /// The probability of an answer given the truth, to the nearest float; zero for numbers that are no categories.
    pub fn probability(&self, truth: usize, answer: usize) -> f64 {
        let rate = self.epsilon.to_f64() / (2.0 * f64::from(self.losses.max()));
        let weight = |answer| self.losses.of(truth, answer).map_or(0.0, |loss| (-rate * f64::from(loss)).exp());
        let total: f64 = (0..self.categories()).map(weight).sum();
        if total > 0.0 { weight(answer) / total } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn mechanism(epsilon: &str) -> ExponentialMechanism {
        let losses = Losses::new(&[vec![0, 1, 3], vec![1, 0, 1], vec![3, 2, 0]]).unwrap();
        ExponentialMechanism::new(losses, epsilon.parse().unwrap())
    }

    #[test]
    fn no_two_truths_cost_more_than_epsilon() {
        for epsilon in ["0.1", "1", "5"] {
            let mechanism = mechanism(epsilon);
            for truth in 0..3 {
                let total: f64 = (0..3).map(|answer| mechanism.probability(truth, answer)).sum();
                assert!((total - 1.0).abs() < 1e-12);
                for (other, answer) in (0..3).flat_map(|other| (0..3).map(move |answer| (other, answer))) {
                    let ratio = mechanism.probability(truth, answer) / mechanism.probability(other, answer);
                    assert!(ratio.ln() <= epsilon.parse::<f64>().unwrap(), "{ratio}");
                }
            }
        }
        assert_eq!(mechanism("1").probability(3, 0), 0.0);
        assert_eq!(mechanism("1").probability(0, 3), 0.0);
    }

    #[test]
    fn a_large_epsilon_gives_the_truth() {
        let mechanism = ExponentialMechanism::new(Losses::equality(50).unwrap(), Epsilon::MAX);
        let mut answers = vec![0; 50];
        mechanism.draw_all(&mut answers, &mut StdRng::seed_from_u64(1));
        assert!(answers.iter().enumerate().all(|(truth, answer)| truth == *answer as usize));
    }

    #[test]
    fn answers_without_a_truth_are_left_alone() {
        let mut rng = StdRng::seed_from_u64(2);
        let mut more = [7; 5];
        mechanism("1").draw_all(&mut more, &mut rng);
        assert!(more[..3].iter().all(|answer| *answer < 3) && more[3..] == [7, 7]);
        let mut fewer = [7; 2];
        mechanism("1").draw_all(&mut fewer, &mut rng);
        assert!(fewer.iter().all(|answer| *answer < 3));
        mechanism("1").draw_all(&mut [], &mut rng);
    }
}
