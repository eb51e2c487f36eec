//! Errors as gRPC codes, and back.
//!
//! | error                 | code                | whose fault                 |
//! |-----------------------|---------------------|-----------------------------|
//! | Malformed, Slots      | INVALID_ARGUMENT    | the sender's                |
//! | Misuse                | INVALID_ARGUMENT    | the sender's                |
//! | Mismatch              | FAILED_PRECONDITION | two versions or key sets    |
//! | Unsupported           | UNIMPLEMENTED       | two versions                |
//! | TooLarge              | RESOURCE_EXHAUSTED  | the sender's                |
//! | Denied                | PERMISSION_DENIED   | policy                      |
//! | Exhausted             | RESOURCE_EXHAUSTED  | policy                      |
//! | Deadline              | DEADLINE_EXCEEDED   | nobody's                    |
//! | Cancelled             | CANCELLED           | nobody's                    |
//! | Unreachable           | UNAVAILABLE         | nobody's: try again         |
//! | Internal              | INTERNAL            | P2's                        |
//!
//! What P2 itself says carries the whole error in the status' details. A status without them comes from the transport: there
//! INTERNAL or UNKNOWN is a broken connection, and worth another try.

use std::error::Error;

use serde::{Deserialize, Serialize};
use tonic::{Code, Status};
use veil_protocols::ProtocolError;

/// The longest text that travels: it goes into HTTP headers.
const LONGEST: usize = 600;

/// An error on the wire.
#[derive(Serialize, Deserialize)]
#[serde(tag = "error", rename_all = "snake_case")]
enum Details {
    Malformed { why: String },
    Mismatch { what: String, expected: String, found: String, advice: String },
    Unsupported { why: String },
    TooLarge { what: String, found: usize, limit: usize },
    Misuse { why: String },
    Unreachable { why: String },
    Deadline { why: String },
    Denied { why: String },
    Exhausted { why: String },
    Cancelled,
    Internal { why: String },
}

/// The status that tells the other side about an error.
pub fn status_of(error: &ProtocolError) -> Status {
    let text = |text: &str| text.chars().take(LONGEST).collect::<String>();
    let (code, details) = match error {
        ProtocolError::Malformed(why) => (Code::InvalidArgument, Details::Malformed { why: text(why) }),
        ProtocolError::Slots(error) => (Code::InvalidArgument, Details::Malformed { why: error.to_string() }),
        ProtocolError::Misuse(why) => (Code::InvalidArgument, Details::Misuse { why: text(why) }),
        ProtocolError::Mismatch { what, expected, found, advice } => {
            let (what, advice) = (what.to_string(), advice.to_string());
            (Code::FailedPrecondition, Details::Mismatch { what, expected: text(expected), found: text(found), advice })
        }
        ProtocolError::Unsupported(why) => (Code::Unimplemented, Details::Unsupported { why: text(why) }),
        ProtocolError::TooLarge { what, found, limit } => {
            (Code::ResourceExhausted, Details::TooLarge { what: what.to_string(), found: *found, limit: *limit })
        }
        ProtocolError::Denied(why) => (Code::PermissionDenied, Details::Denied { why: text(why) }),
        ProtocolError::Exhausted(why) => (Code::ResourceExhausted, Details::Exhausted { why: text(why) }),
        ProtocolError::Deadline(why) => (Code::DeadlineExceeded, Details::Deadline { why: text(why) }),
        ProtocolError::Cancelled => (Code::Cancelled, Details::Cancelled),
        ProtocolError::Unreachable(why) => (Code::Unavailable, Details::Unreachable { why: text(why) }),
        ProtocolError::Internal(why) => (Code::Internal, Details::Internal { why: text(why) }),
        // The enum may grow; what is not in the table is this side's bug.
        other => (Code::Internal, Details::Internal { why: text(&other.to_string()) }),
    };
    let details = serde_json::to_vec(&details).unwrap_or_default();
    Status::with_details(code, text(&error.to_string()), details.into())
}

/// The error that a status tells about.
pub fn error_of(status: &Status) -> ProtocolError {
    match serde_json::from_slice(status.details()) {
        Ok(details) => error_of_details(details),
        Err(_) => error_of_transport(status),
    }
}

fn error_of_details(details: Details) -> ProtocolError {
    match details {
        Details::Malformed { why } => ProtocolError::Malformed(why),
        Details::Mismatch { what, expected, found, advice } => ProtocolError::Mismatch {
            what: known(&what).unwrap_or("what both sides speak"),
            expected,
            found,
            advice: known(&advice).unwrap_or("run the same version of veil on both sides"),
        },
        Details::Unsupported { why } => ProtocolError::Unsupported(why),
        Details::TooLarge { what, found, limit } => {
            ProtocolError::TooLarge { what: known(&what).unwrap_or("a message"), found, limit }
        }
        Details::Misuse { why } => ProtocolError::Misuse(why),
        Details::Unreachable { why } => ProtocolError::Unreachable(why),
        Details::Deadline { why } => ProtocolError::Deadline(why),
        Details::Denied { why } => ProtocolError::Denied(why),
        Details::Exhausted { why } => ProtocolError::Exhausted(why),
        Details::Cancelled => ProtocolError::Cancelled,
        Details::Internal { why } => ProtocolError::Internal(why),
    }
}

fn error_of_transport(status: &Status) -> ProtocolError {
    let why = reason(status);
    match status.code() {
        // tonic's own limit on a message.
        Code::OutOfRange => ProtocolError::Malformed(format!("it is larger than this side takes ({why})")),
        Code::InvalidArgument => ProtocolError::Malformed(why),
        Code::Unimplemented | Code::NotFound => ProtocolError::Unsupported(format!("P2 does not speak veil ({why})")),
        Code::PermissionDenied | Code::Unauthenticated => ProtocolError::Denied(why),
        _ if is_refused_certificate(&why) => ProtocolError::Denied(why),
        _ => ProtocolError::Unreachable(why),
    }
}

/// What is at the bottom of an error: tonic hides it behind "transport error".
pub fn reason(error: &(dyn Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    match error.downcast_ref::<Status>() {
        Some(status) if status.source().is_none() => status.message().to_owned(),
        _ => deepest.to_string(),
    }
}

/// Whether TLS failed over a certificate: trying again does not help.
pub fn is_refused_certificate(why: &str) -> bool {
    ["received fatal alert", "invalid peer certificate"].iter().any(|sign| why.contains(sign))
}

/// Texts of errors that are `&'static str`: they come back as themselves.
fn known(text: &str) -> Option<&'static str> {
    const KNOWN: &[&str] = &[
        "a batch",
        "a group of candidates",
        "a message",
        "a number of opened slots",
        "a number of opened slots in one batch",
        "a number of rows",
        "a number of samples",
        "an answer",
        "the encryption scheme",
        "the key set",
        "the protocol version",
        "the size limit",
        "the wire version",
        "restart P2 with the limits that it had",
        "run the same version of veil on both sides",
        "start P2 with the keys that the data was encrypted with",
    ];
    KNOWN.iter().find(|known| **known == text).copied()
}

#[cfg(test)]
mod tests {
    use veil_slots::SlotError;

    use super::*;

    fn table() -> Vec<(ProtocolError, Code)> {
        let text = || "one sentence".to_owned();
        let what = "the key set";
        let (expected, found) = ("aa".to_owned(), "bb".to_owned());
        let advice = "start P2 with the keys that the data was encrypted with";
        vec![
            (ProtocolError::Malformed(text()), Code::InvalidArgument),
            (ProtocolError::Misuse(text()), Code::InvalidArgument),
            (ProtocolError::Mismatch { what, expected, found, advice }, Code::FailedPrecondition),
            (ProtocolError::Unsupported(text()), Code::Unimplemented),
            (ProtocolError::TooLarge { what: "a batch", found: 9, limit: 8 }, Code::ResourceExhausted),
            (ProtocolError::Denied(text()), Code::PermissionDenied),
            (ProtocolError::Exhausted(text()), Code::ResourceExhausted),
            (ProtocolError::Deadline(text()), Code::DeadlineExceeded),
            (ProtocolError::Cancelled, Code::Cancelled),
            (ProtocolError::Unreachable(text()), Code::Unavailable),
            (ProtocolError::Internal(text()), Code::Internal),
        ]
    }

    #[test]
    fn every_error_has_its_code_and_comes_back() {
        for (error, code) in table() {
            let status = status_of(&error);
            assert_eq!(status.code(), code, "{error:?}");
            assert_eq!(status.message(), error.to_string());
            assert_eq!(format!("{:?}", error_of(&status)), format!("{error:?}"));
        }
        let status = status_of(&ProtocolError::Slots(SlotError::Malformed("too short")));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(matches!(error_of(&status), ProtocolError::Malformed(why) if why.contains("too short")));
    }

    #[test]
    fn what_the_transport_says_is_worth_another_try_unless_it_is_a_refusal() {
        for code in [Code::Unavailable, Code::Unknown, Code::Internal, Code::Cancelled, Code::ResourceExhausted] {
            assert!(error_of(&Status::new(code, "h2 protocol error")).is_transient(), "{code:?}");
        }
        for code in [Code::Unimplemented, Code::Unauthenticated, Code::OutOfRange, Code::InvalidArgument] {
            assert!(!error_of(&Status::new(code, "no")).is_transient(), "{code:?}");
        }
        let refused = Status::unavailable("received fatal alert: CertificateRequired");
        assert!(matches!(error_of(&refused), ProtocolError::Denied(_)));
    }

    #[test]
    fn long_texts_are_cut() {
        let status = status_of(&ProtocolError::Malformed("x".repeat(100_000)));
        assert!(status.message().len() <= LONGEST && status.details().len() < LONGEST + 100);
    }
}
