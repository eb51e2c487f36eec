//! The owner's rules for questions about rows: who asks is P1, and what it may ask is in the policy.
//!
//! ```toml
//! [ask]                                    # optional: without it the cautious numbers below hold for all tables and questions
//! min_rows = 100                           # the fewest rows of a question
//! numbers = 10000                          # numbers that a file's questions may open a day, all together
//! [[ask.allow]]                            # optional: where there are any, nothing else may be asked about
//! table = "patients"
//! columns = ["born", "sex", "zip"]
//! questions = ["identifiers", "risk"]      # optional: all
//! min_rows = 50                            # optional: instead of the general ones
//! numbers = 2000
//! ```
//! A column is known by its id, a hash of its name, which cannot be asked for its table: so rules list their columns. A question has to keep the
//! rules of all of its columns, and where they differ the stricter numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;
use veil_cells::{ColumnId, KeyId};
use veil_protocols::census::Question;

/// The fewest rows of a question where no rule says another number.
pub const CAUTIOUS_ROWS: u64 = 100;

/// The numbers that a file's questions may open a day where no rule says another.
pub const CAUTIOUS_NUMBERS: u64 = 10_000;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskRules {
    /// The fewest rows of a question.
    pub min_rows: u64,
    /// Numbers that a file's questions may open a day.
    pub numbers: u64,
    /// The tables that may be asked about; if there are none, all.
    pub allow: Vec<AskRule>,
}

/// What may be asked about a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskRule {
    /// The table, by its name in the declaration.
    pub table: String,
    /// The columns that may be asked about, with their ids.
    pub columns: BTreeMap<String, ColumnId>,
    /// The questions that may be asked.
    pub questions: BTreeSet<Question>,
    /// The fewest rows of a question.
    pub min_rows: u64,
    /// Numbers that a file's questions may open a day.
    pub numbers: u64,
}

/// What holds for a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskLimits {
    /// The fewest rows.
    pub min_rows: u64,
    /// Numbers that each of its files may open a day.
    pub numbers: u64,
}

/// Which rule refused a question. Each is one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskRefusal {
    /// No rule allows a column.
    #[error(
        "the owner's rules do not let anybody ask {} about column {column}; leave it out, or ask the owner", .question.name()
    )]
    Column {
        /// The question.
        question: Question,
        /// The column: its name, where a rule has it for other questions, or its id.
        column: String,
    },

    /// There is no column that a rule could allow.
    #[error("the owner's rules allow questions about listed columns only, and {} names none; ask the owner", .question.name())]
    NoColumn {
        /// The question.
        question: Question,
    },

    /// Too few rows.
    #[error(
        "{} is asked about {rows} rows, and the owner's rules want at least {min_rows}; ask about more, or have the owner allow fewer ([ask] in the policy)", .question.name()
    )]
    FewRows {
        /// The question.
        question: Question,
        /// How many it has.
        rows: u64,
        /// How many it should have.
        min_rows: u64,
    },

    /// Rows that the engine made.
    #[error(
        "{constants} rows of {} are constants and of no row of an encrypted file, and beside such rows the others could be told apart; leave them out",
        .question.name()
    )]
    Constants {
        /// The question.
        question: Question,
        /// How many there are.
        constants: u64,
    },
}

impl Default for AskRules {
    fn default() -> Self {
        Self { min_rows: CAUTIOUS_ROWS, numbers: CAUTIOUS_NUMBERS, allow: Vec::new() }
    }
}

impl AskRules {
    /// What holds for a question about these columns, if it may be asked.
    pub fn limits(&self, question: Question, columns: &[ColumnId]) -> Result<AskLimits, AskRefusal> {
        let general = AskLimits { min_rows: self.min_rows, numbers: self.numbers };
        if self.allow.is_empty() {
            return Ok(general);
        }
        let mut limits: Option<AskLimits> = None;
        for column in columns {
            let of = self.allow.iter().filter_map(|rule| Some((rule, rule.name_of(*column)?)));
            let (mut name, mut allowed) = (column.to_string(), None);
            for (rule, listed) in of {
                name = listed.to_owned();
                if rule.questions.contains(&question) {
                    allowed = Some(AskLimits { min_rows: rule.min_rows, numbers: rule.numbers });
                }
            }
            let own = allowed.ok_or(AskRefusal::Column { question, column: name })?;
            limits = Some(limits.map_or(own, |all| AskLimits {
                min_rows: all.min_rows.max(own.min_rows),
                numbers: all.numbers.min(own.numbers),
            }));
        }
        limits.ok_or(AskRefusal::NoColumn { question })
    }

    /// Numbers a file and day for a release of these columns, which has rules of its own about whether and of how many rows it may be: the fewest
    /// that a rule has for one of them.
    pub fn numbers_of_release(&self, columns: &[ColumnId]) -> u64 {
        let rules = self.allow.iter().filter(|rule| columns.iter().any(|column| rule.name_of(*column).is_some()));
        rules.map(|rule| rule.numbers).min().unwrap_or(self.numbers)
    }

    /// What holds for a question about these columns, of so many rows of which some are constants.
    pub fn grant(
        &self,
        question: Question,
        columns: &[ColumnId],
        rows: u64,
        constants: u64,
    ) -> Result<AskLimits, AskRefusal> {
        let limits = self.limits(question, columns)?;
        if constants > 0 {
            return Err(AskRefusal::Constants { question, constants });
        }
        match rows < limits.min_rows {
            false => Ok(limits),
            true => Err(AskRefusal::FewRows { question, rows, min_rows: limits.min_rows }),
        }
    }
}

impl AskRule {
    fn name_of(&self, column: ColumnId) -> Option<&str> {
        self.columns.iter().find(|(_, id)| **id == column).map(|(name, _)| name.as_str())
    }
}

/// `[ask]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAsk {
    min_rows: Option<u64>,
    numbers: Option<u64>,
    #[serde(default)]
    allow: Vec<Spanned<RawAskRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAskRule {
    table: String,
    columns: Option<Vec<String>>,
    questions: Option<Vec<String>>,
    min_rows: Option<u64>,
    numbers: Option<u64>,
}

impl RawAsk {
    /// Checks it. What is wrong comes with its place in the text, if it is in a rule.
    pub(crate) fn check(self, key_set: KeyId) -> Result<AskRules, (Option<usize>, String)> {
        let cautious = AskRules::default();
        let mut rules = AskRules {
            min_rows: some_rows(self.min_rows.unwrap_or(cautious.min_rows)).map_err(|what| (None, what))?,
            numbers: self.numbers.unwrap_or(cautious.numbers),
            allow: Vec::new(),
        };
        for rule in self.allow {
            let (at, rule) = (rule.span().start, rule.into_inner());
            let rule = rule.check(key_set, &rules).map_err(|what| (Some(at), what))?;
            rules.allow.push(rule);
        }
        Ok(rules)
    }
}

impl RawAskRule {
    fn check(self, key_set: KeyId, general: &AskRules) -> Result<AskRule, String> {
        let Self { table, columns: names, questions, min_rows, numbers } = self;
        let about = |what: String| format!("ask, table {table}: {what}");
        let names = names.unwrap_or_default();
        if names.iter().any(|name| name == "*") {
            return Err(about("`*` cannot be checked against encrypted columns; list the columns".to_owned()));
        }
        if table.is_empty() || names.is_empty() {
            return Err(about("a rule needs the name of a table and at least one column".to_owned()));
        }
        let mut columns = BTreeMap::new();
        for name in names {
            let id = ColumnId::of(key_set, &table, &name);
            if columns.insert(name.clone(), id).is_some() {
                return Err(about(format!("column {name} is listed twice")));
            }
        }
        let questions = match questions {
            None => may_be_allowed().collect(),
            Some(names) => names.iter().map(|name| question(name)).collect::<Result<_, _>>().map_err(about)?,
        };
        let min_rows = some_rows(min_rows.unwrap_or(general.min_rows)).map_err(about)?;
        Ok(AskRule { table: table.clone(), columns, questions, min_rows, numbers: numbers.unwrap_or(general.numbers) })
    }
}

/// The questions that a rule can allow: releases have rules of their own.
fn may_be_allowed() -> impl Iterator<Item = Question> {
    Question::ALL.into_iter().filter(|question| *question != Question::Release)
}

fn question(name: &str) -> Result<Question, String> {
    may_be_allowed().find(|question| question.name() == name).ok_or_else(|| {
        let all: Vec<&str> = may_be_allowed().map(Question::name).collect();
        format!("`{name}` is no question; there are {}", all.join(", "))
    })
}

fn some_rows(min_rows: u64) -> Result<u64, String> {
    match min_rows {
        0 => Err("min_rows is at least 1; leave it out for 100".to_owned()),
        some => Ok(some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    const KEY: KeyId = KeyId([7; 8]);

    const RULES: &str = r#"
[policy]
key_set = "0707070707070707"
[ask]
min_rows = 200
numbers = 3000
[[ask.allow]]
table = "patients"
columns = ["born", "sex"]
questions = ["identifiers", "risk"]
min_rows = 50
[[ask.allow]]
table = "patients"
columns = ["zip"]
numbers = 2000
"#;

    fn column(name: &str) -> ColumnId {
        ColumnId::of(KEY, "patients", name)
    }

    fn rules(text: &str) -> AskRules {
        Policy::parse(text).unwrap().ask().clone()
    }

    #[test]
    fn without_rules_the_cautious_ones_hold() {
        let head = "[policy]\nkey_set = \"0707070707070707\"\n";
        for text in [head.to_owned(), format!("{head}[ask]\n")] {
            let rules = rules(&text);
            assert_eq!(rules, AskRules { min_rows: 100, numbers: 10_000, allow: Vec::new() });
            for question in Question::ALL {
                let limits = rules.grant(question, &[column("anything")], 100, 0).unwrap();
                assert_eq!(limits, AskLimits { min_rows: 100, numbers: 10_000 });
                assert!(rules.grant(question, &[], 99, 0).is_err());
            }
        }
        let rules = rules(&format!("{head}[ask]\nmin_rows = 1\nnumbers = 0\n"));
        assert_eq!(rules.limits(Question::Risk, &[]).unwrap(), AskLimits { min_rows: 1, numbers: 0 });
    }

    #[test]
    fn questions_keep_the_rules_of_all_their_columns() {
        let rules = rules(RULES);
        let limits = |question, names: &[&str]| {
            rules.limits(question, &names.iter().map(|name| column(name)).collect::<Vec<_>>())
        };
        assert_eq!(limits(Question::Risk, &["sex"]).unwrap(), AskLimits { min_rows: 50, numbers: 3000 });
        assert_eq!(limits(Question::Risk, &["zip", "sex"]).unwrap(), AskLimits { min_rows: 200, numbers: 2000 });
        assert_eq!(limits(Question::Utility, &["zip"]).unwrap(), AskLimits { min_rows: 200, numbers: 2000 });
        let release =
            |names: &[&str]| rules.numbers_of_release(&names.iter().map(|name| column(name)).collect::<Vec<_>>());
        assert_eq!(
            [release(&[]), release(&["cost"]), release(&["sex", "cost"]), release(&["zip", "sex"])],
            [3000, 3000, 3000, 2000]
        );
        let sentence = |question, names: &[&str]| limits(question, names).unwrap_err().to_string();
        assert_eq!(
            sentence(Question::Utility, &["zip", "born"]),
            "the owner's rules do not let anybody ask utility about column born; leave it out, or ask the owner"
        );
        let id = column("name").to_string();
        assert!(sentence(Question::Risk, &["name"]).contains(&format!("ask risk about column {id}; leave it out")));
        assert_eq!(
            sentence(Question::Risk, &[]),
            "the owner's rules allow questions about listed columns only, and risk names none; ask the owner"
        );
    }

    #[test]
    fn rows_are_enough_and_of_files() {
        let rules = rules(RULES);
        let grant = |rows, constants| rules.grant(Question::Identifiers, &[column("sex")], rows, constants);
        assert!(grant(50, 0).is_ok());
        assert_eq!(
            grant(49, 0).unwrap_err().to_string(),
            "identifiers is asked about 49 rows, and the owner's rules want at least 50; ask about more, or have the owner allow fewer ([ask] in the policy)"
        );
        let constants = grant(1000, 999).unwrap_err().to_string();
        assert!(constants.starts_with("999 rows of identifiers are constants and of no row"), "{constants}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (good, bad, says) in [
            ("min_rows = 200", "min_rows = 0", "line 4: ask: min_rows is at least 1; leave it out for 100"),
            ("min_rows = 50", "min_rows = 0", "line 7: ask, table patients: min_rows is at least 1"),
            ("min_rows = 200", "min_row = 200", "unknown field `min_row`"),
            ("numbers = 3000", "numbers = -1", "line 6"),
            ("[\"zip\"]", "[\"*\"]", "line 12: ask, table patients: `*` cannot be checked against encrypted columns"),
            ("columns = [\"zip\"]\n", "", "a rule needs the name of a table and at least one column"),
            ("[\"zip\"]", "[\"zip\", \"zip\"]", "column zip is listed twice"),
            ("\"risk\"]", "\"risks\"]", "`risks` is no question; there are identifiers, k_anonymize, risk"),
            ("\"risk\"]", "\"release\"]", "`release` is no question"),
        ] {
            let text = RULES.replacen(good, bad, 1);
            assert_ne!(text, RULES, "{good}");
            let error = Policy::parse(&text).unwrap_err().to_string();
            assert!(error.contains(says) && error.lines().count() == 1, "{good} -> {bad}: {error}");
        }
    }
}
