//! A key holder that is killed while it spends: what it answered for is there, and nothing is there twice.
//!
//! The test runs itself as a child, which spends and says so on standard output, and kills it (SIGKILL) somewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use veil_cells::{ColumnId, FileId};
use veil_release::{Ask, Ledger, LedgerError, ReleaseId, Spend};

const COLUMNS: [ColumnId; 2] = [ColumnId([1; 8]), ColumnId([2; 8])];
const FILES: [FileId; 2] = [FileId([1; 9]), FileId([2; 9])];
const DAY: u64 = 20_000;
const FOLDER: &str = "VEIL_TEST_LEDGER";
const FIRST: &str = "VEIL_TEST_FIRST";
const KILLS: usize = 12;

fn release(number: u64) -> ReleaseId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    ReleaseId(id)
}

fn digest(number: u64) -> [u8; 32] {
    [number as u8; 32]
}

/// One release: one unit on both columns, a parcel, and a question of three numbers.
fn spend(ledger: &Ledger, number: u64) -> Result<(), LedgerError> {
    let spend = |column| Spend { column, name: "c".to_owned(), epsilon: 1, budget: u64::MAX };
    ledger.spend(release(number), "alice", &COLUMNS.map(spend))?;
    ledger.bind(release(number), 0, digest(number))?;
    // And a question about two files.
    let mut digest = [0; 16];
    digest[..8].copy_from_slice(&number.to_le_bytes());
    ledger.ask(Ask { day: DAY, files: &FILES, numbers: 3, limit: u64::MAX, digest })
}

/// The child: spends until it is killed. Not a test of its own.
#[test]
fn child() {
    let (Ok(folder), Ok(first)) = (std::env::var(FOLDER), std::env::var(FIRST)) else { return };
    let ledger = Ledger::open(Path::new(&folder)).unwrap();
    let mut output = std::io::stdout();
    // The harness has begun a line of its own.
    writeln!(output).unwrap();
    for number in first.parse::<u64>().unwrap().. {
        spend(&ledger, number).unwrap();
        // A retry of what was spent.
        spend(&ledger, number).unwrap();
        writeln!(output, "spent {number}").unwrap();
        output.flush().unwrap();
    }
}

#[test]
fn what_was_answered_for_survives_a_kill_and_is_there_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = StdRng::seed_from_u64(7);
    let mut next = 0;
    for _ in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder.path())
            .env(FIRST, next.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut answered = next;
        let mut hear = |line: String| {
            if let Some(number) = line.strip_prefix("spent ").and_then(|number| number.parse::<u64>().ok()) {
                assert_eq!(number, answered);
                answered += 1;
            }
        };
        let heard = rng.random_range(1..40);
        lines.by_ref().take(heard).for_each(|line| hear(line.unwrap()));
        // Somewhere within a line's work, whatever the machine.
        (0..rng.random_range(0..200_000)).for_each(|turn: u32| _ = std::hint::black_box(turn));
        child.kill().unwrap();
        child.wait().unwrap();
        lines.for_each(|line| hear(line.unwrap()));
        assert!(answered > next || heard <= 4, "the child did nothing");

        let ledger = Ledger::open(folder.path()).unwrap();
        let spent = COLUMNS.map(|column| ledger.spent("alice", column));
        assert_eq!(spent[0], spent[1], "a release spends on all its columns or on none");
        assert!((answered..=answered + 1).contains(&spent[0]), "answered for {answered}, spent {}", spent[0]);
        let opened = FILES.map(|file| ledger.opened(DAY, file));
        assert_eq!(opened[0], opened[1], "a question spends for all its files or for none");
        let least = 3 * answered..=3 * (answered + 1);
        assert!(least.contains(&opened[0]), "answered for {answered}, opened {}", opened[0]);
        for number in 0..answered {
            assert!(matches!(ledger.bind(release(number), 0, [0xee; 32]), Err(LedgerError::OtherParcel { .. })));
            spend(&ledger, number).unwrap();
        }
        assert_eq!(COLUMNS.map(|column| ledger.spent("alice", column)), spent, "a retry spends nothing");
        assert_eq!(FILES.map(|file| ledger.opened(DAY, file)), opened, "a retry opens nothing new");
        // The release that was cut short is tried again by the next child.
        next = answered;
    }
    assert!(next > KILLS as u64, "too little was spent to say anything");
}
