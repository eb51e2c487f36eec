//! How long to wait before the next try: longer each time, and not the same for all who wait.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// The waits of one caller, from the first failure to the last that its budget allows.
#[derive(Debug)]
pub(crate) struct Backoff {
    budget: Duration,
    failing_since: Option<Instant>,
    next: Duration,
    rng: StdRng,
}

impl Backoff {
    /// Tries for so long after a first failure.
    pub(crate) fn new(budget: Duration) -> Self {
        Self { budget, failing_since: None, next: FIRST, rng: StdRng::from_os_rng() }
    }

    /// Something worked: the next failure is a first one.
    pub(crate) fn reset(&mut self) {
        self.failing_since = None;
        self.next = FIRST;
    }

    /// Something failed: how long to wait, or nothing if the budget is used up.
    pub(crate) fn delay(&mut self) -> Option<Duration> {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        let wait = self.next.mul_f64(self.rng.random_range(0.5..1.0));
        self.next = (self.next * 2).min(LONGEST);
        (since.elapsed() + wait <= self.budget).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_start_over() {
        let mut backoff = Backoff::new(Duration::from_secs(60));
        let waits: Vec<Duration> = (0..12).map(|_| backoff.delay().unwrap()).collect();
        assert!(waits[0] <= FIRST && waits[11] >= LONGEST / 2, "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= LONGEST), "{waits:?}");
        backoff.reset();
        assert!(backoff.delay().unwrap() <= FIRST);
        assert_eq!(Backoff::new(Duration::ZERO).delay(), None);
    }
}
