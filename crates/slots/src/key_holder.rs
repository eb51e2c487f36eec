//! What P2 can do and P1 cannot.

use rand::CryptoRng;
use veil_cells::{KeyId, Seed};
use zeroize::Zeroizing;

use crate::{Inbound, SeededSlots};

/// A sample of the cell scheme: where its mask comes from, and its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The chunk.
    pub seed: Seed,
    /// Its coefficient.
    pub index: u16,
    /// The body, masked by P1.
    pub body: u64,
}

/// The holder of the secret keys. The halves of P2 are written against this, so that no crate of P1 can name a secret key.
pub trait KeyHolder: Send + Sync {
    /// The key set.
    fn key_id(&self) -> KeyId;

    /// The numbers in a ciphertext that P1 sanitised.
    fn open(&self, ciphertext: Inbound) -> Zeroizing<Vec<u64>>;

    /// Encrypts up to 8192 numbers below `t` afresh.
    fn seal(&self, values: &[u64], rng: &mut dyn CryptoRng) -> SeededSlots;

    /// The phases of samples of the cell scheme; an index beyond the chunk is zero.
    fn open_samples(&self, samples: &[Sample]) -> Zeroizing<Vec<u64>>;

    /// The phases of samples whose masks are at hand, 4096 words each, one for every body. A mask that is missing is zero.
    fn open_dense(&self, masks: &[u64], bodies: &[u64]) -> Zeroizing<Vec<u64>>;

    /// Encrypts up to 4096 messages of 48 bits as one chunk of cells: its seed and bodies.
    fn seal_samples(&self, messages: &[u64], rng: &mut dyn CryptoRng) -> (Seed, Vec<u64>);
}
