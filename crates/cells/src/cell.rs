//! One encrypted value.
//!
//! A cell has up to 255 **lanes**, one message each: first the value (one lane for a number, several for text and
//! categories), then, if declared, a lane that is non-zero for a hidden NULL, then an equality tag. Lane `l` holds
//! `body_l = <mask_l, s> + message_l * 2^16 + noise`, where `mask_l = sum_j coefficient_j * Sample(seed_j, index_j + l)`.

use crate::parameters::{MAX_LANES, MAX_MAGNITUDE, POLYNOMIAL_SIZE};
use crate::{CellError, KeyId, Noise, Provenance, Seed};

/// The most terms of an affine cell; a sum of more is dense.
pub const MAX_TERMS: usize = 32;

/// How a cell's lanes are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lanes {
    /// Lanes of the value itself, at least one.
    pub value: u8,
    /// Whether a lane says which rows are NULL.
    pub nulls: bool,
    /// Whether a lane holds an equality tag.
    pub tag: bool,
}

impl Lanes {
    /// One lane, nothing else: a plain number.
    pub const NUMBER: Self = Self { value: 1, nulls: false, tag: false };

    /// All lanes together.
    pub fn total(self) -> usize {
        usize::from(self.value) + usize::from(self.nulls) + usize::from(self.tag)
    }

    /// Whether there is a value, and all lanes fit a cell.
    pub fn is_valid(self) -> bool {
        self.value > 0 && self.total() <= MAX_LANES
    }

    /// The lane that hides NULLs.
    pub fn null_lane(self) -> Option<usize> {
        self.nulls.then_some(usize::from(self.value))
    }

    /// The lane with the equality tag.
    pub fn tag_lane(self) -> Option<usize> {
        self.tag.then_some(self.total() - 1)
    }

    /// Rows that fit into one chunk.
    pub fn rows_per_chunk(self) -> usize {
        POLYNOMIAL_SIZE / self.total()
    }
}

/// `coefficient * Sample(seed, index + lane)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The chunk.
    pub seed: Seed,
    /// The coefficient of the chunk's polynomial that holds lane 0.
    pub index: u16,
    /// The factor, never zero.
    pub coefficient: i16,
}

impl Term {
    pub(crate) fn place(&self) -> (Seed, u16) {
        (self.seed, self.index)
    }
}

/// What a cell tells of the rows that it is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RowsOf {
    /// Nothing.
    Unknown,
    /// Its samples lead to them.
    #[default]
    Samples,
    /// These, whatever its samples are.
    Listed(Provenance),
}

/// What a cell's bodies are masked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    Affine(Vec<Term>),
    /// One LWE mask a lane, laid end to end.
    Dense {
        noise: Noise,
        words: Vec<u64>,
    },
}

/// One encrypted value.
#[derive(Clone, PartialEq, Eq)]
pub struct Cell {
    pub(crate) key_id: KeyId,
    pub(crate) lanes: Lanes,
    /// Of a number; text and categories have none.
    pub(crate) magnitude: Option<u64>,
    pub(crate) mask: Mask,
    pub(crate) bodies: Vec<u64>,
    /// What the number is yet to be divided by; one unless it is an average.
    pub(crate) divisor: u32,
    pub(crate) rows: RowsOf,
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cell")
            .field("key_id", &self.key_id)
            .field("lanes", &self.lanes)
            .field("terms", &self.terms().len())
            .field("noise", &self.noise().bound())
            .finish_non_exhaustive()
    }
}

impl Cell {
    /// A cell fresh from encryption: one sample, one body a lane. A number has a magnitude, its largest possible absolute
    /// value; text and categories have none and cannot be computed with.
    pub fn fresh(
        key_id: KeyId,
        lanes: Lanes,
        magnitude: Option<u64>,
        seed: Seed,
        index: u16,
        bodies: &[u64],
    ) -> Result<Self, CellError> {
        let fits = lanes.is_valid() && bodies.len() == lanes.total() && fits_chunk(index, lanes);
        if !fits || magnitude.is_some_and(|magnitude| magnitude > MAX_MAGNITUDE || lanes.value != 1) {
            return Err(CellError::Unsupported(format!(
                "a cell of {} lanes at index {index} cannot be made of {} bodies",
                lanes.total(),
                bodies.len()
            )));
        }
        Ok(Self {
            key_id,
            lanes,
            magnitude,
            mask: Mask::Affine(vec![Term { seed, index, coefficient: 1 }]),
            bodies: bodies.to_vec(),
            divisor: 1,
            rows: RowsOf::Samples,
        })
    }

    /// The same samples with other bodies, as many as it has lanes: another number behind the same mask, with another magnitude.
    pub fn with_bodies(&self, magnitude: Option<u64>, bodies: &[u64]) -> Result<Self, CellError> {
        let fits = bodies.len() == self.lanes.total() && (magnitude.is_none() || self.lanes.value == 1);
        if !fits || magnitude.is_some_and(|magnitude| magnitude > MAX_MAGNITUDE) {
            let text = format!("{} bodies do not fit a cell of {} lanes", bodies.len(), self.lanes.total());
            return Err(CellError::Unsupported(text));
        }
        Ok(Self { magnitude, bodies: bodies.to_vec(), ..self.clone() })
    }

    /// Of whose rows the value is made; `None` if nobody knows. A value without samples is a constant.
    pub fn provenance(&self) -> Option<Provenance> {
        match (&self.rows, &self.mask) {
            (RowsOf::Unknown, _) => None,
            (_, Mask::Affine(terms)) if terms.is_empty() => Some(Provenance::default()),
            (RowsOf::Listed(provenance), _) => Some(provenance.clone()),
            // A long sum always lists its rows.
            (RowsOf::Samples, _) => Some(Provenance::of_terms(self.terms().iter().copied())),
        }
    }

    /// Says of whose rows the value is made, whatever its samples are; `None` says that nobody knows.
    pub fn set_provenance(&mut self, provenance: Option<Provenance>) {
        self.rows = provenance.map_or(RowsOf::Unknown, RowsOf::Listed);
    }

    /// The key set that decrypts it.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// Its lanes.
    pub fn lanes(&self) -> Lanes {
        self.lanes
    }

    /// The number's largest possible absolute value; `None` for text and categories.
    pub fn magnitude(&self) -> Option<u64> {
        self.magnitude
    }

    /// What the number is yet to be divided by: a decryption does, arithmetic on a quotient is refused.
    pub fn divisor(&self) -> u32 {
        self.divisor
    }

    /// The hidden-NULL lane as a number of its own: one for a NULL, zero for a value. Factors and sums make other numbers of
    /// it, so that there is none of a cell that was computed with; a sign is taken back.
    pub fn null_count(&self) -> Option<Self> {
        let lane = self.lanes.null_lane()?;
        let [term @ Term { coefficient: sign @ (1 | -1), .. }] = self.terms() else { return None };
        let term = Term { index: term.index + lane as u16, coefficient: 1, ..*term };
        Some(Self {
            key_id: self.key_id,
            lanes: Lanes::NUMBER,
            magnitude: Some(1),
            mask: Mask::Affine(vec![term]),
            bodies: vec![self.bodies[lane].wrapping_mul(i64::from(*sign) as u64)],
            divisor: 1,
            rows: match &self.rows {
                RowsOf::Listed(rows) => RowsOf::Listed(rows.clone().null_lane()),
                other => other.clone(),
            },
        })
    }

    /// One body a lane.
    pub fn bodies(&self) -> &[u64] {
        &self.bodies
    }

    /// The terms of an affine cell; a dense one has none.
    pub fn terms(&self) -> &[Term] {
        match &self.mask {
            Mask::Affine(terms) => terms,
            Mask::Dense { .. } => &[],
        }
    }

    /// The LWE mask of one lane of a dense cell.
    pub fn dense_mask(&self, lane: usize) -> Option<&[u64]> {
        match &self.mask {
            Mask::Affine(_) => None,
            Mask::Dense { words, .. } => words.chunks_exact(POLYNOMIAL_SIZE).nth(lane),
        }
    }

    /// The noise that its history can have left.
    pub fn noise(&self) -> Noise {
        match &self.mask {
            Mask::Affine(terms) => Noise::of_coefficients(terms.iter().map(|term| term.coefficient.into())),
            Mask::Dense { noise, .. } => *noise,
        }
    }
}

pub(crate) fn fits_chunk(index: u16, lanes: Lanes) -> bool {
    usize::from(index) + lanes.total() <= POLYNOMIAL_SIZE
}
