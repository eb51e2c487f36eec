//! The owner's rules: who may receive which columns, and under which conditions.
//!
//! ```toml
//! [policy]
//! key_set = "789eae0deb93973d"
//! expires = "2027-01-31"                  # optional: the last day, in UTC
//!
//! [recipient.alice]
//! key = "x25519:.."
//! expires = "2026-12-31"                  # optional
//!
//! [[recipient.alice.allow]]
//! table = "patients"
//! columns = ["born", "sex", "zip", "cost"]
//! min_k = 10                              # optional: k_columns leave only in classes of so many equal rows
//! k_columns = ["born", "sex", "zip"]      # optional: all of columns if not given
//! epsilon = { cost = 2.0 }                # optional: leaves only with noise; all releases to alice spend at most this
//! min_rows = 100                          # optional: the fewest people of a release
//! ```
//! What is not allowed is refused. `[ask]` has rules for [questions](crate::AskRules).

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate};
use serde::Deserialize;
use toml::Spanned;
use veil_cells::{ColumnId, KeyId};
use veil_privacy::Epsilon;

use crate::ask::RawAsk;
use crate::recipient::is_recipient_name;
use crate::{AskRules, Digest, RecipientPublicKey, ReleaseError};

/// The most bytes of a policy.
const MAX_BYTES: usize = 1 << 20;

/// A policy that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) digest: Digest,
    pub(crate) key_set: KeyId,
    pub(crate) expires: Option<u64>,
    pub(crate) recipients: BTreeMap<String, Recipient>,
    pub(crate) ask: AskRules,
}

/// What a recipient may receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// The key to seal to.
    pub key: RecipientPublicKey,
    /// The second in which the permission ends, since 1970.
    pub expires: Option<u64>,
    /// The rules, one a table.
    pub rules: Vec<Rule>,
}

/// What may leave of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The table, by its name in the declaration.
    pub table: String,
    /// The columns that may leave, with the ids of encrypted ones.
    pub columns: BTreeMap<String, ColumnId>,
    /// How many rows must be equal in the columns of `k_columns`.
    pub min_k: Option<u32>,
    /// The columns that `min_k` is about.
    pub k_columns: Vec<String>,
    /// Columns that leave only with noise, and what all releases may spend, in millionths of epsilon.
    pub epsilon: BTreeMap<String, u64>,
    /// The fewest people of a release: so many rows, or values each of which is of so many.
    pub min_rows: u64,
}

impl Policy {
    /// Reads and checks the owner's text.
    pub fn parse(text: &str) -> Result<Self, ReleaseError> {
        if text.len() > MAX_BYTES {
            return Err(ReleaseError::TooLarge { what: "the policy", limit: "1 MiB" });
        }
        let error = |offset: usize, what: String| {
            let line = text.get(..offset).map_or(1, |before| before.matches('\n').count() + 1);
            ReleaseError::Policy { line, what }
        };
        let raw: RawPolicy = toml::from_str(text).map_err(|fault| {
            let what = fault.message().split_whitespace().collect::<Vec<_>>().join(" ");
            error(fault.span().map_or(0, |span| span.start), what)
        })?;
        let (offset, head) = (raw.policy.span().start, raw.policy.into_inner());
        let key_set = head.key_set.parse().map_err(|_| {
            let what = format!("key_set is `{}`, which is no key set; copy its 16 digits from owner.pub", head.key_set);
            error(offset, what)
        })?;
        let expires = end_of_day(head.expires).map_err(|what| error(offset, what))?;
        let mut recipients = BTreeMap::new();
        for (name, recipient) in raw.recipient {
            let offset = recipient.span().start;
            let about = |what: String| format!("recipient {name}: {what}");
            if !is_recipient_name(&name) {
                let what = "a name has letters, digits, `.`, `-` and `_`, at most 64";
                return Err(error(offset, about(what.to_owned())));
            }
            let RawRecipient { key, expires, allow } = recipient.into_inner();
            let expires = end_of_day(expires).map_err(|what| error(offset, about(what)))?;
            let mut rules: Vec<Rule> = Vec::new();
            for rule in allow {
                let (offset, rule) = (rule.span().start, rule.into_inner());
                let rule = rule.check(key_set).map_err(|what| error(offset, about(what)))?;
                if rules.iter().any(|known| known.table == rule.table) {
                    let what = format!("two rules for table {}; write one that lists all columns", rule.table);
                    return Err(error(offset, about(what)));
                }
                rules.push(rule);
            }
            recipients.insert(name, Recipient { key, expires, rules });
        }
        let ask = match raw.ask {
            None => AskRules::default(),
            Some(ask) => {
                let offset = ask.span().start;
                ask.into_inner().check(key_set).map_err(|(at, what)| match at {
                    Some(at) => error(at, what),
                    None => error(offset, format!("ask: {what}")),
                })?
            }
        };
        Ok(Self { digest: Digest::of(text.as_bytes()), key_set, expires, recipients, ask })
    }

    /// The digest of the owner's text: another text is another policy.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The key set that the policy is for.
    pub fn key_set(&self) -> KeyId {
        self.key_set
    }

    /// The second in which the policy ends, since 1970.
    pub fn expires(&self) -> Option<u64> {
        self.expires
    }

    /// What may be asked about rows.
    pub fn ask(&self) -> &AskRules {
        &self.ask
    }

    /// The recipients by name.
    pub fn recipients(&self) -> &BTreeMap<String, Recipient> {
        &self.recipients
    }
}

/// The last day of what ends in a second, as the policy writes it.
pub fn last_day(end: u64) -> String {
    let second = i64::try_from(end.saturating_sub(1)).ok().and_then(|second| DateTime::from_timestamp(second, 0));
    second.map_or_else(|| "no end".to_owned(), |second| second.format("%Y-%m-%d").to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicy {
    policy: Spanned<RawHead>,
    #[serde(default)]
    recipient: BTreeMap<String, Spanned<RawRecipient>>,
    ask: Option<Spanned<RawAsk>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHead {
    key_set: String,
    expires: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipient {
    key: RecipientPublicKey,
    expires: Option<String>,
    #[serde(default)]
    allow: Vec<Spanned<RawRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    table: String,
    columns: Vec<String>,
    min_k: Option<u32>,
    k_columns: Option<Vec<String>>,
    #[serde(default)]
    epsilon: BTreeMap<String, f64>,
    #[serde(default)]
    min_rows: u64,
}

impl RawRule {
    fn check(self, key_set: KeyId) -> Result<Rule, String> {
        let Self { table, columns: names, min_k, k_columns, epsilon, min_rows } = self;
        let about = |what: String| format!("table {table}: {what}");
        let mut columns = BTreeMap::new();
        for name in &names {
            // Encrypted columns are known by a hash of their names, and a hash cannot be asked whether its table fits.
            if name == "*" {
                return Err(about("`*` cannot be checked against encrypted columns; list the columns".to_owned()));
            }
            if columns.insert(name.clone(), ColumnId::of(key_set, &table, name)).is_some() {
                return Err(about(format!("column {name} is listed twice")));
            }
        }
        if table.is_empty() || columns.is_empty() {
            return Err(about("a rule needs the name of a table and at least one column".to_owned()));
        }
        if min_k.is_some_and(|k| k < 2) {
            return Err(about("min_k is at least 2; leave it out to allow single rows".to_owned()));
        }
        if k_columns.is_some() && min_k.is_none() {
            return Err(about("k_columns says nothing without min_k; give both or neither".to_owned()));
        }
        let k_columns = k_columns.unwrap_or_else(|| if min_k.is_some() { names } else { Vec::new() });
        if min_k.is_some() && k_columns.is_empty() {
            return Err(about("k_columns is empty, so min_k would ask for nothing; list columns".to_owned()));
        }
        for (list, name) in
            k_columns.iter().map(|name| ("k_columns", name)).chain(epsilon.keys().map(|name| ("epsilon", name)))
        {
            if !columns.contains_key(name) {
                return Err(about(format!("{name} is in {list} and not in columns; add it there")));
            }
        }
        let budget = |(name, epsilon): (String, f64)| match Epsilon::try_from(epsilon) {
            Ok(epsilon) => Ok((name, epsilon.millionths())),
            Err(error) => Err(about(format!("epsilon of {name}: {error}"))),
        };
        let epsilon = epsilon.into_iter().map(budget).collect::<Result<_, _>>()?;
        Ok(Rule { table, columns, min_k, k_columns, epsilon, min_rows })
    }
}

/// The second after a day, since 1970.
fn end_of_day(date: Option<String>) -> Result<Option<u64>, String> {
    let Some(text) = date else { return Ok(None) };
    let end = NaiveDate::parse_from_str(&text, "%Y-%m-%d").ok().filter(|_| text.len() == 10);
    let end = end.and_then(|day| day.succ_opt()).and_then(|day| day.and_hms_opt(0, 0, 0));
    let second = end.and_then(|end| u64::try_from(end.and_utc().timestamp()).ok());
    match second {
        Some(second) => Ok(Some(second)),
        None => Err(format!("expires is `{text}`, which is no date; write it as \"2027-01-31\", the last day in UTC")),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const EXAMPLE: &str = r#"
[policy]
key_set = "0707070707070707"
expires = "2027-01-31"

[recipient.alice]
key = "x25519:QxDul9iMwfCIpVdsd6sM9cOseX89lROcbIS1QpxZZio"
expires = "2026-12-31"

[[recipient.alice.allow]]
table = "patients"
columns = ["born", "sex", "zip", "cost", "region"]
min_k = 10
k_columns = ["born", "sex", "zip", "region"]
epsilon = { cost = 2 }
min_rows = 100

[[recipient.alice.allow]]
table = "visits"
columns = ["day", "region"]
min_k = 5
"#;

    #[test]
    fn the_example_is_read() {
        let policy = Policy::parse(EXAMPLE).unwrap();
        // `date -u -d 2027-02-01 +%s`
        assert_eq!(policy.expires(), Some(1_801_440_000));
        assert_eq!(last_day(1_801_440_000), "2027-01-31");
        let alice = &policy.recipients()["alice"];
        assert_eq!(alice.expires, Some(1_798_761_600));
        let [patients, visits] = &alice.rules[..] else { panic!("{alice:?}") };
        assert_eq!((patients.min_k, patients.min_rows), (Some(10), 100));
        assert_eq!(patients.epsilon, BTreeMap::from([("cost".to_owned(), 2_000_000)]));
        assert_eq!(patients.columns["zip"], ColumnId::of(KeyId([7; 8]), "patients", "zip"));
        assert_eq!(visits.k_columns, ["day", "region"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (good, bad, says) in [
            ("min_rows", "min_row", "line 16: unknown field `min_row`"),
            ("[policy]", "[police]", "line 2: unknown field `police`"),
            ("0707070707070707", "07", "line 2: key_set is `07`, which is no key set"),
            ("2027-01-31", "2027-02-30", "line 2: expires is `2027-02-30`, which is no date"),
            ("2026-12-31", "soon", "line 6: recipient alice: expires is `soon`"),
            ("2026-12-31", "2026-12-031", "expires is `2026-12-031`"),
            ("2026-12-31", "1812-12-31", "expires is `1812-12-31`"),
            ("x25519:Q", "x25519:", "line 7: a recipient's key cannot be read"),
            (
                "min_k = 5",
                "[recipient.\"al ice\"]\nkey = \"x25519:QxDul9iMwfCIpVdsd6sM9cOseX89lROcbIS1QpxZZio\"",
                "line 21: recipient al ice: a name has letters",
            ),
            ("min_k = 10", "min_k = 1", "line 10: recipient alice: table patients: min_k is at least 2"),
            ("min_k = 10\n", "", "table patients: k_columns says nothing without min_k"),
            ("[\"born\", \"sex\", \"zip\", \"region\"]", "[]", "k_columns is empty"),
            ("\"zip\", \"region\"]", "\"name\"]", "name is in k_columns and not in columns"),
            ("{ cost = 2 }", "{ price = 2 }", "price is in epsilon and not in columns"),
            ("{ cost = 2 }", "{ cost = 0.0 }", "epsilon of cost: epsilon is zero"),
            ("{ cost = 2 }", "{ cost = -1 }", "epsilon of cost: epsilon is negative"),
            ("{ cost = 2 }", "{ cost = nan }", "epsilon of cost: epsilon is `NaN`"),
            ("\"visits\"", "\"patients\"", "line 18: recipient alice: two rules for table patients"),
            ("[\"day\", \"region\"]", "[\"*\"]", "table visits: `*` cannot be checked"),
            ("[\"day\", \"region\"]", "[\"day\", \"day\"]", "column day is listed twice"),
            ("[\"day\", \"region\"]", "[]", "at least one column"),
        ] {
            let text = EXAMPLE.replacen(good, bad, 1);
            assert_ne!(text, EXAMPLE, "{good}");
            let error = Policy::parse(&text).unwrap_err().to_string();
            assert!(error.contains(says) && error.lines().count() == 1, "{good} -> {bad}: {error}");
        }
        assert!(Policy::parse(&format!("{EXAMPLE}#{}", "x".repeat(1 << 20))).is_err());
    }
}
