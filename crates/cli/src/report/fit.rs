//! Whether the manifest of a release fits the table of the page.
//!
//! Signatures tie a manifest to the servers that made the release, not to a file. What both speak of is compared: a difference shows that
//! the release is of another table, of a part of this one, or of something computed from it. That nothing differs shows no more than that.

use std::collections::BTreeSet;

use veil_release::{ClassCheck, Manifest, NoiseBy};

use super::findings::{Findings, Treatment};
use super::words::{counted, listed};

/// What was compared, in words that follow a colon.
#[derive(Debug, Default)]
pub(super) struct Fit {
    pub(super) agrees: Vec<String>,
    pub(super) differs: Vec<String>,
    /// Why the classes were not compared.
    pub(super) apart: Option<String>,
}

/// The comparison; nothing without a manifest that can be believed.
pub(super) fn fit(findings: &Findings) -> Option<Fit> {
    let paper = findings.manifest.as_ref().filter(|paper| paper.refused.is_none())?;
    let (manifest, mut fit) = (&paper.manifest, Fit::default());
    fit.count(manifest.rows, findings.anonymised.rows, "", "row");
    let held_back = findings.risk_of("suppressed_rows").after.map(|rows| rows as u64);
    if let (Some(theirs), Some(ours)) = (manifest.suppressed, held_back) {
        fit.count(theirs, ours, " held back", "row");
    }
    if let Some(check) = &manifest.classes {
        fit.classes(check, findings);
    }
    fit.columns(manifest, findings);
    Some(fit)
}

/// The manifest, if it can be believed and nothing speaks against its being that of a release of this table.
pub(super) fn fitting(findings: &Findings) -> Option<&Manifest> {
    fit(findings).filter(|fit| fit.differs.is_empty())?;
    findings.manifest.as_ref().map(|paper| &paper.manifest)
}

impl Fit {
    fn count(&mut self, theirs: u64, ours: u64, what: &str, one: &str) {
        let told = |number: u64| format!("{}{what}", counted(number, one, &format!("{one}s")));
        match theirs == ours {
            true => self.agrees.push(told(ours)),
            false => self.differs.push(format!("it says {}, and the table has {}", told(theirs), told(ours))),
        }
    }

    /// Classes of the same columns have the same smallest one.
    fn classes(&mut self, check: &ClassCheck, findings: &Findings) {
        let Some(ours) = findings.risk_of("smallest_class").after.map(|rows| rows as u64) else { return };
        let columns = listed(&check.columns);
        let set = |columns: &[String]| columns.iter().cloned().collect::<BTreeSet<_>>();
        if set(&check.columns) != set(&findings.quasi) {
            let why = format!("Its classes are of {columns}, those of this page of {}", listed(&findings.quasi));
            self.apart = Some(format!("{why}: they were not compared."));
            return;
        }
        let rows = |number: u64| counted(number, "row", "rows");
        let (required, smallest) = (u64::from(check.required), check.smallest);
        let table = format!("the smallest class of the table has {}", rows(ours));
        if let Some(theirs) = smallest.filter(|theirs| *theirs != ours) {
            self.differs.push(format!("its smallest class in {columns} has {}, and {table}", rows(theirs)));
        } else if ours < required {
            self.differs.push(format!("it says at least {} alike in {columns}, and {table}", rows(required)));
        } else if smallest.is_some() {
            self.agrees.push(format!("a smallest class of {} in {columns}", rows(ours)));
        } else {
            self.agrees.push(format!("at least {} alike in {columns}", rows(required)));
        }
    }

    /// Whatever was released is a column of the table, and has the noise that the table has.
    fn columns(&mut self, manifest: &Manifest, findings: &Findings) {
        let before = self.differs.len();
        let mut strangers = Vec::new();
        for released in &manifest.columns {
            let name = &released.name;
            let Some(ours) = findings.anonymised_column(name) else {
                let is_dropped = findings.columns.iter().any(|column| &column.name == name);
                let of_original = if is_dropped { " (of the original alone)" } else { "" };
                strangers.push(format!("{name}{of_original}"));
                continue;
            };
            let of = |encrypted: bool| if encrypted { "encrypted" } else { "clear" };
            if released.encrypted != ours.encrypted {
                self.differs.push(format!(
                    "{name} is {} in it, and {} here",
                    of(released.encrypted),
                    of(ours.encrypted)
                ));
            } else if ours.encrypted && released.kind != ours.kind {
                self.differs.push(format!("{name} is of kind {} in it, and of kind {} here", released.kind, ours.kind));
            } else if ours.treatment == Treatment::Noised && released.noise == NoiseBy::Nobody {
                self.differs.push(format!("{name} has no noise in it, and has here"));
            }
        }
        if !strangers.is_empty() {
            let columns = if strangers.len() == 1 { "a column" } else { "columns" };
            self.differs.push(format!("it has {columns} that the table has not: {}", listed(&strangers)));
        }
        if self.differs.len() == before {
            self.agrees.push("its columns by name and kind".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::findings;
    use super::*;

    fn differs(change: impl Fn(&mut Findings, &mut Manifest)) -> String {
        let mut findings = findings();
        let mut paper = findings.manifest.take().unwrap();
        change(&mut findings, &mut paper.manifest);
        findings.manifest = Some(paper);
        let fit = fit(&findings).unwrap();
        assert_eq!(fitting(&findings).is_some(), fit.differs.is_empty());
        fit.differs.join("; ").replace('\u{a0}', " ")
    }

    #[test]
    fn what_agrees_is_listed() {
        let mut findings = findings();
        let fit = fit(&findings).unwrap();
        assert_eq!(
            fit.agrees.join("; ").replace('\u{a0}', " "),
            "1,000 rows; 19 rows held back; its columns by name and kind"
        );
        assert!(fit.differs.is_empty());
        assert!(fit.apart.unwrap().starts_with("Its classes are of born, those of this page of born, sex and "));
        findings.manifest.as_mut().unwrap().refused = Some("the signature is wrong".to_owned());
        assert!(super::fit(&findings).is_none() && fitting(&findings).is_none());
    }

    #[test]
    fn another_table_is_noticed() {
        assert_eq!(differs(|_, paper| paper.rows = 500), "it says 500 rows, and the table has 1,000 rows");
        assert_eq!(
            differs(|_, paper| paper.suppressed = Some(1)),
            "it says 1 row held back, and the table has 19 rows held back"
        );
        assert_eq!(differs(|_, paper| paper.suppressed = None), "");
        assert_eq!(
            differs(|_, paper| paper.columns[0].name = "name".to_owned()),
            "it has a column that the table has not: name (of the original alone)"
        );
        assert_eq!(
            differs(|_, paper| paper.columns.iter_mut().for_each(|column| column.name += "2")),
            "it has columns that the table has not: born2, <script>alert('x')</script>&\"2, cost2 and notes2"
        );
        assert_eq!(
            differs(|_, paper| paper.columns[0].kind = "text".to_owned()),
            "born is of kind text in it, and of kind date here"
        );
        assert_eq!(differs(|_, paper| paper.columns[0].encrypted = false), "born is clear in it, and encrypted here");
        assert_eq!(
            differs(|_, paper| paper.columns[2].noise = NoiseBy::Nobody),
            "cost has no noise in it, and has here"
        );
    }

    #[test]
    fn classes_of_the_same_columns_are_compared() {
        let classes = |required, smallest| {
            differs(move |findings, paper| {
                let columns = findings.quasi.iter().rev().cloned().collect();
                paper.classes = Some(ClassCheck { required, columns, passed: true, smallest });
            })
        };
        assert_eq!(classes(10, Some(10)), "");
        assert_eq!(classes(5, None), "");
        assert!(classes(10, Some(12)).ends_with("has 12 rows, and the smallest class of the table has 10 rows"));
        assert!(classes(11, None).starts_with("it says at least 11 rows alike in "));
    }
}
