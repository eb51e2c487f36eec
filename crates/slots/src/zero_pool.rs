//! Encryptions of zero, made ahead of time on a thread of their own, so that a round finds them ready.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{SeedableRng, TryRngCore};

use crate::PublicKey;
use crate::public_key::FloodedZero;

/// How many are kept ready: 256 KiB each.
const DEPTH: usize = 32;

/// A stock of single-use encryptions of zero.
pub struct ZeroPool {
    ready: Mutex<Receiver<FloodedZero>>,
}

impl std::fmt::Debug for ZeroPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ZeroPool")
    }
}

impl ZeroPool {
    /// Starts the thread. It sleeps when the stock is full and ends when the pool is dropped.
    pub fn start(public_key: Arc<PublicKey>) -> Self {
        let (stock, ready) = sync_channel(DEPTH);
        std::thread::spawn(move || fill(&public_key, &stock));
        Self { ready: Mutex::new(ready) }
    }

    /// One that is ready, if any is: whoever finds the stock empty makes its own.
    pub(crate) fn take(&self) -> Option<FloodedZero> {
        self.ready.lock().ok()?.try_recv().ok()
    }
}

fn fill(public_key: &PublicKey, stock: &SyncSender<FloodedZero>) {
    let mut seed = <StdRng as SeedableRng>::Seed::default();
    if rand::rngs::OsRng.try_fill_bytes(&mut seed).is_err() {
        // Without randomness the pool stays empty, and whoever needs a zero meets the error itself.
        return;
    }
    let mut rng = StdRng::from_seed(seed);
    // Blocks when the stock is full, ends when the pool is gone.
    while stock.send(public_key.flooded_zero(&mut rng)).is_ok() {}
}
