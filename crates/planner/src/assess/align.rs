//! Which rows of an original and its anonymised table belong together.
//!
//! A cell is unlike every other cell, and a column that k_anonymize did not touch passes as it is. So an encrypted column that both tables share says
//! which rows are the same, without saying what is in them. A clear one does that as well if it has another value in every row. Where there is
//! neither, rows are taken in their order, if the query says that they may be: an order that got lost on the way would show as a loss of data, and nobody
//! would notice. Not if an encrypted column says that they are others.

use std::collections::{HashMap, HashSet};

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{DataFusionError, exec_err};
use datafusion::error::Result;
use veil_cells::{CellArray, CellType, Role};
use veil_udfs::EncryptedField;

use super::table::place;

/// What to do where no column tells which rows belong together.
pub(super) const REMEDY: &str = "keep an encrypted column beside the quasi-identifiers, or a clear one with another value in every row, in both \
     tables; or say by_order => true (`veil report --by-order`) if both have the same rows in the same order";

/// A column of both tables that may tell which rows are the same.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    /// Its name.
    name: String,
    /// Its places in both.
    pub(super) original: usize,
    pub(super) anonymised: usize,
    is_encrypted: bool,
}

/// How rows were found to belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matched {
    /// By cells, which no other row has.
    Cells,
    /// By the values of a clear column.
    Column(String),
    /// By their order.
    Order,
}

/// The columns that both tables have, are no quasi-identifiers and were not computed: encrypted ones without NULLs first, then others, then clear ones.
pub(super) fn shared_columns(original: &[FieldRef], anonymised: &[FieldRef], quasi: &[String]) -> Result<Vec<Shared>> {
    let (mut found, is_only) = (Vec::new(), |fields: &[FieldRef], name: &str| place("", fields, name).is_ok());
    for (at, field) in original.iter().enumerate() {
        let name = field.name();
        if quasi.contains(name) || !is_only(original, name) {
            continue;
        }
        let Ok(other) = place("", anonymised, name) else { continue };
        let Some(there) = anonymised.get(other) else { continue };
        let rank = match (EncryptedField::of(field)?, EncryptedField::of(there)?) {
            (Some(ours), Some(theirs)) if is_passed_on(&ours.cell_type, &theirs.cell_type) => u8::from(ours.nullable),
            (None, None) if is_clear_key(field) && field.data_type() == there.data_type() => 2,
            _ => continue,
        };
        found.push((rank, Shared { name: name.clone(), original: at, anonymised: other, is_encrypted: rank < 2 }));
    }
    found.sort_by_key(|(rank, _)| *rank);
    // An encrypted column without NULLs is enough. Whether a clear one has a value twice only its rows tell, so that all are candidates.
    let is_enough = found.first().is_some_and(|(rank, _)| *rank == 0);
    let mut place = 0..;
    found.retain(|(rank, _)| place.next() == Some(0) || (*rank == 2 && !is_enough));
    Ok(found.into_iter().map(|(_, shared)| shared).collect())
}

/// Whether cells of the one are those of the other.
fn is_passed_on(ours: &CellType, theirs: &CellType) -> bool {
    let same = (ours.column, ours.key, ours.lanes) == (theirs.column, theirs.key, theirs.lanes);
    same && [ours, theirs].iter().all(|cells| !cells.computed && cells.role == Role::Data)
}

/// Whether the values of a clear column can be told apart.
fn is_clear_key(field: &FieldRef) -> bool {
    let sorted = [SortField::new(field.data_type().clone())];
    !CellType::is_only_named_in(field)
        && !matches!(field.data_type(), DataType::Null | DataType::Boolean)
        && RowConverter::supports_fields(&sorted)
}

/// Rows that belong together.
pub(super) struct Aligned {
    /// Those of the original, in the order of the anonymised table.
    pub(super) original: RecordBatch,
    /// What told it.
    pub(super) matched: Matched,
    /// Rows of the original that nothing became of.
    pub(super) absent: usize,
}

/// The rows of the original in the order of the anonymised table.
pub(super) fn aligned(
    original: RecordBatch,
    anonymised: &RecordBatch,
    shared: &[Shared],
    by_order: bool,
) -> Result<Aligned> {
    let mut contradicts = None;
    for column in shared {
        let Shared { name, original: ours, anonymised: theirs, is_encrypted } = column;
        let (before, after) = (original.column(*ours), anonymised.column(*theirs));
        let order = if *is_encrypted { order_of_cells(before, after) } else { order_of_values(before, after) };
        match order? {
            Order::Told(order) => {
                let matched = if *is_encrypted { Matched::Cells } else { Matched::Column(name.clone()) };
                return taken(original, &order, matched);
            }
            // Numbers of rows may have been given anew. Cells are not.
            Order::Elsewhere(rows) if *is_encrypted => contradicts = contradicts.or(Some((name, rows))),
            Order::Elsewhere(_) | Order::Unknown => {}
        }
    }
    let (before, after) = (original.num_rows(), anonymised.num_rows());
    match (by_order, contradicts) {
        (true, Some((name, rows))) => exec_err!(
            "{name} is encrypted in both tables, and {rows} of {after} rows of the anonymised one have cells that the original has not, so that it is not \
             what became of it: compare it with the table that was anonymised, or leave {name} out of both if they have the same rows in the same order"
        ),
        (true, None) if before == after => Ok(Aligned { original, matched: Matched::Order, absent: 0 }),
        (true, None) => exec_err!(
            "the original table has {before} rows and the anonymised one {after}, so that they cannot be compared by their order: compare with the \
             rows that were anonymised"
        ),
        (false, _) => exec_err!("no column tells which rows of the two tables belong together: {REMEDY}"),
    }
}

fn taken(original: RecordBatch, order: &UInt32Array, matched: Matched) -> Result<Aligned> {
    let in_order = order.values().iter().enumerate().all(|(at, row)| at == *row as usize);
    let different = order.values().iter().collect::<HashSet<_>>().len();
    let absent = original.num_rows().saturating_sub(different);
    // A loss of many rows that all belong to one would be that one's.
    let repeated = order.len().saturating_sub(different);
    if repeated > 0 {
        return exec_err!(
            "{repeated} rows of the anonymised table belong to rows of the original that others belong to as well: a row is a person, and counts once"
        );
    }
    let is_whole = original.num_rows() == order.len();
    let original = if in_order && is_whole { original } else { take_record_batch(&original, order)? };
    Ok(Aligned { original, matched, absent })
}

fn order_of_cells(original: &ArrayRef, anonymised: &ArrayRef) -> Result<Order> {
    let cells = |array| CellArray::try_new(array).map_err(|error| DataFusionError::External(Box::new(error)));
    let (ours, theirs) = (cells(original)?, cells(anonymised)?);
    Ok(order((ours.len(), |row| ours.bytes(row)), (theirs.len(), |row| theirs.bytes(row))))
}

fn order_of_values(original: &ArrayRef, anonymised: &ArrayRef) -> Result<Order> {
    if original.logical_null_count() + anonymised.logical_null_count() > 0 {
        return Ok(Order::Unknown);
    }
    let converter = RowConverter::new(vec![SortField::new(original.data_type().clone())])?;
    let rows = |array: &ArrayRef| -> Result<Rows> { Ok(converter.convert_columns(std::slice::from_ref(array))?) };
    let (ours, theirs) = (rows(original)?, rows(anonymised)?);
    let (of_ours, of_theirs) = (|row| Some(ours.row(row).data()), |row| Some(theirs.row(row).data()));
    Ok(order((ours.num_rows(), of_ours), (theirs.num_rows(), of_theirs)))
}

/// What a column of both tables tells about their rows.
enum Order {
    /// For every row of the anonymised one, where it is in the original.
    Told(UInt32Array),
    /// So many rows of the anonymised one are not in the original.
    Elsewhere(usize),
    /// Nothing: the original has a row twice, or one of them has a NULL.
    Unknown,
}

/// For every row of the second column, where the first has the same.
fn order<'a, 'b>(
    (ours, our_bytes): (usize, impl Fn(usize) -> Option<&'a [u8]>),
    (theirs, their_bytes): (usize, impl Fn(usize) -> Option<&'b [u8]>),
) -> Order {
    let mut known: HashMap<&[u8], u32> = HashMap::with_capacity(ours);
    for row in 0..ours {
        let (Some(bytes), Ok(place)) = (our_bytes(row), u32::try_from(row)) else { return Order::Unknown };
        // The same row twice, as a join makes them: nobody can tell which is which.
        if known.insert(bytes, place).is_some() {
            return Order::Unknown;
        }
    }
    let mut places: Vec<u32> = Vec::with_capacity(theirs);
    for row in 0..theirs {
        let Some(bytes) = their_bytes(row) else { return Order::Unknown };
        places.extend(known.get(bytes));
    }
    match theirs - places.len() {
        0 => Order::Told(places.into()),
        elsewhere => Order::Elsewhere(elsewhere),
    }
}
