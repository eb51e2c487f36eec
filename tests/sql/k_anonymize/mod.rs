//! k-anonymisation in SQL: what the owner decrypts is what the same algorithm publishes in clear, and every row is like k - 1 others.

mod agreement;
mod behaviour;
mod comparison;
mod golden;
mod sample;
