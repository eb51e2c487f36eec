//! A desk for tests of protocols: it grants every question, without a census.

use rand::CryptoRng;
use veil_slots::KeyHolder;

use crate::ProtocolError;
use crate::census::{Counted, Granted};
use crate::release::{Admission, Asked, ClassSizes, Desk, OpenedParcel, SealedParcel};

/// Opens whatever is asked, counts nothing, and releases nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyQuestion;

fn refused<T>() -> Result<T, ProtocolError> {
    Err(ProtocolError::Denied("this desk is for tests of questions, and releases nothing".to_owned()))
}

impl Desk for AnyQuestion {
    fn apply(&self, _: &[u8], _: &dyn KeyHolder, _: &mut dyn CryptoRng) -> Result<Admission, ProtocolError> {
        refused()
    }

    fn census(&self, _: [u8; 16], _: &[u8], counted: Counted, _: &mut dyn CryptoRng) -> Result<Granted, ProtocolError> {
        Ok(Granted { receipt: b"receipt".to_vec(), permit: counted.permit })
    }

    fn opens(&self, _: Asked<'_>) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn classes(&self, _: &[u8], _: &ClassSizes, _: &mut dyn CryptoRng) -> Result<Vec<u8>, ProtocolError> {
        refused()
    }

    fn lanes(&self, _: &[u8]) -> Result<Vec<usize>, ProtocolError> {
        refused()
    }

    fn seal(&self, _: OpenedParcel<'_>, _: &mut dyn CryptoRng) -> Result<SealedParcel, ProtocolError> {
        refused()
    }

    fn attest(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        refused()
    }
}
