//! Refusals, as gRPC codes and back.

use tonic::{Code, Status};

/// The longest text that travels: it goes into HTTP headers.
const LONGEST: usize = 600;

/// Why a statement is not answered: one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct AnswerError {
    /// Whose fault it is.
    pub kind: Kind,
    /// What happened, where, and what to do.
    pub sentence: String,
}

/// Whose fault it is, and so which gRPC code it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The statement is wrong.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// The caller may not.
    Denied,
    /// The caller is not known.
    Unauthenticated,
    /// Not now, or not any more.
    Precondition,
    /// It would take too much.
    Exhausted,
    /// Nobody can do that here.
    Unsupported,
    /// Try again later.
    Unavailable,
    /// It took too long.
    Deadline,
    /// The caller, or the server, gave up.
    Cancelled,
    /// A bug or a broken machine.
    Internal,
}

const CODES: [(Kind, Code); 11] = [
    (Kind::Invalid, Code::InvalidArgument),
    (Kind::NotFound, Code::NotFound),
    (Kind::Denied, Code::PermissionDenied),
    (Kind::Unauthenticated, Code::Unauthenticated),
    (Kind::Precondition, Code::FailedPrecondition),
    (Kind::Exhausted, Code::ResourceExhausted),
    (Kind::Unsupported, Code::Unimplemented),
    (Kind::Unavailable, Code::Unavailable),
    (Kind::Deadline, Code::DeadlineExceeded),
    (Kind::Cancelled, Code::Cancelled),
    (Kind::Internal, Code::Internal),
];

impl AnswerError {
    /// An error of this kind.
    pub fn new(kind: Kind, sentence: impl Into<String>) -> Self {
        Self { kind, sentence: sentence.into() }
    }

    /// What another server said, for whoever forwards it.
    pub fn of_status(status: &Status) -> Self {
        let kind = CODES.iter().find(|(_, code)| *code == status.code()).map_or(Kind::Internal, |(kind, _)| *kind);
        Self::new(kind, status.message())
    }
}

impl From<AnswerError> for Status {
    fn from(error: AnswerError) -> Self {
        let code = CODES.iter().find(|(kind, _)| *kind == error.kind).map_or(Code::Internal, |(_, code)| *code);
        Status::new(code, error.sentence.chars().take(LONGEST).collect::<String>())
    }
}

/// A shorthand of this crate.
pub(crate) fn refuse<T>(kind: Kind, sentence: impl Into<String>) -> Result<T, AnswerError> {
    Err(AnswerError::new(kind, sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_back() {
        for (kind, code) in CODES {
            let error = AnswerError::new(kind, "one sentence");
            let status = Status::from(error.clone());
            assert_eq!((status.code(), status.message()), (code, "one sentence"));
            assert_eq!(AnswerError::of_status(&status), error);
        }
        assert_eq!(AnswerError::of_status(&Status::unknown("what?")).kind, Kind::Internal);
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let status = Status::from(AnswerError::new(Kind::Invalid, "ü".repeat(10_000)));
        assert_eq!(status.message(), "ü".repeat(LONGEST));
    }
}
