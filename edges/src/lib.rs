//! Tests of everything that works in vectors, chunks, parcels and partitions, at the edges of each: one row, a vector less one, a vector, one more, and numbers of vectors
//! that are no power of two.
//!
//! A vector has 8192 slots, so that a table of three and a row has 24,577 rows and takes minutes. With the feature `small-vectors` a vector has 64, and whatever follows from
//! it is as much smaller. Cargo builds every crate with one set of features at a time, so that the tests themselves, in `tests/edges`, need an invocation of their own:
//!
//! ```sh
//! cargo test --workspace --features veil-edges/small-vectors --test edges
//! ```
//! `cargo test --workspace` runs that too, through `tests/small_vectors.rs`. Builds of both kinds share their folder and all dependencies.
