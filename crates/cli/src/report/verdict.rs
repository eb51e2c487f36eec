//! The words at the top of the page.

use super::findings::{Findings, Treatment};
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
    /// What the figures do not cover, or what is wrong.
    pub(super) cautions: Vec<String>,
}

/// Risks below which a table is commonly called safe are for others to choose: here only what looks like no other row is bad news.
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
        Some(2) => (Tone::Good, format!("Every row looks like at least one other in {columns}.")),
        Some(rows) => (Tone::Good, format!("Every row looks like at least {} others in {columns}.", count(rows - 1))),
    };
    Verdict { tone, headline, sentences: sentences(findings), cautions: cautions(findings) }
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
        let share = suppressed / findings.anonymised.rows.max(1) as f64;
        all.push(format!(
            "{} ({}) {} held back.",
            counted(suppressed as u64, "row", "rows"),
            percent(share),
            if suppressed == 1.0 { "is" } else { "are" }
        ));
    }
    all
}

fn cautions(findings: &Findings) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(refused) = findings.manifest.as_ref().and_then(|paper| paper.refused.as_ref()) {
        all.push(format!("The manifest must not be believed: {refused}."));
    }
    let of = |treatments: &[Treatment]| -> Vec<String> {
        let found = findings.not_judged().into_iter().filter(|column| treatments.contains(&column.treatment));
        found.map(|column| column.name.clone()).collect()
    };
    let bare = of(&[Treatment::Unchanged, Treatment::Clear]);
    if !bare.is_empty() {
        all.push(format!(
            "Passed on as {}: {}. The figures do not speak of {}; make sure that nobody is recognised by {}.",
            if bare.len() == 1 { "it was" } else { "they were" },
            listed(&bare),
            if bare.len() == 1 { "it" } else { "them" },
            if bare.len() == 1 { "it" } else { "them" },
        ));
    }
    let changed = of(&[Treatment::Noised, Treatment::Computed, Treatment::KAnonymised]);
    if !changed.is_empty() {
        all.push(format!("Changed, but not among the columns that these figures are about: {}.", listed(&changed)));
    }
    if findings.embedded {
        all.push(
            "One process was both servers when this report was made (--embedded-p2), which protects nothing: it is for trying out.".to_owned(),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::example::{HOSTILE, findings};
    use super::super::findings::Measure;
    use super::*;

    fn set(measures: &mut [Measure], name: &str, value: f64) {
        measures.iter_mut().find(|one| one.measure == name).unwrap().value = Some(value);
    }

    #[test]
    fn words_say_what_the_numbers_say() {
        let found = verdict(&findings());
        assert_eq!(found.tone, Tone::Good);
        assert_eq!(found.headline, format!("Every row looks like at least 9 others in born, sex and {HOSTILE}."));
        let all = found.sentences.join(" ").replace('\u{a0}', " ");
        assert_eq!(
            all,
            "The highest risk of re-identification fell from 100 % to 10 %. 3.1 % of the information in numbers was lost. Categories lost 25 % of \
             their detail. 19 rows (1.9 %) are held back."
        );
        assert!(found.cautions[0].starts_with("Passed on as they were: notes and region."), "{:?}", found.cautions);
        assert_eq!(found.cautions[1], "Changed, but not among the columns that these figures are about: cost.");
        assert!(found.cautions[2].contains("--embedded-p2"));
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
        assert_eq!(found.cautions[0], "The manifest must not be believed: the signature is wrong.");
        assert!(found.cautions.iter().all(|text| !text.contains("embedded")));
        set(&mut bad.risk.after, "smallest_class", 0.0);
        assert_eq!(verdict(&bad).headline, "No row is published.");
        bad.risk.after.retain(|one| one.measure != "smallest_class");
        let unknown = verdict(&bad);
        assert_eq!(unknown.tone, Tone::Careful);
        assert_eq!(unknown.headline, format!("How many rows look alike in born, sex and {HOSTILE} is not known."));
    }
}
