//! How a recipient's command reaches the server that releases: the same words for all of them.

use std::path::PathBuf;

use clap::Args;
use veil_keys::RecipientKey;
use veil_recipient::{Fetch, FetchTls, Token};
use veil_release::OwnerPublic;

use crate::owner_public;

/// The server, and who asks it.
#[derive(Args)]
pub(crate) struct ServerArguments {
    /// Where the engine's server listens
    #[arg(long, value_name = "URL")]
    pub(crate) from: String,
    /// The recipient's key, from `veil recipient keygen`
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The owner's public key: what the owner's servers have not signed is refused
    #[arg(long, value_name = "FILE")]
    owner: Option<PathBuf>,
    /// The authority that the server's certificate comes from, PEM
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The certificate to show, PEM, if the server wants to see one
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A file with the token that the server knows you by, which only you can read
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// What the arguments name.
pub(crate) struct Asker {
    pub(crate) key: RecipientKey,
    pub(crate) owner: Option<OwnerPublic>,
    tls: Option<FetchTls>,
    token: Option<Token>,
}

impl ServerArguments {
    /// Reads all files, before anything is asked.
    pub(crate) fn load(&self) -> Result<Asker, Box<dyn std::error::Error>> {
        let identity = self.tls_cert.clone().zip(self.tls_key.clone());
        Ok(Asker {
            key: RecipientKey::load(&self.key)?,
            owner: self.owner.as_deref().map(owner_public::read).transpose()?,
            tls: self.tls_ca.clone().map(|ca| FetchTls { ca, identity }),
            token: self.token_file.as_deref().map(Token::load).transpose()?,
        })
    }

    /// Connects.
    pub(crate) async fn connect(&self, asker: &Asker) -> Result<Fetch, veil_recipient::RecipientError> {
        Fetch::connect(&self.from, asker.tls.as_ref(), asker.token.as_ref()).await
    }
}
