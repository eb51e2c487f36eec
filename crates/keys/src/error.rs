//! What can go wrong with keys.

use std::path::PathBuf;

use veil_cells::CellError;
use veil_release::ReleaseError;

/// An error about keys. Each is one sentence: what happened, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file is there already.
    #[error("{0} exists already; choose another place or say --force")]
    Exists(PathBuf),

    /// The file is not a key file, or was damaged.
    #[error("{path} is not a key file of veil, or was damaged: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What gave it away.
        why: String,
    },

    /// The file was written by a later version.
    #[error("{path} has format version {found}, this program reads up to {supported}; use a newer veil")]
    FromTheFuture {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u8,
        /// The latest version this program knows.
        supported: u8,
    },

    /// The file was written before keys could sign.
    #[error(
        "{path} has format version {found}, from before keys could sign; run `veil keygen` again and encrypt the data with the new keys"
    )]
    Outdated {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u8,
    },

    /// The keys are for ciphertexts of another size.
    #[error(
        "{path} holds keys for vectors of {found} numbers, and those of this program have {supported}; run `veil keygen` with this program, and encrypt the data with the \
         new keys"
    )]
    OtherDegree {
        /// The file.
        path: PathBuf,
        /// Slots of a vector that the keys were made for.
        found: usize,
        /// Slots of a vector of this program.
        supported: usize,
    },

    /// The name of a recipient is no name.
    #[error(
        "`{0}` cannot be a recipient's name; use letters, digits, `.`, `-` and `_`, at most 64, and say it with --name"
    )]
    RecipientName(String),

    /// The file is not a recipient's key.
    #[error("{path} is not a recipient's key, or was damaged; make one with `veil recipient keygen`")]
    NotARecipient {
        /// The file.
        path: PathBuf,
    },

    /// The file holds the keys of another party.
    #[error("{path} holds the keys of {found}, and this needs those of {expected}")]
    WrongRole {
        /// The file.
        path: PathBuf,
        /// Whose keys are needed.
        expected: &'static str,
        /// Whose keys were found.
        found: &'static str,
    },

    /// Others may read the file.
    #[error("{path} can be read by others (mode {mode:03o}); run `chmod 600 {path}` and consider the keys exposed")]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },

    /// The file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },

    /// A sealed note does not open.
    #[error("a sealed note of column {0} does not open: it was damaged or belongs to another key or column")]
    Unsealable(veil_cells::ColumnId),

    /// A row's cell is at fault.
    #[error("row {}: {source}", row + 1)]
    Row {
        /// The row, from zero.
        row: usize,
        /// The fault.
        source: CellError,
    },

    /// What was released is at fault.
    #[error(transparent)]
    Release(#[from] ReleaseError),

    /// The cells themselves are at fault.
    #[error(transparent)]
    Cell(#[from] CellError),
}
