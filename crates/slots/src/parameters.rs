//! The parameters of the slot scheme: BFV (Fan and Vercauteren 2012) over `Z_q[X]/(X^8192 + 1)`.
//!
//! | | |
//! |---|---|
//! | degree | 8192 slots |
//! | q | four primes just below 2^54, so 216 bits: the homomorphic encryption standard (Albrecht et al. 2018, table 1) allows 218 at 128-bit security |
//! | t | 281474976694273 = 2^48 - 16383, a prime that is 1 modulo 16384; equality tags in cells are numbers modulo it too |
//! | key and noise | centred binomial of variance 10, absolute value at most 20 |

/// Numbers in one ciphertext: 8192.
pub const DEGREE: usize = 2 * veil_cells::POLYNOMIAL_SIZE;

/// The plaintext prime `t`.
pub const PLAIN_MODULUS: u64 = veil_cells::TAG_MODULUS;

/// Every unsigned number of so many bits is smaller than [`PLAIN_MODULUS`].
pub const SLOT_VALUE_BITS: u32 = 47;

/// The primes of `q`: the four largest below `2^54` that are 1 modulo 16384.
pub const PRIMES: [u64; LIMBS] =
    [18_014_398_508_400_641, 18_014_398_508_138_497, 18_014_398_507_892_737, 18_014_398_507_794_433];

/// Primes of a ciphertext that P1 computes with.
pub const LIMBS: usize = 4;

/// Primes of a ciphertext that P2 opens. After flooding the lower bits of a ciphertext are noise, so `sanitize` switches down to
/// half the primes, and half the bytes.
pub const INBOUND_LIMBS: usize = 2;

/// Words at the end of a seed's stream, in the place of those that are not below their prime.
pub(crate) const SPARE_WORDS: usize = 64;

/// Bits of a residue on the wire.
pub(crate) const PRIME_BITS: usize = 54;

/// Bytes of one packed residue polynomial.
pub(crate) const LIMB_BYTES: usize = DEGREE * PRIME_BITS / 8;

/// Bytes of a ciphertext to P2: both components, two primes each.
pub const OUTBOUND_BYTES: usize = 2 * INBOUND_LIMBS * LIMB_BYTES;

/// Bytes of a reply: a seed, and one component with all primes.
pub const SEEDED_BYTES: usize = 16 + LIMBS * LIMB_BYTES;

/// Variance of the centred binomial distribution of keys and noise.
pub(crate) const VARIANCE: usize = 10;

/// Flooding is uniform and at least `2^40` times the noise it hides.
pub const FLOOD_BITS: i32 = 40;

/// The flood is uniform in `[-FLOOD, FLOOD)`: 94 % of `q0 q1 / 2t`, the noise that still decrypts modulo the two primes that P2 sees.
/// One size for all ciphertexts, so that P2 cannot tell long computations from short ones.
pub(crate) const FLOOD: u64 = (1 << 59) / 100 * 94;

/// The noise that switching down to two primes adds, at most: half a unit in `c0`, and half a unit times the key in `c1`, which is
/// sub-Gaussian with parameter `sqrt(8192 * 10) / 2`, times 10.6.
pub(crate) const SWITCHING_NOISE: f64 = 2048.0;

/// The largest noise that may be flooded, before switching down.
pub(crate) fn largest_noise() -> f64 {
    (FLOOD as f64 * 2f64.powi(-FLOOD_BITS) - SWITCHING_NOISE) * PRIMES[2] as f64 * PRIMES[3] as f64
}
