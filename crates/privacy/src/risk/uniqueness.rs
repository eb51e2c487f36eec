//! How many people are the only ones of their kind in a population of which the table is a sample.
//!
//! Every estimator gives the same thing: the expected share of the population's rows that are unique in the population, `U_1 / P`. A
//! simple random sample has the same expected share, `f U_1 / (f P)`: it is also the share of published rows that nobody can be
//! mistaken for. All agree where nothing is to be estimated:
//!
//! - no row of the sample is unique: the answer is 0, since what is unique in the population is unique in any sample;
//! - the sample is the population: the answer is the share of unique rows.
//!
//! Which one to believe is the rule of Dankar et al. 2012 ("Estimating the re-identification risk of clinical data sets"): Hoshino's
//! up to a tenth of the population, above it the lower one of Chen's and Zayatz's.

use super::{chen, hoshino, zayatz};
use crate::ClassSizes;
use crate::class_sizes::ratio;

/// Above this share of the population Hoshino's estimator is not used.
const SMALL_SAMPLE: f64 = 0.1;

/// Whose estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimator {
    /// Zayatz 1991.
    Zayatz,
    /// Chen and Keller-McNulty 1998.
    Chen,
    /// Hoshino 2001.
    Hoshino,
}

/// Expected shares of rows that are unique in the population. An estimator whose equations have no solution says nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PopulationUniqueness {
    /// By the conditional probability that a class was of one row before it was sampled.
    pub zayatz: Option<f64>,
    /// By the slide negative binomial distribution of class sizes.
    pub chen: Option<f64>,
    /// By Pitman's sampling formula.
    pub hoshino: Option<f64>,
    /// The table as a share of the population.
    pub sampled: f64,
}

impl PopulationUniqueness {
    /// Of a table with these classes, drawn from so many people. A population smaller than the table is the table.
    pub fn of(sizes: &ClassSizes, population: u64) -> Self {
        Self {
            zayatz: zayatz(sizes, population),
            chen: chen(sizes, population),
            hoshino: hoshino(sizes, population),
            sampled: ratio(sizes.rows(), population.max(sizes.rows())),
        }
    }

    /// The estimate to believe, and whose it is.
    pub fn best(&self) -> Option<(Estimator, f64)> {
        let by = |estimator: Estimator, share: Option<f64>| share.map(|share| (estimator, share));
        let zayatz = by(Estimator::Zayatz, self.zayatz);
        if self.sampled <= SMALL_SAMPLE {
            return by(Estimator::Hoshino, self.hoshino).or(zayatz);
        }
        match (self.chen, self.zayatz) {
            (Some(chen), Some(zayatz)) if zayatz < chen => Some((Estimator::Zayatz, zayatz)),
            (chen, _) => by(Estimator::Chen, chen).or(zayatz),
        }
    }
}

/// The answer where there is nothing to estimate.
pub(super) fn certain(sizes: &ClassSizes, population: u64) -> Option<f64> {
    let (unique, rows) = (sizes.classes_of(1), sizes.rows());
    (unique == 0 || population <= rows).then(|| ratio(unique, rows))
}

/// A share, if a computation came to one.
pub(super) fn share(value: f64) -> Option<f64> {
    value.is_finite().then(|| value.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

    use super::*;

    #[test]
    fn nothing_to_estimate() {
        for (sizes, population, expected) in [
            (ClassSizes::new([(2, 10), (5, 3)], 1), 1000, 0.0),
            (ClassSizes::new([(1, 5), (5, 3)], 1), 20, 0.25),
            (ClassSizes::new([(1, 5), (5, 3)], 1), 3, 0.25),
            (ClassSizes::new([], 4), 100, 0.0),
        ] {
            let found = PopulationUniqueness::of(&sizes, population);
            assert_eq!([found.zayatz, found.chen, found.hoshino], [Some(expected); 3]);
        }
    }

    /// Zayatz by exact fractions, Chen by Newton's method from a grid of places, Hoshino by nested golden sections of the likelihood and
    /// `lgamma`: all in Python.
    #[test]
    fn as_computed_elsewhere() {
        for (counts, population, zayatz, chen, hoshino) in [
            (
                vec![(1, 400), (2, 60), (3, 20), (4, 9), (5, 4), (9, 1)],
                3000,
                0.444_912_849,
                0.374_242_31,
                Some(0.338_528_932),
            ),
            (vec![(1, 30), (2, 8), (3, 4), (7, 1)], 300, 0.268_292_543, 0.197_837_8, Some(0.164_726_591)),
            (vec![(1, 100), (2, 2)], 988, 0.928_282_074, 0.916_053_842, None),
        ] {
            let found = PopulationUniqueness::of(&ClassSizes::new(counts.iter().copied(), 0), population);
            let close = |found: Option<f64>, expected: f64, within: f64| {
                let found = found.unwrap();
                assert!((found / expected - 1.0).abs() < within, "{counts:?}: {found} {expected}");
            };
            close(found.zayatz, zayatz, 1e-8);
            close(found.chen, chen, 1e-6);
            hoshino.iter().for_each(|expected| close(found.hoshino, *expected, 1e-6));
        }
    }

    #[test]
    fn the_rule_of_choice() {
        let all = PopulationUniqueness { zayatz: Some(0.3), chen: Some(0.2), hoshino: Some(0.1), sampled: 0.1 };
        assert_eq!(all.best(), Some((Estimator::Hoshino, 0.1)));
        assert_eq!(PopulationUniqueness { hoshino: None, ..all }.best(), Some((Estimator::Zayatz, 0.3)));
        let large = PopulationUniqueness { sampled: 0.11, ..all };
        assert_eq!(large.best(), Some((Estimator::Chen, 0.2)));
        assert_eq!(PopulationUniqueness { chen: Some(0.4), ..large }.best(), Some((Estimator::Zayatz, 0.3)));
        assert_eq!(PopulationUniqueness { chen: None, ..large }.best(), Some((Estimator::Zayatz, 0.3)));
        assert_eq!(PopulationUniqueness { zayatz: None, chen: None, ..large }.best(), None);
    }

    /// A town: age, district, trade and children, each of them skewed. The truth is counted.
    #[test]
    fn a_town_whose_truth_is_known() {
        let mut rng = StdRng::seed_from_u64(11);
        let mut skewed = |most: f64| (rng.random::<f64>().powi(2) * most) as u32;
        let mut people: Vec<_> = (0..40_000).map(|_| (skewed(80.0), skewed(20.0), skewed(8.0), skewed(3.0))).collect();
        let mut kinds = HashMap::new();
        people.iter().for_each(|person| *kinds.entry(*person).or_insert(0u32) += 1);
        let truth = kinds.values().filter(|size| **size == 1).count() as f64 / people.len() as f64;
        assert!((0.1..0.3).contains(&truth), "{truth}");
        people.shuffle(&mut StdRng::seed_from_u64(12));
        for sampled in [20, 5, 2] {
            let sizes = ClassSizes::from_labels(people.iter().take(people.len() / sampled));
            let found = PopulationUniqueness::of(&sizes, people.len() as u64);
            let (whose, best) = found.best().unwrap();
            assert_eq!(whose == Estimator::Hoshino, sampled == 20);
            assert!((0.5 * truth..2.0 * truth).contains(&best), "1/{sampled}: {best} for {truth}, {found:?}");
            assert!(found.zayatz.unwrap() <= ratio(sizes.classes_of(1), sizes.rows()));
        }
    }
}
