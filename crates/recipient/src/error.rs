//! What can go wrong when a release is received.

use std::path::PathBuf;

use arrow::error::ArrowError;
use veil_keys::KeyError;
use veil_release::{Party, ReleaseError};

/// An error of the recipient's side. Each is one sentence: what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipientError {
    /// What came is no release.
    #[error("what came is no release: {0}; ask for `SELECT * FROM release(.., recipient => '..')`")]
    NoRelease(String),

    /// The header does not open.
    #[error(
        "this release is not for this key: its header does not open with the key of {0}; give the recipient.key whose recipient.pub \
         is in the owner's policy"
    )]
    OtherKey(String),

    /// A sealed part does not open.
    #[error("parcel {number}: the part of {party} does not open: it was changed on its way; fetch the release again")]
    Corrupt {
        /// The parcel.
        number: u32,
        /// Whose part it is.
        party: Party,
    },

    /// What was sealed cannot be read.
    #[error("parcel {number}: the part of {party} cannot be read: {why}")]
    Unreadable {
        /// The parcel, zero for the header.
        number: u32,
        /// Whose part it is.
        party: Party,
        /// The fault.
        why: String,
    },

    /// The values of a column cannot be read.
    #[error("parcel {number}, column {column}: {source}")]
    Column {
        /// The parcel.
        number: u32,
        /// The column.
        column: String,
        /// The fault.
        source: KeyError,
    },

    /// Parcels do not follow one another.
    #[error(
        "parcel {found} came where parcel {expected} should be: some are missing or doubled; fetch the release again"
    )]
    OutOfOrder {
        /// The number that came.
        found: u32,
        /// The number that should have.
        expected: u32,
    },

    /// There is no manifest.
    #[error("the release ended after {parcels} parcels without its manifest; fetch it again")]
    NoManifest {
        /// Parcels that came.
        parcels: u32,
    },

    /// The manifest is about something else.
    #[error(
        "the manifest has another {0} than what came: it is of another release, or something was changed; fetch it again"
    )]
    OtherManifest(String),

    /// The sealed parts cannot be kept.
    #[error("the sealed parts cannot be kept: {0}")]
    NotKept(String),

    /// A file has no sealed parts.
    #[error("{file} cannot be read as sealed parts: {why}; give the file that `veil fetch --keep-sealed` wrote")]
    NoSealedFile {
        /// The file.
        file: PathBuf,
        /// The fault.
        why: String,
    },

    /// The papers or seals are at fault.
    #[error(transparent)]
    Release(#[from] ReleaseError),

    /// A batch cannot be made.
    #[error("the rows of the release do not fit together: {0}")]
    Arrow(#[from] ArrowError),

    /// The server cannot be reached.
    #[error("{url} cannot be reached: {why}; check the address and whether the server runs")]
    Unreachable {
        /// The address.
        url: String,
        /// Why not.
        why: String,
    },

    /// The connection was lost too often.
    #[error("the connection to {url} was lost after {rows} parcels and does not come back: {why}; try again later")]
    Lost {
        /// The address.
        url: String,
        /// Rows of the sealed table that came.
        rows: u64,
        /// Why.
        why: String,
    },

    /// The server refuses.
    #[error("{}", .0.message())]
    Refused(Box<tonic::Status>),

    /// How to reach the server is wrong.
    #[error("{0}")]
    Setting(String),

    /// A bug or a broken machine.
    #[error("the release was not opened: {0}")]
    Internal(String),
}
