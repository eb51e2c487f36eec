//! P2 signs what a release was.
//!
//! ```text
//!  P1:                 permit, manifest with P2's receipts of all parcels  -->  compares
//!                                                                          <--  P2's signature under it                     P2
//! ```

use rand::CryptoRng;
use veil_slots::KeyHolder;

use super::{required, short_enough};
use crate::context::Context;
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Attest;

message! {
    /// What is to be signed.
    Query {
        /// P1's permit.
        permit: Vec<u8>,
        /// JSON.
        manifest: Vec<u8>,
    }
}

message! {
    /// The signature.
    Answer {
        /// JSON.
        attestation: Vec<u8>,
    }
}

impl Workload for Query {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        short_enough(&self.permit)?;
        short_enough(&self.manifest).map(|()| 1)
    }
}

impl Protocol for Attest {
    const NAME: &'static str = "attest";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "P2 signs the manifest of a release";
    const LEAKAGE: Leakage = Leakage { p1: "nothing", p2: "the manifest" };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query;
    type Received = Query;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(query: Query, holder: &dyn KeyHolder, rng: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        Self::answer_at(query, holder, rng, &Context::default())
    }

    fn answer_at(
        query: Query,
        _: &dyn KeyHolder,
        _: &mut dyn CryptoRng,
        context: &Context<'_>,
    ) -> Result<Answer, ProtocolError> {
        Ok(Answer { attestation: required(context)?.attest(&query.permit, &query.manifest)? })
    }
}

/// Has a manifest signed.
pub async fn attest(session: &Session, permit: Vec<u8>, manifest: Vec<u8>) -> Result<Vec<u8>, ProtocolError> {
    let ask = |(permit, manifest): (Vec<u8>, Vec<u8>), _: &mut Asker<'_>| Ok(((), Query { permit, manifest }));
    let finish = |(), answer: Answer| Ok(answer.attestation);
    let mut signed = session.round::<Attest, _, _, _>(vec![(permit, manifest)], 1, ask, finish).await?;
    signed.pop().ok_or(ProtocolError::Cancelled)
}
