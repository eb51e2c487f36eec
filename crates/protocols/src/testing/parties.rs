//! Both parties in one process, for the tests beside each protocol.

use std::sync::Arc;

use arrow::array::BinaryArray;
use arrow::buffer::NullBuffer;
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_cells::{CellType, ColumnId, Kind, Nulls, Width};
use veil_keys::{OwnerKeys, P2Keys, encrypt_column};
use veil_slots::{DEGREE, L1, PLAIN_MODULUS, Sanitizer, Slots, plain};

use super::AnyQuestion;
use crate::{InProcess, Limits, Randomness, Responder, Session};

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
        let channel = Arc::new(InProcess::new(Arc::new(responder.with_desk(Arc::new(AnyQuestion)))));
        let sanitizer = Sanitizer::new(owner.p1().public_key().clone());
        let session = Session::with(channel, owner.key_id(), sanitizer, Randomness::fixed(seed ^ 2));
        Self { owner, keys, session, rng }
    }

    pub(crate) fn encrypt(&mut self, values: &[u64]) -> Slots<L1> {
        self.keys.slot().seal(values, &mut self.rng).expand().unwrap().raised()
    }

    pub(crate) fn encrypt_signed(&mut self, values: &[i64]) -> Slots<L1> {
        self.encrypt(&values.iter().map(|value| plain::from_signed(*value)).collect::<Vec<_>>())
    }

    pub(crate) fn open(&self, slots: &Slots<L1>) -> Vec<u64> {
        self.keys.slot().open_slots(slots)
    }

    /// Cells of any values with these equality tags.
    pub(crate) fn tagged_cells(&mut self, nulls: Nulls, tags: &[u64], present: Option<&NullBuffer>) -> BinaryArray {
        let width = Width::of_range(0, 100).unwrap();
        let plain = CellType::new(Kind::Integer, width, 1, self.owner.key_id(), ColumnId([4; 8]));
        let cell_type = CellType { tag: true, nulls, ..plain };
        let others = [42, 0].into_iter().take(cell_type.cell_lanes().total() - 1);
        let messages: Vec<i64> = tags.iter().flat_map(|tag| others.clone().chain([*tag as i64])).collect();
        encrypt_column(&self.owner, &cell_type, &messages, present, &mut self.rng).unwrap()
    }

    /// Uniform numbers, with the extremes among them.
    pub(crate) fn numbers(&mut self) -> Vec<u64> {
        let mut numbers = plain::uniform_vec(DEGREE, &mut self.rng);
        let extremes = [0, 1, 2, PLAIN_MODULUS - 1, PLAIN_MODULUS - 2, PLAIN_MODULUS / 2, PLAIN_MODULUS / 2 + 1];
        numbers[..extremes.len()].copy_from_slice(&extremes);
        numbers
    }

    /// Uniform numbers below a bound, with both ends among them.
    pub(crate) fn numbers_below(&mut self, bound: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..DEGREE).map(|_| plain::uniform_below(bound, &mut self.rng)).collect();
        numbers[..2].copy_from_slice(&[0, bound - 1]);
        numbers
    }

    /// Uniform bits.
    pub(crate) fn bits(&mut self) -> Vec<u64> {
        self.numbers_below(2)
    }
}
