//! What it costs to answer one category instead of another.
//!
//! A whole number for every truth and every answer, zero for the best. Only ratios to the largest one matter.

/// A square matrix of losses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Losses {
    categories: usize,
    max: u32,
    /// By answer, then by truth: a sampler proposes an answer and looks at all truths.
    by_answer: Vec<u32>,
}

/// Why there is no choice among categories. Rows and leaves count from one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CategoryError {
    /// Nothing to choose from.
    #[error("there are {categories} categories; a choice needs at least 2")]
    TooFew {
        /// The number.
        categories: usize,
    },
    /// More than fit.
    #[error("there are {categories} categories and at most {limit} are possible; generalise them first")]
    TooMany {
        /// The number.
        categories: usize,
        /// The most.
        limit: usize,
    },
    /// Rows of different lengths.
    #[error("row {row} has {found} entries instead of {expected}; give every category a row of the same length")]
    Ragged {
        /// The row.
        row: usize,
        /// Entries it must have.
        expected: usize,
        /// Entries it has.
        found: usize,
    },
    /// Only zeros.
    #[error("all losses are zero, so that no answer is better than another; give at least one loss above zero")]
    NoLoss,
    /// Two leaves without a common ancestor.
    #[error("leaves {one} and {other} share no ancestor; let all paths end in one root")]
    NoCommonAncestor {
        /// A leaf.
        one: usize,
        /// Another.
        other: usize,
    },
}

impl CategoryError {
    pub(crate) fn check_count(categories: usize, limit: usize) -> Result<(), Self> {
        match categories {
            0 | 1 => Err(Self::TooFew { categories }),
            _ if categories > limit => Err(Self::TooMany { categories, limit }),
            _ => Ok(()),
        }
    }
}

impl Losses {
    /// The most categories: an answer is drawn for every one of them.
    pub const MAX_CATEGORIES: usize = 1024;

    /// From one row a truth, in it one loss an answer.
    pub fn new(rows: &[Vec<u32>]) -> Result<Self, CategoryError> {
        CategoryError::check_count(rows.len(), Self::MAX_CATEGORIES)?;
        let expected = rows.len();
        if let Some((row, entries)) = rows.iter().enumerate().find(|(_, entries)| entries.len() != expected) {
            return Err(CategoryError::Ragged { row: row + 1, expected, found: entries.len() });
        }
        let losses = Self::by(expected, |truth, answer| rows[truth][answer])?;
        if rows.iter().flatten().all(|loss| *loss == 0) { Err(CategoryError::NoLoss) } else { Ok(losses) }
    }

    /// Every wrong answer alike: 0 for the truth, 1 for all others.
    pub fn equality(categories: usize) -> Result<Self, CategoryError> {
        Self::by(categories, |truth, answer| u32::from(truth != answer))
    }

    /// Ordered categories: how many places the answer is off.
    pub fn order(categories: usize) -> Result<Self, CategoryError> {
        Self::by(categories, |truth, answer| truth.abs_diff(answer) as u32)
    }

    /// The leaves of a hierarchy: how far up the nearest common ancestor is.
    ///
    /// One row a leaf, in it the codes of the leaf and its ancestors from level 0 up.
    pub fn hierarchy(codes: &[Vec<i64>]) -> Result<Self, CategoryError> {
        CategoryError::check_count(codes.len(), Self::MAX_CATEGORIES)?;
        let expected = codes[0].len();
        if let Some((row, path)) = codes.iter().enumerate().find(|(_, path)| path.len() != expected) {
            return Err(CategoryError::Ragged { row: row + 1, expected, found: path.len() });
        }
        let common = |one: usize, other: usize| codes[one].iter().zip(&codes[other]).position(|(a, b)| a == b);
        let pairs = (0..codes.len()).flat_map(|one| (0..one).map(move |other| (other, one)));
        if let Some((one, other)) = { pairs }.find(|(one, other)| common(*one, *other).is_none()) {
            return Err(CategoryError::NoCommonAncestor { one: one + 1, other: other + 1 });
        }
        Self::by(codes.len(), |truth, answer| common(truth, answer).unwrap_or(0) as u32)
    }

    /// Categories.
    pub fn categories(&self) -> usize {
        self.categories
    }

    /// The largest loss, at least one.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// The loss of an answer, for numbers of categories below [`Losses::categories`].
    pub fn of(&self, truth: usize, answer: usize) -> Option<u32> {
        let known = truth < self.categories && answer < self.categories;
        known.then(|| self.by_answer[answer * self.categories + truth])
    }

    /// The losses of an answer, by truth.
    #[inline]
    pub(crate) fn of_answer(&self, answer: usize) -> &[u32] {
        &self.by_answer[answer * self.categories..][..self.categories]
    }

    fn by(categories: usize, loss: impl Fn(usize, usize) -> u32) -> Result<Self, CategoryError> {
        CategoryError::check_count(categories, Self::MAX_CATEGORIES)?;
        let pairs = (0..categories).flat_map(|answer| (0..categories).map(move |truth| (truth, answer)));
        let by_answer: Vec<u32> = pairs.map(|(truth, answer)| loss(truth, answer)).collect();
        let max = by_answer.iter().copied().max().unwrap_or(0).max(1);
        Ok(Self { categories, max, by_answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(losses: &Losses) -> Vec<Vec<u32>> {
        let n = losses.categories();
        (0..n).map(|truth| (0..n).map(|answer| losses.of(truth, answer).unwrap()).collect()).collect()
    }

    #[test]
    fn losses_count_what_they_say() {
        assert_eq!(rows(&Losses::equality(3).unwrap()), [[0, 1, 1], [1, 0, 1], [1, 1, 0]]);
        let order = Losses::order(3).unwrap();
        assert_eq!((rows(&order), order.max()), (vec![vec![0, 1, 2], vec![1, 0, 1], vec![2, 1, 0]], 2));
        let codes = [vec![1, 10, 100], vec![2, 10, 100], vec![3, 11, 100]];
        let tree = Losses::hierarchy(&codes).unwrap();
        assert_eq!((rows(&tree), tree.max()), (vec![vec![0, 1, 2], vec![1, 0, 2], vec![2, 2, 0]], 2));
        let matrix = vec![vec![0, 5], vec![1, 0]];
        assert_eq!(rows(&Losses::new(&matrix).unwrap()), matrix);
        assert_eq!(order.of(3, 0), None);
    }

    #[test]
    fn what_is_no_matrix_is_refused() {
        assert_eq!(Losses::equality(1), Err(CategoryError::TooFew { categories: 1 }));
        assert_eq!(Losses::order(1025), Err(CategoryError::TooMany { categories: 1025, limit: 1024 }));
        assert_eq!(Losses::new(&[]), Err(CategoryError::TooFew { categories: 0 }));
        assert_eq!(Losses::hierarchy(&[]), Err(CategoryError::TooFew { categories: 0 }));
        let ragged = CategoryError::Ragged { row: 2, expected: 2, found: 1 };
        assert_eq!(Losses::new(&[vec![0, 1], vec![1]]), Err(ragged.clone()));
        assert_eq!(Losses::hierarchy(&[vec![0, 1], vec![1]]), Err(ragged));
        assert_eq!(Losses::new(&[vec![0, 0], vec![0, 0]]), Err(CategoryError::NoLoss));
        let apart = CategoryError::NoCommonAncestor { one: 1, other: 3 };
        assert_eq!(Losses::hierarchy(&[vec![1, 9], vec![2, 9], vec![3, 8]]), Err(apart));
    }
}
