//! The owner's public key, from the file `owner.pub`.

use std::path::Path;

use veil_keys::KeyError;
use veil_release::OwnerPublic;

/// Reads the file.
pub(crate) fn read(file: &Path) -> Result<OwnerPublic, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(file).map_err(|source| KeyError::Io { path: file.to_owned(), source })?;
    text.parse().map_err(|error| format!("{}: {error}", file.display()).into())
}
