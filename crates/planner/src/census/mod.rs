//! Which rows take part in a question or a release: a row is a person, and counts once.
//!
//! A row of the input is of the rows that its encrypted cells were made of, its *anchors* (see [`veil_cells::Provenance`]). None may be
//! in two rows of the input, and constants that the engine made are nobody. Both would make a question about many rows one about a
//! single row: copies of a row pass for people, and known values beside one that is not known tell that one.

mod at_p2;
mod rows;

use std::ops::Range;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::common::DataFusionError;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::Result;
use rayon::prelude::*;
use veil_cells::{CellArray, CellError, CellView, ColumnId, Pattern};
use veil_protocols::ProtocolError;

pub(crate) use at_p2::{QuestionRule, RELEASE_RULE, ask_under, release_under};
pub(crate) use rows::{Census, RowAnchors};

use crate::error::protocol;

/// An encrypted column whose cells take part.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) name: String,
    /// One batch behind the other.
    pub(crate) cells: Vec<ArrayRef>,
    /// The column of the owner's that it is, or was computed from.
    pub(crate) column: ColumnId,
    pub(crate) compared: Compared,
}

/// How alike the rows of a column have to be. Constants beside encrypted values are refused wherever rows are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Its rows are carried along.
    Not,
    /// Classes of them are counted before they are released: all are of the same columns, whatever factors masking gave them.
    Released,
    /// A question holds them against each other: all are of the column that its type says, whatever factors masking gave them.
    Held,
    /// A question averages them: all are of the column that its type says, with the same factors.
    Averaged,
}

impl Counted {
    /// Whether its rows are held against each other.
    pub(crate) fn is_compared(&self) -> bool {
        self.compared != Compared::Not
    }
}

/// Rows that are counted at a time, on one core.
const AT_ONCE: usize = 8192;

/// What a column has been found to be.
#[derive(Clone, Copy, Default)]
struct Found {
    constants: usize,
    encrypted: usize,
    /// What the rows have in the column: the same columns of the owner's, in all files.
    pattern: Option<Pattern>,
}

/// Counts the rows of a question or a release, and refuses those that count twice or for nobody.
pub(crate) async fn take_census(
    function: &'static str,
    rows: usize,
    columns: Vec<Counted>,
) -> Result<(Census, RowAnchors)> {
    // Every cell is looked at: away from the threads that others wait for.
    let counted = SpawnedTask::spawn_blocking(move || count(function, rows, &columns)).join().await;
    counted.map_err(|error| DataFusionError::External(Box::new(error)))?
}

fn count(function: &str, rows: usize, columns: &[Counted]) -> Result<(Census, RowAnchors)> {
    let parts: Vec<usize> = (0..rows).step_by(AT_ONCE).collect();
    let parts: Vec<_> =
        parts.into_par_iter().map(|first| count_part(function, columns, first..rows.min(first + AT_ONCE))).collect();
    let (mut anchors, mut all) = (RowAnchors::new(0), vec![Found::default(); columns.len()]);
    // In their order, so that the first row that is wrong is the one that is named.
    for part in parts {
        let (of_part, found) = part?;
        anchors.append(of_part);
        for ((all, found), column) in all.iter_mut().zip(found).zip(columns) {
            all.join(found, function, column)?;
        }
    }
    for (column, found) in columns.iter().zip(all) {
        if column.is_compared() && found.constants > 0 && found.encrypted > 0 {
            return refuse(format!(
                "{function}: {} of the rows of {} are constants that the engine made, beside {} encrypted values: constants are nobody, and \
                 would tell the others. Leave these rows out",
                found.constants, column.name, found.encrypted
            ));
        }
    }
    Ok((anchors.census(function)?, anchors))
}

/// Reads some of the rows of all columns.
fn count_part(function: &str, columns: &[Counted], rows: Range<usize>) -> Result<(RowAnchors, Vec<Found>)> {
    let mut anchors = RowAnchors::new(rows.len());
    let mut read = |column: &Counted| {
        let (mut found, mut before) = (Found::default(), 0);
        for cells in &column.cells {
            let (from, to) = (rows.start.max(before), rows.end.min(before + cells.len()));
            if from < to {
                let some = cells.slice(from - before, to - from);
                found.read(function, column, &some, from - rows.start, rows.start, &mut anchors)?;
            }
            before += cells.len();
        }
        Ok(found)
    };
    let found = columns.iter().map(&mut read).collect::<Result<_>>()?;
    Ok((anchors, found))
}

/// A column that is not the same in all rows.
fn is_chosen(function: &str, column: &Counted) -> DataFusionError {
    protocol(ProtocolError::Denied(format!(
        "{function}: {} is made of other columns in some rows than in others, or with other factors: what is compared has to be the same in all \
         rows. Leave out the CASE or UNION that chooses",
        column.name
    )))
}

/// A rule of the owner's is not kept: the caller may not have this.
fn refuse<T>(sentence: String) -> Result<T> {
    Err(protocol(ProtocolError::Denied(sentence)))
}

fn damaged(error: CellError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl Found {
    /// Both parts of a column.
    fn join(&mut self, other: Self, function: &str, column: &Counted) -> Result<()> {
        self.constants += other.constants;
        self.encrypted += other.encrypted;
        match (self.pattern, other.pattern) {
            (Some(ours), Some(theirs)) if ours != theirs => Err(is_chosen(function, column)),
            (ours, theirs) => {
                self.pattern = ours.or(theirs);
                Ok(())
            }
        }
    }

    /// Reads some cells of a column, the first of which is of row `first` of those behind the first `before` rows.
    fn read(
        &mut self,
        function: &str,
        column: &Counted,
        cells: &ArrayRef,
        first: usize,
        before: usize,
        anchors: &mut RowAnchors,
    ) -> Result<()> {
        let cells = CellArray::try_new(cells).map_err(damaged)?;
        let mut known = None;
        for row in 0..cells.len() {
            let Some(bytes) = cells.bytes(row) else { continue };
            let view = CellView::parse_next(&mut known, bytes).map_err(damaged)?;
            // Nearly all cells are of one row.
            if let Some((anchor, pattern, drawn)) = view.only_row() {
                anchors.add(first + row, anchor, !drawn);
                match drawn {
                    true => self.constants += 1,
                    false => self.encrypted_value(function, column, pattern)?,
                }
                continue;
            }
            let Some(provenance) = view.provenance().map_err(damaged)? else {
                return refuse(format!(
                    "{function}: cells of {} do not say which rows they are of, since an earlier version encrypted them or they were computed outside of \
                     this engine: encrypt the file again",
                    column.name
                ));
            };
            if !anchors.add_all(first + row, &provenance) {
                return refuse(format!(
                    "{function}: row {} of its input has two sums of one column with some rows in common, which tell what lies between them: \
                     {} is one of them. Put sums into rows of their own (GROUP BY)",
                    before + first + row + 1,
                    column.name
                ));
            }
            if provenance.is_empty() || provenance.is_drawn() {
                self.constants += 1;
                continue;
            }
            if column.is_compared() && provenance.is_opaque() {
                return refuse(format!(
                    "{function}: {} is computed from values that were made anew, or added up, beside others of the same row, and could be a constant: \
                     compare the columns that it is made of",
                    column.name
                ));
            }
            self.encrypted_value(function, column, provenance.pattern())?;
        }
        Ok(())
    }

    /// All rows have the same in a column that is compared: otherwise the column that was chosen for a row would tell it.
    fn encrypted_value(&mut self, function: &str, column: &Counted, pattern: Pattern) -> Result<()> {
        self.encrypted += 1;
        let is_own = pattern.is_of(column.column);
        let pattern = match column.compared {
            Compared::Not => return Ok(()),
            Compared::Held | Compared::Averaged if !is_own => {
                return refuse(format!(
                    "{function}: {} is made of several columns, or of another one than it has its type from, and the owner's rules speak of \
                     columns: ask about each by itself",
                    column.name
                ));
            }
            Compared::Released | Compared::Held => pattern.unweighted(),
            Compared::Averaged => pattern,
        };
        match *self.pattern.get_or_insert(pattern) == pattern {
            true => Ok(()),
            false => Err(is_chosen(function, column)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use veil_cells::{Cell, CellArrayBuilder, ChunkRows, FileId, KeyId, Lanes, Seed};

    use super::*;

    const KEY: KeyId = KeyId([1; 8]);

    /// Cells of these rows of a file, in batches of these lengths.
    fn column(number: u16, rows: &[u32], batches: &[usize]) -> Counted {
        let mut rest = rows;
        let mut cells: Vec<ArrayRef> = Vec::new();
        for length in batches.iter().copied().chain([usize::MAX]) {
            let (some, others) = rest.split_at(length.min(rest.len()));
            let mut builder = CellArrayBuilder::default();
            for row in some {
                let chunk =
                    ChunkRows { file: FileId([3; 9]), column: number, samples: 1, first_row: row / 1024 * 1024 };
                let seed = Seed::of_rows(chunk);
                builder
                    .push(&Cell::fresh(KEY, Lanes::NUMBER, Some(9), seed, (row % 1024) as u16, &[5]).unwrap())
                    .unwrap();
            }
            cells.push(Arc::new(builder.finish().unwrap()));
            rest = others;
        }
        let [high, low] = number.to_be_bytes();
        let column = ColumnId([high, low, 0, 0, 0, 0, 0, 0]);
        Counted { name: format!("c{number}"), cells, column, compared: Compared::Held }
    }

    /// Whatever batches the rows come in, and however many parts they are counted in.
    #[test]
    fn every_row_is_counted_at_the_edges_of_parts_and_batches() {
        for rows in [0, 1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE + 1, 3 * AT_ONCE] {
            let anchors: Vec<u32> = (0..rows as u32).rev().collect();
            let batches: [&[usize]; 4] = [&[], &[1], &[AT_ONCE - 1, 2, AT_ONCE], &[AT_ONCE + 1, 0, 7]];
            for batches in batches {
                let columns = [column(7, &anchors, &[]), column(9000, &anchors, batches)];
                let (census, of_rows) = count("risk", rows, &columns).unwrap();
                assert_eq!((census.rows, census.people, census.somebody), (rows as u64, rows as u64, rows as u64));
                let counted: Vec<u32> = census.files.into_values().flatten().collect();
                assert!(counted.into_iter().eq(0..rows as u32), "{rows} rows, {batches:?}");
                let first = |row: usize| of_rows.of_row(row).iter().map(|anchor| anchor.row).collect::<Vec<_>>();
                assert!((0..rows).all(|row| first(row) == [anchors[row]]), "{rows} rows, {batches:?}");
            }
        }
    }

    /// A row that is there twice, and a column that changes, are found across parts.
    #[test]
    fn what_is_wrong_is_found_across_parts() {
        let rows = 2 * AT_ONCE + 3;
        let mut anchors: Vec<u32> = (0..rows as u32).collect();
        anchors[rows - 1] = 5;
        let refused = count("risk", rows, &[column(7, &anchors, &[])]).unwrap_err().to_string();
        assert!(refused.contains(&format!("rows 6 and {rows} of its input hold the same row")), "{refused}");
        anchors[rows - 1] = rows as u32;
        let mut changing = column(7, &anchors[..AT_ONCE], &[]);
        // The next number is what a column of the same name has if another came before it in its file.
        changing.cells.extend(column(8, &anchors[AT_ONCE..], &[]).cells);
        let refused = count("risk", rows, &[changing]).unwrap_err().to_string();
        assert!(refused.contains("is made of other columns in some rows"), "{refused}");
    }
}
