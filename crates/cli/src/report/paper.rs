//! The manifest of a release, held against the owner's key as `veil verify` does.

use std::path::Path;

use veil_keys::{KeyError, P1Keys};
use veil_release::{ReleaseError, SignedManifest};

use super::findings::Paper;

/// Reads a manifest. Whether its signatures hold is part of what the report says, and no reason to make none.
pub(super) fn read(file: &Path, keys: &P1Keys) -> Result<Paper, Box<dyn std::error::Error>> {
    let json = std::fs::read(file).map_err(|source| KeyError::Io { path: file.to_owned(), source })?;
    let signed = SignedManifest::parse(&json).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Paper { file: super::file_name(file), refused: refusal(&signed, keys), manifest: signed.manifest })
}

/// Why the servers of the engine's own key set did not both sign it.
fn refusal(signed: &SignedManifest, keys: &P1Keys) -> Option<String> {
    let (found, expected) = (signed.manifest.key_set, keys.key_id());
    if found != expected {
        return Some(ReleaseError::WrongKeySet { what: "the manifest", found, expected }.to_string());
    }
    signed.verify(keys.owner_key()).err().map(|error| error.to_string())
}
