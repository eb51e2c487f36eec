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
    /// The most that asking about so many sets takes, level by level, in a table of which so many columns have tags. Lifting columns
    /// that are compared by their values comes on top.
    pub fn of(method: Method, rows: usize, tagged: usize, levels: &[u64]) -> Self {
        // More rows are refused.
        let rows = method.max_rows().map_or(rows, |most| rows.min(most));
        let begin = match method {
            Method::Tags => Self::default(),
            Method::Shuffled | Method::Pairwise { .. } => Self::of_columns(rows, tagged),
        };
        levels.iter().fold(begin, |sum, sets| sum.plus(Self::of_level(method, rows, tagged, *sets)))
    }

    fn plus(self, other: Self) -> Self {
        let (rounds, bytes) = (self.rounds.saturating_add(other.rounds), self.bytes.saturating_add(other.bytes));
        Self { rounds, bytes }
    }

    /// Lifting tags; in short tables also labels that are repeated.
    fn of_columns(rows: usize, tagged: usize) -> Self {
        let (layout, vectors) = (Layout::new(rows), tagged as u64);
        let lifted = vectors * (rows as u64 * SAMPLE_BYTES + layout.vectors_per_list() as u64 * SEEDED_BYTES as u64);
        match layout.lists_per_vector() {
            1 => Self { rounds: 1, bytes: lifted },
            _ => Self { rounds: 2, bytes: lifted + vectors * ciphertexts(1, 3) },
        }
    }

    fn of_level(method: Method, rows: usize, tagged: usize, sets: u64) -> Self {
        let layout = Layout::new(rows);
        let (rounds, arrangements) = (layout.rounds() as u64, layout.arrangements_per_vector() as u64);
        match method {
            Method::Tags => {
                // Some sets share the places of their columns.
                let (bodies, places) = (8 * rows as u64, 4 * (rows * tagged) as u64);
                let (at_once, share) = (tags::SETS_AT_ONCE as u64, crate::count_tags::sets_at_once(rows) as u64);
                let queries =
                    (sets / at_once).saturating_mul(at_once.div_ceil(share)) + (sets % at_once).div_ceil(share);
                let bytes = sets.saturating_mul(bodies).saturating_add(queries.saturating_mul(places));
                Self { rounds: sets.div_ceil(at_once), bytes }
            }
            Method::Shuffled => {
                let per_list = layout.vectors_per_list() as u64;
                let vectors = sets.div_ceil(layout.lists_per_vector() as u64).saturating_mul(per_list);
                let windows = vectors.div_ceil((WINDOW as u64 / per_list).max(1) * per_list);
                let each = ciphertexts(1 + rounds + 1, 3 + arrangements);
                Self { rounds: windows.saturating_mul(2 + rounds), bytes: vectors.saturating_mul(each) }
            }
            Method::Pairwise { shuffle } => {
                let (rounds, arrangements) = if shuffle { (rounds, arrangements) } else { (0, 0) };
                let (at_once, compared) = (pairs::SETS_AT_ONCE as u64, pairwise::vectors(rows));
                // Comparisons of several sets share their rounds.
                let compare = pairwise::rounds(compared * sets.min(at_once));
                let turns = compared + pairwise::messages(compared);
                let each = ciphertexts(1 + rounds + turns + 1, 3 + arrangements + turns);
                let rounds = sets.div_ceil(at_once).saturating_mul(1 + rounds + compare);
                Self { rounds, bytes: sets.saturating_mul(each) }
            }
        }
    }
}

/// Bytes of ciphertexts to P2 and back.
fn ciphertexts(up: u64, down: u64) -> u64 {
    up * OUTBOUND_BYTES as u64 + down * SEEDED_BYTES as u64
}

impl Method {
    /// Memory that it takes beside the table itself, whose encrypted columns have so many lanes.
    pub fn memory(self, rows: usize, lanes: usize) -> usize {
        let vectors = Layout::new(rows).vectors_per_list();
        // Columns as they are lifted and labelled, and what is on its way: kept, asked and answered.
        let slots = |window: usize| (2 * lanes * vectors).saturating_add(window).saturating_mul(VECTOR_MEMORY);
        match self {
            // Samples and bodies of every column, and some queries under way.
            Self::Tags => rows.saturating_mul(lanes * 64).saturating_add(32 << 20),
            Self::Shuffled => slots(3 * WINDOW.max(vectors)),
            Self::Pairwise { .. } => slots(4 * WINDOW),
        }
    }
}
