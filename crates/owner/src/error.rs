//! What can go wrong on the owner's side.

use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use parquet::errors::ParquetError;
use veil_cells::CellError;
use veil_keys::KeyError;

/// An error of the owner's tools. Each is one sentence: what happened, where, and what to do. These run
/// on the owner's own machine, so they may name a value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The declaration is wrong.
    #[error("{file}, line {line}: {what}")]
    Declaration {
        /// The declaration.
        file: PathBuf,
        /// Where, from one.
        line: usize,
        /// What is wrong and what to do.
        what: String,
    },

    /// The declaration and the data do not match.
    #[error("{file}: {what}")]
    Mismatch {
        /// The data.
        file: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },

    /// A value does not fit its column's declaration.
    #[error("{file}: row {row}, column {column}: `{value}` {why}")]
    Value {
        /// The data.
        file: PathBuf,
        /// The row, from one, not counting a header.
        row: usize,
        /// The column.
        column: String,
        /// The value.
        value: String,
        /// What is wrong and what to do.
        why: String,
    },

    /// A file that the declaration names is wrong.
    #[error("{file}: {what}")]
    Attachment {
        /// The hierarchy or dictionary.
        file: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },

    /// The file is not of a kind that we read or write.
    #[error("{0}: the ending tells the format; use .csv, .parquet, .arrow or .feather")]
    UnknownFormat(PathBuf),

    /// Encrypted cells do not fit into this format.
    #[error("{0}: an encrypted file is Parquet or Arrow; use the ending .parquet or .arrow")]
    NotForCells(PathBuf),

    /// The file cannot be read as what its name says.
    #[error("{file}: {why}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the reader said.
        why: String,
    },

    /// The output is there already.
    #[error("{0} exists already; choose another name or say --force")]
    Exists(PathBuf),

    /// The run was broken off.
    #[error("cancelled; nothing was written")]
    Cancelled,

    /// The system refused.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },

    /// The keys or the cells are at fault.
    #[error("{file}: column {column}: {source}")]
    Column {
        /// The encrypted file.
        file: PathBuf,
        /// The column.
        column: String,
        /// The fault.
        source: KeyError,
    },

    /// A key file is at fault.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl OwnerError {
    /// An I/O error at a file.
    pub(crate) fn io(file: &Path) -> impl Fn(std::io::Error) -> Self + '_ {
        move |source| Self::Io { file: file.to_owned(), source }
    }

    /// Arrow's complaint about a file.
    pub(crate) fn arrow(file: &Path) -> impl Fn(ArrowError) -> Self + '_ {
        move |error| Self::Unreadable { file: file.to_owned(), why: one_sentence(&error) }
    }

    /// Parquet's complaint about a file.
    pub(crate) fn parquet(file: &Path) -> impl Fn(ParquetError) -> Self + '_ {
        move |error| Self::Unreadable { file: file.to_owned(), why: one_sentence(&error) }
    }

    /// A fault of a column's cells or keys.
    pub(crate) fn column<'a, E: Into<KeyError>>(file: &'a Path, column: &'a str) -> impl Fn(E) -> Self + 'a {
        move |source| Self::Column { file: file.to_owned(), column: column.to_owned(), source: source.into() }
    }

    /// A fault of a file's side tables.
    pub(crate) fn cell(file: &Path) -> impl Fn(CellError) -> Self + '_ {
        move |error| Self::Unreadable { file: file.to_owned(), why: error.to_string() }
    }
}

fn one_sentence(error: &dyn std::error::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
