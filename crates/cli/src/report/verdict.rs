//! The words at the top of the page.

use super::cautions::{Cautions, cautions};
use super::findings::Findings;
use super::words::{count, counted, listed, percent};

/// Whether the words are good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Careful,
}

/// What came out, in plain sentences.
pub(super) struct Verdict {
    pub(super) tone: Tone,
    pub(super) headline: String,
    pub(super) sentences: Vec<String>,
    /// What to be careful about.
    pub(super) cautions: Cautions,
}

/// Good news are good only if there is nothing to be careful about. Risks below which a table is commonly called safe are for others to
/// choose: here a risk of a half is the least that is bad news.
pub(super) fn verdict(findings: &Findings) -> Verdict {
    let smallest = findings.risk_of("smallest_class").after.map(|rows| rows as u64);
    let alone = findings.risk_of("share_below_2").after.unwrap_or(0.0);
    let columns = listed(&findings.quasi);
    let (tone, headline) = match smallest {
        None => (Tone::Careful, format!("How many rows look alike in {columns} is not known.")),
        Some(0) => (Tone::Careful, "No row is published.".to_owned()),
        Some(1) => {
            (Tone::Careful, format!("{} of the published rows still look like no other in {columns}.", percent(alone)))
        }
        Some(2) => (Tone::Careful, format!("Every published row looks like at least one other in {columns}.")),
        Some(rows) => {
            (Tone::Good, format!("Every published row looks like at least {} others in {columns}.", count(rows - 1)))
        }
    };
    let cautions = cautions(findings);
    let tone = if cautions.serious.is_empty() { tone } else { Tone::Careful };
    Verdict { tone, headline, sentences: sentences(findings), cautions }
}

fn sentences(findings: &Findings) -> Vec<String> {
    let mut all = Vec::new();
    let risk = findings.risk_of("prosecutor_max");
    if let (Some(before), Some(after)) = (risk.before, risk.after) {
        all.push(match after < before {
            true => {
                format!("The highest risk of re-identification fell from {} to {}.", percent(before), percent(after))
            }
            false => {
                format!(
                    "The highest risk of re-identification is {}; before it was {}.",
                    percent(after),
                    percent(before)
                )
            }
        });
    }
    let numbers = findings
        .loss_of("information_loss")
        .map(|loss| format!("{} of the information in numbers was lost.", percent(loss / 100.0)));
    let categories = findings
        .loss_of("generalised_loss")
        .map(|loss| format!("Categories lost {} of their detail.", percent(loss)))
        .or_else(|| {
            let loss = findings.loss_of("precision_loss")?;
            Some(format!("Categories stand {} of the way up their hierarchy.", percent(loss)))
        });
    all.extend(numbers.into_iter().chain(categories));
    if let Some(suppressed) = findings.risk_of("suppressed_rows").after.filter(|rows| *rows > 0.0) {
        let share = findings.share_held_back().unwrap_or(0.0);
        all.push(format!(
            "{} ({}) {} held back.",
            counted(suppressed as u64, "row", "rows"),
            percent(share),
            if suppressed == 1.0 { "is" } else { "are" }
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::example::{HOSTILE, findings};
    use super::super::findings::{ColumnFinding, Measure, Treatment};
    use super::*;

    fn set(measures: &mut [Measure], name: &str, value: f64) {
        measures.iter_mut().find(|one| one.measure == name).unwrap().value = Some(value);
    }

    /// Findings that leave nothing to be careful about.
    fn good() -> Findings {
        let mut good = findings();
        good.embedded = false;
        let is_bare = |column: &ColumnFinding| matches!(column.treatment, Treatment::Unchanged | Treatment::Clear);
        good.columns.retain(|column| !is_bare(column));
        good.manifest.as_mut().unwrap().manifest.columns.retain(|column| column.name != "notes");
        good
    }

    #[test]
    fn words_say_what_the_numbers_say() {
        let found = verdict(&good());
        assert_eq!(found.tone, Tone::Good);
        assert_eq!(
            found.headline,
            format!("Every published row looks like at least 9 others in born, sex and {HOSTILE}.")
        );
        let all = found.sentences.join(" ").replace('\u{a0}', " ");
        assert_eq!(
            all,
            "The highest risk of re-identification fell from 100 % to 10 %. 3.1 % of the information in numbers was lost. Categories lost 25 % of \
             their detail. 19 rows (1.9 %) are held back."
        );
        // What was changed and is not judged is no reason to be careful.
        assert!(found.cautions.serious.is_empty() && found.cautions.remarks.len() == 1);
    }

    /// Each of these alone.
    #[test]
    fn news_are_good_only_if_nothing_spoils_them() {
        type Spoil = fn(&mut Findings);
        let spoilt: [(&str, Spoil); 10] = [
            ("a manifest that was refused", |of| of.manifest.as_mut().unwrap().refused = Some("no".to_owned())),
            ("a manifest of another table", |of| of.manifest.as_mut().unwrap().manifest.rows = 7),
            ("both servers in one process", |of| of.embedded = true),
            ("a column as it was", |of| of.columns[3].treatment = Treatment::Unchanged),
            ("a clear column", |of| of.columns[3].treatment = Treatment::Clear),
            ("a column that was computed", |of| of.columns[3].treatment = Treatment::Computed),
            ("noise in some rows", |of| of.columns[3].treatment = Treatment::PartlyNoised),
            ("noise of the engine alone", |of| of.columns[3].awaits.clear()),
            ("a risk of a half", |of| set(&mut of.risk.after, "prosecutor_max", 0.5)),
            ("tables of different sizes", |of| of.original.rows = 2000),
        ];
        for (what, spoil) in spoilt {
            let mut findings = good();
            spoil(&mut findings);
            let found = verdict(&findings);
            assert_eq!(found.tone, Tone::Careful, "{what}");
            assert!(!found.cautions.serious.is_empty(), "{what}");
        }
        let mut pairs = good();
        set(&mut pairs.risk.after, "smallest_class", 2.0);
        assert_eq!(verdict(&pairs).tone, Tone::Careful);
    }

    #[test]
    fn bad_news_are_told_first() {
        let mut bad = findings();
        set(&mut bad.risk.after, "smallest_class", 1.0);
        set(&mut bad.risk.after, "share_below_2", 0.25);
        set(&mut bad.risk.after, "prosecutor_max", 1.0);
        bad.manifest.as_mut().unwrap().refused = Some("the signature is wrong".to_owned());
        bad.embedded = false;
        let found = verdict(&bad);
        assert_eq!(found.tone, Tone::Careful);
        assert!(found.headline.starts_with("25\u{a0}% of the published rows still look like no other"));
        assert!(found.sentences[0].contains("is 100\u{a0}%; before it was 100"));
        let serious = found.cautions.serious;
        assert_eq!(serious[0], "The manifest must not be believed: the signature is wrong.");
        assert!(serious.iter().all(|text| !text.contains("embedded")));
        set(&mut bad.risk.after, "smallest_class", 0.0);
        assert_eq!(verdict(&bad).headline, "No row is published.");
        bad.risk.after.retain(|one| one.measure != "smallest_class");
        let unknown = verdict(&bad);
        assert_eq!(unknown.tone, Tone::Careful);
        assert_eq!(unknown.headline, format!("How many rows look alike in born, sex and {HOSTILE} is not known."));
    }
}
