//! What P2 gives P1 to show with every parcel, and P2 alone can read: a release that was granted.
//!
//! It is good under the policy that it was granted under, and ends with that.
//!
//! P2 seals nothing before a census has told it which rows there are, and signs the manifest only if the parcels together are of these rows. What it
//! adds up is in its receipts.

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use veil_cells::{ColumnId, JointNoise};
use veil_protocols::ProtocolError;
use veil_protocols::census::Counted;
use zeroize::Zeroizing;

use crate::anchor_hash::AnchorHash;
use crate::{ClassCheck, DeskKeys, Digest, RecipientPublicKey, ReleaseId, Spend, own_seal};

const BOUND_TO: &[u8] = b"veil permit v3";

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
    /// How many of them are suppressed, where P2 counted.
    pub(crate) suppressed: Option<u64>,
    /// Which rows P2 has counted.
    pub(crate) census: Option<CountedRows>,
    /// The digest of the policy that grants it.
    pub(crate) policy: Digest,
    pub(crate) expires: u64,
}

/// The rows of a release, as they were counted before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountedRows {
    /// How many there are.
    pub(crate) rows: u64,
    /// How many of them are of no row of a file.
    pub(crate) constants: u64,
    /// Which rows of files they are.
    pub(crate) anchors: AnchorHash,
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
        let text = serde_json::to_vec(self).map_err(|error| ProtocolError::Internal(error.to_string()))?;
        own_seal::seal(&Zeroizing::new(text), BOUND_TO, key, rng)
    }

    /// Opens one, if it is this P2's, of this policy, and has not ended.
    pub(crate) fn open(sealed: &[u8], key: &[u8; 32], policy: Digest, now: u64) -> Result<Self, ProtocolError> {
        let foreign =
            || ProtocolError::Denied("the permit is not one of this key holder: begin the release again".to_owned());
        let text = own_seal::open(sealed, BOUND_TO, key).ok_or_else(foreign)?;
        let permit: Self = serde_json::from_slice(&text).map_err(|_| foreign())?;
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

    /// The rows of the release, suppressed ones included. Refuses one whose rows were not counted.
    pub(crate) fn counted(&self) -> Result<CountedRows, ProtocolError> {
        self.census.ok_or_else(|| {
            ProtocolError::Denied(
                "nobody has told which rows of which files this release is of: have them counted first".to_owned(),
            )
        })
    }

    /// Takes in a census: which rows there are, and that they are enough. A value that is a sum must be of as many people, and where all values are
    /// the number of rows does not matter.
    pub(crate) fn count(&mut self, counted: &Counted, anchors: AnchorHash) -> Result<(), ProtocolError> {
        let Counted { rows, constants, least, least_sum, .. } = *counted;
        if self.census.is_some() {
            return Err(ProtocolError::Denied(
                "the rows of this release have been counted already: begin it again to count others".to_owned(),
            ));
        }
        if let Some((k, _)) = self.k.as_ref().filter(|_| constants > 0) {
            return Err(ProtocolError::Denied(format!(
                "{constants} rows of the release are nobody, since all of their encrypted values are NULL, constants, or drawn at random, and the policy \
                 wants classes of {k} people: leave these rows out"
            )));
        }
        if let Some(people) = least_sum.filter(|people| *people < self.min_rows) {
            return Err(ProtocolError::Denied(format!(
                "a sum or average of the release is of {people} rows that count the same in it, and the policy wants {}: group less finely",
                self.min_rows
            )));
        }
        if rows > 0 && constants == 0 && least >= self.min_rows {
            self.min_rows = 0;
        }
        self.enough(rows - constants)?;
        self.census = Some(CountedRows { rows, constants, anchors });
        Ok(())
    }

    /// Rows that nobody counts as people: suppressed ones, and constants, which have the labels of suppressed ones.
    pub(crate) fn nobody(&self) -> u64 {
        self.suppressed.unwrap_or(0).max(self.census.map_or(0, |census| census.constants))
    }

    /// Refuses to seal anything before P2 knows what it has to.
    pub(crate) fn is_complete(&self) -> Result<(), ProtocolError> {
        self.counted()?;
        match (&self.k, &self.classes) {
            (Some((k, _)), None) => Err(ProtocolError::Denied(format!(
                "the policy wants classes of {k} rows, and nobody has counted them: have them counted first"
            ))),
            _ => Ok(()),
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
}

/// What P2 knows a parcel again by, when it signs the manifest:
///
/// ```text
///  rows (u32)   tag (12) = F(release, number, rows, anchors, what was sealed)   anchors (16) xor F'(release, number, tag)
/// ```
/// The tag is at once what authenticates and what the mask of the hash is drawn from, as in a synthetic IV (Rogaway and Shrimpton 2006): P1 does not
/// see which sums parcels have.
pub(crate) struct Receipt([u8; 32]);

const RECEIPT_ROWS: usize = 4;
const RECEIPT_TAG: usize = 16;

/// What a receipt is about.
pub(crate) struct SealedRows<'a> {
    pub(crate) release: ReleaseId,
    pub(crate) number: u32,
    /// The digest of what was sealed.
    pub(crate) sealed: &'a Digest,
}

impl Receipt {
    /// For rows, and the rows of files that they are made of, with P2's secrets.
    pub(crate) fn new(rows: u32, anchors: AnchorHash, of: &SealedRows<'_>, keys: &dyn DeskKeys) -> Self {
        let SealedRows { release, number, sealed } = of;
        let (number, rows) = (number.to_le_bytes(), rows.to_le_bytes());
        let data = [&release.0[..], &number, &rows, &anchors.0.to_le_bytes(), &sealed.0].concat();
        let mut receipt = *keys.secret("receipt", &data);
        receipt.iter_mut().zip(rows).for_each(|(byte, rows)| *byte = rows);
        let mut receipt = Self(receipt);
        let masked = anchors.0 ^ receipt.mask(of, keys);
        receipt.0.iter_mut().skip(RECEIPT_TAG).zip(masked.to_le_bytes()).for_each(|(byte, masked)| *byte = masked);
        receipt
    }

    /// What one that P1 shows says, if P2 gave it for this parcel.
    pub(crate) fn open(shown: &Digest, of: &SealedRows<'_>, keys: &dyn DeskKeys) -> Option<(u32, AnchorHash)> {
        let shown = Self(shown.0);
        let rows = shown.0.first_chunk::<RECEIPT_ROWS>().map(|rows| u32::from_le_bytes(*rows))?;
        let masked = shown.0.last_chunk::<16>().map(|masked| u128::from_le_bytes(*masked))?;
        let anchors = AnchorHash(masked ^ shown.mask(of, keys));
        (Self::new(rows, anchors, of, keys).0 == shown.0).then_some((rows, anchors))
    }

    fn mask(&self, of: &SealedRows<'_>, keys: &dyn DeskKeys) -> u128 {
        let tag = self.0.get(..RECEIPT_TAG).unwrap_or_default();
        let data = [&of.release.0[..], &of.number.to_le_bytes(), tag].concat();
        let secret = keys.secret("receipt mask", &data);
        secret.first_chunk::<16>().map_or(0, |mask| u128::from_le_bytes(*mask))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(min_rows: u64) -> Permit {
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
            suppressed: None,
            census: None,
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
        let sealed = permit(0).seal(&key, &mut rng).unwrap();
        assert_eq!(Permit::open(&sealed, &key, Digest([7; 32]), 99).unwrap(), permit(0));
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

    struct Keys;

    impl DeskKeys for Keys {
        fn secret(&self, purpose: &str, data: &[u8]) -> Zeroizing<[u8; 32]> {
            Zeroizing::new(Digest::of(&[purpose.as_bytes(), &[0], data].concat()).0)
        }

        fn open_note(&self, _: ColumnId, _: &str) -> Result<Zeroizing<Vec<u8>>, crate::ReleaseError> {
            Ok(Zeroizing::default())
        }

        fn attest(&self, _: &str, _: &[u8]) -> crate::Attestation {
            unreachable!("nothing is signed here")
        }
    }

    #[test]
    fn receipts_say_their_rows_to_p2_alone() {
        let sealed = Digest([5; 32]);
        let of = |number| SealedRows { release: ReleaseId([1; 16]), number, sealed: &sealed };
        let anchors = AnchorHash(1 << 100 | 7);
        let receipt = Receipt::new(8192, anchors, &of(3), &Keys);
        let shown = Digest(*receipt.as_bytes());
        assert_eq!(Receipt::open(&shown, &of(3), &Keys), Some((8192, anchors)));
        assert_eq!(Receipt::open(&shown, &of(4), &Keys), None);
        for at in 0..256 {
            let mut changed = shown;
            changed.0[at / 8] ^= 1 << (at % 8);
            assert_eq!(Receipt::open(&changed, &of(3), &Keys), None, "bit {at}");
        }
        // Sums that differ by one look like any others.
        let next = Receipt::new(8192, AnchorHash(anchors.0 + 1), &of(3), &Keys);
        let differ = receipt.as_bytes()[16..].iter().zip(&next.as_bytes()[16..]).filter(|(a, b)| a != b).count();
        assert!(differ > 8, "{differ} bytes differ");
    }

    fn counted(rows: u64, constants: u64, least: u64, least_sum: Option<u64>) -> Counted {
        let (question, columns) = (veil_protocols::census::Question::Release, Vec::new());
        let (anchors, permit) = Default::default();
        Counted { question, columns, rows, constants, anchors, least, least_sum, permit }
    }

    #[test]
    fn rows_are_enough_or_their_sums_are() {
        let count = |of: Counted| {
            let mut permit = permit(100);
            permit.count(&of, AnchorHash(7)).map(|()| permit)
        };
        let whole = count(counted(100, 0, 1, None)).unwrap();
        let counted_rows = CountedRows { rows: 100, constants: 0, anchors: AnchorHash(7) };
        assert_eq!((whole.counted().unwrap(), whole.min_rows), (counted_rows, 100));
        whole.is_complete().unwrap();
        for uncounted in [sentence(permit(0).counted()), sentence(permit(0).is_complete())] {
            assert!(uncounted.starts_with("nobody has told which rows of which files"), "{uncounted}");
        }
        let mut again = whole.clone();
        let refused = sentence(again.count(&counted(5000, 0, 1, None), AnchorHash(8)));
        assert!(refused.starts_with("the rows of this release have been counted already"), "{refused}");
        assert_eq!(again, whole);
        // Where classes are counted everybody in them is somebody.
        let mut alike = Permit { k: Some((5, Vec::new())), ..permit(0) };
        let nobody = sentence(alike.clone().count(&counted(100, 1, 1, None), AnchorHash(7)));
        assert!(nobody.starts_with("1 rows of the release are nobody"), "{nobody}");
        alike.count(&counted(100, 0, 1, None), AnchorHash(7)).unwrap();
        let unchecked = Permit { k: Some((5, Vec::new())), ..whole };
        assert!(sentence(unchecked.is_complete()).contains("wants classes of 5 rows, and nobody has counted them"));
        assert!(sentence(count(counted(99, 0, 1, None))).starts_with("99 rows are fewer than the 100 that the policy"));
        assert!(sentence(count(counted(150, 51, 1, None))).starts_with("99 rows are fewer"), "constants do not count");
        assert_eq!(count(counted(150, 50, 1, None)).unwrap().nobody(), 50);
        // Two averages, of a hundred people each.
        assert_eq!(count(counted(2, 0, 100, Some(100))).unwrap().min_rows, 0);
        // Beside a sum nobody's clear columns leave for its sake.
        assert!(sentence(count(counted(3, 1, 100, Some(100)))).starts_with("2 rows are fewer than the 100"));
        let few = sentence(count(counted(2, 0, 99, Some(99))));
        assert_eq!(
            few,
            "a sum or average of the release is of 99 rows that count the same in it, and the policy wants 100: group less finely"
        );
        // A sum beside the rows themselves: both rules hold.
        assert!(count(counted(2, 0, 1, Some(100))).is_err());
        assert!(count(counted(200, 0, 1, Some(99))).is_err());
        assert!(count(counted(200, 0, 1, Some(100))).is_ok());
        assert!(count(counted(3, 3, u64::MAX, None)).is_err(), "nothing but constants");
    }
}
