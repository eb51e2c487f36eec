//! What a protocol is, to everything that carries it.

use rand::CryptoRng;
use veil_slots::KeyHolder;

use crate::context::Context;
use crate::message::{Message, Receive, Sendable};
use crate::open::Purpose;
use crate::{Leakage, Opens, ProtocolError};

/// One round: P1 sends rows, P2 answers each. The halves of P1, which differ in what they remember between asking and
/// finishing, are functions beside the implementation.
pub trait Protocol: 'static {
    /// Its name on the wire.
    const NAME: &'static str;
    /// Its version on the wire: any change of message or meaning is a new one.
    const VERSION: u16;
    /// One line for people.
    const SUMMARY: &'static str;
    /// What it tells whom.
    const LEAKAGE: Leakage;
    /// What numbers of data it shows P1: P2 asks its desk about them before it decrypts anything.
    const OPENS: Opens;

    /// A row as P1 sends it.
    type Query: Sendable;
    /// The same row as P2 receives it.
    type Received: Receive + Workload;
    /// The row that P2 sends back.
    type Answer: Sendable;
    /// The same row as P1 receives it.
    type Reply: Receive;

    /// P2's half.
    fn answer(
        query: Self::Received,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
    ) -> Result<Self::Answer, ProtocolError>;

    /// The same, for protocols that need P2's desk, or have to know which batch this is.
    fn answer_at(
        query: Self::Received,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
        _: &Context<'_>,
    ) -> Result<Self::Answer, ProtocolError> {
        Self::answer(query, holder, rng)
    }
}

/// How much work a query asks for, known before any of it is done.
pub trait Workload: Message {
    /// Ciphertexts in the answer. A row that asks for something impossible is an error.
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError>;

    /// Why P1 is to see numbers, and how many at most: for P2's audit and budget. What is declared as [`Protocol::OPENS`] says it here for every
    /// query.
    fn opens(&self) -> Option<(Purpose, u32)> {
        None
    }
}
