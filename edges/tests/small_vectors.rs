//! Runs the tests that need short vectors. Other crates must not be built with these in the same invocation of cargo, so that this is one of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

/// All selected packages share their features, so that with the whole workspace selected nothing of others is built anew.
#[test]
fn everything_holds_at_the_edges_of_short_vectors() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let status = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--features", "veil-edges/small-vectors", "--test", "edges"])
        .current_dir(workspace)
        .status()
        .unwrap();
    assert!(
        status.success(),
        "see what is printed above: cargo test --workspace --features veil-edges/small-vectors --test edges"
    );
}
