//! The three key files.
//!
//! ```text
//!  "VEILKEYS"  version (u8)  role (u8: 1 owner, 2 P1, 3 P2)  key id (8)
//!  sections:   name (u8)  length (u32, little-endian)  bytes
//!                1 cell key (512)   2 seal key (32)   3 tag key (32)   16 slot key (8192)   17 public key (221200)
//!                32 signing key (32)   33 P1's, 34 P2's: the owner's copies   35 certificate (64)   36 the owner's key (32)
//!  SHA-256 of everything before
//! ```
//! These are the lengths of keys for vectors of 8192 numbers. Keys for vectors of another length, which tests work with, have others, and are refused.
//!
//! A file is written whole or not at all, readable by its owner alone; one that others can read is refused.
//! Beside them stands `owner.pub`, a line of text for everyone.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use veil_cells::KeyId;
use veil_release::{Party, VerifyingKey};
use veil_slots::{DEGREE, PublicKey, SEEDED_BYTES, SeededSlots};
use zeroize::Zeroizing;

use crate::signing_key::Signer;
use crate::{CellKey, KeyError, OwnerKeys, P1Keys, P2Keys, SealKey, SigningKey, SlotKey, TagKey};

/// The owner's file in a key folder.
pub const OWNER_FILE: &str = "owner.keys";
/// The owner's line for recipients in a key folder.
pub const OWNER_PUBLIC_FILE: &str = "owner.pub";
/// P1's file in a key folder.
pub const P1_FILE: &str = "p1.keys";
/// P2's file in a key folder.
pub const P2_FILE: &str = "p2.keys";

const MAGIC: &[u8; 8] = b"VEILKEYS";
const VERSION: u8 = 2;
const DIGEST: usize = 32;
const CELL_KEY: u8 = 1;
const SEAL_KEY: u8 = 2;
const TAG_KEY: u8 = 3;
const SLOT_KEY: u8 = 16;
const PUBLIC_KEY: u8 = 17;
const SIGNING_KEY: u8 = 32;
const P1_SIGNING_KEY: u8 = 33;
const P2_SIGNING_KEY: u8 = 34;
const CERTIFICATE: u8 = 35;
const OWNER_KEY: u8 = 36;

/// Bytes of the seed that a public key begins with.
const SEED_BYTES: usize = 16;

/// No key file is larger.
const MAX_BYTES: u64 = 64 << 20;

/// A party's keys, as a file.
pub trait KeyFile: Sized {
    /// Who holds such a file.
    const HOLDER: &'static str;

    /// Writes the file. Without `replace` an existing one is left alone.
    fn save(&self, path: &Path, replace: bool) -> Result<(), KeyError> {
        Prepared::new(&self.to_bytes(), path, replace)?.put()
    }

    /// Reads the file.
    fn load(path: &Path) -> Result<Self, KeyError> {
        let io = |source| KeyError::Io { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(io)?;
        if metadata.len() > MAX_BYTES {
            return Err(KeyError::Malformed { path: path.to_owned(), why: "it is too large".to_owned() });
        }
        let bytes = Zeroizing::new(fs::read(path).map_err(io)?);
        let content = Content::parse(&bytes).map_err(|fault| fault.at(path))?;
        let keys = Self::from_content(&content).map_err(|fault| fault.at(path))?;
        refuse_exposed(path, &metadata)?;
        Ok(keys)
    }

    /// The file's bytes.
    fn to_bytes(&self) -> Zeroizing<Vec<u8>>;

    #[doc(hidden)]
    fn from_content(content: &Content<'_>) -> Result<Self, Fault>;
}

impl OwnerKeys {
    /// Writes the three parties' files and the owner's public line into a folder: all are complete before the first takes its place, so that keys of
    /// two sets do not mix.
    pub fn save_all(&self, folder: &Path, replace: bool) -> Result<(), KeyError> {
        let files = [
            Prepared::new(&self.to_bytes(), &folder.join(OWNER_FILE), replace)?,
            Prepared::new(&self.p1().to_bytes(), &folder.join(P1_FILE), replace)?,
            Prepared::new(&self.p2().to_bytes(), &folder.join(P2_FILE), replace)?,
            Prepared::new(format!("{}\n", self.public()).as_bytes(), &folder.join(OWNER_PUBLIC_FILE), replace)?
                .for_everyone()?,
        ];
        files.into_iter().try_for_each(Prepared::put)
    }
}

/// A file that is written but not yet in its place.
pub(crate) struct Prepared {
    file: tempfile::NamedTempFile,
    path: PathBuf,
    replace: bool,
}

impl Prepared {
    pub(crate) fn new(bytes: &[u8], path: &Path, replace: bool) -> Result<Self, KeyError> {
        let io = |source| KeyError::Io { path: path.to_owned(), source };
        if path.exists() && !replace {
            return Err(KeyError::Exists(path.to_owned()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Temporary files are created with mode 0600, and renaming keeps it.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
        file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(io)?;
        Ok(Self { file, path: path.to_owned(), replace })
    }

    /// Lets others read the file.
    #[cfg_attr(not(unix), expect(clippy::unnecessary_wraps, reason = "permissions are set on Unix only"))]
    pub(crate) fn for_everyone(self) -> Result<Self, KeyError> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let set = self.file.as_file().set_permissions(fs::Permissions::from_mode(0o644));
            set.map_err(|source| KeyError::Io { path: self.path.clone(), source })?;
        }
        Ok(self)
    }

    pub(crate) fn put(self) -> Result<(), KeyError> {
        let Self { file, path, replace } = self;
        let persisted = if replace { file.persist(&path) } else { file.persist_noclobber(&path) };
        match persisted {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(KeyError::Exists(path)),
            Err(error) => Err(KeyError::Io { path, source: error.error }),
        }
    }
}

const OWNER: u8 = 1;
const P1: u8 = 2;
const P2: u8 = 3;

impl KeyFile for OwnerKeys {
    const HOLDER: &'static str = "the owner";

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let (cell, slot) = (self.cell.to_bytes(), self.slot.to_bytes());
        write(
            OWNER,
            self.key_id,
            &[
                (CELL_KEY, &cell),
                (SEAL_KEY, self.seal.as_bytes()),
                (TAG_KEY, self.tag.as_bytes()),
                (SLOT_KEY, &slot),
                (PUBLIC_KEY, self.public.as_bytes()),
                (SIGNING_KEY, self.signing.as_bytes()),
                (P1_SIGNING_KEY, self.p1_signing.as_bytes()),
                (P2_SIGNING_KEY, self.p2_signing.as_bytes()),
            ],
        )
    }

    fn from_content(content: &Content<'_>) -> Result<Self, Fault> {
        content.require(OWNER, Self::HOLDER)?;
        Ok(Self {
            key_id: content.key_id,
            cell: CellKey::from_bytes(content.section(CELL_KEY)?),
            seal: SealKey::from_bytes(content.section(SEAL_KEY)?),
            tag: TagKey::from_bytes(content.section(TAG_KEY)?),
            slot: SlotKey::from_bytes(content.section(SLOT_KEY)?),
            public: content.public_key()?,
            signing: SigningKey::from_bytes(content.section(SIGNING_KEY)?),
            p1_signing: SigningKey::from_bytes(content.section(P1_SIGNING_KEY)?),
            p2_signing: SigningKey::from_bytes(content.section(P2_SIGNING_KEY)?),
        })
    }
}

impl KeyFile for P1Keys {
    const HOLDER: &'static str = "P1 (the engine)";

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        write(
            P1,
            self.key_id,
            &[
                (PUBLIC_KEY, self.public.as_bytes()),
                (SIGNING_KEY, self.signer.key.as_bytes()),
                (CERTIFICATE, self.signer.certificate.as_bytes()),
                (OWNER_KEY, self.owner.as_bytes()),
            ],
        )
    }

    fn from_content(content: &Content<'_>) -> Result<Self, Fault> {
        content.require(P1, Self::HOLDER)?;
        let (signer, owner) = content.signer(Party::P1)?;
        Ok(Self { key_id: content.key_id, public: content.public_key()?, signer, owner })
    }
}

impl KeyFile for P2Keys {
    const HOLDER: &'static str = "P2 (the key holder)";

    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let (cell, slot) = (self.cell.to_bytes(), self.slot.to_bytes());
        write(
            P2,
            self.key_id,
            &[
                (CELL_KEY, &cell),
                (SEAL_KEY, self.seal.as_bytes()),
                (SLOT_KEY, &slot),
                (SIGNING_KEY, self.signer.key.as_bytes()),
                (CERTIFICATE, self.signer.certificate.as_bytes()),
                (OWNER_KEY, self.owner.as_bytes()),
            ],
        )
    }

    fn from_content(content: &Content<'_>) -> Result<Self, Fault> {
        content.require(P2, Self::HOLDER)?;
        let (signer, owner) = content.signer(Party::P2)?;
        Ok(Self {
            key_id: content.key_id,
            cell: CellKey::from_bytes(content.section(CELL_KEY)?),
            seal: SealKey::from_bytes(content.section(SEAL_KEY)?),
            slot: SlotKey::from_bytes(content.section(SLOT_KEY)?),
            signer,
            owner,
        })
    }
}

fn write(role: u8, key_id: KeyId, sections: &[(u8, &[u8])]) -> Zeroizing<Vec<u8>> {
    let mut bytes =
        Zeroizing::new(Vec::with_capacity(sections.iter().map(|(_, content)| content.len() + 5).sum::<usize>() + 64));
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[VERSION, role]);
    bytes.extend_from_slice(&key_id.0);
    for (name, content) in sections {
        bytes.push(*name);
        bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
        bytes.extend_from_slice(content);
    }
    let digest = Sha256::digest(&*bytes);
    bytes.extend_from_slice(&digest);
    bytes
}

/// A key file taken apart.
#[doc(hidden)]
pub struct Content<'a> {
    role: u8,
    key_id: KeyId,
    sections: Vec<(u8, &'a [u8])>,
}

/// What is wrong with a key file, before its path is known.
#[doc(hidden)]
pub enum Fault {
    Malformed(String),
    FromTheFuture(u8),
    Outdated(u8),
    OtherDegree(usize),
    WrongRole { expected: &'static str, found: &'static str },
}

impl Fault {
    fn at(self, path: &Path) -> KeyError {
        let path = path.to_owned();
        match self {
            Self::Malformed(why) => KeyError::Malformed { path, why },
            Self::FromTheFuture(found) => KeyError::FromTheFuture { path, found, supported: VERSION },
            Self::Outdated(found) => KeyError::Outdated { path, found },
            Self::OtherDegree(found) => KeyError::OtherDegree { path, found, supported: DEGREE },
            Self::WrongRole { expected, found } => KeyError::WrongRole { path, expected, found },
        }
    }
}

impl<'a> Content<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Fault> {
        let short = || Fault::Malformed("it is too short".to_owned());
        let (content, digest) = bytes.split_last_chunk::<DIGEST>().ok_or_else(short)?;
        let (magic, rest) = content.split_first_chunk::<8>().ok_or_else(short)?;
        let ([version, role], rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
        let (key_id, mut rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
        if magic != MAGIC {
            return Err(Fault::Malformed("it does not begin as one".to_owned()));
        }
        if *version > VERSION {
            return Err(Fault::FromTheFuture(*version));
        }
        if Sha256::digest(content)[..] != *digest {
            return Err(Fault::Malformed("its digest does not match".to_owned()));
        }
        if *version != VERSION {
            return Err(Fault::Outdated(*version));
        }
        let mut sections = Vec::new();
        while let Some(([name, length @ ..], after)) = rest.split_first_chunk::<5>() {
            let length = u32::from_le_bytes(*length) as usize;
            let (section, after) = after.split_at_checked(length).ok_or_else(short)?;
            if !matches!(*name, CELL_KEY | SEAL_KEY | TAG_KEY | SLOT_KEY | PUBLIC_KEY | SIGNING_KEY..=OWNER_KEY)
                || sections.iter().any(|(known, _)| known == name)
            {
                return Err(Fault::Malformed(format!("it has an unexpected section {name}")));
            }
            sections.push((*name, section));
            rest = after;
        }
        if !rest.is_empty() {
            return Err(short());
        }
        Ok(Self { role: *role, key_id: KeyId(*key_id), sections })
    }

    /// Refuses another party's keys, and keys for vectors of another length.
    fn require(&self, role: u8, expected: &'static str) -> Result<(), Fault> {
        if self.role == role {
            return match self.degree() {
                Some(found) if found != DEGREE => Err(Fault::OtherDegree(found)),
                _ => Ok(()),
            };
        }
        let found = match self.role {
            OWNER => OwnerKeys::HOLDER,
            P1 => P1Keys::HOLDER,
            P2 => P2Keys::HOLDER,
            _ => "an unknown party",
        };
        Err(Fault::WrongRole { expected, found })
    }

    /// How many slots the vectors have that the keys were made for. The length of the slot key says so, and that of the public key.
    fn degree(&self) -> Option<usize> {
        let length =
            |name: u8| self.sections.iter().find(|(known, _)| *known == name).map(|(_, content)| content.len());
        let of_public_key =
            || Some(length(PUBLIC_KEY)?.checked_sub(SEED_BYTES)? * DEGREE / (SEEDED_BYTES - SEED_BYTES));
        length(SLOT_KEY).or_else(of_public_key).filter(|degree| degree.is_power_of_two())
    }

    /// A server's signing key, if the owner certified it for that server.
    fn signer(&self, party: Party) -> Result<(Signer, VerifyingKey), Fault> {
        let malformed = |error: veil_release::ReleaseError| Fault::Malformed(error.to_string());
        let owner = VerifyingKey::from_bytes(self.section(OWNER_KEY)?).map_err(malformed)?;
        let key = SigningKey::from_bytes(self.section(SIGNING_KEY)?);
        let signer = Signer::checked(&owner, party, self.key_id, key, self.section(CERTIFICATE)?).map_err(malformed)?;
        Ok((signer, owner))
    }

    fn public_key(&self) -> Result<PublicKey, Fault> {
        let bytes = self.section::<SEEDED_BYTES>(PUBLIC_KEY)?;
        PublicKey::new(SeededSlots::from_bytes(bytes.to_vec())).map_err(|error| Fault::Malformed(error.to_string()))
    }

    fn section<const N: usize>(&self, name: u8) -> Result<&'a [u8; N], Fault> {
        let section = self.sections.iter().find(|(known, _)| *known == name);
        section
            .and_then(|(_, content)| <&[u8; N]>::try_from(*content).ok())
            .ok_or_else(|| Fault::Malformed(format!("section {name} is missing or has the wrong length")))
    }
}

/// Refuses a secret that others can read.
#[cfg(unix)]
pub(crate) fn refuse_exposed(path: &Path, metadata: &fs::Metadata) -> Result<(), KeyError> {
    use std::os::unix::fs::PermissionsExt;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(KeyError::Exposed { path: path.to_owned(), mode }) }
}

#[cfg(not(unix))]
pub(crate) fn refuse_exposed(_path: &Path, _metadata: &fs::Metadata) -> Result<(), KeyError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn keys() -> OwnerKeys {
        OwnerKeys::generate(&mut StdRng::seed_from_u64(5))
    }

    #[test]
    fn each_party_gets_its_part() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        keys().save_all(folder.path(), false).unwrap();
        assert!(matches!(keys().save_all(folder.path(), false), Err(KeyError::Exists(_))));

        let owner = OwnerKeys::load(&at(OWNER_FILE)).unwrap();
        assert_eq!(owner.to_bytes(), keys().to_bytes());
        assert_eq!(P1Keys::load(&at(P1_FILE)).unwrap().to_bytes(), keys().p1().to_bytes());
        assert_eq!(P2Keys::load(&at(P2_FILE)).unwrap().to_bytes(), keys().p2().to_bytes());
        let public: veil_release::OwnerPublic = fs::read_to_string(at(OWNER_PUBLIC_FILE)).unwrap().parse().unwrap();
        assert_eq!(public, keys().public());
        let error = OwnerKeys::load(&at(P2_FILE)).unwrap_err();
        assert!(matches!(error, KeyError::WrongRole { .. }), "{error}");
    }

    /// The bytes themselves: P1's file holds no secret but its own signing key, P2's not the tag key.
    #[test]
    fn secrets_stay_with_their_holders() {
        let contains = |bytes: &[u8], secret: &[u8]| bytes.windows(secret.len()).any(|window| window == secret);
        let keys = keys();
        let (p1, p2) = (keys.p1().to_bytes(), keys.p2().to_bytes());
        let (cell, slot) = (keys.cell.to_bytes(), keys.slot.to_bytes());
        for secret in [&cell[..32], &slot[..32], keys.seal.as_bytes(), keys.tag.as_bytes()] {
            assert!(!contains(&p1, secret));
            assert!(contains(&keys.to_bytes(), secret));
        }
        for (file, own, others) in [
            (&p1, &keys.p1_signing, [&keys.signing, &keys.p2_signing]),
            (&p2, &keys.p2_signing, [&keys.signing, &keys.p1_signing]),
        ] {
            assert!(contains(file, own.as_bytes()));
            assert!(others.iter().all(|other| !contains(file, other.as_bytes())));
        }
        assert!(!contains(&p2, keys.tag.as_bytes()));
        assert!(contains(&p2, keys.seal.as_bytes()) && contains(&p2, &cell) && contains(&p2, &slot));
    }

    #[test]
    fn nothing_is_overwritten_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(OWNER_FILE);
        keys().save(&path, false).unwrap();
        let other = OwnerKeys::generate(&mut StdRng::seed_from_u64(6));
        assert!(matches!(other.save(&path, false), Err(KeyError::Exists(_))));
        assert_eq!(OwnerKeys::load(&path).unwrap().key_id(), keys().key_id());
        other.save(&path, true).unwrap();
        assert_eq!(OwnerKeys::load(&path).unwrap().key_id(), other.key_id());
    }

    #[cfg(unix)]
    #[test]
    fn files_are_private_and_must_stay_so() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        keys().save_all(folder.path(), false).unwrap();
        let mode = |name| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(OWNER_PUBLIC_FILE), 0o644);
        for name in [OWNER_FILE, P1_FILE, P2_FILE] {
            assert_eq!(mode(name), 0o600, "{name}");
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        fn refused<K: KeyFile>(folder: &Path, name: &str) -> bool {
            matches!(K::load(&folder.join(name)), Err(KeyError::Exposed { mode: 0o644, .. }))
        }
        assert!(refused::<OwnerKeys>(folder.path(), OWNER_FILE));
        assert!(refused::<P1Keys>(folder.path(), P1_FILE));
        assert!(refused::<P2Keys>(folder.path(), P2_FILE));
    }

    /// A certificate for another server, or of another owner, is not one.
    #[test]
    fn certificates_are_checked() {
        let (keys, other) = (keys(), OwnerKeys::generate(&mut StdRng::seed_from_u64(6)));
        let load = |keys: &P1Keys| {
            let bytes = keys.to_bytes();
            Content::parse(&bytes).and_then(|content| P1Keys::from_content(&content)).is_ok()
        };
        assert!(load(&keys.p1()));
        assert!(!load(&P1Keys { owner: *other.p1().owner_key(), ..keys.p1() }));
        assert!(!load(&P1Keys { signer: keys.p2().signer, ..keys.p1() }));
        assert!(!load(&P1Keys { key_id: other.key_id, ..keys.p1() }));
    }

    #[test]
    fn damaged_and_future_files_are_refused() {
        let bytes = keys().to_bytes();
        // Every byte of header and small sections, then samples of the long ones.
        for at in (0..700).chain((700..bytes.len()).step_by(997)).chain([bytes.len() - 1]) {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert!(Content::parse(&damaged).is_err(), "byte {at}");
            assert!(Content::parse(&bytes[..at]).is_err(), "{at} bytes");
        }
        let mut future = bytes.to_vec();
        future[8] = 3;
        assert!(matches!(Content::parse(&future), Err(Fault::FromTheFuture(3))));
    }

    #[test]
    fn keys_for_vectors_of_another_length_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join(P2_FILE), 4 * DEGREE);
        let public = vec![7; SEED_BYTES + 4 * (SEEDED_BYTES - SEED_BYTES)];
        let expected = format!(
            "{} holds keys for vectors of {other} numbers, and those of this program have {DEGREE}; run `veil keygen` with this program, and encrypt the data with the new keys",
            path.display()
        );
        let refused = |role: u8, sections: &[(u8, &[u8])]| {
            Prepared::new(&write(role, keys().key_id, sections), &path, true).unwrap().put().unwrap();
            let error = match role {
                OWNER => OwnerKeys::load(&path).map(|_| ()),
                P1 => P1Keys::load(&path).map(|_| ()),
                _ => P2Keys::load(&path).map(|_| ()),
            };
            error.unwrap_err().to_string()
        };
        assert_eq!(refused(OWNER, &[(SLOT_KEY, &vec![0; other]), (PUBLIC_KEY, &public)]), expected);
        assert_eq!(refused(P1, &[(PUBLIC_KEY, &public)]), expected);
        assert_eq!(refused(P2, &[(SLOT_KEY, &vec![0; other])]), expected);
        assert!(refused(P2, &[(SLOT_KEY, &vec![0; DEGREE + 1])]).contains("damaged"));
    }

    #[test]
    fn nothing_secret_prints() {
        let text = format!("{:?} {:?}", keys(), keys().p2());
        assert_eq!(text.matches("(secret)").count(), 11, "{text}");
        assert!(text.len() < 1200, "{text}");
    }
}
