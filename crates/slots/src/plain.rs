//! Numbers modulo the plaintext prime `t`.

use std::sync::LazyLock;

use fhe_math::zq::Modulus;
use rand::{CryptoRng, Rng};

use crate::SlotError;
use crate::parameters::PLAIN_MODULUS;

static MODULUS: LazyLock<Modulus> = LazyLock::new(|| Modulus::new(PLAIN_MODULUS).expect("t is a prime of 48 bits"));

/// `a + b`.
#[inline]
pub fn add(a: u64, b: u64) -> u64 {
    let sum = a + b;
    if sum >= PLAIN_MODULUS { sum - PLAIN_MODULUS } else { sum }
}

/// `a - b`.
#[inline]
pub fn sub(a: u64, b: u64) -> u64 {
    if a >= b { a - b } else { a + PLAIN_MODULUS - b }
}

/// `-a`.
#[inline]
pub fn neg(a: u64) -> u64 {
    sub(0, a)
}

/// `a * b`.
#[inline]
pub fn mul(a: u64, b: u64) -> u64 {
    // t = 2^48 - 16383, so 2^48 = 16383: two folds and a subtraction.
    let product = u128::from(a) * u128::from(b);
    let folded = (product >> 48) * 16383 + (product & ((1 << 48) - 1));
    let folded = ((folded >> 48) as u64) * 16383 + (folded as u64 & ((1 << 48) - 1));
    if folded >= PLAIN_MODULUS { folded - PLAIN_MODULUS } else { folded }
}

/// The number that a signed one stands for.
#[inline]
pub fn from_signed(value: i64) -> u64 {
    value.rem_euclid(PLAIN_MODULUS as i64) as u64
}

/// The representative in `(-t/2, t/2]`.
#[inline]
pub fn centred(value: u64) -> i64 {
    if value > PLAIN_MODULUS / 2 { value as i64 - PLAIN_MODULUS as i64 } else { value as i64 }
}

/// Refuses what is not below `t`.
pub fn checked(values: &[u64]) -> Result<(), SlotError> {
    match values.iter().find(|value| **value >= PLAIN_MODULUS) {
        Some(value) => Err(SlotError::NotReduced(*value)),
        None => Ok(()),
    }
}

/// `a^exponent`.
#[inline]
pub fn pow(a: u64, exponent: u64) -> u64 {
    (0..u64::BITS - exponent.leading_zeros()).rev().fold(1, |power, bit| {
        let square = mul(power, power);
        if exponent >> bit & 1 == 1 { mul(square, a) } else { square }
    })
}

/// `1/a`, for a non-zero `a`.
pub fn inverse(a: u64) -> u64 {
    MODULUS.pow(a, PLAIN_MODULUS - 2)
}

/// Inverts every number of a slice with one inversion (Montgomery's trick). All must be non-zero.
pub fn invert_all(values: &mut [u64]) {
    let mut products = Vec::with_capacity(values.len());
    let total = values.iter().fold(1, |product, value| {
        products.push(product);
        mul(product, *value)
    });
    let mut inverse = inverse(total);
    for (value, before) in values.iter_mut().zip(products).rev() {
        let inverted = mul(inverse, before);
        inverse = mul(inverse, *value);
        *value = inverted;
    }
}

/// A uniform number modulo `t`.
#[inline]
pub fn uniform<R: CryptoRng + ?Sized>(rng: &mut R) -> u64 {
    loop {
        let candidate = rng.next_u64() & ((1 << 48) - 1);
        if candidate < PLAIN_MODULUS {
            return candidate;
        }
    }
}

/// A uniform number modulo `t` that is not zero.
#[inline]
pub fn uniform_non_zero<R: CryptoRng + ?Sized>(rng: &mut R) -> u64 {
    loop {
        let candidate = uniform(rng);
        if candidate != 0 {
            return candidate;
        }
    }
}

/// A uniform number in `0..bound`.
#[inline]
pub fn uniform_below<R: CryptoRng + ?Sized>(bound: u64, rng: &mut R) -> u64 {
    rng.random_range(0..bound)
}

/// So many uniform numbers.
pub fn uniform_vec<R: CryptoRng + ?Sized>(count: usize, rng: &mut R) -> Vec<u64> {
    (0..count).map(|_| uniform(rng)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    proptest! {
        #[test]
        fn arithmetic_is_modular(a in 0..PLAIN_MODULUS, b in 0..PLAIN_MODULUS) {
            let (wide, t) = ((u128::from(a), u128::from(b)), u128::from(PLAIN_MODULUS));
            prop_assert_eq!(u128::from(add(a, b)), (wide.0 + wide.1) % t);
            prop_assert_eq!(u128::from(mul(a, b)), wide.0 * wide.1 % t);
            prop_assert_eq!(add(sub(a, b), b), a);
            prop_assert_eq!(from_signed(centred(a)), a);
            prop_assert!(a == 0 || mul(inverse(a), a) == 1);
            prop_assert_eq!(pow(a, b), MODULUS.pow(a, b));
        }
    }

    #[test]
    fn the_largest_numbers_multiply() {
        let largest = PLAIN_MODULUS - 1;
        assert_eq!(mul(largest, largest), 1);
        assert_eq!(mul(largest, 1), largest);
        assert_eq!(centred(largest), -1);
        assert_eq!([pow(7, 0), pow(0, 5), pow(7, 1), pow(largest, u64::MAX)], [1, 0, 7, largest]);
        assert_eq!(from_signed(-1), largest);
        assert_eq!(from_signed(i64::MIN), (i128::from(i64::MIN).rem_euclid(PLAIN_MODULUS.into())) as u64);
    }

    #[test]
    fn a_batch_of_inverses_is_each_inverse() {
        let mut rng = StdRng::seed_from_u64(1);
        let values: Vec<u64> = (0..100).map(|_| uniform_non_zero(&mut rng)).collect();
        let mut inverted = values.clone();
        invert_all(&mut inverted);
        assert!(values.iter().zip(&inverted).all(|(value, inverted)| mul(*value, *inverted) == 1));
        invert_all(&mut []);
    }
}
