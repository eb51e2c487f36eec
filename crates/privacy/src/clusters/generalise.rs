//! One value a class: the mean of its numbers, the common ancestor of its categories (the paper's AnonymizeClusters).
//!
//! Means are taken in the column's own unit, by a rounded reciprocal as those of [centres](super::centre_coordinate). A fraction long enough
//! for wide numbers would not stay below 2^47 in one product, and a short one would be off by thousands, so wide ones are divided as by
//! hand: the high digit of 16 bits first, then what is left of it with the low one.
//!
//! ```text
//! up to 16 bits    sum' = sum + count * 2^15                            R of 30 bits of fraction, count <= 2^24
//!                  mean = floor((sum' * R + 2^29) / 2^30) - 2^15
//!                  sum' * R + 2^29 <= 2^46 + count * 2^15 + 2^29 < 2^47
//!                  off by at most 1/2 + count / 2^15
//!
//! up to 32 bits    sum' = sum + count * 2^31 = high * 2^16 + low        R of 28 bits of fraction, count <= 2^14
//!                  first = floor(high * R / 2^28)                       off by at most count / 2^13 <= 2 before the floor
//!                  rest  = (high - count * first + 2 count) * 2^16 + low
//!                  mean  = first * 2^16 + floor((rest * R + 2^27) / 2^28) - 2 * 2^16 - 2^31
//!                  0 <= rest < 6 * 2^16 * count, so that rest * R + 2^27 < 2^47
//!                  off by at most 1/2 + 3 count / 2^12
//! ```
//!
//! A mean can so leave the range of its column by what it is off.

use super::centres::{reciprocal, times_reciprocal};
use super::{Classes, ClusterError, points::MAX_ROWS};
use crate::{Hierarchy, NodeId};

/// Numbers of at most so many bits are narrow.
pub const NARROW_BITS: u32 = 16;

/// Bits of the fraction of a reciprocal, for narrow numbers.
pub const NARROW_FRACTION: u32 = 30;

/// Bits of the fraction of a reciprocal, for wide numbers.
pub const WIDE_FRACTION: u32 = 28;

/// The most rows of a class whose wide numbers are averaged.
pub const MAX_WIDE_ROWS: u64 = 1 << 14;

/// The mean of so many numbers with this sum, none wider than so many bits, sign included. Nothing for no numbers.
pub fn mean(sum: i64, count: u64, bits: u32) -> Result<Option<i64>, ClusterError> {
    let most = match bits {
        1..=NARROW_BITS => MAX_ROWS as u64,
        17..=32 => MAX_WIDE_ROWS,
        _ => return Err(ClusterError::WrongWidth(bits)),
    };
    if count > most {
        return Err(ClusterError::ClassTooLarge { rows: count, bits, most });
    }
    let within = 1i64 << (bits - 1);
    // Signed and one-sided: the lowest number is farther from zero than the highest.
    if !(-within * count as i64..=(within - 1) * count as i64).contains(&sum) {
        return Err(ClusterError::SumTooWide { sum, count, bits });
    }
    Ok((count > 0).then(|| if bits <= NARROW_BITS { narrow_mean(sum, count) } else { wide_mean(sum, count) }))
}

fn narrow_mean(sum: i64, count: u64) -> i64 {
    let offset = 1 << (NARROW_BITS - 1);
    let shifted = (sum + count as i64 * offset).unsigned_abs();
    times_reciprocal(shifted, reciprocal(count, NARROW_FRACTION), NARROW_FRACTION) as i64 - offset
}

fn wide_mean(sum: i64, count: u64) -> i64 {
    let offset = 1 << 31;
    let reciprocal = reciprocal(count, WIDE_FRACTION);
    let shifted = (sum + count as i64 * offset).unsigned_abs();
    let (high, low) = (shifted >> 16, shifted & 0xffff);
    let first = (high * reciprocal) >> WIDE_FRACTION;
    // Twice the count keeps what is left from being negative, where the reciprocal was rounded up.
    let rest = ((high + 2 * count - count * first) << 16) + low;
    let second = times_reciprocal(rest, reciprocal, WIDE_FRACTION);
    ((first << 16) + second) as i64 - (2 << 16) - offset
}

/// The mean of every class, of a column of numbers of at most so many bits, one a row.
pub fn class_means(classes: &Classes, column: &[i64], bits: u32) -> Result<Vec<i64>, ClusterError> {
    check_length(classes, column.len())?;
    if !(1..=32).contains(&bits) {
        return Err(ClusterError::WrongWidth(bits));
    }
    let within = -(1i64 << (bits - 1))..1i64 << (bits - 1);
    if let Some((row, value)) = column.iter().copied().enumerate().find(|(_, value)| !within.contains(value)) {
        return Err(ClusterError::TooWide { row, value, bits });
    }
    let mut sums = vec![0i64; classes.classes.len()];
    for (class, value) in classes.of_rows.iter().zip(column) {
        if let Some(sum) = class.and_then(|class| sums.get_mut(class)) {
            *sum += value;
        }
    }
    let of_classes = sums.iter().zip(&classes.classes);
    of_classes.map(|(sum, class)| Ok(mean(*sum, class.rows as u64, bits)?.unwrap_or_default())).collect()
}

/// The lowest common ancestor of every class, of a column of leaves of a hierarchy, one a row.
pub fn class_ancestors(
    classes: &Classes,
    column: &[usize],
    hierarchy: &Hierarchy,
) -> Result<Vec<NodeId>, ClusterError> {
    check_length(classes, column.len())?;
    let leaves = hierarchy.leaf_count();
    if let Some((row, leaf)) = column.iter().copied().enumerate().find(|(_, leaf)| *leaf >= leaves) {
        return Err(ClusterError::UnknownLeaf { row, leaf, leaves });
    }
    // Leaves are numbered depth first, so what lies above the first and the last lies above all.
    let mut ends = vec![(leaves - 1, 0); classes.classes.len()];
    for (class, leaf) in classes.of_rows.iter().zip(column) {
        if let Some((first, last)) = class.and_then(|class| ends.get_mut(class)) {
            (*first, *last) = ((*first).min(*leaf), (*last).max(*leaf));
        }
    }
    let root = NodeId { level: hierarchy.level_count() - 1, number: 0 };
    Ok(ends.into_iter().map(|(first, last)| hierarchy.common_ancestor(first, last).unwrap_or(root)).collect())
}

fn check_length(classes: &Classes, found: usize) -> Result<(), ClusterError> {
    let expected = classes.of_rows.len();
    if found == expected { Ok(()) } else { Err(ClusterError::WrongLength { expected, found }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Class;
    use super::*;

    fn classes() -> Classes {
        let classes = vec![Class { cluster: 0, rows: 2 }, Class { cluster: 3, rows: 3 }];
        Classes { classes, of_rows: vec![Some(1), Some(0), None, Some(1), Some(0), Some(1)] }
    }

    #[test]
    fn a_class_gets_the_mean_of_its_numbers() {
        let ages = [18, 40, 99, 20, 45, 21];
        for bits in [8, 16, 17, 32] {
            // 42.5 goes up, 19.67 too; who is suppressed does not count.
            assert_eq!(class_means(&classes(), &ages, bits).unwrap(), [43, 20], "{bits}");
        }
        let salaries = [i32::MAX, -5, 0, i32::MAX, -6, i32::MAX].map(i64::from);
        assert_eq!(class_means(&classes(), &salaries, 32).unwrap(), [-5, i64::from(i32::MAX)]);
    }

    #[test]
    fn a_class_gets_the_lowest_node_above_its_categories() {
        let rows = ["a,x,*", "b,x,*", "c,x,*", "d,y,*"].map(|row| row.split(',').map(str::to_owned).collect());
        let tree = Hierarchy::from_rows(&rows).unwrap();
        let labels = |column: &[usize]| -> Vec<String> {
            let nodes = class_ancestors(&classes(), column, &tree).unwrap();
            nodes.into_iter().map(|node| tree.label(node).unwrap().to_owned()).collect()
        };
        assert_eq!(labels(&[1, 3, 0, 1, 3, 1]), ["d", "b"]);
        assert_eq!(labels(&[0, 3, 3, 2, 0, 1]), ["*", "x"]);
        let refused = class_ancestors(&classes(), &[0, 0, 0, 4, 0, 0], &tree).unwrap_err();
        assert_eq!(refused, ClusterError::UnknownLeaf { row: 3, leaf: 4, leaves: 4 });
    }

    #[test]
    fn what_cannot_be_averaged_is_named() {
        assert_eq!(mean(0, 0, 8), Ok(None));
        assert_eq!(
            (mean(0, 1, 0), mean(0, 1, 33)),
            (Err(ClusterError::WrongWidth(0)), Err(ClusterError::WrongWidth(33)))
        );
        let large = ClusterError::ClassTooLarge { rows: 16_385, bits: 17, most: 16_384 };
        assert_eq!((mean(0, 16_385, 17), mean(0, 16_385, 16)), (Err(large), Ok(Some(0))));
        assert_eq!(mean(256, 2, 8), Err(ClusterError::SumTooWide { sum: 256, count: 2, bits: 8 }));
        let refused = |column: &[i64], bits| class_means(&classes(), column, bits).unwrap_err();
        assert_eq!(refused(&[1], 8), ClusterError::WrongLength { expected: 6, found: 1 });
        assert_eq!(refused(&[0; 6], 64), ClusterError::WrongWidth(64));
        assert_eq!(refused(&[0, 0, 128, 0, 0, 0], 8), ClusterError::TooWide { row: 2, value: 128, bits: 8 });
    }

    /// Every count, with sums from one end to the other: all products stay below 2^47.
    #[test]
    fn products_stay_below_their_bound() {
        for count in 1..=MAX_WIDE_ROWS {
            let of = reciprocal(count, WIDE_FRACTION);
            for share in 0..=64 {
                let shifted = (count * u64::from(u32::MAX)) / 64 * share;
                let high = shifted >> 16;
                let first = (high * of) >> WIDE_FRACTION;
                let rest = (high + 2 * count).checked_sub(count * first).unwrap() << 16 | shifted & 0xffff;
                assert!(rest < 6 * 65_536 * count && rest * of + (1 << 27) < 1 << 47, "{count}: {rest}");
            }
            let narrow = (count << 10).min(MAX_ROWS as u64);
            assert!(narrow * 65_535 * reciprocal(narrow, NARROW_FRACTION) + (1 << 29) < 1 << 47, "{narrow}");
        }
    }

    proptest! {
        #[test]
        fn means_are_off_by_no_more_than_their_bound(
            of_width in -1.0..1f64, bits in 1u32..33, count in prop_oneof![1u64..50, 1u64..16_385],
        ) {
            let sum = (of_width * (2f64.powi(bits as i32 - 1) - 1.0) * count as f64) as i64;
            let mean = mean(sum, count, bits).unwrap().unwrap();
            // In units of a 2^15th of the count, so that nothing is rounded here.
            let off = (i128::from(mean) * i128::from(count) - i128::from(sum)).unsigned_abs() << 15;
            let count = u128::from(count);
            let per_row = if bits <= NARROW_BITS { 1 } else { 24 };
            prop_assert!(off <= count * ((1 << 14) + per_row * count), "mean {} of {}/{}", mean, sum, count);
        }

        /// The paper's chain of pairs comes to the same node.
        #[test]
        fn the_ends_of_a_class_suffice(leaves in proptest::collection::vec(0usize..12, 1..8)) {
            let path = |leaf: usize| [leaf.to_string(), format!("a{}", leaf / 2), format!("b{}", leaf / 4), "*".into()].to_vec();
            let tree = Hierarchy::from_rows(&(0..12).map(path).collect::<Vec<_>>()).unwrap();
            let level = (0..4).find(|level| leaves.iter().all(|leaf| tree.ancestor(*leaf, *level) == tree.ancestor(leaves[0], *level)));
            let all = Classes { classes: vec![Class { cluster: 0, rows: leaves.len() }], of_rows: vec![Some(0); leaves.len()] };
            let expected = tree.ancestor(leaves[0], level.unwrap()).unwrap();
            prop_assert_eq!(class_ancestors(&all, &leaves, &tree).unwrap(), [expected]);
        }
    }
}
