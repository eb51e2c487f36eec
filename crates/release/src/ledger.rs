//! What was released and spent: the key holder's memory, which survives a crash.
//!
//! A release spends once, however often it is tried. A parcel of a release has one content: another under the same number
//! would be noised anew, and averaging takes noise off. Questions spend too: numbers that they open are counted for every file and day.
//! Whoever can put an old copy of the file in its place gets budgets back, so the folder must be as safe as the keys.
//!
//! An entry is written under the lock and synced outside of it: whoever comes while the disk works writes too, and one of them syncs for all that
//! wait (group commit). Nothing is answered for before it is on the disk.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use veil_cells::{ColumnId, FileId};
use veil_privacy::SpentEpsilon;

use crate::journal::Journal;
use crate::text_form::hex_form;
use crate::{Digest, ReleaseId, Spend};

/// The ledger's file in its folder.
pub const LEDGER_FILE: &str = "ledger.jsonl";

const LOCK_FILE: &str = "ledger.lock";

/// What can go wrong with a ledger. Each is one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Another program has it.
    #[error("{0} is in use by another key holder; stop that one, or give this one a folder of its own")]
    InUse(PathBuf),

    /// The file was damaged.
    #[error(
        "{path}, line {line}: the ledger was damaged: {why}; restore the file, since budgets cannot be trusted without it"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// What gave it away.
        why: String,
    },

    /// A write failed earlier.
    #[error("{0} could not be written before, so nothing more is spent; make room on the disk and start again")]
    Broken(PathBuf),

    /// The file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },

    /// The budget does not allow it.
    #[error(
        "column {column} would cost epsilon {}, and recipient {recipient} has spent {} of {}",
        SpentEpsilon::from_millionths(*.asked), SpentEpsilon::from_millionths(*.spent), SpentEpsilon::from_millionths(*.budget)
    )]
    OverBudget {
        /// The column.
        column: String,
        /// The recipient.
        recipient: String,
        /// What was spent, in millionths.
        spent: u64,
        /// What this would spend.
        asked: u64,
        /// What all together may.
        budget: u64,
    },

    /// The release was another one before.
    #[error("release {0} was another one before, with other columns or another recipient; begin a new release")]
    OtherRelease(ReleaseId),

    /// The parcel was another one before.
    #[error("parcel {number} of release {release} had other content before; begin a new release")]
    OtherParcel {
        /// The release.
        release: ReleaseId,
        /// The parcel.
        number: u32,
    },

    /// Questions would open too many numbers.
    #[error(
        "questions about a file may open {limit} numbers a day by the owner's rules, {spent} are spent today, and this would open {asked} more; ask tomorrow, or ask the owner for more"
    )]
    NumbersSpent {
        /// What was opened today.
        spent: u64,
        /// What this would open.
        asked: u64,
        /// What all together may.
        limit: u64,
    },

    /// There is no room for more files in a day.
    #[error("questions were asked about {0} files today, more than P2 keeps account of; ask tomorrow")]
    ManyFiles(usize),
}

/// A ledger in a folder, which this program alone has open; or in memory.
#[derive(Debug)]
pub struct Ledger {
    state: Mutex<State>,
    /// Says that a sync has ended.
    synced: Condvar,
    /// Held as long as the ledger is.
    _lock: Option<File>,
}

/// What a batch of a question opens.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The day, counted from 1970, in UTC.
    pub day: u64,
    /// The files that its rows are of.
    pub files: &'a [FileId],
    /// How many numbers.
    pub numbers: u64,
    /// How many all questions about a file may open that day.
    pub limit: u64,
    /// What the batch is known by when it comes again.
    pub digest: [u8; 16],
}

/// A line of the ledger.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Entry {
    Spend { release: ReleaseId, recipient: String, columns: BTreeMap<ColumnId, u64> },
    Bind { release: ReleaseId, number: u32, digest: Digest },
    Ask { day: u64, numbers: u64, digest: AskDigest, files: Vec<AskedFile> },
}

/// What a batch is known by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct AskDigest([u8; 16]);

hex_form!(AskDigest, 16, "a digest of a question");

/// A file's name, as text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct AskedFile([u8; 9]);

hex_form!(AskedFile, 9, "a name of a file");

#[derive(Debug)]
struct State {
    /// The file, if the ledger has one.
    journal: Option<Journal>,
    books: Books,
    /// Whether somebody syncs.
    syncing: bool,
    /// How often the disk was waited for.
    #[cfg(test)]
    syncs: usize,
}

/// The sum of all lines.
#[derive(Debug, Default)]
struct Books {
    spent: HashMap<(String, ColumnId), u64>,
    releases: HashMap<ReleaseId, (String, BTreeMap<ColumnId, u64>)>,
    parcels: HashMap<(ReleaseId, u32), Digest>,
    /// Of the latest day, and of the one before.
    days: BTreeMap<u64, Day>,
}

/// What questions of a day have opened.
#[derive(Debug, Default)]
struct Day {
    numbers: HashMap<AskedFile, u64>,
    /// The batches, so that a retry is known.
    digests: HashSet<AskDigest>,
}

/// The most batches of a day that are known again, 16 bytes each. Later ones are counted again when they come again.
const MAX_DIGESTS: usize = 1 << 20;

/// The most files of a day.
const MAX_FILES_A_DAY: usize = 1 << 20;

impl Ledger {
    /// A ledger that ends with the program: for trying out.
    pub fn in_memory() -> Self {
        Self::of(None, Books::default(), None)
    }

    fn of(journal: Option<Journal>, books: Books, lock: Option<File>) -> Self {
        let state = State {
            journal,
            books,
            syncing: false,
            #[cfg(test)]
            syncs: 0,
        };
        Self { state: Mutex::new(state), synced: Condvar::new(), _lock: lock }
    }

    /// Opens the ledger of a folder, or begins one.
    pub fn open(folder: &Path) -> Result<Self, LedgerError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| LedgerError::Io { path, source }
        };
        fs::create_dir_all(folder).map_err(io(folder))?;
        let lock_path = folder.join(LOCK_FILE);
        let lock = File::options().write(true).create(true).truncate(false).open(&lock_path).map_err(io(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LedgerError::InUse(folder.to_owned())),
            Err(TryLockError::Error(source)) => return Err(LedgerError::Io { path: lock_path, source }),
        }
        let mut books = Books::default();
        let journal = Journal::open(&folder.join(LEDGER_FILE), |entry| {
            let entry = serde_json::from_str(entry).map_err(|error| error.to_string())?;
            books.take(entry).map_err(str::to_owned)
        })?;
        Ok(Self::of(Some(journal), books, Some(lock)))
    }

    /// What releases to a recipient have spent on a column, in millionths of epsilon.
    pub fn spent(&self, recipient: &str, column: ColumnId) -> u64 {
        self.state().books.spent(recipient, column)
    }

    /// The same without one release: what a retry of it has to be held against.
    pub fn spent_besides(&self, release: ReleaseId, recipient: &str, column: ColumnId) -> u64 {
        let state = self.state();
        let own = state.books.releases.get(&release).filter(|(name, _)| name == recipient);
        let own = own.and_then(|(_, columns)| columns.get(&column)).copied().unwrap_or(0);
        state.books.spent(recipient, column).saturating_sub(own)
    }

    /// Spends what a release costs: all of it or nothing, once, and durably before this returns.
    pub fn spend(&self, release: ReleaseId, recipient: &str, spends: &[Spend]) -> Result<(), LedgerError> {
        let mut state = self.state();
        let mut columns = BTreeMap::<ColumnId, u64>::new();
        for spend in spends {
            let epsilon = columns.entry(spend.column).or_default();
            *epsilon = epsilon.saturating_add(spend.epsilon);
        }
        if let Some((name, known)) = state.books.releases.get(&release) {
            let same = name == recipient && *known == columns;
            return if same { self.durable(state) } else { Err(LedgerError::OtherRelease(release)) };
        }
        for Spend { column, name, budget, .. } in spends {
            let (spent, asked) = (state.books.spent(recipient, *column), columns.get(column).copied().unwrap_or(0));
            if spent.saturating_add(asked) > *budget {
                let (column, recipient) = (name.clone(), recipient.to_owned());
                return Err(LedgerError::OverBudget { column, recipient, spent, asked, budget: *budget });
            }
        }
        state.record(Entry::Spend { release, recipient: recipient.to_owned(), columns })?;
        self.durable(state)
    }

    /// Records what a parcel of a release is, durably before this returns; the same again is nothing new.
    pub fn bind(&self, release: ReleaseId, number: u32, digest: [u8; 32]) -> Result<(), LedgerError> {
        let mut state = self.state();
        let digest = Digest(digest);
        match state.books.parcels.get(&(release, number)) {
            Some(known) if *known == digest => {}
            Some(_) => return Err(LedgerError::OtherParcel { release, number }),
            None => state.record(Entry::Bind { release, number, digest })?,
        }
        self.durable(state)
    }

    /// Numbers that questions about a file have opened on a day.
    pub fn opened(&self, day: u64, file: FileId) -> u64 {
        self.state().books.opened(day, AskedFile(file.0))
    }

    /// Counts the numbers of a batch for each of its files: for all or for none, once, and durably before this returns.
    pub fn ask(&self, ask: Ask<'_>) -> Result<(), LedgerError> {
        let Ask { day, files, numbers, limit, digest } = ask;
        let mut state = self.state();
        // A clock that is set back does not open a day again that is forgotten.
        let day = state.books.days.last_key_value().map_or(day, |(latest, _)| day.max(latest.saturating_sub(1)));
        let digest = AskDigest(digest);
        if !state.books.days.values().any(|day| day.digests.contains(&digest)) {
            let mut files: Vec<AskedFile> = files.iter().map(|file| AskedFile(file.0)).collect();
            files.sort_unstable();
            files.dedup();
            let spent = files.iter().map(|file| state.books.opened(day, *file)).max().unwrap_or(0);
            if spent.saturating_add(numbers) > limit {
                return Err(LedgerError::NumbersSpent { spent, asked: numbers, limit });
            }
            let of_day = state.books.days.get(&day);
            let known = of_day.map_or(0, |day| day.numbers.len());
            let new = files.iter().filter(|file| of_day.is_none_or(|day| !day.numbers.contains_key(*file))).count();
            if known.saturating_add(new) > MAX_FILES_A_DAY {
                return Err(LedgerError::ManyFiles(known));
            }
            state.record(Entry::Ask { day, numbers, digest, files })?;
        }
        self.durable(state)
    }

    /// Waits until all that was written is on the disk: one thread syncs for all that wait.
    fn durable<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<(), LedgerError> {
        let Some(written) = state.journal.as_ref().map(Journal::length) else { return Ok(()) };
        loop {
            let State { journal: Some(journal), syncing, .. } = &mut *state else { return Ok(()) };
            if journal.is_durable(written)? {
                return Ok(());
            }
            if *syncing {
                state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            *syncing = true;
            let (file, length) = (journal.file(), journal.length());
            drop(state);
            let outcome = file.sync_data();
            state = self.state();
            state.syncing = false;
            #[cfg(test)]
            {
                state.syncs += 1;
            }
            self.synced.notify_all();
            if let Some(journal) = &mut state.journal {
                journal.synced(length, outcome)?;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The books change only after the file, in steps that do not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// First the file, then the memory. Nobody may hear of it before it is durable.
    fn record(&mut self, entry: Entry) -> Result<(), LedgerError> {
        let text = serde_json::to_string(&entry).map_err(|error| LedgerError::Io {
            path: PathBuf::from(LEDGER_FILE),
            source: std::io::Error::other(error),
        })?;
        if let Some(journal) = &mut self.journal {
            journal.write(&text)?;
        }
        let taken = self.books.take(entry);
        debug_assert!(taken.is_ok(), "{taken:?}");
        Ok(())
    }
}

impl Books {
    fn spent(&self, recipient: &str, column: ColumnId) -> u64 {
        self.spent.get(&(recipient.to_owned(), column)).copied().unwrap_or(0)
    }

    fn opened(&self, day: u64, file: AskedFile) -> u64 {
        self.days.get(&day).and_then(|day| day.numbers.get(&file)).copied().unwrap_or(0)
    }

    /// Takes a line in; one that says a thing twice was not written by us.
    fn take(&mut self, entry: Entry) -> Result<(), &'static str> {
        match entry {
            Entry::Spend { release, recipient, columns } => {
                for (column, epsilon) in &columns {
                    let sum = self.spent.entry((recipient.clone(), *column)).or_default();
                    *sum = sum.saturating_add(*epsilon);
                }
                match self.releases.insert(release, (recipient, columns)) {
                    None => Ok(()),
                    Some(_) => Err("the release is there twice"),
                }
            }
            Entry::Bind { release, number, digest } => match self.parcels.insert((release, number), digest) {
                None => Ok(()),
                Some(_) => Err("the parcel is there twice"),
            },
            Entry::Ask { day, numbers, digest, files } => {
                let of = self.days.entry(day).or_default();
                for file in files {
                    let sum = of.numbers.entry(file).or_default();
                    *sum = sum.saturating_add(numbers);
                }
                if of.digests.len() < MAX_DIGESTS {
                    of.digests.insert(digest);
                }
                let latest = self.days.last_key_value().map_or(0, |(latest, _)| *latest);
                self.days.retain(|day, _| day.saturating_add(1) >= latest);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ColumnId = ColumnId([1; 8]);
    const B: ColumnId = ColumnId([2; 8]);

    fn release(number: u8) -> ReleaseId {
        ReleaseId([number; 16])
    }

    fn cost(column: ColumnId, epsilon: u64) -> Spend {
        Spend { column, name: "cost".to_owned(), epsilon, budget: 100 }
    }

    #[test]
    fn releases_spend_once_and_within_budgets() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.spend(release(1), "alice", &[cost(A, 60), cost(B, 10)]).unwrap();
        ledger.spend(release(1), "alice", &[cost(B, 10), cost(A, 60)]).unwrap();
        assert_eq!((ledger.spent("alice", A), ledger.spent("alice", B), ledger.spent("bob", A)), (60, 10, 0));
        assert_eq!(ledger.spent_besides(release(1), "alice", A), 0);
        assert_eq!(ledger.spent_besides(release(2), "alice", A), 60);

        let other = ledger.spend(release(1), "alice", &[cost(A, 60)]).unwrap_err();
        assert!(matches!(other, LedgerError::OtherRelease(_)), "{other}");
        assert!(ledger.spend(release(1), "bob", &[cost(A, 60), cost(B, 10)]).is_err());
        // All or nothing: the first column would fit.
        let over = ledger.spend(release(2), "alice", &[cost(B, 1), cost(A, 41)]).unwrap_err();
        assert!(matches!(over, LedgerError::OverBudget { spent: 60, asked: 41, budget: 100, .. }), "{over}");
        assert!(ledger.spend(release(2), "alice", &[cost(A, 20), cost(A, 21)]).is_err(), "twice is the sum");
        assert_eq!((ledger.spent("alice", A), ledger.spent("alice", B)), (60, 10));
        ledger.spend(release(2), "alice", &[cost(A, 40)]).unwrap();
        assert_eq!(ledger.spent("alice", A), 100);
    }

    #[test]
    fn parcels_keep_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.bind(release(1), 0, [1; 32]).unwrap();
        ledger.bind(release(1), 1, [2; 32]).unwrap();
        ledger.bind(release(1), 0, [1; 32]).unwrap();
        let error = ledger.bind(release(1), 0, [3; 32]).unwrap_err().to_string();
        assert!(error.starts_with("parcel 0 of release 01010101"), "{error}");
        drop(ledger);
        let ledger = Ledger::open(folder.path()).unwrap();
        assert!(ledger.bind(release(1), 1, [1; 32]).is_err());
        ledger.bind(release(1), 1, [2; 32]).unwrap();
    }

    #[test]
    fn what_was_spent_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.spend(release(1), "alice", &[cost(A, 60)]).unwrap();
        ledger.spend(release(2), "alice", &[]).unwrap();
        assert!(matches!(Ledger::open(folder.path()), Err(LedgerError::InUse(_))), "two must not share a ledger");
        drop(ledger);
        let ledger = Ledger::open(folder.path()).unwrap();
        assert_eq!(ledger.spent("alice", A), 60);
        ledger.spend(release(1), "alice", &[cost(A, 60)]).unwrap();
        assert_eq!(ledger.spent("alice", A), 60);
        assert!(ledger.spend(release(2), "bob", &[]).is_err());
    }

    #[test]
    fn threads_do_not_overspend() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        let spent = std::thread::scope(|scope| {
            let spend = |number| ledger.spend(release(number), "alice", &[cost(A, 30)]).is_ok();
            let threads: Vec<_> = (0..8).map(|number| scope.spawn(move || spend(number))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|ok| *ok).count()
        });
        assert_eq!((spent, ledger.spent("alice", A)), (3, 90));
    }

    #[test]
    fn a_line_twice_is_damage() {
        let line = Entry::Bind { release: release(1), number: 0, digest: Digest([0; 32]) };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(
            text,
            format!(r#"{{"bind":{{"release":"{}","number":0,"digest":"{}"}}}}"#, "01".repeat(16), "0".repeat(64))
        );
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&folder.path().join(LEDGER_FILE), |_| Ok(())).unwrap();
        journal.write(&text).unwrap();
        journal.write(&text).unwrap();
        let error = Ledger::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 2: the ledger was damaged: the parcel is there twice"), "{error}");
    }

    const FILE: FileId = FileId([1; 9]);
    const OTHER: FileId = FileId([2; 9]);

    fn ask(day: u64, files: &[FileId], numbers: u64, digest: u8) -> Ask<'_> {
        Ask { day, files, numbers, limit: 100, digest: [digest; 16] }
    }

    #[test]
    fn questions_spend_by_file_and_day() {
        for durable in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let ledger = if durable { Ledger::open(folder.path()).unwrap() } else { Ledger::in_memory() };
            ledger.ask(ask(10, &[FILE], 60, 1)).unwrap();
            ledger.ask(ask(10, &[FILE], 60, 1)).unwrap();
            assert_eq!(ledger.opened(10, FILE), 60, "a retry spends nothing");
            let spent = ledger.ask(ask(10, &[OTHER, FILE], 41, 2)).unwrap_err();
            assert!(matches!(spent, LedgerError::NumbersSpent { spent: 60, asked: 41, limit: 100 }), "{spent}");
            assert_eq!(
                spent.to_string(),
                "questions about a file may open 100 numbers a day by the owner's rules, 60 are spent today, and this would open 41 more; ask tomorrow, or ask the owner for more"
            );
            assert_eq!(ledger.opened(10, OTHER), 0, "for all files or for none");
            ledger.ask(ask(10, &[OTHER, FILE, OTHER], 40, 2)).unwrap();
            assert_eq!((ledger.opened(10, FILE), ledger.opened(10, OTHER)), (100, 40));
            ledger.ask(ask(10, &[], 1000, 7)).unwrap_err();
            // The next day is another budget, in which yesterday's batches are known.
            ledger.ask(ask(11, &[FILE], 100, 3)).unwrap();
            ledger.ask(ask(11, &[FILE, OTHER], 40, 2)).unwrap();
            assert_eq!((ledger.opened(11, FILE), ledger.opened(11, OTHER)), (100, 0));
            ledger.ask(ask(12, &[OTHER], 1, 4)).unwrap();
            // Two days later they are new, and a clock that is set back finds the oldest day that is known.
            assert_eq!((ledger.opened(10, FILE), ledger.opened(11, FILE)), (0, 100));
            assert!(ledger.ask(ask(3, &[FILE], 1, 5)).is_err());
            ledger.ask(ask(12, &[FILE], 100, 1)).unwrap();
            assert_eq!(ledger.opened(12, FILE), 100);
        }
    }

    #[test]
    fn what_was_asked_is_there_again() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.ask(ask(10, &[FILE, OTHER], 60, 1)).unwrap();
        ledger.spend(release(1), "alice", &[cost(A, 60)]).unwrap();
        drop(ledger);
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.ask(ask(10, &[FILE, OTHER], 60, 1)).unwrap();
        assert_eq!((ledger.opened(10, FILE), ledger.opened(10, OTHER), ledger.spent("alice", A)), (60, 60, 60));
        assert!(ledger.ask(ask(10, &[OTHER], 41, 2)).is_err());
        let text = std::fs::read_to_string(folder.path().join(LEDGER_FILE)).unwrap();
        let entry = format!(
            r#""entry":{{"ask":{{"day":10,"numbers":60,"digest":"{}","files":["{}","{}"]}}}}}}"#,
            "01".repeat(16),
            "01".repeat(9),
            "02".repeat(9)
        );
        assert!(text.lines().next().unwrap().ends_with(&entry), "{text}");
    }

    /// Eight batches come while the disk is busy: one sync is enough for all.
    #[test]
    fn batches_that_wait_share_a_sync() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        let waiting = 8;
        ledger.state().syncing = true;
        std::thread::scope(|scope| {
            let asks = |digest: u8| ledger.ask(Ask { limit: 1000, ..ask(10, &[FILE], 5, digest) });
            let threads: Vec<_> = (0..waiting).map(|digest| scope.spawn(move || asks(digest))).collect();
            while ledger.opened(10, FILE) < 5 * u64::from(waiting) {
                std::thread::yield_now();
            }
            assert!(threads.iter().all(|thread| !thread.is_finished()), "nothing is answered before it is on the disk");
            ledger.state().syncing = false;
            ledger.synced.notify_all();
            threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
        assert_eq!(ledger.state().syncs, 1);
        drop(ledger);
        assert_eq!(Ledger::open(folder.path()).unwrap().opened(10, FILE), 40);
    }

    /// After a sync that failed nothing is answered for any more, to nobody.
    #[test]
    fn a_failed_sync_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.ask(ask(10, &[FILE], 5, 1)).unwrap();
        ledger.state().syncing = true;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ledger.ask(ask(10, &[FILE], 5, 2)));
            while ledger.opened(10, FILE) < 10 {
                std::thread::yield_now();
            }
            let mut state = ledger.state();
            let length = state.journal.as_ref().unwrap().length();
            state.journal.as_mut().unwrap().synced(length, Err(std::io::Error::other("no disk"))).unwrap_err();
            state.syncing = false;
            drop(state);
            ledger.synced.notify_all();
            assert!(matches!(waiting.join().unwrap(), Err(LedgerError::Broken(_))));
        });
        assert!(matches!(ledger.ask(ask(10, &[FILE], 5, 1)), Err(LedgerError::Broken(_))));
        assert!(matches!(ledger.bind(release(1), 1, [0; 32]), Err(LedgerError::Broken(_))));
        drop(ledger);
        assert_eq!(Ledger::open(folder.path()).unwrap().opened(10, FILE), 5, "what was not answered for is not there");
    }

    #[test]
    fn threads_do_not_ask_for_more_than_they_may() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        let granted = std::thread::scope(|scope| {
            let asks = |digest| ledger.ask(ask(10, &[FILE], 30, digest)).is_ok();
            let threads: Vec<_> = (0..8).map(|digest| scope.spawn(move || asks(digest))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|ok| *ok).count()
        });
        assert_eq!((granted, ledger.opened(10, FILE)), (3, 90));
        drop(ledger);
        assert_eq!(Ledger::open(folder.path()).unwrap().opened(10, FILE), 90);
    }
}
