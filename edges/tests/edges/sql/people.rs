//! People, in clear and as a table.

use std::collections::{BTreeMap, HashMap};

use super::world::World;

/// What an encrypted table of people is declared as. Values of `age` and `job` are compared by tags, those of `zip` and `illness` by themselves, and `region` is clear.
const DECLARATION: &str = r#"
[table]
name = "people"
[column.id]
kind = "clear"
type = "Int64"
[column.age]
kind = "integer"
range = [0, 120]
identifier = true
[column.job]
kind = "text"
max_length = 10
identifier = true
[column.zip]
kind = "integer"
range = [0, 99999]
public_range = true
[column.illness]
kind = "category"
hierarchy = "illness.csv"
[column.region]
kind = "clear"
[column.married]
kind = "boolean"
"#;

/// Leaf, group, root.
pub(crate) const ILLNESSES: [[&str; 3]; 5] = [
    ["asthma", "lungs", "*"],
    ["bronchitis", "lungs", "*"],
    ["angina", "heart", "*"],
    ["infarct", "heart", "*"],
    ["arrhythmia", "heart", "*"],
];

/// The columns that people are told apart by.
pub(crate) const COLUMNS: [&str; 5] = ["age", "job", "zip", "illness", "region"];

/// Somebody. A text that is empty is NULL.
#[derive(Clone, Debug)]
pub(crate) struct Person {
    pub(crate) age: i64,
    pub(crate) job: Option<u64>,
    pub(crate) zip: i64,
    pub(crate) illness: usize,
    pub(crate) region: Option<u64>,
    pub(crate) married: bool,
}

impl Person {
    /// What is equal where the values of a column are.
    pub(crate) fn value(&self, column: &str) -> String {
        match column {
            "age" => self.age.to_string(),
            "job" => format!("{:?}", self.job),
            "zip" => self.zip.to_string(),
            "illness" => self.illness.to_string(),
            "region" => format!("{:?}", self.region),
            other => panic!("no column {other}"),
        }
    }
}

/// So many people, of whom the last is like nobody else.
pub(crate) fn people(rows: usize) -> Vec<Person> {
    let person = |row: usize| {
        let of = |by: usize, below: usize| (row * row * by + row / 3 * (by + 2)) % below;
        let somebody = Person {
            age: 20 + of(3, 6) as i64,
            job: (row % 7 != 2).then_some(of(5, 3) as u64),
            zip: 10_000 + 10 * of(11, 4) as i64,
            illness: of(7, 5),
            region: (row % 5 != 4).then_some(of(2, 2) as u64),
            married: of(13, 3) == 1,
        };
        if row + 1 == rows { Person { age: 99, zip: 77_777, ..somebody } } else { somebody }
    };
    (0..rows).map(person).collect()
}

pub(crate) fn csv(people: &[Person]) -> String {
    let mut csv = "id,age,job,zip,illness,region,married\n".to_owned();
    for (id, person) in people.iter().enumerate() {
        let text = |name: &str, value: Option<u64>| value.map_or(String::new(), |value| format!("{name} {value}"));
        let Person { age, job, zip, illness, region, married } = person;
        let (job, region, illness) = (text("job", *job), text("region", *region), ILLNESSES[*illness][0]);
        csv += &format!("{id},{age},{job},{zip},{illness},{region},{married}\n");
    }
    csv
}

/// A table of so many people.
pub(crate) async fn add_people(world: &World, rows: usize) -> Vec<Person> {
    let people = people(rows);
    world.write("illness.csv", &ILLNESSES.map(|path| path.join(",")).join("\n"));
    let (name, csv) = (format!("people_{rows}"), csv(&people));
    world.table(&name, &csv, &DECLARATION.replace("\"people\"", &format!("\"{name}\""))).await;
    people
}

/// The table in one partition, and in three of different lengths.
pub(crate) fn partitioned(rows: usize) -> [String; 2] {
    let (first, second) = (rows / 3 + 1, rows / 3 + 2);
    let part = |condition: String| format!("SELECT * FROM people_{rows} WHERE {condition}");
    let parts = [format!("id < {first}"), format!("id >= {first} AND id < {second}"), format!("id >= {second}")];
    [format!("people_{rows}"), format!("({})", parts.map(part).join(" UNION ALL "))]
}

/// How many rows share each combination of values.
pub(crate) fn classes(people: &[Person], columns: &[&str]) -> HashMap<Vec<String>, u64> {
    let mut classes = HashMap::new();
    let values = |person: &Person| columns.iter().map(|column| person.value(column)).collect::<Vec<_>>();
    people.iter().for_each(|person| *classes.entry(values(person)).or_default() += 1);
    classes
}

/// How many classes there are of every size.
pub(crate) fn histogram(classes: &HashMap<Vec<String>, u64>) -> BTreeMap<u64, u64> {
    let mut sizes = BTreeMap::new();
    classes.values().for_each(|size| *sizes.entry(*size).or_default() += 1);
    sizes
}
