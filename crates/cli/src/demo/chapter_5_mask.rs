//! Masks and noise, in SQL, on cells that stay encrypted.

use super::chapter_1_data::PEOPLE;
use super::parties::Parties;
use super::table::Table;
use super::{Scene, dataset};
use crate::Outcome;

/// What a hospital might hand on.
const SAMPLE: &str = "\
COPY (SELECT mask_dictionary(name, 'names') AS name, mask_shift(born, 30) AS born,
             mask_random(zip, 10000, 99999) AS zip, mask_noise(cost, 0.1) AS cost,
             dp_exponential(diagnosis, 2.0) AS diagnosis, dp_binary(smoker, 1.0) AS smoker,
             admitted, region FROM patients)
TO 'masked.veil.parquet'";

pub(super) fn tell(scene: &mut Scene, parties: &mut Parties) -> Outcome {
    scene.story.chapter("P1 masks and adds noise, on ciphertexts")?;
    let (sql, columns) = statement(scene);
    scene.story.sql(&sql)?;
    let mark = parties.mark()?;
    parties.ask("Masking", &sql)?;
    let cost = parties.since(&mark)?;
    let encrypted = "p1/masked.veil.parquet";
    scene.command(&["decrypt", encrypted, "--keys", "keys/owner.keys", "-o", "masked.csv"])?;
    let masked = Table::read(&scene.at("masked.csv"), usize::MAX)?.0;
    scene.story.pause()?;
    let shown = before_and_after(scene, &masked, &columns, &[]);
    if !shown.rows.is_empty() {
        let by = scene.data.untouched.join(" and ");
        scene.story.say(&format!(
            "The same people before and after, as the owner sees them. They are found again by {by}, which nothing was done to: \
             so could others, and masks alone are no anonymity."
        ))?;
        scene.story.table(&shown)?;
        scene.story.pause()?;
    }
    scene
        .story
        .seen("P1 saw", "its own draws (which it could take off again: so P2 will add its own on release); no value")?;
    scene.story.seen("P2 saw", "numbers behind masks that P1 drew")?;
    scene.story.cost(&cost)
}

/// The statement, and the columns that it changes.
fn statement(scene: &Scene) -> (String, Vec<String>) {
    if scene.data.is_sample {
        let changed = ["name", "born", "zip", "cost", "diagnosis", "smoker"];
        return (SAMPLE.to_owned(), changed.map(str::to_owned).to_vec());
    }
    let data = &scene.data;
    let changed: Vec<String> = data.quasi.iter().chain(&data.noised).cloned().collect();
    let kept = data.untouched.iter().map(|name| dataset::quoted(name));
    let calls: Vec<String> = changed.iter().filter_map(|name| data.masked(name)).chain(kept).collect();
    let table = dataset::quoted(&data.table);
    let sql = format!("COPY (SELECT {}\n      FROM {table})\nTO 'masked.veil.parquet'", calls.join(",\n             "));
    (sql, changed)
}

/// Two rows for everyone whom the story follows: what the owner has, and what became of it, with how many rows are alike in some columns.
pub(super) fn before_and_after(scene: &Scene, after: &Table, columns: &[String], alike: &[String]) -> Table {
    let (data, found) = (&scene.data, after.by(&scene.data.untouched));
    let classes = (data.clear.by(alike), after.by(alike));
    let mut names = vec!["".to_owned()];
    names.extend(columns.iter().cloned());
    names.extend((!alike.is_empty()).then(|| "rows alike".to_owned()));
    let mut rows = Vec::new();
    for person in data.people(PEOPLE).into_iter().filter_map(|row| data.clear.rows.get(row)) {
        let then = found.get(&data.clear.values(person, &data.untouched));
        let then = then.and_then(|rows| rows.first()).and_then(|row| after.rows.get(*row));
        let count = |classes: &std::collections::HashMap<Vec<String>, Vec<usize>>, values: &[String]| {
            (!alike.is_empty()).then(|| classes.get(values).map_or(0, Vec::len).to_string())
        };
        let mut before = vec!["before".to_owned()];
        before.extend(data.clear.values(person, columns));
        before.extend(count(&classes.0, &data.clear.values(person, alike)));
        rows.push(before);
        let mut afterwards = vec!["after".to_owned()];
        match then {
            Some(row) => {
                afterwards.extend(after.values(row, columns));
                afterwards.extend(count(&classes.1, &after.values(row, alike)));
            }
            None => afterwards.push("suppressed".to_owned()),
        }
        rows.push(afterwards);
    }
    Table { names, rows }
}
