//! What comes back from P2: a seed instead of a uniform component.

use veil_cells::Seed;

use crate::parameters::{LIMBS, SEEDED_BYTES};
use crate::ring::{Points, Residues};
use crate::{Fresh, SlotError};

/// A fresh ciphertext, half of it a seed.
#[derive(Clone, PartialEq, Eq)]
pub struct SeededSlots(Vec<u8>);

impl std::fmt::Debug for SeededSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SeededSlots")
    }
}

impl SeededSlots {
    /// From `c0` and the seed of `c1`.
    pub fn new(seed: Seed, c0: &Residues<Points>) -> Self {
        let mut bytes = Vec::with_capacity(SEEDED_BYTES);
        bytes.extend_from_slice(&seed.0);
        c0.pack(&mut bytes);
        Self(bytes)
    }

    /// Bytes from outside; they are checked when [expanded](Self::expand).
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Its bytes on the wire: the seed, then `c0` modulo all primes, packed.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The seed of `c1`.
    pub(crate) fn seed(&self) -> Seed {
        Seed(self.0.first_chunk().copied().unwrap_or_default())
    }

    /// Checks the bytes and expands the seed.
    pub fn expand(&self) -> Result<Fresh, SlotError> {
        Fresh::parse(&self.0)
    }
}

impl Fresh {
    /// Checks bytes from outside and expands the seed.
    pub fn parse(bytes: &[u8]) -> Result<Self, SlotError> {
        let (seed, c0) = bytes.split_first_chunk::<16>().ok_or(SlotError::Malformed("it has the wrong length"))?;
        Ok(Self::new([Residues::unpack(c0, LIMBS)?, Residues::from_seed(Seed(*seed))]))
    }
}
