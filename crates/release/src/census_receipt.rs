//! What P2 gives P1 to show with every batch of a question, and P2 alone can read: a census that the rules allow.
//!
//! It is good in one session, under the policy that it was given under, for a day. It names the files that the question's numbers are counted for.

use rand::CryptoRng;
use veil_cells::FileId;
use veil_protocols::ProtocolError;
use veil_protocols::anchors::MAX_FILES;
use veil_protocols::census::Question;

use crate::{Digest, own_seal};

const BOUND_TO: &[u8] = b"veil census v1";

const FILE: usize = 9;

/// A census that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CensusReceipt {
    pub(crate) question: Question,
    pub(crate) session: [u8; 16],
    /// The numbers that questions about each file may open a day.
    pub(crate) numbers: u64,
    /// The digest of the policy.
    pub(crate) policy: Digest,
    pub(crate) expires: u64,
    /// The files that its rows are of.
    pub(crate) files: Vec<FileId>,
}

impl CensusReceipt {
    /// For the tables of both: their files, and the stricter of their limits.
    pub(crate) fn and(mut self, before: Self) -> Result<Self, ProtocolError> {
        if before.question != self.question {
            return Err(ProtocolError::Denied(format!(
                "the tables of one question are counted together, and these are of {} and {}",
                before.question.name(),
                self.question.name()
            )));
        }
        self.files.extend(before.files);
        self.files.sort_unstable();
        self.files.dedup();
        if self.files.len() > MAX_FILES {
            return Err(ProtocolError::TooLarge {
                what: "a number of files",
                found: self.files.len(),
                limit: MAX_FILES,
            });
        }
        (self.numbers, self.expires) = (self.numbers.min(before.numbers), self.expires.min(before.expires));
        Ok(self)
    }

    /// Sealed with a key of P2's.
    pub(crate) fn seal(&self, key: &[u8; 32], rng: &mut dyn CryptoRng) -> Result<Vec<u8>, ProtocolError> {
        let mut text = Vec::with_capacity(128 + self.files.len() * FILE);
        text.push(Question::ALL.iter().position(|question| *question == self.question).unwrap_or_default() as u8);
        text.extend_from_slice(&self.session);
        text.extend_from_slice(&self.policy.0);
        [self.numbers, self.expires].iter().for_each(|number| text.extend_from_slice(&number.to_le_bytes()));
        self.files.iter().for_each(|file| text.extend_from_slice(&file.0));
        own_seal::seal(&text, BOUND_TO, key, rng)
    }

    /// Opens one, if it is this P2's, of this session and policy, and has not ended.
    pub(crate) fn open(
        sealed: &[u8],
        key: &[u8; 32],
        session: [u8; 16],
        policy: Digest,
        now: u64,
    ) -> Result<Self, ProtocolError> {
        let denied = |text: &str| Err(ProtocolError::Denied(text.to_owned()));
        if sealed.is_empty() {
            return denied("P2 opens numbers about rows only after a census of them, and none was taken");
        }
        let Some(receipt) = own_seal::open(sealed, BOUND_TO, key).and_then(|text| Self::read(&text)) else {
            return denied("the receipt of the census is not one of this key holder: ask the question again");
        };
        if receipt.session != session {
            return denied("the receipt of the census is of another run: ask the question again");
        }
        if receipt.policy != policy {
            return denied("the policy has changed since the rows of this question were counted: ask it again");
        }
        match now < receipt.expires {
            true => Ok(receipt),
            false => denied("the rows of this question were counted too long ago: ask it again"),
        }
    }

    fn read(text: &[u8]) -> Option<Self> {
        let (question, rest) = text.split_first()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (policy, rest) = rest.split_first_chunk()?;
        let (numbers, rest) = rest.split_first_chunk()?;
        let (expires, rest) = rest.split_first_chunk()?;
        let (files, rest) = rest.as_chunks::<FILE>();
        let [numbers, expires] = [numbers, expires].map(|number| u64::from_le_bytes(*number));
        let question = Question::ALL.get(usize::from(*question)).copied().filter(|_| rest.is_empty())?;
        let (session, policy, files) = (*session, Digest(*policy), files.iter().map(|file| FileId(*file)).collect());
        Some(Self { question, session, numbers, policy, expires, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_one_question_spend_together() {
        let of = |numbers, expires, files: &[u8]| CensusReceipt {
            numbers,
            expires,
            files: files.iter().map(|file| FileId([*file; 9])).collect(),
            ..receipt(0)
        };
        let both = of(10, 7, &[2, 3]).and(of(8, 9, &[1, 2])).unwrap();
        assert_eq!(both, of(8, 7, &[1, 2, 3]));
        let other = CensusReceipt { question: Question::Utility, ..of(8, 9, &[1]) };
        let refused = of(8, 9, &[1]).and(other).unwrap_err();
        assert!(matches!(&refused, ProtocolError::Denied(text) if text.contains("of utility and risk")), "{refused}");
        let many = |first: u16| {
            let files = (first..).take(MAX_FILES).map(|file| {
                let [high, low] = file.to_be_bytes();
                FileId([high, low, 0, 0, 0, 0, 0, 0, 0])
            });
            CensusReceipt { files: files.collect(), ..receipt(0) }
        };
        assert_eq!(many(0).and(many(0)).unwrap().files.len(), MAX_FILES);
        assert!(matches!(many(0).and(many(1)), Err(ProtocolError::TooLarge { .. })));
    }

    fn receipt(files: usize) -> CensusReceipt {
        CensusReceipt {
            question: Question::Risk,
            session: [4; 16],
            numbers: 77,
            policy: Digest([7; 32]),
            expires: 100,
            files: (0..files).map(|file| FileId([file as u8; 9])).collect(),
        }
    }

    #[test]
    fn a_receipt_is_good_in_its_session_and_under_its_policy_until_it_ends() {
        let (key, mut rng) = ([3; 32], rand::rng());
        let (session, policy) = ([4; 16], Digest([7; 32]));
        for files in [0, 1, 2, MAX_FILES] {
            let sealed = receipt(files).seal(&key, &mut rng).unwrap();
            assert!(sealed.len() <= veil_protocols::census::MAX_RECEIPT, "it has to fit a header");
            assert_eq!(CensusReceipt::open(&sealed, &key, session, policy, 99).unwrap(), receipt(files));
        }
        let sealed = receipt(2).seal(&key, &mut rng).unwrap();
        let sentence = |sealed: &[u8], key: &[u8; 32], session, policy, now| {
            let refused = CensusReceipt::open(sealed, key, session, policy, now).unwrap_err();
            assert!(matches!(refused, ProtocolError::Denied(_)));
            refused.to_string()
        };
        for (found, says) in [
            (sentence(&[], &key, session, policy, 0), "only after a census of them, and none was taken"),
            (sentence(&sealed, &[4; 32], session, policy, 0), "is not one of this key holder"),
            (sentence(&sealed, &key, [5; 16], policy, 0), "is of another run: ask the question again"),
            (sentence(&sealed, &key, session, Digest([8; 32]), 0), "the policy has changed since"),
            (sentence(&sealed, &key, session, policy, 100), "were counted too long ago: ask it again"),
        ] {
            assert!(found.contains(says), "{found}");
        }
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(CensusReceipt::open(&changed, &key, session, policy, 0).is_err(), "byte {at}");
            assert!(CensusReceipt::open(&sealed[..at], &key, session, policy, 0).is_err(), "{at} bytes");
        }
    }
}
