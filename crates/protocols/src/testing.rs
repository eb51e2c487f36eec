//! Both parties in one process, for the tests beside each protocol.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_keys::{OwnerKeys, P2Keys};
use veil_slots::{DEGREE, L1, PLAIN_MODULUS, Sanitizer, Slots, plain};

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
        let channel = Arc::new(InProcess::new(Arc::new(responder)));
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
