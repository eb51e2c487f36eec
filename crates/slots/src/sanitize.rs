//! The only way out to P2.
//!
//! P2 holds the secret key and has often made the very ciphertexts it gets back, so it knows their masks and their noise.
//! Without more, it would divide P1's secret multipliers out of both. So every ciphertext that leaves is
//! 1. re-randomised by a fresh public-key encryption of zero,
//! 2. flooded with uniform noise, at least `2^40` times its own, and
//! 3. blinded in its plaintext, by what the protocol adds.
//!
//! An [`Outbound`] cannot be made in any other way, and nothing else can be put into a message for P2.

use std::sync::Arc;

use rand::CryptoRng;

use crate::encoding::{coefficients_of_slots, scaled_up};
use crate::parameters::{INBOUND_LIMBS, LIMB_BYTES, LIMBS, OUTBOUND_BYTES, PRIMES};
use crate::ring::{Coefficients, LIMB, Residues};
use crate::{Level, PublicKey, SlotError, Slots, ZeroPool, buffers};

/// A ciphertext on its way to P2, sanitised: only [`Sanitizer::sanitize`] makes one.
#[derive(Clone, PartialEq, Eq)]
pub struct Outbound(Vec<u8>);

impl Outbound {
    /// Its bytes on the wire: `c0` and `c1` modulo the first two primes, packed.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outbound")
    }
}

/// The same ciphertext as P2 receives it.
pub struct Inbound {
    pub(crate) components: [Residues<Coefficients>; 2],
}

impl Inbound {
    /// Checks bytes from outside.
    pub fn parse(bytes: &[u8]) -> Result<Self, SlotError> {
        if bytes.len() != OUTBOUND_BYTES {
            return Err(SlotError::Malformed("it has the wrong length"));
        }
        let (c0, c1) = bytes.split_at(INBOUND_LIMBS * LIMB_BYTES);
        Ok(Self { components: [Residues::unpack(c0, INBOUND_LIMBS)?, Residues::unpack(c1, INBOUND_LIMBS)?] })
    }

    /// Both components modulo the first two primes.
    pub fn into_components(self) -> [Residues<Coefficients>; 2] {
        self.components
    }
}

/// Hides ciphertexts that leave.
#[derive(Clone, Debug)]
pub struct Sanitizer {
    public_key: Arc<PublicKey>,
    pool: Option<Arc<ZeroPool>>,
}

impl Sanitizer {
    /// Makes encryptions of zero when they are needed.
    pub fn new(public_key: PublicKey) -> Self {
        Self { public_key: Arc::new(public_key), pool: None }
    }

    /// Takes encryptions of zero from a pool that fills itself in the background, from the operating system's randomness.
    pub fn with_pool(public_key: PublicKey) -> Self {
        let public_key = Arc::new(public_key);
        Self { pool: Some(Arc::new(ZeroPool::start(public_key.clone()))), public_key }
    }

    /// The key that it hides with.
    pub fn public_key(&self) -> &PublicKey {
        &self.public_key
    }

    /// Adds `blind` to the slots and makes the result safe to send. `blind` is what the protocol says; numbers are below `t`.
    pub fn sanitize<L: Level>(
        &self,
        slots: &Slots<L>,
        blind: &[u64],
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> Result<Outbound, SlotError> {
        slots.noise().checked_for_flooding()?;
        let mut zero = match self.pool.as_ref().and_then(|pool| pool.take()) {
            Some(zero) => zero,
            None => self.public_key.flooded_zero(rng),
        };
        zero.noise[0].add(&scaled_up(coefficients_of_slots(blind)));
        let mut bytes = Vec::with_capacity(OUTBOUND_BYTES);
        for (index, component) in slots.components().into_iter().enumerate() {
            let mut points = zero.points[index].take();
            points.add(component);
            let mut coefficients = points.into_coefficients();
            coefficients.add(&zero.noise[index]);
            switch_down(coefficients).pack(&mut bytes);
        }
        Ok(Outbound(bytes))
    }
}

/// `round(c / q2 q3)` modulo the first two primes: with `v = c mod q2 q3` nearest to zero it is `(c - v) / q2 q3`. The rounding adds
/// noise of some thousand times one, beside room for `2^59`.
fn switch_down(polynomial: Residues<Coefficients>) -> Residues<Coefficients> {
    let [q2, q3] = [PRIMES[2], PRIMES[3]];
    let third = &LIMB[3].modulus;
    let q2_inverse = third.pow(q2 % q3, q3 - 2);
    let q2_inverse_shoup = third.shoup(q2_inverse);
    // v = c2 + q2 w with w = (c3 - c2) / q2 mod q3; it is beyond the middle if w > q3 / 2, or w = q3 / 2 (rounded down), where
    // either choice is right to within a rounding error.
    let w: Vec<u64> = (polynomial.limb(2).iter().zip(polynomial.limb(3)))
        .map(|(c2, c3)| {
            let c2 = if *c2 >= q3 { c2 - q3 } else { *c2 };
            third.mul_shoup(third.sub(*c3, c2), q2_inverse, q2_inverse_shoup)
        })
        .collect();
    let mut words = buffers::take();
    for (index, prime) in PRIMES.iter().take(INBOUND_LIMBS).enumerate() {
        let modulus = &LIMB[index].modulus;
        let (q2, q3_reduced) = (q2 % prime, q3 % prime);
        let dropped = modulus.mul(q2, q3_reduced);
        let inverse = modulus.pow(dropped, prime - 2);
        let (inverse_shoup, q2_shoup) = (modulus.shoup(inverse), modulus.shoup(q2));
        let terms = polynomial.limb(index).iter().zip(polynomial.limb(2)).zip(&w);
        words.extend(terms.map(|((c, c2), w)| {
            let beyond = (u64::from(*w > q3 / 2)).wrapping_neg();
            let v = modulus.lazy_mul_shoup(*w, q2, q2_shoup) + c2;
            // v is below three primes, so five keep the difference positive.
            let difference = c + 4 * prime - v + (beyond & dropped);
            modulus.mul_shoup(difference, inverse, inverse_shoup)
        }));
    }
    debug_assert_eq!(LIMBS, INBOUND_LIMBS + 2);
    Residues::from_words(words)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    /// A multiple of q2 q3 divides exactly, and a remainder below half of it disappears, in both directions.
    #[test]
    fn switching_down_divides_and_rounds() {
        let small = crate::public_key::small(&mut StdRng::seed_from_u64(1));
        for rest in [0, 1, -1, 1 << 40, -(1 << 40)] {
            let mut polynomial = Residues::from_small(&small);
            polynomial.scale(PRIMES[2] as i64);
            polynomial.scale(PRIMES[3] as i64);
            polynomial.add_small(&[rest; DEGREE]);
            assert_eq!(switch_down(polynomial), Residues::from_small(&small).truncated(INBOUND_LIMBS), "rest {rest}");
        }
    }

    #[test]
    fn damaged_messages_are_refused() {
        assert!(Inbound::parse(&[]).is_err());
        assert!(Inbound::parse(&vec![0; OUTBOUND_BYTES - 1]).is_err());
        assert!(Inbound::parse(&vec![0xff; OUTBOUND_BYTES]).is_err());
        assert!(Inbound::parse(&vec![0; OUTBOUND_BYTES]).is_ok());
    }
}
