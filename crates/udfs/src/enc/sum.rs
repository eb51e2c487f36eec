//! The sum of a group, as the aggregates share it.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use veil_cells::{Cell, CellArray, DenseSum};

use crate::EncryptedField;
use crate::function::{damaged_cell, external};

/// What becomes of a group's sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// The sum itself.
    Sum,
    /// Divided by the number of rows.
    Average,
    /// The number of rows, less the hidden NULLs.
    Count,
}

/// Adds up a group.
pub(super) struct GroupSum {
    finish: Finish,
    sum: DenseSum,
    /// Rows that are not visibly NULL.
    rows: i64,
    scratch: Cell,
    /// The column's name.
    column: String,
}

impl std::fmt::Debug for GroupSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupSum").field("finish", &self.finish).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl GroupSum {
    pub(super) fn new(finish: Finish, column: String) -> Self {
        Self { finish, sum: DenseSum::new(), rows: 0, scratch: Cell::scratch(), column }
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.scratch.read(bytes).map_err(external)?;
        self.sum.add(&self.scratch).map_err(external)
    }

    fn take_sum(&mut self) -> Result<Option<Cell>> {
        std::mem::take(&mut self.sum).finish().map_err(external)
    }
}

impl Accumulator for GroupSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else { return Ok(()) };
        let cells = CellArray::try_new(values).map_err(external)?;
        for row in 0..cells.len() {
            let Some(bytes) = cells.bytes(row) else { continue };
            if let Err(error) = self.scratch.read(bytes) {
                return Err(external(damaged_cell(&self.column, cells).unwrap_or(error)));
            }
            match (self.finish, self.scratch.null_count()) {
                (Finish::Count, Some(nulls)) => self.scratch = nulls,
                (Finish::Count, None) => {
                    return plan_err!("enc_count: this column has been computed with: count the column itself");
                }
                (Finish::Sum | Finish::Average, _) => self.scratch.forget_nulls(),
            }
            self.sum.add(&self.scratch).map_err(external)?;
            self.rows += 1;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let rows = self.rows;
        let Some(mut cell) = self.take_sum()? else { return Ok(ScalarValue::Binary(None)) };
        match self.finish {
            Finish::Sum => {}
            Finish::Average => match u32::try_from(rows) {
                Ok(rows) => cell.divide(rows).map_err(external)?,
                Err(_) => return plan_err!("enc_avg: too many rows in a group"),
            },
            Finish::Count => {
                cell.negate().map_err(external)?;
                cell.add_constant(rows).map_err(external)?;
            }
        }
        Ok(ScalarValue::Binary(Some(cell.to_bytes())))
    }

    fn size(&self) -> usize {
        // A row is remembered by its place, in twelve bytes, until the sum is taken.
        size_of_val(self) + 16 * self.rows.unsigned_abs() as usize + self.scratch.bodies().len() * 8
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let rows = self.rows;
        let sum = self.take_sum()?;
        Ok(vec![ScalarValue::Binary(sum.map(|sum| sum.to_bytes())), ScalarValue::Int64(Some(rows))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [sums, rows] = states else { return plan_err!("the state of an encrypted sum has two columns") };
        let cells = CellArray::try_new(sums).map_err(external)?;
        let rows = rows.as_primitive::<Int64Type>();
        for row in 0..cells.len() {
            if let Some(bytes) = cells.bytes(row) {
                self.add(bytes)?;
                self.rows += if rows.is_valid(row) { rows.value(row) } else { 0 };
            }
        }
        Ok(())
    }
}

/// The columns of a partial sum.
pub(super) fn state_fields(args: &StateFieldsArgs<'_>) -> Vec<FieldRef> {
    vec![
        Arc::new(Field::new(format!("{}[sum]", args.name), DataType::Binary, true)),
        Arc::new(Field::new(format!("{}[rows]", args.name), DataType::Int64, false)),
    ]
}

/// A sum of rows that may not repeat is none that cells can tell.
pub(super) fn accumulator(function: &str, args: &AccumulatorArgs<'_>, finish: Finish) -> Result<Box<dyn Accumulator>> {
    match args.is_distinct {
        true => plan_err!("{function}(DISTINCT ..) would have to compare encrypted values: leave out DISTINCT"),
        false => {
            let column = args.expr_fields.first().map(|field| field.name().clone()).unwrap_or_default();
            Ok(Box::new(GroupSum::new(finish, column)))
        }
    }
}

/// The only argument of an aggregate, or `None` if its type has been dropped and is yet to be restored.
pub(super) fn argument(function: &str, fields: &[FieldRef]) -> Result<Option<EncryptedField>> {
    let [field] = fields else { return plan_err!("{function} takes one encrypted column") };
    match (EncryptedField::of(field)?, field.data_type()) {
        (Some(column), _) => Ok(Some(column)),
        (None, DataType::Binary | DataType::LargeBinary | DataType::BinaryView) => Ok(None),
        (None, other) => {
            plan_err!("{function} works on an encrypted column, and this one is clear ({other}): use sum, avg or count")
        }
    }
}

/// What the argument's type is not known to be: the planner asks again.
pub(super) fn untyped(function: &str) -> FieldRef {
    Arc::new(Field::new(function, DataType::Binary, true))
}
