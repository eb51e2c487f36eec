//! Frames as Flight messages: one frame is exactly one message, since its header goes with all of its rows. (The encoder of
//! arrow-flight splits batches by size.)

use std::collections::HashMap;

use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow::ipc::{MessageHeader, reader, root_as_message};
use arrow_flight::{FlightData, FlightDescriptor, SchemaAsIpc};
use veil_cells::caught;
use veil_protocols::{Frame, Header, ProtocolError};

/// The first element of a descriptor's path.
pub(crate) const ROOT: &str = "veil";

/// What a message may have beside the bytes that [`Limits`](veil_protocols::Limits) count: Arrow's metadata and padding.
pub(crate) const SLACK: usize = 1 << 20;

/// The descriptor of a protocol's stream.
pub(crate) fn descriptor(protocol: &str, version: u16) -> FlightDescriptor {
    FlightDescriptor::new_path(vec![ROOT.to_owned(), protocol.to_owned(), version.to_string()])
}

/// The message that goes before the first batch.
pub(crate) fn schema_message(schema: &Schema) -> FlightData {
    SchemaAsIpc::new(schema, &IpcWriteOptions::default()).into()
}

/// A frame as one message.
pub(crate) fn encode(frame: &Frame) -> Result<FlightData, ProtocolError> {
    let internal = |error: arrow::error::ArrowError| ProtocolError::Internal(error.to_string());
    let mut dictionaries = DictionaryTracker::new(false);
    let (_, batch) = IpcDataGenerator::default()
        .encode(&frame.batch, &mut dictionaries, &IpcWriteOptions::default(), &mut IpcWriteContext::default())
        .map_err(internal)?;
    Ok(FlightData::from(batch).with_app_metadata(frame.header.clone()))
}

/// Reads a message of a stream whose batches have this schema: a frame, or nothing if it is the schema itself or, as some
/// clients send, a descriptor alone. Only this schema is ever decoded, so a sender cannot reach other types' readers.
pub(crate) fn decode(message: FlightData, schema: &SchemaRef) -> Result<Option<Frame>, ProtocolError> {
    if message.data_header.is_empty() {
        return match message.data_body.is_empty() && message.app_metadata.is_empty() {
            true => Ok(None),
            false => Err(malformed("a batch has no Arrow header")),
        };
    }
    // The panic's text stays here: it may quote what was sent.
    let read = caught(|| {
        let ipc = root_as_message(&message.data_header).map_err(|_| malformed("its Arrow header is damaged"))?;
        match ipc.header_type() {
            MessageHeader::Schema => {
                let found = ipc.header_as_schema().map(fb_to_schema).ok_or_else(|| malformed("it has no schema"))?;
                if columns(&found) != columns(schema) {
                    return Err(malformed(&format!("its columns are not {}", columns(schema).join(", "))));
                }
                Ok(None)
            }
            MessageHeader::RecordBatch => {
                let batch = ipc.header_as_record_batch().ok_or_else(|| malformed("it has no rows"))?;
                // Ciphertexts do not compress, and a small message must not become a large one.
                if batch.compression().is_some() {
                    return Err(malformed("its rows are compressed"));
                }
                let body = Buffer::from(message.data_body.clone());
                let batch =
                    reader::read_record_batch(&body, batch, schema.clone(), &HashMap::new(), None, &ipc.version())
                        .map_err(|_| malformed("its rows are not what its columns are"))?;
                Ok(Some(Frame { header: message.app_metadata.to_vec(), batch }))
            }
            _ => Err(malformed("it is neither a schema nor a batch")),
        }
    });
    read.unwrap_or_else(|_| Err(malformed("its Arrow encoding is damaged")))
}

/// The protocol and version in a frame's header, without looking at anything else.
pub(crate) fn named(header: &[u8]) -> Option<(&str, u16)> {
    let (length, rest) = header.get(5..)?.split_first()?;
    let (name, rest) = rest.split_at_checked((*length).into())?;
    Some((str::from_utf8(name).ok()?, u16::from_le_bytes(*rest.first_chunk()?)))
}

/// Whether an answer's header is that of the question: same protocol, session, round, batch and key.
pub(crate) fn echoes(question: &[u8], answer: &[u8]) -> bool {
    Header::place(question).is_some_and(|place| Header::place(answer) == Some(place))
}

fn columns(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect()
}

fn malformed(why: &str) -> ProtocolError {
    ProtocolError::Malformed(why.to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, LargeBinaryArray, RecordBatch, UInt32Array};
    use arrow::datatypes::{DataType, Field};
    use arrow::ipc::CompressionType;
    use veil_cells::KeyId;

    use super::*;

    fn header() -> Header {
        let (session, key_id) = ([7; 16], KeyId([9; 8]));
        let receipt = Arc::default();
        Header { protocol: "open".to_owned(), version: 258, session, round: 3, batch: 4, key_id, receipt }
    }

    fn frame(value_bytes: usize) -> Frame {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(LargeBinaryArray::from_iter_values([vec![1; value_bytes], vec![2; 5]])),
            Arc::new(UInt32Array::from(vec![3, 4])),
        ];
        let fields = [("values", DataType::LargeBinary), ("count", DataType::UInt32)];
        let fields: Vec<Field> = fields.into_iter().map(|(name, kind)| Field::new(name, kind, false)).collect();
        Frame::new(&header(), RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap())
    }

    #[test]
    fn a_frame_is_one_message_of_any_size() {
        for size in [0, 100, 9 << 20] {
            let frame = frame(size);
            let back = decode(encode(&frame).unwrap(), frame.batch.schema_ref()).unwrap().unwrap();
            assert_eq!((&back.header, &back.batch), (&frame.header, &frame.batch));
            assert_eq!(back.open().unwrap().0, header());
        }
    }

    #[test]
    fn compressed_rows_are_refused() {
        let frame = frame(1 << 20);
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
        let (_, batch) = IpcDataGenerator::default()
            .encode(&frame.batch, &mut DictionaryTracker::new(false), &options, &mut IpcWriteContext::default())
            .unwrap();
        let message = FlightData::from(batch).with_app_metadata(frame.header.clone());
        assert!(message.data_body.len() < 1 << 15, "it is compressed");
        let error = decode(message, frame.batch.schema_ref()).unwrap_err().to_string();
        assert_eq!(error, "malformed message: its rows are compressed");
    }

    #[test]
    fn schemas_and_bare_descriptors_are_no_frames() {
        let frame = frame(10);
        let schema = frame.batch.schema_ref();
        assert!(decode(schema_message(schema), schema).unwrap().is_none());
        assert!(decode(FlightData::new().with_descriptor(descriptor("open", 1)), schema).unwrap().is_none());
        let other = Schema::new(vec![Field::new("values", DataType::Utf8, false)]);
        let error = decode(schema_message(&other), schema).unwrap_err().to_string();
        assert_eq!(error, "malformed message: its columns are not values LargeBinary, count UInt32");
    }

    #[test]
    fn a_header_tells_its_protocol_and_place() {
        let frame = frame(10);
        assert_eq!(named(&frame.header), Some(("open", 258)));
        assert_eq!(named(&frame.header[..7]), None);
        let answer = Frame::new(&header(), frame.batch.slice(0, 1));
        assert!(echoes(&frame.header, &answer.header) && frame.header != answer.header);
        let asked = Frame::new(&Header { receipt: [1; 99].into(), ..header() }, frame.batch.clone());
        assert!(echoes(&asked.header, &answer.header), "receipts are not repeated");
        let other = Frame::new(&Header { batch: 5, ..header() }, frame.batch.clone());
        assert!(!echoes(&frame.header, &other.header));
        assert!(!echoes(&frame.header, &[]) && !echoes(&[], &[]));
    }

    /// Every bit of the metadata and of the offsets: an error or another batch, and never a panic that gets away.
    #[test]
    fn damage_is_an_error() {
        let frame = frame(10);
        let sound = encode(&frame).unwrap();
        let damaged = |bytes: &[u8], at: usize, bit: usize| {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1 << bit;
            bytes
        };
        for bit in 0..8 {
            for at in 0..sound.data_header.len() {
                let message = FlightData { data_header: damaged(&sound.data_header, at, bit).into(), ..sound.clone() };
                let _ = decode(message, frame.batch.schema_ref());
            }
            for at in 0..sound.data_body.len() {
                let message = FlightData { data_body: damaged(&sound.data_body, at, bit).into(), ..sound.clone() };
                if let Ok(Some(read)) = decode(message, frame.batch.schema_ref()) {
                    assert!(read.batch == frame.batch || read.open().is_err(), "byte {at}");
                }
            }
        }
        for length in 0..sound.data_body.len() {
            let message = FlightData { data_body: sound.data_body.slice(..length), ..sound.clone() };
            if let Ok(Some(read)) = decode(message, frame.batch.schema_ref()) {
                assert!(read.batch == frame.batch || read.open().is_err(), "{length} bytes");
            }
        }
    }
}
