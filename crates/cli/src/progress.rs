//! A progress bar on standard error, once a run has taken long enough for a person to wonder.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use veil_owner::Progress;

/// Whether the user has pressed Ctrl-C.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

const WONDER: Duration = Duration::from_millis(700);

/// A line on standard error.
pub(crate) fn say(line: &str) {
    // Nothing can be done if standard error is gone.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Lets runs end cleanly on Ctrl-C, without the temporary file; a second Ctrl-C ends the program at once.
pub(crate) fn handle_interrupts() {
    // Without a handler Ctrl-C still works, only less tidily.
    let _ = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
    });
}

/// Whether a run is to end.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// The bar of one run.
pub(crate) struct RunProgress {
    bar: Option<ProgressBar>,
    start: Instant,
    quiet: bool,
}

impl RunProgress {
    /// A bar that begins with a verb.
    pub(crate) fn new(verb: &'static str, quiet: bool) -> Self {
        let bar = (!quiet).then(|| {
            let style = ProgressStyle::with_template("{prefix} [{bar:32}] {percent:>3}%  {msg}, {eta} left");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ");
            ProgressBar::new(1000).with_style(style).with_prefix(verb)
        });
        Self { bar, start: Instant::now(), quiet }
    }

    /// Without an end in sight: counts instead of a bar.
    pub(crate) fn counting(verb: &'static str, quiet: bool) -> Self {
        let bar = (!quiet).then(|| {
            let style = ProgressStyle::with_template("{prefix} {spinner} {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::no_length().with_style(style).with_prefix(verb)
        });
        Self { bar, start: Instant::now(), quiet }
    }

    /// Shows how much has come.
    pub(crate) fn count(&self, rows: u64, bytes: u64) {
        if let Some(bar) = self.bar.as_ref().filter(|_| self.start.elapsed() > WONDER) {
            bar.set_message(format!("{} rows, {}", HumanCount(rows), HumanBytes(bytes)));
            bar.tick();
        }
    }

    /// Shows how far the run is, and breaks it off if the user has pressed Ctrl-C.
    pub(crate) fn watch(&self, progress: Progress) -> ControlFlow<()> {
        if let Some(bar) = self.bar.as_ref().filter(|_| self.start.elapsed() > WONDER) {
            bar.set_message(format!("{} rows", HumanCount(progress.rows)));
            bar.set_position(progress.per_mille);
        }
        match is_interrupted() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Ends the run with a sentence.
    pub(crate) fn finish(self, sentence: &str) {
        self.clear();
        if !self.quiet {
            let elapsed = self.start.elapsed();
            match elapsed.as_secs() {
                0..=9 => say(&format!("{sentence} in {:.1} s", elapsed.as_secs_f64())),
                _ => say(&format!("{sentence} in {}", HumanDuration(elapsed))),
            }
        }
    }
}
