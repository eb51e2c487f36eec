//! Who holds what.
//!
//! | key        | owner | P1 | P2 |
//! |------------|-------|----|----|
//! | key id     | yes   | yes| yes|
//! | cell key   | yes   | -  | yes|
//! | seal key   | yes   | -  | yes|
//! | tag key    | yes   | -  | -  |

use rand::CryptoRng;
use veil_cells::KeyId;

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
        Self {
            key_id,
            cell: CellKey::generate(rng),
            seal: SealKey::generate(rng),
            tag: TagKey::generate(rng),
        }
    }

    /// The part of P1.
    pub fn p1(&self) -> P1Keys {
        P1Keys { key_id: self.key_id }
    }

    /// The part of P2.
    pub fn p2(&self) -> P2Keys {
        P2Keys {
            key_id: self.key_id,
            cell: self.cell.clone(),
            seal: self.seal.clone(),
        }
    }

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
