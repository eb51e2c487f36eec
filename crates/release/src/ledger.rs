//! What was released and spent: the key holder's memory, which survives a crash.
//!
//! A release spends once, however often it is tried. A parcel of a release has one content: another under the same number
//! would be noised anew, and averaging takes noise off. Whoever can put an old copy of the file in its place gets budgets
//! back, so the folder must be as safe as the keys.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use veil_cells::ColumnId;
use veil_privacy::SpentEpsilon;

use crate::journal::Journal;
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
}

/// A ledger in a folder, which this program alone has open.
#[derive(Debug)]
pub struct Ledger {
    state: Mutex<State>,
    /// Held as long as the ledger is.
    _lock: File,
}

/// A line of the ledger.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Entry {
    Spend { release: ReleaseId, recipient: String, columns: BTreeMap<ColumnId, u64> },
    Bind { release: ReleaseId, number: u32, digest: Digest },
}

#[derive(Debug)]
struct State {
    journal: Journal,
    books: Books,
}

/// The sum of all lines.
#[derive(Debug, Default)]
struct Books {
    spent: HashMap<(String, ColumnId), u64>,
    releases: HashMap<ReleaseId, (String, BTreeMap<ColumnId, u64>)>,
    parcels: HashMap<(ReleaseId, u32), Digest>,
}

impl Ledger {
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
        Ok(Self { state: Mutex::new(State { journal, books }), _lock: lock })
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
            return if same { Ok(()) } else { Err(LedgerError::OtherRelease(release)) };
        }
        for Spend { column, name, budget, .. } in spends {
            let (spent, asked) = (state.books.spent(recipient, *column), columns.get(column).copied().unwrap_or(0));
            if spent.saturating_add(asked) > *budget {
                let (column, recipient) = (name.clone(), recipient.to_owned());
                return Err(LedgerError::OverBudget { column, recipient, spent, asked, budget: *budget });
            }
        }
        state.record(Entry::Spend { release, recipient: recipient.to_owned(), columns })
    }

    /// Records what a parcel of a release is, durably before this returns; the same again is nothing new.
    pub fn bind(&self, release: ReleaseId, number: u32, digest: [u8; 32]) -> Result<(), LedgerError> {
        let mut state = self.state();
        let digest = Digest(digest);
        match state.books.parcels.get(&(release, number)) {
            Some(known) if *known == digest => Ok(()),
            Some(_) => Err(LedgerError::OtherParcel { release, number }),
            None => state.record(Entry::Bind { release, number, digest }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The books change only after the disk, in steps that do not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// First the disk, then the memory.
    fn record(&mut self, entry: Entry) -> Result<(), LedgerError> {
        let text = serde_json::to_string(&entry).map_err(|error| LedgerError::Io {
            path: PathBuf::from(LEDGER_FILE),
            source: std::io::Error::other(error),
        })?;
        self.journal.append(&text)?;
        let taken = self.books.take(entry);
        debug_assert!(taken.is_ok(), "{taken:?}");
        Ok(())
    }
}

impl Books {
    fn spent(&self, recipient: &str, column: ColumnId) -> u64 {
        self.spent.get(&(recipient.to_owned(), column)).copied().unwrap_or(0)
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
        journal.append(&text).unwrap();
        journal.append(&text).unwrap();
        let error = Ledger::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 2: the ledger was damaged: the parcel is there twice"), "{error}");
    }
}
