//! Asks one question in SQL: what came out, what it cost, and who learned what on the way.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::physical_plan::{ExecutionPlan, collect};
use indicatif::{HumanBytes, HumanCount, HumanDuration};
use veil_owner::OwnerError;
use veil_planner::{AssessExec, KAnonymizeExec, explain_error};
use veil_protocols::Leakage;
use veil_protocols::k_anonymize::Cost;

use super::findings::{Learned, RunCost, SweepSettings};
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
        let declared = declared(&plan);
        if let Some(estimate) = Estimate::of(declared.iter().filter_map(|of| of.anonymises)).filter(|_| !self.quiet) {
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
        self.note(name, before).await?;
        self.learn(name, &declared);
        Ok(batches)
    }

    /// The columns that the last question was about.
    pub(super) fn last_quasi(&self) -> Vec<String> {
        self.engine.veil.assessments().pop().map(|run| run.quasi).unwrap_or_default()
    }

    /// How the last table was anonymised.
    pub(super) fn last_settings(&self) -> Option<SweepSettings> {
        let request = self.engine.veil.anonymisations().pop()?.request;
        Some(SweepSettings { rounds: request.rounds, suppress: f64::from(request.suppress) / 1e6 })
    }

    /// Rounds and bytes of the runs that have ended since, and what they had to say.
    async fn note(
        &mut self,
        name: &str,
        (assessed, anonymised): (usize, usize),
    ) -> Result<(), Box<dyn std::error::Error>> {
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
        for warning in self.engine.veil.take_warnings() {
            say(&format!("warning: {name}: {warning}"));
            self.notes.push(format!("{name}: {warning}"));
        }
        // What k_anonymize would advise is about tables that nobody keeps, so only assessments are asked for their notes.
        let sql = format!("SELECT note FROM assess_summary() WHERE run > {assessed} AND note IS NOT NULL ORDER BY run");
        let frame = self.engine.context.sql(&sql).await.map_err(|error| explain_error(&error))?;
        for batch in frame.collect().await.map_err(|error| explain_error(&error))? {
            let notes = batch.column_by_name("note").and_then(|notes| notes.as_string_opt::<i32>());
            self.notes.extend(notes.into_iter().flatten().flatten().map(|note| format!("{name}: {note}")));
        }
        if !self.quiet {
            self.runs.iter().skip(at).for_each(|run| say(&line(run)));
        }
        Ok(())
    }

    fn learn(&mut self, name: &str, declared: &[Declared]) {
        for Declared { leakage: Leakage { p1, p2 }, anonymises } in declared {
            let from = match anonymises {
                Some(_) => format!("{name}: k_anonymize"),
                None => name.to_owned(),
            };
            match self.leakage.iter_mut().find(|known| (known.p1.as_str(), known.p2.as_str()) == (*p1, *p2)) {
                Some(known) if known.from.contains(&from) => {}
                Some(known) => known.from.push(from),
                None => self.leakage.push(Learned { from: vec![from], p1: (*p1).to_owned(), p2: (*p2).to_owned() }),
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

/// What an operator of a plan declares. Its printed line has names of columns in it, which may be anything.
struct Declared {
    leakage: Leakage,
    /// What it may cost, if it is a run of k_anonymize.
    anonymises: Option<Cost>,
}

/// What all operators of a plan declare, the upper ones first.
fn declared(plan: &Arc<dyn ExecutionPlan>) -> Vec<Declared> {
    let own = match plan.downcast_ref::<KAnonymizeExec>() {
        Some(run) => Some(Declared { leakage: run.leakage(), anonymises: Some(run.cost()) }),
        None => plan
            .downcast_ref::<AssessExec>()
            .and_then(AssessExec::leakage)
            .map(|leakage| Declared { leakage, anonymises: None }),
    };
    own.into_iter().chain(plan.children().into_iter().flat_map(declared)).collect()
}

/// What the runs of k_anonymize in a plan may cost.
#[derive(Debug, Default, PartialEq)]
struct Estimate {
    tables: u64,
    rounds: u64,
    milliseconds: u64,
    bytes: u64,
}

impl Estimate {
    fn of(costs: impl Iterator<Item = Cost>) -> Option<Self> {
        let all = costs.fold(Self::default(), |all, cost| Self {
            tables: all.tables + 1,
            rounds: all.rounds + cost.rounds,
            milliseconds: all.milliseconds + cost.milliseconds,
            bytes: all.bytes + cost.bytes_up + cost.bytes_down,
        });
        (all.tables > 0).then_some(all)
    }

    fn sentence(&self) -> String {
        format!(
            "anonymises the table {} times, which takes up to {} rounds, {} MB to and from P2, and about {}; Ctrl-C cancels",
            self.tables,
            HumanCount(self.rounds),
            HumanCount(self.bytes.div_ceil(1_000_000)),
            HumanDuration(Duration::from_millis(self.milliseconds.max(1000))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_those_of_all_runs() {
        let cost = |rounds, bytes_up, milliseconds| Cost {
            rounds,
            ciphertexts: 741,
            bytes_up,
            bytes_down: 129_000_000,
            milliseconds,
        };
        let estimate = Estimate::of([cost(101, 36_000_000, 1_200), cost(99, 500_001, 1_300)].into_iter()).unwrap();
        assert_eq!(estimate, Estimate { tables: 2, rounds: 200, milliseconds: 2_500, bytes: 294_500_001 });
        assert!(estimate.sentence().contains("2 times, which takes up to 200 rounds, 295 MB"));
        assert_eq!(Estimate::of(std::iter::empty()), None);
    }
}
