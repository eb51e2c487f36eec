//! Veilfusion: anonymise data that stays encrypted, in SQL, on Apache Arrow and DataFusion.
//!
//! This is the engine's side, for platforms that embed DataFusion. It can carry, filter, join and compute on
//! encrypted columns, and knows no secret key: the data owner's tools are the command `veil` and the crate `veil-owner`.
//!
//! ```
//! use datafusion::prelude::*;
//! use veilfusion::VeilSessionConfig;
//!
//! let context = SessionContext::new_with_config(SessionConfig::new().with_veil());
//! ```

mod session_config;

pub use session_config::VeilSessionConfig;
pub use veil_cells as cells;
