//! Labels in a secret order.

use veil_slots::{L1, Slots};

use super::Method;
use super::columns::SlotTable;
use super::pairs;
use crate::count_classes::{Labels, count_classes};
use crate::lists::together;
use crate::multiply::multiply;
use crate::open::MAX_OPENED;
use crate::relabel::relabel;
use crate::shuffle::{Orders, shuffle, shuffle_alike};
use crate::size_histogram::{Sizes, size_histogram};
use crate::{ColumnVectors, Layout, ProtocolError, Session};

/// Vectors that are on their way at the same time: enough to keep both parties busy, half a megabyte each.
pub(super) const WINDOW: usize = 64;

impl SlotTable {
    /// Counts small classes of sets.
    pub(super) async fn count(
        &self,
        sets: &[u64],
        k: u32,
        detail: bool,
        done: impl Fn(usize),
    ) -> Result<Vec<u64>, ProtocolError> {
        let mut found = Vec::with_capacity(sets.len());
        let at_once = match self.method {
            Method::Pairwise { .. } => pairs::SETS_AT_ONCE,
            _ => (WINDOW / self.layout.vectors_per_list()).max(1) * self.lists_at_once(),
        };
        for sets in sets.chunks(at_once) {
            found.extend(match self.method {
                Method::Pairwise { shuffle } => self.count_pairs(sets, k, detail, shuffle).await?,
                _ => self.count_shuffled(sets, k, detail).await?,
            });
            done(sets.len());
        }
        Ok(found)
    }

    /// Lists of one vector: no more than P2 answers at once.
    fn lists_at_once(&self) -> usize {
        self.layout.lists_per_vector().min(MAX_OPENED as usize)
    }

    /// Labels of one set, in a secret order; zero for rows of which `gone` is one.
    pub(super) async fn shuffled_labels(
        &self,
        set: u64,
        gone: Option<&ColumnVectors>,
    ) -> Result<Vec<Slots<L1>>, ProtocolError> {
        let labels = self.labels_of(set, gone).await?;
        let mut shuffled = shuffle(&self.session, self.layout, Orders::Independent, vec![labels]).await?;
        shuffled.pop().ok_or(ProtocolError::Cancelled)
    }

    /// The same, with other columns of the table in the same order.
    pub(super) async fn shuffled_with(
        &self,
        set: u64,
        gone: Option<&ColumnVectors>,
        columns: Vec<ColumnVectors>,
    ) -> Result<(Vec<Slots<L1>>, Vec<Vec<Slots<L1>>>), ProtocolError> {
        let labels = self.labels_of(set, gone).await?;
        let columns = columns.into_iter().map(|column| column.into_list(self.layout));
        let groups = [Ok(labels)].into_iter().chain(columns).collect::<Result<_, _>>()?;
        let mut shuffled = shuffle_alike(&self.session, self.layout, groups).await?.into_iter();
        let labels = shuffled.next().ok_or(ProtocolError::Cancelled)?;
        Ok((labels, shuffled.collect()))
    }

    /// Labels of one set in the order of the rows; zero for those of which `gone` is one.
    async fn labels_of(&self, set: u64, gone: Option<&ColumnVectors>) -> Result<Vec<Slots<L1>>, ProtocolError> {
        let mut labels = vec![relabel(&self.session, self.combinations(&[set])).await?];
        without(&self.session, self.layout, gone, &mut labels).await?;
        labels.pop().ok_or(ProtocolError::Cancelled)
    }

    async fn count_shuffled(&self, sets: &[u64], k: u32, detail: bool) -> Result<Vec<u64>, ProtocolError> {
        let labels = self.labelled(sets, None).await?;
        count_classes(&self.session, self.layout.rows(), self.layout.block(), k, detail, labels).await
    }

    /// The class sizes of sets, without the rows of which `gone` is one.
    pub(super) async fn class_sizes(
        &self,
        sets: &[u64],
        gone: Option<&ColumnVectors>,
        done: impl Fn(usize),
    ) -> Result<Vec<Sizes>, ProtocolError> {
        let mut found = Vec::with_capacity(sets.len());
        for sets in sets.chunks((WINDOW / self.layout.vectors_per_list()).max(1) * self.lists_at_once()) {
            let labels = self.labelled(sets, gone).await?;
            found.extend(size_histogram(&self.session, self.layout.rows(), self.layout.block(), labels).await?);
            done(sets.len());
        }
        Ok(found)
    }

    /// Labels of sets, each in a secret order of its own.
    async fn labelled(&self, sets: &[u64], gone: Option<&ColumnVectors>) -> Result<Vec<Labels>, ProtocolError> {
        let groups: Vec<&[u64]> = sets.chunks(self.lists_at_once()).collect();
        let (combinations, lengths) = together(groups.iter().map(|sets| self.combinations(sets)));
        let mut lists = lengths.apart(relabel(&self.session, combinations).await?)?;
        without(&self.session, self.layout, gone, &mut lists).await?;
        let shuffled = shuffle(&self.session, self.layout, Orders::Independent, lists).await?;
        let labels = shuffled.into_iter().zip(&groups).map(|(vectors, sets)| Labels { vectors, lists: sets.len() });
        Ok(labels.collect())
    }
}

/// Makes the labels of rows zero of which `gone` is one, in every list alike. Vectors of a list that have no rows of the column stay what they are.
async fn without(
    session: &Session,
    layout: Layout,
    gone: Option<&ColumnVectors>,
    lists: &mut [Vec<Slots<L1>>],
) -> Result<(), ProtocolError> {
    let Some(gone) = gone else { return Ok(()) };
    if gone.rows() != layout.rows() {
        let text =
            format!("it is told of {} rows whether they are suppressed, and there are {}", gone.rows(), layout.rows());
        return Err(ProtocolError::Misuse(text));
    }
    let pairs = lists.iter().map(|labels| gone.iter().cloned().zip(labels.iter().cloned()).collect());
    let (pairs, lengths) = together(pairs);
    let lost = lengths.apart(multiply(session, pairs).await?)?;
    for (labels, lost) in lists.iter_mut().zip(&lost) {
        labels.iter_mut().zip(lost).for_each(|(label, lost)| label.sub(lost));
    }
    Ok(())
}
