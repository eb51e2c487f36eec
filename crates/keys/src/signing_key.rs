//! The keys that sign: the owner's for policies and certificates, the servers' for manifests.

use ed25519_dalek::Signer as _;
use rand::CryptoRng;
use veil_cells::KeyId;
use veil_release::{
    Attestation, CERTIFICATE_CONTEXT, Party, ReleaseError, Signature, VerifyingKey, certified_bytes, signed_bytes,
};

use crate::secret::Secret;

/// An Ed25519 key. It never prints and is wiped when dropped.
#[derive(Clone, Debug)]
pub struct SigningKey(Secret);

/// A server's signing key, with the owner's certificate for it.
#[derive(Clone, Debug)]
pub struct Signer {
    pub(crate) key: SigningKey,
    pub(crate) certificate: Signature,
}

impl SigningKey {
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

    /// Signs a message. The context says what it is, so that one thing never passes for another.
    pub fn sign(&self, context: &str, message: &[u8]) -> Signature {
        Signature::from_bytes(&self.expanded().sign(&signed_bytes(context, message)).to_bytes())
    }

    /// What its signatures verify with.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey::of_signing_key(&self.expanded())
    }

    fn expanded(&self) -> ed25519_dalek::SigningKey {
        ed25519_dalek::SigningKey::from_bytes(&self.0)
    }
}

impl Signer {
    /// Has the owner certify a server's key.
    pub(crate) fn certified(owner: &SigningKey, party: Party, key_set: KeyId, key: SigningKey) -> Self {
        let certificate = owner.sign(CERTIFICATE_CONTEXT, &certified_bytes(party, key_set, &key.verifying_key()));
        Self { key, certificate }
    }

    /// A key and a certificate from a file, if they belong together.
    pub(crate) fn checked(
        owner: &VerifyingKey,
        party: Party,
        key_set: KeyId,
        key: SigningKey,
        certificate: &[u8; 64],
    ) -> Result<Self, ReleaseError> {
        let certificate = Signature::from_bytes(certificate);
        let certified = certified_bytes(party, key_set, &key.verifying_key());
        owner.verify(CERTIFICATE_CONTEXT, &certified, &certificate).map_err(|_| ReleaseError::BadCertificate(party))?;
        Ok(Self { key, certificate })
    }

    /// Signs a message as this server.
    pub fn attest(&self, context: &str, message: &[u8]) -> Attestation {
        Attestation {
            key: self.key.verifying_key(),
            certificate: self.certificate,
            signature: self.key.sign(context, message),
        }
    }

    /// The server's key.
    pub fn key(&self) -> &SigningKey {
        &self.key
    }

    /// The owner's certificate for it.
    pub fn certificate(&self) -> &Signature {
        &self.certificate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, section 7.1, test 2: the public key of a secret one.
    #[test]
    fn keys_agree_with_the_standard() {
        let secret = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";
        let public = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
        let byte = |text: &str, at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
        let key = SigningKey::from_bytes(&std::array::from_fn(|at| byte(secret, at)));
        assert_eq!(*key.verifying_key().as_bytes(), std::array::from_fn(|at| byte(public, at)));
    }

    #[test]
    fn signatures_verify_in_their_context() {
        let (key, other) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let signature = key.sign("a policy", b"text");
        key.verifying_key().verify("a policy", b"text", &signature).unwrap();
        assert!(key.verifying_key().verify("a manifest", b"text", &signature).is_err());
        assert!(key.verifying_key().verify("a policy", b"tex", &signature).is_err());
        assert!(other.verifying_key().verify("a policy", b"text", &signature).is_err());
        assert_eq!(format!("{key:?}"), "SigningKey(secret)");
    }
}
