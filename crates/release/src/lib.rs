//! What leaves, to whom, and who vouches for it.
//!
//! A release hands rows to a recipient. The owner says in a signed policy what may leave, the key holder keeps a ledger of
//! what has left, both servers seal their parts to the recipient, and both sign a manifest.
//!
//! This crate knows no secret key: `veil-keys` signs and opens, this one verifies and seals.
//!
//! ```text
//!  signature       Ed25519 keys that verify, and signatures, as text
//!  owner_public    the owner's line for recipients: key set and verifying key
//!  recipient       X25519 public keys, and sealing to them with HPKE
//!  release_id      the name of a release
//!  application     what the engine asks the key holder to release
//!  policy          the owner's rules, as TOML
//!  signed_policy   the same with the owner's signature
//!  ask             the owner's rules for questions about rows
//!  grant           an application held against the rules
//!  ledger          what was released and spent, durably
//!  manifest        what a release was, for the recipient to keep
//!  attestation     the servers' signatures under a manifest
//!  parcel          what the recipient gets, in its two parts
//!  hidden_rows     what the engine sees of rows that may be suppressed, each under a key
//!  census_receipt  a question that was granted
//!  anchor_hash     which rows a release is of, in a number that adds up over its parcels
//!  permit, desk    how the key holder decides, spends, adds noise, seals and signs; own_seal is what it seals to itself with
//! ```

mod anchor_hash;
mod application;
mod ask;
mod attestation;
mod census_receipt;
mod desk;
mod error;
mod grant;
mod hidden_rows;
mod journal;
mod ledger;
mod manifest;
mod own_seal;
mod owner_public;
mod parcel;
mod permit;
mod policy;
mod recipient;
mod release_id;
mod seal_cipher;
mod signature;
mod signed_policy;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text_form;

pub use application::{Application, AskedColumn, Content, MAX_APPLICATION_BYTES, MAX_COLUMNS};
pub use ask::{AskLimits, AskRefusal, AskRule, AskRules, CAUTIOUS_NUMBERS, CAUTIOUS_ROWS};
pub use attestation::{
    Attestation, Attester, CERTIFICATE_CONTEXT, MANIFEST_CONTEXT, Party, SignedManifest, certified_bytes,
};
pub use desk::{DeskKeys, ReleaseDesk, Terms, Unsigned};
pub use error::ReleaseError;
pub use grant::{Grant, MinK, Refusal, Spend};
pub use hidden_rows::{HiddenRows, ROW_KEY_LANES, RowKey, hides_rows};
pub use ledger::{Ask, LEDGER_FILE, Ledger, LedgerError};
pub use manifest::{
    ClassCheck, Digest, MANIFEST_VERSION, Manifest, ManifestColumn, NoiseBy, ParcelDigests, moment_now,
};
pub use owner_public::OwnerPublic;
pub use parcel::{
    HEADER_NUMBER, Header, HeaderColumn, MaskedValues, MaskedWords, PARCEL_ROWS, SEAL_INFO, SeenValues, WORD,
    associated, word_of,
};
pub use policy::{Policy, Recipient, Rule, last_day};
pub use recipient::{MAX_NAME, RecipientPublicKey, SEALED_OVERHEAD, SEALED_VERSION, is_recipient_name, seal_to};
pub use release_id::ReleaseId;
pub use seal_cipher::SealCipher;
pub use signature::{Signature, VerifyingKey, signed_bytes};
pub use signed_policy::{POLICY_CONTEXT, SignedPolicy};
