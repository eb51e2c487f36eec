//! The clear mathematics of privacy, free of ciphertexts and of I/O.

mod hierarchy;

pub use hierarchy::{Hierarchy, HierarchyError, NodeId, Representatives, Spacing};
