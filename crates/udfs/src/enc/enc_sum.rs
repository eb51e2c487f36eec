//! `enc_sum(column)`: the encrypted sum of a group.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Documentation, Signature, Volatility};
use veil_cells::{Kind, Nulls, Width};

use super::sum::{self, Finish};
use crate::function::document;

/// The aggregate.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct EncSum {
    signature: Signature,
}

impl Default for EncSum {
    fn default() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::AGGREGATES,
        "The sum of an encrypted column, NULLs left out; the number of true values for a boolean or binary one. A group takes as many rows as \
         the noise budget of a cell allows, some 180,000.",
        "enc_sum(column)",
        "SELECT region, enc_sum(cost) FROM patients GROUP BY region;",
        &[("column", "An encrypted integer, decimal, boolean or binary column.")],
    )
});

impl AggregateUDFImpl for EncSum {
    fn name(&self) -> &str {
        "enc_sum"
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
        column.expect(self.name(), &kinds, "sums of moments, texts and categories mean nothing")?;
        if column.hides_nulls() && column.cell_type.computed {
            return plan_err!(
                "enc_sum: this column hides its NULLs and was computed, so that NULLs would count: sum the column itself, and compute with \
                 the sum"
            );
        }
        let truths = matches!(column.cell_type.kind, Kind::Boolean | Kind::Binary);
        let mut result = column.unbounded();
        if truths {
            result = result.without_note();
            result.cell_type.kind = Kind::Integer;
        }
        // Sums leave NULLs out.
        (result.cell_type.width, result.cell_type.nulls) = (Width::FULL, Nulls::Public);
        result.nullable = true;
        Ok(Arc::new(result.field(self.name())?))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        sum::accumulator(self.name(), &args, Finish::Sum)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(sum::state_fields(&args))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }
}
