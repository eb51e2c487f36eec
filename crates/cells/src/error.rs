//! What can go wrong with a cell, by blame.

use crate::{ColumnId, KeyId};

/// An error about cells. Each is one sentence: what happened and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// The bytes are not a cell, or were damaged.
    #[error("malformed cell: {0}; the data was damaged or is not a veil column")]
    Malformed(String),

    /// The cell was written by a later version.
    #[error("{what} has format version {found}, this program reads up to {supported}; use a newer veil")]
    FromTheFuture {
        /// What carries the version.
        what: &'static str,
        /// The version found.
        found: u8,
        /// The latest version this program knows.
        supported: u8,
    },

    /// Two things belong to different key sets.
    #[error("wrong key: expected key {expected}, got {found}; use the keys that the data was encrypted with")]
    WrongKey {
        /// The key that is at hand.
        expected: KeyId,
        /// The key that the data names.
        found: KeyId,
    },

    /// A side table or sealed note belongs to another column.
    #[error("wrong column: expected column {expected}, got {found}")]
    WrongColumn {
        /// The column at hand.
        expected: ColumnId,
        /// The column that the data names.
        found: ColumnId,
    },

    /// The operation could push noise into the value.
    #[error(
        "the operation would raise this cell's noise to {noise} of {limit}: use smaller factors or fewer terms, \
         or split a long sum into parts"
    )]
    NoiseBudget {
        /// The bound that the result would have.
        noise: u64,
        /// The largest bound that still decrypts.
        limit: u64,
    },

    /// The operation could push the value out of the message space.
    #[error("the result could exceed 48 bits: use a smaller factor, constant or sum")]
    MessageOverflow,

    /// The operation is not defined for this cell.
    #[error("{0}")]
    Unsupported(String),

    /// The Arrow data is not what it should be.
    #[error("{0}")]
    NotACellColumn(String),

    /// Arrow refused.
    #[error(transparent)]
    Arrow(#[from] arrow::error::ArrowError),

    /// Parquet refused.
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),

    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<CellError> for arrow::error::ArrowError {
    fn from(error: CellError) -> Self {
        match error {
            CellError::Arrow(error) => error,
            other => Self::ExternalError(Box::new(other)),
        }
    }
}
