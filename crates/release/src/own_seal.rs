//! What P2 hands out for itself alone: sealed under a key of its own, so that it has to remember nothing.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand::CryptoRng;
use veil_protocols::ProtocolError;
use zeroize::Zeroizing;

const NONCE: usize = 24;

/// Seals a text; `bound_to` says what kind of text it is.
pub(crate) fn seal(
    text: &[u8],
    bound_to: &[u8],
    key: &[u8; 32],
    rng: &mut dyn CryptoRng,
) -> Result<Vec<u8>, ProtocolError> {
    let mut nonce = [0; NONCE];
    rng.fill_bytes(&mut nonce);
    let payload = Payload { msg: text, aad: bound_to };
    let sealed = XChaCha20Poly1305::new(key.into())
        .encrypt(&XNonce::from(nonce), payload)
        .map_err(|_| ProtocolError::Internal("what P2 says to itself could not be sealed".to_owned()))?;
    Ok([&nonce[..], &sealed].concat())
}

/// The text, if this P2 sealed it as one of this kind.
pub(crate) fn open(sealed: &[u8], bound_to: &[u8], key: &[u8; 32]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
    let payload = Payload { msg: sealed, aad: bound_to };
    XChaCha20Poly1305::new(key.into()).decrypt(&XNonce::from(*nonce), payload).ok().map(Zeroizing::new)
}
