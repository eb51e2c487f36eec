//! The only way out to P2.
//!
//! P2 holds the secret key and has often made the very ciphertexts it gets back, so it knows their masks and their noise.
//! Without more, it would divide P1's secret multipliers out of both. So every ciphertext that leaves is
//! 1. re-randomised by a fresh public-key encryption of zero,
//! 2. flooded with uniform noise, at least `2^40` times its own, and
//! 3. blinded in its plaintext, by what the protocol adds.
//!
//! An [`Outbound`] cannot be made in any other way, and it is the type of every slot ciphertext in a query.

use std::sync::{Arc, LazyLock};

use fhe_math::zq::Modulus;
use rand::CryptoRng;

use crate::encoding::{coefficients_of_slots, scaled_up_modulo};
use crate::parameters::{INBOUND_LIMBS, LIMB_BYTES, OUTBOUND_BYTES, PRIMES};
use crate::ring::{LIMB, Points, Residues, excess, reduce};
use crate::{Level, PublicKey, SlotError, Slots, ZeroPool, buffers};

/// A ciphertext on its way to P2, sanitised: only [`Sanitizer::sanitize`] makes one.
///
/// ```compile_fail,E0423
/// let forged = veil_slots::Outbound(vec![0; veil_slots::OUTBOUND_BYTES]); // cannot initialize: private fields
/// ```
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
    components: [Residues<Points>; 2],
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
    pub fn into_components(self) -> [Residues<Points>; 2] {
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
        zero.0[0].add(&scaled_up_modulo(coefficients_of_slots(blind), INBOUND_LIMBS).into_points());
        let mut bytes = Vec::with_capacity(OUTBOUND_BYTES);
        for (component, zero) in slots.components().into_iter().zip(&zero.0) {
            let mut component = switch_down(component);
            component.add(zero);
            component.pack(&mut bytes);
        }
        Ok(Outbound(bytes))
    }
}

/// What switching down needs: `q2` and `q3` modulo the others.
struct Switch {
    /// `1 / q2` modulo `q3`, and its Shoup quotient.
    q2_inverse: (u64, u64),
    /// Modulo each of the two primes that stay: `q2`, `q2 q3` and `1 / (q2 q3)`.
    kept: [Kept; INBOUND_LIMBS],
}

struct Kept {
    q2: (u64, u64),
    dropped: u64,
    inverse: (u64, u64),
}

static SWITCH: LazyLock<Switch> = LazyLock::new(|| {
    let [_, _, q2, q3] = PRIMES;
    let with_quotient = |modulus: &Modulus, value: u64| (value, modulus.shoup(value));
    let third = &LIMB[3].modulus;
    let kept = std::array::from_fn(|index| {
        let (modulus, prime) = (&LIMB[index].modulus, PRIMES[index]);
        let dropped = modulus.mul(q2 % prime, q3 % prime);
        Kept {
            q2: with_quotient(modulus, q2 % prime),
            dropped,
            inverse: with_quotient(modulus, modulus.pow(dropped, prime - 2)),
        }
    });
    Switch { q2_inverse: with_quotient(third, third.pow(q2 % q3, q3 - 2)), kept }
});

/// `round(c / q2 q3)` modulo the first two primes: with `v = c mod q2 q3` nearest to zero it is `(c - v) / q2 q3`, where only `v` has to
/// leave point form and come back.
fn switch_down(polynomial: &Residues<Points>) -> Residues<Points> {
    let [_, _, _, q3] = PRIMES;
    let [c2, c3] = [2, 3].map(|limb| {
        let mut words = polynomial.limb(limb).to_vec();
        LIMB[limb].ntt.backward(&mut words);
        words
    });
    // v = c2 + q2 w with w = (c3 - c2) / q2 mod q3; it is beyond the middle if w > q3 / 2, and where w = q3 / 2 (rounded down) either
    // choice is right to within a rounding error.
    let third = &LIMB[3].modulus;
    let w: Vec<u64> = (c2.iter().zip(&c3))
        .map(|(c2, c3)| {
            let c2 = if *c2 >= q3 { c2 - q3 } else { *c2 };
            third.mul_shoup(third.sub(*c3, c2), SWITCH.q2_inverse.0, SWITCH.q2_inverse.1)
        })
        .collect();
    let mut words = buffers::take();
    for (index, kept) in SWITCH.kept.iter().enumerate() {
        let (limb, start) = (&LIMB[index], words.len());
        let excess = excess(PRIMES[index]);
        words.extend(c2.iter().zip(&w).map(|(c2, w)| {
            let beyond = u64::from(*w > q3 / 2).wrapping_neg();
            let v =
                limb.modulus.lazy_mul_shoup(*w, kept.q2.0, kept.q2.1) + c2 + (beyond & (PRIMES[index] - kept.dropped));
            reduce(v.into(), excess)
        }));
        let switched = &mut words[start..];
        limb.ntt.forward(switched);
        for (v, c) in switched.iter_mut().zip(polynomial.limb(index)) {
            *v = limb.modulus.mul_shoup(limb.modulus.sub(*c, *v), kept.inverse.0, kept.inverse.1);
        }
    }
    Residues::from_words(words)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::parameters::DEGREE;

    /// A multiple of q2 q3 divides exactly, and a remainder below half of it disappears, in both directions.
    #[test]
    fn switching_down_divides_and_rounds() {
        let small = crate::public_key::small_coefficients(&mut StdRng::seed_from_u64(1));
        for rest in [0, 1, -1, 1 << 40, -(1 << 40)] {
            let mut polynomial = Residues::from_small(&small);
            polynomial.scale(PRIMES[2] as i64);
            polynomial.scale(PRIMES[3] as i64);
            polynomial.add_small(&[rest; DEGREE]);
            let switched = switch_down(&polynomial.into_points()).into_coefficients();
            assert_eq!(switched, Residues::from_small_modulo(&small, INBOUND_LIMBS), "rest {rest}");
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
