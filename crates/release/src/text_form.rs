//! Public bytes as text: a prefix that says what they are, then base64url without padding.

/// Gives a newtype of bytes its text form, in `Display`, `FromStr`, `Debug` and serde.
macro_rules! text_form {
    ($name:ident, $bytes:literal, $prefix:literal, $what:literal, $read:expr) => {
        impl $name {
            /// The bytes.
            pub fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                use base64::Engine;
                write!(f, concat!($prefix, "{}"), base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(self.0))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::ReleaseError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                use base64::Engine;
                let wrong = || crate::ReleaseError::Malformed {
                    what: $what,
                    why: concat!("it is not `", $prefix, "` and base64url of ", $bytes, " bytes").to_owned(),
                };
                let encoded = text.strip_prefix($prefix).ok_or_else(wrong)?;
                let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(encoded).map_err(|_| wrong())?;
                let read: fn(&[u8; $bytes]) -> Result<Self, crate::ReleaseError> = $read;
                read(&<[u8; $bytes]>::try_from(bytes).map_err(|_| wrong())?)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Gives a newtype of bytes its text form: hexadecimal digits, in `Display`, `FromStr`, `Debug` and serde.
macro_rules! hex_form {
    ($name:ident, $bytes:literal, $what:literal) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::ReleaseError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                crate::text_form::unhex(text).map(Self).ok_or_else(|| crate::ReleaseError::Malformed {
                    what: $what,
                    why: format!("it is not {} hexadecimal digits", 2 * $bytes),
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use {hex_form, text_form};

/// The bytes of lower-case hexadecimal digits: one text for one value.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = [0; N];
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}
