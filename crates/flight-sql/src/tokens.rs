//! The token file: a line `name token`, or `name token role`, for everybody who may come.
//!
//! ```text
//!  alice     5f1c..                      the recipient alice of the policy
//!  clinic-2  77ab..  recipient=clinic    another caller for whom releases to clinic are made
//!  erin      c0de..  steward             asks about tables
//!  root      9e02..  admin               changes tables and settings
//! ```
//! Without a role a caller is a recipient: whoever writes nothing gives away the least.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

use crate::role::ROLE_WORDS;
use crate::{Caller, Role};

/// A shorter token could be guessed.
const SHORTEST: usize = 16;

/// Tokens, as digests: comparing these takes as long whatever the token is.
pub struct Tokens(Vec<(Caller, [u8; 32])>);

/// What can be wrong with a token file. Each is one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{path}: cannot read the tokens: {source}; give a text file with a line `name token` for everybody")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },

    /// Others can read the file.
    #[error("{0} can be read by others; run `chmod go-rwx {0}` and make new tokens")]
    Exposed(PathBuf),

    /// A line is none.
    #[error("{path}:{line}: {why}; a line is `name token` or `name token ROLE`, with {ROLE_WORDS}")]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },

    /// Nobody could ask.
    #[error("{0}: there is no token in it; write a line `name token` for everybody who may ask")]
    Empty(PathBuf),
}

impl Tokens {
    /// Reads a token file that only its owner can read. Empty lines, and lines that begin with `#`, are left out.
    pub fn load(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |source| TokenError::Unreadable { path: path.to_owned(), source };
        let text = Zeroizing::new(std::fs::read_to_string(path).map_err(unreadable)?);
        if is_exposed(path) {
            return Err(TokenError::Exposed(path.to_owned()));
        }
        let mut tokens: Vec<(Caller, [u8; 32])> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let wrong = |why| TokenError::Line { path: path.to_owned(), line: at + 1, why };
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|name| !name.starts_with('#')) else { continue };
            let token = words.next().ok_or_else(|| wrong("the name has no token"))?;
            let role = match (words.next(), words.next()) {
                (None, _) => Role::of_word("recipient", name)
                    .ok_or_else(|| wrong("no recipient can have this name, and the line has no other role"))?,
                (Some(word), None) => {
                    Role::of_word(word, name).ok_or_else(|| wrong("what stands after the token is no role"))?
                }
                _ => return Err(wrong("there is something after the role")),
            };
            let digest: [u8; 32] = Sha256::digest(token).into();
            if token.len() < SHORTEST {
                return Err(wrong("the token has fewer than 16 letters; `openssl rand -hex 24` makes one"));
            }
            if tokens.iter().any(|(caller, known)| caller.name == name || *known == digest) {
                return Err(wrong("the name or the token has been there before"));
            }
            tokens.push((Caller { name: name.to_owned(), role }, digest));
        }
        match tokens.is_empty() {
            true => Err(TokenError::Empty(path.to_owned())),
            false => Ok(Self(tokens)),
        }
    }

    /// Whose token it is. Every token is looked at, to the end.
    pub(crate) fn find(&self, token: &str) -> Option<Caller> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut found = u64::MAX;
        for (at, (_, known)) in (0_u64..).zip(&self.0) {
            let same: Choice = known.ct_eq(&digest);
            found.conditional_assign(&at, same);
        }
        self.0.get(usize::try_from(found).ok()?).map(|(caller, _)| caller.clone())
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|(caller, _)| caller)).finish()
    }
}

#[cfg(unix)]
fn is_exposed(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_exposed(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn load(text: &str, mode: u32) -> Result<Tokens, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let name = file.path().display().to_string();
        Tokens::load(file.path()).map_err(|error| error.to_string().replace(&name, "tokens"))
    }

    #[test]
    fn names_are_found_by_their_tokens() {
        let lines = "# who\n\nalice 0123456789abcdef\n bob\tfedcba9876543210 admin\nerin 0000000000000000 steward\n\
                     d@sk 1111111111111111 recipient=dora\ncarl 2222222222222222 recipient\n";
        let tokens = load(lines, 0o600).unwrap();
        let recipient = |name: &str| Role::Recipient(name.to_owned());
        for (token, name, role) in [
            ("0123456789abcdef", "alice", recipient("alice")),
            ("fedcba9876543210", "bob", Role::Admin),
            ("0000000000000000", "erin", Role::Steward),
            ("1111111111111111", "d@sk", recipient("dora")),
            ("2222222222222222", "carl", recipient("carl")),
        ] {
            assert_eq!(tokens.find(token), Some(Caller { name: name.to_owned(), role }));
        }
        for unknown in ["", "alice", "0123456789abcde", "0123456789abcdef0"] {
            assert_eq!(tokens.find(unknown), None, "{unknown}");
        }
        assert!(!format!("{tokens:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn what_is_no_token_file_is_refused() {
        for (text, why) in [
            ("alice", "tokens:1: the name has no token"),
            ("\nalice short", "tokens:2: the token has fewer than 16 letters"),
            ("alice 0123456789abcdef root", "tokens:1: what stands after the token is no role"),
            ("alice 0123456789abcdef Admin", "tokens:1: what stands after the token is no role"),
            ("alice 0123456789abcdef recipient=", "tokens:1: what stands after the token is no role"),
            ("alice 0123456789abcdef admin x", "tokens:1: there is something after the role"),
            ("al@ice 0123456789abcdef", "tokens:1: no recipient can have this name"),
            ("al@ice 0123456789abcdef recipient", "tokens:1: what stands after the token is no role"),
            ("a 0123456789abcdef\nb 0123456789abcdef", "tokens:2: the name or the token has been there before"),
            ("a 0123456789abcdef\na fedcba9876543210", "tokens:2: the name or the token has been there before"),
            ("# nobody", "tokens: there is no token in it"),
        ] {
            let error = load(text, 0o600).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        for mode in [0o640, 0o604] {
            let error = load("alice 0123456789abcdef", mode).unwrap_err();
            assert!(error.starts_with("tokens can be read by others"), "{error}");
        }
        let error = Tokens::load(Path::new("/nowhere/tokens")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/tokens: cannot read the tokens: No such file"), "{error}");
    }
}
