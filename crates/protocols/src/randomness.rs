//! Where random seeds come from: the operating system, or, in tests, a seed.

use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::{OsRng, StdRng};
use rand::{RngCore, SeedableRng, TryRngCore};

/// A source of seeds that threads can share.
#[derive(Clone)]
pub struct Randomness(Arc<Mutex<Box<dyn RngCore + Send>>>);

impl std::fmt::Debug for Randomness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Randomness")
    }
}

impl Randomness {
    /// The operating system's.
    pub fn os() -> Self {
        Self(Arc::new(Mutex::new(Box::new(OsRng.unwrap_err()))))
    }

    /// The same every time: for tests only.
    pub fn fixed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Box::new(StdRng::seed_from_u64(seed)))))
    }

    /// A fresh seed.
    pub fn seed(&self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut seed);
        seed
    }

    /// A generator of its own.
    pub fn fork(&self) -> StdRng {
        StdRng::from_seed(self.seed())
    }
}
