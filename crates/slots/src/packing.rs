//! 54-bit residues on the wire: 32 of them in 27 little-endian words, lowest bits first.

use crate::parameters::PRIME_BITS;

const GROUP: usize = 32;
const WORDS: usize = GROUP * PRIME_BITS / 64;

/// Appends residues, a multiple of 32 of them.
pub(crate) fn pack(residues: &[u64], out: &mut Vec<u8>) {
    out.reserve(residues.len() * PRIME_BITS / 8);
    for group in residues.as_chunks::<GROUP>().0 {
        let mut words = [0u64; WORDS];
        for (index, residue) in group.iter().enumerate() {
            let (word, shift) = (index * PRIME_BITS / 64, index * PRIME_BITS % 64);
            words[word] |= residue << shift;
            if shift + PRIME_BITS > 64 {
                words[word + 1] |= residue >> (64 - shift);
            }
        }
        words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
}

/// Reads as many residues as there is room for; `bytes` has the length that goes with it.
pub(crate) fn unpack(bytes: &[u8], residues: &mut [u64]) {
    let groups = residues.as_chunks_mut::<GROUP>().0;
    for (group, bytes) in groups.iter_mut().zip(bytes.as_chunks::<{ 8 * WORDS }>().0) {
        let mut words = [0u64; WORDS + 1];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        for (index, residue) in group.iter_mut().enumerate() {
            let (word, shift) = (index * PRIME_BITS / 64, index * PRIME_BITS % 64);
            let low = words[word] >> shift;
            let high = if shift + PRIME_BITS > 64 { words[word + 1] << (64 - shift) } else { 0 };
            *residue = (low | high) & ((1 << PRIME_BITS) - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_residues_lie_lowest() {
        let mut residues = [0; 32];
        (residues[0], residues[1], residues[31]) = (1, (1 << 54) - 1, 1 << 53);
        let mut bytes = Vec::new();
        pack(&residues, &mut bytes);
        assert_eq!(bytes.len(), 216);
        assert_eq!(bytes[..8], [1, 0, 0, 0, 0, 0, 0xc0, 0xff]);
        assert_eq!(bytes[8..15], [0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
        assert_eq!(bytes[215], 0x80);
        let mut back = [0; 32];
        unpack(&bytes, &mut back);
        assert_eq!(back, residues);
    }
}
