//! Differential privacy (section 5.3 of the paper), value by value: whoever sees a result cannot tell two values of the column's
//! range apart by more than a factor `e^epsilon`.
//!
//! The engine draws the noise, so the engine could take it off again. Therefore a column remembers its noise in its type
//! (`awaits`), and the release adds an independent noise of the key holder: neither server alone can remove both.

mod dp_binary;
mod dp_exponential;
mod dp_geometric;
mod dp_laplace;
mod dp_randomized_response;

use datafusion::common::plan_err;
use datafusion::error::Result;

use crate::{Arguments, EncryptedField};

pub(crate) use dp_binary::DpBinary;
pub use dp_binary::dp_binary;
pub(crate) use dp_exponential::DpExponential;
pub use dp_exponential::{Utility, dp_exponential};
pub(crate) use dp_geometric::DpGeometric;
pub use dp_geometric::dp_geometric;
pub(crate) use dp_laplace::DpLaplace;
pub use dp_laplace::{dp_laplace, dp_laplace_encrypted};
pub(crate) use dp_randomized_response::DpRandomizedResponse;
pub use dp_randomized_response::dp_randomized_response;

/// The section of docs/sql.md.
pub(crate) const SECTION: &str = "Differential privacy";

/// The column that gets noise. Noise is drawn for every row, so that it says nothing of a value that many rows share: what k_anonymize has published is
/// the same in a whole class, and the noise of its rows would average out. A category that stands above the leaves would get none.
pub(crate) fn value_of_a_row(arguments: &Arguments<'_>) -> Result<EncryptedField> {
    let column = arguments.encrypted(0)?;
    match column.cell_type.computed && column.cell_type.tag {
        false => Ok(column),
        true => plan_err!(
            "{} adds noise row by row, and what k_anonymize has published is the same for all rows of a class, so that the noise would average out: add \
             noise to columns that are not in quasi, or use one of the two",
            arguments.function()
        ),
    }
}
