//! A policy with the owner's signature.
//!
//! ```text
//!  veil-policy-v1 ed25519-signature:..
//!  the owner's TOML, byte for byte
//! ```

use veil_cells::KeyId;

use crate::{Policy, ReleaseError, Signature, VerifyingKey};

/// What the owner's signature of a policy is about.
pub const POLICY_CONTEXT: &str = "veil policy v1";

const BEGINNING: &str = "veil-policy-v";
const VERSION: u8 = 1;

/// A signed policy, not yet verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedPolicy {
    /// The signature.
    pub signature: Signature,
    /// The owner's text.
    pub text: String,
}

impl SignedPolicy {
    /// Reads a signed policy, verifies that the owner signed it and checks that it is for this key set.
    pub fn open(bytes: &[u8], key_set: KeyId, owner: &VerifyingKey) -> Result<Policy, ReleaseError> {
        let policy = Self::parse(bytes)?.verified(owner)?;
        match policy.key_set() == key_set {
            true => Ok(policy),
            false => {
                let found = policy.key_set();
                Err(ReleaseError::WrongKeySet { what: "the policy", found, expected: key_set })
            }
        }
    }

    /// The file's bytes.
    pub fn write(text: &str, signature: &Signature) -> Vec<u8> {
        format!("{BEGINNING}{VERSION} {signature}\n{text}").into_bytes()
    }

    /// Takes the file apart.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReleaseError> {
        let wrong = |why: &str| ReleaseError::Malformed { what: "the signed policy", why: why.to_owned() };
        let not_signed = || wrong("it does not begin with the owner's signature; make it with `veil policy sign`");
        let text = std::str::from_utf8(bytes).map_err(|_| wrong("it is not text"))?;
        let (first, text) = text.split_once('\n').ok_or_else(not_signed)?;
        let (version, signature) =
            first.strip_prefix(BEGINNING).and_then(|rest| rest.split_once(' ')).ok_or_else(not_signed)?;
        match version.parse::<u8>() {
            Ok(VERSION) => Ok(Self { signature: signature.parse()?, text: text.to_owned() }),
            Ok(found) => Err(ReleaseError::FromTheFuture { what: "the signed policy", found, supported: VERSION }),
            Err(_) => Err(not_signed()),
        }
    }

    /// The policy, if the owner signed it.
    pub fn verified(&self, owner: &VerifyingKey) -> Result<Policy, ReleaseError> {
        owner
            .verify(POLICY_CONTEXT, self.text.as_bytes(), &self.signature)
            .map_err(|_| ReleaseError::BadSignature("the policy".to_owned()))?;
        Policy::parse(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;
    use crate::policy::tests::EXAMPLE;
    use crate::signed_bytes;

    const KEY: KeyId = KeyId([7; 8]);

    fn signed() -> (VerifyingKey, Vec<u8>) {
        let key = SigningKey::from_bytes(&[5; 32]);
        let signature = key.sign(&signed_bytes(POLICY_CONTEXT, EXAMPLE.as_bytes())).to_bytes();
        let owner = VerifyingKey::from_bytes(key.verifying_key().as_bytes()).unwrap();
        (owner, SignedPolicy::write(EXAMPLE, &Signature::from_bytes(&signature)))
    }

    #[test]
    fn what_the_owner_signed_opens() {
        let (owner, bytes) = signed();
        assert_eq!(SignedPolicy::open(&bytes, KEY, &owner).unwrap(), Policy::parse(EXAMPLE).unwrap());
        let error = SignedPolicy::open(&bytes, KeyId([8; 8]), &owner).unwrap_err();
        assert!(matches!(error, ReleaseError::WrongKeySet { .. }), "{error}");
        let other = SigningKey::from_bytes(&[6; 32]).verifying_key();
        let other = VerifyingKey::from_bytes(other.as_bytes()).unwrap();
        let error = SignedPolicy::open(&bytes, KEY, &other).unwrap_err().to_string();
        assert!(error.starts_with("the signature of the policy does not hold"), "{error}");
    }

    #[test]
    fn every_changed_byte_is_refused() {
        let (owner, bytes) = signed();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(SignedPolicy::open(&changed, KEY, &owner).is_err(), "byte {at}");
            assert!(SignedPolicy::open(&bytes[..at], KEY, &owner).is_err(), "{at} bytes");
        }
        let error = SignedPolicy::parse(EXAMPLE.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("make it with `veil policy sign`"), "{error}");
        let future = String::from_utf8(bytes).unwrap().replacen("v1", "v2", 1);
        let error = SignedPolicy::parse(future.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("use a newer veil"), "{error}");
    }
}
