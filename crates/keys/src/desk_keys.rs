//! Keys of both servers where releases are decided and signed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use veil_cells::ColumnId;
use veil_release::{Attestation, Attester, DeskKeys, ReleaseError, VerifyingKey};
use zeroize::Zeroizing;

use crate::{P1Keys, P2Keys};

impl DeskKeys for P2Keys {
    fn secret(&self, purpose: &str, data: &[u8]) -> Zeroizing<[u8; 32]> {
        self.prf(purpose, data)
    }

    fn open_note(&self, column: ColumnId, sealed: &str) -> Result<Zeroizing<Vec<u8>>, ReleaseError> {
        let wrong = |why: String| ReleaseError::Malformed { what: "a column's sealed note", why };
        let sealed = STANDARD.decode(sealed).map_err(|error| wrong(error.to_string()))?;
        self.seal().open(self.key_id(), column, &sealed).map_err(|error| wrong(error.to_string()))
    }

    fn attest(&self, context: &str, message: &[u8]) -> Attestation {
        self.signer().attest(context, message)
    }
}

impl Attester for P1Keys {
    fn attest(&self, context: &str, message: &[u8]) -> Attestation {
        self.signer().attest(context, message)
    }

    fn owner(&self) -> VerifyingKey {
        *self.owner_key()
    }
}
