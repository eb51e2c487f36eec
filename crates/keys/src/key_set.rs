//! Who holds what.
//!
//! | key        | owner | P1 | P2 |
//! |------------|-------|----|----|
//! | key id     | yes   | yes| yes|
//! | cell key   | yes   | -  | yes|
//! | seal key   | yes   | -  | yes|
//! | tag key    | yes   | -  | -  |
//! | slot key   | yes   | -  | yes|
//! | public key | yes   | yes| -  |
//!
//! Each has a signing key of its own: the owner signs policies and certifies the keys of P1 and P2, which sign manifests. The
//! owner keeps a copy of theirs, so that lost files can be made again.

use rand::CryptoRng;
use veil_cells::{ColumnId, KeyId};
use veil_release::{OwnerPublic, Party, VerifyingKey};
use veil_slots::PublicKey;
use zeroize::Zeroizing;

use crate::signing_key::Signer;
use crate::tag::hmac_sha256;
use crate::{CellKey, SealKey, SigningKey, SlotKey, TagKey};

/// All keys: what the data owner keeps.
#[derive(Clone, Debug)]
pub struct OwnerKeys {
    pub(crate) key_id: KeyId,
    pub(crate) cell: CellKey,
    pub(crate) seal: SealKey,
    pub(crate) tag: TagKey,
    pub(crate) slot: SlotKey,
    pub(crate) public: PublicKey,
    pub(crate) signing: SigningKey,
    pub(crate) p1_signing: SigningKey,
    pub(crate) p2_signing: SigningKey,
}

/// What the engine gets: it can sign for itself and decrypt nothing.
#[derive(Clone, Debug)]
pub struct P1Keys {
    pub(crate) key_id: KeyId,
    pub(crate) public: PublicKey,
    pub(crate) signer: Signer,
    pub(crate) owner: VerifyingKey,
}

/// What the key-holding server gets: everything but the tag key.
#[derive(Clone, Debug)]
pub struct P2Keys {
    pub(crate) key_id: KeyId,
    pub(crate) cell: CellKey,
    pub(crate) seal: SealKey,
    pub(crate) slot: SlotKey,
    pub(crate) signer: Signer,
    pub(crate) owner: VerifyingKey,
}

impl OwnerKeys {
    /// Draws a key set.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut key_id = KeyId::default();
        rng.fill_bytes(&mut key_id.0);
        let (cell, seal, tag) = (CellKey::generate(rng), SealKey::generate(rng), TagKey::generate(rng));
        let slot = SlotKey::generate(rng);
        let public = slot.public_key(rng);
        let [signing, p1_signing, p2_signing] = std::array::from_fn(|_| SigningKey::generate(rng));
        Self { key_id, cell, seal, tag, slot, public, signing, p1_signing, p2_signing }
    }

    /// The part of P1.
    pub fn p1(&self) -> P1Keys {
        P1Keys {
            key_id: self.key_id,
            public: self.public.clone(),
            signer: Signer::certified(&self.signing, Party::P1, self.key_id, self.p1_signing.clone()),
            owner: self.signing.verifying_key(),
        }
    }

    /// The part of P2.
    pub fn p2(&self) -> P2Keys {
        P2Keys {
            key_id: self.key_id,
            cell: self.cell.clone(),
            seal: self.seal.clone(),
            slot: self.slot.clone(),
            signer: Signer::certified(&self.signing, Party::P2, self.key_id, self.p2_signing.clone()),
            owner: self.signing.verifying_key(),
        }
    }

    /// What recipients and auditors get.
    pub fn public(&self) -> OwnerPublic {
        OwnerPublic { key_set: self.key_id, key: self.signing.verifying_key() }
    }

    /// The key that signs policies.
    pub fn signing(&self) -> &SigningKey {
        &self.signing
    }

    /// The name of the key set.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// The public name of a column: the same for every file of a table.
    pub fn column_id(&self, table: &str, column: &str) -> ColumnId {
        ColumnId::of(self.key_id, table, column)
    }

    /// The key of cells.
    pub fn cell(&self) -> &CellKey {
        &self.cell
    }

    /// The key of sealed notes.
    pub fn seal(&self) -> &SealKey {
        &self.seal
    }

    /// The key of equality tags.
    pub fn tag(&self) -> &TagKey {
        &self.tag
    }
}

impl P1Keys {
    /// The name of the key set.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// What hides a ciphertext on its way to P2.
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// What signs for P1.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// What the owner's signatures verify with.
    pub fn owner_key(&self) -> &VerifyingKey {
        &self.owner
    }
}

impl P2Keys {
    /// The name of the key set.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// The key of cells.
    pub fn cell(&self) -> &CellKey {
        &self.cell
    }

    /// The key of sealed notes.
    pub fn seal(&self) -> &SealKey {
        &self.seal
    }

    /// The key of slots.
    pub fn slot(&self) -> &SlotKey {
        &self.slot
    }

    /// What signs for P2.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// What the owner's signatures verify with.
    pub fn owner_key(&self) -> &VerifyingKey {
        &self.owner
    }

    /// A pseudo-random function under a key of its own for every label, the same whenever P2 is asked: for randomness that a
    /// retry must not draw anew.
    pub fn prf(&self, label: &str, data: &[u8]) -> Zeroizing<[u8; 32]> {
        let key = self.seal.derive(b"veil p2 prf v1", label.as_bytes());
        Zeroizing::new(hmac_sha256(&key, &[data]))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn the_prf_depends_on_key_label_and_data() {
        let [one, other] = [1, 2].map(|seed| OwnerKeys::generate(&mut StdRng::seed_from_u64(seed)).p2());
        let value = one.prf("noise", b"data");
        assert_eq!(value, one.clone().prf("noise", b"data"));
        assert_ne!(value, other.prf("noise", b"data"));
        assert_ne!(value, one.prf("noise", b"dat"));
        assert_ne!(value, one.prf("nois", b"edata"));
        assert_ne!(value, one.prf("other", b"data"));
    }

    #[test]
    fn servers_sign_what_the_owner_certified() {
        let keys = OwnerKeys::generate(&mut StdRng::seed_from_u64(1));
        let (p1, p2, owner) = (keys.p1(), keys.p2(), keys.public().key);
        assert_eq!((p1.owner_key(), p2.owner_key()), (&owner, &owner));
        let (first, second) = (p1.signer().attest("c", b"m"), p2.signer().attest("c", b"m"));
        first.verify(Party::P1, keys.key_id(), &owner, "c", b"m").unwrap();
        second.verify(Party::P2, keys.key_id(), &owner, "c", b"m").unwrap();
        assert!(first.verify(Party::P2, keys.key_id(), &owner, "c", b"m").is_err());
        assert!(first.verify(Party::P1, KeyId([0; 8]), &owner, "c", b"m").is_err());
        assert!(first.verify(Party::P1, keys.key_id(), &owner, "d", b"m").is_err());
        assert_ne!(first.key, second.key);
    }
}
