//! `enc_count(column)`: how many rows of a group are not NULL, where NULLs are hidden.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Documentation, Signature, Volatility};
use veil_cells::{CellType, Kind, Nulls, Width};

use super::sum::{self, Finish};
use crate::function::document;

/// The aggregate.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct EncCount {
    signature: Signature,
}

impl Default for EncCount {
    fn default() -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

static DOCUMENTATION: LazyLock<Documentation> = LazyLock::new(|| {
    document(
        super::AGGREGATES,
        "How many rows of an encrypted column are not NULL, as an encrypted integer, for columns that hide their NULLs. Where NULLs are visible, \
         count does the same in clear.",
        "enc_count(column)",
        "SELECT region, enc_count(smoker) FROM patients GROUP BY region;",
        &[("column", "An encrypted column that hides its NULLs.")],
    )
});

impl AggregateUDFImpl for EncCount {
    fn name(&self) -> &str {
        "enc_count"
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
        if !column.hides_nulls() {
            return plan_err!("enc_count: the NULLs of this column are visible: use count");
        }
        let of = &column.cell_type;
        // Suppressed rows are counted too, so the count is withheld with them.
        let counted = CellType::new(Kind::Integer, Width::FULL, 1, of.key, of.column);
        let counted = CellType { nulls: Nulls::Public, withheld: of.withheld, ..counted };
        let mut result = crate::EncryptedField::new(counted, true);
        result.nullable = true;
        Ok(Arc::new(result.field(self.name())?))
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        sum::accumulator(self.name(), &args, Finish::Count)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(sum::state_fields(&args))
    }

    fn documentation(&self) -> Option<&Documentation> {
        Some(&DOCUMENTATION)
    }
}
