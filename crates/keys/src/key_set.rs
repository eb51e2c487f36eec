//! Who holds what.
//!
//! | key        | owner | P1 | P2 |
//! |------------|-------|----|----|
//! | key id     | yes   | yes| yes|
//! | cell key   | yes   | -  | yes|
//! | seal key   | yes   | -  | yes|
//! | tag key    | yes   | -  | -  |

use rand::CryptoRng;
use sha2::{Digest, Sha256};
use veil_cells::{ColumnId, KeyId};

use crate::{CellKey, SealKey, TagKey};

/// All keys: what the data owner keeps.
#[derive(Clone, Debug)]
pub struct OwnerKeys {
    pub(crate) key_id: KeyId,
    pub(crate) cell: CellKey,
    pub(crate) seal: SealKey,
    pub(crate) tag: TagKey,
}

/// What the engine gets: nothing secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct P1Keys {
    pub(crate) key_id: KeyId,
}

/// What the key-holding server gets: everything but the tag key.
#[derive(Clone, Debug)]
pub struct P2Keys {
    pub(crate) key_id: KeyId,
    pub(crate) cell: CellKey,
    pub(crate) seal: SealKey,
}

impl OwnerKeys {
    /// Draws a key set.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut key_id = KeyId::default();
        rng.fill_bytes(&mut key_id.0);
        Self { key_id, cell: CellKey::generate(rng), seal: SealKey::generate(rng), tag: TagKey::generate(rng) }
    }

    /// The part of P1.
    pub fn p1(&self) -> P1Keys {
        P1Keys { key_id: self.key_id }
    }

    /// The part of P2.
    pub fn p2(&self) -> P2Keys {
        P2Keys { key_id: self.key_id, cell: self.cell.clone(), seal: self.seal.clone() }
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
}
