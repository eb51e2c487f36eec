//! Asks one question in SQL: what came out, what it cost, and who learned what on the way.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::physical_plan::{collect, displayable};
use indicatif::{HumanBytes, HumanCount, HumanDuration};
use veil_owner::OwnerError;
use veil_planner::explain_error;

use super::findings::{Learned, RunCost};
use crate::progress::{is_interrupted, say};
use crate::sql::engine::Engine;
use crate::sql::waiting::Waiting;

/// Asks questions one after the other and keeps the books.
pub(super) struct Asker<'a> {
    engine: &'a Engine,
    quiet: bool,
    pub(super) runs: Vec<RunCost>,
    pub(super) leakage: Vec<Learned>,
    pub(super) notes: Vec<String>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(engine: &'a Engine, quiet: bool) -> Self {
        Self { engine, quiet, runs: Vec::new(), leakage: Vec::new(), notes: Vec::new() }
    }

    /// The rows of a query, which people know by the first name.
    pub(super) async fn ask(&mut self, name: &str, sql: &str) -> Result<Vec<RecordBatch>, Box<dyn std::error::Error>> {
        let said = |error: &datafusion::error::DataFusionError| format!("{name}: {}", explain_error(error));
        let started = Instant::now();
        let frame = self.engine.context.sql(sql).await.map_err(|error| said(&error))?;
        let tasks = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await.map_err(|error| said(&error))?;
        let text = displayable(plan.as_ref()).indent(false).to_string();
        if let Some(estimate) = Estimate::of(&text).filter(|_| !self.quiet) {
            say(&format!("{name}: {}", estimate.sentence()));
        }
        let before = (self.engine.veil.assessments().len(), self.engine.veil.anonymisations().len());
        let running = Arc::new(OnceLock::from(plan.clone()));
        // In a task of its own, so that a batch that takes long does not keep Ctrl-C and the clock waiting.
        let mut task = tokio::spawn(collect(plan, tasks));
        let mut waiting = Waiting::new(self.quiet, started);
        let mut interrupts = tokio::time::interval(Duration::from_millis(200));
        let ended = loop {
            tokio::select! {
                ended = &mut task => break ended,
                () = waiting.tick() => waiting.show(running.get()),
                _ = interrupts.tick() => if is_interrupted() {
                    waiting.clear();
                    task.abort();
                    return Err(OwnerError::Cancelled.into());
                },
            }
        };
        waiting.clear();
        let batches = ended.map_err(|failed| format!("{name} broke off: {failed}"))?.map_err(|error| said(&error))?;
        self.note(name, before);
        self.learn(name, &text);
        Ok(batches)
    }

    /// The columns that the last question was about.
    pub(super) fn last_quasi(&self) -> Vec<String> {
        self.engine.veil.assessments().pop().map(|run| run.quasi).unwrap_or_default()
    }

    /// Rounds and bytes of the runs that have ended since.
    fn note(&mut self, name: &str, (assessed, anonymised): (usize, usize)) {
        let at = self.runs.len();
        for run in self.engine.veil.anonymisations().into_iter().skip(anonymised) {
            self.runs.push(RunCost {
                asked: format!("{name}: k_anonymize, k = {}", run.request.k),
                rows: run.rows as u64,
                rounds: run.rounds,
                bytes_sent: run.bytes_sent,
                bytes_received: run.bytes_received,
                seconds: run.seconds,
            });
        }
        for run in self.engine.veil.assessments().into_iter().skip(assessed) {
            // Its clock has run while tables were made for it.
            let within: f64 = self.runs.iter().skip(at).map(|run| run.seconds).sum();
            self.runs.push(RunCost {
                asked: name.to_owned(),
                rows: run.rows as u64,
                rounds: run.rounds,
                bytes_sent: run.bytes_sent,
                bytes_received: run.bytes_received,
                seconds: (run.seconds - within).max(0.0),
            });
        }
        for note in self.engine.veil.take_notes() {
            // What k_anonymize would advise is about tables that nobody keeps.
            if self.runs.len() == at + 1 && !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        if !self.quiet {
            self.runs.iter().skip(at).for_each(|run| say(&line(run)));
        }
    }

    fn learn(&mut self, name: &str, plan: &str) {
        for (operator, p1, p2) in learned(plan) {
            let from = match operator {
                "VeilKAnonymizeExec" => format!("{name}: k_anonymize"),
                _ => name.to_owned(),
            };
            match self.leakage.iter_mut().find(|known| (known.p1.as_str(), known.p2.as_str()) == (p1, p2)) {
                Some(known) if known.from.contains(&from) => {}
                Some(known) => known.from.push(from),
                None => self.leakage.push(Learned { from: vec![from], p1: p1.to_owned(), p2: p2.to_owned() }),
            }
        }
    }
}

fn line(run: &RunCost) -> String {
    format!(
        "{}: {} rows, {} rounds, {} sent, {} received ({:.1} s)",
        run.asked,
        HumanCount(run.rows),
        HumanCount(run.rounds),
        HumanBytes(run.bytes_sent),
        HumanBytes(run.bytes_received),
        run.seconds
    )
}

/// What operators of a plan declare, as `EXPLAIN` prints it: their names, what P1 learns, what P2 learns.
fn learned(plan: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    plan.lines().filter_map(|line| {
        let operator = line.trim_start().split(':').next()?;
        Some((operator, between(line, "p1_learns=[", "]")?, between(line, "p2_learns=[", "]")?))
    })
}

/// What the runs of k_anonymize in a plan may cost.
#[derive(Debug, Default, PartialEq)]
struct Estimate {
    tables: u64,
    rounds: u64,
    seconds: f64,
    megabytes: u64,
}

impl Estimate {
    fn of(plan: &str) -> Option<Self> {
        let mut all = Self::default();
        for line in plan.lines().filter(|line| line.trim_start().starts_with("VeilKAnonymizeExec:")) {
            let (rounds, seconds) = between(line, "all ", " s]")?.split_once(" rounds ")?;
            let megabytes = |name: &str| between(line, name, ",").and_then(|number| number.parse::<u64>().ok());
            all.tables += 1;
            all.rounds += rounds.parse::<u64>().ok()?;
            all.seconds += seconds.parse::<f64>().ok()?;
            all.megabytes += megabytes("MB_up=")? + megabytes("MB_down=")?;
        }
        (all.tables > 0).then_some(all)
    }

    fn sentence(&self) -> String {
        format!(
            "anonymises the table {} times, which takes up to {} rounds, {} MB to and from P2, and about {}; Ctrl-C cancels",
            self.tables,
            HumanCount(self.rounds),
            HumanCount(self.megabytes),
            HumanDuration(Duration::from_secs_f64(self.seconds.clamp(1.0, 1e9))),
        )
    }
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    Some(rest.split_once(to)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "\
VeilAssessExec: sweep, quasi=[age, born], size_histogram v1, p1_learns=[the measures; sizes], p2_learns=[sizes]
  DataSourceExec: file_groups={1 group: [[a.parquet]]}
  VeilKAnonymizeExec: quasi=[age], k=2, estimate for 60 rows and 5 centres: [prepare 33 rounds 0.6 s, all 101 rounds 1.2 s], ciphertexts=741, MB_up=36, MB_down=129, MB_memory=444, p1_learns=[small clusters], p2_learns=[rounds]
  VeilKAnonymizeExec: quasi=[age], k=9, estimate for 60 rows and 5 centres: [prepare 33 rounds 0.6 s, all 99 rounds 1.3 s], ciphertexts=741, MB_up=30, MB_down=100, MB_memory=444, p1_learns=[small clusters], p2_learns=[rounds]
";

    #[test]
    fn plans_tell_who_learns_what_and_what_it_may_cost() {
        let all: Vec<_> = learned(PLAN).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0], ("VeilAssessExec", "the measures; sizes", "sizes"));
        assert_eq!(all[2], ("VeilKAnonymizeExec", "small clusters", "rounds"));
        let estimate = Estimate::of(PLAN).unwrap();
        assert_eq!(estimate, Estimate { tables: 2, rounds: 200, seconds: 2.5, megabytes: 295 });
        assert!(estimate.sentence().contains("2 times, which takes up to 200 rounds, 295 MB"));
        assert_eq!(Estimate::of("VeilAssessExec: risk, quasi=[age]"), None);
    }
}
