//! Thirty-two secret bytes: they never print and are wiped when dropped.

use std::fmt;
use std::ops::Deref;

use rand::CryptoRng;
use zeroize::Zeroizing;

/// A symmetric key.
#[derive(Clone)]
pub(crate) struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    /// Draws a key.
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *bytes);
        Self(bytes)
    }

    pub(crate) fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*bytes))
    }
}

impl Deref for Secret {
    type Target = [u8; 32];

    fn deref(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("secret")
    }
}
