//! How much P2 does at once.

/// What a batch may ask for. P1 cuts its batches to it, P2 refuses what exceeds it; a single row of `truncate` takes up to 48 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of one batch.
    pub rows: usize,
    /// Bytes of one batch, in either direction.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rows: 4096, bytes: 64 << 20 }
    }
}

/// Ciphertexts of the larger direction that P1 puts into one batch: some 3.5 MiB, unless one row alone is larger.
pub(crate) const BATCH_CIPHERTEXTS: usize = 16;

/// Batches of a round that are under way at the same time.
pub(crate) const BATCHES_IN_FLIGHT: usize = 3;
