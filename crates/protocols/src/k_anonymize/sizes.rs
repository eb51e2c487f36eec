//! Which clusters are smaller than k (the paper's Non-kClusters): P1 learns these, and their sizes.
//!
//! ```text
//!  `broadcast`: the sizes, one a slot;   `lookup_long`: size + 1 where size < k, else 0;   `open`
//! ```

use std::sync::Arc;

use veil_slots::Slots;

use crate::broadcast::broadcast;
use crate::cluster_sums::Sums;
use crate::lookup_long::{Question, lookup_long};
use crate::open::{Aggregate, Purpose, open};
use crate::{ProtocolError, Session, Tiles};

/// What P1 knows of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Fewer than k: so many.
    Small(usize),
    /// At least k.
    Large,
}

impl Size {
    /// Whether it has rows, and fewer than k.
    pub(super) fn is_small(self) -> bool {
        matches!(self, Self::Small(rows) if rows > 0)
    }

    /// The rows of a small one.
    pub(super) fn rows(self) -> usize {
        match self {
            Self::Small(rows) => rows,
            Self::Large => 0,
        }
    }
}

/// The size of every cluster that is smaller than k.
pub(super) async fn sizes(
    session: &Session,
    tiles: &Tiles,
    columns: usize,
    sums: &Sums,
    k: usize,
) -> Result<Vec<Size>, ProtocolError> {
    let centres = tiles.centres();
    let counts: Vec<_> = sums.counts.iter().map(Slots::raised).collect();
    let in_a_row = broadcast(session, &Tiles::new(1, centres), columns, &counts, 0..1).await?;
    let counts = in_a_row.into_iter().flatten().next().ok_or(ProtocolError::Cancelled)?;
    let table: Arc<[u64]> = (0..=tiles.rows()).map(|rows| if rows < k { rows as u64 + 1 } else { 0 }).collect();
    let question = Question { slots: vec![counts.raised()], centres, columns: 1, tables: vec![table] };
    let found = lookup_long(session, question).await?.into_iter().flatten();
    let aggregate =
        |slots: Slots<_>| Aggregate { slots: slots.raised(), count: centres as u32, purpose: Purpose::ClusterFlags };
    let opened = open(session, found.map(aggregate).collect()).await?.concat();
    if opened.len() != centres {
        return Err(ProtocolError::Malformed(format!("{} sizes of {centres} clusters", opened.len())));
    }
    let size = |opened: i64| match usize::try_from(opened - 1) {
        Ok(rows) if rows < k => Ok(Size::Small(rows)),
        Err(_) if opened == 0 => Ok(Size::Large),
        _ => Err(ProtocolError::Malformed("P2 opened a size that no small cluster has".to_owned())),
    };
    let sizes = opened.into_iter().map(size).collect::<Result<Vec<_>, _>>()?;
    let (small, large) = (sizes.iter().map(|size| size.rows()).sum::<usize>(), sizes.contains(&Size::Large));
    let least = sizes.iter().filter(|size| **size == Size::Large).count().saturating_mul(k).saturating_add(small);
    match least == tiles.rows() || large && least < tiles.rows() {
        true => Ok(sizes),
        false => Err(ProtocolError::Malformed("P2 opened sizes that do not add up to the rows".to_owned())),
    }
}
