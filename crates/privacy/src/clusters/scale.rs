//! Numbers as coordinates of a grid, and back: min-max, so that columns of different units weigh alike.
//!
//! ```text
//! D = upper - lower
//! R = floor(2^40 / D), 0 if D = 0                                     what an owner encrypts beside the bounds
//! S = 2^7 R + floor((2^40 - R D) R / 2^33)                            2^47 / D: a step of Newton's, so that wide ranges keep their bits
//! z = floor(((x - lower) S + 2^31) / 2^32)                            0 ..= 2^15
//! x = lower + floor((z D + 2^14) / 2^15)
//! ```
//! All products stay below the plaintext modulus: bounds are of at most 32 bits, and `D S <= 2^47`.

/// Coordinates go up to 2^15.
pub const GRID_BITS: u32 = 15;

/// Bits of the reciprocal of a range of one.
pub const RECIPROCAL_BITS: u32 = 40;

/// Bits of the refined reciprocal of a range of one.
pub const SCALE_BITS: u32 = 47;

/// What a step of Newton's divides by.
pub const REFINED_SHIFT: u32 = 2 * RECIPROCAL_BITS - SCALE_BITS;

/// `2^47 / range` to within two units, and exactly zero for no range.
pub fn scale_of_range(range: i64) -> i64 {
    let reciprocal = (1i64 << RECIPROCAL_BITS).checked_div(range).unwrap_or(0);
    let rest = (1 << RECIPROCAL_BITS) - reciprocal * range;
    (reciprocal << (SCALE_BITS - RECIPROCAL_BITS)) + ((rest * reciprocal) >> REFINED_SHIFT)
}

/// The place of a number between its column's bounds, rounded to the grid.
pub fn coordinate(value: i64, lower: i64, upper: i64) -> i64 {
    const SHIFT: u32 = SCALE_BITS - GRID_BITS;
    ((value - lower) * scale_of_range(upper - lower) + (1 << (SHIFT - 1))) >> SHIFT
}

/// The number at a place of the grid, rounded to the column's unit.
pub fn value_of_coordinate(coordinate: i64, lower: i64, upper: i64) -> i64 {
    lower + ((coordinate * (upper - lower) + (1 << (GRID_BITS - 1))) >> GRID_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ends_of_the_range_are_ends_of_the_grid() {
        for (lower, upper) in [(17, 90), (-5, -4), (0, 1 << 15), (i32::MIN.into(), i32::MAX.into())] {
            assert_eq!(coordinate(lower, lower, upper), 0);
            assert!(((1 << GRID_BITS) - 2..=1 << GRID_BITS).contains(&coordinate(upper, lower, upper)));
            assert_eq!(value_of_coordinate(0, lower, upper), lower);
            assert_eq!(value_of_coordinate(1 << GRID_BITS, lower, upper), upper);
        }
        assert_eq!((coordinate(7, 7, 7), value_of_coordinate(0, 7, 7)), (0, 7));
        // A centre may lie a little below the grid.
        assert_eq!((value_of_coordinate(-64, 0, 90), value_of_coordinate(-64, 0, 1 << 20)), (0, -2048));
    }

    #[test]
    fn scales_are_exact_to_two_units_and_products_fit() {
        let ranges = (1..5000)
            .chain((0..32).flat_map(|bits| [(1i64 << bits) - 1, 1 << bits, (1 << bits) + 1, (1 << bits) / 3 * 4]));
        for range in ranges.filter(|range| *range > 0) {
            let scale = scale_of_range(range);
            assert!((((1i64 << SCALE_BITS) / range) - scale).abs() <= 2, "{range}");
            assert!(scale * range + (1 << 31) < 281_474_976_694_273, "{range}");
        }
        assert_eq!(scale_of_range(0), 0);
    }

    proptest! {
        /// Ranges that are no finer than the grid come back as they are, others to within a step.
        #[test]
        fn numbers_come_back(lower in -2_000_000_000i64..0, range in 1i64..4_000_000_000, part in 0.0..1f64) {
            let (upper, value) = (lower + range, lower + (range as f64 * part) as i64);
            let back = value_of_coordinate(coordinate(value, lower, upper), lower, upper);
            let steps = if range > 1 << 30 { 3 } else { 1 };
            let most = (steps * range) >> GRID_BITS;
            prop_assert!((back - value).abs() <= most + i64::from(range > 1 << 13), "{} -> {}", value, back);
        }
    }
}
