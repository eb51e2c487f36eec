//! What can go wrong with a release, by who is to blame.

use veil_cells::KeyId;

use crate::Party;

/// An error about a release. Each is one sentence: what happened, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// What came in cannot be read.
    #[error("{what} cannot be read: {why}")]
    Malformed {
        /// What it should be.
        what: &'static str,
        /// What gave it away.
        why: String,
    },

    /// What came in was written by a later version.
    #[error("{what} has format version {found}, this program reads up to {supported}; use a newer veil")]
    FromTheFuture {
        /// What it is.
        what: &'static str,
        /// The version found.
        found: u8,
        /// The latest version this program knows.
        supported: u8,
    },

    /// What came in is too large.
    #[error("{what} is larger than {limit}; ask for less at once")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// The most that is read.
        limit: &'static str,
    },

    /// The owner's policy is wrong.
    #[error("the policy, line {line}: {what}")]
    Policy {
        /// Where, from one.
        line: usize,
        /// What is wrong and what to do.
        what: String,
    },

    /// It belongs to another key set.
    #[error("{what} is for key set {found}, and this is key set {expected}; use the one that was made with these keys")]
    WrongKeySet {
        /// What it is.
        what: &'static str,
        /// The key set that it names.
        found: KeyId,
        /// The key set here.
        expected: KeyId,
    },

    /// A signature does not hold.
    #[error("the signature of {0} does not hold: it was changed since, or signed with another key")]
    BadSignature(String),

    /// The manifest names another owner.
    #[error("the manifest names another owner than the given key; ask the owner for the owner.pub of this key set")]
    OtherOwner,

    /// The owner did not certify the key of a server.
    #[error("the key of {0} is not certified by the owner: the manifest was not made by the servers of this key set")]
    BadCertificate(Party),

    /// A server did not sign what is there.
    #[error("the signature of {0} does not hold: the manifest was changed since, or signed with another key")]
    BadAttestation(Party),

    /// The recipient's key is no key.
    #[error("nothing can be sealed to the recipient's key {0}; ask the recipient for recipient.pub again")]
    BadRecipient(String),

    /// What was sealed does not open.
    #[error("a sealed part does not open: it was damaged, is of another release or place, or is for another recipient")]
    Unsealable,

    /// The type of a column is wrong.
    #[error("column {column}: {why}")]
    Column {
        /// The column.
        column: String,
        /// The fault.
        why: String,
    },
}
