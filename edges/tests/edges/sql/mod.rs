//! SQL on encrypted tables, from the text of a query to what the owner decrypts, at the edges of vectors, parcels, batches and partitions.

#[path = "../../../../tests/sql/k_anonymize/sample.rs"]
mod sample;
#[allow(dead_code, reason = "the same world as that of the tests at full length, which use all of it")]
#[path = "../../../../tests/sql/world.rs"]
pub(crate) mod world;

mod assess;
mod identifiers;
mod k_anonymize;
mod people;
mod release;
mod rounds;
