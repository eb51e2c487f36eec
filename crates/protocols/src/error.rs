//! What can go wrong in a round, by blame.

use veil_cells::CellError;
use veil_slots::SlotError;

/// An error of a round. Each is one sentence: what happened, where, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The other side sent what is not a message.
    #[error("malformed message: {0}")]
    Malformed(String),

    /// The other side speaks another language: key set, version, parameters, order.
    #[error("{what} does not match: expected {expected}, got {found}; {advice}")]
    Mismatch {
        /// What differs.
        what: &'static str,
        /// What this side has.
        expected: String,
        /// What the other side has.
        found: String,
        /// What to do.
        advice: &'static str,
    },

    /// The other side asks for something unknown.
    #[error("{0}")]
    Unsupported(String),

    /// The other side asks for too much at once.
    #[error("{what} of {found} exceeds the limit of {limit}; send smaller batches")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        found: usize,
        /// How large it may be.
        limit: usize,
    },

    /// The caller on this side asks for something impossible.
    #[error("{0}")]
    Misuse(String),

    /// The other side cannot be reached.
    #[error("{0}")]
    Unreachable(String),

    /// The other side took too long.
    #[error("{0}")]
    Deadline(String),

    /// The other side does not let this one in.
    #[error("{0}")]
    Denied(String),

    /// What may be spent is spent.
    #[error("{0}")]
    Exhausted(String),

    /// The work was cancelled.
    #[error("the round was cancelled")]
    Cancelled,

    /// A failure that is nobody's message: a bug, or a machine in trouble.
    #[error("internal failure: {0}")]
    Internal(String),

    /// A ciphertext is wrong.
    #[error(transparent)]
    Slots(#[from] SlotError),
}

impl From<CellError> for ProtocolError {
    fn from(error: CellError) -> Self {
        Self::Misuse(error.to_string())
    }
}

impl ProtocolError {
    /// Whether the same round may succeed when it is sent again.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}
