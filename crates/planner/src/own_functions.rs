//! Whether a function of a plan is one of ours, by its type: another function of the same name is not.

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use veil_udfs::{CellUdf, EncAvg, EncCount, EncSum};

use crate::restore_type::RestoreType;

/// Whether it is `mask_*`, `dp_*` or `enc_*`, or the type that the planner gives back to CASE, coalesce and casts.
pub fn is_own_scalar(function: &ScalarUDF) -> bool {
    let inner = function.inner();
    inner.is::<CellUdf>() || inner.is::<RestoreType>()
}

/// Whether it is `enc_sum`, `enc_avg` or `enc_count`.
pub fn is_own_aggregate(function: &AggregateUDF) -> bool {
    let inner = function.inner();
    inner.is::<EncSum>() || inner.is::<EncAvg>() || inner.is::<EncCount>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::functions_aggregate::all_default_aggregate_functions;
    use datafusion::logical_expr::{ColumnarValue, create_udf};
    use veil_udfs::{VeilContext, aggregate_functions, scalar_functions};

    use super::*;

    #[test]
    fn functions_are_known_by_their_types() {
        assert!(scalar_functions(&VeilContext::default()).iter().all(|function| is_own_scalar(function)));
        assert!(aggregate_functions().iter().all(|function| is_own_aggregate(function)));
        assert!(!all_default_aggregate_functions().iter().any(|function| is_own_aggregate(function)));
        let volatility = datafusion::logical_expr::Volatility::Immutable;
        let same = Arc::new(|arguments: &[ColumnarValue]| Ok(arguments[0].clone()));
        let of_the_same_name =
            create_udf("mask_shift", Vec::new(), datafusion::arrow::datatypes::DataType::Int64, volatility, same);
        assert!(!is_own_scalar(&of_the_same_name));
    }
}
