//! Runs one statement: plans, executes, prints, and listens to Ctrl-C meanwhile.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::dialect::Dialect;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::time::timeout;
use veil_planner::explain_error;

use super::commands::{self, Next};
use super::copy_target::CopyTarget;
use super::engine::{self, Engine};
use super::interrupts::Interrupts;
use super::print::{Format, Printer};
use super::statements::Piece;
use super::waiting::Waiting;
use crate::progress::say;

/// How long a statement may take to end once it is told to: between two points at which it listens.
const LETTING_GO: Duration = Duration::from_secs(5);

/// What statements run with.
pub(crate) struct Runner {
    pub(crate) engine: Engine,
    pub(crate) format: Format,
    pub(crate) timing: bool,
    pub(crate) quiet: bool,
    interrupts: Interrupts,
    force: bool,
}

/// What comes out of a statement.
enum Event {
    Schema(SchemaRef),
    Batch(RecordBatch),
}

impl Runner {
    pub(crate) fn new(engine: Engine, interrupts: Interrupts, format: Format, quiet: bool, force: bool) -> Self {
        Self { engine, format, timing: true, quiet, interrupts, force }
    }

    /// The dialect of the session, for reading statements.
    pub(crate) fn dialect(&self) -> Box<dyn Dialect> {
        engine::dialect(&self.engine.context)
    }

    /// Runs a statement or a command. The error is one sentence.
    pub(crate) async fn run(&mut self, piece: &Piece) -> Result<Next, String> {
        match piece.command() {
            Some(command) => commands::run(self, command).await,
            None => {
                for statement in self.parse(piece)? {
                    self.execute(statement).await?;
                }
                Ok(Next::Stay)
            }
        }
    }

    fn parse(&self, piece: &Piece) -> Result<impl IntoIterator<Item = Statement>, String> {
        let dialect = self.dialect();
        DFParser::parse_sql_with_dialect(&piece.text, dialect.as_ref()).map_err(|error| {
            // Once more, at its place in the text, so that the parser's line is that of the file.
            let lines = "\n".repeat(piece.line.saturating_sub(1)) + &" ".repeat(piece.column.saturating_sub(1));
            let again = DFParser::parse_sql_with_dialect(&(lines + &piece.text), dialect.as_ref());
            explain_error(again.as_ref().err().unwrap_or(&error))
        })
    }

    async fn execute(&self, statement: Statement) -> Result<(), String> {
        let started = Instant::now();
        let mut interrupt = self.interrupts.next();
        let (events, mut arriving) = mpsc::channel(2);
        let plan = Arc::new(OnceLock::new());
        // In a task of its own, so that a batch that takes long does not keep Ctrl-C and the clock waiting.
        let work = produce(self.engine.context.clone(), statement, self.force, events, plan.clone());
        let task = tokio::spawn(work);
        let mut waiting = Waiting::new(self.quiet, started);
        let mut printer: Option<Printer> = None;
        let outcome = loop {
            tokio::select! {
                event = arriving.recv() => {
                    let printed = match event {
                        Some(Event::Schema(schema)) => self.printer(schema).map(|new| printer = Some(new)),
                        Some(Event::Batch(batch)) => match &mut printer {
                            Some(printer) => waiting.aside(printer.is_streaming(), || printer.write(&batch)),
                            None => Ok(()),
                        },
                        None => break Ok(()),
                    };
                    if let Err(error) = printed {
                        break Err(error);
                    }
                }
                () = waiting.tick() => waiting.show(plan.get()),
                Ok(()) = &mut interrupt => break Err("interrupted".to_owned()),
            }
        };
        waiting.clear();
        let outcome = match outcome {
            Ok(()) => match task.await {
                Ok(outcome) => outcome.map_err(|error| explain_error(&error)),
                Err(failed) => Err(format!("the statement broke off: {failed}")),
            },
            Err(outcome) => {
                task.abort();
                // Until it has let go of what it was writing.
                let _ = timeout(LETTING_GO, task).await;
                Err(outcome)
            }
        };
        // What was shown until it failed was shown.
        self.engine.veil.take_warnings().iter().for_each(|warning| say(&format!("warning: {warning}")));
        if outcome.is_err() {
            // They belong to this statement, and not to the next.
            self.engine.veil.take_notes();
            return outcome;
        }
        let rows = printer.map(Printer::finish).transpose()?.flatten();
        self.close(rows, started);
        self.tell_notes();
        Ok(())
    }

    /// What the reader of a result should know.
    fn tell_notes(&self) {
        let notes = self.engine.veil.take_notes();
        if !self.quiet {
            notes.iter().for_each(|note| say(&format!("note: {note}")));
        }
    }

    fn printer(&self, schema: SchemaRef) -> Result<Printer, String> {
        let options = self.engine.context.state().config_options().format.clone();
        Printer::new(self.format, schema, options)
    }

    /// The line after a result: rows and seconds.
    fn close(&self, rows: Option<usize>, started: Instant) {
        if self.quiet || !self.timing || !self.format.is_table() {
            return;
        }
        let seconds = started.elapsed().as_secs_f64();
        say(&match rows {
            Some(1) => format!("1 row ({seconds:.3} s)"),
            Some(rows) => format!("{rows} rows ({seconds:.3} s)"),
            None => format!("done ({seconds:.3} s)"),
        });
    }
}

/// Plans and executes; the schema comes first, then the rows. What the user no longer wants is dropped with the task.
async fn produce(
    context: SessionContext,
    statement: Statement,
    force: bool,
    events: mpsc::Sender<Event>,
    running: Arc<OnceLock<Arc<dyn ExecutionPlan>>>,
) -> Result<()> {
    let plan = context.state().statement_to_plan(statement).await?;
    let (plan, target) = CopyTarget::divert(plan, force)?;
    let frame = context.execute_logical_plan(plan).await?;
    let tasks = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let _ = running.set(plan.clone());
    let mut rows = execute_stream(plan, tasks)?;
    let mut gone = events.send(Event::Schema(rows.schema())).await.is_err();
    while !gone && let Some(batch) = rows.next().await {
        gone = events.send(Event::Batch(batch?)).await.is_err();
    }
    // Nobody waits for a statement that was cancelled: what it wrote is not complete.
    target.filter(|_| !gone).map_or(Ok(()), CopyTarget::keep)
}
