//! Encrypted = clear, at the edges of vectors of 64 slots, chunks of 32 messages and parcels of 64 rows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clusters;
mod conversions;
mod few;
mod orders;
mod parties;
mod slotwise;
mod sql;
mod tables;

// The cases and columns of the tests that run at full length.
#[path = "../../../crates/protocols/tests/k_anonymize/case.rs"]
mod case;
#[path = "../../../crates/protocols/tests/k_anonymize/column.rs"]
mod column;
mod k_anonymize;

use parties::Parties;
use veil_cells::POLYNOMIAL_SIZE;
use veil_release::PARCEL_ROWS;
use veil_slots::DEGREE;

/// Rows: one and two; about half a vector, up to which lists share one; about a vector; and numbers of vectors that are no power of two, and one more.
const EDGES: [usize; 15] = [1, 2, 31, 32, 33, 63, 64, 65, 128, 129, 192, 193, 320, 321, 800];

#[test]
fn vectors_chunks_and_parcels_are_short_here() {
    assert_eq!((DEGREE, POLYNOMIAL_SIZE, PARCEL_ROWS), (64, 32, 64));
}
