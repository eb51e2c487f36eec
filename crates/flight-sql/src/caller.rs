//! Who comes: the name of a token, that of a certificate, or whoever is on this machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::{Request, Status};

use crate::certificate::common_name;
use crate::error::refuse;
use crate::role::is_name;
use crate::{AnswerError, Kind, Role, Tokens};

/// Who comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The token's name; or the common name of the certificate; or `local`.
    pub name: String,
    /// What the caller may do.
    pub role: Role,
}

impl Caller {
    /// Whoever is on this machine, where nobody has to say who he is: he may ask, and release to everybody, and changes nothing.
    pub fn local() -> Self {
        Self { name: "local".to_owned(), role: Role::Steward }
    }
}

/// Finds out who comes, before any method is called.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) tokens: Option<Arc<Tokens>>,
    /// Roles of those who come with a certificate and no token, by common name; all others are recipients.
    pub(crate) certificate_roles: Arc<BTreeMap<String, Role>>,
}

impl Door {
    /// Leaves the caller in the request's extensions.
    pub(crate) fn open(&self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let caller = self.caller(&request)?;
        request.extensions_mut().insert(caller);
        Ok(request)
    }

    fn caller(&self, request: &Request<()>) -> Result<Caller, AnswerError> {
        let Some(tokens) = &self.tokens else {
            let certificate = request.peer_certs().and_then(|chain| chain.first().map(|leaf| leaf.to_vec()));
            return certificate.map_or_else(|| Ok(Caller::local()), |der| self.with_certificate(&der));
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

    fn with_certificate(&self, der: &[u8]) -> Result<Caller, AnswerError> {
        let Some(name) = common_name(der).filter(|name| is_name(name)) else {
            return refuse(
                Kind::Unauthenticated,
                "the certificate does not say who comes: its subject needs one common name (CN) of letters, digits, `.`, `-` and \
                 `_`, at most 64; ask for another one",
            );
        };
        let known = self.certificate_roles.get(&name).cloned();
        let role = known.unwrap_or_else(|| Role::Recipient(name.clone()));
        Ok(Caller { name, role })
    }
}

/// Who sent a request that came through the door.
pub(crate) fn caller_of<T>(request: &Request<T>) -> Result<Caller, AnswerError> {
    let absent = || AnswerError::new(Kind::Internal, "the request came in without a caller");
    request.extensions().get::<Caller>().cloned().ok_or_else(absent)
}
