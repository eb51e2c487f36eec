//! k-anonymisation of encrypted rows against the same algorithm in the clear: everything that comes out agrees exactly.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, and says what it skipped")]

mod case;
mod column;
mod public_data;
mod random;
mod refusals;
mod scale;
mod shapes;

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_keys::OwnerKeys;
use veil_privacy::clusters::{self, Reassignment};
use veil_protocols::k_anonymize::{Comparison, Settings};
use veil_protocols::testing::AnyQuestion;
use veil_protocols::{InProcess, Limits, Randomness, Responder, Session};
use veil_slots::Sanitizer;

/// Both parties in one process.
pub(crate) struct Parties {
    pub(crate) owner: OwnerKeys,
    pub(crate) session: Session,
    pub(crate) rng: StdRng,
}

impl Parties {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let owner = OwnerKeys::generate(&mut rng);
        let responder = Responder::new(Arc::new(owner.p2()), Limits::default(), Randomness::fixed(seed ^ 1));
        let channel = Arc::new(InProcess::new(Arc::new(responder.with_desk(Arc::new(AnyQuestion)))));
        let sanitizer = Sanitizer::new(owner.p1().public_key().clone());
        let session = Session::with(channel, owner.key_id(), sanitizer, Randomness::fixed(seed ^ 2));
        Self { owner, session, rng }
    }
}

pub(crate) const STRATEGIES: [Reassignment; 3] =
    [Reassignment::ClusterToCluster, Reassignment::PointToCluster, Reassignment::PointToPoint];

pub(crate) fn settings(k: usize, strategy: Reassignment, comparison: Comparison) -> Settings {
    let clusters = clusters::Settings { k, rounds: 4, early_stop: true, suppress: 0, strategy };
    Settings { clusters, comparison }
}
