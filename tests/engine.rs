//! Encrypted columns inside DataFusion.

mod engine {
    mod boundary;
    mod readers;
}
