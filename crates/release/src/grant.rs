//! An application, held against the owner's rules.
//!
//! Everything is refused that no rule allows. An encrypted column is known by its id, which the engine cannot choose freely
//! without leaving the protocol; a clear column, which the engine sees anyway, by its name. A clear name that several rules
//! list has to keep all of them.
//!
//! A computed column (an aggregate, a sum of two columns) has the id of its first column, and is granted as that one is: the
//! rules do not see what else went into it.

use std::collections::BTreeMap;

use chrono::DateTime;
use veil_cells::{ColumnId, KeyId, Kind, Role};
use veil_privacy::SpentEpsilon;

use crate::policy::Rule;
use crate::{Application, AskedColumn, Content, Policy, RecipientPublicKey};

/// What may be released, and on which conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The key to seal to.
    pub recipient_key: RecipientPublicKey,
    /// The classes that the key holder has to check.
    pub min_k: Option<MinK>,
    /// What the ledger has to spend.
    pub spends: Vec<Spend>,
    /// The fewest rows.
    pub min_rows: u64,
    /// The second in which the grant ends, since 1970; the largest number if it does not.
    pub expires: u64,
}

/// A demand that rows are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinK {
    /// How many rows at least.
    pub k: u32,
    /// In which columns together, as places in the application, ascending.
    pub columns: Vec<usize>,
}

/// Epsilon that a release spends on a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spend {
    /// The column.
    pub column: ColumnId,
    /// Its name in the application.
    pub name: String,
    /// What it spends, in millionths.
    pub epsilon: u64,
    /// What all releases to the recipient together may spend, in millionths.
    pub budget: u64,
}

/// Which rule refused. Each is one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The policy does not know the recipient.
    #[error("the policy does not know a recipient {recipient}; the owner can add one")]
    UnknownRecipient {
        /// The name.
        recipient: String,
    },

    /// The policy has ended.
    #[error("the policy ended at {}; the owner can sign a new one", moment(*.ended))]
    PolicyExpired {
        /// When, in seconds since 1970.
        ended: u64,
    },

    /// The recipient's permission has ended.
    #[error("the permission of recipient {recipient} ended at {}; the owner can sign a new policy", moment(*.ended))]
    RecipientExpired {
        /// The name.
        recipient: String,
        /// When, in seconds since 1970.
        ended: u64,
    },

    /// The data is of another key set.
    #[error("the policy is for key set {expected}, and the data is of key set {found}")]
    WrongKeySet {
        /// The policy's.
        expected: KeyId,
        /// The data's.
        found: KeyId,
    },

    /// There is nothing to release.
    #[error("the query has no column with data, so there is nothing to release")]
    NoColumns,

    /// No rule allows the column.
    #[error("no rule allows recipient {recipient} to receive column {column}; leave it out, or ask the owner")]
    ColumnNotAllowed {
        /// The column.
        column: String,
        /// The recipient.
        recipient: String,
    },

    /// The column leaves only with noise.
    #[error("recipient {recipient} may receive column {column} only with noise; add some with a dp_ function")]
    NeedsNoise {
        /// The column.
        column: String,
        /// The recipient.
        recipient: String,
    },

    /// Only some values of the column have noise.
    #[error(
        "recipient {recipient} may receive column {column} only with noise, and some of its values have none; add some to all of them with a dp_ function"
    )]
    NoiseInPart {
        /// The column.
        column: String,
        /// The recipient.
        recipient: String,
    },

    /// The budget does not allow it.
    #[error(
        "column {column} would cost epsilon {}, and recipient {recipient} has spent {} of {}",
        SpentEpsilon::from_millionths(*.asked), SpentEpsilon::from_millionths(*.spent), SpentEpsilon::from_millionths(*.budget)
    )]
    BudgetSpent {
        /// The column.
        column: String,
        /// The recipient.
        recipient: String,
        /// What other releases have spent, in millionths.
        spent: u64,
        /// What this one would spend.
        asked: u64,
        /// What all together may.
        budget: u64,
    },
}

impl Policy {
    /// Holds an application against the rules. `spent` says what other releases to a recipient have spent on a column.
    pub fn grant(
        &self,
        application: &Application,
        now: u64,
        spent: &dyn Fn(&str, ColumnId) -> u64,
    ) -> Result<Grant, Refusal> {
        let name = &application.recipient;
        let keys = application.columns.iter().filter_map(|column| match &column.content {
            Content::Encrypted { cell_type, .. } => Some(cell_type.key),
            Content::Clear { .. } => None,
        });
        if let Some(found) = keys.chain([application.key_set]).find(|found| *found != self.key_set) {
            return Err(Refusal::WrongKeySet { expected: self.key_set, found });
        }
        if let Some(ended) = self.expires.filter(|end| now >= *end) {
            return Err(Refusal::PolicyExpired { ended });
        }
        let recipient = self.recipients.get(name);
        let recipient = recipient.ok_or_else(|| Refusal::UnknownRecipient { recipient: name.clone() })?;
        if let Some(ended) = recipient.expires.filter(|end| now >= *end) {
            return Err(Refusal::RecipientExpired { recipient: name.clone(), ended });
        }
        let mut grant = Grant {
            recipient_key: recipient.key,
            min_k: None,
            spends: Vec::new(),
            min_rows: 0,
            expires: [self.expires, recipient.expires].into_iter().flatten().min().unwrap_or(u64::MAX),
        };
        let mut charges = BTreeMap::new();
        let mut any = false;
        for (place, column) in application.columns.iter().enumerate().filter(|(_, column)| !is_flag(column)) {
            any = true;
            let mut rules = recipient.rules.iter().filter_map(|rule| Some((rule, allowed(rule, column)?))).peekable();
            if rules.peek().is_none() {
                return Err(Refusal::ColumnNotAllowed { column: column.name.clone(), recipient: name.clone() });
            }
            for (rule, declared) in rules {
                grant.demand(rule, declared, place);
                let Some(budget) = rule.epsilon.get(declared) else { continue };
                match &column.content {
                    Content::Encrypted { cell_type, .. } if cell_type.mixed => {
                        return Err(Refusal::NoiseInPart { column: column.name.clone(), recipient: name.clone() });
                    }
                    Content::Encrypted { cell_type, .. } if cell_type.is_noised() => {
                        let (epsilon, ..) = charges.entry(cell_type.column).or_insert((0u64, &column.name, *budget));
                        *epsilon = epsilon.saturating_add(cell_type.spent);
                    }
                    _ => {
                        return Err(Refusal::NeedsNoise { column: column.name.clone(), recipient: name.clone() });
                    }
                }
            }
        }
        if !any {
            return Err(Refusal::NoColumns);
        }
        for (column, (epsilon, shown, budget)) in charges {
            let before = spent(name, column);
            if before.saturating_add(epsilon) > budget {
                let (column, recipient) = (shown.clone(), name.clone());
                return Err(Refusal::BudgetSpent { column, recipient, spent: before, asked: epsilon, budget });
            }
            grant.spends.push(Spend { column, name: shown.clone(), epsilon, budget });
        }
        Ok(grant)
    }
}

impl Grant {
    /// Adds what a rule demands of a column.
    fn demand(&mut self, rule: &Rule, declared: &str, place: usize) {
        self.min_rows = self.min_rows.max(rule.min_rows);
        let Some(k) = rule.min_k.filter(|_| rule.k_columns.iter().any(|name| name == declared)) else { return };
        let min_k = self.min_k.get_or_insert(MinK { k, columns: Vec::new() });
        min_k.k = min_k.k.max(k);
        if min_k.columns.last() != Some(&place) {
            min_k.columns.push(place);
        }
    }
}

/// Whether a column only says which rows are to be left out.
fn is_flag(column: &AskedColumn) -> bool {
    matches!(&column.content, Content::Encrypted { cell_type, .. }
        if cell_type.role == Role::Suppressed && cell_type.kind == Kind::Boolean)
}

/// The name under which a rule lists a column.
fn allowed<'a>(rule: &'a Rule, column: &AskedColumn) -> Option<&'a str> {
    let listed = |(name, id): &(&String, &ColumnId)| match &column.content {
        Content::Encrypted { cell_type, .. } => cell_type.column == **id,
        Content::Clear { .. } => column.name == **name,
    };
    rule.columns.iter().find(listed).map(|(name, _)| name.as_str())
}

/// A second as text.
fn moment(second: u64) -> String {
    let time = i64::try_from(second).ok().and_then(|second| DateTime::from_timestamp(second, 0));
    time.map_or_else(|| format!("second {second}"), |time| time.format("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::tests::{KEY, asking, clear, encrypted, suppressed};
    use crate::policy::tests::EXAMPLE;

    const NOW: u64 = 1_790_000_000;

    fn decide(columns: Vec<AskedColumn>) -> Result<Grant, Refusal> {
        Policy::parse(EXAMPLE).unwrap().grant(&asking(columns), NOW, &|_, _| 0)
    }

    #[test]
    fn what_a_rule_allows_is_granted_with_its_conditions() {
        let columns = vec![
            encrypted("patients", "cost", 500_000),
            encrypted("patients", "born", 0),
            suppressed(),
            clear("region"),
            encrypted("patients", "zip", 0),
        ];
        let grant = decide(columns).unwrap();
        assert_eq!(grant.min_k, Some(MinK { k: 10, columns: vec![1, 3, 4] }));
        assert_eq!((grant.min_rows, grant.expires), (100, 1_798_761_600));
        let column = ColumnId::of(KEY, "patients", "cost");
        let spend = Spend { column, name: "cost".to_owned(), epsilon: 500_000, budget: 2_000_000 };
        assert_eq!(grant.spends, [spend]);
    }

    /// `region` is in the rules of both tables: the larger k holds for the columns of both.
    #[test]
    fn rules_of_several_tables_add_up() {
        let grant = decide(vec![encrypted("visits", "day", 0)]).unwrap();
        assert_eq!((grant.min_k, grant.min_rows), (Some(MinK { k: 5, columns: vec![0] }), 0));
        let grant = decide(vec![encrypted("visits", "day", 0), clear("region")]).unwrap();
        assert_eq!((grant.min_k, grant.min_rows), (Some(MinK { k: 10, columns: vec![0, 1] }), 100));
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        let refused = |columns, says: &str| {
            let refusal = decide(columns).unwrap_err().to_string();
            assert!(refusal.contains(says), "{refusal}");
        };
        refused(vec![clear("region"), clear("name")], "allows recipient alice to receive column name");
        refused(vec![encrypted("patients", "name", 0)], "receive column name");
        refused(vec![encrypted("other", "born", 0)], "receive column born");
        refused(vec![encrypted("patients", "cost", 0)], "column cost only with noise");
        refused(vec![clear("cost")], "column cost only with noise");
        refused(vec![suppressed()], "nothing to release");
        refused(Vec::new(), "nothing to release");
        // A flag is true or false; data that is called one is data.
        let mut smuggled = suppressed();
        if let Content::Encrypted { cell_type, .. } = &mut smuggled.content {
            cell_type.kind = Kind::Integer;
        }
        refused(vec![smuggled], "receive column suppressed");
    }

    #[test]
    fn recipients_times_and_key_sets_are_checked() {
        let policy = Policy::parse(EXAMPLE).unwrap();
        let decide = |application: &Application, now| policy.grant(application, now, &|_, _| 0);
        let good = asking(vec![encrypted("patients", "sex", 0)]);
        assert!(decide(&good, 1_798_761_599).is_ok());
        let refusal = decide(&good, 1_798_761_600).unwrap_err();
        assert!(matches!(refusal, Refusal::RecipientExpired { .. }));
        assert!(refusal.to_string().contains("recipient alice ended at 2027-01-01 00:00 UTC"), "{refusal}");
        let refusal = decide(&good, 1_801_440_000).unwrap_err();
        assert_eq!(refusal, Refusal::PolicyExpired { ended: 1_801_440_000 });
        let bob = Application { recipient: "bob".to_owned(), ..good.clone() };
        assert_eq!(decide(&bob, NOW).unwrap_err(), Refusal::UnknownRecipient { recipient: "bob".to_owned() });
        let other = Application { key_set: KeyId([8; 8]), ..good.clone() };
        assert!(matches!(decide(&other, NOW), Err(Refusal::WrongKeySet { .. })));
        let mut mixed = good;
        if let Some(Content::Encrypted { cell_type, .. }) = mixed.columns.first_mut().map(|column| &mut column.content)
        {
            cell_type.key = KeyId([8; 8]);
        }
        assert!(matches!(decide(&mixed, NOW), Err(Refusal::WrongKeySet { .. })));
    }

    #[test]
    fn budgets_hold_over_columns_and_releases() {
        let policy = Policy::parse(EXAMPLE).unwrap();
        let cost = |spent| encrypted("patients", "cost", spent);
        let grant = |columns, before| policy.grant(&asking(columns), NOW, &move |_, _| before);
        assert!(grant(vec![cost(2_000_000)], 0).is_ok());
        assert!(grant(vec![cost(500_000)], 1_500_000).is_ok());
        let refusal = grant(vec![cost(500_001)], 1_500_000).unwrap_err().to_string();
        assert_eq!(refusal, "column cost would cost epsilon 0.500001, and recipient alice has spent 1.5 of 2");
        // The same column twice costs twice.
        assert_eq!(grant(vec![cost(600_000), cost(700_000)], 0).unwrap().spends[0].epsilon, 1_300_000);
        assert!(grant(vec![cost(1_000_001), cost(1_000_000)], 0).is_err());
        assert!(grant(vec![cost(u64::MAX), cost(u64::MAX)], 0).is_err());
        // One with noise does not let one without pass, nor do some values with noise others without.
        assert!(matches!(grant(vec![cost(1), cost(0)], 0), Err(Refusal::NeedsNoise { .. })));
        let mut mixed = cost(1);
        if let Content::Encrypted { cell_type, .. } = &mut mixed.content {
            cell_type.mixed = true;
        }
        let refusal = grant(vec![mixed], 0).unwrap_err().to_string();
        assert!(refusal.contains("column cost only with noise, and some of its values have none"), "{refusal}");
    }
}
