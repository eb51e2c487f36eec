//! Memory of polynomials, kept for the next one.
//!
//! A polynomial takes 256 KiB, which allocators return to the operating system at once: a fifth of a round would be page
//! faults. Each thread keeps some buffers instead.

use std::cell::RefCell;

use crate::parameters::{DEGREE, LIMBS, SPARE_WORDS};

/// Buffers that a thread keeps: 12 MiB.
const KEPT: usize = 48;

/// Every buffer has room for all primes, and the spare words of a seed.
const WORDS: usize = LIMBS * DEGREE + SPARE_WORDS;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with room for a polynomial.
pub(crate) fn take() -> Vec<u64> {
    let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
    spare.unwrap_or_else(|| Vec::with_capacity(WORDS))
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
    // A thread that is ending keeps nothing.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < KEPT {
            spare.push(buffer);
        }
    });
}
