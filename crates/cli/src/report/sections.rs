//! The sections that are tables: what was done, who learned what, and what it cost.

use super::findings::{ColumnFinding, Findings, RunCost, Treatment};
use super::table::{Align, table};
use super::words::{bytes, count, escape, listed, number};
use veil_privacy::SpentEpsilon;

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

/// A class for the chip, its name, and what it means. Good is only what the types are certain of.
fn told(column: &ColumnFinding, findings: &Findings) -> (&'static str, &'static str, String) {
    let (class, name, explained) = match column.treatment {
        Treatment::KAnonymised => ("good", "k-anonymised", "all rows of a class have the same value".to_owned()),
        Treatment::Noised if column.has_noise_of_engine_alone() => ("plain", "noise", noise(column)),
        Treatment::Noised => ("good", "noise", noise(column)),
        Treatment::PartlyNoised => {
            let most = format!("other rows may have none; where it is most, {}", noise(column));
            ("plain", "noise in some rows", most)
        }
        Treatment::Computed => {
            let unknown = "the types do not tell how: it may be undone, or be the original still";
            ("plain", "masked or computed", unknown.to_owned())
        }
        Treatment::Unchanged => match column.was {
            Some(_) => ("plain", "as it was", "encrypted, with the values of the original".to_owned()),
            None => ("plain", "as it was", "encrypted, and nothing was done to it".to_owned()),
        },
        Treatment::Clear => ("plain", "clear", "never encrypted: whoever has the file can read it".to_owned()),
        Treatment::Dropped => return dropped(column),
        Treatment::Flag => {
            let rows = findings.risk_of("suppressed_rows").after.map(|rows| format!("{} ", number(rows)));
            let rows = escape(&rows.unwrap_or_default());
            return ("plain", "flag", format!("says, encrypted, which {rows}rows are held back"));
        }
    };
    (class, name, explained + &origin(column))
}

/// How much noise there is, and whose.
fn noise(column: &ColumnFinding) -> String {
    let spent = SpentEpsilon::from_millionths((column.epsilon.unwrap_or(0.0) * 1e6).round() as u64);
    match column.awaits.is_empty() {
        true => {
            format!("epsilon {spent} was spent on noise of the engine alone: whoever runs the engine can take it off")
        }
        false => format!(
            "epsilon {spent} ({}) was spent on noise of the engine; the key holder adds its own at the release",
            escape(&listed(&column.awaits))
        ),
    }
}

/// Where a column comes from, if its name does not say it.
fn origin(column: &ColumnFinding) -> String {
    match &column.was {
        Some(name) if *name == column.name => String::new(),
        Some(name) => format!("; in the original it is {}", escape(name)),
        None if column.encrypted => "; the original has no such column".to_owned(),
        None => String::new(),
    }
}

fn dropped(column: &ColumnFinding) -> (&'static str, &'static str, String) {
    let others = || escape(&listed(&column.perhaps_in));
    match (column.perhaps_in.is_empty(), column.encrypted) {
        (true, _) => ("good", "dropped", "in the original alone, and in no other column".to_owned()),
        (false, true) => (
            "plain",
            "not by itself",
            format!("no column of its own; whether its values went into {}, the types do not tell", others()),
        ),
        (false, false) => (
            "plain",
            "not by this name",
            format!("no column of this name; whether {} has its values, nothing tells", others()),
        ),
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

#[cfg(test)]
mod tests {
    use super::super::example::findings;
    use super::*;

    /// What the page tells about the column cost.
    fn cost(change: impl Fn(&mut ColumnFinding)) -> (&'static str, &'static str, String) {
        let mut findings = findings();
        let column = findings.columns.iter_mut().find(|column| column.name == "cost").unwrap();
        change(column);
        let column = column.clone();
        told(&column, &findings)
    }

    #[test]
    fn it_is_said_whose_noise_it_is_and_where() {
        let (class, name, text) = cost(|_| {});
        assert_eq!((class, name), ("good", "noise"));
        assert_eq!(
            text,
            "epsilon 0.5 (Laplace) was spent on noise of the engine; the key holder adds its own at the release"
        );
        let (class, name, text) = cost(|of| of.awaits.clear());
        assert_eq!((class, name), ("plain", "noise"));
        assert!(text.contains("of the engine alone: whoever runs the engine can take it off"), "{text}");
        let (class, name, text) = cost(|of| of.treatment = Treatment::PartlyNoised);
        assert_eq!((class, name), ("plain", "noise in some rows"));
        assert!(text.starts_with("other rows may have none; where it is most, epsilon 0.5 (Laplace)"), "{text}");
    }

    #[test]
    fn only_what_is_certain_is_good() {
        let (class, _, text) = cost(|of| of.treatment = Treatment::Computed);
        assert!(class == "plain" && text.ends_with("it may be undone, or be the original still"), "{text}");
        let dropped = |encrypted: bool, perhaps: &[&str]| {
            cost(|of| {
                (of.treatment, of.encrypted) = (Treatment::Dropped, encrypted);
                of.perhaps_in = perhaps.iter().map(|name| (*name).to_owned()).collect();
            })
        };
        assert_eq!(dropped(true, &[]), ("good", "dropped", "in the original alone, and in no other column".to_owned()));
        let (class, name, text) = dropped(true, &["pay", "<b>"]);
        assert_eq!((class, name), ("plain", "not by itself"));
        assert_eq!(text, "no column of its own; whether its values went into pay and &lt;b&gt;, the types do not tell");
        let (class, name, text) = dropped(false, &["address"]);
        assert_eq!((class, name), ("plain", "not by this name"));
        assert_eq!(text, "no column of this name; whether address has its values, nothing tells");
    }

    #[test]
    fn other_names_are_told() {
        let as_it_was = |was: Option<&str>| {
            let change = |of: &mut ColumnFinding| {
                (of.treatment, of.was) = (Treatment::Unchanged, was.map(str::to_owned));
            };
            cost(change).2
        };
        assert_eq!(as_it_was(Some("cost")), "encrypted, with the values of the original");
        assert_eq!(as_it_was(Some("price")), "encrypted, with the values of the original; in the original it is price");
        assert_eq!(as_it_was(None), "encrypted, and nothing was done to it; the original has no such column");
    }
}
