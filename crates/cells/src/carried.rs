//! Rows that values keep when they are made anew: the new cells are of the rows of the old ones.

use arrow::array::BinaryArray;

use crate::{Cell, CellArray, CellArrayBuilder, CellError, CellView, Provenance};

/// Room for a cell with one lane that lists one row.
const USUAL_BYTES: usize = 80;

/// `made`, each cell of the rows that the cell of `from` beside it is made of, by something that has a name. `drawn` says that the new values
/// have nothing of the old ones in them. A cell beside a NULL is of rows that nobody knows.
pub fn carry_rows(
    from: CellArray<'_>,
    made: CellArray<'_>,
    made_by: &str,
    drawn: bool,
) -> Result<BinaryArray, CellError> {
    if from.len() != made.len() {
        let text = format!("{} cells cannot take the rows of {}", made.len(), from.len());
        return Err(CellError::Unsupported(text));
    }
    let mut known = None;
    set_rows(made, |row| {
        let Some(bytes) = from.bytes(row) else { return Ok(None) };
        let provenance = CellView::parse_next(&mut known, bytes)?.provenance()?;
        let provenance = provenance.map(|provenance| provenance.made_anew(made_by));
        Ok(provenance.map(|provenance| if drawn { provenance.drawn() } else { provenance }))
    })
}

/// `made`, each cell of the rows that are said for it; `None` says that nobody knows them.
pub fn set_rows(
    made: CellArray<'_>,
    mut rows: impl FnMut(usize) -> Result<Option<Provenance>, CellError>,
) -> Result<BinaryArray, CellError> {
    let mut cell = Cell::scratch();
    let mut builder = CellArrayBuilder::with_capacity(made.len(), USUAL_BYTES);
    for row in 0..made.len() {
        match made.bytes(row) {
            Some(bytes) => {
                cell.read(bytes)?;
                cell.set_provenance(rows(row)?);
                builder.push(&cell)?;
            }
            None => builder.push_null()?,
        }
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Anchor, ChunkRows, FileId, KeyId, Lanes, Seed};

    const KEY: KeyId = KeyId([1; 8]);

    fn owners(row: u32) -> Cell {
        let chunk = ChunkRows { file: FileId([3; 9]), column: 2, samples: 1, first_row: 0 };
        Cell::fresh(KEY, Lanes::NUMBER, Some(9), Seed::of_rows(chunk), row as u16, &[5]).unwrap()
    }

    fn made(index: u16) -> Cell {
        let mut cell = Cell::fresh(KEY, Lanes::NUMBER, Some(9), Seed::of_made([7; 16]), index, &[6]).unwrap();
        cell.set_provenance(None);
        cell
    }

    fn column(cells: impl IntoIterator<Item = Option<Cell>>) -> BinaryArray {
        let mut builder = CellArrayBuilder::default();
        for cell in cells {
            match cell {
                Some(cell) => builder.push(&cell).unwrap(),
                None => builder.push_null().unwrap(),
            }
        }
        builder.finish().unwrap()
    }

    #[test]
    fn new_cells_are_of_the_rows_of_the_old_ones() {
        let old = column([Some(owners(4)), None, Some(owners(9)), Some(made(1))]);
        let new = column([Some(made(0)), Some(made(1)), None, Some(made(3))]);
        for drawn in [false, true] {
            let carried = carry_rows(CellArray::Binary(&old), CellArray::Binary(&new), "a test", drawn).unwrap();
            let first = CellView::parse(carried.value(0)).unwrap();
            let anchor = Anchor { file: FileId([3; 9]), row: 4 };
            assert_eq!(first.only_row(), Some((anchor, crate::Pattern::of(2, 0, 1).made("a test"), drawn)));
            assert_eq!(first.bodies().collect::<Vec<_>>(), [6]);
            assert!(arrow::array::Array::is_null(&carried, 2));
            for unknown in [1, 3] {
                let view = CellView::parse(carried.value(unknown)).unwrap();
                assert_eq!((view.provenance().unwrap(), view.only_row()), (None, None));
            }
        }
        let short = column([Some(made(0))]);
        assert!(carry_rows(CellArray::Binary(&old), CellArray::Binary(&short), "a test", false).is_err());
    }
}
