//! Veilfusion: anonymise data that stays encrypted, in SQL, on Apache Arrow and DataFusion.
//!
//! This is the engine's side, for platforms that embed DataFusion. It masks, adds noise to, filters, joins and computes on
//! encrypted columns, in rounds with a key holder where it must, and knows no secret key: the data owner's tools are the command
//! `veil` and the crate `veil-owner`.
//!
//! ```
//! use datafusion::execution::SessionStateBuilder;
//! use datafusion::prelude::*;
//! use veilfusion::{Veil, VeilSessionState};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> datafusion::error::Result<()> {
//! let veil = Veil::default();
//! let context = SessionContext::new_with_state(SessionStateBuilder::new().with_veil(&veil).build());
//! let functions = context.sql("SELECT name FROM veil_functions() WHERE section = 'Masking'").await?;
//! assert_eq!(functions.count().await?, 5);
//! # Ok(())
//! # }
//! ```
//! The README has an example with keys, a table and both servers; it is run as a test.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use veil_cells as cells;
pub use veil_flight_p2 as flight_p2;
pub use veil_planner::{
    Anonymisation, KAnonymizeExec, Phase, Progress, Search, Veil, VeilSessionConfig, VeilSessionState, veiled,
};
pub use veil_protocols as protocols;
pub use veil_udfs as functions;
