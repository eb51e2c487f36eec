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
use crate::parameters::{DEGREE, INBOUND_LIMBS, LIMB_BYTES, LIMBS, PLAIN_MODULUS, PRIME_BITS, PRIMES, SPARE_WORDS};
use crate::{buffers, packing};

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
#[derive(PartialEq, Eq)]
pub struct Residues<F: Form> {
    /// One run of [`DEGREE`] residues a prime.
    words: Vec<u64>,
    form: PhantomData<F>,
}

impl<F: Form> Clone for Residues<F> {
    fn clone(&self) -> Self {
        let mut words = buffers::take();
        words.extend_from_slice(&self.words);
        Self { words, form: PhantomData }
    }
}

impl<F: Form> Drop for Residues<F> {
    fn drop(&mut self) {
        buffers::put(std::mem::take(&mut self.words));
    }
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
        Self::zero_modulo(LIMBS)
    }

    /// The zero polynomial modulo the first primes.
    pub(crate) fn zero_modulo(limbs: usize) -> Self {
        Self::from_words(buffers::zeros(limbs * DEGREE))
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
        let mut words = buffers::zeros(limbs * DEGREE);
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

    /// The same modulo the first primes.
    pub(crate) fn from_small_modulo(coefficients: &[i64], limbs: usize) -> Self {
        let mut residues = Self::zero_modulo(limbs);
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
}

impl Residues<Points> {
    /// The uniform polynomial that a seed stands for: AES-128 in counter mode, 54 bits a residue; a word that is not below
    /// its prime is replaced by the next of 64 spare ones at the end of the stream.
    pub fn from_seed(seed: Seed) -> Self {
        let mut words = buffers::zeros(LIMBS * DEGREE + SPARE_WORDS);
        expand_mask(seed, &mut words);
        let mut spare = [0; SPARE_WORDS];
        spare.copy_from_slice(&words[LIMBS * DEGREE..]);
        words.truncate(LIMBS * DEGREE);
        let mut spare = spare.into_iter();
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
        for ((limb, a), (_, b)) in self.limbs_mut().zip(other.limbs()) {
            let excess = excess(*limb.modulus);
            a.iter_mut().zip(b).for_each(|(a, b)| *a = reduce(u128::from(*a) * u128::from(*b), excess));
        }
    }

    /// The sum of ring products: products are added up unreduced, sixteen at a time.
    pub(crate) fn dot(terms: &[(&Self, &Self)]) -> Self {
        let mut words = buffers::take();
        for (limb, prime) in PRIMES.into_iter().enumerate() {
            let excess = excess(prime);
            let start = words.len();
            words.resize(start + DEGREE, 0);
            for terms in terms.chunks(LAZY_TERMS) {
                let sum = &mut words[start..];
                // Blocks that stay in the cache while all terms pass over them.
                for (block, sum) in sum.chunks_exact_mut(BLOCK).enumerate() {
                    let mut wide: [u128; BLOCK] = std::array::from_fn(|at| u128::from(sum[at]));
                    for (a, b) in terms {
                        let range = block * BLOCK..(block + 1) * BLOCK;
                        let (a, b) = (&a.limb(limb)[range.clone()], &b.limb(limb)[range]);
                        for (wide, (a, b)) in wide.iter_mut().zip(a.iter().zip(b)) {
                            *wide += u128::from(*a) * u128::from(*b);
                        }
                    }
                    sum.iter_mut().zip(wide).for_each(|(sum, wide)| *sum = reduce(wide, excess));
                }
            }
        }
        Self::from_words(words)
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

    /// A constant polynomial: the same value at every point.
    pub(crate) fn constant(residues: [u64; LIMBS]) -> Self {
        let mut words = buffers::take();
        residues.into_iter().for_each(|residue| words.resize(words.len() + DEGREE, residue));
        Self::from_words(words)
    }

    /// Adds the same value to every point: a constant polynomial.
    pub(crate) fn add_constant(&mut self, residues: [u64; LIMBS]) {
        for ((limb, words), constant) in self.limbs_mut().zip(residues) {
            words.iter_mut().for_each(|word| *word = limb.modulus.add(*word, constant));
        }
    }
}

/// Products of residues are below `2^108`, so sixteen of them and a residue stay below the `2^113` that [`reduce`] takes.
const LAZY_TERMS: usize = 16;

/// Residues that are worked on together.
const BLOCK: usize = 64;

/// How far a prime is below `2^54`: less than `2^21`, so that reduction is a matter of folding.
pub(crate) const fn excess(prime: u64) -> u64 {
    (1 << PRIME_BITS) - prime
}

/// A number below `2^113` modulo the prime `2^54 - excess`, in constant time.
#[inline(always)]
pub(crate) fn reduce(wide: u128, excess: u64) -> u64 {
    const MASK: u64 = (1 << PRIME_BITS) - 1;
    // Below 2^113 there are 59 bits to fold, then 26 (and a residue), then one subtraction is left.
    let once = u128::from((wide >> PRIME_BITS) as u64) * u128::from(excess) + u128::from(wide as u64 & MASK);
    let twice = (once >> PRIME_BITS) as u64 * excess + (once as u64 & MASK);
    let prime = (1 << PRIME_BITS) - excess;
    twice - (prime & ((twice >= prime) as u64).wrapping_neg())
}

/// A polynomial that many others are multiplied by. It may be a key, so it does not print.
#[derive(Clone)]
pub struct Prepared {
    residues: Residues<Points>,
    shoup: Vec<u64>,
}

impl Prepared {
    /// Precomputes Shoup's quotients.
    pub fn new(residues: Residues<Points>) -> Self {
        // Room for all of it at once: a vector that grows leaves copies behind.
        let mut shoup = Vec::with_capacity(residues.words.len());
        for (limb, words) in residues.limbs() {
            shoup.extend(words.iter().map(|word| limb.modulus.shoup(*word)));
        }
        Self { residues, shoup }
    }

    /// The polynomial.
    pub fn residues(&self) -> &Residues<Points> {
        &self.residues
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prepared")
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
    fn reduction_folds_the_largest_numbers() {
        for prime in PRIMES {
            let largest = u128::from(prime - 1) * u128::from(prime - 1) * LAZY_TERMS as u128 + u128::from(prime - 1);
            for wide in [0, 1, prime.into(), u128::from(prime) * u128::from(prime) - 1, largest, (1 << 113) - 1] {
                assert_eq!(u128::from(reduce(wide, excess(prime))), wide % u128::from(prime), "{wide}");
            }
        }
    }

    #[test]
    fn a_long_sum_of_products_is_the_sum_of_each() {
        let seeded = |byte: u8| Residues::from_seed(Seed([byte; 16]));
        let terms: Vec<_> = (0..40).map(|at| (seeded(at), seeded(at + 100))).collect();
        let mut expected = Residues::<Points>::zero();
        for (a, b) in &terms {
            let mut product = a.clone();
            product.limbs_mut().zip(b.limbs()).for_each(|((limb, a), (_, b))| limb.modulus.mul_vec(a, b));
            expected.add(&product);
        }
        assert_eq!(Residues::dot(&terms.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>()), expected);
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
