//! What a stream asks, message by message.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::FlightData;
use arrow_flight::flight_descriptor::DescriptorType;
use futures::{Stream, StreamExt, stream};
use tonic::{Code, Status, Streaming};
use veil_protocols::catalog::{self, Entry};
use veil_protocols::{Limits, ProtocolError};

use crate::wire::ROOT;

/// How long a stream may be silent.
const PATIENCE: Duration = Duration::from_secs(300);

/// A message of a stream: a batch to answer, or what goes before.
pub(crate) struct Question {
    /// The protocol of the stream.
    pub(crate) entry: &'static Entry,
    /// The message.
    pub(crate) message: FlightData,
}

/// The messages of a stream with their protocol, which the first one names.
pub(crate) fn questions(
    inbound: Streaming<FlightData>,
    limits: Limits,
) -> impl Stream<Item = Result<Question, ProtocolError>> + Send {
    let state = (inbound, None, Arc::new(limits));
    stream::try_unfold(state, |(mut inbound, entry, limits)| async move {
        // A client that says nothing gives its place to others; what it says later, it says over a new stream.
        let silent = |_| ProtocolError::Unreachable("P2 has closed a round that asked nothing for too long".to_owned());
        let next = tokio::time::timeout(PATIENCE, inbound.next()).await.map_err(silent)?;
        let Some(mut message) = next.transpose().map_err(|status| refusal(&status, &limits))? else {
            return Ok(None);
        };
        let entry = match entry {
            Some(entry) => entry,
            None => protocol_of(&mut message)?,
        };
        Ok(Some((Question { entry, message }, (inbound, Some(entry), limits))))
    })
}

/// The protocol that a stream's first message names.
fn protocol_of(message: &mut FlightData) -> Result<&'static Entry, ProtocolError> {
    let descriptor = message.flight_descriptor.take().ok_or_else(|| {
        ProtocolError::Malformed("its first message has no descriptor; it should name the protocol".to_owned())
    })?;
    let path: Vec<&str> = descriptor.path.iter().map(String::as_str).collect();
    let [ROOT, name, version] = path[..] else {
        return Err(ProtocolError::Malformed(format!("its descriptor is not the path {ROOT}, protocol, version")));
    };
    if descriptor.r#type != DescriptorType::Path as i32 {
        return Err(ProtocolError::Malformed("its descriptor is a command, not a path".to_owned()));
    }
    let shown = |text: &str| text.escape_default().take(40).collect::<String>();
    let entry = catalog::find(name).ok_or_else(|| {
        ProtocolError::Unsupported(format!(
            "P2 knows no protocol `{}`; run the same version of veil on both sides",
            shown(name)
        ))
    })?;
    if version.parse() != Ok(entry.version) {
        return Err(ProtocolError::Mismatch {
            what: "the protocol version",
            expected: format!("{} {}", entry.name, entry.version),
            found: shown(version),
            advice: "run the same version of veil on both sides",
        });
    }
    Ok(entry)
}

/// Why a message could not be received.
fn refusal(status: &Status, limits: &Limits) -> ProtocolError {
    match status.code() {
        // tonic counts before it allocates, and tells the number in words only.
        Code::OutOfRange => {
            let found = status.message().split(|c: char| !c.is_ascii_digit()).find_map(|number| number.parse().ok());
            ProtocolError::TooLarge { what: "a message", found: found.unwrap_or(usize::MAX), limit: limits.bytes }
        }
        Code::Internal if status.message().contains("decode") => {
            ProtocolError::Malformed("it is not a Flight message".to_owned())
        }
        _ => ProtocolError::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use arrow_flight::FlightDescriptor;

    use super::*;
    use crate::wire::descriptor;

    fn named(descriptor: Option<FlightDescriptor>) -> Result<&'static str, ProtocolError> {
        protocol_of(&mut FlightData { flight_descriptor: descriptor, ..FlightData::default() }).map(|entry| entry.name)
    }

    #[test]
    fn the_first_message_names_the_protocol() {
        for entry in catalog::CATALOG {
            assert_eq!(named(Some(descriptor(entry.name, entry.version))).unwrap(), entry.name);
        }
        assert!(matches!(named(None), Err(ProtocolError::Malformed(_))));
        assert!(matches!(named(Some(FlightDescriptor::new_cmd("veil"))), Err(ProtocolError::Malformed(_))));
        assert!(matches!(named(Some(descriptor("guess", 1))), Err(ProtocolError::Unsupported(_))));
        assert!(matches!(named(Some(descriptor("lift", 0))), Err(ProtocolError::Mismatch { .. })));
    }
}
