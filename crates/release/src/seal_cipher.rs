//! ChaCha20-Poly1305 for HPKE, by ring: the same bytes as the portable implementation in half its time, from a library that is here for TLS.

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::aead::{AeadCore, AeadInOut, Error, Key, KeyInit, KeySizeUser, Nonce, Result, Tag, TagPosition};
use chacha20poly1305::consts::{U12, U16, U32};
use hpke::aead::Aead;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, UnboundKey};

/// The cipher of a seal, as HPKE names it.
#[derive(Debug)]
pub struct SealCipher;

impl Aead for SealCipher {
    type AeadImpl = ChaCha20Poly1305;

    // RFC 9180, section 7.3.
    const AEAD_ID: u16 = 0x0003;
}

/// The cipher itself. Its key is of one message, which HPKE draws for it.
#[derive(Clone)]
pub struct ChaCha20Poly1305(Option<LessSafeKey>);

impl KeySizeUser for ChaCha20Poly1305 {
    type KeySize = U32;
}

impl KeyInit for ChaCha20Poly1305 {
    fn new(key: &Key<Self>) -> Self {
        Self(UnboundKey::new(&CHACHA20_POLY1305, key).ok().map(LessSafeKey::new))
    }
}

impl AeadCore for ChaCha20Poly1305 {
    type NonceSize = U12;
    type TagSize = U16;
    const TAG_POSITION: TagPosition = TagPosition::Postfix;
}

impl AeadInOut for ChaCha20Poly1305 {
    fn encrypt_inout_detached(
        &self,
        nonce: &Nonce<Self>,
        associated: &[u8],
        buffer: InOutBuf<'_, '_, u8>,
    ) -> Result<Tag<Self>> {
        let (key, nonce) = (self.0.as_ref().ok_or(Error)?, ring::aead::Nonce::assume_unique_for_key((*nonce).into()));
        let message = buffer.into_out_with_copied_in();
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(associated), message).map_err(|_| Error)?;
        Tag::<Self>::try_from(tag.as_ref()).map_err(|_| Error)
    }

    fn decrypt_inout_detached(
        &self,
        nonce: &Nonce<Self>,
        associated: &[u8],
        buffer: InOutBuf<'_, '_, u8>,
        tag: &Tag<Self>,
    ) -> Result<()> {
        let (key, nonce) = (self.0.as_ref().ok_or(Error)?, ring::aead::Nonce::assume_unique_for_key((*nonce).into()));
        let tag = ring::aead::Tag::from(<[u8; 16]>::from(*tag));
        let message = buffer.into_out_with_copied_in();
        let opened = key.open_in_place_separate_tag(nonce, Aad::from(associated), tag, message, 0..);
        opened.map(drop).map_err(|_| Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the portable implementation, at lengths around every block that either works in.
    #[test]
    fn both_implementations_write_and_read_the_same() {
        let (key, nonce) = ([7; 32].into(), [9; 12].into());
        let (ours, theirs) = (ChaCha20Poly1305::new(&key), chacha20poly1305::ChaCha20Poly1305::new(&key));
        for length in [0, 1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 511, 512, 1023, 4096, 5000] {
            let message: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let (mut one, mut two) = (message.clone(), message.clone());
            let tag = ours.encrypt_inout_detached(&nonce, b"place", one.as_mut_slice().into()).unwrap();
            let expected = theirs.encrypt_inout_detached(&nonce, b"place", two.as_mut_slice().into()).unwrap();
            assert_eq!((&one, tag), (&two, expected), "{length}");
            assert!(ours.decrypt_inout_detached(&nonce, b"other", two.as_mut_slice().into(), &tag).is_err());
            ours.decrypt_inout_detached(&nonce, b"place", one.as_mut_slice().into(), &tag).unwrap();
            assert_eq!(one, message, "{length}");
        }
    }
}
