//! Polynomials modulo the ciphertext primes.
//!
//! A polynomial is in coefficient form, where it is rounded and scaled, or in point form (its number-theoretic transform), where
//! products are element-wise. The form is in the type.

use std::marker::PhantomData;
use std::sync::LazyLock;

use fhe_math::ntt::NttOperator;
use fhe_math::zq::Modulus;
use veil_cells::{Seed, expand_mask};
use zeroize::Zeroize;

use crate::SlotError;
use crate::packing;
use crate::parameters::{DEGREE, INBOUND_LIMBS, LIMB_BYTES, LIMBS, PLAIN_MODULUS, PRIME_BITS, PRIMES};

/// What the arithmetic modulo one prime needs.
pub(crate) struct Limb {
    pub(crate) modulus: Modulus,
    pub(crate) ntt: NttOperator,
}

impl Limb {
    fn new(prime: u64) -> Self {
        let modulus = Modulus::new(prime).expect("the primes have less than 62 bits");
        let ntt = NttOperator::new(&modulus, DEGREE).expect("the primes are 1 modulo twice the degree");
        Self { modulus, ntt }
    }
}

/// The ciphertext primes.
pub(crate) static LIMB: LazyLock<[Limb; LIMBS]> = LazyLock::new(|| PRIMES.map(Limb::new));

/// The plaintext prime.
pub(crate) static PLAIN: LazyLock<Limb> = LazyLock::new(|| Limb::new(PLAIN_MODULUS));

/// How a polynomial is written down.
pub trait Form: private::Sealed + Clone + Send + Sync + 'static {}

/// By its coefficients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coefficients;

/// By its values at the roots of unity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Points;

impl Form for Coefficients {}
impl Form for Points {}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Coefficients {}
    impl Sealed for super::Points {}
}

/// A polynomial modulo the first two or all four primes.
#[derive(Clone, PartialEq, Eq)]
pub struct Residues<F: Form> {
    /// One run of [`DEGREE`] residues a prime.
    words: Vec<u64>,
    form: PhantomData<F>,
}

impl<F: Form> Zeroize for Residues<F> {
    fn zeroize(&mut self) {
        self.words.zeroize();
    }
}

impl<F: Form> std::fmt::Debug for Residues<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Residues({} primes)", self.words.len() / DEGREE)
    }
}

impl<F: Form> Residues<F> {
    pub(crate) fn from_words(words: Vec<u64>) -> Self {
        debug_assert!(words.len() == LIMBS * DEGREE || words.len() == INBOUND_LIMBS * DEGREE);
        Self { words, form: PhantomData }
    }

    /// The zero polynomial modulo all primes.
    pub fn zero() -> Self {
        Self::from_words(vec![0; LIMBS * DEGREE])
    }

    /// Moves the polynomial out; what is left must not be used.
    pub(crate) fn take(&mut self) -> Self {
        Self { words: std::mem::take(&mut self.words), form: PhantomData }
    }

    /// The residues of each prime.
    pub(crate) fn limbs(&self) -> impl Iterator<Item = (&'static Limb, &[u64])> {
        LIMB.iter().zip(self.words.chunks_exact(DEGREE))
    }

    /// The residues of each prime.
    pub(crate) fn limbs_mut(&mut self) -> impl Iterator<Item = (&'static Limb, &mut [u64])> {
        LIMB.iter().zip(self.words.chunks_exact_mut(DEGREE))
    }

    /// The residues modulo one prime.
    pub fn limb(&self, index: usize) -> &[u64] {
        self.words.chunks_exact(DEGREE).nth(index).unwrap_or_default()
    }

    /// Adds.
    pub fn add(&mut self, other: &Self) {
        self.limbs_mut().zip(other.limbs()).for_each(|((limb, a), (_, b))| limb.modulus.add_vec(a, b));
    }

    /// Subtracts.
    pub fn sub(&mut self, other: &Self) {
        self.limbs_mut().zip(other.limbs()).for_each(|((limb, a), (_, b))| limb.modulus.sub_vec(a, b));
    }

    /// Multiplies by a number.
    pub fn scale(&mut self, factor: i64) {
        self.limbs_mut().for_each(|(limb, a)| {
            let reduced = (factor.rem_euclid(*limb.modulus as i64)) as u64;
            limb.modulus.scalar_mul_vec(a, reduced);
        });
    }

    /// Appends the residues, 54 bits each.
    pub(crate) fn pack(&self, out: &mut Vec<u8>) {
        self.words.chunks_exact(DEGREE).for_each(|limb| packing::pack(limb, out));
    }

    /// Reads packed residues of so many primes and checks that they are reduced.
    pub(crate) fn unpack(bytes: &[u8], limbs: usize) -> Result<Self, SlotError> {
        if bytes.len() != limbs * LIMB_BYTES {
            return Err(SlotError::Malformed("it has the wrong length"));
        }
        let mut words = vec![0; limbs * DEGREE];
        let parts = bytes.chunks_exact(LIMB_BYTES).zip(words.chunks_exact_mut(DEGREE)).zip(PRIMES);
        for ((bytes, words), prime) in parts {
            packing::unpack(bytes, words);
            if words.iter().fold(0, |largest, word| largest.max(*word)) >= prime {
                return Err(SlotError::Malformed("a residue is not below its prime"));
            }
        }
        Ok(Self::from_words(words))
    }
}

impl Residues<Coefficients> {
    /// A polynomial with small coefficients.
    pub fn from_small(coefficients: &[i64]) -> Self {
        let mut residues = Self::zero();
        residues.add_small(coefficients);
        residues
    }

    /// Adds small coefficients.
    pub fn add_small(&mut self, coefficients: &[i64]) {
        for (limb, words) in self.limbs_mut() {
            let prime = *limb.modulus;
            for (word, small) in words.iter_mut().zip(coefficients) {
                // Branch-free: noise and keys are secret.
                let negative = (*small >> 63) as u64;
                let reduced = (*small as u64).wrapping_add(negative & prime);
                let sum = *word + reduced;
                let beyond = ((sum >= prime) as u64).wrapping_neg();
                *word = sum - (beyond & prime);
            }
        }
    }

    /// Into point form.
    pub fn into_points(mut self) -> Residues<Points> {
        self.limbs_mut().for_each(|(limb, words)| limb.ntt.forward(words));
        Residues::from_words(std::mem::take(&mut self.words))
    }

    /// The first primes alone: of a ciphertext component that P2 opens.
    pub fn truncated(mut self, limbs: usize) -> Self {
        self.words.truncate(limbs * DEGREE);
        self
    }
}

impl Residues<Points> {
    /// The uniform polynomial that a seed stands for: AES-128 in counter mode, 54 bits a residue; a word that is not below
    /// its prime is replaced by the next of 64 spare ones at the end of the stream.
    pub fn from_seed(seed: Seed) -> Self {
        const SPARE: usize = 64;
        let mut words = vec![0; LIMBS * DEGREE + SPARE];
        expand_mask(seed, &mut words);
        let mut spare = words.split_off(LIMBS * DEGREE).into_iter();
        for (limb, prime) in words.chunks_exact_mut(DEGREE).zip(PRIMES) {
            let mut beyond = 0;
            for word in limb.iter_mut() {
                *word &= (1 << PRIME_BITS) - 1;
                beyond |= u64::from(*word >= prime);
            }
            if beyond != 0 {
                for word in limb.iter_mut() {
                    while *word >= prime {
                        // 2^-34 a word: the spare ones never run out, and the subtraction is only there to end.
                        *word = spare.next().map_or(*word - prime, |spare| spare & ((1 << PRIME_BITS) - 1));
                    }
                }
            }
        }
        Self::from_words(words)
    }

    /// Multiplies element-wise, the ring product.
    pub fn mul(&mut self, other: &Self) {
        self.limbs_mut().zip(other.limbs()).for_each(|((limb, a), (_, b))| limb.modulus.mul_vec(a, b));
    }

    /// Multiplies by a polynomial that was prepared, which is faster.
    pub fn mul_prepared(&mut self, other: &Prepared) {
        let shoup = other.shoup.chunks_exact(DEGREE);
        for (((limb, a), (_, b)), shoup) in self.limbs_mut().zip(other.residues.limbs()).zip(shoup) {
            limb.modulus.mul_shoup_vec(a, b, shoup);
        }
    }

    /// Into coefficient form.
    pub fn into_coefficients(mut self) -> Residues<Coefficients> {
        self.limbs_mut().for_each(|(limb, words)| limb.ntt.backward(words));
        Residues::from_words(std::mem::take(&mut self.words))
    }

    /// Adds the same value to every point: a constant polynomial.
    pub(crate) fn add_constant(&mut self, residues: [u64; LIMBS]) {
        for ((limb, words), constant) in self.limbs_mut().zip(residues) {
            words.iter_mut().for_each(|word| *word = limb.modulus.add(*word, constant));
        }
    }
}

/// A polynomial that many others are multiplied by.
#[derive(Clone, Debug)]
pub struct Prepared {
    residues: Residues<Points>,
    shoup: Vec<u64>,
}

impl Prepared {
    /// Precomputes Shoup's quotients.
    pub fn new(residues: Residues<Points>) -> Self {
        let shoup = residues.limbs().flat_map(|(limb, words)| limb.modulus.shoup_vec(words)).collect();
        Self { residues, shoup }
    }

    /// The polynomial.
    pub fn residues(&self) -> &Residues<Points> {
        &self.residues
    }
}

impl Zeroize for Prepared {
    fn zeroize(&mut self) {
        self.residues.zeroize();
        self.shoup.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primes_are_those_that_fhe_would_choose() {
        let mut below = 1 << 54;
        for prime in PRIMES {
            let largest = fhe_math::zq::primes::generate_prime(54, 2 * DEGREE as u64, below).unwrap();
            assert_eq!(largest, prime);
            below = largest;
        }
        assert!(fhe_util::is_prime(PLAIN_MODULUS) && PLAIN_MODULUS % (2 * DEGREE as u64) == 1);
    }

    #[test]
    fn products_in_point_form_are_negacyclic() {
        let monomial = |power: usize| {
            let mut coefficients = vec![0; DEGREE];
            coefficients[power] = 1;
            Residues::from_small(&coefficients).into_points()
        };
        let mut product = monomial(DEGREE - 1);
        product.mul(&monomial(2));
        let mut prepared = monomial(DEGREE - 1);
        prepared.mul_prepared(&Prepared::new(monomial(2)));
        assert_eq!(product, prepared);
        let mut expected = vec![0; DEGREE];
        expected[1] = -1;
        assert_eq!(product.into_coefficients(), Residues::from_small(&expected));
    }

    #[test]
    fn seeds_expand_to_reduced_residues_and_differ() {
        let (one, two) = (Residues::from_seed(Seed([1; 16])), Residues::from_seed(Seed([2; 16])));
        for ((limb, words), (_, others)) in one.limbs().zip(two.limbs()) {
            assert!(words.iter().all(|word| *word < *limb.modulus));
            assert_ne!(words, others);
            let mean = words.iter().map(|word| *word as f64).sum::<f64>() / DEGREE as f64 / *limb.modulus as f64;
            assert!((mean - 0.5).abs() < 0.02, "mean {mean}");
        }
        assert_eq!(one, Residues::from_seed(Seed([1; 16])));
    }

    #[test]
    fn packed_residues_round_trip_and_are_checked() {
        let residues = Residues::from_seed(Seed([7; 16]));
        let mut bytes = Vec::new();
        residues.pack(&mut bytes);
        assert_eq!(bytes.len(), LIMBS * LIMB_BYTES);
        assert_eq!(Residues::<Points>::unpack(&bytes, LIMBS).unwrap(), residues);
        assert!(Residues::<Points>::unpack(&bytes[1..], LIMBS).is_err());
        bytes[..27].fill(0xff);
        let error = Residues::<Points>::unpack(&bytes, LIMBS).unwrap_err();
        assert_eq!(error, SlotError::Malformed("a residue is not below its prime"));
    }
}
