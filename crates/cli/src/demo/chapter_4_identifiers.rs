//! Which columns identify people, found over ciphertexts.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use indicatif::HumanCount;

use super::parties::Parties;
use super::table::Table;
use super::{Scene, dataset};
use crate::Outcome;

/// Found sets that are shown.
const SHOWN: usize = 8;

pub(super) fn tell(scene: &mut Scene, parties: &mut Parties) -> Outcome {
    scene.story.chapter("P1 finds out which columns identify people, without seeing any")?;
    // A table of the user's may have many columns, and more sets of them.
    let size = if scene.data.is_sample { "" } else { ", max_size => 2" };
    let sql = format!(
        "SELECT columns, kind, rows_at_risk\nFROM identifiers({}, k => {}{size}, rows_at_risk => true)",
        dataset::quoted(&scene.data.table),
        scene.k
    );
    scene.story.sql(&sql)?;
    let mark = parties.mark()?;
    let rows = parties.ask("Looking for identifiers", &sql)?;
    let cost = parties.since(&mark)?;
    let mut shown = Table::of(&rows)?;
    let more = shown.rows.len().saturating_sub(SHOWN);
    shown.rows.truncate(SHOWN);
    scene.story.table(&shown)?;
    if more > 0 {
        scene.story.quote(&format!(".. and {more} more"))?;
    }
    let found = sets(&rows);
    scene.data.cast(&found)?;
    explain(scene, &found)?;
    scene.story.pause()?;
    let fewer = scene.k - 1;
    scene.story.seen(
        "P1 saw",
        &format!("ciphertexts, and for each set that it asked about how many rows are like fewer than {fewer} others; no encrypted value"),
    )?;
    scene.story.seen(
        "P2 saw",
        "how large groups of equal rows are; rows come shuffled, under secret labels, anew for every set",
    )?;
    scene.story.cost(&cost)
}

/// What the owner makes of it.
fn explain(scene: &mut Scene, found: &[(Vec<String>, usize)]) -> Outcome {
    let rows = scene.data.rows();
    let alone = found.iter().filter(|(set, _)| set.len() == 1).max_by_key(|(_, risk)| *risk);
    if let Some((set, risk)) = alone {
        let (name, risk, rows) = (set.join(", "), HumanCount(*risk as u64), HumanCount(rows as u64));
        scene
            .story
            .say(&format!("{name} alone puts {risk} of {rows} people into groups of fewer than {}.", scene.k))?;
    }
    if scene.data.is_sample {
        scene.story.say("So names will go, and born, sex, zip and diagnosis will be made alike.")?;
        return Ok(());
    }
    let mut sentence = format!("So {} will be made alike", scene.data.quasi.join(", "));
    if !scene.data.names.is_empty() {
        sentence += &format!(", {} will not be released, since it nearly names a person", scene.data.names.join(", "));
    }
    if let Some(noised) = &scene.data.noised {
        sentence += &format!(", and {noised} gets noise");
    }
    scene.story.say(&format!("{sentence}. (The demo decides this by itself; with data that matters, somebody does.)"))
}

/// Sets of columns, with the rows that each puts at risk.
fn sets(batches: &[RecordBatch]) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    for batch in batches {
        let lists = batch.column_by_name("columns").and_then(|column| column.as_list_opt::<i32>());
        let counts = batch.column_by_name("rows_at_risk").and_then(|column| column.as_primitive_opt::<Int64Type>());
        let Some((lists, counts)) = lists.zip(counts) else { continue };
        for row in 0..batch.num_rows() {
            let names = lists.value(row);
            let names = names.as_string_opt::<i32>().map(|names| names.iter().flatten().map(str::to_owned).collect());
            let risk = if counts.is_valid(row) { counts.value(row).max(0) as usize } else { 0 };
            found.push((names.unwrap_or_default(), risk));
        }
    }
    found
}
