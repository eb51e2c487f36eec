//! Names of statements: 128 random bits, for one caller, for a while.
//!
//! ```text
//!  Ready --DoGet--> Used                  a statement that is not kept serves once
//!  Ready --DoGet--> Kept --veil.done--> Done
//!  Sql                                    a prepared statement: planned anew whenever it is executed
//! ```
//! The table is bounded. When it is full, whoever holds the most loses what he has not touched for longest; what runs, or is being
//! read, is neither dropped nor does it expire.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::TryRngCore;
use rand::rngs::OsRng;
use tokio::sync::OwnedSemaphorePermit;

use crate::error::refuse;
use crate::spool::Spool;
use crate::{AnswerError, Caller, Kind, Run};

/// What time it is.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// A ticket's or a prepared statement's name.
pub(crate) type Name = [u8; 16];

pub(crate) struct Tickets {
    entries: Mutex<HashMap<Name, Entry>>,
    lifetime: Duration,
    most: usize,
    clock: Clock,
}

struct Entry {
    owner: String,
    touched: Instant,
    state: State,
}

enum State {
    Ready { run: Run, keep: bool },
    Used,
    Kept(Arc<Spool>),
    Done,
    Sql(Arc<str>),
}

/// What a ticket gives.
pub(crate) enum Serve {
    Once(Run, Place),
    Kept(Arc<Spool>),
}

/// A place among the statements that run at the same time.
pub(crate) type Place = OwnedSemaphorePermit;

impl Tickets {
    pub(crate) fn new(lifetime: Duration, most: usize, clock: Clock) -> Self {
        Self { entries: Mutex::default(), lifetime, most: most.max(1), clock }
    }

    /// A ticket for a run.
    pub(crate) fn issue(&self, caller: &Caller, run: Run, keep: bool) -> Result<Name, AnswerError> {
        self.insert(caller, State::Ready { run, keep })
    }

    /// A handle for a statement that may be executed several times.
    pub(crate) fn remember(&self, caller: &Caller, sql: &str) -> Result<Name, AnswerError> {
        self.insert(caller, State::Sql(sql.into()))
    }

    /// The text of a prepared statement.
    pub(crate) fn sql(&self, caller: &Caller, handle: &[u8]) -> Result<Arc<str>, AnswerError> {
        let mut entries = self.swept();
        let entry = self.find(&mut entries, caller, handle, "prepared statement")?;
        match &entry.state {
            State::Sql(sql) => Ok(sql.clone()),
            _ => refuse(Kind::Invalid, "this is a ticket, and no prepared statement"),
        }
    }

    /// Serves a ticket. A run needs a `place`, and `spool` begins one that is kept.
    pub(crate) fn serve(
        &self,
        caller: &Caller,
        ticket: &[u8],
        place: impl FnOnce() -> Result<Place, AnswerError>,
        spool: impl FnOnce(Run, Place) -> Result<Arc<Spool>, AnswerError>,
    ) -> Result<Serve, AnswerError> {
        let mut entries = self.swept();
        let entry = self.find(&mut entries, caller, ticket, "ticket")?;
        match &entry.state {
            State::Kept(spool) => return Ok(Serve::Kept(spool.clone())),
            State::Used => {
                let sentence = "this ticket has been used, and its statement is run once; ask for the statement again";
                return refuse(Kind::Precondition, sentence);
            }
            State::Done => {
                let sentence = "this ticket is done: its rows were acknowledged, or its statement could not begin; \
                                ask for the statement again";
                return refuse(Kind::Precondition, sentence);
            }
            State::Sql(_) => return refuse(Kind::Invalid, "this is a prepared statement, and no ticket"),
            State::Ready { .. } => {}
        }
        let place = place()?;
        match std::mem::replace(&mut entry.state, State::Used) {
            State::Ready { run, keep: true } => {
                entry.state = State::Done;
                let spool = spool(run, place)?;
                entry.state = State::Kept(spool.clone());
                Ok(Serve::Kept(spool))
            }
            State::Ready { run, keep: false } => Ok(Serve::Once(run, place)),
            _ => refuse(Kind::Internal, "a ticket changed while it was looked at"),
        }
    }

    /// Ends a kept statement; a run under way stops. Twice is as good as once.
    pub(crate) fn end(&self, caller: &Caller, ticket: &[u8]) -> Result<(), AnswerError> {
        let mut entries = self.swept();
        let entry = self.find(&mut entries, caller, ticket, "ticket")?;
        if matches!(entry.state, State::Sql(_)) {
            return refuse(Kind::Invalid, "this is a prepared statement, and no ticket; close it instead");
        }
        if let State::Kept(spool) = std::mem::replace(&mut entry.state, State::Done) {
            spool.stop();
        }
        Ok(())
    }

    /// Forgets a prepared statement.
    pub(crate) fn close(&self, caller: &Caller, handle: &[u8]) -> Result<(), AnswerError> {
        let mut entries = self.swept();
        self.find(&mut entries, caller, handle, "prepared statement")?;
        entries.retain(|name, entry| name != handle || !matches!(entry.state, State::Sql(_)));
        Ok(())
    }

    /// Forgets what has expired.
    pub(crate) fn sweep(&self) {
        drop(self.swept());
    }

    /// Ends everything.
    pub(crate) fn clear(&self) {
        for (_, entry) in self.lock().drain() {
            if let State::Kept(spool) = entry.state {
                spool.stop();
            }
        }
    }

    fn insert(&self, caller: &Caller, state: State) -> Result<Name, AnswerError> {
        let mut name = Name::default();
        let failed = |error| AnswerError::new(Kind::Internal, format!("the system gives no random numbers: {error}"));
        OsRng.try_fill_bytes(&mut name).map_err(failed)?;
        let mut entries = self.swept();
        if entries.len() >= self.most {
            let Some(oldest) = least_missed(&entries) else {
                let sentence = format!("{} statements are running or being read here; try again later", self.most);
                return refuse(Kind::Exhausted, sentence);
            };
            entries.remove(&oldest);
        }
        entries.insert(name, Entry { owner: caller.name.clone(), touched: (self.clock)(), state });
        Ok(name)
    }

    fn find<'a>(
        &self,
        entries: &'a mut HashMap<Name, Entry>,
        caller: &Caller,
        name: &[u8],
        what: &str,
    ) -> Result<&'a mut Entry, AnswerError> {
        let entry = Name::try_from(name).ok().and_then(|name| entries.get_mut(&name));
        let Some(entry) = entry else {
            let minutes = self.lifetime.as_secs().div_ceil(60);
            let sentence = format!(
                "this server does not know the {what}: it expired ({minutes} minutes without use), was dropped for newer ones, \
                 or is of another server; ask for the statement again"
            );
            return refuse(Kind::NotFound, sentence);
        };
        if entry.owner != caller.name {
            return refuse(Kind::Denied, format!("this {what} was given to somebody else; ask for one of your own"));
        }
        entry.touched = (self.clock)();
        Ok(entry)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn swept(&self) -> MutexGuard<'_, HashMap<Name, Entry>> {
        let (now, mut entries) = ((self.clock)(), self.lock());
        entries.retain(|_, entry| {
            if entry.is_busy() {
                entry.touched = now;
            }
            now.saturating_duration_since(entry.touched) < self.lifetime
        });
        entries
    }
}

impl Entry {
    /// Runs, or is being read.
    fn is_busy(&self) -> bool {
        matches!(&self.state, State::Kept(spool) if spool.is_running() || Arc::strong_count(spool) > 1)
    }

    /// Nobody gets rows for it any more.
    fn is_over(&self) -> bool {
        matches!(self.state, State::Used | State::Done)
    }
}

/// What to drop for something new: what is over, else what is oldest of the caller who holds most.
fn least_missed(entries: &HashMap<Name, Entry>) -> Option<Name> {
    let mut held: HashMap<&str, usize> = HashMap::new();
    for entry in entries.values() {
        *held.entry(&entry.owner).or_default() += 1;
    }
    let idle = entries.iter().filter(|(_, entry)| !entry.is_busy());
    let rank = |entry: &Entry| {
        let held = held.get(entry.owner.as_str()).copied().unwrap_or_default();
        (!entry.is_over(), std::cmp::Reverse(held), entry.touched)
    };
    idle.min_by_key(|(_, entry)| rank(entry)).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::Role;

    struct Bench {
        tickets: Tickets,
        seconds: Arc<AtomicU64>,
    }

    impl Bench {
        fn new(most: usize) -> Self {
            let (start, seconds) = (Instant::now(), Arc::new(AtomicU64::new(0)));
            let passed = seconds.clone();
            let clock: Clock = Arc::new(move || start + Duration::from_secs(passed.load(Ordering::Relaxed)));
            Self { tickets: Tickets::new(Duration::from_secs(60), most, clock), seconds }
        }

        fn wait(&self, seconds: u64) {
            self.seconds.fetch_add(seconds, Ordering::Relaxed);
        }

        fn issue(&self, owner: &str) -> Name {
            let run = Run::new(|| async { refuse(Kind::Internal, "never run") });
            self.tickets.issue(&caller(owner), run, false).unwrap()
        }

        fn serve(&self, owner: &str, name: &[u8]) -> Result<(), Kind> {
            let place = || Ok(Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap());
            let served = self.tickets.serve(&caller(owner), name, place, |_, _| refuse(Kind::Internal, "no spool"));
            served.map(drop).map_err(|error| error.kind)
        }
    }

    fn caller(name: &str) -> Caller {
        Caller { name: name.to_owned(), role: Role::Steward }
    }

    #[test]
    fn a_ticket_serves_once_and_its_owner_only() {
        let bench = Bench::new(9);
        let ticket = bench.issue("alice");
        assert_eq!(bench.serve("bob", &ticket), Err(Kind::Denied));
        assert_eq!(bench.serve("alice", &ticket), Ok(()));
        assert_eq!(bench.serve("alice", &ticket), Err(Kind::Precondition));
        assert_eq!(bench.serve("bob", &ticket), Err(Kind::Denied));
        for unknown in [&[][..], &[7; 15], &[7; 16], &[7; 17]] {
            assert_eq!(bench.serve("alice", unknown), Err(Kind::NotFound));
        }
    }

    #[test]
    fn a_ticket_that_finds_no_place_stays_good() {
        let bench = Bench::new(9);
        let ticket = bench.issue("alice");
        let full = || refuse(Kind::Exhausted, "full");
        let served = bench.tickets.serve(&caller("alice"), &ticket, full, |_, _| refuse(Kind::Internal, "no spool"));
        assert_eq!(served.err().unwrap().kind, Kind::Exhausted);
        assert_eq!(bench.serve("alice", &ticket), Ok(()));
    }

    #[test]
    fn tickets_expire_and_use_renews_them() {
        let bench = Bench::new(9);
        let (ticket, handle) = (bench.issue("alice"), bench.tickets.remember(&caller("alice"), "SELECT 1").unwrap());
        bench.wait(59);
        assert_eq!(&*bench.tickets.sql(&caller("alice"), &handle).unwrap(), "SELECT 1");
        bench.wait(1);
        assert_eq!(bench.serve("alice", &ticket), Err(Kind::NotFound));
        assert!(bench.tickets.sql(&caller("alice"), &handle).is_ok());
        bench.wait(60);
        assert_eq!(bench.tickets.sql(&caller("alice"), &handle).unwrap_err().kind, Kind::NotFound);
    }

    #[test]
    fn a_full_table_drops_what_is_missed_least() {
        let bench = Bench::new(4);
        let used = bench.issue("bob");
        bench.serve("bob", &used).unwrap();
        bench.wait(1);
        let first = bench.issue("bob");
        bench.wait(1);
        let (second, third) = (bench.issue("alice"), bench.issue("alice"));
        // What is over goes first, then the oldest of who has most: not bob's, although it is older.
        bench.wait(1);
        let fourth = bench.issue("alice");
        assert_eq!(bench.serve("bob", &used), Err(Kind::NotFound));
        bench.issue("carol");
        let left = [second, third].iter().filter(|name| bench.serve("alice", *name).is_ok()).count();
        assert_eq!(left, 1);
        assert_eq!((bench.serve("bob", &first), bench.serve("alice", &fourth)), (Ok(()), Ok(())));
    }

    #[test]
    fn handles_and_tickets_are_not_mixed_up() {
        let bench = Bench::new(9);
        let alice = caller("alice");
        let (ticket, handle) = (bench.issue("alice"), bench.tickets.remember(&alice, "SELECT 1").unwrap());
        assert_eq!(bench.serve("alice", &handle), Err(Kind::Invalid));
        assert_eq!(bench.tickets.end(&alice, &handle).unwrap_err().kind, Kind::Invalid);
        assert_eq!(bench.tickets.sql(&alice, &ticket).unwrap_err().kind, Kind::Invalid);
        assert_eq!(bench.tickets.close(&caller("bob"), &handle).unwrap_err().kind, Kind::Denied);
        bench.tickets.close(&alice, &handle).unwrap();
        assert_eq!(bench.tickets.sql(&alice, &handle).unwrap_err().kind, Kind::NotFound);
        bench.tickets.end(&alice, &ticket).unwrap();
        assert_eq!(bench.serve("alice", &ticket), Err(Kind::Precondition));
    }
}
