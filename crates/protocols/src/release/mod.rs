//! Rows to a recipient: neither party sees one.
//!
//! ```text
//!  P1                                                                            P2, at its desk
//!  apply           who is to get which columns of what  -->  policy              <--  a permit; a header, sealed to the recipient
//!  census          which rows take part                  -->  counts              <--  the permit with them, and a receipt
//!  redraw          categories and truth values that await P2's noise get it
//!  check_classes   labels of classes, shuffled          -->  counts              <--  a permit that says so
//!  seal_parcel     values behind masks                  -->  ledger, noise       <--  values behind masks, sealed to the recipient
//!                  P1 seals the masks' seed to the recipient
//!  attest          a manifest                           -->  compares            <--  its signature
//! ```
//! What P2 decides stands behind the trait [`Desk`]; a P2 without one refuses. It keeps nothing between these rounds but its ledger: a permit
//! is sealed with a key of its own, and P1 shows it each time.

pub mod apply;
pub mod attest;
pub mod check_classes;
mod desk;
pub mod masks;
pub mod seal_parcel;

pub use crate::context::Asked;
pub use desk::{Admission, ClassSizes, Desk, OpenedColumn, OpenedParcel, SealedParcel};

use crate::ProtocolError;
use crate::context::Context;

/// The longest application, permit or manifest.
pub(crate) const MAX_DOCUMENT: usize = 8 << 20;

/// The desk, if there is one.
fn required<'a>(context: &Context<'a>) -> Result<&'a dyn Desk, ProtocolError> {
    context.desk.ok_or_else(|| {
        ProtocolError::Denied(
            "P2 releases nothing: start it with --policy and --state, which the owner's `veil policy sign` is for"
                .to_owned(),
        )
    })
}

/// Refuses documents that are too long.
pub(crate) fn short_enough(document: &[u8]) -> Result<(), ProtocolError> {
    match document.len() {
        found if found > MAX_DOCUMENT => Err(ProtocolError::TooLarge { what: "a message", found, limit: MAX_DOCUMENT }),
        _ => Ok(()),
    }
}
