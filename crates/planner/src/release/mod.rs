//! `release(relation, recipient => 'alice')`: rows for a recipient, sealed so that neither server sees one.
//!
//! ```text
//!  SQL ── mod ──> node ── exec ── run: applies, has classes counted, seals parcel by parcel, has the manifest signed
//!
//!  columns   what becomes of each column             parcels   rows as the rounds take them
//! ```

mod columns;
mod exec;
mod node;
mod parcels;
mod run;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Documentation, Extension, LogicalPlan};
use veil_udfs::document;

pub use exec::ReleaseExec;
pub use node::ReleaseNode;

use crate::carry_types::with_types;
use crate::relation_function::RelationCall;

/// The function's name.
pub(crate) const NAME: &str = "release";

/// For docs/sql.md and `veil_functions()`.
pub(crate) fn documented() -> Vec<(String, Documentation)> {
    let release = document(
        "Relations",
        "The rows of a relation, sealed to a recipient: P2 holds the request against the owner's policy, insists on k where the policy does, adds \
         its noise to columns that await it, and seals values behind masks; the engine seals the masks. What comes out is a table of sealed \
         parts, a row for every 8192 rows (fewer if they are sums), with a signed manifest at the end. The recipient's program opens it; suppressed rows \
         stay out. Neither server sees a row. Sums and averages of many rows are released like other numbers, an average as a sum and the number of its \
         rows; not if they are of values that await P2's noise, and not beside rows that may be suppressed. Every call is a release of its own, and spends its epsilon.",
        "release(relation, recipient => 'alice')",
        "SELECT * FROM release(anon, recipient => 'alice');",
        &[
            ("relation", "A table, a view, a subquery in parentheses, or another function of this kind."),
            ("recipient", "Who is to get it: a name in the owner's policy, which P2 has."),
        ],
    );
    vec![(NAME.to_owned(), release)]
}

/// Plans a call.
pub(crate) fn plan(mut call: RelationCall, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let recipient = call.take_text("recipient", "alice", context)?;
    let query = call.told();
    // Columns of CASE, coalesce and UNION have their types before anybody asks which are encrypted.
    let input = with_types(call.finish(&["recipient"])?)?;
    let node = ReleaseNode::try_new(Arc::new(input), recipient, query)?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}
