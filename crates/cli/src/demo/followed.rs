//! The people whom the story follows: what they were, and what became of them.

use super::chapter_1_data::PEOPLE;
use super::dataset::Dataset;
use super::table::Table;

/// One of them.
pub(super) struct Person {
    /// The row that they were.
    pub(super) before: Vec<String>,
    /// What it became; nothing if it is suppressed.
    pub(super) after: Option<Vec<String>>,
    /// How many rows are alike, before and after.
    pub(super) alike: [usize; 2],
}

/// Those who are in a table, found again in another by the columns that nothing happened to. Rows are alike in the columns given.
pub(super) fn follow(data: &Dataset, before: &Table, after: &Table, alike: &[String]) -> Vec<Person> {
    let places = [before.by(&data.untouched), after.by(&data.untouched)];
    let classes = [before.by(alike), after.by(alike)];
    let mut people = Vec::new();
    for row in data.people(PEOPLE).into_iter().filter_map(|row| data.clear.rows.get(row)) {
        let who = data.clear.values(row, &data.untouched);
        let found = |at: usize, table: &Table| {
            let row = places.get(at)?.get(&who)?.first()?;
            table.rows.get(*row).cloned()
        };
        let count = |at: usize, table: &Table, row: Option<&Vec<String>>| {
            let class = row.and_then(|row| classes.get(at)?.get(&table.values(row, alike)));
            class.map_or(0, Vec::len)
        };
        // Not everybody takes part in a study.
        let Some(then) = found(0, before) else { continue };
        let now = found(1, after);
        let alike = [count(0, before, Some(&then)), count(1, after, now.as_ref())];
        people.push(Person { before: then, after: now, alike });
    }
    people
}

/// Two rows for each of them.
pub(super) fn before_and_after(people: &[Person], before: &Table, after: &Table, columns: &[String]) -> Table {
    let mut names = vec![String::new()];
    names.extend(columns.iter().cloned());
    let mut rows = Vec::new();
    for person in people {
        let mut then = vec!["before".to_owned()];
        then.extend(before.values(&person.before, columns));
        let mut now = vec!["after".to_owned()];
        match &person.after {
            Some(row) => now.extend(after.values(row, columns)),
            None => now.push("suppressed".to_owned()),
        }
        rows.extend([then, now]);
    }
    Table { names, rows }
}
