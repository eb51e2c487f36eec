//! What the figures of a report do not cover, or what is wrong: everything that the reader has to be careful about.

use veil_release::NoiseBy;

use super::findings::{ColumnFinding, Findings, Treatment};
use super::fit::{fit, fitting};
use super::words::{counted, listed};

/// Sentences, the most important first.
pub(super) struct Cautions {
    /// What spoils the good news.
    pub(super) serious: Vec<String>,
    /// What does not.
    pub(super) remarks: Vec<String>,
}

/// From all findings.
pub(super) fn cautions(findings: &Findings) -> Cautions {
    let serious = [
        manifest(findings),
        findings.embedded.then(|| {
            "One process was both servers when this report was made (--embedded-p2), which protects nothing: it is for trying out.".to_owned()
        }),
        highest_risk(findings),
        sizes(findings),
        bare(findings),
        computed(findings),
        partly_noised(findings),
        noise_of_engine_alone(findings),
    ];
    let changed = names(findings.not_judged().into_iter().filter(|column| {
        matches!(column.treatment, Treatment::Noised | Treatment::KAnonymised) && !column.has_noise_of_engine_alone()
    }));
    let remark = changed
        .map(|names| format!("Changed, but not among the columns that these figures are about: {}.", listed(&names)));
    Cautions { serious: serious.into_iter().flatten().collect(), remarks: remark.into_iter().collect() }
}

/// The names of columns, if there are any.
fn names<'a>(columns: impl Iterator<Item = &'a ColumnFinding>) -> Option<Vec<String>> {
    let names: Vec<String> = columns.map(|column| column.name.clone()).collect();
    (!names.is_empty()).then_some(names)
}

fn manifest(findings: &Findings) -> Option<String> {
    if let Some(refused) = findings.manifest.as_ref().and_then(|paper| paper.refused.as_ref()) {
        return Some(format!("The manifest must not be believed: {refused}."));
    }
    let differs = fit(findings)?.differs;
    (!differs.is_empty())
        .then(|| format!("The manifest is signed, and does not fit the table of this page: {}.", differs.join("; ")))
}

/// A single row that looks like no other is in the headline.
fn highest_risk(findings: &Findings) -> Option<String> {
    let risk = findings.risk_of("prosecutor_max").after?;
    (0.5..1.0)
        .contains(&risk)
        .then(|| "For some people a guess is right at least every second time; a larger k would lower that.".to_owned())
}

fn sizes(findings: &Findings) -> Option<String> {
    let rows = |number: u64| counted(number, "row", "rows");
    let (before, after) = (findings.original.rows, findings.anonymised.rows);
    (before != after).then(|| {
        format!(
            "The original has {} and the anonymised table {}: risk before is that of all rows of the original, losses are those of rows in both.",
            rows(before),
            rows(after)
        )
    })
}

fn bare(findings: &Findings) -> Option<String> {
    let is_bare = |column: &&ColumnFinding| matches!(column.treatment, Treatment::Unchanged | Treatment::Clear);
    let bare = names(findings.not_judged().into_iter().filter(is_bare))?;
    let (was, them) = if bare.len() == 1 { ("it was", "it") } else { ("they were", "them") };
    let told = format!(
        "Passed on as {was}: {}. The figures do not speak of {them}; make sure that nobody is recognised by {them}.",
        listed(&bare)
    );
    Some(told + &released(findings, &bare))
}

/// Which of these columns a release of the table has, by its manifest, and with whose noise.
fn released(findings: &Findings, columns: &[String]) -> String {
    let Some(manifest) = fitting(findings) else { return String::new() };
    let noise_of = |name: &String| manifest.columns.iter().find(|column| &column.name == name).map(|of| of.noise);
    let with = |noise: Option<NoiseBy>| -> Option<String> {
        let names: Vec<String> = columns.iter().filter(|name| noise_of(name) == noise).cloned().collect();
        (!names.is_empty()).then(|| listed(&names))
    };
    let parts = [
        with(Some(NoiseBy::Both)).map(|names| format!("has {names} with noise of both servers")),
        with(Some(NoiseBy::P1)).map(|names| format!("has {names} with noise of the engine alone")),
        with(Some(NoiseBy::Nobody)).map(|names| format!("has {names} without noise")),
        with(None).map(|names| format!("leaves out {names}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!(" Of these, the release of the manifest {}.", listed(&parts))
}

fn computed(findings: &Findings) -> Option<String> {
    let is_computed = |column: &&ColumnFinding| column.treatment == Treatment::Computed;
    let computed = names(findings.not_judged().into_iter().filter(is_computed))?;
    Some(format!(
        "Masked or computed, and not among the columns that these figures are about: {}. How is not known to this page: {} may still tell what \
         the original tells.",
        listed(&computed),
        if computed.len() == 1 { "it" } else { "they" }
    ))
}

fn partly_noised(findings: &Findings) -> Option<String> {
    let is_partly = |column: &&ColumnFinding| column.treatment == Treatment::PartlyNoised;
    let partly = names(findings.columns.iter().filter(is_partly))?;
    Some(format!("Noise in some rows only: {}. Other rows may have the values of the original.", listed(&partly)))
}

fn noise_of_engine_alone(findings: &Findings) -> Option<String> {
    let alone = names(findings.columns.iter().filter(|column| column.has_noise_of_engine_alone()))?;
    Some(format!(
        "Noise of the engine alone: {}. Whoever runs the engine can take it off, and the key holder will add none.",
        listed(&alone)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::example::findings;
    use super::*;

    fn serious(change: impl Fn(&mut Findings)) -> Vec<String> {
        let mut findings = findings();
        findings.embedded = false;
        findings.columns.retain(|column| column.treatment != Treatment::Unchanged);
        findings.columns.retain(|column| column.treatment != Treatment::Clear);
        findings.manifest = None;
        change(&mut findings);
        cautions(&findings).serious.into_iter().map(|text| text.replace('\u{a0}', " ")).collect()
    }

    fn cost(findings: &mut Findings) -> &mut ColumnFinding {
        findings.columns.iter_mut().find(|column| column.name == "cost").unwrap()
    }

    #[test]
    fn nothing_to_be_careful_about_leaves_a_remark() {
        assert_eq!(serious(|_| {}), [] as [&str; 0]);
        let remarks = cautions(&findings()).remarks;
        assert_eq!(remarks, ["Changed, but not among the columns that these figures are about: cost."]);
    }

    #[test]
    fn noise_that_does_not_protect_is_said() {
        assert_eq!(
            serious(|findings| cost(findings).treatment = Treatment::PartlyNoised),
            ["Noise in some rows only: cost. Other rows may have the values of the original."]
        );
        assert_eq!(
            serious(|findings| cost(findings).awaits.clear()),
            [
                "Noise of the engine alone: cost. Whoever runs the engine can take it off, and the key holder will add none."
            ]
        );
    }

    #[test]
    fn what_was_computed_may_still_tell() {
        let found = serious(|findings| cost(findings).treatment = Treatment::Computed);
        assert!(found.len() == 1 && found[0].contains("cost. How is not known to this page: it may"), "{found:?}");
        // If it is judged, the figures are about the values as they are.
        let judged = serious(|findings| {
            cost(findings).treatment = Treatment::Computed;
            findings.quasi.push("cost".to_owned());
        });
        assert_eq!(judged, [] as [&str; 0]);
    }

    #[test]
    fn tables_of_different_sizes_are_not_a_note_at_the_end() {
        assert_eq!(
            serious(|findings| findings.original.rows = 2000),
            [
                "The original has 2,000 rows and the anonymised table 1,000 rows: risk before is that of all rows of the original, losses are those of rows in both."
            ]
        );
    }

    #[test]
    fn a_high_risk_is_said() {
        let at = |risk: f64| {
            serious(move |findings| {
                let highest = findings.risk.after.iter_mut().find(|one| one.measure == "prosecutor_max");
                highest.unwrap().value = Some(risk);
            })
        };
        assert!(at(0.49).is_empty() && at(1.0).is_empty());
        assert!(at(0.5)[0].starts_with("For some people a guess is right at least every second time"));
    }

    #[test]
    fn a_release_may_have_left_out_what_was_passed_on() {
        let all = cautions(&findings()).serious;
        let bare = all.iter().find(|text| text.starts_with("Passed on as they were: notes and region.")).unwrap();
        assert!(
            bare.ends_with("Of these, the release of the manifest has notes without noise and leaves out region."),
            "{bare}"
        );
        let with = |noise: NoiseBy, rows: u64| {
            let mut findings = findings();
            let manifest = &mut findings.manifest.as_mut().unwrap().manifest;
            manifest.rows = rows;
            manifest.columns.iter_mut().filter(|column| column.name == "notes").for_each(|column| column.noise = noise);
            cautions(&findings).serious.join(" ")
        };
        assert!(with(NoiseBy::Both, 1000).contains("has notes with noise of both servers and leaves out region."));
        assert!(with(NoiseBy::P1, 1000).contains("has notes with noise of the engine alone and"));
        // A manifest of another table tells nothing about this one.
        let other = with(NoiseBy::Both, 999);
        assert!(!other.contains("leaves out") && other.contains("does not fit the table of this page: it says 999"));
    }
}
