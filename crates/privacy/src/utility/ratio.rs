//! Shares of secrets, as whole numbers of steps of 2^-20.
//!
//! ```text
//! q = floor(2^20 * 2 A / (2 B + 1)), at most 16; A and B first lose the bits by which B could exceed 2^39
//! ```
//! Half a unit more below keeps nothing from being divided by zero, and changes a share by less than one in a million once B has twenty bits. That is how
//! it is divided over ciphertexts, so that both give the same number.

/// Bits of the fraction of a ratio.
pub const RATIO_BITS: u32 = 20;

/// The largest ratio.
pub const LARGEST_RATIO: u64 = 16 << RATIO_BITS;

/// Bits that are left of what is divided by.
pub const DENOMINATOR_BITS: u32 = 39;

/// The share that `part` is of `whole`, where `whole` is at most `2^bits` by what is public about it.
pub fn ratio_of(part: u128, whole: u128, bits: u32) -> u64 {
    let shift = bits.saturating_sub(DENOMINATOR_BITS);
    let (a, b) = (2 * (part >> shift), 2 * (whole >> shift) + 1);
    if a >= 16 * b { LARGEST_RATIO } else { ((a << RATIO_BITS) / b) as u64 }
}

/// By how many bits numerator and denominator are lengthened before they are divided, where the denominator is at most `2^bits`: so that half a
/// unit more below does not matter even to few units.
pub fn lengthened(bits: u32) -> u32 {
    DENOMINATOR_BITS.saturating_sub(bits)
}

/// So many steps, as a number.
pub fn ratio_value(ratio: u64) -> f64 {
    ratio as f64 / f64::from(1u32 << RATIO_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ends_of_a_ratio() {
        assert_eq!((ratio_of(0, 0, 39), ratio_of(0, 5, 39)), (0, 0));
        assert_eq!((ratio_of(5, 0, 39), ratio_of(7, 0, 39), ratio_of(8, 0, 39)), (10 << 20, 14 << 20, LARGEST_RATIO));
        // 2 * 50 / (2 * 5000 + 1) and 2 * 3650 / (2 * 5000 + 1).
        assert_eq!((ratio_of(50, 5000, 39), ratio_of(3650, 5000, 39)), (10_484, 765_383));
        assert_eq!(ratio_of(1 << 45, 1 << 45, 46), ((1 << 39) << 20) / (1 << 39 | 1));
        assert_eq!(ratio_value(1 << 19), 0.5);
    }

    proptest! {
        #[test]
        fn nearly_the_quotient(part in 0u128..1 << 46, whole in 1u128 << 24..1 << 46) {
            let exact = (part as f64 / whole as f64).min(16.0);
            prop_assert!((ratio_value(ratio_of(part, whole, 46)) - exact).abs() < 1e-3 * exact + 1e-5);
        }
    }
}
