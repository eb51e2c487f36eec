//! Who asks: the name of a token, a certificate, or whoever is on this machine.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tonic::{Request, Status};

use crate::error::refuse;
use crate::{AnswerError, Kind, Tokens};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The token's name; or `certificate` and a digest of the certificate; or `local`.
    pub name: String,
    /// Whether the token file says `admin`.
    pub admin: bool,
}

impl Caller {
    /// Whoever is on this machine, where nobody has to say who he is.
    pub fn local() -> Self {
        Self { name: "local".to_owned(), admin: false }
    }

    fn with_certificate(der: &[u8]) -> Self {
        let digest: String = Sha256::digest(der).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self { name: format!("certificate {digest}"), admin: false }
    }
}

/// Finds out who asks, before any method is called.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) tokens: Option<Arc<Tokens>>,
}

impl Door {
    /// Leaves the caller in the request's extensions.
    pub(crate) fn open(&self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let caller = self.caller(&request)?;
        request.extensions_mut().insert(caller);
        Ok(request)
    }

    fn caller(&self, request: &Request<()>) -> Result<Caller, AnswerError> {
        let certificate = request.peer_certs().and_then(|chain| chain.first().map(|leaf| leaf.to_vec()));
        let Some(tokens) = &self.tokens else {
            return Ok(certificate.map_or_else(Caller::local, |der| Caller::with_certificate(&der)));
        };
        let Some(header) = request.metadata().get("authorization") else {
            return refuse(
                Kind::Unauthenticated,
                "this server asks for a token: send the header `authorization: Bearer <token>`",
            );
        };
        let token = header.to_str().ok().and_then(|text| text.split_once(' '));
        match token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
            None => refuse(Kind::Unauthenticated, "the header authorization is not `Bearer <token>`"),
            Some((_, token)) => tokens.find(token.trim()).ok_or_else(|| {
                AnswerError::new(Kind::Unauthenticated, "the token is not one that this server knows; ask its operator")
            }),
        }
    }
}

/// Who sent a request that came through the door.
pub(crate) fn caller_of<T>(request: &Request<T>) -> Result<Caller, AnswerError> {
    let absent = || AnswerError::new(Kind::Internal, "the request came in without a caller");
    request.extensions().get::<Caller>().cloned().ok_or_else(absent)
}
