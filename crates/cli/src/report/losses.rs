//! The chart of losses: how much each column has lost.

use super::bars::{self, Row};
use super::findings::Findings;
use super::svg::{Series, figure};
use super::words::percent;

/// Losses that a column is drawn by, the first that it has; what turns each into percent, and what it is.
pub(super) const DRAWN: [(&str, f64, &str); 5] = [
    ("information_loss", 1.0, "squared errors, in percent of the variation"),
    ("generalised_loss", 100.0, "leaves that a heading stands for, of all others"),
    ("precision_loss", 100.0, "steps up the hierarchy, of all steps"),
    ("entropy_loss", 100.0, "bits that categories no longer tell"),
    ("range_loss", 100.0, "width of classes, of the whole range"),
];

/// A column, what it lost in percent, and how that is measured.
pub(super) struct Loss<'a> {
    pub(super) column: &'a str,
    pub(super) kind: &'a str,
    pub(super) percent: f64,
    pub(super) measured: &'static str,
}

/// The quasi-identifiers that were measured.
pub(super) fn losses(findings: &Findings) -> Vec<Loss<'_>> {
    findings.quasi.iter().filter_map(|column| loss(findings, column)).collect()
}

fn loss<'a>(findings: &'a Findings, column: &'a str) -> Option<Loss<'a>> {
    let kind = findings.columns.iter().find(|of| of.name == column).map_or("", |of| of.kind.as_str());
    DRAWN.iter().find_map(|(measure, scale, measured)| {
        let value = findings.loss_of_column(measure, column)?;
        Some(Loss { column, kind, percent: scale * value, measured })
    })
}

/// The chart; nothing if no column was measured.
pub(super) fn chart(findings: &Findings) -> Option<String> {
    let losses = losses(findings);
    let max = losses.iter().map(|loss| loss.percent).fold(0.0, f64::max);
    let row = |loss: &Loss<'_>| Row {
        label: loss.column.to_owned(),
        aside: loss.kind.to_owned(),
        bars: vec![(Series::After, Some(loss.percent))],
    };
    let rows: Vec<Row> = losses.iter().map(row).collect();
    let each: Vec<String> =
        losses.iter().map(|loss| format!("{}: {}", loss.column, percent(loss.percent / 100.0))).collect();
    let description = format!("One bar a column. {}.", each.join("; "));
    let chart =
        || figure("Loss of each column", &description, |layout| bars::draw("losses", layout, &rows, max.max(10.0)));
    (!losses.is_empty()).then(chart)
}
