//! `identifiers(relation, k => 5, ..)`: which columns identify people, alone or together.
//!
//! ```text
//!  SQL ── mod ──> node ── exec ── run: collects the input, asks level by level (privacy::lattice), P2 answers (protocols::identifiers)
//!
//!  columns   what the operator makes of each column            summary   identifiers_summary(): what past searches cost
//! ```

mod columns;
mod exec;
mod node;
mod run;
mod summary;

use std::sync::Arc;

use datafusion::common::{Column, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Documentation, Expr, Extension, LogicalPlan};
use veil_cells::CellType;
use veil_privacy::lattice::MAX_COLUMNS;
use veil_udfs::{EncryptedField, document};

pub(crate) use columns::Source;
pub use exec::IdentifiersExec;
pub use node::IdentifiersNode;
pub use summary::Search;

use crate::relation_function::RelationCall;

/// The function's name.
pub(crate) const NAME: &str = "identifiers";

/// All arguments by name.
const ARGUMENTS: [&str; 6] = ["k", "columns", "max_size", "method", "shuffle", "rows_at_risk"];

/// For docs/sql.md and `veil_functions()`.
pub(crate) fn documented() -> Vec<(String, Documentation)> {
    let identifiers = document(
        "Relations",
        "Which columns identify people: one row for every minimal set of columns of which some combination of values is shared by fewer \
         than k rows. A single such column is a direct identifier, several together are a quasi-identifier; whatever includes one of them \
         identifies too and is not listed. A NULL equals a NULL. The engine learns the answer for each set that it asks about; P2 \
         learns how large the classes of each set are, in no order, and with shuffle => false which rows are equal. Whoever may choose the rows can \
         ask whether two of them are equal: let nobody ask who may not know that. EXPLAIN tells what a search may cost, \
         SELECT * FROM identifiers_summary() what it did.",
        "identifiers(relation [, k => 5, columns => (a, b), max_size => 4, method => 'tags', shuffle => true, rows_at_risk => false])",
        "SELECT * FROM identifiers((SELECT * FROM patients), k => 5, columns => (age, gender, zip));",
        &[
            ("relation", "A table, a view, a subquery in parentheses, or another function of this kind."),
            ("k", "Fewer rows than this identify their people."),
            (
                "columns",
                "The columns to look at: by default all that are clear and all encrypted ones with equality tags.",
            ),
            ("max_size", "The largest set of columns to look at. A note says if larger ones may identify."),
            (
                "method",
                "'tags' compares equality tags, and values where a column has none; 'pairwise' compares every row with every other, for \
                 up to 8192 rows.",
            ),
            (
                "shuffle",
                "Whether P2 gets the rows in an order that only the engine knows. Without, a search is some eighty times faster.",
            ),
            ("rows_at_risk", "Whether to count the rows in small classes too."),
        ],
    );
    let summary = document(
        "Relations",
        "The searches of identifiers in this session and what they cost: sets of columns checked and pruned, rounds, bytes, seconds, and a \
         note where larger sets or columns without tags were not looked at.",
        "identifiers_summary()",
        "SELECT checked, pruned, rounds, bytes_sent, seconds FROM identifiers_summary();",
        &[],
    );
    vec![(NAME.to_owned(), identifiers), ("identifiers_summary".to_owned(), summary)]
}

/// How rows are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Comparison {
    /// By their equality tags: each row once.
    Tags,
    /// Each row with every other, as Algorithm 1 of the paper.
    Pairwise,
}

impl Comparison {
    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tags => "tags",
            Self::Pairwise => "pairwise",
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Question {
    /// A combination of values that fewer rows share identifies them.
    pub k: u32,
    /// The largest set of columns.
    pub max_size: u32,
    /// How rows are compared.
    pub comparison: Comparison,
    /// Whether P2 sees rows in an order that only P1 knows.
    pub shuffle: bool,
    /// Whether to count the rows that are identified.
    pub rows_at_risk: bool,
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { k, max_size, comparison, shuffle, rows_at_risk } = self;
        write!(f, "k={k}, max_size={max_size}, method={}, shuffle={shuffle}", comparison.name())?;
        if *rows_at_risk { write!(f, ", rows_at_risk=true") } else { Ok(()) }
    }
}

/// Plans a call.
pub(crate) fn plan(mut call: RelationCall, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let question = Question {
        k: call.take_count("k", 1, 5, context)?,
        max_size: call.take_count("max_size", 1, 4, context)?,
        comparison: match call.take_word("method", &["tags", "pairwise"])? {
            Some("pairwise") => Comparison::Pairwise,
            _ => Comparison::Tags,
        },
        shuffle: call.take_flag("shuffle", true, context)?,
        rows_at_risk: call.take_flag("rows_at_risk", false, context)?,
    };
    let named = call.take_columns("columns", context)?;
    let input = call.finish(&ARGUMENTS)?;
    let (columns, left_out) = match named {
        Some(columns) => (columns, Vec::new()),
        None => comparable(&input)?,
    };
    match columns.len() {
        0 => {
            return plan_err!(
                "{NAME} found no column with an equality tag and none that is clear: name columns => (a, b)"
            );
        }
        1..=MAX_COLUMNS => {}
        found => {
            return plan_err!(
                "{found} columns have more sets than anybody can search: name at most {MAX_COLUMNS} with columns => (a, b)"
            );
        }
    }
    let columns = columns.into_iter().map(Expr::Column).collect();
    let node = IdentifiersNode::try_new(Arc::new(input), columns, left_out, question)?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

/// All columns that can be compared without more ado, which are the clear ones and those with equality tags; and the names of the others.
fn comparable(input: &LogicalPlan) -> Result<(Vec<Column>, Vec<String>)> {
    let (mut columns, mut left_out) = (Vec::new(), Vec::new());
    for (qualifier, field) in input.schema().iter() {
        let without_tag = match EncryptedField::of(field)? {
            Some(encrypted) => !encrypted.cell_type.tag,
            None => CellType::is_only_named_in(field),
        };
        match without_tag {
            true => left_out.push(field.name().clone()),
            false => columns.push(Column::new(qualifier.cloned(), field.name())),
        }
    }
    Ok((columns, left_out))
}
