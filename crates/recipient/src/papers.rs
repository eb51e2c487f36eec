//! The manifest against what came.

use std::collections::BTreeMap;

use veil_cells::KeyId;
use veil_release::{Digest, OwnerPublic, ParcelDigests, ReleaseError, ReleaseId, SignedManifest};

use crate::RecipientError;
use crate::columns::Columns;

/// What came.
#[derive(Debug, Default)]
pub(crate) struct Came {
    /// Rows, suppressed ones included.
    pub(crate) rows: u64,
    /// The digest of the header.
    pub(crate) header: Option<Digest>,
    /// Digests by parcel.
    pub(crate) digests: BTreeMap<u32, ParcelDigests>,
}

impl Came {
    /// Whether a manifest is about this, and signed. Without the owner's key, the key in the manifest itself is believed.
    pub(crate) fn compare(
        &self,
        signed: &SignedManifest,
        release: ReleaseId,
        recipient: &str,
        columns: &Columns,
        owner: Option<&OwnerPublic>,
    ) -> Result<(), RecipientError> {
        let manifest = &signed.manifest;
        if let Some(expected) = owner.map(|owner| owner.key_set).filter(|key_set| *key_set != manifest.key_set) {
            let found = manifest.key_set;
            return Err(ReleaseError::WrongKeySet { what: "the manifest", found, expected }.into());
        }
        signed.verify(owner.map_or(&manifest.owner, |owner| &owner.key))?;
        let differs = |what: &str| Err(RecipientError::OtherManifest(what.to_owned()));
        if manifest.release != release {
            return differs("release");
        }
        if Some(manifest.header) != self.header {
            return differs("header");
        }
        if manifest.recipient != recipient {
            return differs("recipient");
        }
        let named = manifest.columns.iter().map(|column| (column.name.as_str(), column.encrypted));
        let came = columns.names.iter().map(String::as_str).zip(columns.codecs.iter().map(Option::is_some));
        if !named.eq(came) {
            return differs("list of columns");
        }
        let is_other = |key_set: KeyId| key_set != manifest.key_set;
        if columns.codecs.iter().flatten().any(|codec| is_other(codec.cell_type().key)) {
            return differs("key set");
        }
        if manifest.rows != self.rows || manifest.parcels as usize != self.digests.len() {
            return differs("number of rows");
        }
        let differing = self.digests.iter().find(|(number, digests)| manifest.digests.get(number) != Some(digests));
        match differing {
            Some((number, _)) => differs(&format!("parcel {number}")),
            None if manifest.digests.len() != self.digests.len() => differs("number of parcels"),
            None => Ok(()),
        }
    }
}
