//! Sealing to a recipient: HPKE (RFC 9180), base mode, one message a key.
//!
//! DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305.
//!
//! ```text
//!  version (1)  encapsulated key (32)  ciphertext  tag (16)
//! ```
//! Both sides give the same `info` (what the message is) and `associated` bytes (its place in the release), or it does not open.

use std::convert::Infallible;

use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::rand_core::{TryCryptoRng, TryRng};
use hpke::{Deserializable, Kem, OpModeS, Serializable, single_shot_seal_with_rng};
use rand::CryptoRng;

use crate::text_form::text_form;
use crate::{ReleaseError, SealCipher};

/// The version of the sealed form that this program writes.
pub const SEALED_VERSION: u8 = 1;

/// How much longer the sealed form is than the message.
pub const SEALED_OVERHEAD: usize = 1 + 32 + 16;

/// The most characters of a recipient's name.
pub const MAX_NAME: usize = 64;

/// A recipient's key, which one can seal to. Its text is `x25519:` and base64url.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecipientPublicKey([u8; 32]);

text_form!(RecipientPublicKey, 32, "x25519:", "a recipient's key", RecipientPublicKey::from_bytes);

impl RecipientPublicKey {
    /// From its bytes.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, ReleaseError> {
        match <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(bytes) {
            // A low-order point would give everybody the same secret; the exchange itself refuses the others of its kind.
            Ok(_) if *bytes != [0; 32] => Ok(Self(*bytes)),
            _ => Err(ReleaseError::Malformed { what: "a recipient's key", why: "it is no X25519 key".to_owned() }),
        }
    }
}

/// Whether a recipient can be called this: letters, digits, `.`, `-` and `_`, at most 64.
pub fn is_recipient_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
}

/// Seals a message.
pub fn seal_to(
    recipient: &RecipientPublicKey,
    info: &[u8],
    associated: &[u8],
    message: &[u8],
    rng: &mut dyn CryptoRng,
) -> Result<Vec<u8>, ReleaseError> {
    let bad = |_| ReleaseError::BadRecipient(recipient.to_string());
    let key = <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(&recipient.0).map_err(bad)?;
    let (encapsulated, ciphertext) = single_shot_seal_with_rng::<SealCipher, HkdfSha256, X25519HkdfSha256>(
        &OpModeS::Base,
        &key,
        info,
        message,
        associated,
        &mut Bridge(rng),
    )
    .map_err(bad)?;
    Ok([&[SEALED_VERSION], &encapsulated.to_bytes()[..], &ciphertext].concat())
}

/// Our generators, for a library that speaks a later version of their traits.
struct Bridge<'a>(&'a mut dyn CryptoRng);

impl TryRng for Bridge<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.0.next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill_bytes(bytes);
        Ok(())
    }
}

impl TryCryptoRng for Bridge<'_> {}

#[cfg(test)]
mod tests {
    use rand::RngCore;

    use super::*;
    use crate::text_form::unhex;

    /// Hands out what a test vector says was drawn.
    struct Fixed(Vec<u8>);

    impl RngCore for Fixed {
        fn next_u32(&mut self) -> u32 {
            unreachable!("the vector says bytes")
        }

        fn next_u64(&mut self) -> u64 {
            unreachable!("the vector says bytes")
        }

        fn fill_bytes(&mut self, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.0);
        }
    }

    impl CryptoRng for Fixed {}

    /// RFC 9180, appendix A.2.1, sequence number 0.
    #[test]
    fn sealing_agrees_with_the_standard() {
        let drawn = unhex::<32>("909a9b35d3dc4713a5e72a4da274b55d3d3821a37e5d099e74a647db583a904b").unwrap();
        let recipient = unhex("4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a").unwrap();
        let encapsulated = unhex::<32>("1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a").unwrap();
        let ciphertext =
            unhex::<45>("1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28");
        let sealed = seal_to(
            &RecipientPublicKey::from_bytes(&recipient).unwrap(),
            b"Ode on a Grecian Urn",
            b"Count-0",
            b"Beauty is truth, truth beauty",
            &mut Fixed(drawn.to_vec()),
        );
        assert_eq!(sealed.unwrap(), [&[1], &encapsulated[..], &ciphertext.unwrap()].concat());
    }

    #[test]
    fn keys_that_share_their_secret_with_everybody_are_refused() {
        let mut one = [0; 32];
        one[0] = 1;
        let low = RecipientPublicKey::from_bytes(&one).unwrap();
        assert!(RecipientPublicKey::from_bytes(&[0; 32]).is_err());
        let sealed = seal_to(&low, b"", b"", b"m", &mut Fixed(vec![3; 32]));
        assert!(matches!(sealed, Err(ReleaseError::BadRecipient(_))));
    }

    #[test]
    fn names_are_plain() {
        assert!(["alice", "a", "alice-2.b_C", &"x".repeat(64)].into_iter().all(is_recipient_name));
        assert!(!["", "a b", "../a", ".a", "é", "a\n", &"x".repeat(65)].into_iter().any(is_recipient_name));
    }
}
