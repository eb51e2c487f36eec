//! The page: one HTML file that needs nothing else, from findings alone.

use super::findings::{Findings, SweepSettings, TableFile};
use super::head::head;
use super::words::{bytes, counted, escape, listed, percent};
use super::{charts, manifest, sections};

const STYLE: &str = include_str!("style.css");

/// The whole page.
pub(super) fn page(findings: &Findings) -> String {
    let title = escape(&findings.title);
    let body: String = [
        head(findings),
        section("done", "What was done", &done_words(findings), &sections::done(findings)),
        section("risk", "Risk, before and after", RISK, &charts::risk(findings)),
        section("classes", "How many look alike", CLASSES, &charts::classes(findings)),
        section("sweep", "Risk against loss", &sweep_words(findings), &charts::sweep(findings)),
        section("losses", "What each column lost", LOSSES, &charts::lost(findings)),
        section("leakage", "Who learned what", leakage_words(findings), &sections::leakage(findings)),
        section("costs", "Rounds and bytes", costs_words(findings), &sections::costs(findings)),
        section("manifest", "The manifest", MANIFEST, &manifest::manifest(findings)),
        notes(findings),
    ]
    .concat();
    // No script, no network: the browser holds the page to it.
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="{}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{STYLE}</style>
</head>
<body>
<main>
{body}</main>
<footer>Made by {} from encrypted tables. {}</footer>
</body>
</html>
"#,
        escape(&findings.software),
        escape(&findings.software),
        match findings.embedded {
            true => "One process had the tables and the keys.",
            false => "No encrypted value was decrypted for this page.",
        },
    )
}

const RISK: &str = "Each pair of bars compares the original, striped, with the anonymised table, solid: shorter is safer. \
    A person's risk is the chance that somebody who knows them, and knows that they are in the table, picks their row.";
const CLASSES: &str = "Rows that look alike form a class, and only one in so many of its rows can be the right one. \
    Each pair of bars is the share of rows in classes of that size: the larger the classes, the better people are hidden.";
const SWEEP: &str = "Each k asks for at least k rows alike. Points further down are safer, points further to the left are closer to \
    the original: choose the k after which risk falls little and loss grows much.";
const LOSSES: &str = "Zero is the column as it was, 100\u{a0}% one value for all. Numbers and dates are measured by their squared errors, \
    categories by how much their headings cover.";
const MANIFEST: &str = "A release comes with a manifest that both servers sign: who received what, under which policy.";

fn section(id: &str, title: &str, words: &str, body: &str) -> String {
    format!(
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>\n<p class=\"words\">{words}</p>\n{body}\n</section>\n"
    )
}

/// Who could have seen what depends on whether there were two servers.
fn leakage_words(findings: &Findings) -> &'static str {
    match findings.embedded {
        true => {
            "One process made this report with the keys and the tables (<code>--embedded-p2</code>): whoever ran it could read every value. The \
             table says what two servers that are apart would each have learned."
        }
        false => {
            "Two servers made this report: the engine has the tables and no key, the key holder the keys and no table. Neither saw an encrypted \
             value; columns that are clear the engine reads like anybody who has the files. The table says what each learned beside, as its \
             program declares it. What anonymising itself told them, <code>EXPLAIN</code> says for the statement that did it."
        }
    }
}

fn costs_words(findings: &Findings) -> &'static str {
    match findings.embedded {
        true => {
            "Each question runs in rounds: the engine sends masked ciphertexts, the key holder answers. Here both were one process, and none of \
             this went over a network."
        }
        false => "Each question runs in rounds: the engine sends masked ciphertexts, the key holder answers.",
    }
}

/// Tables that were made otherwise are not compared without saying so.
fn sweep_words(findings: &Findings) -> String {
    let Some(SweepSettings { rounds, suppress }) = findings.sweep_settings else { return SWEEP.to_owned() };
    let allowed = match suppress {
        0.0 => "no row held back".to_owned(),
        share => format!("at most {} of the rows held back", escape(&percent(share))),
    };
    let here = findings.share_held_back().map_or_else(String::new, |share| match share {
        0.0 => "In the table of this page no row is held back".to_owned(),
        share => format!("In the table of this page {} of the rows are held back", escape(&percent(share))),
    });
    let here = if here.is_empty() { "The table of this page".to_owned() } else { here + ", and it" };
    format!(
        "{SWEEP} These tables were made for this page and are not kept: each with at most {}, {allowed}, and otherwise as \
         <code>k_anonymize</code> does by itself. {here} may have been made with other settings: then it need not lie on the curve.",
        counted(rounds.into(), "round of clustering", "rounds of clustering"),
    )
}

fn done_words(findings: &Findings) -> String {
    let (original, anonymised) = (&findings.original, &findings.anonymised);
    let table =
        |name: &str, of: &TableFile| format!("{name} has {} ({})", counted(of.rows, "row", "rows"), bytes(of.bytes));
    format!(
        "{}, {}. People are recognised by <b>{}</b>: these columns together are what risk is about.",
        table("The original", original),
        table("the anonymised table", anonymised),
        escape(&listed(&findings.quasi)),
    )
}

fn notes(findings: &Findings) -> String {
    let notes: String = findings.notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    match notes.is_empty() {
        true => String::new(),
        false => {
            section("notes", "Notes", "What the servers had to say about their answers.", &format!("<ul>{notes}</ul>"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::{HOSTILE, findings};
    use super::*;

    /// Elements that a page opens, in their order.
    fn tags(page: &str) -> Vec<&str> {
        let after_open = page.split('<').skip(1);
        after_open.map(|text| text.split([' ', '>', '/', '\n']).next().unwrap_or_default()).collect()
    }

    #[test]
    fn the_page_has_all_sections_charts_and_numbers() {
        let page = page(&findings());
        for id in ["done", "risk", "classes", "sweep", "losses", "leakage", "costs", "manifest", "notes"] {
            assert!(page.contains(&format!("<h2 id=\"{id}\">")), "{id}");
        }
        for chart in ["risk", "classes", "sweep", "losses"] {
            for layout in ["wide", "narrow"] {
                assert_eq!(page.matches(&format!("<title id=\"{chart}-{layout}-title\">")).count(), 1, "{chart}");
            }
        }
        assert_eq!(page.matches("<svg").count(), page.matches("role=\"img\"").count());
        for text in [
            "1,000\u{a0}rows",
            "3.1\u{a0}%",
            "epsilon 0.5",
            "k = 25",
            "6.00\u{a0}MiB",
            "1.1</span>",
            "Signed by both servers",
            "1,000\u{a0}rows; 19\u{a0}rows held back; its columns by name and kind",
            "They do not say that the release was made of the table of this page",
            "These figures do not say everything.",
            "at most 10\u{a0}rounds of clustering, no row held back",
            "In the table of this page 1.9\u{a0}% of the rows are held back",
        ] {
            assert!(page.contains(text), "{text}");
        }
    }

    #[test]
    fn nothing_from_outside_is_markup_and_nothing_is_loaded() {
        let page = page(&findings());
        assert!(!tags(&page).contains(&"script") && !page.contains("alert('x')"));
        // Once in the title, once in the heading, and wherever the column is named.
        assert!(page.matches("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;").count() > 8);
        assert!(!page.contains(HOSTILE));
        // What is next to nothing, in a tile and in a table.
        assert!(page.contains("\"figure\">&lt;\u{a0}0.01\u{a0}%") && page.contains("<span>&lt;\u{a0}0.01\u{a0}%"));
        assert!(!page.contains("<\u{a0}") && !page.contains("&amp;lt;"));
        for outside in ["http:", "https:", "src=", "@import", "url(\"", "url(h", "<iframe", "<object", "<form"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn one_process_is_not_called_two_servers() {
        let mut findings = findings();
        findings.embedded = true;
        let one = page(&findings);
        assert!(
            one.contains("whoever ran it could read every value") && one.contains("none of this went over a network")
        );
        assert!(!one.contains("Neither saw") && !one.contains("No encrypted value was decrypted"));
        findings.embedded = false;
        let two = page(&findings);
        assert!(two.contains("Neither saw an encrypted value; columns that are clear the engine reads"));
        assert!(two.contains("No encrypted value was decrypted") && !two.contains("could read every value"));
    }

    #[test]
    fn elements_are_closed_and_ids_are_unique() {
        let page = page(&findings());
        for element in
            ["section", "table", "tr", "td", "svg", "details", "figure", "text", "div", "p", "ul", "li", "dl"]
        {
            let opened = tags(&page).iter().filter(|tag| **tag == element).count();
            assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
        }
        let mut ids: Vec<&str> =
            page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }

    #[test]
    fn what_is_not_there_is_said() {
        let mut findings = findings();
        (findings.sweep, findings.utility, findings.manifest) = (Vec::new(), Vec::new(), None);
        (findings.notes, findings.population) = (Vec::new(), None);
        let page = page(&findings);
        assert!(page.contains("No other k was tried") && page.contains("No column could be measured"));
        assert!(page.contains("None was given") && !page.contains("id=\"notes\""));
        assert!(!page.contains("population"), "risks of a population without one");
        assert_eq!(page.matches("<svg").count(), 4);
    }

    #[test]
    fn findings_survive_json() {
        let findings = findings();
        let json = serde_json::to_string(&findings).unwrap();
        let back: Findings = serde_json::from_str(&json).unwrap();
        assert_eq!(back, findings);
        assert_eq!(page(&back), page(&findings));
    }
}
