//! The sizes of the classes of sets of columns, without suppressed rows.

use arrow::array::ArrayRef;
use veil_cells::{CellArray, Width};

use crate::fold::fold;
use crate::identifiers::{Column, Method, Table};
use crate::lift::lift_column;
use crate::size_histogram::Sizes;
use crate::{ColumnVectors, ProtocolError, Session, Tiles};

/// Which rows are suppressed: one, zero elsewhere.
#[derive(Clone, Debug)]
pub struct Suppressed {
    flags: ColumnVectors,
}

impl Suppressed {
    /// From the cells of the flag.
    pub async fn lift(session: &Session, cells: &ArrayRef) -> Result<Self, ProtocolError> {
        let mut flags = lift_column(session, CellArray::try_new(cells)?, 0, Width::NARROWEST.bits()).await?;
        // Rows of which nothing tells are not published, as a release has it.
        if let Some(nulls) = cells.nulls().filter(|nulls| nulls.null_count() > 0) {
            flags.add_clear(&nulls.iter().map(|is_valid| u64::from(!is_valid)).collect::<Vec<_>>());
        }
        Ok(Self { flags })
    }

    /// Every row's.
    pub(super) fn flags(&self) -> &ColumnVectors {
        &self.flags
    }

    /// As labels lie: rows of short tables in every block.
    pub(super) async fn as_labels(&self, session: &Session) -> Result<ColumnVectors, ProtocolError> {
        let rows = self.flags.rows();
        ColumnVectors::new(rows, fold(session, &Tiles::new(rows, 1), self.flags.to_vec()).await?)
    }
}

/// For every set of columns, one bit a column, the sizes of its classes. A table of clear columns needs no session. `done` hears how many sets have been answered, as they are.
pub async fn class_sizes(
    session: Option<&Session>,
    rows: usize,
    columns: Vec<Column>,
    suppressed: Option<&Suppressed>,
    sets: &[u64],
    done: &(dyn Fn(usize) + Send + Sync),
) -> Result<Vec<Sizes>, ProtocolError> {
    let Some((suppressed, session)) = suppressed.zip(session) else {
        let table = Table::prepare(session.cloned(), Method::Shuffled, rows, columns).await?;
        return table.class_sizes(sets, None, done).await;
    };
    let table = Table::prepare_hidden(session, rows, columns).await?;
    let gone = suppressed.as_labels(session).await?;
    table.class_sizes(sets, Some(&gone), done).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use veil_cells::{CellType, ColumnId, Kind, Nulls};
    use veil_keys::encrypt_column;

    use super::*;
    use crate::testing::Parties;

    fn flags(parties: &mut Parties, flags: &[i64]) -> ArrayRef {
        let key = parties.owner.key_id();
        let cell_type = CellType::new(Kind::Boolean, Width::NARROWEST, 1, key, ColumnId([9; 8]));
        Arc::new(encrypt_column(&parties.owner, &cell_type, flags, None, &mut parties.rng).unwrap())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn suppressed_rows_are_in_no_class() {
        let mut parties = Parties::new(610);
        for rows in [7usize, 9000] {
            // Three classes of the first column, two of the second; every seventh row is suppressed.
            let tags: Vec<u64> = (0..rows as u64).map(|row| 100 + row % 3).collect();
            let clear: Vec<u64> = (0..rows as u64).map(|row| 55 + row % 2).collect();
            let gone: Vec<i64> = (0..rows).map(|row| i64::from(row % 7 == 0)).collect();
            let cells: ArrayRef = Arc::new(parties.tagged_cells(Nulls::default(), &tags, None));
            let cells = vec![Column::Tags(cells), Column::Clear(clear.clone())];
            let flags = flags(&mut parties, &gone);
            let session = parties.session.clone();
            let suppressed = Suppressed::lift(&session, &flags).await.unwrap();
            let sets = [0b11, 0b01, 0b10];
            let found =
                class_sizes(Some(&session), rows, cells.clone(), Some(&suppressed), &sets, &|_| ()).await.unwrap();
            let expected = |set: u64, with: bool| {
                let label = |row: usize| match with && gone[row] == 1 {
                    true => 0,
                    false => (set & 1) * tags[row] * 1000 + (set >> 1) * clear[row],
                };
                Sizes::of(&mut (0..rows).map(label).collect::<Vec<_>>())
            };
            assert_eq!(found, sets.map(|set| expected(set, true)));
            let found = class_sizes(Some(&session), rows, cells, None, &sets, &|_| ()).await.unwrap();
            assert_eq!(found, sets.map(|set| expected(set, false)));
            // Of clear columns alone P1 still does not know who is suppressed.
            let alone = vec![Column::Clear(clear.clone())];
            let found = class_sizes(Some(&session), rows, alone, Some(&suppressed), &[1], &|_| ()).await.unwrap();
            assert_eq!(found, [expected(0b10, true)]);
        }
    }
}
