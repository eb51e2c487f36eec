//! Ed25519 keys that verify, and signatures.
//!
//! Every signature has a context that says what was signed, so that one thing never passes for another. The context stands
//! before the message, with its length (u64, little-endian) before that.

use ed25519_dalek::{Signature as DalekSignature, VerifyingKey as DalekKey};

use crate::ReleaseError;
use crate::text_form::text_form;

/// A key that verifies signatures. Its text is `ed25519:` and base64url.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VerifyingKey([u8; 32]);

/// A signature. Its text is `ed25519-signature:` and base64url.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature([u8; 64]);

text_form!(VerifyingKey, 32, "ed25519:", "an Ed25519 key", VerifyingKey::from_bytes);
text_form!(Signature, 64, "ed25519-signature:", "a signature", |bytes| Ok(Signature::from_bytes(bytes)));

impl VerifyingKey {
    /// From its bytes, if they are a point that a key can be.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, ReleaseError> {
        match DalekKey::from_bytes(bytes) {
            Ok(key) if !key.is_weak() => Ok(Self(*bytes)),
            _ => {
                let why = "it is no point of the curve, or one that anyone can sign for".to_owned();
                Err(ReleaseError::Malformed { what: "an Ed25519 key", why })
            }
        }
    }

    /// The other half of a key that signs.
    pub fn of_signing_key(key: &ed25519_dalek::SigningKey) -> Self {
        Self(key.verifying_key().to_bytes())
    }

    /// Checks a signature, strictly: one that another verifier might refuse is refused here.
    pub fn verify(&self, context: &str, message: &[u8], signature: &Signature) -> Result<(), ReleaseError> {
        let bad = |_| ReleaseError::BadSignature(context.to_owned());
        let key = DalekKey::from_bytes(&self.0).map_err(bad)?;
        key.verify_strict(&signed_bytes(context, message), &DalekSignature::from_bytes(&signature.0)).map_err(bad)
    }
}

impl Signature {
    /// From its bytes. Whether it holds is another question.
    pub fn from_bytes(bytes: &[u8; 64]) -> Self {
        Self(*bytes)
    }
}

/// What is signed for a message in a context.
pub fn signed_bytes(context: &str, message: &[u8]) -> Vec<u8> {
    [&(context.len() as u64).to_le_bytes(), context.as_bytes(), message].concat()
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;

    fn signed(context: &str, message: &[u8]) -> (VerifyingKey, Signature) {
        let key = SigningKey::from_bytes(&[5; 32]);
        let signature = key.sign(&signed_bytes(context, message));
        (VerifyingKey::from_bytes(key.verifying_key().as_bytes()).unwrap(), Signature(signature.to_bytes()))
    }

    #[test]
    fn a_signature_holds_for_its_context_and_message_alone() {
        let (key, signature) = signed("a policy", b"text");
        key.verify("a policy", b"text", &signature).unwrap();
        assert!(key.verify("a policy", b"texT", &signature).is_err());
        assert!(key.verify("a polic", b"ytext", &signature).is_err());
        let error = key.verify("a manifest", b"text", &signature).unwrap_err().to_string();
        assert!(error.starts_with("the signature of a manifest does not hold"), "{error}");
        for byte in 0..64 {
            let mut damaged = signature;
            damaged.0[byte] ^= 1;
            assert!(key.verify("a policy", b"text", &damaged).is_err(), "byte {byte}");
        }
    }

    /// RFC 8032, section 7.1, test 2: the library underneath, without our context.
    #[test]
    fn the_library_agrees_with_the_standard() {
        let key = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
        let signature = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
                         085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";
        let key = DalekKey::from_bytes(&crate::text_form::unhex(key).unwrap()).unwrap();
        let signature = DalekSignature::from_bytes(&crate::text_form::unhex(signature).unwrap());
        key.verify_strict(&[0x72], &signature).unwrap();
        assert!(key.verify_strict(&[0x73], &signature).is_err());
    }

    #[test]
    fn text_round_trips_and_other_text_is_refused() {
        let (key, signature) = signed("c", b"m");
        assert_eq!(key.to_string().parse::<VerifyingKey>().unwrap(), key);
        assert_eq!(signature.to_string().parse::<Signature>().unwrap(), signature);
        assert_eq!(serde_json::from_str::<VerifyingKey>(&serde_json::to_string(&key).unwrap()).unwrap(), key);
        let text = key.to_string();
        for wrong in ["", "ed25519:", "x25519:AAAA", &text[1..], &text[..text.len() - 1], &format!("{text}A")] {
            assert!(wrong.parse::<VerifyingKey>().is_err(), "{wrong}");
        }
        // The neutral point verifies whatever one likes.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert!(VerifyingKey::from_bytes(&neutral).is_err());
    }
}
