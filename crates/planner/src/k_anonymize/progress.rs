//! How far a run is, for those who wait, and what each phase took, for EXPLAIN ANALYZE.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, Time};
use veil_protocols::Session;
use veil_protocols::k_anonymize::{Cost, Phase};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What it does now.
    pub phase: Phase,
    /// How much of the work is done, from 0 to 1, by its expected cost.
    pub done: f64,
    /// Since it began.
    pub elapsed: Duration,
    /// Bytes sent to P2 so far.
    pub bytes_sent: u64,
    /// Bytes received from P2 so far.
    pub bytes_received: u64,
}

impl Progress {
    /// The time that is left, if it goes on as it did. Nobody can tell at the beginning.
    pub fn left(&self) -> Option<Duration> {
        (self.done >= 0.02).then(|| self.elapsed.mul_f64((1.0 - self.done) / self.done))
    }
}

/// Where a run tells how far it is. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<Mutex<Option<Running>>>);

#[derive(Debug)]
struct Running {
    session: Session,
    started: Instant,
    phase: Phase,
    costs: [Cost; 5],
}

impl Watch {
    /// A run begins, whose phases may cost this.
    pub(super) fn begin(&self, session: &Session, costs: [Cost; 5]) -> Watched {
        let running = Running { session: session.clone(), started: Instant::now(), phase: Phase::Prepare, costs };
        *self.lock() = Some(running);
        Watched(self.clone())
    }

    pub(super) fn enter(&self, phase: Phase) {
        if let Some(running) = self.lock().as_mut() {
            running.phase = phase;
        }
    }

    pub(super) fn progress(&self) -> Option<Progress> {
        let guard = self.lock();
        let running = guard.as_ref()?;
        let traffic = running.session.traffic();
        Some(Progress {
            phase: running.phase,
            done: share_done(running.phase, &running.costs),
            elapsed: running.started.elapsed(),
            bytes_sent: traffic.bytes_up(),
            bytes_received: traffic.bytes_down(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While a run is under way; it need not come to its end.
pub(super) struct Watched(Watch);

impl Drop for Watched {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

/// The cost of what comes before, as a part of all.
fn share_done(phase: Phase, costs: &[Cost; 5]) -> f64 {
    let milliseconds = |costs: &[Cost]| costs.iter().map(|cost| cost.milliseconds as f64).sum::<f64>();
    let (place, all) = (phase.place(), milliseconds(costs));
    let own = costs.get(place).map_or(0.0, |cost| cost.milliseconds as f64);
    let part = match phase {
        Phase::Cluster { round, of } => own * round.saturating_sub(1) as f64 / of.max(1) as f64,
        // Far fewer clusters may be small than the estimate has.
        Phase::Reassign { done, of } => own * done as f64 / of.max(1) as f64,
        _ => 0.0,
    };
    let before = milliseconds(costs.get(..place).unwrap_or_default());
    if all > 0.0 { (before + part) / all } else { 0.0 }
}

/// What every phase took.
#[derive(Debug)]
pub(super) struct PhaseMetrics {
    phases: [PhaseMetric; 5],
    now: Mutex<Option<Entered>>,
}

#[derive(Debug)]
struct PhaseMetric {
    time: Time,
    rounds: Count,
    ciphertexts: Count,
    sent: Count,
    received: Count,
}

/// When a phase was entered, and what had been sent by then.
#[derive(Clone, Copy, Debug)]
struct Entered {
    place: usize,
    at: Instant,
    counted: Counted,
}

/// What a session has done so far.
#[derive(Clone, Copy, Debug)]
struct Counted {
    rounds: u64,
    ciphertexts: u64,
    sent: u64,
    received: u64,
}

impl Counted {
    fn of(session: &Session) -> Self {
        let traffic = session.traffic();
        Self {
            rounds: traffic.rounds(),
            ciphertexts: traffic.ciphertexts(),
            sent: traffic.bytes_up(),
            received: traffic.bytes_down(),
        }
    }
}

/// As EXPLAIN ANALYZE shows them.
const METRICS: [[&str; 5]; 5] = [
    ["prepare_time", "prepare_rounds", "prepare_ciphertexts", "prepare_sent_bytes", "prepare_received_bytes"],
    ["cluster_time", "cluster_rounds", "cluster_ciphertexts", "cluster_sent_bytes", "cluster_received_bytes"],
    ["sizes_time", "sizes_rounds", "sizes_ciphertexts", "sizes_sent_bytes", "sizes_received_bytes"],
    ["reassign_time", "reassign_rounds", "reassign_ciphertexts", "reassign_sent_bytes", "reassign_received_bytes"],
    ["publish_time", "publish_rounds", "publish_ciphertexts", "publish_sent_bytes", "publish_received_bytes"],
];

impl PhaseMetrics {
    pub(super) fn new(metrics: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        let counter = |name| MetricBuilder::new(metrics).counter(name, partition);
        let phases = METRICS.map(|[time, rounds, ciphertexts, sent, received]| PhaseMetric {
            time: MetricBuilder::new(metrics).subset_time(time, partition),
            rounds: counter(rounds),
            ciphertexts: counter(ciphertexts),
            sent: counter(sent),
            received: counter(received),
        });
        Self { phases, now: Mutex::new(None) }
    }

    /// A phase begins, or goes on, or with `None` the run ends.
    pub(super) fn enter(&self, phase: Option<Phase>, session: &Session) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = Counted::of(session);
        if let Some(Entered { place, at, counted: before }) = *now
            && let Some(metric) = self.phases.get(place)
        {
            metric.time.add_duration(at.elapsed());
            for (count, now, before) in [
                (&metric.rounds, counted.rounds, before.rounds),
                (&metric.ciphertexts, counted.ciphertexts, before.ciphertexts),
                (&metric.sent, counted.sent, before.sent),
                (&metric.received, counted.received, before.received),
            ] {
                count.add(now.saturating_sub(before) as usize);
            }
        }
        *now = phase.map(|phase| Entered { place: phase.place(), at: Instant::now(), counted });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_told_by_expected_cost() {
        let costs = [10, 100, 10, 60, 20].map(|milliseconds| Cost { milliseconds, ..Cost::default() });
        let done = |phase| (share_done(phase, &costs) * 200.0).round() as u32;
        assert_eq!(done(Phase::Prepare), 0);
        assert_eq!(done(Phase::Cluster { round: 1, of: 10 }), 10);
        assert_eq!(done(Phase::Cluster { round: 6, of: 10 }), 60);
        assert_eq!(done(Phase::Sizes), 110);
        assert_eq!(done(Phase::Reassign { done: 1, of: 2 }), 150);
        assert_eq!(done(Phase::Publish), 180);
        assert_eq!(share_done(Phase::Publish, &[Cost::default(); 5]), 0.0);
    }

    #[test]
    fn time_left_follows_from_time_gone() {
        let progress = |done| Progress {
            phase: Phase::Sizes,
            done,
            elapsed: Duration::from_secs(30),
            bytes_sent: 0,
            bytes_received: 0,
        };
        assert_eq!(progress(0.25).left(), Some(Duration::from_secs(90)));
        assert_eq!(progress(0.01).left(), None);
    }
}
