//! Every row with every other.

use super::columns::SlotTable;
use crate::ProtocolError;
use crate::lists::together;
use crate::pairwise::pairwise;
use crate::relabel::relabel;
use crate::shuffle::{Orders, shuffle};

/// Sets that are compared at the same time: each has work for both parties by itself.
pub(super) const SETS_AT_ONCE: usize = 4;

impl SlotTable {
    /// Counts small classes of sets by comparing pairs of rows.
    pub(super) async fn count_pairs(
        &self,
        sets: &[u64],
        k: u32,
        detail: bool,
        shuffled: bool,
    ) -> Result<Vec<u64>, ProtocolError> {
        // Several columns become one number a row; a single one is compared as it is.
        let joint = sets.iter().filter(|set| self.single(**set).is_none());
        let (combinations, lengths) = together(joint.map(|set| self.combinations(&[*set])));
        let mut joint = lengths.apart(relabel(&self.session, combinations).await?)?.into_iter();
        // So few rows lie in one vector.
        let mut next = || <[_; 1]>::try_from(joint.next()?).ok().map(|[vector]| vector);
        let lists = sets.iter().map(|set| self.single(*set).or_else(&mut next));
        let mut lists: Vec<_> = lists.collect::<Option<_>>().ok_or(ProtocolError::Cancelled)?;
        if shuffled {
            let groups = lists.into_iter().map(|list| vec![list]).collect();
            // All blocks hold the same rows, and go on doing so.
            lists = shuffle(&self.session, self.layout, Orders::Alike, groups).await?.into_iter().flatten().collect();
        }
        pairwise(&self.session, self.layout.rows(), k, detail, lists).await
    }
}
