//! Public names: of a key set, of a column, of a chunk's randomness.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::CellError;

/// Writes an identifier of eight bytes as sixteen hexadecimal digits, and reads it back.
macro_rules! public_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub [u8; 8]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = CellError;

            fn from_str(text: &str) -> Result<Self, CellError> {
                u64::from_str_radix(text, 16)
                    .ok()
                    .filter(|_| text.len() == 16 && !text.starts_with('+'))
                    .map(|id| Self(id.to_be_bytes()))
                    .ok_or_else(|| CellError::Malformed(format!(
                        concat!($what, " `{}` is not 16 hexadecimal digits"), text
                    )))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

public_id! {
    /// Names a key set. Drawn at random with the keys, it says nothing about them.
    KeyId, "key id"
}

public_id! {
    /// Names a column of a table under a key set: the same in every file of that table.
    ColumnId, "column id"
}

impl ColumnId {
    /// A short form, for seeds: of two columns it is the same with a chance of 1 in 65,536.
    pub fn number(&self) -> u16 {
        let [high, low, ..] = self.0;
        u16::from_be_bytes([high, low])
    }

    /// The id of a table's column. Anyone who knows the names can compute it.
    pub fn of(key_id: KeyId, table: &str, column: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"veil column id v1");
        hash.update(key_id.0);
        for name in [table, column] {
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
        }
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
        Self([a, b, c, d, e, f, g, h])
    }
}

/// The public seed from which a chunk's masks are expanded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seed(pub [u8; 16]);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seed({:032x})", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_what_they_print() {
        let id = KeyId([0, 1, 2, 3, 0xfc, 0xfd, 0xfe, 0xff]);
        assert_eq!(id.to_string(), "00010203fcfdfeff");
        assert_eq!(id.to_string().parse::<KeyId>().unwrap(), id);
    }

    /// The number was computed by another program.
    #[test]
    fn column_ids_keep_their_names_apart() {
        let key = KeyId([7; 8]);
        assert_eq!(ColumnId::of(key, "patients", "born").to_string(), "5b7fa506ccc2578f");
        assert_ne!(ColumnId::of(key, "ab", "c"), ColumnId::of(key, "a", "bc"));
        assert_ne!(ColumnId::of(key, "a", "b"), ColumnId::of(KeyId([8; 8]), "a", "b"));
    }

    #[test]
    fn ids_refuse_other_text() {
        for text in ["", "12", "zz010203fcfdfeff", "+0010203fcfdfeff", "00010203fcfdfeff0"] {
            assert!(text.parse::<KeyId>().is_err(), "{text}");
        }
    }
}
