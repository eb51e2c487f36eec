//! The identity, with the type that an expression has dropped.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use veil_udfs::EncryptedField;

/// What the planner wraps around CASE, coalesce and casts.
#[derive(Debug)]
pub(crate) struct RestoreType {
    field: FieldRef,
    signature: Signature,
}

impl RestoreType {
    /// Its name in plans.
    pub(crate) const NAME: &'static str = "veil_type";

    /// What was wrapped.
    pub(crate) fn wrapped(expr: &Expr) -> Option<&Expr> {
        match expr {
            Expr::ScalarFunction(call) if call.func.inner().is::<Self>() => call.args.first(),
            _ => None,
        }
    }

    /// The expression, with this type.
    pub(crate) fn wrap(expr: Expr, to: &EncryptedField) -> Result<Expr> {
        let field = Arc::new(to.field(Self::NAME)?);
        let function = Self { field, signature: Signature::any(1, Volatility::Immutable) };
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), vec![expr])))
    }
}

impl PartialEq for RestoreType {
    fn eq(&self, other: &Self) -> bool {
        self.field == other.field
    }
}

impl Eq for RestoreType {}

impl Hash for RestoreType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.field.hash(state);
    }
}

impl ScalarUDFImpl for RestoreType {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(self.field.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [argument] = args.args.as_slice() else {
            return datafusion::common::internal_err!("veil_type takes one argument");
        };
        let array = argument.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(match array.data_type() {
            DataType::Binary => array,
            _ => cast(&array, &DataType::Binary)?,
        }))
    }
}
