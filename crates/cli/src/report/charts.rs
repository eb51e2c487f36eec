//! The sections that are charts, each with the numbers behind it.

use super::findings::{Both, Findings, Measure, SweepPoint, of_column};
use super::table::{Align, behind, table};
use super::words::{count, escape, listed, number, percent};
use super::{before_after, curve, histogram, losses, trade_off};

fn told(value: Option<f64>, how: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "not known".to_owned(), |value| escape(&how(value)))
}

/// Risk before and after, and what each column has to do with it.
pub(super) fn risk(findings: &Findings) -> String {
    let row = |(name, label, found): (&str, &str, Both<Option<f64>>)| {
        let meaning = findings.risk.after.iter().find(|of| of.measure == name).map_or("", |of| of.meaning.as_str());
        vec![label.to_owned(), told(found.before, percent), told(found.after, percent), escape(meaning)]
    };
    let rows: Vec<Vec<String>> = before_after::shown(findings).map(row).collect();
    let columns =
        [("measure", Align::Text), ("before", Align::Number), ("after", Align::Number), ("meaning", Align::Text)];
    let chart = before_after::chart(findings) + &behind("Risk before and after", &columns, &rows);
    let row = |name: &String| {
        let of = |measures| told(of_column(measures, "contribution", name), percent);
        vec![format!("<b>{}</b>", escape(name)), of(&findings.risk.before), of(&findings.risk.after)]
    };
    let rows: Vec<Vec<String>> = findings.quasi.iter().map(row).collect();
    let columns = [("column", Align::Text), ("before", Align::Number), ("after", Align::Number)];
    let table = table("How much lower the average risk would be without each column", &columns, &rows);
    format!("{chart}<details><summary>Which column makes people findable</summary>{table}</details>")
}

/// Class sizes.
pub(super) fn classes(findings: &Findings) -> String {
    let row = |bin: histogram::Bin| {
        let histogram::Bin { label, classes, share: shares } = bin;
        let share = |of| escape(&percent(of));
        vec![label, count(classes.before), share(shares.before), count(classes.after), share(shares.after)]
    };
    let rows: Vec<Vec<String>> = histogram::bins(&findings.class_sizes).into_iter().map(row).collect();
    let columns = [
        ("rows alike", Align::Text),
        ("classes before", Align::Number),
        ("of the rows", Align::Number),
        ("classes after", Align::Number),
        ("of the rows after", Align::Number),
    ];
    histogram::chart(findings) + &behind("Classes by their size", &columns, &rows)
}

/// Risk against loss, or that nobody asked for it.
pub(super) fn sweep(findings: &Findings) -> String {
    if findings.sweep.is_empty() {
        return r#"<p class="absent">No other k was tried. <code>--sweep 2,5,10,25,50</code> anonymises the original for each, which takes a while.</p>"#
            .to_owned();
    }
    let charts: String = curve::curves(findings).iter().map(trade_off::chart).collect();
    let row = |point: &SweepPoint| {
        let share = |measure| told(point.value(measure), percent);
        vec![
            point.k.to_string(),
            told(point.value("classes"), number),
            told(point.value("smallest_class"), number),
            told(point.value("suppressed_rows"), number),
            share("prosecutor_max"),
            share("prosecutor_average"),
            told(point.value("information_loss"), |loss| percent(loss / 100.0)),
            share("generalised_loss"),
        ]
    };
    let rows: Vec<Vec<String>> = findings.sweep.iter().map(row).collect();
    let columns = [
        ("k", Align::Number),
        ("classes", Align::Number),
        ("smallest", Align::Number),
        ("held back", Align::Number),
        ("highest risk", Align::Number),
        ("average risk", Align::Number),
        ("lost in numbers", Align::Number),
        ("in categories", Align::Number),
    ];
    charts + &behind("Risk and loss for each k", &columns, &rows)
}

/// Losses of columns, or that none could be measured.
pub(super) fn lost(findings: &Findings) -> String {
    let Some(chart) = losses::chart(findings) else {
        return r#"<p class="absent">No column could be measured; the notes below say why.</p>"#.to_owned();
    };
    let row = |loss: &losses::Loss<'_>| {
        vec![
            format!("<b>{}</b>", escape(loss.column)),
            escape(loss.kind),
            escape(&percent(loss.percent / 100.0)),
            loss.measured.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = losses::losses(findings).iter().map(row).collect();
    let columns =
        [("column", Align::Text), ("kind", Align::Short), ("loss", Align::Number), ("measured by", Align::Text)];
    let drawn = behind("Loss of each column", &columns, &rows);
    let row = |one: &Measure| {
        let of = one.column.as_deref().map_or_else(|| "whole table".to_owned(), escape);
        vec![escape(&one.measure), of, told(one.value, number), escape(&one.meaning)]
    };
    let rows: Vec<Vec<String>> = findings.utility.iter().map(row).collect();
    let columns = [("measure", Align::Text), ("of", Align::Text), ("value", Align::Number), ("meaning", Align::Text)];
    let all = table("All measures of loss", &columns, &rows);
    format!("{chart}{}{drawn}<details><summary>All measures</summary>{all}</details>", not_measured(findings))
}

/// The quasi-identifiers whose loss no figure has.
fn not_measured(findings: &Findings) -> String {
    let measured: Vec<&str> = losses::losses(findings).iter().map(|loss| loss.column).collect();
    let left_out = findings.quasi.iter().filter(|name| !measured.contains(&name.as_str()));
    let left_out: Vec<String> = left_out.cloned().collect();
    if left_out.is_empty() {
        return String::new();
    }
    format!(
        r#"<p class="words">Not measured, and in no figure of loss: {}. The notes below say why.</p>"#,
        escape(&listed(&left_out))
    )
}

#[cfg(test)]
mod tests {
    use super::super::example::{HOSTILE, findings};
    use super::*;

    #[test]
    fn a_column_that_no_figure_of_loss_has_is_named() {
        let mut findings = findings();
        assert!(!lost(&findings).contains("Not measured"));
        findings.utility.retain(|one| one.column.as_deref() != Some(HOSTILE) && one.column.as_deref() != Some("sex"));
        let told = lost(&findings);
        assert!(told.contains("in no figure of loss: sex and &lt;script&gt;"), "{told}");
    }

    #[test]
    fn both_curves_are_drawn() {
        let mut findings = findings();
        let told = sweep(&findings);
        assert_eq!(told.matches("<figure").count(), 2);
        assert!(told.contains(
            "<desc id=\"sweep-categories-wide-text\">Risk against loss of categories: leaves under headings."
        ));
        // Where nothing can be drawn, the numbers are there still.
        findings.sweep.iter_mut().for_each(|point| point.measures.clear());
        let told = sweep(&findings);
        assert!(!told.contains("<figure") && told.contains("<table") && told.contains("not known"));
    }
}
