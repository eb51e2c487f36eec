//! What a search may take, before it begins.

use veil_slots::{DEGREE, OUTBOUND_BYTES, SEEDED_BYTES};

use super::shuffled::WINDOW;
use super::{Method, pairs, tags};
use crate::layout::Layout;
use crate::pairwise;

/// Memory of a vector that P1 keeps: two components of four primes.
const VECTOR_MEMORY: usize = 2 * 4 * 8 * DEGREE;

/// Bytes of a sample on its way to be lifted.
const SAMPLE_BYTES: u64 = 12;

/// Rounds and bytes, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Rounds.
    pub rounds: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Cost {
    /// Of asking about so many sets, level by level, in a table whose columns with tags take so many lanes. Columns that are compared by their values cost
    /// more to begin with: their lifting is not counted.
    pub fn of(method: Method, rows: usize, lanes: usize, levels: &[u64]) -> Self {
        let levels = levels.iter().map(|sets| Self::of_level(method, rows, lanes, *sets));
        let begin = match method {
            Method::Tags => Self::default(),
            Method::Shuffled | Method::Pairwise { .. } => {
                let vectors = (lanes * Layout::new(rows).vectors_per_list()) as u64;
                let samples = vectors * DEGREE as u64 * SAMPLE_BYTES;
                Self { rounds: 1, bytes: samples + vectors * SEEDED_BYTES as u64 }
            }
        };
        levels.fold(begin, |sum, level| Self {
            rounds: sum.rounds + level.rounds,
            bytes: sum.bytes.saturating_add(level.bytes),
        })
    }

    fn of_level(method: Method, rows: usize, lanes: usize, sets: u64) -> Self {
        let layout = Layout::new(rows);
        let bytes = |up: u64, down: u64| up * OUTBOUND_BYTES as u64 + down * SEEDED_BYTES as u64;
        let lists = layout.lists_per_vector() as u64;
        let (uploads, arrangements) = (layout.uploads_per_vector() as u64, layout.arrangements_per_vector() as u64);
        match method {
            Method::Tags => {
                // Some sets share the places of their columns.
                let (bodies, places) = (8 * rows as u64, 4 * (rows * lanes) as u64);
                let queries = sets.div_ceil(crate::count_tags::sets_at_once(rows) as u64);
                let rounds = sets.div_ceil(tags::SETS_AT_ONCE as u64);
                Self { rounds, bytes: sets.saturating_mul(bodies).saturating_add(queries.saturating_mul(places)) }
            }
            Method::Shuffled => {
                let vectors = sets.div_ceil(lists).saturating_mul(layout.vectors_per_list() as u64);
                let windows = vectors.div_ceil(WINDOW.max(layout.vectors_per_list()) as u64);
                let each = bytes(1 + uploads + 1, 3 + arrangements);
                Self { rounds: windows * (2 + uploads), bytes: vectors.saturating_mul(each) }
            }
            Method::Pairwise { shuffle } => {
                let compared = pairwise::vectors(rows);
                let groups = sets.div_ceil(pairs::SETS_AT_ONCE as u64);
                // Comparisons of several sets share their rounds.
                let compare = pairwise::rounds(compared * sets.min(pairs::SETS_AT_ONCE as u64));
                let (shuffles, arrangements) = if shuffle { (uploads, arrangements) } else { (0, 0) };
                let each = bytes(1 + shuffles + 1, 3 + arrangements) + bytes(compared, compared) * 17 / 16;
                Self { rounds: groups * (1 + shuffles + compare), bytes: sets.saturating_mul(each) }
            }
        }
    }
}

impl Method {
    /// Memory that it takes beside the table itself, whose encrypted columns have so many lanes.
    pub fn memory(self, rows: usize, lanes: usize) -> usize {
        let vectors = Layout::new(rows).vectors_per_list();
        match self {
            // Samples and bodies of every column, and some queries under way.
            Self::Tags => rows * lanes * 64 + (32 << 20),
            // Columns, and what is on its way: kept, asked and answered.
            Self::Shuffled => (lanes * vectors + 3 * WINDOW.max(vectors)) * VECTOR_MEMORY,
            Self::Pairwise { .. } => (lanes * vectors + 4 * WINDOW) * VECTOR_MEMORY,
        }
    }
}
