//! Equality tags: pseudo-random numbers modulo a prime of 48 bits, which only the owner can compute from values.
//!
//! `tag = HMAC-SHA256(HMAC-SHA256(tag key, table, column), value)`, truncated to 48 bits and reduced (the prime is
//! `2^48 - 16383`, so all tags but a few are equally likely). Two rows of a column have the same tag
//! iff they have the same value, but for collisions: among `n` distinct values one is expected with probability
//! `n^2 / 2^49`. A tag is itself encrypted in a lane of the cell, so the engine sees none.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use rand::CryptoRng;
use sha2::Sha256;
use veil_cells::TAG_MODULUS;
use zeroize::Zeroizing;

use crate::secret::Secret;

/// The owner's key for tags. It never prints and is wiped when dropped.
#[derive(Clone, Debug)]
pub struct TagKey(Secret);

impl TagKey {
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

    /// The tags of one column.
    pub fn column(&self, table: &str, column: &str) -> ColumnTagger {
        let mut context = Vec::new();
        for name in [table, column] {
            context.extend_from_slice(&(name.len() as u64).to_le_bytes());
            context.extend_from_slice(name.as_bytes());
        }
        let key = Zeroizing::new(hmac_sha256(&self.0, &[b"veil column tag v1", &context]));
        ColumnTagger { keyed: keyed(&key) }
    }
}

/// Computes tags of one column.
#[derive(Clone)]
pub struct ColumnTagger {
    keyed: Hmac<Sha256>,
}

impl fmt::Debug for ColumnTagger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ColumnTagger(secret)")
    }
}

impl ColumnTagger {
    /// The tag of a value.
    pub fn tag(&self, value: &[u8]) -> u64 {
        self.truncated(0, value)
    }

    /// The tag of NULL, which equals itself and no value.
    pub fn null_tag(&self) -> u64 {
        self.truncated(1, &[])
    }

    fn truncated(&self, domain: u8, value: &[u8]) -> u64 {
        let mut mac = self.keyed.clone();
        mac.update(&[domain]);
        mac.update(value);
        let [a, b, c, d, e, f, ..] = <[u8; 32]>::from(mac.finalize().into_bytes());
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0]) % TAG_MODULUS
    }
}

/// HMAC-SHA256 over the parts, one behind the other.
pub(crate) fn hmac_sha256(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = keyed(key);
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    // A key of 32 bytes fits the block of 64 that `KeyInit::new` takes, padded with zeros as HMAC pads it.
    let mut block = Zeroizing::new([0; 64]);
    block[..32].copy_from_slice(key);
    <Hmac<Sha256> as KeyInit>::new((&*block).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 1 has a key of 20 bytes; padded with zeros to 32 it is the same HMAC key.
    #[test]
    fn hmac_is_the_standard_one() {
        let mut key = [0; 32];
        key[..20].copy_from_slice(&[0x0b; 20]);
        let mac = hmac_sha256(&key, &[b"Hi ", b"There"]);
        assert_eq!(mac[..8], [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53]);
    }

    #[test]
    fn tags_separate_keys_tables_columns_and_values() {
        let key = TagKey::from_bytes(&[1; 32]);
        let base = key.column("t", "c").tag(b"x");
        assert_eq!(key.column("t", "c").tag(b"x"), base);
        assert_ne!(TagKey::from_bytes(&[2; 32]).column("t", "c").tag(b"x"), base);
        assert_ne!(key.column("tc", "").tag(b"x"), base);
        assert_ne!(key.column("t", "d").tag(b"x"), base);
        assert_ne!(key.column("t", "c").tag(b"y"), base);
        assert_ne!(key.column("t", "c").tag(b""), key.column("t", "c").null_tag());
    }

    #[test]
    fn tags_are_spread_below_the_modulus() {
        let tagger = TagKey::from_bytes(&[1; 32]).column("t", "c");
        let tags: Vec<u64> = (0..1000u32).map(|value| tagger.tag(&value.to_le_bytes())).collect();
        assert!(tags.iter().all(|tag| *tag < TAG_MODULUS));
        let octants: std::collections::HashSet<u64> = tags.iter().map(|tag| tag >> 45).collect();
        assert_eq!(octants.len(), 8);
    }
}
