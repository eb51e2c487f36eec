//! The public key: all that P1 needs to hide what it sends.

use fhe_util::sample_vec_cbd;
use rand::CryptoRng;
use veil_cells::Seed;
use zeroize::{Zeroize, Zeroizing};

use crate::encoding::{coefficients_of_slots, scaled_up};
use crate::parameters::{DEGREE, FLOOD, INBOUND_LIMBS, VARIANCE};
use crate::ring::{Coefficients, Points, Residues, excess, reduce};
use crate::{L0, Noise, Prepared, SeededSlots, SlotError, Slots};

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

    /// Encrypts numbers below `t`; missing slots are zero. Nobody but the key holder can tell what they are, not even apart from
    /// each other: for values of P1's own that stay with it, or with someone else. What goes to P2 is sanitised anyway.
    pub fn encrypt<R: CryptoRng + ?Sized>(&self, values: &[u64], rng: &mut R) -> Slots<L0> {
        let u = Zeroizing::new(Residues::from_small(&small_coefficients(rng)).into_points());
        let mut message = Some(scaled_up(coefficients_of_slots(values)));
        let components = self.components.each_ref().map(|component| {
            let mut noise = message.take().unwrap_or_else(Residues::zero);
            noise.add_small(&small_coefficients(rng));
            let mut product = Residues::clone(&u);
            product.mul_prepared(component);
            product.add(&Zeroizing::new(noise.into_points()));
            product
        });
        Slots::from_parts(components, Noise::public())
    }

    /// A fresh encryption of zero under a flood of noise, modulo the two primes that P2 sees: the key's first residues are a
    /// key modulo these.
    pub(crate) fn flooded_zero<R: CryptoRng + ?Sized>(&self, rng: &mut R) -> FloodedZero {
        let u = Zeroizing::new(Residues::from_small_modulo(&small_coefficients(rng), INBOUND_LIMBS).into_points());
        let mut noise = [flood(rng), Residues::zero_modulo(INBOUND_LIMBS)];
        noise.iter_mut().for_each(|noise| noise.add_small(&small_coefficients(rng)));
        let mut noise = noise.into_iter();
        let components = self.components.each_ref().map(|component| {
            let mut product = Residues::clone(&u);
            product.mul_prepared(component);
            if let Some(noise) = noise.next() {
                product.add(&Zeroizing::new(noise.into_points()));
            }
            product
        });
        FloodedZero(components)
    }
}

/// An encryption of zero that hides one ciphertext.
pub(crate) struct FloodedZero(pub(crate) [Residues<Points>; 2]);

impl Drop for FloodedZero {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// Coefficients of keys and noise: centred binomial.
pub fn small_coefficients<R: CryptoRng + ?Sized>(mut rng: &mut R) -> Zeroizing<Vec<i64>> {
    Zeroizing::new(sample_vec_cbd(DEGREE, VARIANCE, &mut rng).expect("the variance is between 1 and 16"))
}

/// Uniform in `[-FLOOD, FLOOD)`, coefficient by coefficient.
fn flood<R: CryptoRng + ?Sized>(rng: &mut R) -> Residues<Coefficients> {
    const BITS: u32 = u64::BITS - (2 * FLOOD).leading_zeros();
    let mut bytes = Zeroizing::new(vec![0; 8 * DEGREE]);
    rng.fill_bytes(&mut bytes);
    let mut random = Zeroizing::new(Vec::with_capacity(DEGREE));
    random.extend(bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes) >> (u64::BITS - BITS)));
    for word in random.iter_mut() {
        // Rejection keeps it exactly uniform.
        while *word >= 2 * FLOOD {
            *word = rng.next_u64() >> (u64::BITS - BITS);
        }
    }
    let mut residues = Residues::<Coefficients>::zero_modulo(INBOUND_LIMBS);
    for (limb, words) in residues.limbs_mut() {
        let (prime, excess) = (*limb.modulus, excess(*limb.modulus));
        let lowest = prime - FLOOD % prime;
        for (word, random) in words.iter_mut().zip(random.iter()) {
            *word = reduce(u128::from(*random) + u128::from(lowest), excess);
        }
    }
    residues
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::parameters::PRIMES;

    /// Both residues of a coefficient are those of one number within the flood, and the numbers spread over all of it.
    #[test]
    fn the_flood_is_uniform_and_within_its_bounds() {
        let flood = flood(&mut StdRng::seed_from_u64(1));
        let (mut lowest, mut highest, mut sum) = (i64::MAX, i64::MIN, 0f64);
        for (first, second) in flood.limb(0).iter().zip(flood.limb(1)) {
            // |x| is below 2^59, so x is one of 64 numbers with that residue.
            let candidate = (-32..=32).map(|k| *first as i64 + k * PRIMES[0] as i64);
            let of_both = |x: &i64| x.unsigned_abs() <= FLOOD && x.rem_euclid(PRIMES[1] as i64) as u64 == *second;
            let found: Vec<i64> = candidate.filter(of_both).collect();
            assert_eq!(found.len(), 1);
            (lowest, highest, sum) = (lowest.min(found[0]), highest.max(found[0]), sum + found[0] as f64);
        }
        let edge = (FLOOD / 1000 * 998) as i64;
        assert!(lowest < -edge && highest > edge, "{lowest} to {highest}");
        // The mean of n uniform numbers has standard deviation FLOOD / sqrt(3 n): five of them.
        assert!((sum / DEGREE as f64).abs() < 5.0 * FLOOD as f64 / (3.0 * DEGREE as f64).sqrt());
    }
}
