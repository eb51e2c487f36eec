//! That both parties run the same scheme.
//!
//! Slot order and the meaning of seeds depend on the roots of unity that the transforms chose. The fingerprint covers the
//! parameters and what the transforms and the seed expansion really compute, so that parties which would misunderstand each other
//! find out in the handshake.

use veil_cells::Seed;

use crate::encoding::coefficients_of_slots;
use crate::parameters::{DEGREE, FLOOD, LIMBS, PLAIN_MODULUS, PRIMES, VARIANCE};
use crate::ring::Residues;

/// 64 bits that differ if the schemes do (FNV-1a: against accidents, not forgery).
pub fn fingerprint() -> u64 {
    let ramp: Vec<u64> = (0..DEGREE as u64).collect();
    let small: Vec<i64> = (0..DEGREE as i64).collect();
    let points = Residues::from_small(&small).into_points();
    let seeded = Residues::from_seed(Seed(*b"veil fingerprint"));
    let constants = [DEGREE as u64, PLAIN_MODULUS, VARIANCE as u64, FLOOD].into_iter().chain(PRIMES);
    let transforms = coefficients_of_slots(&ramp).into_iter().step_by(61);
    let polynomials =
        (0..LIMBS).flat_map(|limb| [points.limb(limb)[1], points.limb(limb)[4711], seeded.limb(limb)[17]]);
    let words = constants.chain(transforms).chain(polynomials);
    words
        .flat_map(u64::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    /// A change here is a change of protocol: parties before and after it cannot talk.
    #[test]
    fn the_scheme_is_pinned() {
        assert_eq!(format!("{:016x}", super::fingerprint()), "5f59e086a3980fc3");
    }
}
