//! Affine arithmetic on Arrow arrays of cells.

use arrow::array::AsArray;
use arrow::array::{Array, BinaryArray, BinaryViewArray, LargeBinaryArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::DataType;

use crate::shift::shift_column;
use crate::{Cell, CellError, CellView};

/// An encrypted column in any of the three binary layouts.
#[derive(Clone, Copy, Debug)]
pub enum CellArray<'a> {
    /// 32-bit offsets.
    Binary(&'a BinaryArray),
    /// 64-bit offsets.
    LargeBinary(&'a LargeBinaryArray),
    /// Views, as Parquet readers return them.
    BinaryView(&'a BinaryViewArray),
}

impl<'a> CellArray<'a> {
    /// Looks at an Arrow array.
    pub fn try_new(array: &'a dyn Array) -> Result<Self, CellError> {
        match array.data_type() {
            DataType::Binary => Ok(Self::Binary(array.as_binary())),
            DataType::LargeBinary => Ok(Self::LargeBinary(array.as_binary())),
            DataType::BinaryView => Ok(Self::BinaryView(array.as_binary_view())),
            other => Err(CellError::NotACellColumn(format!("an encrypted column is binary, not {other}"))),
        }
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.array().len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which rows are NULL.
    pub fn nulls(&self) -> Option<&'a NullBuffer> {
        match *self {
            Self::Binary(array) => array.nulls(),
            Self::LargeBinary(array) => array.nulls(),
            Self::BinaryView(array) => array.nulls(),
        }
    }

    /// The bytes of a row's cell; `None` for a NULL or a row that does not exist.
    #[inline]
    pub fn bytes(&self, row: usize) -> Option<&'a [u8]> {
        if row >= self.len() || self.nulls().is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        Some(match *self {
            Self::Binary(array) => array.value(row),
            Self::LargeBinary(array) => array.value(row),
            Self::BinaryView(array) => array.value(row),
        })
    }

    fn array(&self) -> &'a dyn Array {
        match *self {
            Self::Binary(array) => array,
            Self::LargeBinary(array) => array,
            Self::BinaryView(array) => array,
        }
    }
}

/// Collects cells into a binary array.
#[derive(Debug, Default)]
pub struct CellArrayBuilder {
    values: Vec<u8>,
    offsets: Vec<i32>,
    /// From the first NULL on.
    valid: Option<Vec<bool>>,
}

impl CellArrayBuilder {
    /// For about `rows` cells of `bytes` each.
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { values: Vec::with_capacity(rows * bytes), offsets, valid: None }
    }

    /// Appends a cell.
    #[inline]
    pub fn push(&mut self, cell: &Cell) -> Result<(), CellError> {
        cell.write(&mut self.values);
        self.close_row(true)
    }

    /// Appends the bytes of a cell.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> Result<(), CellError> {
        self.values.extend_from_slice(bytes);
        self.close_row(true)
    }

    /// Appends a NULL.
    pub fn push_null(&mut self) -> Result<(), CellError> {
        let rows = self.offsets.len().saturating_sub(1);
        self.valid.get_or_insert_with(|| vec![true; rows]);
        self.close_row(false)
    }

    /// The array.
    pub fn finish(mut self) -> Result<BinaryArray, CellError> {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        let nulls = self.valid.map(NullBuffer::from);
        Ok(BinaryArray::try_new(offsets, Buffer::from_vec(self.values), nulls)?)
    }

    #[inline]
    fn close_row(&mut self, valid: bool) -> Result<(), CellError> {
        let end = i32::try_from(self.values.len())
            .map_err(|_| CellError::Unsupported("a batch of cells exceeds 2 GiB; use smaller batches".to_owned()))?;
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        self.offsets.push(end);
        if let Some(known) = &mut self.valid {
            known.push(valid);
        }
        Ok(())
    }
}

/// `column + constant`. The cells' headers show the constant's size; see [`Cell::add_constant`].
pub fn add_constant(column: CellArray<'_>, constant: i64) -> Result<BinaryArray, CellError> {
    add_each(column, constant.unsigned_abs(), |_| constant)
}

/// `column + constants`, row by row, where the headers shall show only a bound of the constants.
pub fn add_constants_within(column: CellArray<'_>, constants: &[i64], bound: u64) -> Result<BinaryArray, CellError> {
    if column.len() != constants.len() {
        let text = format!("{} constants cannot be added to {} rows", constants.len(), column.len());
        return Err(CellError::Unsupported(text));
    }
    add_each(column, bound, |row| constants[row])
}

/// `column * factor`.
pub fn scale_cells(column: CellArray<'_>, factor: i64) -> Result<BinaryArray, CellError> {
    map_cells(column, |cell| cell.scale(factor))
}

/// `-column`.
pub fn negate_cells(column: CellArray<'_>) -> Result<BinaryArray, CellError> {
    map_cells(column, |cell| cell.negate())
}

/// `left + right`, row by row; NULL where either is.
pub fn add_cells(left: CellArray<'_>, right: CellArray<'_>) -> Result<BinaryArray, CellError> {
    if left.len() != right.len() {
        return Err(CellError::Unsupported(format!(
            "columns of {} and {} rows cannot be added",
            left.len(),
            right.len()
        )));
    }
    let mut sum = Cell::scratch();
    let mut other = Cell::scratch();
    let mut builder = CellArrayBuilder::with_capacity(left.len(), 80);
    for row in 0..left.len() {
        match (left.bytes(row), right.bytes(row)) {
            (Some(left), Some(right)) => {
                sum.read(left)?;
                other.read(right)?;
                sum.add(&other)?;
                builder.push(&sum)?;
            }
            _ => builder.push_null()?,
        }
    }
    builder.finish()
}

fn add_each(column: CellArray<'_>, bound: u64, constant: impl Fn(usize) -> i64) -> Result<BinaryArray, CellError> {
    if let CellArray::Binary(array) = column
        && let Some(shifted) = shift_column(array, bound, &constant)?
    {
        return Ok(shifted);
    }
    let mut builder = CellArrayBuilder::with_capacity(column.len(), 58);
    let mut known = None;
    for row in 0..column.len() {
        let Some(bytes) = column.bytes(row) else {
            builder.push_null()?;
            continue;
        };
        let (view, constant) = (CellView::parse_next(&mut known, bytes)?, constant(row));
        if constant.unsigned_abs() <= bound && view.write_plus(constant, bound, &mut builder.values)? {
            builder.close_row(true)?;
        } else {
            let mut cell = Cell::from_bytes(bytes)?;
            cell.add_constant_within(constant, bound)?;
            builder.push(&cell)?;
        }
    }
    builder.finish()
}

fn map_cells(
    column: CellArray<'_>,
    mut change: impl FnMut(&mut Cell) -> Result<(), CellError>,
) -> Result<BinaryArray, CellError> {
    let mut cell = Cell::scratch();
    let mut builder = CellArrayBuilder::with_capacity(column.len(), 58);
    for row in 0..column.len() {
        match column.bytes(row) {
            Some(bytes) => {
                cell.read(bytes)?;
                change(&mut cell)?;
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
    use crate::{KeyId, Lanes, Seed};

    fn column(lanes: Lanes) -> BinaryArray {
        let mut builder = CellArrayBuilder::with_capacity(4, 64);
        for row in 0..3u16 {
            let bodies: Vec<u64> = (0..lanes.total() as u64).map(|lane| u64::from(row) << 20 | lane).collect();
            let cell = Cell::fresh(KeyId([1; 8]), lanes, Some(9), Seed([row as u8; 16]), row * 4, &bodies).unwrap();
            builder.push(&cell).unwrap();
        }
        builder.push_null().unwrap();
        builder.finish().unwrap()
    }

    /// The short cut over bytes writes what the cell's own arithmetic writes.
    #[test]
    fn adding_a_constant_in_place_is_adding_it() {
        for (nulls, tag) in [(false, false), (false, true), (true, false), (true, true)] {
            let column = column(Lanes { value: 1, nulls, tag });
            let short_cut = add_constants_within(CellArray::Binary(&column), &[5, -6, 7, 0], 10).unwrap();
            for (row, constant) in [5, -6, 7].into_iter().enumerate() {
                let mut cell = Cell::from_bytes(column.value(row)).unwrap();
                cell.add_constant_within(constant, 10).unwrap();
                assert_eq!(short_cut.value(row), cell.to_bytes());
            }
            assert!(short_cut.is_null(3));
            assert!(add_constants_within(CellArray::Binary(&column), &[5, -6, 11, 0], 10).is_err());
        }
    }

    /// A slice keeps its place, damage is found, and other layouts take the other way to the same bytes.
    #[test]
    fn slices_and_layouts_agree() {
        let column = column(Lanes::NUMBER);
        let whole = add_constant(CellArray::Binary(&column), 3).unwrap();
        let slice = column.slice(1, 3);
        assert_eq!(add_constant(CellArray::Binary(&slice), 3).unwrap(), whole.slice(1, 3));
        let large = arrow::compute::cast(&column, &DataType::LargeBinary).unwrap();
        assert_eq!(add_constant(CellArray::try_new(&large).unwrap(), 3).unwrap(), whole);
        for row in 0..3 {
            let mut builder = CellArrayBuilder::with_capacity(3, 64);
            for at in 0..3 {
                let mut bytes = column.value(at).to_vec();
                bytes[40] ^= u8::from(at == row);
                builder.push_bytes(&bytes).unwrap();
            }
            assert!(add_constant(CellArray::Binary(&builder.finish().unwrap()), 3).is_err(), "row {row}");
        }
    }

    #[test]
    fn dense_cells_take_the_long_way() {
        let mut cell = Cell::from_bytes(column(Lanes::NUMBER).value(0)).unwrap();
        cell.make_dense().unwrap();
        let mut builder = CellArrayBuilder::with_capacity(1, 64);
        builder.push(&cell).unwrap();
        let sum = add_constant(CellArray::Binary(&builder.finish().unwrap()), 3).unwrap();
        cell.add_constant(3).unwrap();
        assert_eq!(sum.value(0), cell.to_bytes());
    }

    #[test]
    fn columns_add_row_by_row() {
        let column = column(Lanes::NUMBER);
        let sum = add_cells(CellArray::Binary(&column), CellArray::Binary(&column)).unwrap();
        let twice = scale_cells(CellArray::Binary(&column), 2).unwrap();
        assert_eq!(sum, twice);
        assert_eq!(sum.null_count(), 1);
    }
}
