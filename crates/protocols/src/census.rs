//! Which rows take part: what P1 says before it asks a question about rows, or releases rows.
//!
//! ```text
//!  P1: the question, its columns, how many rows, which rows of which files, how often  -->  the owner's rules: enough rows, each once
//!                                                                                      <--  a receipt, which only P2 can read          P2
//!  P1 shows the receipt with every batch of the question
//! ```
//! A question about several tables takes one census after the other, each under the receipt of the one before: the last receipt names the files of all.
//!
//! P2 opens numbers to P1 only under a receipt: for the question that it was given for, in the same session, within what the owner lets a file's
//! questions open a day. The receipt of a release knows its rows by a keyed hash, so that P2 signs only if those that were sealed are those.
//!
//! What binds a P1 that follows the protocol, whatever its caller wants: P2 keeps nothing of what was counted, and cannot see that labels and masked
//! numbers are of the rows that the census names. A P1 that leaves the protocol could name others.

use std::collections::BTreeMap;

use rand::CryptoRng;
use veil_cells::{ColumnId, FileId};
use veil_slots::KeyHolder;

use crate::anchors::{Anchors, FileRows};
use crate::context::{Context, NO_DESK};
use crate::message::message;
use crate::open::Purpose;
use crate::release::short_enough;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The most columns that a question is about.
pub const MAX_COLUMNS: usize = 4096;

/// The longest receipt.
pub const MAX_RECEIPT: usize = 60_000;

const COLUMN: usize = 8;

/// What is asked about rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    /// Which columns tell rows apart.
    Identifiers,
    /// Rows made alike.
    KAnonymize,
    /// How likely rows are recognised.
    Risk,
    /// How large the classes of rows are.
    ClassSizes,
    /// What rows lost.
    Utility,
    /// Risk and utility of several k.
    Sweep,
    /// Rows to a recipient.
    Release,
}

impl Question {
    /// All questions; the place is the number on the wire.
    pub const ALL: [Self; 7] =
        [Self::Identifiers, Self::KAnonymize, Self::Risk, Self::ClassSizes, Self::Utility, Self::Sweep, Self::Release];

    /// As policies and SQL call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identifiers => "identifiers",
            Self::KAnonymize => "k_anonymize",
            Self::Risk => "risk",
            Self::ClassSizes => "class_sizes",
            Self::Utility => "utility",
            Self::Sweep => "sweep",
            Self::Release => "release",
        }
    }

    /// The question of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|question| question.name() == name)
    }

    /// Whether numbers of this purpose belong to its answer.
    pub fn opens(self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::SmallClasses => matches!(self, Self::Identifiers),
            Purpose::ClusterFlags | Purpose::StopBit => matches!(self, Self::KAnonymize | Self::Sweep),
            Purpose::SizeHistogram => matches!(self, Self::Risk | Self::ClassSizes | Self::Utility | Self::Sweep),
            Purpose::Metric => matches!(self, Self::Risk | Self::Utility | Self::Sweep),
            Purpose::ClassCheck => matches!(self, Self::Release),
        }
    }

    fn from_wire(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    fn to_wire(self) -> u32 {
        Self::ALL.iter().position(|question| *question == self).unwrap_or_default() as u32
    }
}

/// Which rows take part in a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Census {
    /// The question.
    pub question: Question,
    /// The encrypted columns that it is about.
    pub columns: Vec<ColumnId>,
    /// How many rows it has.
    pub rows: u64,
    /// How many of them are of no row of a file: constants of the engine's.
    pub constants: u64,
    /// The rows of files that they are made of.
    pub files: BTreeMap<FileId, FileRows>,
    /// The fewest people that a value counts as ([`people`](veil_cells::Provenance::people)): 1 where values are of one row.
    pub least: u64,
    /// The fewest people that a sum counts as, a value that is made of several rows of one file; nothing where no value is.
    pub least_sum: Option<u64>,
    /// Of a release its permit, and of a question nothing.
    pub permit: Vec<u8>,
}

/// What came from P1, read and within bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// The question.
    pub question: Question,
    /// The encrypted columns that it is about.
    pub columns: Vec<ColumnId>,
    /// How many rows it has.
    pub rows: u64,
    /// How many of them are of no row of a file.
    pub constants: u64,
    /// The rows of files that they are made of.
    pub anchors: Anchors,
    /// The fewest people that a value counts as.
    pub least: u64,
    /// The fewest people that a sum counts as, if there are sums.
    pub least_sum: Option<u64>,
    /// The permit of a release.
    pub permit: Vec<u8>,
}

/// What P2 gives for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// What P1 shows with every batch. Only P2 can read it.
    pub receipt: Vec<u8>,
    /// Of a release, its permit with what was counted.
    pub permit: Vec<u8>,
}

/// The protocol.
#[derive(Debug)]
pub struct TakeCensus;

message! {
    /// Which rows take part.
    Query {
        /// The question, by its place.
        question: u32,
        /// Ids of columns, 8 bytes each.
        columns: Vec<u8>,
        /// Rows; those of no row of a file; the fewest people of a value; and of a sum, with one added, or zero if there is none.
        counts: Vec<u64>,
        /// The rows of files.
        anchors: Vec<u8>,
        /// The permit of a release.
        permit: Vec<u8>,
    }
}

message! {
    /// What P2 gives for it.
    Answer {
        /// For P2 itself.
        receipt: Vec<u8>,
        /// For P2 itself: the permit of a release, with what was counted.
        permit: Vec<u8>,
    }
}

impl Workload for Query {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        short_enough(&self.permit)?;
        Anchors::check_size(&self.anchors)?;
        let found = self.columns.len() / COLUMN;
        match found > MAX_COLUMNS {
            true => Err(ProtocolError::TooLarge { what: "a number of columns", found, limit: MAX_COLUMNS }),
            // The rows of a full census take as long as so many ciphertexts.
            false => Ok(32),
        }
    }
}

impl Query {
    fn read(self) -> Result<Counted, ProtocolError> {
        let malformed = |why: &str| ProtocolError::Malformed(why.to_owned());
        let Self { question, columns, counts, anchors, permit } = self;
        let question = Question::from_wire(question).ok_or_else(|| {
            ProtocolError::Unsupported(format!(
                "P2 knows no question {question}; run the same version of veil on both sides"
            ))
        })?;
        let (columns, rest) = columns.as_chunks::<COLUMN>();
        let ([rows, constants, least, least_sum], true) = (counts.as_slice(), rest.is_empty()) else {
            return Err(malformed("a census has other numbers than it should"));
        };
        let anchors = Anchors::from_bytes(&anchors)?;
        // Every other row is of one at least.
        if rows.checked_sub(*constants).is_none_or(|of_files| of_files > anchors.occurrences()) {
            return Err(malformed("a census has more rows than it names"));
        }
        if (question == Question::Release) == permit.is_empty() {
            return Err(malformed("a release has a permit, and nothing else has one"));
        }
        let columns = columns.iter().map(|column| ColumnId(*column)).collect();
        let (rows, constants, least, least_sum) = (*rows, *constants, *least, least_sum.checked_sub(1));
        Ok(Counted { question, columns, rows, constants, anchors, least, least_sum, permit })
    }
}

impl Protocol for TakeCensus {
    const NAME: &'static str = "census";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "which rows take part in a question or a release, held against the owner's rules";
    const LEAKAGE: Leakage = Leakage {
        p1: "whether the owner's rules allow the question, and which rule refuses",
        p2: "the question, its columns, how many rows take part and which of their files, and how many are in the smallest sum",
    };
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query;
    type Received = Query;
    type Answer = Answer;
    type Reply = Answer;

    fn answer(_: Query, _: &dyn KeyHolder, _: &mut dyn CryptoRng) -> Result<Answer, ProtocolError> {
        Err(ProtocolError::Denied(NO_DESK.to_owned()))
    }

    fn answer_at(
        query: Query,
        _: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
        context: &Context<'_>,
    ) -> Result<Answer, ProtocolError> {
        let desk = context.desk.ok_or_else(|| ProtocolError::Denied(NO_DESK.to_owned()))?;
        let counted = query.read()?;
        counted.anchors.occur_once()?;
        let Granted { receipt, permit } = desk.census(context.session, context.receipt, counted, rng)?;
        Ok(Answer { receipt, permit })
    }
}

/// Has P2 count the rows of a question, and gives the session in which it is asked.
pub async fn take_census(session: &Session, census: Census) -> Result<Session, ProtocolError> {
    exchange(session, census).await.map(|(session, _)| session)
}

/// Has P2 count the rows of a release, and gives the session in which they are released, and the permit with what was counted.
pub async fn take_release_census(session: &Session, census: Census) -> Result<(Session, Vec<u8>), ProtocolError> {
    exchange(session, census).await
}

async fn exchange(session: &Session, census: Census) -> Result<(Session, Vec<u8>), ProtocolError> {
    let ask = |census: Census, _: &mut Asker<'_>| {
        let Census { question, columns, rows, constants, files, least, least_sum, permit } = census;
        let anchors = Anchors(files);
        anchors.occur_once()?;
        let query = Query {
            question: question.to_wire(),
            columns: columns.iter().flat_map(|column| column.0).collect(),
            counts: vec![rows, constants, least, least_sum.map_or(0, |least| least.saturating_add(1))],
            anchors: anchors.to_bytes(),
            permit,
        };
        Ok(((), query))
    };
    let finish = |(), answer: Answer| {
        let Answer { receipt, permit } = answer;
        match receipt.len() {
            found if found > MAX_RECEIPT => {
                Err(ProtocolError::TooLarge { what: "a receipt", found, limit: MAX_RECEIPT })
            }
            _ => Ok(Granted { receipt, permit }),
        }
    };
    let mut granted = session.round::<TakeCensus, _, _, _>(vec![census], 1, ask, finish).await?;
    let Granted { receipt, permit } = granted.pop().ok_or(ProtocolError::Cancelled)?;
    Ok((session.under(receipt), permit))
}
