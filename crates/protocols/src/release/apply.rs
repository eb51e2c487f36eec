//! P1 applies for a release.
//!
//! ```text
//!  P1:           release, recipient, query, columns with their types and sealed notes  -->  policy
//!                                      <--  a permit that only P2 can read; a header for the recipient; what P1 has to do        P2
//! ```

use rand::CryptoRng;
use veil_slots::KeyHolder;

use super::{Admission, required, short_enough};
use crate::context::Context;
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Apply;

message! {
    /// What is asked.
    Query {
        /// JSON.
        application: Vec<u8>,
    }
}

message! {
    /// What is granted.
    Answer {
        /// For P2 itself.
        permit: Vec<u8>,
        /// For the recipient.
        header: Vec<u8>,
        /// For P1: JSON.
        terms: Vec<u8>,
    }
}

impl Workload for Query {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        short_enough(&self.application).map(|()| 1)
    }
}

impl Protocol for Apply {
    const NAME: &'static str = "apply";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "a release is held against the owner's policy";
    const LEAKAGE: Leakage = Leakage {
        p1: "whether the policy grants it, and which rule refuses",
        p2: "the query, the recipient, the types and labels of its columns, and the bounds of those that await noise",
    };
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
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
        context: &Context<'_>,
    ) -> Result<Answer, ProtocolError> {
        let Admission { permit, header, terms } = required(context)?.apply(&query.application, holder, rng)?;
        Ok(Answer { permit, header, terms })
    }
}

/// Applies.
pub async fn apply(session: &Session, application: Vec<u8>) -> Result<Admission, ProtocolError> {
    let ask = |application: Vec<u8>, _: &mut Asker<'_>| Ok(((), Query { application }));
    let finish = |(), answer: Answer| {
        let Answer { permit, header, terms } = answer;
        Ok(Admission { permit, header, terms })
    };
    let mut granted = session.round::<Apply, _, _, _>(vec![application], 1, ask, finish).await?;
    granted.pop().ok_or(ProtocolError::Cancelled)
}
