//! How many classes of which size a published table has: all that risks of re-identification are computed from.
//!
//! A class holds the published rows that share all quasi-identifiers. Suppressed rows are in none.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A histogram of class sizes, and how many rows were suppressed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassSizes {
    /// Classes by size; neither is zero.
    counts: BTreeMap<u64, u64>,
    suppressed: u64,
}

impl ClassSizes {
    /// From pairs of a size and how many classes have it. Pairs of one size add up; sizes and numbers of zero say nothing.
    pub fn new(counts: impl IntoIterator<Item = (u64, u64)>, suppressed: u64) -> Self {
        let mut sizes = BTreeMap::new();
        for (size, classes) in counts.into_iter().filter(|(size, classes)| *size > 0 && *classes > 0) {
            let count: &mut u64 = sizes.entry(size).or_default();
            *count = count.saturating_add(classes);
        }
        Self { counts: sizes, suppressed }
    }

    /// From what each published row shares with its class. No row is suppressed.
    pub fn from_labels<T: Eq + Hash>(labels: impl IntoIterator<Item = T>) -> Self {
        let mut classes: HashMap<T, u64> = HashMap::new();
        labels.into_iter().for_each(|label| *classes.entry(label).or_default() += 1);
        Self::new(classes.into_values().map(|size| (size, 1)), 0)
    }

    /// Sizes with their numbers of classes, smallest first.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().map(|(size, classes)| (*size, *classes))
    }

    /// Published rows, N'.
    pub fn rows(&self) -> u64 {
        self.counts().fold(0, |rows, (size, classes)| rows.saturating_add(size.saturating_mul(classes)))
    }

    /// Suppressed rows, S.
    pub fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// All rows, N = N' + S.
    pub fn total(&self) -> u64 {
        self.rows().saturating_add(self.suppressed)
    }

    /// Classes.
    pub fn classes(&self) -> u64 {
        self.counts.values().fold(0, |sum, classes| sum.saturating_add(*classes))
    }

    /// Classes of exactly this size.
    pub fn classes_of(&self, size: u64) -> u64 {
        self.counts.get(&size).copied().unwrap_or(0)
    }

    /// Rows of the smallest class: the k that the table has. Zero if there is none.
    pub fn smallest(&self) -> u64 {
        self.counts.first_key_value().map_or(0, |(size, _)| *size)
    }

    /// Rows of the largest class; zero if there is none.
    pub fn largest(&self) -> u64 {
        self.counts.last_key_value().map_or(0, |(size, _)| *size)
    }

    /// The average size of a class, N' / classes; zero if there is none.
    pub fn average(&self) -> f64 {
        ratio(self.rows(), self.classes())
    }

    /// The average size in units of the k that was asked for: C_AVG (LeFevre et al. 2006), 1 at best.
    pub fn average_by_k(&self, k: u64) -> f64 {
        if k == 0 { 0.0 } else { self.average() / k as f64 }
    }

    /// Published rows in classes smaller than k.
    pub fn rows_below(&self, k: u64) -> u64 {
        self.counts.range(..k).fold(0, |rows, (size, classes)| rows.saturating_add(size.saturating_mul(*classes)))
    }

    /// Discernibility (Bayardo and Agrawal 2005): every row is charged the rows that it cannot be told from, and a suppressed
    /// one all of the table. The sum of |class|^2, and S * N.
    pub fn discernibility(&self) -> u128 {
        self.discernibility_star().saturating_add(u128::from(self.suppressed) * u128::from(self.total()))
    }

    /// Discernibility of the published rows alone: the sum of |class|^2.
    pub fn discernibility_star(&self) -> u128 {
        let squares = self.counts().map(|(size, classes)| (u128::from(size) * u128::from(size), u128::from(classes)));
        squares.fold(0, |sum, (square, classes)| sum.saturating_add(square.saturating_mul(classes)))
    }
}

/// One count by another; zero by zero is zero.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_small_table_by_hand() {
        // Classes of 1, 2, 2 and 5 rows, and 2 rows suppressed.
        let sizes = ClassSizes::new([(5, 1), (2, 1), (1, 1), (2, 1), (0, 9), (7, 0)], 2);
        assert_eq!(sizes.counts().collect::<Vec<_>>(), [(1, 1), (2, 2), (5, 1)]);
        assert_eq!((sizes.rows(), sizes.suppressed(), sizes.total(), sizes.classes()), (10, 2, 12, 4));
        assert_eq!((sizes.smallest(), sizes.largest(), sizes.classes_of(2), sizes.classes_of(3)), (1, 5, 2, 0));
        assert_eq!((sizes.average(), sizes.average_by_k(2)), (2.5, 1.25));
        assert_eq!([1, 2, 3, 5, 6].map(|k| sizes.rows_below(k)), [0, 1, 5, 5, 10]);
        assert_eq!((sizes.discernibility_star(), sizes.discernibility()), (34, 34 + 2 * 12));
    }

    #[test]
    fn nothing_has_no_classes() {
        let none = ClassSizes::new([], 3);
        assert_eq!((none.rows(), none.total(), none.classes(), none.smallest(), none.largest()), (0, 3, 0, 0, 0));
        assert_eq!((none.average(), none.average_by_k(5), none.average_by_k(0)), (0.0, 0.0, 0.0));
        assert_eq!((none.discernibility(), none.discernibility_star()), (9, 0));
        assert_eq!(ClassSizes::from_labels::<u8>([]), ClassSizes::default());
        // Counts that no table has end at the largest number instead of wrapping round.
        assert_eq!(ClassSizes::new([(u64::MAX, u64::MAX)], u64::MAX).total(), u64::MAX);
    }

    proptest! {
        #[test]
        fn labels_count_as_their_rows_do(labels in proptest::collection::vec(0u8..20, 0..200), k in 0u64..12) {
            let sizes = ClassSizes::from_labels(&labels);
            let size_of = |label: &u8| labels.iter().filter(|other| *other == label).count() as u64;
            prop_assert_eq!(sizes.rows(), labels.len() as u64);
            prop_assert_eq!(sizes.rows_below(k), labels.iter().filter(|label| size_of(label) < k).count() as u64);
            // Every row is charged the size of its class.
            prop_assert_eq!(sizes.discernibility(), labels.iter().map(|label| u128::from(size_of(label))).sum::<u128>());
            prop_assert_eq!(sizes.smallest(), labels.iter().map(size_of).min().unwrap_or(0));
        }
    }
}
