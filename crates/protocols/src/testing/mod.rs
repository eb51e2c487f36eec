//! What tests of P2's half need beside P2's half.

mod any_question;
#[cfg(test)]
mod parties;

pub use any_question::AnyQuestion;
#[cfg(test)]
pub(crate) use parties::Parties;
