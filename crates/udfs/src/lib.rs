//! SQL functions on encrypted columns.
//!
//! One function a file; the file, the SQL name and the type have the same name. Each file holds the function's documentation
//! (from which docs/sql.md is made), what it checks while a query is planned, and, public for embedders, what it does to Arrow
//! arrays. Functions that need rounds with P2 say so, and the planner runs them in an operator of their own.
//!
//! ```text
//!  mask_*            replace or blur values                     function    what a function is, and its place in DataFusion
//!  dp_*              add differential-privacy noise             arguments   what a call is given, checked
//!  enc_*             arithmetic and aggregates                  encrypted   the type of an encrypted column and what travels along
//!                                                               context     dictionaries, zeros, randomness of a session
//!                                                               options     SET veil.*
//! ```

mod arguments;
mod context;
mod dp;
mod enc;
mod encrypted;
mod function;
mod mask;
mod options;

pub use arguments::Arguments;
pub use context::{Dictionary, VeilContext};
pub use dp::{
    Utility, dp_binary, dp_exponential, dp_geometric, dp_laplace, dp_laplace_encrypted, dp_randomized_response,
};
pub use enc::{EncAvg, EncCount, EncSum, enc_add, enc_scale, enc_sub};
pub use encrypted::EncryptedField;
pub use function::{CellFunction, CellUdf, Evaluation, Rounds, damaged_cell, document};
pub use mask::{mask_dictionary, mask_noise, mask_random, mask_redact, mask_shift};
pub use options::{NoiseMode, VeilOptions};

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

/// Every scalar function.
pub fn scalar_functions(context: &VeilContext) -> Vec<Arc<ScalarUDF>> {
    let functions: Vec<Arc<dyn CellFunction>> = vec![
        Arc::new(mask::MaskShift),
        Arc::new(mask::MaskNoise::new(context)),
        Arc::new(mask::MaskRandom::new(context)),
        Arc::new(mask::MaskDictionary::new(context)),
        Arc::new(mask::MaskRedact::new(context)),
        Arc::new(enc::EncAdd),
        Arc::new(enc::EncSub),
        Arc::new(enc::EncScale),
        Arc::new(dp::DpLaplace::new(context)),
        Arc::new(dp::DpGeometric::new(context)),
        Arc::new(dp::DpBinary::new(context)),
        Arc::new(dp::DpExponential::new(context)),
        Arc::new(dp::DpRandomizedResponse::new(context)),
    ];
    functions.into_iter().map(|function| Arc::new(ScalarUDF::from(CellUdf::new(function)))).collect()
}

/// Every aggregate function.
pub fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    vec![
        Arc::new(AggregateUDF::from(EncSum::default())),
        Arc::new(AggregateUDF::from(EncAvg::default())),
        Arc::new(AggregateUDF::from(EncCount::default())),
    ]
}

/// Registers every function.
pub fn register_all(registry: &mut dyn FunctionRegistry, context: &VeilContext) -> Result<()> {
    for function in scalar_functions(context) {
        registry.register_udf(function)?;
    }
    for function in aggregate_functions() {
        registry.register_udaf(function)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_do_not_collide_and_everything_is_documented() {
        let mut names = HashSet::new();
        for function in scalar_functions(&VeilContext::default()) {
            assert!(names.insert(function.name().to_owned()), "{} twice", function.name());
            assert!(function.documentation().is_some_and(|docs| docs.sql_example.is_some()), "{}", function.name());
        }
        for function in aggregate_functions() {
            assert!(names.insert(function.name().to_owned()), "{} twice", function.name());
            assert!(function.documentation().is_some_and(|docs| docs.sql_example.is_some()), "{}", function.name());
        }
        assert_eq!(names.len(), 16);
    }
}
