//! The top of the page: title, verdict, what the figures do not say, and tiles.

use super::findings::Findings;
use super::verdict::{Tone, verdict};
use super::words::{count, escape, number, percent};

/// What no figure of the page is about.
const LIMITS: &str = "<b>These figures do not say everything.</b> A class whose rows share a secret still tells it. Other tables, and what somebody \
    knows already, can single people out. Columns that are not judged are in no figure.";

/// Everything above the sections.
pub(super) fn head(findings: &Findings) -> String {
    let verdict = verdict(findings);
    let tone = if verdict.tone == Tone::Good { "good" } else { "careful" };
    let serious: String = verdict.cautions.serious.iter().map(|text| format!("<li>{}</li>", escape(text))).collect();
    let serious = match serious.is_empty() {
        true => String::new(),
        false => format!(r#"<ul class="cautions">{serious}</ul>"#),
    };
    let remarks: String =
        verdict.cautions.remarks.iter().map(|text| format!(r#"<p class="limits">{}</p>"#, escape(text))).collect();
    format!(
        "<header>\n<h1>{}</h1>\n<p class=\"about\">{} from {}, {}</p>\n</header>\n<section class=\"verdict {tone}\" aria-label=\"Verdict\">\n\
         <p class=\"headline\">{}</p>\n<p>{}</p>\n{serious}{remarks}<p class=\"limits\">{LIMITS}</p></section>\n<div class=\"tiles\">{}</div>\n",
        escape(&findings.title),
        escape(&findings.anonymised.file),
        escape(&findings.original.file),
        escape(&findings.created.replace('T', " ").replace('Z', " UTC")),
        escape(&verdict.headline),
        escape(&verdict.sentences.join(" ")),
        tiles(findings)
    )
}

fn tiles(findings: &Findings) -> String {
    let tile = |label: &str, value: String, aside: String| {
        format!(
            "<div class=\"tile\"><p class=\"name\">{label}</p><p class=\"figure\">{}</p><p class=\"aside\">{}</p></div>",
            escape(&value),
            escape(&aside)
        )
    };
    let mut all = String::new();
    let was = |value: Option<f64>, told: &dyn Fn(f64) -> String| {
        value.map_or_else(String::new, |value| format!("before: {}", told(value)))
    };
    let smallest = findings.risk_of("smallest_class");
    if let Some(rows) = smallest.after {
        all += &tile("rows in the smallest class", number(rows), was(smallest.before, &number));
    }
    for (measure, label) in [("prosecutor_max", "highest risk"), ("prosecutor_average", "average risk")] {
        let risk = findings.risk_of(measure);
        if let Some(share) = risk.after {
            all += &tile(label, percent(share), was(risk.before, &percent));
        }
    }
    if let Some(loss) = findings.loss_of("information_loss") {
        all += &tile("lost in numbers", percent(loss / 100.0), "squared errors".to_owned());
    }
    if let Some(loss) = findings.loss_of("generalised_loss").or_else(|| findings.loss_of("precision_loss")) {
        all += &tile("lost in categories", percent(loss), "generalisation".to_owned());
    }
    if let Some(rows) = findings.risk_of("suppressed_rows").after {
        all += &tile("rows held back", number(rows), format!("of {}", count(findings.anonymised.rows)));
    }
    all
}
