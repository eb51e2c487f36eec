//! How DataFusion plans and runs queries on encrypted columns.
//!
//! ```
//! use datafusion::execution::SessionStateBuilder;
//! use datafusion::prelude::*;
//! use veil_planner::{Veil, VeilSessionState};
//!
//! let veil = Veil::default();
//! let context = SessionContext::new_with_state(SessionStateBuilder::new().with_veil(&veil).build());
//! ```
//!
//! ```text
//!  SQL ── operators ──> plan ── carry_types ── guard ── DataFusion's own rules ── carry_types ── find_rounds ──> plan with rounds
//!                                                                                                                  │
//!  veil        dictionaries, keys and the way to P2 of a session                                  rounds_exec <── rounds_node
//!  session     puts everything into a SessionStateBuilder
//!  operators   refuses +, -, <, = .. on encrypted columns while SQL is read
//!  carry_types restores the type of cells where CASE, coalesce and casts drop it
//!  guard       refuses comparing, sorting, grouping, hashing, casting encrypted columns
//!  find_rounds moves calls that need P2 into nodes of their own
//!  read_in_order  reads rows as they are stored where their order matters, with in_order_exec and unique_order_exec
//!  tables      reads dictionaries and zeros that come with files
//!  display     encrypted cells for people
//!  error       errors for people
//!  functions   the table function veil_functions()
//!  own_functions  whether a function of a plan is one of ours
//!
//!  relation_function   functions in FROM that take relations and named arguments, with kept_sort
//!  identifiers         one of them: which columns identify people
//!  k_anonymize         another: rows that are like k - 1 others
//!  assess              others: what a table gives away, and what it is still good for
//!  release             another: rows for a recipient, sealed
//!  row_bytes           what rows take of memory
//!  run_log             what ended runs of such functions leave: summaries and notes
//!  told_text           calls and statements as P2, manifests and logs get them: without the engine's secrets
//! ```

mod assess;
mod carry_types;
mod census;
mod display;
mod error;
mod find_rounds;
mod functions;
mod guard;
mod identifiers;
mod in_order_exec;
mod k_anonymize;
mod kept_sort;
mod operators;
mod own_functions;
mod read_in_order;
#[cfg(test)]
mod reference;
mod relation_function;
mod release;
mod restore_type;
mod rounds_exec;
mod rounds_node;
mod row_bytes;
mod run_log;
mod session;
mod tables;
mod told_text;
mod unique_order_exec;
mod veil;

pub use assess::{AssessExec, AssessNode, Assessment, Matched, Question as AssessQuestion};
pub use carry_types::with_types;
pub use display::veiled;
pub use error::explain_error;
pub use functions::{documented, function_table};
pub use identifiers::{IdentifiersExec, IdentifiersNode, Search};
pub use k_anonymize::{Anonymisation, KAnonymizeExec, KAnonymizeNode, Progress, Request, Start};
pub use own_functions::{is_own_aggregate, is_own_scalar};
pub use release::{ReleaseExec, ReleaseNode};
pub use rounds_exec::RoundsExec;
pub use rounds_node::{RoundsNode, RoundsPlanner};
pub use session::{VeilSessionConfig, VeilSessionState};
pub use tables::add_side_tables_of;
pub use told_text::told_statement;
pub use veil::Veil;
pub use veil_protocols::k_anonymize::Phase;
