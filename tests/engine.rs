//! Encrypted columns inside DataFusion.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod engine {
    mod boundary;
    mod readers;
}
