//! A sample of patients that never lived, the same for the same seed.

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const FIRST_NAMES: [&str; 24] = [
    "Ada", "Bruno", "Clara", "Dario", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kaja", "Luis", "Mira",
    "Nils", "Olga", "Pablo", "Rosa", "Sven", "Tara", "Umut", "Vera", "Wanda", "Yusuf", "Zoë",
];

const LAST_NAMES: [&str; 24] = [
    "Albers", "Berg", "Costa", "Dietz", "Evers", "Fischer", "Garcia", "Holm", "Ivanova", "Jansen", "Keller", "Lang",
    "Moreau", "Novak", "Olsen", "Peeters", "Quint", "Rossi", "Schulz", "Tanaka", "Urban", "Vogel", "Weber", "Yilmaz",
];

/// Diagnosis, chapter, body or mind, and how often it occurs.
const DIAGNOSES: [(&str, &str, &str, u32); 12] = [
    ("asthma", "respiratory", "somatic", 9),
    ("bronchitis", "respiratory", "somatic", 12),
    ("influenza", "infectious", "somatic", 16),
    ("measles", "infectious", "somatic", 2),
    ("hypertension", "circulatory", "somatic", 20),
    ("angina", "circulatory", "somatic", 5),
    ("type 1 diabetes", "metabolic", "somatic", 2),
    ("type 2 diabetes", "metabolic", "somatic", 10),
    ("depression", "affective", "mental", 12),
    ("bipolar disorder", "affective", "mental", 3),
    ("panic disorder", "anxiety", "mental", 4),
    ("phobia", "anxiety", "mental", 5),
];

const REGIONS: [(&str, u32); 4] = [("north", 20), ("south", 50), ("east", 10), ("west", 80)];

/// CSV of `rows` patients with a header.
pub(crate) fn patients(rows: usize, seed: u64) -> String {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut text = String::from("name,born,sex,zip,diagnosis,smoker,cost,admitted,region\n");
    for _ in 0..rows {
        let (first, last) = (pick(&FIRST_NAMES, &mut rng), pick(&LAST_NAMES, &mut rng));
        let (year, month, day) = (1930 + triangle(&mut rng, 85), rng.random_range(1..=12), rng.random_range(1..=28));
        let sex = if rng.random_bool(0.52) { "female" } else { "male" };
        let (region, zip) = pick(&REGIONS, &mut rng);
        let zip = zip * 1000 + rng.random_range(0..40) * 10;
        let diagnosis =
            DIAGNOSES.choose_weighted(&mut rng, |diagnosis| diagnosis.3).map_or("", |diagnosis| diagnosis.0);
        // One patient in twenty was not asked.
        let smoker = match rng.random_range(0..20) {
            0 => "",
            1..=5 => "yes",
            _ => "no",
        };
        let cents = rng.random_range(4_000..60_000) + triangle(&mut rng, 500) * triangle(&mut rng, 500) * 4;
        let (whole, cents) = (cents / 100, cents % 100);
        let (month_in, day_in, hour) = (rng.random_range(1..=12), rng.random_range(1..=28), rng.random_range(0..24));
        let _ = writeln!(
            text,
            "{first} {last},{year}-{month:02}-{day:02},{sex},{zip},{diagnosis},{smoker},{whole}.{cents:02},\
             2025-{month_in:02}-{day_in:02}T{hour:02}:00:00,{region}"
        );
    }
    text
}

/// The hierarchy of diagnoses, leaf first.
pub(crate) fn diagnosis_hierarchy() -> String {
    DIAGNOSES.iter().map(|(leaf, chapter, part, _)| format!("{leaf},{chapter},{part},*\n")).collect()
}

/// Names to replace names by, one a line.
pub(crate) fn names() -> String {
    FIRST_NAMES.iter().flat_map(|first| LAST_NAMES.iter().map(move |last| format!("{first} {last}\n"))).collect()
}

/// The declaration that a careful owner writes for the patients.
pub(crate) const DECLARATION: &str = r#"[table]
name = "patients"

[column.name]
kind = "text"
max_length = 18
identifier = true

[column.born]
kind = "date"
range = ["1900-01-01", "2030-12-31"]
identifier = true

[column.sex]
kind = "binary"
values = ["female", "male"]
identifier = true

[column.zip]
kind = "integer"
range = [0, 99999]
identifier = true

[column.diagnosis]
kind = "category"
hierarchy = "diagnosis.csv"
identifier = true

[column.smoker]
kind = "binary"
values = ["no", "yes"]
hide_nulls = true       # who was not asked is nobody's business

[column.cost]
kind = "decimal"
scale = 2
range = [0, 250000]

[column.admitted]
kind = "timestamp"
unit = "hour"
range = ["2000-01-01T00:00:00", "2040-01-01T00:00:00"]

[column.region]
kind = "clear"          # WHERE region = 'north' works as on any table

[dictionary.names]      # mask_dictionary(name, 'names') picks from these
file = "names.txt"
pad_to = 1024           # copies hide how many there are
"#;

fn pick<'a, T>(from: &'a [T], rng: &mut StdRng) -> &'a T {
    &from[rng.random_range(0..from.len())]
}

/// A number below `end`, most often around the middle.
fn triangle(rng: &mut StdRng, end: u32) -> u32 {
    (rng.random_range(0..end) + rng.random_range(0..end)) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_repeats_itself() {
        assert_eq!(patients(50, 7), patients(50, 7));
        assert_ne!(patients(50, 7), patients(50, 8));
        assert_eq!(patients(50, 7).lines().count(), 51);
    }
}
