//! How likely people are found again in a published table, from the sizes of its classes alone.
//!
//! Three attackers (El Emam 2013, "Guide to the De-Identification of Personal Health Information"). With `f_j` published rows in
//! class j, `n` in all, and `F_j` people of the population that look like class j:
//!
//! ```text
//! prosecutor   knows that a person is in the table           1 / f_j      average: classes / n
//! journalist   wants any person, knows only the population   1 / F_j      average: (1/n) sum f_j / F_j
//! marketer     wants many, counts how many links are right                (1/n) sum f_j / F_j
//! ```
//! A population whose size is known, but not its classes, is taken to look like the table: `F_j = f_j * population / n`. Without a
//! population the table is all there is, and `F_j = f_j`. Both averages of the last two attackers are then the same number.
//!
//! How many rows are the only ones of their kind in the population is another question: [`PopulationUniqueness`].

pub mod chen;
mod gamma;
pub mod hoshino;
pub mod uniqueness;
pub mod zayatz;

pub use chen::chen;
pub use hoshino::hoshino;
pub use uniqueness::{Estimator, PopulationUniqueness};
pub use zayatz::zayatz;

use crate::ClassSizes;
use crate::class_sizes::ratio;

/// Probabilities of being found, of published rows. All are zero if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Risk {
    /// Of the row that is easiest to find, for who knows that it is there.
    pub prosecutor_max: f64,
    /// Of a row on average, for who knows that it is there.
    pub prosecutor_average: f64,
    /// Of the row that is easiest to find, for who knows the population.
    pub journalist_max: f64,
    /// Of a row on average, for who knows the population.
    pub journalist_average: f64,
    /// The share of rows that are linked rightly if all are linked.
    pub marketer: f64,
    /// The share of rows that are alone in their class.
    pub share_below_2: f64,
    /// The share of rows in classes of fewer than 5.
    pub share_below_5: f64,
    /// The share of rows in classes of fewer than 10.
    pub share_below_10: f64,
}

impl Risk {
    /// Of a table with these classes, drawn from so many people. A population smaller than the table is none.
    pub fn of(sizes: &ClassSizes, population: Option<u64>) -> Self {
        let rows = sizes.rows();
        let people = population.unwrap_or(rows).max(rows);
        let prosecutor_max = ratio(1, sizes.smallest());
        let prosecutor_average = ratio(sizes.classes(), rows);
        let sampled = ratio(rows, people);
        let share_below = |k| ratio(sizes.rows_below(k), rows);
        Self {
            prosecutor_max,
            prosecutor_average,
            journalist_max: prosecutor_max * sampled,
            journalist_average: prosecutor_average * sampled,
            marketer: prosecutor_average * sampled,
            share_below_2: share_below(2),
            share_below_5: share_below(5),
            share_below_10: share_below(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_small_table_by_hand() {
        // Classes of 1, 4, 5 and 10 rows.
        let sizes = ClassSizes::new([(1, 1), (4, 1), (5, 1), (10, 1)], 3);
        let alone = Risk::of(&sizes, None);
        assert_eq!((alone.prosecutor_max, alone.prosecutor_average), (1.0, 0.2));
        assert_eq!((alone.journalist_max, alone.journalist_average, alone.marketer), (1.0, 0.2, 0.2));
        assert_eq!((alone.share_below_2, alone.share_below_5, alone.share_below_10), (0.05, 0.25, 0.5));
        // Among 80 people every class stands for four times as many.
        let among = Risk::of(&sizes, Some(80));
        assert_eq!((among.prosecutor_max, among.prosecutor_average, among.share_below_2), (1.0, 0.2, 0.05));
        assert_eq!((among.journalist_max, among.journalist_average, among.marketer), (0.25, 0.05, 0.05));
        assert_eq!(Risk::of(&sizes, Some(7)), alone);
    }

    #[test]
    fn no_rows_have_no_risk() {
        assert_eq!(Risk::of(&ClassSizes::new([], 9), Some(100)), Risk::default());
    }

    proptest! {
        /// Class by class, as the definitions are written.
        #[test]
        fn the_sums_of_the_definitions(sizes in proptest::collection::vec(1u64..30, 1..40), factor in 1u64..50) {
            let histogram = ClassSizes::new(sizes.iter().map(|size| (*size, 1)), 0);
            let rows: u64 = sizes.iter().sum();
            let risk = Risk::of(&histogram, Some(rows * factor));
            let people: Vec<f64> = sizes.iter().map(|size| (size * factor) as f64).collect();
            let marketer = sizes.iter().zip(&people).map(|(size, people)| *size as f64 / people).sum::<f64>() / rows as f64;
            let prosecutor = sizes.iter().map(|size| *size as f64 * (1.0 / *size as f64)).sum::<f64>() / rows as f64;
            let journalist = people.iter().map(|people| 1.0 / people).fold(0.0, f64::max);
            prop_assert!((risk.marketer - marketer).abs() < 1e-12);
            prop_assert!((risk.journalist_max - journalist).abs() < 1e-12);
            prop_assert!((risk.prosecutor_average - prosecutor).abs() < 1e-12);
        }
    }
}
