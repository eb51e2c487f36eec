//! SQL on encrypted columns, from the text of a query to what the owner decrypts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod sql {
    mod assess;
    mod assess_edges;
    mod assess_rows;
    mod distributions;
    mod identifiers;
    mod k_anonymize;
    mod release;
    mod release_policy;
    mod release_text;
    mod resilience;
    mod results;
    mod rows;
    mod sizes;
    mod slt;
    mod tables;
    mod world;
}
