//! Memory of polynomials, kept for the next one.
//!
//! A polynomial takes 256 KiB, which allocators return to the operating system at once: a fifth of a round would be page
//! faults. So buffers are kept. All threads share them, because a polynomial is made on one thread and often dropped on another; a lock
//! is nothing against what is done with a buffer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::parameters::{DEGREE, LIMBS, SPARE_WORDS};

/// Buffers that are kept: 96 MiB.
const KEPT: usize = 384;

/// Every buffer has room for all primes, and the spare words of a seed.
const WORDS: usize = LIMBS * DEGREE + SPARE_WORDS;

static SPARE: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());

fn spare() -> MutexGuard<'static, Vec<Vec<u64>>> {
    // A list of buffers is whole whatever happened to whoever held it.
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An empty buffer with room for a polynomial.
pub(crate) fn take() -> Vec<u64> {
    let kept = spare().pop();
    kept.unwrap_or_else(|| Vec::with_capacity(WORDS))
}

/// A buffer of zeros.
pub(crate) fn zeros(length: usize) -> Vec<u64> {
    let mut buffer = take();
    buffer.resize(length, 0);
    buffer
}

/// Keeps a buffer for later.
pub(crate) fn put(mut buffer: Vec<u64>) {
    if buffer.capacity() < WORDS || buffer.capacity() > 2 * WORDS {
        return;
    }
    buffer.clear();
    let mut spare = spare();
    if spare.len() < KEPT {
        spare.push(buffer);
    }
}
