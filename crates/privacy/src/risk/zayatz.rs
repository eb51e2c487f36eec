//! Uniqueness by the conditional probability that a class of one row was one before sampling (Zayatz 1991, "Estimation of the number
//! of unique population elements using a sample").
//!
//! With `P` people, `n` rows and `s_i` classes of `i` rows, the sample's distribution of class sizes stands for the population's:
//!
//! ```text
//! h(i)  = i C(P - i, n - 1) / C(P, n)               one row drawn out of a class of i: hypergeometric
//! p     = s_1 h(1) / sum_i s_i h(i)                 a class seen as one row is of one row
//! U_1   = s_1 p P / n                               share: s_1 p / n
//! ```
//! A sample's classes are smaller than the population's, so that the estimate is too high for small samples.

use super::uniqueness::{certain, share};
use crate::ClassSizes;

/// The expected share of the population's rows that are unique in it.
pub fn zayatz(sizes: &ClassSizes, population: u64) -> Option<f64> {
    certain(sizes, population).or_else(|| estimate(sizes, population))
}

fn estimate(sizes: &ClassSizes, population: u64) -> Option<f64> {
    let (rows, people, unique) = (sizes.rows() as f64, population as f64, sizes.classes_of(1) as f64);
    // h(i) / i = n/P * (P-n)/(P-1) * (P-n-1)/(P-2) ..: one factor more for every row of the class.
    let (mut by_row, mut next, mut seen_as_one) = (rows / people, 1, 0.0);
    for (size, classes) in sizes.counts() {
        while next < size && by_row > 0.0 {
            let drawn = (next - 1) as f64;
            by_row *= ((people - rows - drawn) / (people - next as f64)).max(0.0);
            next += 1;
        }
        seen_as_one += classes as f64 * size as f64 * by_row;
    }
    share(unique / rows * (unique * (rows / people) / seen_as_one))
}

#[cfg(test)]
mod tests {
    use dashu::{Integer, Rational};

    use super::*;

    fn choose(n: u64, k: u64) -> Integer {
        if k > n {
            return Integer::ZERO;
        }
        (0..k).fold(Integer::ONE, |product, i| product * (n - i) / (i + 1))
    }

    #[test]
    fn three_uniques_and_a_pair_by_hand() {
        // 5 rows of 10 people: h(1) = 1/2, h(2) = 2 C(8, 4) / C(10, 5) = 140 / 252 = 5/9.
        let sizes = ClassSizes::new([(1, 3), (2, 1)], 0);
        let p = 1.5 / (1.5 + 5.0 / 9.0);
        assert!((zayatz(&sizes, 10).unwrap() - 3.0 * p / 5.0).abs() < 1e-12);
    }

    #[test]
    fn as_binomial_coefficients_say() {
        for (counts, population) in [
            (vec![(1, 40), (2, 13), (3, 5), (9, 2), (30, 1)], 900),
            (vec![(1, 1), (60, 1)], 62),
            (vec![(1, 200), (4, 7)], 100_000),
        ] {
            let sizes = ClassSizes::new(counts, 0);
            let n = sizes.rows();
            let seen = |size: u64| choose(population - size, n - 1) * size;
            let all = sizes.counts().fold(Integer::ZERO, |sum, (size, classes)| sum + seen(size) * classes);
            let unique = sizes.classes_of(1);
            let exact = Rational::from(seen(1) * (unique * unique)) / Rational::from(all * n);
            let exact = exact.to_f64().value();
            let found = zayatz(&sizes, population).unwrap();
            assert!((found / exact - 1.0).abs() < 1e-10, "{found} {exact}");
        }
    }
}
