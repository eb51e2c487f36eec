//! What a release was, for the recipient to keep and for others to check.
//!
//! Its JSON is deterministic, fields in the order of the struct: both servers sign exactly these bytes.

use std::collections::BTreeMap;
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat};
use serde::{Deserialize, Serialize};
use veil_cells::KeyId;

use crate::text_form::hex_form;
use crate::{ReleaseError, ReleaseId, VerifyingKey};

/// The version of manifests that this program writes.
pub const MANIFEST_VERSION: u8 = 1;

/// A SHA-256, as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

hex_form!(Digest, 32, "a digest");

impl Digest {
    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }
}

/// What a release was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this object.
    pub version: u8,
    /// The release.
    pub release: ReleaseId,
    /// The key set of the data.
    pub key_set: KeyId,
    /// The owner's key, which certified those of the servers.
    pub owner: VerifyingKey,
    /// Who received it.
    pub recipient: String,
    /// The query.
    pub query: String,
    /// When it was made, as RFC 3339 says.
    pub created: String,
    /// Software by party.
    pub software: BTreeMap<String, String>,
    /// Versions of the protocols that took part, by name.
    pub protocols: BTreeMap<String, u16>,
    /// The columns, in their order.
    pub columns: Vec<ManifestColumn>,
    /// Rows that were sent, suppressed ones included.
    pub rows: u64,
    /// Parcels that they were sent in.
    pub parcels: u32,
    /// The classes that the key holder insisted on.
    pub classes: Option<ClassCheck>,
    /// Rows that are left out, where a server knows their number.
    pub suppressed: Option<u64>,
    /// Epsilon that this release spent by column, in millionths.
    pub spent: BTreeMap<String, u64>,
    /// What the servers learned, a line each.
    pub leakage: Vec<String>,
    /// The digest of P2's sealed header.
    pub header: Digest,
    /// Digests of the sealed parts by parcel number.
    pub digests: BTreeMap<u32, ParcelDigests>,
}

/// A column of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestColumn {
    /// Its name.
    pub name: String,
    /// Its kind, or the Arrow type of a clear column.
    pub kind: String,
    /// Whether it was encrypted until the recipient opened it.
    pub encrypted: bool,
    /// Epsilon in its type, in millionths.
    pub epsilon: u64,
    /// Who added noise.
    pub noise: NoiseBy,
}

/// Whose noise is in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoiseBy {
    /// Nobody's.
    Nobody,
    /// P1's alone: who runs the engine can take it off.
    P1,
    /// That of both, so that neither can take it off.
    Both,
}

/// What the key holder found out about classes of equal rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassCheck {
    /// How many rows had to be equal.
    pub required: u32,
    /// In which columns together.
    pub columns: Vec<String>,
    /// Whether they were.
    pub passed: bool,
    /// The smallest class, where the check says it.
    pub smallest: Option<u64>,
}

/// Digests of a parcel's sealed parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParcelDigests {
    /// Of P1's part.
    pub p1: Digest,
    /// Of P2's part.
    pub p2: Digest,
}

/// Now, as RFC 3339 says.
pub fn moment_now() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = DateTime::from_timestamp(now.try_into().unwrap_or_default(), 0);
    now.map(|now| now.to_rfc3339_opts(SecondsFormat::Secs, true)).unwrap_or_default()
}

impl Manifest {
    /// The bytes that both servers sign.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ReleaseError> {
        serde_json::to_vec(self)
            .map_err(|error| ReleaseError::Malformed { what: "the manifest", why: error.to_string() })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example(owner: VerifyingKey) -> Manifest {
        Manifest {
            version: MANIFEST_VERSION,
            release: ReleaseId([9; 16]),
            key_set: KeyId([7; 8]),
            owner,
            recipient: "alice".to_owned(),
            query: "SELECT cost FROM patients".to_owned(),
            created: "2026-11-18T01:02:03Z".to_owned(),
            software: BTreeMap::from([("p1".to_owned(), "veil 0.1.0".to_owned())]),
            protocols: BTreeMap::from([("release".to_owned(), 1)]),
            columns: vec![ManifestColumn {
                name: "cost".to_owned(),
                kind: "decimal".to_owned(),
                encrypted: true,
                epsilon: 500_000,
                noise: NoiseBy::Both,
            }],
            rows: 1000,
            parcels: 1,
            classes: Some(ClassCheck { required: 10, columns: vec!["born".to_owned()], passed: true, smallest: None }),
            suppressed: None,
            spent: BTreeMap::from([("cost".to_owned(), 500_000)]),
            leakage: vec!["P2 sees the number of rows".to_owned()],
            header: Digest::of(b"0"),
            digests: BTreeMap::from([(0, ParcelDigests { p1: Digest::of(b"1"), p2: Digest::of(b"2") })]),
        }
    }

    /// What is signed must not depend on the version of a library.
    #[test]
    fn the_bytes_are_pinned() {
        let key = ed25519_dalek::SigningKey::from_bytes(&[5; 32]).verifying_key();
        let owner = VerifyingKey::from_bytes(key.as_bytes()).unwrap();
        let json = String::from_utf8(example(owner).to_bytes().unwrap()).unwrap();
        assert_eq!(
            json,
            format!(
                r#"{{"version":1,"release":"09090909090909090909090909090909","key_set":"0707070707070707","owner":"{owner}","recipient":"alice","query":"SELECT cost FROM patients","created":"2026-11-18T01:02:03Z","software":{{"p1":"veil 0.1.0"}},"protocols":{{"release":1}},"columns":[{{"name":"cost","kind":"decimal","encrypted":true,"epsilon":500000,"noise":"both"}}],"rows":1000,"parcels":1,"classes":{{"required":10,"columns":["born"],"passed":true,"smallest":null}},"suppressed":null,"spent":{{"cost":500000}},"leakage":["P2 sees the number of rows"],"header":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","digests":{{"0":{{"p1":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","p2":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35"}}}}}}"#
            )
        );
    }
}
