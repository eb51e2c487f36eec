//! The servers' signatures under a manifest.
//!
//! The owner certifies the signing keys of P1 and P2 when the key set is made, so whoever has the owner's key can check both.

use std::fmt;

use serde::{Deserialize, Serialize};
use veil_cells::KeyId;

use crate::{MANIFEST_VERSION, Manifest, ReleaseError, Signature, VerifyingKey};

/// What the owner's signature of a server's key is about.
pub const CERTIFICATE_CONTEXT: &str = "veil certificate v1";

/// What a server's signature of a manifest is about.
pub const MANIFEST_CONTEXT: &str = "veil manifest v1";

/// The most bytes of a manifest.
const MAX_BYTES: usize = 64 << 20;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Party {
    /// The engine.
    P1,
    /// The key holder.
    P2,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P1 => "P1",
            Self::P2 => "P2",
        })
    }
}

/// A server's signature, with what makes its key believable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attestation {
    /// The server's key.
    pub key: VerifyingKey,
    /// The owner's signature of role, key set and key.
    pub certificate: Signature,
    /// The server's signature.
    pub signature: Signature,
}

/// Who signs for a server: `veil-keys` has the keys.
pub trait Attester: Send + Sync + fmt::Debug {
    /// Signs.
    fn attest(&self, context: &str, message: &[u8]) -> Attestation;

    /// The owner's key, which certified the server's.
    fn owner(&self) -> VerifyingKey;
}

/// A manifest that both servers have signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedManifest {
    /// What was signed.
    pub manifest: Manifest,
    /// P1's signature.
    pub p1: Attestation,
    /// P2's signature.
    pub p2: Attestation,
}

/// What the owner signs to certify a server's key: role (2 bytes of text), key set (8), key (32).
pub fn certified_bytes(party: Party, key_set: KeyId, key: &VerifyingKey) -> Vec<u8> {
    let role: &[u8] = match party {
        Party::P1 => b"p1",
        Party::P2 => b"p2",
    };
    [role, &key_set.0, key.as_bytes()].concat()
}

impl Attestation {
    /// Checks that the owner certified the key for this party and key set, and that the key signed the message.
    pub fn verify(
        &self,
        party: Party,
        key_set: KeyId,
        owner: &VerifyingKey,
        context: &str,
        message: &[u8],
    ) -> Result<(), ReleaseError> {
        owner
            .verify(CERTIFICATE_CONTEXT, &certified_bytes(party, key_set, &self.key), &self.certificate)
            .map_err(|_| ReleaseError::BadCertificate(party))?;
        self.key.verify(context, message, &self.signature).map_err(|_| ReleaseError::BadAttestation(party))
    }
}

impl SignedManifest {
    /// Checks both servers' certificates and signatures.
    pub fn verify(&self, owner: &VerifyingKey) -> Result<(), ReleaseError> {
        if self.manifest.owner != *owner {
            return Err(ReleaseError::OtherOwner);
        }
        let bytes = self.manifest.to_bytes()?;
        for (party, attestation) in [(Party::P1, &self.p1), (Party::P2, &self.p2)] {
            attestation.verify(party, self.manifest.key_set, owner, MANIFEST_CONTEXT, &bytes)?;
        }
        Ok(())
    }

    /// Reads a manifest, which is not thereby verified.
    pub fn parse(json: &[u8]) -> Result<Self, ReleaseError> {
        #[derive(Deserialize)]
        struct Versioned {
            manifest: Version,
        }
        #[derive(Deserialize)]
        struct Version {
            version: u8,
        }
        if json.len() > MAX_BYTES {
            return Err(ReleaseError::TooLarge { what: "the manifest", limit: "64 MiB" });
        }
        let wrong = |error: serde_json::Error| ReleaseError::Malformed { what: "the manifest", why: error.to_string() };
        let Versioned { manifest: Version { version } } = serde_json::from_slice(json).map_err(wrong)?;
        if version > MANIFEST_VERSION {
            let what = "the manifest";
            return Err(ReleaseError::FromTheFuture { what, found: version, supported: MANIFEST_VERSION });
        }
        serde_json::from_slice(json).map_err(wrong)
    }

    /// The file's text, made for reading.
    pub fn to_json(&self) -> Result<String, ReleaseError> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n")
            .map_err(|error| ReleaseError::Malformed { what: "the manifest", why: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer, SigningKey};

    use super::*;
    use crate::manifest::tests::example;
    use crate::signed_bytes;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_bytes(&[seed; 32])
    }

    fn public(seed: u8) -> VerifyingKey {
        VerifyingKey::from_bytes(key(seed).verifying_key().as_bytes()).unwrap()
    }

    fn sign(seed: u8, context: &str, message: &[u8]) -> Signature {
        Signature::from_bytes(&key(seed).sign(&signed_bytes(context, message)).to_bytes())
    }

    /// The owner has seed 5, P1 6, P2 7.
    fn signed() -> SignedManifest {
        let manifest = example(public(5));
        let bytes = manifest.to_bytes().unwrap();
        let attest = |party, seed| Attestation {
            key: public(seed),
            certificate: sign(5, CERTIFICATE_CONTEXT, &certified_bytes(party, manifest.key_set, &public(seed))),
            signature: sign(seed, MANIFEST_CONTEXT, &bytes),
        };
        let (p1, p2) = (attest(Party::P1, 6), attest(Party::P2, 7));
        SignedManifest { manifest, p1, p2 }
    }

    #[test]
    fn what_both_signed_verifies_and_survives_its_file() {
        let signed = signed();
        signed.verify(&public(5)).unwrap();
        let read = SignedManifest::parse(signed.to_json().unwrap().as_bytes()).unwrap();
        assert_eq!(read, signed);
        read.verify(&public(5)).unwrap();
        assert_eq!(signed.verify(&public(6)), Err(ReleaseError::OtherOwner));
    }

    #[test]
    fn who_is_wrong_is_said() {
        let owner = public(5);
        let mut changed = signed();
        changed.manifest.rows += 1;
        assert_eq!(changed.verify(&owner), Err(ReleaseError::BadAttestation(Party::P1)));
        let mut forged = signed();
        forged.p2.signature = forged.p1.signature;
        assert_eq!(forged.verify(&owner), Err(ReleaseError::BadAttestation(Party::P2)));
        // One server cannot play both: its certificate says its role.
        let mut both = signed();
        both.p2 = both.p1;
        assert_eq!(both.verify(&owner), Err(ReleaseError::BadCertificate(Party::P2)));
        let mut stranger = signed();
        let bytes = stranger.manifest.to_bytes().unwrap();
        (stranger.p1.key, stranger.p1.signature) = (public(8), sign(8, MANIFEST_CONTEXT, &bytes));
        assert_eq!(stranger.verify(&owner), Err(ReleaseError::BadCertificate(Party::P1)));
    }

    #[test]
    fn future_and_other_files_are_refused() {
        let json = signed().to_json().unwrap();
        let error = SignedManifest::parse(json.replacen("\"version\": 1", "\"version\": 2", 1).as_bytes());
        assert!(matches!(error, Err(ReleaseError::FromTheFuture { found: 2, .. })), "{error:?}");
        assert!(SignedManifest::parse(json.replacen("\"rows\"", "\"rwos\"", 1).as_bytes()).is_err());
        assert!(SignedManifest::parse(b"{}").is_err());
    }
}
