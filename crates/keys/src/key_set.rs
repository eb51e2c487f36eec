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

use rand::CryptoRng;
use sha2::{Digest, Sha256};
use veil_cells::{ColumnId, KeyId};
use veil_slots::PublicKey;

use crate::{CellKey, SealKey, SlotKey, TagKey};

/// All keys: what the data owner keeps.
#[derive(Clone, Debug)]
pub struct OwnerKeys {
    pub(crate) key_id: KeyId,
    pub(crate) cell: CellKey,
    pub(crate) seal: SealKey,
    pub(crate) tag: TagKey,
    pub(crate) slot: SlotKey,
    pub(crate) public: PublicKey,
}

/// What the engine gets: nothing secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P1Keys {
    pub(crate) key_id: KeyId,
    pub(crate) public: PublicKey,
}

/// What the key-holding server gets: everything but the tag key.
#[derive(Clone, Debug)]
pub struct P2Keys {
    pub(crate) key_id: KeyId,
    pub(crate) cell: CellKey,
    pub(crate) seal: SealKey,
    pub(crate) slot: SlotKey,
}

impl OwnerKeys {
    /// Draws a key set.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut key_id = KeyId::default();
        rng.fill_bytes(&mut key_id.0);
        let (cell, seal, tag) = (CellKey::generate(rng), SealKey::generate(rng), TagKey::generate(rng));
        let slot = SlotKey::generate(rng);
        let public = slot.public_key(rng);
        Self { key_id, cell, seal, tag, slot, public }
    }

    /// The part of P1.
    pub fn p1(&self) -> P1Keys {
        P1Keys { key_id: self.key_id, public: self.public.clone() }
    }

    /// The part of P2.
    pub fn p2(&self) -> P2Keys {
        P2Keys { key_id: self.key_id, cell: self.cell.clone(), seal: self.seal.clone(), slot: self.slot.clone() }
    }

    /// The name of the key set.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// The public name of a column: the same for every file of a table.
    pub fn column_id(&self, table: &str, column: &str) -> ColumnId {
        let mut hash = Sha256::new();
        hash.update(b"veil column id v1");
        hash.update(self.key_id.0);
        for name in [table, column] {
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
        }
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
        ColumnId([a, b, c, d, e, f, g, h])
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
}
