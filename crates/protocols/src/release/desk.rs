//! Where P2 decides what may leave.

use rand::CryptoRng;
use veil_slots::KeyHolder;
use zeroize::Zeroizing;

use super::masks::Modulus;
use crate::ProtocolError;
use crate::anchors::Anchors;
use crate::census::{Counted, Granted};
use crate::context::Asked;

/// P2's policy, ledger and seals. Refusals are [`ProtocolError::Denied`] or [`ProtocolError::Exhausted`], each a sentence that names the rule.
pub trait Desk: Send + Sync {
    /// Holds an application against the policy.
    fn apply(
        &self,
        application: &[u8],
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
    ) -> Result<Admission, ProtocolError>;

    /// Holds a census of rows, none of which is there twice, against the rules for questions, or against the permit of a release. A question about
    /// several tables has one census for each; the later ones come with the receipt of the one before, and what they give is good for all of them.
    fn census(
        &self,
        session: [u8; 16],
        before: &[u8],
        counted: Counted,
        rng: &mut dyn CryptoRng,
    ) -> Result<Granted, ProtocolError>;

    /// Whether numbers may be opened to P1, before anything is decrypted. What is granted is spent, durably, when this returns.
    fn opens(&self, asked: Asked<'_>) -> Result<(), ProtocolError>;

    /// Holds the sizes of classes against a permit: the same permit, with them.
    fn classes(&self, permit: &[u8], sizes: &ClassSizes, rng: &mut dyn CryptoRng) -> Result<Vec<u8>, ProtocolError>;

    /// Value lanes of every encrypted column that a permit is for, hidden NULLs included. Its rows must have been counted.
    fn lanes(&self, permit: &[u8]) -> Result<Vec<usize>, ProtocolError>;

    /// Spends what is to be spent, adds noise, and seals. The same again gives the same values.
    fn seal(&self, parcel: OpenedParcel<'_>, rng: &mut dyn CryptoRng) -> Result<SealedParcel, ProtocolError>;

    /// Compares a manifest with what was permitted and sealed, and signs it.
    fn attest(&self, permit: &[u8], manifest: &[u8]) -> Result<Vec<u8>, ProtocolError>;
}

/// An application that was granted.
#[derive(Clone, Debug)]
pub struct Admission {
    /// What P1 shows from now on. Only P2 can read it.
    pub permit: Vec<u8>,
    /// Names, types and labels of the columns, sealed to the recipient.
    pub header: Vec<u8>,
    /// What P1 has to do, as JSON.
    pub terms: Vec<u8>,
}

/// What P2 counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSizes {
    /// Rows, suppressed ones included.
    pub rows: u32,
    /// Rows that are suppressed.
    pub suppressed: u32,
    /// Classes.
    pub classes: u32,
    /// Rows of the smallest class; zero if there is none.
    pub smallest: u32,
}

/// A parcel as P2 sees it: every value behind a mask.
pub struct OpenedParcel<'a> {
    /// P1's permit.
    pub permit: &'a [u8],
    /// Its number in the release.
    pub number: u32,
    /// Rows.
    pub rows: u32,
    /// The rows of files that its rows are made of, none of which is there twice.
    pub anchors: &'a Anchors,
    /// The encrypted columns.
    pub columns: Vec<OpenedColumn>,
}

/// A column of a parcel.
pub struct OpenedColumn {
    /// What masks wrap at.
    pub modulus: Modulus,
    /// Masked messages, lane by lane.
    pub words: Zeroizing<Vec<u64>>,
}

/// What comes back to P1.
#[derive(Clone, Debug)]
pub struct SealedParcel {
    /// For the recipient.
    pub sealed: Vec<u8>,
    /// For P2 itself, when it signs the manifest.
    pub receipt: Vec<u8>,
}
