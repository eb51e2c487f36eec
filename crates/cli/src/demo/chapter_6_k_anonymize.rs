//! Every row like k - 1 others, clustered over ciphertexts.

use indicatif::HumanCount;

use super::dataset::{self, STUDY};
use super::followed::{before_and_after, follow};
use super::parties::Parties;
use super::table::Table;
use super::{Failure, Scene, broken};

/// What came of it, as the owner reads it.
pub(super) struct Anonymised {
    /// Those who took part, in clear.
    pub(super) study: Table,
    /// Rows that are left of them.
    pub(super) rows: Table,
    /// Rows that are suppressed.
    pub(super) suppressed: usize,
    /// Classes, and the smallest of them.
    pub(super) classes: usize,
    pub(super) smallest: usize,
}

pub(super) fn tell(scene: &mut Scene, parties: &mut Parties) -> Result<Anonymised, Failure> {
    let (k, table, data) = (scene.k, dataset::quoted(&scene.data.table), &scene.data);
    let study = data.rows().min(STUDY);
    // Of a table of the user's nothing is dropped: by what is not released the owner finds people again.
    let drop = match data.names.is_empty() || !data.is_sample {
        true => String::new(),
        false => format!(" drop => ({}),", dataset::listed(&data.names)),
    };
    let quasi = dataset::listed(&data.quasi);
    let sql = format!(
        "CREATE TABLE anon AS SELECT * FROM k_anonymize(study, k => {k},\n    quasi => ({quasi}),\n   {drop} rounds => 3, suppress => 0.02)"
    );
    scene.story.chapter(&format!("P1 makes everybody one of at least {k}, and does not see which"))?;
    if study < scene.data.rows() {
        let (study, rows) = (HumanCount(study as u64), HumanCount(scene.data.rows() as u64));
        scene.story.say(&format!(
            "{study} of the {rows} take part in a study: so this takes less than a minute, and not hours."
        ))?;
    }
    let mark = parties.mark()?;
    let copies = ["study", "anon"].map(|name| format!("COPY (SELECT * FROM {name}) TO '{name}.veil.parquet'"));
    let statements = [format!("CREATE TABLE study AS SELECT * FROM {table} LIMIT {STUDY}"), sql];
    for sql in statements.iter().chain(&copies) {
        scene.story.sql(sql)?;
        parties.ask("Anonymising", sql)?;
    }
    let cost = parties.since(&mark)?;
    let summary = "SELECT clusters, small_clusters, small_rows, suppressed_rows, classes FROM k_anonymize_summary()";
    let summary = Table::of(&parties.ask("Looking", summary)?)?;
    for name in ["study", "anon"] {
        let (encrypted, clear) = (format!("p1/{name}.veil.parquet"), format!("{name}.csv"));
        scene.command(&["decrypt", &encrypted, "--keys", "keys/owner.keys", "-o", &clear])?;
    }
    let study_rows = Table::read(&scene.at("study.csv"), usize::MAX)?.0;
    let rows = Table::read(&scene.at("anon.csv"), usize::MAX)?.0;
    let classes = rows.by(&scene.data.quasi);
    let smallest = classes.values().map(Vec::len).min().unwrap_or(0);
    let (classes, suppressed) = (classes.len(), study.saturating_sub(rows.rows.len()));
    if smallest < k && !rows.rows.is_empty() {
        return Err(broken(&format!("a class of {smallest} rows came out, where {k} was asked for")));
    }
    scene.story.pause()?;
    scene.story.say(&format!(
        "The owner looks: {} rows in {classes} classes, the smallest of {smallest}; {suppressed} rows are suppressed. Numbers and \
         dates became the mean of their class, categories the lowest heading that all of it have.",
        HumanCount(rows.rows.len() as u64)
    ))?;
    tell_people(scene, &study_rows, &rows)?;
    let seen =
        |name: &str| summary.place(name).and_then(|at| summary.rows.last()?.get(at).cloned()).unwrap_or_default();
    scene.story.seen(
        "P1 saw",
        &format!(
            "at which rows clusters began; that {} of {} were smaller than {k}, how small, and which they joined; that {} rows are \
             suppressed. Not who is in which, nor who is suppressed",
            seen("small_clusters"),
            seen("clusters"),
            seen("suppressed_rows")
        ),
    )?;
    scene.story.seen(
        "P2 saw",
        "numbers behind masks; from how much there was to do, how many clusters joined others, and how many classes there are",
    )?;
    scene.story.cost(&cost)?;
    Ok(Anonymised { study: study_rows, rows, suppressed, classes, smallest })
}

/// The people whom the story follows. A name stands before alone, for it is not released.
fn tell_people(scene: &mut Scene, study: &Table, rows: &Table) -> Result<(), Failure> {
    let (data, names) = (&scene.data, scene.data.names.iter().take(1));
    let people = follow(data, study, rows, &data.quasi);
    if people.is_empty() {
        return Ok(());
    }
    let columns: Vec<String> = names.chain(&data.quasi).cloned().collect();
    let mut shown = before_and_after(&people, study, rows, &columns);
    shown.names.push("rows alike".to_owned());
    let alike = people.iter().flat_map(|person| person.alike);
    for (at, (row, alike)) in shown.rows.iter_mut().zip(alike).enumerate() {
        if let Some(name) = row.get_mut(1).filter(|_| at % 2 == 1 && alike > 0 && !data.names.is_empty()) {
            name.clear();
        }
        row.extend((alike > 0).then(|| alike.to_string()));
    }
    scene.story.table(&shown)?;
    scene.story.pause()
}
