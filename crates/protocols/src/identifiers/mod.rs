//! Which sets of columns have small classes: the question behind direct and quasi-identifiers.
//!
//! ```text
//!  Tags        count_tags                                          P2 adds tags up and counts, row by row
//!  Shuffled    lift_tags, relabel, shuffle, count_classes          P2 sees secret labels in a secret order
//!  Pairwise    lift_tags, (relabel), (shuffle), pairwise           P2 sees which pairs are equal
//! ```
//! A column takes part with its equality tags; where it has none, with labels of its values (`lift`, `lift_wide`, and `truncate` where
//! places below the unit would tell values apart that are released as one; then `relabel`); where it is clear, with labels that P1 made
//! up. What is added
//! up for a set is equal where all its columns are, and otherwise with probability `1/t`: labels are random numbers, lanes get random
//! coefficients. A NULL is a label too, the same in all rows of its column. Sums of tags alone, without slots, have no coefficients:
//! there, no two columns may have the same tags.
//!
//! Sets of clear columns alone are P1's own business: P2 is not asked about them.

mod columns;
mod cost;
mod pairs;
mod shuffled;
mod tags;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::array::ArrayRef;
use veil_slots::{L1, Slots, plain};

pub use cost::Cost;

use crate::channel::blocking;
use crate::count_classes::in_small_classes;
use crate::size_histogram::Sizes;
use crate::{ColumnVectors, Leakage, ProtocolError, Session, count_classes, pairwise};
use columns::SlotTable;
use tags::TagSums;

/// How rows are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// P2 gets sums of tags in the order of the rows: fast.
    Tags,
    /// P2 gets secret labels in a secret order.
    Shuffled,
    /// P2 learns of every pair of rows whether they are equal (Algorithm 1 of the paper).
    Pairwise {
        /// Whether in a secret order.
        shuffle: bool,
    },
}

impl Method {
    /// What it tells whom.
    pub const fn leakage(self) -> Leakage {
        let p1 = "which of the asked sets of columns (probes of many included) have classes smaller than k, and of how many rows if asked";
        match self {
            Self::Tags => Leakage {
                p1,
                p2: "which rows of a file are equal in each asked set of columns, and in clear ones of them alone; which are NULL; the differences of their tags",
            },
            Self::Shuffled => Leakage {
                p1,
                p2: "the sizes of the classes of each asked set, in no order; which samples of a file take part and which are NULL",
            },
            Self::Pairwise { shuffle: true } => Leakage {
                p1,
                p2: "the sizes of the classes of each asked set, in no order; which samples of a file take part and which are NULL",
            },
            Self::Pairwise { shuffle: false } => Leakage {
                p1,
                p2: "which pairs of rows of a file are equal in each asked set of columns, and which rows are NULL",
            },
        }
    }

    /// The most rows that it takes; with tags alone it depends on the columns.
    pub const fn max_rows(self) -> Option<usize> {
        match self {
            Self::Tags => None,
            Self::Shuffled => Some(count_classes::MAX_BLOCK),
            Self::Pairwise { .. } => Some(pairwise::MAX_ROWS),
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug)]
pub enum Column {
    /// Cells with an equality tag.
    Tags(ArrayRef),
    /// Cells without one.
    Values(ArrayRef, Values),
    /// A number modulo `t` for every row: random, and equal where the rows are.
    Clear(Vec<u64>),
}

/// Which numbers make a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// Lanes, from the first.
    pub lanes: usize,
    /// Their width; above 32 the lanes hold text.
    pub bits: u32,
    /// Places below the unit, which are rounded away.
    pub fraction_bits: u32,
}

/// A table that can be asked about.
#[derive(Debug)]
pub struct Table {
    rows: usize,
    /// Which columns P2 has to be asked about.
    encrypted: u64,
    clear: Vec<Option<Arc<Vec<u64>>>>,
    prepared: Prepared,
}

#[derive(Debug)]
enum Prepared {
    /// With a session, if there is one.
    Clear(Option<Session>),
    Tags(TagSums),
    Slots(SlotTable),
}

impl Table {
    /// Reads the columns, and takes them into slots where the method compares slots. A table of clear columns needs no session.
    pub async fn prepare(
        session: Option<Session>,
        method: Method,
        rows: usize,
        columns: Vec<Column>,
    ) -> Result<Self, ProtocolError> {
        if columns.len() > u64::BITS as usize {
            return Err(ProtocolError::Misuse(format!("{} columns are too many to be asked about", columns.len())));
        }
        for column in &columns {
            let found = match column {
                Column::Tags(cells) | Column::Values(cells, _) => cells.len(),
                Column::Clear(labels) => {
                    plain::checked(labels)?;
                    labels.len()
                }
            };
            if found != rows {
                return Err(ProtocolError::Misuse(format!("a column of {found} rows does not fit a table of {rows}")));
            }
        }
        let is_encrypted = |column: &Column| u64::from(!matches!(column, Column::Clear(_)));
        let encrypted = columns.iter().enumerate().fold(0, |set, (at, column)| set | is_encrypted(column) << at);
        if encrypted != 0 {
            few_enough(method, rows)?;
        }
        let clear = columns.iter().map(|column| match column {
            Column::Clear(labels) => Some(Arc::new(labels.clone())),
            _ => None,
        });
        let clear = clear.collect();
        let prepared = match (encrypted, session, method) {
            (0, session, _) => Prepared::Clear(session),
            (_, None, _) => return Err(ProtocolError::Misuse("encrypted columns need a session with P2".to_owned())),
            (_, Some(session), Method::Tags) => Prepared::Tags(TagSums::prepare(session, rows, columns).await?),
            (_, Some(session), _) => Prepared::Slots(SlotTable::prepare(session, method, rows, columns).await?),
        };
        Ok(Self { rows, encrypted, clear, prepared })
    }

    /// The same for a table of which P1 does not know which rows count: clear columns take part in slots too.
    pub(crate) async fn prepare_hidden(
        session: &Session,
        rows: usize,
        columns: Vec<Column>,
    ) -> Result<Self, ProtocolError> {
        let hidden = match columns.iter().all(|column| matches!(column, Column::Clear(_))) {
            true => Some(SlotTable::prepare(session.clone(), Method::Shuffled, rows, columns.clone())),
            false => None,
        };
        let mut table = Self::prepare(Some(session.clone()), Method::Shuffled, rows, columns).await?;
        if let Some(hidden) = hidden {
            table.prepared = Prepared::Slots(hidden.await?);
        }
        Ok(table)
    }

    /// For every set of columns, one bit a column: how many rows lie in classes of fewer than `k`, if `detail` is wanted; else 1 if
    /// there are such rows, and 0 if there are none. `done` hears how many sets have been answered, as they are.
    pub async fn small_classes(
        &self,
        sets: &[u64],
        k: u32,
        detail: bool,
        done: impl Fn(usize),
    ) -> Result<Vec<u64>, ProtocolError> {
        let remote: Vec<u64> = sets.iter().copied().filter(|set| set & self.encrypted != 0).collect();
        let local: Vec<u64> = sets.iter().copied().filter(|set| set & self.encrypted == 0).collect();
        let local = self.count_clear(local, k, detail).await?;
        done(local.len());
        let remote = match &self.prepared {
            _ if remote.is_empty() => Vec::new(),
            Prepared::Clear(_) => {
                return Err(ProtocolError::Misuse("a set names a column that there is not".to_owned()));
            }
            Prepared::Tags(table) => table.count(&remote, k, detail, done).await?,
            Prepared::Slots(table) => table.count(&remote, k, detail, done).await?,
        };
        let (mut remote, mut local) = (remote.into_iter(), local.into_iter());
        let answer = |set: &u64| if set & self.encrypted != 0 { remote.next() } else { local.next() };
        sets.iter().map(answer).collect::<Option<Vec<u64>>>().ok_or(ProtocolError::Cancelled)
    }

    /// Labels of the classes of a set of columns, in a secret order, 8192 a vector; zero for rows of which `gone` is one. Only of a table that was
    /// prepared to be shuffled, or of clear columns, with a session: P2 can be asked to count what P1 sees too, and then need not take its word.
    pub async fn shuffled_labels(
        &self,
        set: u64,
        gone: Option<&ColumnVectors>,
    ) -> Result<Vec<Slots<L1>>, ProtocolError> {
        match &self.prepared {
            Prepared::Slots(table) => table.shuffled_labels(set, gone).await,
            Prepared::Clear(Some(session)) => {
                few_enough(Method::Shuffled, self.rows)?;
                let columns = self.clear.iter().flatten().map(|labels| Column::Clear(labels.to_vec())).collect();
                let table = SlotTable::prepare(session.clone(), Method::Shuffled, self.rows, columns).await?;
                table.shuffled_labels(set, gone).await
            }
            _ => Err(ProtocolError::Misuse(
                "only encrypted columns have classes that P2 can count in no order".to_owned(),
            )),
        }
    }

    /// The same labels, and other columns of these rows in the same order: lists of as many vectors as the labels have.
    pub(crate) async fn shuffled_with(
        &self,
        set: u64,
        gone: Option<&ColumnVectors>,
        columns: Vec<ColumnVectors>,
    ) -> Result<(Vec<Slots<L1>>, Vec<Vec<Slots<L1>>>), ProtocolError> {
        match &self.prepared {
            Prepared::Slots(table) => table.shuffled_with(set, gone, columns).await,
            _ => Err(ProtocolError::Misuse("only a table in slots is reordered with other columns".to_owned())),
        }
    }

    /// For every set of columns the sizes of its classes. Rows of which `gone` is one are in none; in a short table it must be repeated in every
    /// block. Only of a table that was prepared to be shuffled. `done` hears how many sets have been answered, as they are.
    pub async fn class_sizes(
        &self,
        sets: &[u64],
        gone: Option<&ColumnVectors>,
        done: impl Fn(usize),
    ) -> Result<Vec<Sizes>, ProtocolError> {
        // Which rows are suppressed is a secret, so that P1 cannot leave them out by itself.
        let is_remote = |set: &u64| gone.is_some() || set & self.encrypted != 0;
        let remote: Vec<u64> = sets.iter().copied().filter(is_remote).collect();
        let local = sets.iter().copied().filter(|set| !is_remote(set)).collect();
        let local = self.clear_sums(local, Sizes::of).await?;
        done(local.len());
        let remote = match &self.prepared {
            _ if remote.is_empty() => Vec::new(),
            Prepared::Slots(table) => table.class_sizes(&remote, gone, done).await?,
            _ => {
                let text = "only encrypted columns have classes that P2 can count in no order";
                return Err(ProtocolError::Misuse(text.to_owned()));
            }
        };
        let (mut remote, mut local) = (remote.into_iter(), local.into_iter());
        let answer = |set: &u64| if is_remote(set) { remote.next() } else { local.next() };
        sets.iter().map(answer).collect::<Option<Vec<_>>>().ok_or(ProtocolError::Cancelled)
    }

    /// What P1 can count by itself.
    async fn count_clear(&self, sets: Vec<u64>, k: u32, detail: bool) -> Result<Vec<u64>, ProtocolError> {
        self.clear_sums(sets, move |sums| in_small_classes(sums, k, detail)).await
    }

    /// What `count` makes of the sums of the clear columns of every set.
    async fn clear_sums<T: Send + 'static>(
        &self,
        sets: Vec<u64>,
        count: impl Fn(&mut [u64]) -> T + Send + 'static,
    ) -> Result<Vec<T>, ProtocolError> {
        let (clear, rows) = (self.clear.clone(), self.rows);
        let of_set = move |set: u64| {
            let mut sums = vec![0; rows];
            for labels in
                clear.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).filter_map(|(_, of)| of.as_ref())
            {
                sums.iter_mut().zip(labels.iter()).for_each(|(sum, label)| *sum = plain::add(*sum, *label));
            }
            count(&mut sums)
        };
        blocking(move || sets.into_iter().map(of_set).collect()).await
    }
}

/// Refuses more rows than a method takes.
fn few_enough(method: Method, rows: usize) -> Result<(), ProtocolError> {
    let Some(most) = method.max_rows().filter(|most| rows > *most) else { return Ok(()) };
    let instead = match method {
        Method::Pairwise { .. } => "ask about fewer, or use method => 'tags'",
        Method::Tags | Method::Shuffled => "ask about fewer (identifiers takes more with shuffle => false)",
    };
    Err(ProtocolError::Misuse(format!("{rows} rows are more than the {most} that can be compared: {instead}")))
}
