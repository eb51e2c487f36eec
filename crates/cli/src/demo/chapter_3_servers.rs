//! Both servers start, and P1 shows what it has: bytes.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use rand::RngCore;
use veil_keys::{OwnerKeys, os_rng};
use veil_owner::decrypt_batch;

use super::canaries::Canaries;
use super::parties::{Parties, Tokens, write_secret};
use super::table::Table;
use super::{Failure, Scene, dataset, hexadecimal, rules};

/// Rows of cells that are shown, and columns.
const ROWS: usize = 3;
const COLUMNS: usize = 4;

pub(super) fn tell(scene: &mut Scene, keys: &OwnerKeys) -> Result<Parties, Failure> {
    scene.story.chapter("Two servers start: one with the data, one with the keys")?;
    scene.story.say(
        "The owner says what may be asked about the table, and signs it: of how many people at least, and how many numbers a \
         day P2 may show P1. Rows are people, and count once.",
    )?;
    let questions = rules::about_questions(scene)?;
    rules::sign(scene, &questions)?;
    let steward = token();
    let alice = token();
    write_secret(&scene.at("p1/tokens"), format!("steward {steward} admin\nalice {alice}\n"))?;
    write_secret(&scene.at("alice/token"), format!("alice {alice}\n"))?;
    let table = scene.data.named(&scene.encrypted());
    let canaries = Arc::new(Canaries::new(scene.data.canaries()));
    let story = &mut scene.story;
    let shown = |folder: &str, words: &[&str]| story.command(folder, words);
    let mut parties =
        Parties::start(&scene.program, &scene.folder, &table, &Tokens { steward }, canaries, scene.quiet, shown)?;
    scene.story.pause()?;
    scene.story.say(
        "All that passes between the processes goes through a wire of this demo, which counts it and looks for words that must \
         not be in it. The owner's steward asks P1 over Arrow Flight SQL, as any client could. What does P1 have?",
    )?;
    let columns = shown_columns(scene);
    let sql = format!("SELECT {} FROM {} LIMIT {ROWS}", dataset::listed(&columns), dataset::quoted(&scene.data.table));
    scene.story.sql(&sql)?;
    let mark = parties.mark()?;
    let cells = parties.ask("Looking", &sql)?;
    let cost = parties.since(&mark)?;
    scene.story.table(&bytes(&cells))?;
    scene
        .story
        .say("Every value is another row of bytes, equal values too. With the owner's keys, the same bytes are:")?;
    let opened = cells.iter().map(|batch| decrypt_batch(keys, batch)).collect::<Result<Vec<_>, _>>()?;
    scene.story.table(&Table::of(&opened)?)?;
    scene.story.pause()?;
    let clear = match scene.data.clear_columns().as_slice() {
        [] => String::new(),
        clear => format!("; and {}, which the owner left in clear", clear.join(", ")),
    };
    scene.story.seen("P1 saw", &format!("the first of the two tables{clear}"))?;
    scene.story.p2_saw("numbers behind masks", &cost)?;
    scene.story.cost(&cost)?;
    Ok(parties)
}

/// Encrypted columns, names first.
fn shown_columns(scene: &Scene) -> Vec<String> {
    let wanted = |name: &&String| scene.data.masked(name).is_some();
    scene.data.clear.names.iter().filter(wanted).take(COLUMNS).cloned().collect()
}

/// The ends of cells, and their lengths.
fn bytes(cells: &[RecordBatch]) -> Table {
    let names = cells.first().map(|batch| batch.schema().fields().iter().map(|field| field.name().clone()).collect());
    let cell = |column: &dyn Array, row: usize| {
        let bytes = match column.data_type() {
            DataType::Binary => column.as_binary_opt::<i32>().map(|column| column.value(row)),
            DataType::LargeBinary => column.as_binary_opt::<i64>().map(|column| column.value(row)),
            DataType::BinaryView => column.as_binary_view_opt().map(|column| column.value(row)),
            _ => None,
        };
        bytes.filter(|_| column.is_valid(row)).map_or_else(String::new, |bytes| {
            let end = bytes.get(bytes.len().saturating_sub(6)..).unwrap_or_default();
            format!("..{} ({} B)", hexadecimal(end), bytes.len())
        })
    };
    let row = |(batch, row): (&RecordBatch, usize)| batch.columns().iter().map(|column| cell(column, row)).collect();
    let rows = cells.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row))).map(row).collect();
    Table { names: names.unwrap_or_default(), rows }
}

/// 128 random bits.
fn token() -> String {
    let mut bytes = [0; 16];
    os_rng().fill_bytes(&mut bytes);
    hexadecimal(&bytes)
}
