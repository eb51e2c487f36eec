//! P1's table of tags: read once, asked about often.

use std::collections::HashMap;

use rand::CryptoRng;
use veil_cells::{Seed, phase_of_tag};
use veil_slots::plain;

use super::{MAX_COLUMNS, MAX_SEEDS, NO_SAMPLE, PLACE_BYTES};
use crate::lift_tags::TagColumn;
use crate::{Limits, ProtocolError};

/// A column that rows can be equal in.
#[derive(Clone, Debug)]
pub enum Source {
    /// Encrypted: equality tags. A row without a sample is NULL, which equals a NULL.
    Tags(TagColumn),
    /// Clear: any numbers that are equal where values are.
    Clear(Vec<u64>),
}

/// Columns of one table.
#[derive(Debug)]
pub struct TagTable {
    rows: usize,
    columns: Vec<Column>,
}

#[derive(Debug)]
enum Column {
    Tags {
        /// The chunks that its samples come from.
        seeds: Vec<Seed>,
        /// For every row the number of its seed and its index.
        places: Vec<Option<(u32, u16)>>,
        /// For every row its body.
        bodies: Vec<u64>,
    },
    Clear(Vec<u64>),
}

impl Column {
    fn tags(column: TagColumn) -> Self {
        let (mut numbers, mut seeds) = (HashMap::new(), Vec::new());
        let mut last: Option<(Seed, u32)> = None;
        let rows = column.samples.len();
        let (mut places, mut bodies) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        for sample in column.samples {
            bodies.push(sample.map(|sample| sample.body).unwrap_or_default());
            places.push(sample.map(|sample| match last {
                // Neighbours mostly share a chunk.
                Some((seed, number)) if seed == sample.seed => (number, sample.index),
                _ => {
                    let number = *numbers.entry(sample.seed).or_insert_with(|| {
                        seeds.push(sample.seed);
                        seeds.len() as u32 - 1
                    });
                    last = Some((sample.seed, number));
                    (number, sample.index)
                }
            }));
        }
        Self::Tags { seeds, places, bodies }
    }
}

impl TagTable {
    /// Columns of so many rows each.
    pub fn new(columns: Vec<Source>, rows: usize) -> Result<Self, ProtocolError> {
        if columns.len() > MAX_COLUMNS {
            let text = format!("rows are compared in at most {MAX_COLUMNS} columns, not {}", columns.len());
            return Err(ProtocolError::Misuse(text));
        }
        for (column, source) in columns.iter().enumerate() {
            let found = match source {
                Source::Tags(tags) => tags.samples.len(),
                Source::Clear(labels) => labels.len(),
            };
            if found != rows {
                return Err(ProtocolError::Misuse(format!("column {column} has {found} rows instead of {rows}")));
            }
        }
        let encrypted = columns.iter().filter(|source| matches!(source, Source::Tags(_))).count();
        if rows > Self::max_rows(encrypted) {
            let most = Self::max_rows(encrypted);
            let text = format!("rows are compared in {encrypted} encrypted columns for up to {most} rows, not {rows}");
            return Err(ProtocolError::Misuse(text));
        }
        let column = |source| match source {
            Source::Tags(tags) => Column::tags(tags),
            Source::Clear(labels) => Column::Clear(labels),
        };
        Ok(Self { rows, columns: columns.into_iter().map(column).collect() })
    }

    /// The most rows of a table with so many encrypted columns: a query about all of them stays within what P2 takes at once.
    pub fn max_rows(encrypted: usize) -> usize {
        let reserved = 16 * MAX_SEEDS + (1 << 16);
        (Limits::default().bytes - reserved) / (8 + PLACE_BYTES * encrypted)
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// The encrypted columns, as a set.
    pub(super) fn encrypted(&self) -> u64 {
        let bit = |(at, column): (usize, &Column)| u64::from(matches!(column, Column::Tags { .. })) << at;
        self.columns.iter().enumerate().map(bit).sum()
    }

    /// Refuses a set with a column that there is not.
    pub(super) fn check(&self, set: u64) -> Result<(), ProtocolError> {
        match set.checked_shr(self.columns.len() as u32).unwrap_or_default() {
            0 => Ok(()),
            _ => Err(ProtocolError::Misuse(format!("set {set:#b} has a column beyond the {}", self.columns.len()))),
        }
    }

    /// What every column adds to the phase of each row, in one run. NULLs and clear values have uniform labels, drawn for the run: sums
    /// of small numbers would say that 1 and 2 is what 2 and 1 is.
    pub(super) fn phases(&self, rng: &mut impl CryptoRng) -> Vec<Vec<u64>> {
        let phases = |column: &Column| match column {
            Column::Tags { places, bodies, .. } => {
                let null = phase_of_tag(plain::uniform(rng));
                places.iter().zip(bodies).map(|(place, body)| if place.is_some() { *body } else { null }).collect()
            }
            Column::Clear(labels) => {
                let mut drawn = HashMap::new();
                let mut draw = |label| *drawn.entry(label).or_insert_with(|| phase_of_tag(plain::uniform(rng)));
                labels.iter().map(|label| draw(*label)).collect()
            }
        };
        self.columns.iter().map(phases).collect()
    }

    /// The samples of encrypted columns, without bodies, as they are sent: seeds, and places column by column.
    pub(super) fn places(&self, columns: u64) -> Result<(Vec<u8>, Vec<u8>), ProtocolError> {
        let wanted = self.columns.iter().enumerate().filter(|(at, _)| columns >> at & 1 == 1);
        let (mut known, mut all_seeds) = (HashMap::new(), Vec::new());
        let mut all_places = Vec::with_capacity(PLACE_BYTES * self.rows * columns.count_ones() as usize);
        for (_, column) in wanted {
            let Column::Tags { seeds, places, .. } = column else { continue };
            let number = |seed: &Seed| {
                let next = known.len() as u32;
                *known.entry(*seed).or_insert_with(|| {
                    all_seeds.extend_from_slice(&seed.0);
                    next
                })
            };
            let numbers: Vec<u32> = seeds.iter().map(number).collect();
            for place in places {
                let sent = place.and_then(|(seed, index)| Some((*numbers.get(seed as usize)?, index)));
                let (number, index) = sent.map_or(NO_SAMPLE, |(number, index)| (number as u16, index));
                all_places.extend_from_slice(&number.to_le_bytes());
                all_places.extend_from_slice(&index.to_le_bytes());
            }
        }
        if known.len() > MAX_SEEDS {
            let text = format!(
                "the cells of these columns come from {} chunks, and P2 takes {MAX_SEEDS} at once; compare fewer columns, or rows that \
                 were encrypted together",
                known.len()
            );
            return Err(ProtocolError::Misuse(text));
        }
        Ok((all_seeds, all_places))
    }
}
