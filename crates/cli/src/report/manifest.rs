//! The section of the manifest: what was released, whether the signatures hold, whether it fits this table, and what nobody signed.

use super::findings::{Findings, Paper};
use super::fit::{Fit, fit};
use super::table::{Align, table};
use super::words::{count, counted, escape};
use veil_privacy::SpentEpsilon;
use veil_release::{Manifest, ManifestColumn, NoiseBy};

/// The section, or that there is no manifest.
pub(super) fn manifest(findings: &Findings) -> String {
    match &findings.manifest {
        Some(paper) => given(paper, fit(findings)),
        None => {
            r#"<p class="absent">None was given. <code>veil fetch</code> writes one beside the rows; <code>--manifest</code> shows it here.</p>"#
                .to_owned()
        }
    }
}

/// What signatures say, and no more.
const UNSIGNED: &str = "The signatures say that engine and key holder both signed this text, for this recipient. They do not say that the release \
    was made of the table of this page, which another table with the same numbers would fit as well, nor that its query computed what it says. \
    Whose noise is in a column, versions, times and what was learned are the engine's word.";

fn given(paper: &Paper, fit: Option<Fit>) -> String {
    let manifest = &paper.manifest;
    let lines: String = facts(paper)
        .into_iter()
        .map(|(name, fact)| format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(&fact)))
        .collect();
    let column = |of: &ManifestColumn| {
        let noise = match of.noise {
            NoiseBy::Nobody => "none",
            NoiseBy::P1 => "of the engine, who can take it off",
            NoiseBy::Both => "of both servers",
        };
        let kind = if of.encrypted { escape(&of.kind) } else { format!("{} (clear)", escape(&of.kind)) };
        let spent = match of.epsilon {
            0 => String::new(),
            spent => SpentEpsilon::from_millionths(spent).to_string(),
        };
        vec![format!("<b>{}</b>", escape(&of.name)), kind, spent, noise.to_owned()]
    };
    let columns = [("column", Align::Text), ("kind", Align::Short), ("epsilon", Align::Short), ("noise", Align::Short)];
    let rows: Vec<Vec<String>> = manifest.columns.iter().map(column).collect();
    let learned: String = manifest.leakage.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
    let learned = match learned.is_empty() {
        true => String::new(),
        false => format!("<h3>What the servers learned from the release</h3><ul>{learned}</ul>"),
    };
    format!(
        r#"{}<dl class="facts">{lines}</dl>{}{learned}"#,
        seal(paper, fit),
        table("Released columns", &columns, &rows)
    )
}

/// Whether the manifest can be believed, and what of it agrees with the page.
fn seal(paper: &Paper, fit: Option<Fit>) -> String {
    let of = |class: &str, text: &str| format!(r#"<p class="seal {class}">{text}</p>"#);
    if let Some(why) = &paper.refused {
        let why = escape(why);
        return of("careful", &format!("<b>✗ Do not believe this manifest.</b> Its signatures do not hold: {why}."));
    }
    let Fit { agrees, differs, apart } = fit.unwrap_or_default();
    let apart = apart.map_or_else(String::new, |why| format!(" {}", escape(&why)));
    let signed = "The signatures of engine and key holder hold, and so do the owner's certificates for their keys.";
    let compared = match differs.is_empty() {
        true => of(
            "good",
            &format!(
                "<b>✓ Signed by both servers.</b> {signed} What can be compared agrees with this page: {}.{apart}",
                escape(&agrees.join("; "))
            ),
        ),
        false => of(
            "careful",
            &format!(
                "<b>✗ Signed by both servers, and it does not fit the table of this page.</b> {signed} But {}.{apart}",
                escape(&differs.join("; "))
            ),
        ),
    };
    format!(r#"{compared}<p class="words">{UNSIGNED}</p>"#)
}

fn facts(paper: &Paper) -> Vec<(&'static str, String)> {
    let manifest: &Manifest = &paper.manifest;
    let classes = manifest.classes.as_ref().map_or_else(
        || "not asked for by the policy".to_owned(),
        |check| {
            let found = if check.passed { "found by the key holder" } else { "NOT found by the key holder" };
            let smallest = check.smallest.map_or_else(String::new, |rows| format!(", the smallest of {}", count(rows)));
            let (required, columns) = (check.required, check.columns.join(", "));
            format!("at least {required} rows alike in {columns}: {found}{smallest}")
        },
    );
    let spent: Vec<String> =
        manifest.spent.iter().map(|(name, of)| format!("{name} {}", SpentEpsilon::from_millionths(*of))).collect();
    let joined = |pairs: Vec<String>| if pairs.is_empty() { "nothing".to_owned() } else { pairs.join(", ") };
    vec![
        ("file", paper.file.clone()),
        ("release", manifest.release.to_string()),
        ("recipient", manifest.recipient.clone()),
        ("created", manifest.created.clone()),
        ("query", manifest.query.clone()),
        ("rows", format!("{} in {}", count(manifest.rows), counted(manifest.parcels.into(), "parcel", "parcels"))),
        ("held back", manifest.suppressed.map_or_else(|| "unknown to the servers".to_owned(), count)),
        ("classes", classes),
        ("epsilon spent", joined(spent)),
        ("key set", manifest.key_set.to_string()),
        ("owner", manifest.owner.to_string()),
        ("software", joined(manifest.software.iter().map(|(party, of)| format!("{party} {of}")).collect())),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::example::findings;
    use super::*;

    #[test]
    fn a_signature_is_not_called_more_than_it_is() {
        let mut findings = findings();
        let good = manifest(&findings);
        assert!(good.contains("seal good") && good.contains("What can be compared agrees with this page: 1,000"));
        assert!(good.contains("they were not compared.") && good.contains("nor that its query computed what it says"));
        findings.anonymised.rows = 50;
        let other = manifest(&findings);
        assert!(other.contains("seal careful") && !other.contains("seal good") && !other.contains("✓"), "{other}");
        assert!(other.contains("But it says 1,000\u{a0}rows, and the table has 50\u{a0}rows."), "{other}");
        findings.manifest.as_mut().unwrap().refused = Some("the signature is <wrong>".to_owned());
        let refused = manifest(&findings);
        assert!(refused.contains("Do not believe this manifest") && refused.contains("&lt;wrong&gt;"), "{refused}");
        assert!(!refused.contains("Signed by both servers") && !refused.contains("agrees"), "{refused}");
    }
}
