//! What is shown on standard error while a statement takes long: time, rows, and traffic with P2.

use std::future::pending;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::physical_plan::ExecutionPlan;
use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use tokio::time::{Interval, MissedTickBehavior, interval_at};
use veil_planner::{KAnonymizeExec, Phase, Progress};

/// When a person begins to wonder.
const WONDER: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_millis(200);

/// The line of one statement.
pub(crate) struct Waiting {
    clock: Option<Interval>,
    bar: Option<ProgressBar>,
    started: Instant,
}

impl Waiting {
    /// Nothing is shown with `-q`, nor where nobody looks.
    pub(crate) fn new(quiet: bool, started: Instant) -> Self {
        let clock = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let mut clock = interval_at(tokio::time::Instant::now() + WONDER, EVERY);
            clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
            clock
        });
        Self { clock, bar: None, started }
    }

    /// When to show again.
    pub(crate) async fn tick(&mut self) {
        match &mut self.clock {
            Some(clock) => drop(clock.tick().await),
            None => pending().await,
        }
    }

    /// Shows how far the plan is.
    pub(crate) fn show(&mut self, plan: Option<&Arc<dyn ExecutionPlan>>) {
        let style =
            || ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = self.bar.get_or_insert_with(|| ProgressBar::new_spinner().with_style(style()));
        bar.set_message(plan.map(Done::of).unwrap_or_default().line(self.started.elapsed()));
        bar.tick();
    }

    /// Prints without the line in between. Rows that stream onto the same terminal say enough, so that it does not come back.
    pub(crate) fn aside<T>(&mut self, streaming: bool, print: impl FnOnce() -> T) -> T {
        if streaming && std::io::stdout().is_terminal() {
            self.clear();
        }
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the line away for good.
    pub(crate) fn clear(&mut self) {
        self.clock = None;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// What a running plan has done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Done {
    read: usize,
    through_rounds: Option<usize>,
    /// Sets of columns that were checked, of those known so far.
    sets: Option<(usize, usize)>,
    anonymising: Option<Anonymising>,
    /// Steps of an assessment that are done, of those known so far.
    assessed: Option<(usize, usize)>,
    sent: usize,
    received: usize,
}

/// How far a k-anonymisation is.
#[derive(Debug, PartialEq, Eq)]
struct Anonymising {
    phase: Phase,
    per_cent: u32,
    left: Option<Duration>,
}

impl Anonymising {
    fn of(progress: &Progress) -> Self {
        Self { phase: progress.phase, per_cent: (progress.done * 100.0) as u32, left: progress.left() }
    }

    fn line(&self) -> String {
        const WIDTH: usize = 20;
        let filled = (self.per_cent as usize * WIDTH / 100).min(WIDTH);
        let bar = "█".repeat(filled) + &"░".repeat(WIDTH - filled);
        let phase = match self.phase {
            Phase::Prepare => "preparing rows".to_owned(),
            Phase::Cluster { round, of } => format!("clustering, round {round} of at most {of}"),
            Phase::Sizes => "looking for small clusters".to_owned(),
            Phase::Reassign { of: 0, .. } => "no cluster is small".to_owned(),
            Phase::Reassign { done, of } => format!("{done} of {of} small clusters joined others"),
            Phase::Publish => "giving rows the values of their classes".to_owned(),
        };
        let left = self.left.map(|left| format!(", about {} left", HumanDuration(left))).unwrap_or_default();
        format!("{bar} {} %, {phase}{left}", self.per_cent)
    }
}

impl Done {
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut done = Self::default();
        done.add(plan);
        done
    }

    fn add(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        if let Some(metrics) = plan.metrics() {
            let rows = metrics.output_rows().unwrap_or_default();
            let sum = |name: &str| metrics.sum_by_name(name).map_or(0, |value| value.as_usize());
            if plan.children().is_empty() {
                self.read += rows;
            }
            let ours = match plan.name() {
                "VeilRoundsExec" => {
                    // The slowest node tells how far a row has come.
                    self.through_rounds = Some(self.through_rounds.map_or(rows, |other| other.min(rows)));
                    true
                }
                "VeilIdentifiersExec" => {
                    let (checked, known) = self.sets.unwrap_or_default();
                    self.sets = Some((checked + sum("subsets_checked"), known + sum("subsets_known")));
                    true
                }
                "VeilAssessExec" => {
                    let (done, known) = self.assessed.unwrap_or_default();
                    self.assessed = Some((done + sum("steps_done"), known + sum("steps_known")));
                    true
                }
                "VeilKAnonymizeExec" => {
                    if let Some(progress) = plan.downcast_ref::<KAnonymizeExec>().and_then(KAnonymizeExec::progress) {
                        self.anonymising = Some(Anonymising::of(&progress));
                        self.sent += progress.bytes_sent as usize;
                        self.received += progress.bytes_received as usize;
                    }
                    false
                }
                _ => false,
            };
            if ours {
                self.sent += sum("p2_sent_bytes");
                self.received += sum("p2_received_bytes");
            }
        }
        plan.children().into_iter().for_each(|child| self.add(child));
    }

    fn line(&self, elapsed: Duration) -> String {
        let mut line = format!("{} s", elapsed.as_secs());
        if self.read > 0 {
            line += &format!(", {} rows read", HumanCount(self.read as u64));
        }
        if let Some((checked, known)) = self.sets {
            line += &format!(", {checked} of {known} sets of columns checked");
        }
        if let Some(rows) = self.through_rounds {
            line += &format!(", {} rows through P2", HumanCount(rows as u64));
        }
        if let Some((done, known)) = self.assessed.filter(|(_, known)| *known > 0) {
            line += &format!(", {done} of {known} sets of columns and losses measured");
        }
        if let Some(anonymising) = &self.anonymising {
            line += &format!(", {}", anonymising.line());
        }
        let has_rounds = self.sets.is_some() || self.assessed.is_some() || self.through_rounds.is_some();
        if has_rounds || self.anonymising.is_some() {
            line += &format!(" ({} sent, {} received)", HumanBytes(self.sent as u64), HumanBytes(self.received as u64));
        }
        line + "; Ctrl-C cancels"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_what_is_known() {
        let line = |done: Done| done.line(Duration::from_millis(3400));
        assert_eq!(line(Done::default()), "3 s; Ctrl-C cancels");
        let done = Done { read: 65_536, through_rounds: Some(8192), sent: 2048, received: 4096, ..Done::default() };
        assert_eq!(
            line(done),
            "3 s, 65,536 rows read, 8,192 rows through P2 (2.00 KiB sent, 4.00 KiB received); Ctrl-C cancels"
        );
        let done = Done { sets: Some((9, 28)), sent: 2048, received: 4096, ..Done::default() };
        assert_eq!(
            line(done),
            "3 s, 9 of 28 sets of columns checked (2.00 KiB sent, 4.00 KiB received); Ctrl-C cancels"
        );
        let done = Done { assessed: Some((4, 9)), sent: 2048, received: 4096, ..Done::default() };
        assert_eq!(
            line(done),
            "3 s, 4 of 9 sets of columns and losses measured (2.00 KiB sent, 4.00 KiB received); Ctrl-C cancels"
        );
        let phase = Phase::Cluster { round: 3, of: 10 };
        let anonymising = Some(Anonymising { phase, per_cent: 25, left: Some(Duration::from_secs(120)) });
        assert_eq!(
            line(Done { anonymising, sent: 2048, received: 4096, ..Done::default() }),
            "3 s, █████░░░░░░░░░░░░░░░ 25 %, clustering, round 3 of at most 10, about 2 minutes left (2.00 KiB sent, 4.00 KiB \
             received); Ctrl-C cancels"
        );
    }
}
