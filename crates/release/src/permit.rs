//! What P2 gives P1 to show with every parcel, and P2 alone can read: a release that was granted.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use veil_cells::{ColumnId, JointNoise};
use veil_protocols::ProtocolError;
use zeroize::Zeroizing;

use crate::{ClassCheck, Digest, RecipientPublicKey, ReleaseId, Spend};

const NONCE: usize = 24;
const BOUND_TO: &[u8] = b"veil permit v1";

/// A release that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Permit {
    pub(crate) release: ReleaseId,
    pub(crate) recipient: String,
    pub(crate) key: RecipientPublicKey,
    pub(crate) query: String,
    /// The digest of the sealed header.
    pub(crate) header: Digest,
    /// The encrypted columns.
    pub(crate) columns: Vec<PermittedColumn>,
    /// Names of all columns.
    pub(crate) names: Vec<String>,
    /// Rows that must be alike, and in which columns.
    pub(crate) k: Option<(u32, Vec<String>)>,
    /// What was found about that.
    pub(crate) classes: Option<ClassCheck>,
    pub(crate) spends: Vec<PermittedSpend>,
    pub(crate) min_rows: u64,
    pub(crate) expires: u64,
}

/// An encrypted column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermittedColumn {
    /// Lanes of a value, that of hidden NULLs included.
    pub(crate) lanes: usize,
    /// Noise to add to the first, and the distance of the bounds, which is nobody's business.
    pub(crate) noise: Vec<(JointNoise, u64)>,
}

/// What the release spends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermittedSpend {
    pub(crate) column: ColumnId,
    pub(crate) name: String,
    pub(crate) epsilon: u64,
    pub(crate) budget: u64,
}

impl From<Spend> for PermittedSpend {
    fn from(Spend { column, name, epsilon, budget }: Spend) -> Self {
        Self { column, name, epsilon, budget }
    }
}

impl From<&PermittedSpend> for Spend {
    fn from(PermittedSpend { column, name, epsilon, budget }: &PermittedSpend) -> Self {
        Self { column: *column, name: name.clone(), epsilon: *epsilon, budget: *budget }
    }
}

impl Permit {
    /// Sealed with a key of P2's.
    pub(crate) fn seal(&self, key: &[u8; 32], rng: &mut dyn CryptoRng) -> Result<Vec<u8>, ProtocolError> {
        let failed = || ProtocolError::Internal("a permit could not be sealed".to_owned());
        let text = Zeroizing::new(serde_json::to_vec(self).map_err(|_| failed())?);
        let mut nonce = [0; NONCE];
        rng.fill_bytes(&mut nonce);
        let payload = Payload { msg: &text, aad: BOUND_TO };
        let sealed = XChaCha20Poly1305::new(key.into()).encrypt(&XNonce::from(nonce), payload).map_err(|_| failed())?;
        Ok([&nonce[..], &sealed].concat())
    }

    /// Opens one, if it is this P2's and has not ended.
    pub(crate) fn open(sealed: &[u8], key: &[u8; 32], now: u64) -> Result<Self, ProtocolError> {
        let foreign =
            || ProtocolError::Denied("the permit is not one of this key holder: begin the release again".to_owned());
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or_else(foreign)?;
        let payload = Payload { msg: sealed, aad: BOUND_TO };
        let text = XChaCha20Poly1305::new(key.into()).decrypt(&XNonce::from(*nonce), payload).map_err(|_| foreign())?;
        let permit: Self = serde_json::from_slice(&Zeroizing::new(text)).map_err(|_| foreign())?;
        match now < permit.expires {
            true => Ok(permit),
            false => Err(ProtocolError::Denied(format!(
                "the permit of release {} has ended: begin the release again",
                permit.release
            ))),
        }
    }
}
