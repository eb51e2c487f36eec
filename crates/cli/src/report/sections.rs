//! The sections that are tables: what was done, who learned what, what it cost, and the manifest.

use super::findings::{ColumnFinding, Findings, Paper, RunCost, Treatment};
use super::table::{Align, table};
use super::words::{bytes, count, counted, escape, listed, number};
use veil_privacy::SpentEpsilon;
use veil_release::{Manifest, ManifestColumn, NoiseBy};

/// What was done to each column.
pub(super) fn done(findings: &Findings) -> String {
    let row = |column: &ColumnFinding| {
        let (class, name, explained) = told(column, findings);
        let kind = match column.encrypted {
            true => escape(&column.kind),
            false => format!("{} (clear)", escape(&column.kind)),
        };
        vec![
            format!("<b>{}</b>", escape(&column.name)),
            kind,
            format!(r#"<span class="chip {class}">{name}</span>"#),
            explained,
        ]
    };
    let rows: Vec<Vec<String>> = findings.columns.iter().map(row).collect();
    let columns = [
        ("column", Align::Text),
        ("kind", Align::Short),
        ("treatment", Align::Short),
        ("what that means", Align::Text),
    ];
    table("Columns and what was done to them", &columns, &rows)
}

/// A class for the chip, its name, and what it means.
fn told(column: &ColumnFinding, findings: &Findings) -> (&'static str, &'static str, String) {
    let spent = || {
        let epsilon = column.epsilon.map(|spent| SpentEpsilon::from_millionths((spent * 1e6).round() as u64));
        let by =
            if column.awaits.is_empty() { String::new() } else { format!(" ({})", escape(&listed(&column.awaits))) };
        let awaits = match column.awaits.is_empty() {
            true => "",
            false => "; the key holder adds its own noise at the release",
        };
        epsilon.map_or_else(String::new, |spent| format!("epsilon {spent}{by} was spent{awaits}"))
    };
    match column.treatment {
        Treatment::KAnonymised => ("good", "k-anonymised", "all rows of a class have the same value".to_owned()),
        Treatment::Noised => ("good", "noise", spent()),
        Treatment::Computed => ("good", "masked or computed", "values are no longer those of the original".to_owned()),
        Treatment::Unchanged => ("plain", "as it was", "encrypted, with the values of the original".to_owned()),
        Treatment::Clear => ("plain", "clear", "never encrypted: whoever has the file can read it".to_owned()),
        Treatment::Dropped => ("good", "dropped", "in the original alone".to_owned()),
        Treatment::Flag => {
            let rows = findings.risk_of("suppressed_rows").after.unwrap_or(0.0);
            ("plain", "flag", format!("says, encrypted, which {} rows are held back", number(rows)))
        }
    }
}

/// Who learned what while the report was made.
pub(super) fn leakage(findings: &Findings) -> String {
    let row = |learned: &super::findings::Learned| {
        let from: Vec<String> = learned.from.iter().map(|from| format!("<code>{}</code>", escape(from))).collect();
        vec![from.join("<br>"), escape(&learned.p1), escape(&learned.p2)]
    };
    let rows: Vec<Vec<String>> = findings.leakage.iter().map(row).collect();
    let columns =
        [("question", Align::Text), ("the engine learned", Align::Text), ("the key holder learned", Align::Text)];
    table("What the servers learned while this report was made", &columns, &rows)
}

/// What it cost.
pub(super) fn costs(findings: &Findings) -> String {
    let cells = |name: String, run: &RunCost, rows: String| {
        let (up, down) = (bytes(run.bytes_sent), bytes(run.bytes_received));
        vec![name, rows, count(run.rounds), up, down, format!("{:.1}", run.seconds)]
    };
    let row = |run: &RunCost| cells(format!("<code>{}</code>", escape(&run.asked)), run, count(run.rows));
    let sum = |of: fn(&RunCost) -> u64| findings.runs.iter().map(of).sum::<u64>();
    let all = RunCost {
        asked: String::new(),
        rows: 0,
        rounds: sum(|run| run.rounds),
        bytes_sent: sum(|run| run.bytes_sent),
        bytes_received: sum(|run| run.bytes_received),
        seconds: findings.runs.iter().map(|run| run.seconds).sum(),
    };
    let mut rows: Vec<Vec<String>> = findings.runs.iter().map(row).collect();
    rows.push(cells("<b>all</b>".to_owned(), &all, String::new()));
    let columns = [
        ("question", Align::Text),
        ("rows", Align::Number),
        ("rounds", Align::Number),
        ("sent", Align::Number),
        ("received", Align::Number),
        ("seconds", Align::Number),
    ];
    table("Rounds and bytes between the two servers", &columns, &rows)
}

/// The manifest of a release.
pub(super) fn manifest(paper: &Paper) -> String {
    let manifest = &paper.manifest;
    let result = match &paper.refused {
        None => {
            r#"<p class="seal good"><b>✓ Signed by both servers.</b> The signatures of engine and key holder hold, and so do the owner's certificates for their keys.</p>"#
                .to_owned()
        }
        Some(why) => format!(
            r#"<p class="seal careful"><b>✗ Do not believe this manifest.</b> Its signatures do not hold: {}.</p>"#,
            escape(why)
        ),
    };
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
    format!(r#"{result}<dl class="facts">{lines}</dl>{}{learned}"#, table("Released columns", &columns, &rows))
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
