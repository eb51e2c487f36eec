//! What a caller may do: receive, ask, or change.

use std::fmt;

/// What a caller may do. Each role may do what the one before it may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Has rows released to the recipient of this name, and asks nothing else.
    Recipient(String),
    /// Asks about tables, and releases to whomever the owner's policy names.
    Steward,
    /// Changes tables and settings too, and reads and writes the server's files.
    Admin,
}

/// The words for a role, for sentences about words that are none.
pub(crate) const ROLE_WORDS: &str = "`recipient`, `recipient=NAME`, `steward` or `admin`";

/// The longest name of a caller or a recipient.
const LONGEST_NAME: usize = 64;

impl Role {
    /// Reads a word for a role: `recipient` is the recipient of the caller's own name, `recipient=NAME` one of another name. None if
    /// the word is no role, or if no recipient can have the name.
    pub fn of_word(word: &str, caller: &str) -> Option<Self> {
        match word {
            "recipient" => is_name(caller).then(|| Self::Recipient(caller.to_owned())),
            "steward" => Some(Self::Steward),
            "admin" => Some(Self::Admin),
            other => {
                let name = other.strip_prefix("recipient=").filter(|name| is_name(name))?;
                Some(Self::Recipient(name.to_owned()))
            }
        }
    }

    /// Whether the caller may change tables and settings.
    pub fn may_change(&self) -> bool {
        *self == Self::Admin
    }

    /// Whether the caller may ask about tables.
    pub fn may_ask(&self) -> bool {
        !matches!(self, Self::Recipient(_))
    }
}

/// Without the recipient's name, which the caller's name tells.
impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Recipient(_) => "recipient",
            Self::Steward => "steward",
            Self::Admin => "admin",
        })
    }
}

/// Whether this can be the name of a recipient, as policies have them.
pub(crate) fn is_name(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
    (1..=LONGEST_NAME).contains(&text.len()) && !text.starts_with('.') && text.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_roles_and_nothing_else_is() {
        let role = |word| Role::of_word(word, "desk");
        assert_eq!(role("recipient"), Some(Role::Recipient("desk".to_owned())));
        assert_eq!(role("recipient=alice-2.b_c"), Some(Role::Recipient("alice-2.b_c".to_owned())));
        assert_eq!((role("steward"), role("admin")), (Some(Role::Steward), Some(Role::Admin)));
        let long = format!("recipient={}", "a".repeat(65));
        for word in [
            "",
            "root",
            "Admin",
            "ADMIN",
            "recipient=",
            "recipient=a b",
            "recipient=a'b",
            "recipient=.a",
            "steward=alice",
            &long,
        ] {
            assert_eq!(role(word), None, "{word}");
        }
        assert!(role(&long[..long.len() - 1]).is_some());
        assert_eq!((Role::of_word("recipient", "al ice"), Role::of_word("recipient", "")), (None, None));
    }

    #[test]
    fn a_recipient_neither_asks_nor_changes() {
        let may = |role: Role| (role.may_ask(), role.may_change());
        assert_eq!(may(Role::Recipient("alice".to_owned())), (false, false));
        assert_eq!((may(Role::Steward), may(Role::Admin)), ((true, false), (true, true)));
    }
}
