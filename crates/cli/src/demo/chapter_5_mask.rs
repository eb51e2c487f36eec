//! Masks and noise, in SQL, on cells that stay encrypted.

use super::followed::{before_and_after, follow};
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
    let people = follow(&scene.data, &scene.data.clear, &masked, &[]);
    if !people.is_empty() {
        let by = scene.data.untouched.join(" and ");
        scene.story.say(&format!(
            "The same people before and after, as the owner sees them. They are found again by {by}, which nothing was done to: \
             so could others, and masks alone are no anonymity."
        ))?;
        scene.story.table(&before_and_after(&people, &scene.data.clear, &masked, &columns))?;
        scene.story.pause()?;
    }
    scene.story.seen(
        "P1 saw",
        "its own draws (which it could take off again: so P2 will add its own on release); no encrypted value",
    )?;
    scene.story.p2_saw("numbers behind masks that P1 drew", &cost)?;
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
