//! The key that opens what was released to a recipient.
//!
//! ```text
//!  recipient.key   veil-recipient-key-v1 alice x25519-secret:..    mode 0600
//!  recipient.pub   veil-recipient-v1 alice x25519:..               for the owner's policy
//! ```

use std::fmt;
use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, Serializable, single_shot_open};
use rand::CryptoRng;
use veil_release::{RecipientPublicKey, ReleaseError, SEALED_VERSION, SealCipher, is_recipient_name};
use zeroize::Zeroizing;

use crate::KeyError;
use crate::key_file::{Prepared, refuse_exposed};
use crate::secret::Secret;

/// A recipient's secret file in its folder.
pub const RECIPIENT_FILE: &str = "recipient.key";
/// A recipient's public file in its folder.
pub const RECIPIENT_PUBLIC_FILE: &str = "recipient.pub";

const BEGINNING: &str = "veil-recipient-key-v1";
const PUBLIC_BEGINNING: &str = "veil-recipient-v1";
const SECRET_PREFIX: &str = "x25519-secret:";
const MAX_BYTES: u64 = 4096;

type Private = <X25519HkdfSha256 as Kem>::PrivateKey;

/// A recipient's name and X25519 key. The secret never prints and is wiped when dropped.
#[derive(Clone)]
pub struct RecipientKey {
    name: String,
    secret: Secret,
    public: RecipientPublicKey,
}

impl RecipientKey {
    /// Draws a key.
    pub fn generate(name: &str, rng: &mut impl CryptoRng) -> Result<Self, KeyError> {
        Self::new(name, Secret::generate(rng))
    }

    fn new(name: &str, secret: Secret) -> Result<Self, KeyError> {
        if !is_recipient_name(name) {
            return Err(KeyError::RecipientName(name.to_owned()));
        }
        let public = X25519HkdfSha256::sk_to_pk(&private(&secret)?);
        let public = RecipientPublicKey::from_bytes(&public.to_bytes().into())?;
        Ok(Self { name: name.to_owned(), secret, public })
    }

    /// Reads the secret file.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let io = |source| KeyError::Io { path: path.to_owned(), source };
        let wrong = || KeyError::NotARecipient { path: path.to_owned() };
        let metadata = fs::metadata(path).map_err(io)?;
        if metadata.len() > MAX_BYTES {
            return Err(wrong());
        }
        let bytes = Zeroizing::new(fs::read(path).map_err(io)?);
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong())?;
        let [BEGINNING, name, secret] = *text.split_whitespace().collect::<Vec<_>>() else { return Err(wrong()) };
        refuse_exposed(path, &metadata)?;
        let encoded = secret.strip_prefix(SECRET_PREFIX).ok_or_else(wrong)?;
        let decoded = Zeroizing::new(URL_SAFE_NO_PAD.decode(encoded).map_err(|_| wrong())?);
        let secret = <&[u8; 32]>::try_from(decoded.as_slice()).map_err(|_| wrong())?;
        Self::new(name, Secret::from_bytes(secret)).map_err(|_| wrong())
    }

    /// Writes both files into a folder. Without `replace` existing ones are left alone.
    pub fn save(&self, folder: &Path, replace: bool) -> Result<(), KeyError> {
        let encoded = Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.secret));
        let secret = Zeroizing::new(format!("{BEGINNING} {} {SECRET_PREFIX}{}\n", self.name, *encoded));
        let public = format!("{PUBLIC_BEGINNING} {} {}\n", self.name, self.public);
        let secret = Prepared::new(secret.as_bytes(), &folder.join(RECIPIENT_FILE), replace)?;
        let public = Prepared::new(public.as_bytes(), &folder.join(RECIPIENT_PUBLIC_FILE), replace)?.for_everyone()?;
        secret.put()?;
        public.put()
    }

    /// The recipient's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What others seal to.
    pub fn public(&self) -> RecipientPublicKey {
        self.public
    }

    /// Opens what was sealed to this recipient, with the same `info` and `associated` bytes.
    pub fn open(&self, info: &[u8], associated: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let (version, rest) = sealed.split_first().ok_or(ReleaseError::Unsealable)?;
        if *version != SEALED_VERSION {
            let what = "a sealed part";
            return Err(ReleaseError::FromTheFuture { what, found: *version, supported: SEALED_VERSION }.into());
        }
        let (encapsulated, ciphertext) = rest.split_first_chunk::<32>().ok_or(ReleaseError::Unsealable)?;
        let unsealable = |_| KeyError::from(ReleaseError::Unsealable);
        let encapsulated = <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(encapsulated).map_err(unsealable)?;
        single_shot_open::<SealCipher, HkdfSha256, X25519HkdfSha256>(
            &OpModeR::Base,
            &private(&self.secret)?,
            &encapsulated,
            info,
            ciphertext,
            associated,
        )
        .map(Zeroizing::new)
        .map_err(unsealable)
    }
}

impl fmt::Debug for RecipientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecipientKey({}, secret)", self.name)
    }
}

fn private(secret: &Secret) -> Result<Private, KeyError> {
    Private::from_bytes(&**secret).map_err(|_| ReleaseError::Unsealable.into())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use veil_release::seal_to;

    use super::*;

    fn key() -> RecipientKey {
        RecipientKey::generate("alice", &mut StdRng::seed_from_u64(3)).unwrap()
    }

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// RFC 9180, appendix A.2.1, sequence number 0.
    #[test]
    fn opening_agrees_with_the_standard() {
        let secret = unhex("8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb");
        let key = RecipientKey::new("r", Secret::from_bytes(&secret.try_into().unwrap())).unwrap();
        let public = unhex("4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a");
        assert_eq!(key.public().as_bytes().as_slice(), public);
        let sealed = unhex(
            "011afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a\
             1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28",
        );
        let opened = key.open(b"Ode on a Grecian Urn", b"Count-0", &sealed).unwrap();
        assert_eq!(opened.as_slice(), b"Beauty is truth, truth beauty");
    }

    #[test]
    fn what_is_sealed_opens_for_its_recipient_and_place_alone() {
        let mut rng = StdRng::seed_from_u64(4);
        let sealed = seal_to(&key().public(), b"info", b"parcel 1", b"message", &mut rng).unwrap();
        assert_eq!(sealed.len(), 7 + veil_release::SEALED_OVERHEAD);
        assert_eq!(key().open(b"info", b"parcel 1", &sealed).unwrap().as_slice(), b"message");
        assert!(key().open(b"info", b"parcel 2", &sealed).is_err());
        assert!(key().open(b"other", b"parcel 1", &sealed).is_err());
        assert!(RecipientKey::generate("bob", &mut rng).unwrap().open(b"info", b"parcel 1", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(key().open(b"info", b"parcel 1", &damaged).is_err(), "byte {at}");
            assert!(key().open(b"info", b"parcel 1", &sealed[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn files_come_back_and_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RECIPIENT_FILE);
        key().save(folder.path(), false).unwrap();
        assert!(matches!(key().save(folder.path(), false), Err(KeyError::Exists(_))));
        let read = RecipientKey::load(&path).unwrap();
        assert_eq!((read.name(), read.public(), *read.secret), ("alice", key().public(), *key().secret));
        let public = fs::read_to_string(folder.path().join(RECIPIENT_PUBLIC_FILE)).unwrap();
        assert_eq!(public, format!("veil-recipient-v1 alice {}\n", key().public()));
        assert!(matches!(
            RecipientKey::load(&folder.path().join(RECIPIENT_PUBLIC_FILE)),
            Err(KeyError::NotARecipient { .. })
        ));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            assert!(matches!(RecipientKey::load(&path), Err(KeyError::Exposed { mode: 0o640, .. })));
        }
    }

    #[test]
    fn names_are_checked_and_secrets_do_not_print() {
        assert!(RecipientKey::generate("al ice", &mut StdRng::seed_from_u64(3)).is_err());
        assert_eq!(format!("{:?}", key()), "RecipientKey(alice, secret)");
    }
}
