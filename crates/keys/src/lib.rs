//! Secret keys and all that needs one.
//!
//! This is the only crate that can name a secret key. The data owner's tools and the key-holding party P2 depend
//! on it; the crates that run inside the untrusted engine P1 do not.
//!
//! ```text
//!  key_set         who holds what: owner, P1, P2
//!  key_file        the three key files
//!  cell_key        the GLWE key and its ring product
//!  encrypt         columns of messages into cells
//!  decrypt         columns of cells into messages
//!  slot_key        the BFV key of slots
//!  key_holder      P2's keys at work in a round
//!  desk_keys       P2's keys where releases are decided
//!  tag             equality tags
//!  seal            notes about a column that only key holders may read
//!  signing_key     the keys that sign policies and manifests
//!  recipient_key   the key that opens what was released to a recipient
//! ```

mod cell_key;
mod decrypt;
mod desk_keys;
mod encrypt;
mod error;
mod key_file;
mod key_holder;
mod key_set;
mod recipient_key;
mod seal;
mod secret;
mod signing_key;
mod slot_key;
mod tag;

pub use cell_key::CellKey;
pub use decrypt::{DecryptedColumn, decrypt_column, quotient};
pub use encrypt::{Place, encrypt_column, encrypt_constants, encrypt_rows, new_file};
pub use error::KeyError;
pub use key_file::{KeyFile, OWNER_FILE, OWNER_PUBLIC_FILE, P1_FILE, P2_FILE};
pub use key_set::{OwnerKeys, P1Keys, P2Keys};
pub use rand::CryptoRng;
pub use recipient_key::{RECIPIENT_FILE, RECIPIENT_PUBLIC_FILE, RecipientKey};
pub use seal::SealKey;
pub use signing_key::{Signer, SigningKey};
pub use slot_key::SlotKey;
pub use tag::{ColumnTagger, TagKey};

/// Randomness of the operating system.
pub fn os_rng() -> impl CryptoRng {
    rand::rand_core::UnwrapErr(rand::rngs::OsRng)
}
