//! What P2 gives P1 to show with every parcel, and P2 alone can read: a release that was granted.
//!
//! It is good under the policy that it was granted under, and ends with that.
//!
//! Where the policy wants many rows, P2 seals nothing before it knows that there are so many: from the classes that it counted, or in P1's words. From then on
//! every parcel has to be as full as that makes it, and the manifest is signed only if all of them were sealed. What P2 adds up is in its receipts.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use veil_cells::{ColumnId, JointNoise};
use veil_protocols::ProtocolError;
use zeroize::Zeroizing;

use crate::{ClassCheck, Digest, PARCEL_ROWS, RecipientPublicKey, ReleaseId, Spend};

const NONCE: usize = 24;
const BOUND_TO: &[u8] = b"veil permit v2";

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
    /// The fewest rows that may leave.
    pub(crate) min_rows: u64,
    /// How many there are: as P2 counted them, or at least as P1 said. Suppressed ones included.
    pub(crate) rows: Option<u64>,
    /// How many of them are suppressed, where P2 counted.
    pub(crate) suppressed: Option<u64>,
    /// The digest of the policy that grants it.
    pub(crate) policy: Digest,
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

    /// Opens one, if it is this P2's, of this policy, and has not ended.
    pub(crate) fn open(sealed: &[u8], key: &[u8; 32], policy: Digest, now: u64) -> Result<Self, ProtocolError> {
        let foreign =
            || ProtocolError::Denied("the permit is not one of this key holder: begin the release again".to_owned());
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or_else(foreign)?;
        let payload = Payload { msg: sealed, aad: BOUND_TO };
        let text = XChaCha20Poly1305::new(key.into()).decrypt(&XNonce::from(*nonce), payload).map_err(|_| foreign())?;
        let permit: Self = serde_json::from_slice(&Zeroizing::new(text)).map_err(|_| foreign())?;
        if permit.policy != policy {
            return Err(ProtocolError::Denied(
                "the policy has changed since this release began: begin it again".to_owned(),
            ));
        }
        match now < permit.expires {
            true => Ok(permit),
            false => Err(ProtocolError::Denied(format!(
                "the permit of release {} has ended: begin the release again",
                permit.release
            ))),
        }
    }
    /// Refuses to seal anything before P2 knows what it has to.
    pub(crate) fn is_complete(&self) -> Result<(), ProtocolError> {
        match (&self.k, &self.classes) {
            (Some((k, _)), None) => Err(ProtocolError::Denied(format!(
                "the policy wants classes of {k} rows, and nobody has counted them: have them counted first"
            ))),
            _ => self.is_told(PARCEL_ROWS as u64),
        }
    }

    /// Refuses to begin where the policy wants more rows than a parcel shows.
    fn is_told(&self, most_rows: u64) -> Result<(), ProtocolError> {
        match self.rows.is_none() && self.min_rows > most_rows {
            false => Ok(()),
            true => Err(ProtocolError::Denied(format!(
                "the policy wants {} rows in a release, and the engine has not said that there are so many: apply with their number",
                self.min_rows
            ))),
        }
    }

    /// Refuses fewer rows than the policy wants.
    pub(crate) fn enough(&self, rows: u64) -> Result<(), ProtocolError> {
        match rows < self.min_rows {
            false => Ok(()),
            true => Err(ProtocolError::Denied(format!(
                "{rows} rows are fewer than the {} that the policy wants in a release: ask for more",
                self.min_rows
            ))),
        }
    }

    /// Refuses a parcel that is less full than the number of rows makes it.
    /// Parcels have up to so many rows.
    pub(crate) fn full_enough(&self, number: u32, rows: u32, most_rows: u32) -> Result<(), ProtocolError> {
        self.is_told(most_rows.into())?;
        let before = u64::from(number.saturating_sub(1)).saturating_mul(most_rows.into());
        let all = self.rows.unwrap_or(self.min_rows);
        match all.saturating_sub(before).min(most_rows.into()) {
            least if u64::from(rows) >= least => Ok(()),
            _ if self.rows.is_none() => self.enough(rows.into()),
            least => Err(ProtocolError::Denied(format!(
                "parcel {number} has {rows} rows, and has at least {least} if there are {all}, as was said: begin the release again"
            ))),
        }
    }
}

/// What P2 knows a parcel again by, when it signs the manifest: its rows, and a keyed digest of release, number, rows and what was sealed.
pub(crate) struct Receipt([u8; 32]);

const RECEIPT_ROWS: usize = 4;

impl Receipt {
    /// With the secret of what was sealed.
    pub(crate) fn new(rows: u32, secret: &[u8; 32]) -> Self {
        let mut receipt = *secret;
        receipt.iter_mut().zip(rows.to_le_bytes()).for_each(|(byte, rows)| *byte = rows);
        Self(receipt)
    }

    /// As P1 shows it.
    pub(crate) fn shown(digest: &Digest) -> Self {
        Self(digest.0)
    }

    /// The rows that it says.
    pub(crate) fn rows(&self) -> u32 {
        self.0.first_chunk::<RECEIPT_ROWS>().map_or(0, |rows| u32::from_le_bytes(*rows))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(min_rows: u64, rows: Option<u64>) -> Permit {
        Permit {
            release: ReleaseId([1; 16]),
            recipient: "alice".to_owned(),
            key: "x25519:QxDul9iMwfCIpVdsd6sM9cOseX89lROcbIS1QpxZZio".parse().unwrap(),
            query: "SELECT 1".to_owned(),
            header: Digest([0; 32]),
            columns: Vec::new(),
            names: Vec::new(),
            k: None,
            classes: None,
            spends: Vec::new(),
            min_rows,
            rows,
            suppressed: None,
            policy: Digest([7; 32]),
            expires: 100,
        }
    }

    fn sentence<T: std::fmt::Debug>(refused: Result<T, ProtocolError>) -> String {
        refused.unwrap_err().to_string()
    }

    #[test]
    fn a_permit_is_good_under_its_policy_until_it_ends() {
        let (key, mut rng) = ([3; 32], rand::rng());
        let sealed = permit(0, None).seal(&key, &mut rng).unwrap();
        assert_eq!(Permit::open(&sealed, &key, Digest([7; 32]), 99).unwrap(), permit(0, None));
        let changed = sentence(Permit::open(&sealed, &key, Digest([8; 32]), 99));
        assert_eq!(changed, "the policy has changed since this release began: begin it again");
        let ended = sentence(Permit::open(&sealed, &key, Digest([7; 32]), 100));
        assert!(ended.ends_with("has ended: begin the release again"), "{ended}");
        assert!(sentence(Permit::open(&sealed, &[4; 32], Digest([7; 32]), 0)).contains("not one of this key holder"));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(Permit::open(&changed, &key, Digest([7; 32]), 99).is_err(), "byte {at}");
        }
    }

    #[test]
    fn few_rows_fit_the_first_parcel() {
        let of = permit(20, None);
        of.is_complete().unwrap();
        of.full_enough(1, 20, 8192).unwrap();
        of.full_enough(2, 1, 8192).unwrap();
        let few = sentence(of.full_enough(1, 5, 8192));
        assert_eq!(few, "5 rows are fewer than the 20 that the policy wants in a release: ask for more");
        permit(8192, None).is_complete().unwrap();
        permit(0, None).full_enough(1, 0, 8192).unwrap();
    }

    /// Parcels of 8192, 8192 and 3616 rows make 20,000.
    #[test]
    fn many_rows_are_said_before_and_come_then() {
        assert!(
            sentence(permit(20_000, None).is_complete()).contains("the engine has not said that there are so many")
        );
        let of = permit(20_000, Some(20_000));
        of.is_complete().unwrap();
        for (number, rows, is_enough) in
            [(1, 8192, true), (1, 8191, false), (2, 8192, true), (2, 3616, false), (3, 3616, true), (3, 3615, false)]
        {
            assert_eq!(of.full_enough(number, rows, 8192).is_ok(), is_enough, "{rows} in parcel {number}");
        }
        of.full_enough(4, 1, 8192).unwrap();
        of.full_enough(u32::MAX, 1, 8192).unwrap();
        // Sums take more room, and then P2 has to be told earlier.
        assert!(sentence(permit(400, None).full_enough(1, 128, 128)).contains("has not said that there are so many"));
        let of_sums = permit(400, Some(400));
        for (number, rows, is_enough) in [(1, 128, true), (1, 127, false), (4, 16, true), (4, 15, false)] {
            assert_eq!(of_sums.full_enough(number, rows, 128).is_ok(), is_enough, "{rows} in parcel {number}");
        }
        let few = sentence(of.full_enough(3, 1, 8192));
        assert!(few.starts_with("parcel 3 has 1 rows, and has at least 3616 if there are 20000"), "{few}");
    }

    #[test]
    fn receipts_say_their_rows() {
        let receipt = Receipt::new(8192, &[9; 32]);
        assert_eq!((receipt.rows(), Receipt::shown(&Digest(*receipt.as_bytes())).rows()), (8192, 8192));
        assert_eq!(receipt.as_bytes()[4..], [9; 28]);
    }
}
