//! What P2 is told of a census before it answers: it holds the rows against the owner's rules by itself.

use std::fmt;

use datafusion::error::Result;
use veil_cells::ColumnId;
use veil_protocols::Session;
use veil_protocols::anchors::FileRows;
use veil_protocols::census::{self, Question, take_release_census};
use veil_release::{CAUTIOUS_NUMBERS, CAUTIOUS_ROWS};

use super::Census;
use crate::error::protocol;

/// What EXPLAIN says of a question: the rule that it is held against.
pub(crate) struct QuestionRule;

impl fmt::Display for QuestionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rule=[every row of an encrypted file counts once, and constants not at all; at least {CAUTIOUS_ROWS} rows, and at most {CAUTIOUS_NUMBERS} \
             numbers opened a file and day, unless the owner's policy says otherwise (ask)]"
        )
    }
}

/// What EXPLAIN says of a release.
pub(crate) const RELEASE_RULE: &str = "rule=[every row of an encrypted file counts once; recipient, columns, min_rows, min_k and epsilon as the owner's policy says]";

/// The session in which a question about these columns is asked.
pub(crate) async fn ask_under(
    session: &Session,
    question: Question,
    columns: Vec<ColumnId>,
    census: &Census,
) -> Result<Session> {
    // Rows of which everything is NULL are nobody, and do not count; constants beside encrypted values have been refused.
    let told = census::Census { rows: census.people, constants: 0, ..told(question, columns, census) };
    census::take_census(session, told).await.map_err(protocol)
}

/// The session in which rows are released, and the permit with what was counted.
pub(crate) async fn release_under(
    session: &Session,
    permit: Vec<u8>,
    columns: Vec<ColumnId>,
    census: &Census,
) -> Result<(Session, Vec<u8>)> {
    let told = census::Census { permit, ..told(Question::Release, columns, census) };
    take_release_census(session, told).await.map_err(protocol)
}

fn told(question: Question, columns: Vec<ColumnId>, census: &Census) -> census::Census {
    let Census { files, rows, somebody, least, least_sum, .. } = census;
    let file = |rows: &Vec<u32>| FileRows { rows: rows.iter().copied().collect(), occurrences: rows.len() as u64 };
    census::Census {
        question,
        columns,
        rows: *rows,
        constants: rows.saturating_sub(*somebody),
        files: files.iter().map(|(id, rows)| (*id, file(rows))).collect(),
        least: *least,
        least_sum: *least_sum,
        permit: Vec::new(),
    }
}
