//! Risk before and after, and what was lost: measured over ciphertexts, and by the owner in clear.

use std::collections::HashMap;

use super::chapter_6_k_anonymize::Anonymised;
use super::parties::Parties;
use super::table::Table;
use super::{Failure, Scene, broken, dataset};
use crate::Outcome;

/// Measures of risk that are shown, with what they mean.
const RISK: [(&str, &str); 6] = [
    ("rows", "rows that are published"),
    ("classes", "groups of rows that look alike"),
    ("smallest_class", "rows of the smallest group"),
    ("share_below_2", "rows that look like no other"),
    ("prosecutor_max", "chance to find the easiest person"),
    ("prosecutor_average", "chance to find a person, on average"),
];

/// Measures of what was lost.
const LOSS: [(&str, &str); 4] = [
    ("precision_loss", "how far up their tree categories stand"),
    ("generalised_loss", "how many leaves a category stands for"),
    ("entropy_loss", "how much categories no longer tell"),
    ("information_loss", "squared errors of numbers, of their variation"),
];

pub(super) fn tell(scene: &mut Scene, parties: &mut Parties, anonymised: &Anonymised) -> Outcome {
    scene.story.chapter("What is the risk now, and what is the table still good for?")?;
    let quasi = dataset::listed(&scene.data.quasi);
    let risk = |table: &str| {
        format!("SELECT measure, value FROM risk({table}, contributions => false,\n    quasi => ({quasi}))")
    };
    let mark = parties.mark()?;
    let mut measured = Vec::new();
    // A table of the user's may have no column but those that were made alike. Both tables are as k_anonymize read and wrote them.
    let by_order = if scene.data.is_sample { "" } else { ", by_order => true" };
    let utility = format!("SELECT measure, column_name, value FROM utility(study, anon{by_order})");
    for sql in [risk("study"), risk("anon"), utility] {
        scene.story.sql(&sql)?;
        measured.push(measures(&Table::of(&parties.ask("Assessing", &sql)?)?));
    }
    let cost = parties.since(&mark)?;
    let [before, after, lost] = measured.as_slice() else { return Ok(()) };
    let row = |(name, meaning): &(&str, &str)| {
        vec![(*meaning).to_owned(), shown(name, before.get(*name)), shown(name, after.get(*name))]
    };
    scene.story.table(&Table::new(&["risk", "before", "after"], RISK.iter().map(row).collect()))?;
    let row = |(name, meaning): &(&str, &str)| {
        let value = lost.get(*name)?;
        let percent = if *name == "information_loss" { *value } else { 100.0 * value };
        Some(vec![(*meaning).to_owned(), format!("{percent:.1} %")])
    };
    let losses: Vec<Vec<String>> = LOSS.iter().filter_map(row).collect();
    if !losses.is_empty() {
        scene.story.table(&Table::new(&["loss", "0 % is as it was"], losses))?;
    }
    check(after, anonymised)?;
    scene.story.say(
        "The owner counts the same rows, classes and smallest class in what it decrypted: the servers measured rightly what \
         they did not see.",
    )?;
    scene.story.pause()?;
    scene.story.seen("P1 saw", "these measures, how many classes there are of every size, and whether published categories stand above the original ones")?;
    scene.story.seen("P2 saw", "how many classes there are of every size, in no order")?;
    scene.story.cost(&cost)
}

/// What was measured over ciphertexts against what the owner counts.
fn check(after: &HashMap<String, f64>, anonymised: &Anonymised) -> Result<(), Failure> {
    let counted = [
        ("rows", anonymised.rows.rows.len()),
        ("classes", anonymised.classes),
        ("smallest_class", anonymised.smallest),
        ("suppressed_rows", anonymised.suppressed),
    ];
    for (name, expected) in counted {
        if after.get(name).is_none_or(|found| *found != expected as f64) {
            let found = after.get(name).map_or_else(|| "nothing".to_owned(), f64::to_string);
            return Err(broken(&format!("{name} was measured as {found}, and the owner counts {expected}")));
        }
    }
    Ok(())
}

/// Measures of the whole table by name.
fn measures(table: &Table) -> HashMap<String, f64> {
    let whole = |row: &&Vec<String>| table.values(row, &["column_name".to_owned()]).iter().all(String::is_empty);
    let entry = |row: &Vec<String>| {
        let values = table.values(row, &["measure".to_owned(), "value".to_owned()]);
        let [name, value] = values.as_slice() else { return None };
        Some((name.clone(), value.parse().ok()?))
    };
    table.rows.iter().filter(whole).filter_map(entry).collect()
}

fn shown(name: &str, value: Option<&f64>) -> String {
    match (value, name) {
        (None, _) => String::new(),
        (Some(value), "rows" | "classes" | "smallest_class") => format!("{value:.0}"),
        (Some(value), _) => format!("{:.1} %", 100.0 * value),
    }
}
