//! The GLWE secret key and its ring product.

use std::fmt;
use std::sync::LazyLock;

use rand::CryptoRng;
use tfhe_ntt::native_binary64::Plan32;
use veil_cells::{POLYNOMIAL_SIZE, Seed, expand_mask};
use zeroize::Zeroizing;

/// Bytes of a key at rest.
pub(crate) const CELL_KEY_BYTES: usize = POLYNOMIAL_SIZE / 8;

/// Below this many samples of a chunk, inner products are faster than the ring product.
const RING_PRODUCT_PAYS: usize = 48;

/// A binary polynomial. It never prints and is wiped when dropped.
#[derive(Clone)]
pub struct CellKey {
    bits: Zeroizing<Vec<u64>>,
}

impl fmt::Debug for CellKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CellKey(secret)")
    }
}

impl CellKey {
    /// Draws a key.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut bytes = Zeroizing::new([0; CELL_KEY_BYTES]);
        rng.fill_bytes(&mut *bytes);
        Self::from_bytes(&bytes)
    }

    pub(crate) fn from_bytes(bytes: &[u8; CELL_KEY_BYTES]) -> Self {
        // Room for all of it at once: a vector that grows leaves copies behind.
        let mut bits = Zeroizing::new(Vec::with_capacity(POLYNOMIAL_SIZE));
        bits.extend(bytes.iter().flat_map(|byte| (0..8).map(move |bit| u64::from(byte >> bit & 1))));
        Self { bits }
    }

    pub(crate) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let byte = |bits: &[u64; 8]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | *bit as u8);
        Zeroizing::new(self.bits.as_chunks::<8>().0.iter().map(byte).collect())
    }

    /// The bits of the key, lowest coefficient first.
    pub(crate) fn bits(&self) -> &[u64] {
        &self.bits
    }

    /// `<mask, s>` of an LWE mask.
    pub(crate) fn inner_product(&self, mask: impl Iterator<Item = u64>) -> u64 {
        let product = mask.zip(self.bits.iter()).map(|(word, bit)| word & bit.wrapping_neg());
        product.fold(0, u64::wrapping_add)
    }
}

/// What the key adds to the samples of one chunk: the coefficients of `A(X) * S(X)`.
pub(crate) struct MaskProduct<'a> {
    key: &'a CellKey,
    mask: Vec<u64>,
    /// All coefficients, where they are worth a ring product.
    product: Option<Zeroizing<Vec<u64>>>,
}

impl<'a> MaskProduct<'a> {
    /// Expands the seed, ready to answer for about `samples` coefficients.
    pub(crate) fn new(key: &'a CellKey, seed: Seed, samples: usize) -> Self {
        static PLAN: LazyLock<Option<Plan32>> = LazyLock::new(|| Plan32::try_new(POLYNOMIAL_SIZE));
        let mut mask = vec![0; POLYNOMIAL_SIZE];
        expand_mask(seed, &mut mask);
        let product = PLAN.as_ref().filter(|_| samples > RING_PRODUCT_PAYS).map(|plan| {
            let mut product = Zeroizing::new(vec![0; POLYNOMIAL_SIZE]);
            plan.negacyclic_polymul(&mut product, &mask, key.bits());
            product
        });
        Self { key, mask, product }
    }

    /// Coefficient `index`, which the caller has checked to be below [`POLYNOMIAL_SIZE`].
    #[inline]
    pub(crate) fn at(&self, index: usize) -> u64 {
        match &self.product {
            Some(product) => product[index],
            None => {
                // Sample extraction, see `veil_cells::expand_mask`: a_j = A_{i-j}, negated where it wraps.
                let (below, above) = self.mask.split_at(index + 1);
                let (low, high) = self.key.bits().split_at(index + 1);
                inner(below, low).wrapping_sub(inner(above, high))
            }
        }
    }
}

fn inner(mask: &[u64], bits: &[u64]) -> u64 {
    let product = mask.iter().rev().zip(bits).map(|(word, bit)| word & bit.wrapping_neg());
    product.fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn bytes_round_trip() {
        let key = CellKey::generate(&mut StdRng::seed_from_u64(1));
        let bytes: [u8; CELL_KEY_BYTES] = key.to_bytes().as_slice().try_into().unwrap();
        assert_eq!(CellKey::from_bytes(&bytes).bits(), key.bits());
        let ones: u64 = key.bits().iter().sum();
        assert!((1800..2300).contains(&ones), "{ones} of 4096 bits are set");
    }

    #[test]
    fn the_ring_product_and_inner_products_agree() {
        let key = CellKey::generate(&mut StdRng::seed_from_u64(2));
        let ring = MaskProduct::new(&key, Seed([3; 16]), POLYNOMIAL_SIZE);
        let inner = MaskProduct::new(&key, Seed([3; 16]), 1);
        assert!(ring.product.is_some() && inner.product.is_none());
        for index in [0, 1, 2, 1000, 4094, 4095] {
            assert_eq!(ring.at(index), inner.at(index), "coefficient {index}");
        }
    }

    #[test]
    fn a_key_does_not_print() {
        let key = CellKey::generate(&mut StdRng::seed_from_u64(1));
        assert_eq!(format!("{key:?}"), "CellKey(secret)");
    }
}
