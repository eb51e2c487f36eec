//! What both sides must agree on before a round: the handshake.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use veil_cells::KeyId;
use veil_protocols::catalog::CATALOG;
use veil_protocols::{Limits, ProtocolError, WIRE_VERSION};

/// What a side speaks. Each sends its own and checks both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The key set.
    pub key_id: KeyId,
    /// The layout of headers and batches.
    pub wire_version: u8,
    /// The encryption scheme, as [`veil_slots::fingerprint`] sums it up, in hexadecimal.
    pub fingerprint: String,
    /// The protocols and their versions.
    pub protocols: BTreeMap<String, u16>,
    /// Rows of a batch that this side takes.
    pub max_rows: usize,
    /// Bytes of a batch that this side takes.
    pub max_bytes: usize,
}

/// The name of the header in which P2 repeats on every stream what it speaks.
pub(crate) const TERMS_HEADER: &str = "veil-terms";

static FINGERPRINT: LazyLock<String> = LazyLock::new(|| format!("{:016x}", veil_slots::fingerprint()));

const SAME_VERSION: &str = "run the same version of veil on both sides";

impl Terms {
    /// What this program speaks, for a key set.
    pub fn new(key_id: KeyId, limits: Limits) -> Self {
        Self {
            key_id,
            wire_version: WIRE_VERSION,
            fingerprint: FINGERPRINT.clone(),
            protocols: CATALOG.iter().map(|entry| (entry.name.to_owned(), entry.version)).collect(),
            max_rows: limits.rows,
            max_bytes: limits.bytes,
        }
    }

    /// How much the side takes at once.
    pub fn limits(&self) -> Limits {
        Limits { rows: self.max_rows, bytes: self.max_bytes }
    }

    /// Whether P2, which speaks this, can work for a P1 that speaks that. P2 may know more protocols than P1.
    pub fn accept(&self, p1: &Terms) -> Result<(), ProtocolError> {
        let mismatch = |what, expected: String, found: String, advice| {
            Err(ProtocolError::Mismatch { what, expected, found, advice })
        };
        if self.wire_version != p1.wire_version {
            let (expected, found) = (self.wire_version.to_string(), p1.wire_version.to_string());
            return mismatch("the wire version", expected, found, SAME_VERSION);
        }
        if self.fingerprint != p1.fingerprint {
            let found = p1.fingerprint.chars().take(32).collect();
            return mismatch("the encryption scheme", self.fingerprint.clone(), found, SAME_VERSION);
        }
        for (name, version) in &p1.protocols {
            let known = self.protocols.get(name);
            if known != Some(version) {
                let expected = known.map_or("no such protocol".to_owned(), |known| format!("{name} {known}"));
                let name: String = name.escape_default().take(32).collect();
                return mismatch("the protocol version", expected, format!("{name} {version}"), SAME_VERSION);
            }
        }
        if self.key_id != p1.key_id {
            let advice = "start P2 with the keys that the data was encrypted with";
            return mismatch("the key set", self.key_id.to_string(), p1.key_id.to_string(), advice);
        }
        Ok(())
    }

    /// All of it in one short word, to notice that P2 is another one than the one that was agreed with (FNV-1a: against
    /// accidents, not forgery).
    pub(crate) fn tag(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", text.iter().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        Terms::new(KeyId([1; 8]), Limits::default())
    }

    #[test]
    fn the_same_program_with_the_same_keys_is_accepted() {
        terms().accept(&terms()).unwrap();
        let fewer = Terms { protocols: BTreeMap::from([("lift".to_owned(), 1)]), max_rows: 1, ..terms() };
        terms().accept(&fewer).unwrap();
        assert_eq!(terms().tag(), terms().tag());
    }

    #[test]
    fn every_difference_is_named() {
        let protocols = |name: &str, version| BTreeMap::from([(name.to_owned(), version)]);
        let cases = [
            (Terms { wire_version: 0, ..terms() }, "the wire version does not match: expected 2, got 0"),
            (Terms { fingerprint: "f".to_owned(), ..terms() }, "the encryption scheme does not match"),
            (
                Terms { protocols: protocols("lift", 9), ..terms() },
                "the protocol version does not match: expected lift 1, got lift 9",
            ),
            (
                Terms { protocols: protocols("no\nsuch", 1), ..terms() },
                "the protocol version does not match: expected no such protocol, got no\\nsuch 1",
            ),
            (
                Terms { key_id: KeyId([2; 8]), ..terms() },
                "the key set does not match: expected 0101010101010101, got 0202020202020202; start P2 with the keys",
            ),
        ];
        for (p1, sentence) in cases {
            let error = terms().accept(&p1).unwrap_err().to_string();
            assert!(error.starts_with(sentence), "{error}");
            assert_ne!(p1.tag(), terms().tag());
        }
    }
}
