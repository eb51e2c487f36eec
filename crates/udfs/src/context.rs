//! What the functions of a session share: dictionaries and zeros that came with encrypted files, and randomness.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use datafusion::arrow::array::{AsArray, BinaryArray};
use datafusion::common::plan_err;
use datafusion::error::Result;
use veil_cells::{Cell, CellArray, CellType, KeyId, Lanes, SideTables};
use veil_protocols::Randomness;

use crate::VeilOptions;
use crate::function::external;

/// Shared by the functions and operators of a session. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct VeilContext(Arc<RwLock<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    dictionaries: HashMap<String, Vec<(String, Arc<Dictionary>)>>,
    zeros: HashMap<KeyId, Arc<BinaryArray>>,
    /// The operating system's unless a test says otherwise.
    randomness: Option<Randomness>,
    repeatable: Option<(u64, Randomness)>,
}

/// An encrypted dictionary.
#[derive(Debug)]
pub struct Dictionary {
    /// The type of its entries.
    pub cell_type: CellType,
    /// Its entries.
    pub entries: BinaryArray,
}

impl VeilContext {
    /// With randomness of its own, for tests.
    pub fn with_randomness(randomness: Randomness) -> Self {
        let context = Self::default();
        context.write(|shared| shared.randomness = Some(randomness));
        context
    }

    /// Randomness for a call.
    pub fn randomness(&self, options: &VeilOptions) -> Randomness {
        self.write(|shared| match options.seed {
            Some(seed) => match &shared.repeatable {
                Some((known, randomness)) if *known == seed => randomness.clone(),
                _ => shared.repeatable.insert((seed, Randomness::fixed(seed))).1.clone(),
            },
            None => {
                shared.repeatable = None;
                shared.randomness.get_or_insert_with(Randomness::os).clone()
            }
        })
    }

    /// Remembers what travels with a table's files.
    pub fn add_side_tables(&self, table: &str, tables: &SideTables) -> Result<()> {
        for (name, batch) in tables.iter() {
            let Some(entries) = batch.column_by_name("cell").and_then(|cells| cells.as_binary_opt::<i32>()) else {
                continue;
            };
            let Some(cell_type) = CellType::of_field(batch.schema().field(0)).map_err(external)? else { continue };
            match name.strip_prefix("dictionary.") {
                Some(dictionary) => {
                    let entry = Arc::new(Dictionary { cell_type, entries: entries.clone() });
                    self.write(|shared| {
                        let known = shared.dictionaries.entry(dictionary.to_owned()).or_default();
                        known.retain(|(owner, _)| owner != table);
                        known.push((table.to_owned(), entry));
                    });
                }
                None if name == SideTables::ZEROS => {
                    self.write(|shared| shared.zeros.insert(cell_type.key, Arc::new(entries.clone())));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// A dictionary by its name, or by table and name.
    pub fn dictionary(&self, key: KeyId, name: &str) -> Result<Arc<Dictionary>> {
        let (table, plain) = match name.split_once('.') {
            Some((table, plain)) => (Some(table), plain),
            None => (None, name),
        };
        self.read(|shared| {
            let all = shared.dictionaries.get(plain).map(Vec::as_slice).unwrap_or_default();
            let fits = |(owner, dictionary): &&(String, Arc<Dictionary>)| {
                table.is_none_or(|table| table == owner) && dictionary.cell_type.key == key
            };
            let found: Vec<_> = all.iter().filter(fits).collect();
            match found.as_slice() {
                [(_, dictionary)] => Ok(dictionary.clone()),
                [] => {
                    let mut known: Vec<&str> = shared.dictionaries.keys().map(String::as_str).collect();
                    known.sort_unstable();
                    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                    plan_err!(
                        "there is no dictionary '{name}' of this column's key set (known: {known}): declare [dictionary.{plain}] \
                         when encrypting, and read the file with CREATE EXTERNAL TABLE"
                    )
                }
                // Files of one table bring the same dictionary.
                [(_, first), rest @ ..] if rest.iter().all(|(_, other)| other.entries == first.entries) => {
                    Ok(first.clone())
                }
                [(first, _), ..] => {
                    plan_err!("several tables have a dictionary '{plain}': name the table too, as in '{first}.{plain}'")
                }
            }
        })
    }

    /// A cell of zeros with these lanes, from the pool that the owner shipped. All who ask for the same lanes get the same
    /// cell, which is right for a value that everyone may know to be the same.
    pub fn zero(&self, key: KeyId, lanes: Lanes) -> Result<Cell> {
        let pool = self.read(|shared| shared.zeros.get(&key).cloned());
        let total = lanes.total();
        let zeros = pool.as_ref().map(|pool| CellArray::Binary(pool));
        let cell = zeros.and_then(|zeros| {
            let cells: Vec<Cell> = (0..total).filter_map(|row| Cell::from_bytes(zeros.bytes(row)?).ok()).collect();
            let terms: Vec<_> = cells.iter().filter_map(|cell| cell.terms().first()).collect();
            let first = terms.first()?;
            let neighbours = terms
                .iter()
                .enumerate()
                .all(|(at, term)| term.seed == first.seed && term.index == first.index + at as u16);
            let bodies: Vec<u64> = cells.iter().filter_map(|cell| cell.bodies().first().copied()).collect();
            let magnitude = (lanes.value == 1).then_some(0);
            let shape = Lanes { tag: false, ..lanes };
            (neighbours && bodies.len() == total)
                .then(|| Cell::fresh(key, shape, magnitude, first.seed, first.index, &bodies).ok())?
                .map(|mut zero| {
                    // A pool of an earlier version does not say that it is of no row.
                    if cells.iter().any(|cell| cell.provenance().is_none()) {
                        zero.set_provenance(None);
                    }
                    zero
                })
        });
        match cell {
            Some(cell) => Ok(cell),
            None => plan_err!(
                "no pool of encrypted zeros came with the files of this key set: read them with CREATE EXTERNAL TABLE, and \
                 encrypt with zero_pool of at least {total}"
            ),
        }
    }

    fn read<T>(&self, look: impl FnOnce(&Shared) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Shared) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PartialEq for VeilContext {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for VeilContext {}

impl Hash for VeilContext {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}
