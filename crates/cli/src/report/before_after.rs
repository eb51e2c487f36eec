//! The chart of risks: each before and after.

use super::bars::{self, Row};
use super::findings::{Both, Findings};
use super::svg::{Series, figure};
use super::words::percent;

/// Measures that are shares, as the page calls them; the last two need a population.
pub(super) const SHOWN: [(&str, &str); 8] = [
    ("prosecutor_max", "highest risk of a person"),
    ("prosecutor_average", "average risk of a person"),
    ("share_below_2", "rows that look like no other"),
    ("share_below_5", "rows like fewer than 4 others"),
    ("share_below_10", "rows like fewer than 9 others"),
    ("journalist_max", "highest risk in the population"),
    ("journalist_average", "average risk in the population"),
    ("uniques", "people unique in the population"),
];

/// The measures that both tables have. Without a population, the last ones say nothing of their own.
pub(super) fn shown(findings: &Findings) -> impl Iterator<Item = (&'static str, &'static str, Both<Option<f64>>)> {
    let of_population = |name: &str| name.starts_with("journalist") || name.starts_with("uniques");
    SHOWN.into_iter().filter_map(move |(name, label)| {
        let found = findings.risk_of(name);
        let told = found.before.is_some() || found.after.is_some();
        (told && (findings.population.is_some() || !of_population(name))).then_some((name, label, found))
    })
}

/// The chart.
pub(super) fn chart(findings: &Findings) -> String {
    let rows: Vec<Row> = shown(findings)
        .map(|(_, label, found)| Row {
            label: label.to_owned(),
            aside: String::new(),
            bars: vec![
                (Series::Before, found.before.map(|share| 100.0 * share)),
                (Series::After, found.after.map(|share| 100.0 * share)),
            ],
        })
        .collect();
    let told = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), percent);
    let each: Vec<String> = shown(findings)
        .map(|(_, label, found)| format!("{label}: {} before, {} after", told(found.before), told(found.after)))
        .collect();
    figure("Risk before and after", &format!("Pairs of bars. {}.", each.join("; ")), |layout| {
        bars::draw("risk", layout, &rows, 100.0)
    })
}
