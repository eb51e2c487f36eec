//! Sums of tags, in the order of the rows.

use std::sync::Arc;

use veil_cells::CellArray;

use super::Column;
use crate::channel::blocking;
use crate::count_tags::{Source, TagTable, count_tags};
use crate::lift_tags::TagColumn;
use crate::{ProtocolError, Session};

/// Sets that one round asks about, between two signs of life.
pub(super) const SETS_AT_ONCE: usize = 256;

/// The tags of a table, read once.
#[derive(Debug)]
pub(super) struct TagSums {
    session: Session,
    table: Arc<TagTable>,
}

impl TagSums {
    pub(super) async fn prepare(session: Session, rows: usize, columns: Vec<Column>) -> Result<Self, ProtocolError> {
        let key_id = session.key_id();
        let source = move |column: Column| match column {
            Column::Clear(labels) => Ok(Source::Clear(labels)),
            Column::Tags(cells) => Ok(Source::Tags(TagColumn::read(CellArray::try_new(&cells)?, key_id)?)),
            Column::Values(..) => {
                Err(ProtocolError::Misuse("a column without equality tags cannot be compared by tags".to_owned()))
            }
        };
        let read = move || {
            let sources = columns.into_iter().map(source).collect::<Result<Vec<_>, ProtocolError>>()?;
            TagTable::new(sources, rows)
        };
        let table = Arc::new(blocking(read).await??);
        Ok(Self { session, table })
    }

    pub(super) async fn count(
        &self,
        sets: &[u64],
        k: u32,
        detail: bool,
        done: impl Fn(usize),
    ) -> Result<Vec<u64>, ProtocolError> {
        let mut found = Vec::with_capacity(sets.len());
        for sets in sets.chunks(SETS_AT_ONCE) {
            found.extend(count_tags(&self.session, self.table.clone(), sets.to_vec(), k, detail).await?);
            done(sets.len());
        }
        Ok(found)
    }
}
