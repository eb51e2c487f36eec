//! `enc_avg(column)`: the encrypted average of a group.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Documentation, Signature, Volatility};
use veil_cells::{Kind, Width};

use super::sum::{self, Finish};
use crate::function::document;

/// Decimal places beyond the column's.
const PLACES: u8 = 4;

/// The aggregate.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct EncAvg {
    signature: Signature,
}

impl Default for EncAvg {
    fn default() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::AGGREGATES,
        "The average of an encrypted column, NULLs left out, to four decimal places more than the column has. The cell holds the sum and, \
         in clear, how many rows it has: a decryption divides.",
        "enc_avg(column)",
        "SELECT region, enc_avg(age) FROM patients GROUP BY region;",
        &[("column", "An encrypted integer, decimal, boolean or binary column with visible NULLs.")],
    )
});

impl AggregateUDFImpl for EncAvg {
    fn name(&self) -> &str {
        "enc_avg"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(types.to_vec())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        let Some(column) = sum::argument(self.name(), fields)? else { return Ok(sum::untyped(self.name())) };
        let kinds = [Kind::Integer, Kind::Decimal, Kind::Boolean, Kind::Binary];
        column.expect(self.name(), &kinds, "averages of moments, texts and categories mean nothing")?;
        if column.hides_nulls() {
            return plan_err!(
                "enc_avg: this column hides its NULLs, so how many rows to divide by is hidden too: use enc_sum and enc_count"
            );
        }
        let mut result = column.unbounded().without_note();
        let scale = if result.cell_type.kind == Kind::Decimal { result.cell_type.scale } else { 0 };
        result.cell_type.places = PLACES.min(9 - scale.min(9));
        (result.cell_type.kind, result.cell_type.scale) = (Kind::Decimal, scale + result.cell_type.places);
        result.cell_type.width = Width::FULL;
        result.nullable = true;
        Ok(Arc::new(result.field(self.name())?))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        sum::accumulator(self.name(), &args, Finish::Average)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(sum::state_fields(&args))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }
}
