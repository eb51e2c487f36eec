//! Which rows, in sixteen bytes: a keyed hash of a set of rows that adds up over its parts.
//!
//! `H(M) = sum over all rows of M of F_K(file, row), modulo 2^128`: MSet-Add-Hash (Clarke, Devadas, van Dijk, Gassend and Suh: Incremental multiset hash
//! functions and their application to memory integrity checking, ASIACRYPT 2003), with F from ChaCha20 under a key for every release and file.
//! Two different multisets, none of whose rows is there more than 2^32 times, have the same hash with a probability of at most 2^-96 if F is random
//! (their difference has a factor that 2^33 does not divide), and that is all that P1 can try: it never sees a hash, only whether two were the same.
//! Hashes that P1 could read would have to be longer: from those of single rows it could find sets with equal sums (Wagner: A generalized birthday
//! problem, CRYPTO 2002).

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;
use serde::{Deserialize, Serialize};
use veil_cells::FileId;
use veil_protocols::anchors::Anchors;
use zeroize::Zeroizing;

/// Rows whose numbers come from the generator together: it makes four blocks of ChaCha20 at once.
const AT_ONCE: u32 = 16;

/// Words of 32 bits a row.
const WORDS: u128 = 4;

/// The hash of a set of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnchorHash(pub(crate) u128);

impl AnchorHash {
    /// Of all rows, with the secret of every file.
    pub(crate) fn of(anchors: &Anchors, secret: impl Fn(FileId) -> Zeroizing<[u8; 32]>) -> Self {
        let mut sum = 0u128;
        for (file, rows) in &anchors.0 {
            let mut stream = ChaCha20Rng::from_seed(*secret(*file));
            let mut bytes = [0u8; 16 * AT_ONCE as usize];
            let mut known = None;
            for row in &rows.rows {
                let block = row / AT_ONCE;
                if known != Some(block) {
                    if known.is_none_or(|known| known + 1 != block) {
                        stream.set_word_pos(u128::from(block) * u128::from(AT_ONCE) * WORDS);
                    }
                    stream.fill_bytes(&mut bytes);
                    known = Some(block);
                }
                let number = bytes.as_chunks::<16>().0.get((row % AT_ONCE) as usize);
                sum = sum.wrapping_add(number.map_or(0, |bytes| u128::from_le_bytes(*bytes)));
            }
        }
        Self(sum)
    }

    /// Of both together.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};
    use veil_protocols::anchors::FileRows;

    use super::*;

    fn secret(file: FileId) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(Sha256::digest(file.0).into())
    }

    fn rows(files: &[(u8, Vec<u32>)]) -> Anchors {
        let of = |(file, rows): &(u8, Vec<u32>)| {
            (FileId([*file; 9]), FileRows { rows: rows.iter().copied().collect(), occurrences: rows.len() as u64 })
        };
        Anchors(files.iter().map(of).collect())
    }

    fn hash(files: &[(u8, Vec<u32>)]) -> AnchorHash {
        AnchorHash::of(&rows(files), secret)
    }

    /// Against the stream read from its beginning, row by row.
    #[test]
    fn rows_have_the_numbers_of_their_places() {
        let mut stream = ChaCha20Rng::from_seed(*secret(FileId([3; 9])));
        let numbers: Vec<u128> = (0..5000)
            .map(|_| {
                let mut bytes = [0; 16];
                stream.fill_bytes(&mut bytes);
                u128::from_le_bytes(bytes)
            })
            .collect();
        for (count, step) in
            [(0, 1), (1, 1), (15, 1), (16, 1), (17, 1), (33, 1), (4999, 1), (300, 16), (300, 15), (100, 37)]
        {
            let rows: Vec<u32> = (0..count).map(|at| at * step).collect();
            let expected = rows.iter().fold(0u128, |sum, row| sum.wrapping_add(numbers[*row as usize]));
            let files = if rows.is_empty() { vec![] } else { vec![(3, rows)] };
            assert_eq!(hash(&files), AnchorHash(expected), "{count} rows, every {step}th");
        }
    }

    #[test]
    fn parts_add_up_and_nothing_else_does() {
        let whole = hash(&[(1, (0..70_000).collect()), (2, vec![0, u32::MAX])]);
        let parts = [
            hash(&[(1, (0..65_536).collect())]),
            hash(&[(2, vec![u32::MAX])]),
            hash(&[(1, (65_536..70_000).collect()), (2, vec![0])]),
        ];
        let sum = |parts: &[AnchorHash]| parts.iter().fold(AnchorHash::default(), |sum, part| sum.and(*part));
        assert_eq!(sum(&parts), whole);
        assert_eq!(sum(&[parts[2], parts[0], parts[1]]), whole);
        assert_ne!(sum(&parts[..2]), whole);
        assert_ne!(sum(&[parts[0], parts[1], parts[2], hash(&[(1, vec![7])])]), whole, "a row twice");
        assert_ne!(hash(&[(1, vec![5])]), hash(&[(2, vec![5])]), "the same row of another file");
        assert_ne!(hash(&[(1, vec![5])]), hash(&[(1, vec![6])]));
    }
}
