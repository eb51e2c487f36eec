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
