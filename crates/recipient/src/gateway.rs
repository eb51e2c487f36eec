//! A Flight SQL endpoint on the recipient's own machine: forwards statements to P1 as releases, and gives clear rows.
//!
//! The columns of a release are known only once it has begun, and clients ask about columns first. So a release begins when a client
//! asks about a statement, waits for the client to ask for rows, and is the same for all questions until then: a release may
//! cost epsilon, and must not be made again for a question. While it waits it is received and opened, as far as there is room.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use veil_flight_sql::{AnswerError, Answers, Caller, Kind, Prepared, Rows, Run, TableEntry};
use veil_keys::RecipientKey;
use veil_release::OwnerPublic;

use crate::incoming::Incoming;
use crate::read_ahead::ReadAhead;
use crate::{Fetch, Opener, RecipientError, release_statement};

/// Releases that wait for their client at the same time.
const MOST_WAITING: usize = 16;

/// How long a release waits for its client.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// Bytes of clear rows that wait for their clients, unless the gateway is told otherwise.
pub const READ_AHEAD: usize = 64 << 20;

/// Answers statements with releases.
#[derive(Debug)]
pub struct Gateway {
    source: Arc<Source>,
    waiting: Arc<Mutex<VecDeque<Waiting>>>,
    longest: Duration,
    /// One question about a statement at a time, so that two do not begin two releases.
    asking: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug)]
struct Source {
    fetch: Fetch,
    key: RecipientKey,
    owner: Option<OwnerPublic>,
    ahead: ReadAhead,
}

/// A release that has begun and nobody has read.
#[derive(Debug)]
struct Waiting {
    caller: String,
    statement: String,
    schema: SchemaRef,
    incoming: Incoming,
    since: Instant,
}

impl Source {
    async fn begin(&self, statement: &str) -> Result<(SchemaRef, Incoming), RecipientError> {
        let opener = self.owner.into_iter().fold(Opener::new(self.key.clone()), Opener::with_owner);
        let mut incoming = self.fetch.sql_ahead(statement, opener, self.ahead.place()).await?;
        Ok((incoming.schema().await?, incoming))
    }
}

impl Gateway {
    /// Between a server and the holder of a recipient's key. With the owner's key, manifests must be signed under it.
    pub fn new(fetch: Fetch, key: RecipientKey, owner: Option<OwnerPublic>) -> Self {
        let source = Arc::new(Source { fetch, key, owner, ahead: ReadAhead::new(READ_AHEAD) });
        Self { source, waiting: Arc::default(), longest: LONGEST, asking: Mutex::default() }
    }

    /// Keeps at most so many bytes of clear rows that nobody has asked for yet, of all releases together. A batch of each release
    /// is ready in any case.
    pub fn with_read_ahead(self, bytes: usize) -> Self {
        let Source { fetch, key, owner, .. } = &*self.source;
        let (fetch, key, owner) = (fetch.clone(), key.clone(), *owner);
        Self { source: Arc::new(Source { fetch, key, owner, ahead: ReadAhead::new(bytes) }), ..self }
    }

    /// Lets a release wait so long for its client, instead of half an hour.
    pub fn with_longest_wait(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Releases that wait for their clients.
    pub fn waiting(&self) -> usize {
        locked(&self.waiting).len()
    }

    /// Those of them that went wrong, which is said to whoever asks for their rows.
    pub fn broken(&self) -> usize {
        locked(&self.waiting).iter().filter(|release| release.incoming.is_broken()).count()
    }

    /// Bytes of clear rows that are kept for clients, besides a batch for each.
    pub fn read_ahead(&self) -> usize {
        self.source.ahead.held()
    }

    /// Lets a release wait, and no longer than it may.
    fn keep(&self, release: Waiting) {
        let mut waiting = locked(&self.waiting);
        waiting.push_back(release);
        while waiting.len() > MOST_WAITING {
            waiting.pop_front();
        }
        let (longest, waiting) = (self.longest, Arc::downgrade(&self.waiting));
        tokio::spawn(async move {
            tokio::time::sleep(longest).await;
            if let Some(waiting) = waiting.upgrade() {
                locked(&waiting).retain(|release| release.since.elapsed() < longest);
            }
        });
    }

    /// The turns of those who ask about a statement; of statements that nobody asks about, there are none.
    fn turn(&self, statement: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.retain(|_, turn| Arc::strong_count(turn) > 1);
        asking.entry(statement.to_owned()).or_default().clone()
    }
}

#[async_trait]
impl Answers for Gateway {
    async fn prepare(&self, caller: &Caller, sql: &str) -> Result<Prepared, AnswerError> {
        let statement = release_statement(sql, self.source.key.name()).map_err(|error| answer(&error))?;
        let turn = self.turn(&statement);
        let _one = turn.lock().await;
        let known = find(&locked(&self.waiting), &caller.name, &statement).map(|at| at.schema.clone());
        let schema = match known {
            Some(schema) => schema,
            None => {
                let (schema, incoming) = self.source.begin(&statement).await.map_err(|error| answer(&error))?;
                let (caller, statement) = (caller.name.clone(), statement.clone());
                let since = Instant::now();
                self.keep(Waiting { caller, statement, schema: schema.clone(), incoming, since });
                schema
            }
        };
        let (source, waiting, caller) = (self.source.clone(), self.waiting.clone(), caller.name.clone());
        let promised = schema.clone();
        let run = Run::new(move || async move {
            let begun = take(&mut locked(&waiting), &caller, &statement);
            let (schema, incoming) = match begun {
                Some(begun) => (begun.schema, begun.incoming),
                // Another ticket of the same statement has it: this one gets a release of its own.
                None => source.begin(&statement).await.map_err(|error| answer(&error))?,
            };
            match schema == promised {
                true => Ok(rows(schema, incoming)),
                false => Err(AnswerError::new(Kind::Precondition, "the columns have changed since; ask again")),
            }
        });
        // Clear rows are not for the disk, so they are not kept.
        Ok(Prepared { schema: Some(schema), run, keep: false })
    }

    async fn tables(&self, _: &Caller) -> Result<Vec<TableEntry>, AnswerError> {
        let tables = self.source.fetch.tables().await.map_err(|error| answer(&error))?;
        let entry = |[catalog, schema, table, table_type]: [String; 4]| TableEntry {
            catalog,
            schema,
            table,
            table_type,
            // As they are on the server, which is not how they come out of a release.
            columns: None,
        };
        Ok(tables.into_iter().map(entry).collect())
    }
}

fn locked(waiting: &Mutex<VecDeque<Waiting>>) -> MutexGuard<'_, VecDeque<Waiting>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The release of a statement that waits.
fn find<'a>(waiting: &'a VecDeque<Waiting>, caller: &str, statement: &str) -> Option<&'a Waiting> {
    waiting.iter().find(|release| release.caller == caller && release.statement == statement)
}

fn take(waiting: &mut VecDeque<Waiting>, caller: &str, statement: &str) -> Option<Waiting> {
    let at = waiting.iter().position(|release| release.caller == caller && release.statement == statement)?;
    waiting.remove(at)
}

fn rows(schema: SchemaRef, incoming: Incoming) -> Rows {
    let batches = stream::try_unfold(incoming, |mut incoming| async move {
        let batch = incoming.next_batch().await.map_err(|error| answer(&error))?;
        Ok(batch.map(|batch| (batch, incoming)))
    });
    Rows { schema, batches: batches.boxed() }
}

fn answer(error: &RecipientError) -> AnswerError {
    let kind = match error {
        RecipientError::Refused(status) => return AnswerError::of_status(status),
        RecipientError::Unreachable { .. } | RecipientError::Lost { .. } => Kind::Unavailable,
        RecipientError::OtherKey(_) => Kind::Denied,
        RecipientError::Setting(_) | RecipientError::NoRelease(_) => Kind::Invalid,
        _ => Kind::Internal,
    };
    AnswerError::new(kind, error.to_string())
}
