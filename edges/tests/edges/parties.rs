//! Both parties in one process.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray};
use arrow::buffer::NullBuffer;
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_cells::{CellType, ColumnId, Kind, Nulls, Width};
use veil_keys::{OwnerKeys, P2Keys, encrypt_column};
use veil_protocols::testing::AnyQuestion;
use veil_protocols::{InProcess, Limits, Randomness, Responder, Session};
use veil_slots::{DEGREE, L1, Sanitizer, Slots, plain};

/// Keys, and a session against them.
pub(crate) struct Parties {
    pub(crate) owner: OwnerKeys,
    pub(crate) keys: P2Keys,
    pub(crate) session: Session,
    pub(crate) rng: StdRng,
}

impl Parties {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let owner = OwnerKeys::generate(&mut rng);
        let keys = owner.p2();
        let responder = Responder::new(Arc::new(keys.clone()), Limits::default(), Randomness::fixed(seed ^ 1));
        let responder = responder.with_desk(Arc::new(AnyQuestion));
        let channel = Arc::new(InProcess::new(Arc::new(responder)));
        let sanitizer = Sanitizer::new(owner.p1().public_key().clone());
        let session = Session::with(channel, owner.key_id(), sanitizer, Randomness::fixed(seed ^ 2));
        Self { owner, keys, session, rng }
    }

    /// One vector.
    pub(crate) fn seal(&mut self, values: &[u64]) -> Slots<L1> {
        self.keys.slot().seal(values, &mut self.rng).expand().unwrap().raised()
    }

    /// As many vectors as the numbers take.
    pub(crate) fn vectors(&mut self, values: &[u64]) -> Vec<Slots<L1>> {
        values.chunks(DEGREE).map(|values| self.seal(values)).collect()
    }

    /// The slots of vectors, one behind the other.
    pub(crate) fn open(&self, vectors: &[Slots<L1>]) -> Vec<u64> {
        vectors.iter().flat_map(|slots| self.keys.slot().open_slots(slots)).collect()
    }

    /// The same, with a sign.
    pub(crate) fn open_signed(&self, vectors: &[Slots<L1>]) -> Vec<i64> {
        self.open(vectors).into_iter().map(plain::centred).collect()
    }

    /// Uniform numbers below a bound.
    pub(crate) fn below(&mut self, bound: u64, count: usize) -> Vec<u64> {
        (0..count).map(|_| plain::uniform_below(bound, &mut self.rng)).collect()
    }

    /// Cells of whole numbers between bounds; a number that is missing is NULL.
    pub(crate) fn numbers(&mut self, bounds: (i64, i64), values: &[Option<i64>]) -> BinaryArray {
        let cell_type = self.number_type(bounds, false);
        let messages: Vec<i64> = values.iter().map(|value| value.unwrap_or_default()).collect();
        let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
        encrypt_column(&self.owner, &cell_type, &messages, Some(&nulls), &mut self.rng).unwrap()
    }

    /// The same, each with the equality tag that is given for it.
    pub(crate) fn tagged(&mut self, values: &[Option<i64>], tag_of: impl Fn(i64) -> u64) -> BinaryArray {
        let cell_type = self.number_type((0, 1000), true);
        let message = |value: &Option<i64>| value.map_or([0, 0], |value| [value, tag_of(value) as i64]);
        let messages: Vec<i64> = values.iter().flat_map(message).collect();
        let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
        encrypt_column(&self.owner, &cell_type, &messages, Some(&nulls), &mut self.rng).unwrap()
    }

    pub(crate) fn number_type(&self, (lower, upper): (i64, i64), tag: bool) -> CellType {
        let width = Width::of_range(lower, upper).unwrap();
        let cell_type = CellType::new(Kind::Integer, width, 1, self.owner.key_id(), ColumnId([3; 8]));
        CellType { tag, nulls: Nulls::Public, ..cell_type }
    }

    /// Flags of rows that are suppressed.
    pub(crate) fn flags(&mut self, suppressed: &[bool]) -> ArrayRef {
        let flags: Vec<Option<i64>> = suppressed.iter().map(|gone| Some(i64::from(*gone))).collect();
        Arc::new(self.numbers((0, 1), &flags))
    }
}
