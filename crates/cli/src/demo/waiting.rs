//! What a person sees while P1 works: a line on standard error with time and traffic, on terminals only.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use veil_owner::OwnerError;

use super::wire::Wire;
use crate::progress::is_interrupted;

/// When a person begins to wonder.
const WONDER: Duration = Duration::from_millis(1500);
const EVERY: Duration = Duration::from_millis(100);

/// The line of one step.
pub(super) struct Waiting {
    what: &'static str,
    wire: Option<Wire>,
    before: [u64; 2],
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Waiting {
    pub(super) fn new(what: &'static str, wire: Option<Wire>, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg}");
            ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        let before = wire.as_ref().map(Wire::passed).unwrap_or_default();
        Self { what, wire, before, started: Instant::now(), bar }
    }

    /// Waits, and gives up on Ctrl-C.
    pub(super) async fn until<T>(
        self,
        future: impl Future<Output = Result<T, Box<dyn std::error::Error>>>,
    ) -> Result<T, Box<dyn std::error::Error>> {
        tokio::pin!(future);
        let mut ticks = tokio::time::interval(EVERY);
        loop {
            tokio::select! {
                outcome = &mut future => return outcome,
                _ = ticks.tick() => {
                    if is_interrupted() {
                        return Err(OwnerError::Cancelled.into());
                    }
                    self.show();
                }
            }
        }
    }

    /// Shows how long it has taken, once that is long.
    pub(super) fn show(&self) {
        let Some(bar) = self.bar.as_ref().filter(|_| self.started.elapsed() > WONDER) else { return };
        let mut line = format!("{}: {} s", self.what, self.started.elapsed().as_secs());
        if let Some(wire) = &self.wire {
            let ([up, down], [up_before, down_before]) = (wire.passed(), self.before);
            let (up, down) = (HumanBytes(up - up_before), HumanBytes(down - down_before));
            line += &format!(", {up} to P2, {down} back");
        }
        bar.set_message(line + "; Ctrl-C ends it");
        bar.tick();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
