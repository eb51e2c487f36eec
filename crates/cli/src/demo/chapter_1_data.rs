//! The owner's table, in clear.

use std::path::Path;

use indicatif::HumanCount;

use super::{Scene, patients};
use crate::Outcome;

/// People whom the story follows.
pub(super) const PEOPLE: usize = 3;

/// `cut` is the file of which not all rows were taken.
pub(super) fn tell(scene: &mut Scene, cut: Option<&Path>) -> Outcome {
    let (rows, file) = (HumanCount(scene.data.rows() as u64), scene.shown(&format!("{}.csv", scene.data.table)));
    let people = scene.data.people(PEOPLE);
    let (title, columns) = match scene.data.is_sample {
        true => {
            let columns = ["name", "born", "sex", "zip", "diagnosis", "smoker", "cost", "region"];
            ("A hospital has a table of patients", columns.map(str::to_owned).to_vec())
        }
        false => ("The owner has a table", scene.data.clear.names.clone()),
    };
    scene.story.chapter(title)?;
    if scene.data.is_sample {
        scene
            .story
            .say(&format!("{rows} people who never lived, in {file}. Three of them, whom we shall meet again:"))?;
    } else {
        let which = if cut.is_some() { format!("The first {rows} rows") } else { format!("{rows} rows") };
        scene.story.say(&format!("{which} of it, copied to {file}. It begins so:"))?;
        if let Some(cut) = cut {
            let cut = cut.display();
            scene.story.say(&format!("({cut} has more: --rows takes more of them, and more time.)"))?;
        }
    }
    let mut shown = scene.data.clear.head(&columns, PEOPLE);
    if scene.data.is_sample && !people.is_empty() {
        let rows = people.iter().filter_map(|row| scene.data.clear.rows.get(*row));
        shown.rows = rows.map(|row| scene.data.clear.values(row, &columns)).collect();
    }
    scene.story.table(&shown)?;
    if scene.data.is_sample {
        let path = patients::diagnosis_hierarchy().lines().next().unwrap_or_default().replace(',', " -> ");
        scene.story.say(&format!(
            "Diagnoses stand in a tree ({}): {path}. A researcher, alice, would like to work with such a table. She must not \
             learn who is in it; and the hospital keeps it in a cloud that must not read it, but for the region, which stays clear \
             so that queries can choose by it.",
            scene.shown("diagnosis.csv")
        ))?;
    } else {
        scene.story.say(&format!(
            "A declaration was drafted for it, {}: what each column is, and which values may occur. With data that matters, \
             somebody reads it before anything is encrypted.",
            scene.shown(&format!("{}.toml", scene.data.table))
        ))?;
    }
    Ok(())
}
