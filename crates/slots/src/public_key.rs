//! The public key: all that P1 needs to hide what it sends.

use fhe_util::sample_vec_cbd;
use rand::CryptoRng;
use veil_cells::Seed;
use zeroize::{Zeroize, Zeroizing};

use crate::parameters::{DEGREE, FLOOD_STEP_BITS, FLOOD_STEPS, LIMBS, VARIANCE};
use crate::ring::{Coefficients, Points, Residues};
use crate::{Prepared, SeededSlots, SlotError};

/// An encryption of zero, `(e - a s, a)`.
#[derive(Clone)]
pub struct PublicKey {
    seeded: SeededSlots,
    components: [Prepared; 2],
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PublicKey")
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.seeded == other.seeded
    }
}

impl Eq for PublicKey {}

impl PublicKey {
    /// From an encryption of zero.
    pub fn new(seeded: SeededSlots) -> Result<Self, SlotError> {
        let fresh = seeded.expand()?;
        let components = fresh.components().map(|component| Prepared::new(component.clone()));
        Ok(Self { seeded, components })
    }

    /// Its bytes: those of a reply.
    pub fn as_bytes(&self) -> &[u8] {
        self.seeded.as_bytes()
    }

    /// The seed of its uniform component.
    pub fn seed(&self) -> Seed {
        self.seeded.seed()
    }

    /// A fresh encryption of zero under a flood of noise.
    pub(crate) fn flooded_zero<R: CryptoRng + ?Sized>(&self, mut rng: &mut R) -> FloodedZero {
        let u = Zeroizing::new(Residues::from_small(&small(&mut rng)).into_points());
        let points = self.components.each_ref().map(|component| {
            let mut product = Residues::clone(&u);
            product.mul_prepared(component);
            product
        });
        let mut noise = flood(rng);
        noise.add_small(&small(&mut rng));
        FloodedZero { points, noise: [noise, Residues::from_small(&small(&mut rng))] }
    }
}

/// An encryption of zero that hides one ciphertext: `points` and `noise` are yet to be added.
pub(crate) struct FloodedZero {
    pub(crate) points: [Residues<Points>; 2],
    pub(crate) noise: [Residues<Coefficients>; 2],
}

impl Drop for FloodedZero {
    fn drop(&mut self) {
        self.points.iter_mut().for_each(Zeroize::zeroize);
        self.noise.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// Coefficients of keys and noise.
pub(crate) fn small<R: CryptoRng + ?Sized>(mut rng: &mut R) -> Zeroizing<Vec<i64>> {
    Zeroizing::new(sample_vec_cbd(DEGREE, VARIANCE, &mut rng).unwrap_or_default())
}

/// Uniform in `[-FLOOD_STEPS * 2^118, FLOOD_STEPS * 2^118)`, coefficient by coefficient: a uniform multiple of `2^118` plus 118
/// uniform bits.
fn flood<R: CryptoRng + ?Sized>(rng: &mut R) -> Residues<Coefficients> {
    const HALF: u32 = FLOOD_STEP_BITS / 2;
    let half_mask = (1u64 << HALF) - 1;
    let mut random = Zeroizing::new(vec![0u64; 3 * DEGREE]);
    let mut block = Zeroizing::new([0u8; 24 * 64]);
    for words in random.chunks_exact_mut(3 * 64) {
        rng.fill_bytes(&mut *block);
        for (word, bytes) in words.iter_mut().zip(block.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    }
    for parts in random.as_chunks_mut::<3>().0 {
        let [low, middle, high] = parts;
        *low &= half_mask;
        *middle &= half_mask;
        // Rejection from 50 bits keeps the multiple exactly uniform.
        *high &= (1 << 50) - 1;
        while *high >= 2 * FLOOD_STEPS {
            *high = rng.next_u64() & ((1 << 50) - 1);
        }
    }
    let mut residues = Residues::<Coefficients>::zero();
    for (limb, words) in residues.limbs_mut() {
        let modulus = &limb.modulus;
        let step = modulus.pow(2, FLOOD_STEP_BITS.into());
        let half = modulus.pow(2, HALF.into());
        let (step_shoup, half_shoup) = (modulus.shoup(step), modulus.shoup(half));
        let lowest = modulus.neg(modulus.mul(step, FLOOD_STEPS));
        for (word, [low, middle, high]) in words.iter_mut().zip(random.as_chunks::<3>().0) {
            // Lazy products are below twice the prime, and five primes fit a word many times over.
            let sum = modulus.lazy_mul_shoup(*high, step, step_shoup)
                + modulus.lazy_mul_shoup(*middle, half, half_shoup)
                + lowest
                + *low;
            *word = modulus.reduce_opt(sum);
        }
    }
    debug_assert_eq!(residues.limbs().count(), LIMBS);
    residues
}
