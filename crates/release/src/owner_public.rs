//! The owner's line for recipients and auditors: whose key set it is, and the key that the owner's signatures verify with.
//!
//! ```text
//!  veil-owner-v1 789eae0deb93973d ed25519:..
//! ```

use std::fmt;
use std::str::FromStr;

use veil_cells::KeyId;

use crate::{ReleaseError, VerifyingKey};

const BEGINNING: &str = "veil-owner-v1";

/// What the file `owner.pub` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerPublic {
    /// The key set.
    pub key_set: KeyId,
    /// The owner's key.
    pub key: VerifyingKey,
}

impl fmt::Display for OwnerPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEGINNING} {} {}", self.key_set, self.key)
    }
}

impl FromStr for OwnerPublic {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let wrong = |why: String| ReleaseError::Malformed { what: "the owner's public key", why };
        match *text.split_whitespace().collect::<Vec<_>>() {
            [BEGINNING, key_set, key] => Ok(Self {
                key_set: key_set.parse().map_err(|_| wrong(format!("`{key_set}` is no key set")))?,
                key: key.parse()?,
            }),
            _ => Err(wrong(format!("it is not one line `{BEGINNING} KEY-SET ed25519:..`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_reads_what_it_prints() {
        let key = ed25519_dalek::SigningKey::from_bytes(&[5; 32]).verifying_key();
        let public = OwnerPublic { key_set: KeyId([1; 8]), key: VerifyingKey::from_bytes(key.as_bytes()).unwrap() };
        let line = format!("{public}\n");
        assert_eq!(line.parse::<OwnerPublic>().unwrap(), public);
        for wrong in [line.replace("v1", "v2"), line.replace("0101", "01"), format!("{line} x"), String::new()] {
            assert!(wrong.parse::<OwnerPublic>().is_err(), "{wrong}");
        }
    }
}
