//! Clear vectors as polynomials.
//!
//! The slots of a plaintext polynomial are its values at the roots of unity modulo `t`, in the order of the transform: as no
//! protocol rotates slots, that order never matters as long as both parties share it (see [`fingerprint`](crate::fingerprint())).

use std::sync::LazyLock;

use crate::parameters::{DEGREE, LIMBS, PLAIN_MODULUS, PRIMES};
use crate::ring::{Coefficients, LIMB, PLAIN, Points, Residues};
use crate::{buffers, plain};

/// The polynomial modulo `t` with these values in its slots; missing ones are zero, numbers are below `t`.
pub fn coefficients_of_slots(values: &[u64]) -> Vec<u64> {
    let mut coefficients = Vec::with_capacity(DEGREE);
    coefficients.extend_from_slice(&values[..values.len().min(DEGREE)]);
    coefficients.resize(DEGREE, 0);
    PLAIN.ntt.backward(&mut coefficients);
    coefficients
}

/// The slots of a polynomial modulo `t`.
pub fn slots_of_coefficients(mut coefficients: Vec<u64>) -> Vec<u64> {
    PLAIN.ntt.forward(&mut coefficients);
    coefficients
}

/// A clear vector to multiply by.
#[derive(Clone, Debug)]
pub struct Factor(pub(crate) Residues<Points>);

impl Factor {
    /// Encodes numbers below `t`; missing slots are zero.
    pub fn new(values: &[u64]) -> Self {
        match constant(values) {
            Some(value) => Self(Residues::constant(std::array::from_fn(|limb| lifted_number(value, PRIMES[limb])))),
            None => Self(lifted(&coefficients_of_slots(values), LIMBS).into_points()),
        }
    }
}

/// A clear vector to add.
#[derive(Clone, Debug)]
pub struct Offset(pub(crate) Residues<Points>);

impl Offset {
    /// Encodes numbers below `t`; missing slots are zero.
    pub fn new(values: &[u64]) -> Self {
        match constant(values) {
            Some(value) => Self(Residues::constant(scaled_up_constant(value))),
            None => Self(scaled_up(coefficients_of_slots(values)).into_points()),
        }
    }
}

/// The number in all slots, if it is the same: a constant polynomial, which needs no transform. For clear vectors of P1's own, which are
/// constant by their layout or not at all.
fn constant(values: &[u64]) -> Option<u64> {
    let first = values.first().copied().unwrap_or_default();
    let is_constant = (first == 0 || values.len() >= DEGREE) && values.iter().all(|value| *value == first);
    is_constant.then_some(first)
}

/// A number modulo `t`, as the nearest to zero, modulo a prime.
fn lifted_number(number: u64, prime: u64) -> u64 {
    number + (prime - PLAIN_MODULUS) * u64::from(number > PLAIN_MODULUS / 2)
}

/// Coefficients modulo `t`, as the nearest to zero, modulo the first ciphertext primes.
fn lifted(coefficients: &[u64], limbs: usize) -> Residues<Coefficients> {
    let mut words = buffers::take();
    for prime in &PRIMES[..limbs] {
        words.extend(coefficients.iter().map(|c| lifted_number(*c, *prime)));
    }
    Residues::from_words(words)
}

/// Minus the product of the first primes, modulo `t`: of none of them, of one, and so on to all.
static MINUS_Q: LazyLock<[u64; LIMBS + 1]> = LazyLock::new(|| {
    std::array::from_fn(|limbs| {
        let product = PRIMES[..limbs].iter().fold(1, |product, prime| plain::mul(product, prime % PLAIN_MODULUS));
        plain::neg(product)
    })
});

/// `1/t` modulo each prime.
static T_INVERSE: LazyLock<[u64; LIMBS]> =
    LazyLock::new(|| std::array::from_fn(|limb| LIMB[limb].modulus.pow(PLAIN_MODULUS, PRIMES[limb] - 2)));

/// `round(q m / t)` modulo every ciphertext prime: with `r = q m mod t` nearest to zero it is `(q m - r) / t`, hence `-r / t`
/// modulo `q`.
pub fn scaled_up(coefficients: Vec<u64>) -> Residues<Coefficients> {
    scaled_up_modulo(coefficients, LIMBS)
}

/// The same where `q` is the product of the first primes alone.
pub(crate) fn scaled_up_modulo(mut coefficients: Vec<u64>, limbs: usize) -> Residues<Coefficients> {
    coefficients.iter_mut().for_each(|c| *c = plain::mul(*c, MINUS_Q[limbs]));
    let mut residues = lifted(&coefficients, limbs);
    for ((limb, words), inverse) in residues.limbs_mut().zip(*T_INVERSE) {
        limb.modulus.scalar_mul_vec(words, inverse);
    }
    residues
}

/// The same for a constant polynomial: one residue a prime.
pub(crate) fn scaled_up_constant(value: u64) -> [u64; LIMBS] {
    let minus_r = plain::centred(plain::mul(value, MINUS_Q[LIMBS]));
    std::array::from_fn(|limb| {
        let reduced = minus_r.rem_euclid(PRIMES[limb] as i64) as u64;
        LIMB[limb].modulus.mul(reduced, T_INVERSE[limb])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_round_trip_and_missing_ones_are_zero() {
        let values = [1, PLAIN_MODULUS - 1, 42];
        let slots = slots_of_coefficients(coefficients_of_slots(&values));
        assert_eq!(slots[..3], values);
        assert!(slots[3..].iter().all(|slot| *slot == 0));
    }

    #[test]
    fn a_constant_polynomial_has_the_same_value_in_every_slot() {
        let coefficients = coefficients_of_slots(&[7; DEGREE]);
        assert_eq!(coefficients[0], 7);
        assert!(coefficients[1..].iter().all(|c| *c == 0));
        assert_eq!(scaled_up(coefficients).limb(0)[0], scaled_up_constant(7)[0]);
        assert_eq!(
            scaled_up(coefficients_of_slots(&[PLAIN_MODULUS - 5; DEGREE])).limb(3)[0],
            scaled_up_constant(PLAIN_MODULUS - 5)[3]
        );
    }

    #[test]
    fn constant_vectors_are_encoded_as_all_others_are() {
        for value in [0, 1, 7, PLAIN_MODULUS / 2, PLAIN_MODULUS / 2 + 1, PLAIN_MODULUS - 1] {
            let transformed = coefficients_of_slots(&[value; DEGREE]);
            assert_eq!(Factor::new(&[value; DEGREE]).0, lifted(&transformed, LIMBS).into_points());
            assert_eq!(Offset::new(&[value; DEGREE]).0, scaled_up(transformed).into_points());
        }
        assert_eq!(Offset::new(&[]).0, Residues::zero());
        assert_eq!(constant(&[3; DEGREE - 1]), None);
    }

    /// t * round(q m / t) is -r modulo q, with |r| at most t/2.
    #[test]
    fn scaling_up_rounds_to_the_nearest() {
        let coefficients: Vec<u64> = (0..DEGREE as u64).map(|i| i * 34_359_738_337 % PLAIN_MODULUS).collect();
        let mut scaled = scaled_up(coefficients);
        scaled.scale(PLAIN_MODULUS as i64);
        for (limb, words) in scaled.limbs() {
            let prime = *limb.modulus;
            assert!(words.iter().all(|word| (*word).min(prime - word) <= PLAIN_MODULUS / 2));
        }
    }
}
