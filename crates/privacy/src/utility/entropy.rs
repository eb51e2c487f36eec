//! Non-uniform entropy: how many bits are missing to tell the original category from the published one (de Waal and Willenborg 1999;
//! Gionis and Tassa 2009, "k-Anonymization with minimal loss of information").
//!
//! `F(v)` original rows lie below node v, suppressed ones included, and `n(v)` rows are published as v. A row whose leaf `a` is
//! published as `v` loses `-log2(F(a) / F(v))` bits; a suppressed row is published as the root, with `F = N`. All rows together:
//!
//! ```text
//! lost  = sum_v n(v) lg F(v) + S lg N - sum_a F(a) lg F(a)
//! most  =                      N lg N - sum_a F(a) lg F(a)          if everything were the root
//! ratio = lost / most
//! ```
//! Logarithms are whole numbers of steps of 2^-20, so that tables of them can be looked up blindly and sums are exact.

use super::ratio::ratio_of;

/// Bits of the fraction of a logarithm.
pub const LOG_BITS: u32 = 20;

/// `2^20 log2(count)`, rounded to the nearest whole number, halves up; zero for no rows.
///
/// By squaring: of a number in [1, 2) the next bit of the logarithm is whether its square is at least 2. The square is cut to 63 bits of
/// fraction, which moves the last bit by less than 2^-40 of a step. Integers only, so every machine finds the same.
pub fn log2_fixed(count: u64) -> u64 {
    let Some(whole) = count.checked_ilog2() else { return 0 };
    let mut number = count << (63 - whole);
    let mut log = u64::from(whole);
    // One bit more than is kept, to round by.
    for _ in 0..=LOG_BITS {
        let square = u128::from(number) * u128::from(number);
        let bit = (square >> 127) as u64;
        number = (square >> (63 + bit)) as u64;
        log = log << 1 | bit;
    }
    (log + 1) >> 1
}

/// What so many rows can lose is at most two to this: the logarithm of their number is below 32.
pub fn most_bits(rows: u64) -> u32 {
    rows.max(1).next_power_of_two().ilog2() + LOG_BITS + 5
}

/// Bits lost by a column, in steps of 2^-20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntropyLoss {
    /// By what is published.
    pub lost: u128,
    /// If all were suppressed.
    pub most: u128,
}

impl EntropyLoss {
    /// From the original rows `F(a)` of every leaf, the pairs `n(v)`, `F(v)` of published nodes, and the suppressed rows.
    ///
    /// Nothing if published and suppressed rows do not come to the original ones, or gain bits: then these are counts of different tables.
    pub fn of(leaves: &[u64], nodes: impl IntoIterator<Item = (u64, u64)>, suppressed: u64) -> Option<Self> {
        let bits = |rows: u64, below: u64| u128::from(rows) * u128::from(log2_fixed(below));
        let rows: u64 = leaves.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows))?;
        let kept: u128 = leaves.iter().map(|rows| bits(*rows, *rows)).sum();
        let (mut counted, mut published) = (suppressed, bits(suppressed, rows));
        for (of_node, below) in nodes {
            counted = counted.checked_add(of_node)?;
            published += bits(of_node, below);
        }
        let all = bits(rows, rows);
        let loss = Self { lost: published.checked_sub(kept)?, most: all.checked_sub(kept)? };
        (counted == rows && loss.lost <= loss.most).then_some(loss)
    }

    /// The share of bits that is lost; zero if there was nothing to lose.
    pub fn ratio(&self) -> f64 {
        if self.most == 0 { 0.0 } else { self.lost as f64 / self.most as f64 }
    }

    /// The same in steps of 2^-20, of a table of so many rows.
    pub fn steps(&self, rows: u64) -> u64 {
        ratio_of(self.lost, self.most, most_bits(rows))
    }

    /// Bits lost by a row on average.
    pub fn bits_per_row(&self, rows: u64) -> f64 {
        if rows == 0 { 0.0 } else { self.lost as f64 / f64::from(1u32 << LOG_BITS) / rows as f64 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::NodeTables;
    use super::*;

    #[test]
    fn logarithms_are_rounded_to_nearest() {
        assert_eq!([0, 1, 2, 1 << 20, 1 << 63].map(log2_fixed), [0, 0, 1 << 20, 20 << 20, 63 << 20]);
        // 2^20 log2(3) = 1661953.638..
        assert_eq!(log2_fixed(3), 1_661_954);
        assert_eq!(log2_fixed(u64::MAX), 64 << 20);
        let mut compared = 0;
        for count in (1..300_000).chain((0..40).flat_map(|bits| [(5u64 << bits) - 1, (3 << bits) + 1, 7 << bits])) {
            let exact = (count as f64).log2() * f64::from(1 << LOG_BITS);
            // Floating point cannot tell what lies this near to a half.
            if (exact.fract() - 0.5).abs() > 1e-6 {
                assert_eq!(log2_fixed(count), exact.round() as u64, "{count}");
                compared += 1;
            }
        }
        assert!(compared > 299_000);
    }

    #[test]
    fn by_hand() {
        // Leaves of 4, 4 and 8 rows; the first two share a node of 8. Six of their rows are published as that node, one as it is; of
        // the third leaf six stay and one becomes the root; two rows are suppressed. In bits:
        // 6 log2(8) + log2(4) + 6 log2(8) + log2(16) + 2 log2(16) = 50, of which 4 log2(4) + 4 log2(4) + 8 log2(8) = 40 were there.
        let loss = EntropyLoss::of(&[4, 4, 8], [(6, 8), (1, 4), (6, 8), (1, 16)], 2).unwrap();
        let step = 1 << LOG_BITS;
        assert_eq!(loss, EntropyLoss { lost: 10 * step, most: (64 - 40) * step });
        assert_eq!((loss.ratio(), loss.bits_per_row(16)), (10.0 / 24.0, 0.625));
    }

    #[test]
    fn ends_and_nonsense() {
        let none = EntropyLoss::of(&[4, 4, 8], [(4, 4), (4, 4), (8, 8)], 0).unwrap();
        assert_eq!((none.lost, none.ratio()), (0, 0.0));
        assert_eq!(EntropyLoss::of(&[4, 4, 8], [], 16).unwrap().ratio(), 1.0);
        assert_eq!(EntropyLoss::of(&[5], [(5, 5)], 0).unwrap().ratio(), 0.0);
        assert_eq!(EntropyLoss::of(&[], [], 0).unwrap().bits_per_row(0), 0.0);
        assert_eq!(EntropyLoss::of(&[4, 4], [(4, 4)], 0), None);
        assert_eq!(EntropyLoss::of(&[4, 4], [(8, 2)], 0), None);
        assert_eq!(EntropyLoss::of(&[u64::MAX, 2], [], 0), None);
    }

    proptest! {
        /// Row by row, as the definition is written.
        #[test]
        fn rows_lose_what_their_nodes_hide(rows in proptest::collection::vec((0usize..8, 0usize..5), 1..60)) {
            let codes: Vec<Vec<i64>> = (0..8).map(|leaf| vec![leaf, leaf / 2 * 2, leaf / 4 * 4, 0]).collect();
            let tables = NodeTables::of(&codes).unwrap();
            let below = |level: usize, code: i64| rows.iter().filter(|(leaf, _)| codes[*leaf][level] == code).count() as u64;
            // Level 4 is suppressed.
            let bits = |level: usize, leaf: usize| (below(level.min(3), codes[leaf][level.min(3)]) as f64 / below(0, leaf as i64) as f64).log2();
            let expected: f64 = rows.iter().map(|(leaf, level)| bits(*level, *leaf)).sum();
            let most: f64 = rows.iter().map(|(leaf, _)| bits(3, *leaf)).sum();

            let leaves: Vec<u64> = (0..8).map(|leaf| below(0, leaf)).collect();
            let sums = tables.sums(&leaves).unwrap();
            let nodes = rows.iter().filter(|(_, level)| *level < 4).map(|(leaf, level)| (1, sums[*level][&codes[*leaf][*level]]));
            let suppressed = rows.iter().filter(|(_, level)| *level == 4).count() as u64;
            let loss = EntropyLoss::of(&leaves, nodes, suppressed).unwrap();
            prop_assert!((loss.lost as f64 / f64::from(1 << LOG_BITS) - expected).abs() < 1e-4);
            prop_assert!((loss.most as f64 / f64::from(1 << LOG_BITS) - most).abs() < 1e-4);
        }
    }
}
