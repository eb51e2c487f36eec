//! Notes about a column that only key holders may read: labels, hierarchy, original type.
//!
//! XChaCha20-Poly1305 with a synthetic nonce, the HMAC of the note, and the key id and column id as associated data. Sealing is
//! deterministic, so that files of one table carry the same metadata; an observer learns only that two notes are the
//! same. Notes are padded to a power of two, which hides their length to within a factor of two.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand::CryptoRng;
use veil_cells::{ColumnId, KeyId};
use zeroize::Zeroizing;

use crate::KeyError;
use crate::secret::Secret;
use crate::tag::hmac_sha256;

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;
const SMALLEST: usize = 256;

/// The key for sealed notes, held by the owner and P2. It never prints and is wiped when dropped.
#[derive(Clone, Debug)]
pub struct SealKey(Secret);

impl SealKey {
    /// Draws a key.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(Secret::generate(rng))
    }

    pub(crate) fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(Secret::from_bytes(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A key for another purpose.
    pub(crate) fn derive(&self, purpose: &[u8], context: &[u8]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(hmac_sha256(&self.0, &[&(purpose.len() as u64).to_le_bytes(), purpose, context]))
    }

    /// Seals a note about a column.
    pub fn seal(&self, key_id: KeyId, column: ColumnId, note: &[u8]) -> Result<Vec<u8>, KeyError> {
        let length = SMALLEST.max(note.len() + 8).next_power_of_two();
        let mut padded = Zeroizing::new(Vec::with_capacity(length));
        padded.extend_from_slice(&(note.len() as u64).to_le_bytes());
        padded.extend_from_slice(note);
        padded.resize(length, 0);
        let aad = associated(key_id, column);
        let mac = hmac_sha256(&self.derive(b"veil seal nonce v1", &[]), &[&aad, &padded]);
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&mac[..NONCE_BYTES]);
        let payload = Payload { msg: &padded, aad: &aad };
        let sealed = self.cipher().encrypt(&XNonce::from(nonce), payload).map_err(|_| KeyError::Unsealable(column))?;
        Ok([&[VERSION], &nonce[..], &sealed].concat())
    }

    /// Opens a sealed note.
    pub fn open(&self, key_id: KeyId, column: ColumnId, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let unsealable = || KeyError::Unsealable(column);
        let (version, rest) = sealed.split_first().ok_or_else(unsealable)?;
        if *version != VERSION {
            return Err(veil_cells::CellError::FromTheFuture {
                what: "a sealed note",
                found: *version,
                supported: VERSION,
            }
            .into());
        }
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>().ok_or_else(unsealable)?;
        let payload = Payload { msg: sealed, aad: &associated(key_id, column) };
        let padded = self.cipher().decrypt(&XNonce::from(*nonce), payload).map_err(|_| unsealable())?;
        let padded = Zeroizing::new(padded);
        let (length, note) = padded.split_first_chunk::<8>().ok_or_else(unsealable)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| unsealable())?;
        Ok(Zeroizing::new(note.get(..length).ok_or_else(unsealable)?.to_vec()))
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.derive(b"veil seal cipher v1", &[])).into())
    }
}

fn associated(key_id: KeyId, column: ColumnId) -> Vec<u8> {
    [b"veil.sealed".as_slice(), &[VERSION], &key_id.0, &column.0].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: KeyId = KeyId([1; 8]);
    const COLUMN: ColumnId = ColumnId([2; 8]);

    #[test]
    fn notes_open_with_key_and_column_only() {
        let seal = SealKey::from_bytes(&[3; 32]);
        let sealed = seal.seal(KEY, COLUMN, b"Higher education").unwrap();
        assert_eq!(seal.open(KEY, COLUMN, &sealed).unwrap().as_slice(), b"Higher education");
        assert!(seal.open(KEY, ColumnId([9; 8]), &sealed).is_err());
        assert!(seal.open(KeyId([9; 8]), COLUMN, &sealed).is_err());
        assert!(SealKey::from_bytes(&[4; 32]).open(KEY, COLUMN, &sealed).is_err());
    }

    #[test]
    fn every_damage_is_an_error() {
        let seal = SealKey::from_bytes(&[3; 32]);
        let sealed = seal.seal(KEY, COLUMN, b"x").unwrap();
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(seal.open(KEY, COLUMN, &damaged).is_err(), "byte {at}");
            assert!(seal.open(KEY, COLUMN, &sealed[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn sealing_repeats_itself_and_hides_lengths() {
        let seal = SealKey::from_bytes(&[3; 32]);
        assert_eq!(seal.seal(KEY, COLUMN, b"a").unwrap(), seal.seal(KEY, COLUMN, b"a").unwrap());
        let (short, long) = (seal.seal(KEY, COLUMN, b"a").unwrap(), seal.seal(KEY, COLUMN, &[b'a'; 200]).unwrap());
        assert_eq!(short.len(), long.len());
        assert_ne!(short[..25], long[..25], "different notes must not share a nonce");
    }
}
