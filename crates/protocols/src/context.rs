//! What P2 knows of a batch besides its rows: where it belongs, and the desk that it may ask.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, UInt32Type};
use ring::digest;

use crate::ProtocolError;
use crate::open::Purpose;
use crate::release::Desk;

/// Says that nothing is opened.
pub(crate) const NO_DESK: &str =
    "P2 answers no questions about rows: it has no desk that holds them against the owner's rules";

/// Of one batch.
#[derive(Clone, Copy, Default)]
pub struct Context<'a> {
    /// P2's policy and ledger, if it has them.
    pub desk: Option<&'a dyn Desk>,
    /// The run of P1's that it belongs to.
    pub session: [u8; 16],
    /// The bytes of its header.
    pub header: &'a [u8],
    /// The receipt of a census, or nothing.
    pub receipt: &'a [u8],
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("session", &self.session).finish_non_exhaustive()
    }
}

/// Numbers that a batch wants opened to P1.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The run of P1's.
    pub session: [u8; 16],
    /// The receipt that P1 shows.
    pub receipt: &'a [u8],
    /// Why, and how many.
    pub opened: &'a [(Purpose, u32)],
    /// What the batch is known by: the same again is answered again, and not counted again.
    pub digest: [u8; 16],
}

impl Context<'_> {
    /// Asks the desk whether a batch may open what it is going to. What is granted is spent when this returns.
    pub(crate) fn may_open(&self, opened: &[(Purpose, u32)], batch: &RecordBatch) -> Result<(), ProtocolError> {
        if opened.is_empty() {
            return Ok(());
        }
        let desk = self.desk.ok_or_else(|| ProtocolError::Denied(NO_DESK.to_owned()))?;
        let digest = digest_of(self.header, batch);
        desk.opens(Asked { session: self.session, receipt: self.receipt, opened, digest })
    }
}

/// Half of SHA-256 over a header and all values: who finds two batches with one digest is not asked to pay for the second.
fn digest_of(header: &[u8], batch: &RecordBatch) -> [u8; 16] {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(&(header.len() as u64).to_le_bytes());
    hash.update(header);
    for column in batch.columns() {
        match column.data_type() {
            DataType::LargeBinary => {
                for value in column.as_binary::<i64>().iter().map(Option::unwrap_or_default) {
                    hash.update(&(value.len() as u64).to_le_bytes());
                    hash.update(value);
                }
            }
            DataType::UInt32 => {
                for value in column.as_primitive::<UInt32Type>().values() {
                    hash.update(&value.to_le_bytes());
                }
            }
            // No message has others.
            _ => {}
        }
    }
    let mut half = [0; 16];
    half.iter_mut().zip(hash.finish().as_ref()).for_each(|(to, from)| *to = *from);
    half
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, LargeBinaryArray, UInt32Array};

    use super::*;

    #[test]
    fn every_byte_is_in_the_digest() {
        let batch = |values: [&[u8]; 2], numbers: [u32; 2]| {
            let values: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values(values));
            let numbers: ArrayRef = Arc::new(UInt32Array::from_iter_values(numbers));
            RecordBatch::try_from_iter([("a", values), ("b", numbers)]).unwrap()
        };
        let first = digest_of(b"header", &batch([b"ab", b"c"], [1, 2]));
        assert_eq!(first, digest_of(b"header", &batch([b"ab", b"c"], [1, 2])));
        for (header, other) in [
            (b"headed", batch([b"ab", b"c"], [1, 2])),
            (b"header", batch([b"a", b"bc"], [1, 2])),
            (b"header", batch([b"ab", b"d"], [1, 2])),
            (b"header", batch([b"ab", b"c"], [1, 3])),
        ] {
            assert_ne!(first, digest_of(header, &other));
        }
    }
}
