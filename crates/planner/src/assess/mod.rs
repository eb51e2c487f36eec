//! `risk(..)`, `class_sizes(..)`, `utility(..)` and `sweep(..)`: what a table gives away, and what it is still good for.
//!
//! ```text
//!  SQL ── mod ──> node ── exec ── run: collects the inputs one after the other ── protocols::assess ── privacy::{risk, utility}
//!
//!  table     which columns of one relation tell people apart, and which rows are suppressed
//!  pairs     what is measured of each column of an original and its anonymised table
//!  align     which rows of both belong together              losses    what each column lost
//!  read_once a sweep anonymises the rows that it has read    shape     what a run may cost
//!  measures  the rows of the result                          summary   assess_summary(): what past runs cost
//! ```

mod align;
mod exec;
mod losses;
mod measures;
mod node;
mod pairs;
mod read_once;
mod run;
mod shape;
mod summary;
mod table;

use std::fmt;
use std::sync::Arc;

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Documentation, Extension, LogicalPlan};
use veil_protocols::census;
use veil_udfs::document;

pub use align::Matched;
pub use exec::AssessExec;
pub use node::AssessNode;
pub use summary::Assessment;

use crate::k_anonymize;
use crate::relation_function::RelationCall;

/// The functions' names.
pub(crate) const RISK: &str = "risk";
pub(crate) const CLASS_SIZES: &str = "class_sizes";
pub(crate) const UTILITY: &str = "utility";
pub(crate) const SWEEP: &str = "sweep";

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    /// How likely people are found, in a sample of so many people if that is known.
    Risk {
        /// People that the rows are a sample of.
        population: Option<u64>,
        /// Whether to tell what each column contributes.
        contributions: bool,
    },
    /// How many classes there are of every size.
    ClassSizes,
    /// What an anonymised table lost.
    Utility {
        /// The k that was asked for, if that is known.
        k: Option<u32>,
        /// Whether to tell how wide classes of numbers are.
        ranges: bool,
        /// Whether rows belong together by their order where no column tells.
        by_order: bool,
    },
    /// Both for several k.
    Sweep {
        /// Each an anonymised table.
        k: Vec<u32>,
        /// People that the rows are a sample of.
        population: Option<u64>,
        /// Whether to tell how wide classes of numbers are.
        ranges: bool,
    },
}

impl Question {
    /// The function that asks it.
    pub fn function(&self) -> &'static str {
        match self {
            Self::Risk { .. } => RISK,
            Self::ClassSizes => CLASS_SIZES,
            Self::Utility { .. } => UTILITY,
            Self::Sweep { .. } => SWEEP,
        }
    }

    /// The question as P2 knows it.
    pub(crate) fn asked(&self) -> census::Question {
        match self {
            Self::Risk { .. } => census::Question::Risk,
            Self::ClassSizes => census::Question::ClassSizes,
            Self::Utility { .. } => census::Question::Utility,
            Self::Sweep { .. } => census::Question::Sweep,
        }
    }

    /// Whether the first input is the original of the others.
    pub(crate) fn compares(&self) -> bool {
        matches!(self, Self::Utility { .. } | Self::Sweep { .. })
    }

    /// Whether rows may be compared by their order.
    pub(crate) fn by_order(&self) -> bool {
        matches!(self, Self::Utility { by_order: true, .. })
    }

    /// Whether it is asked how wide classes of numbers are.
    pub(crate) fn ranges(&self) -> bool {
        matches!(self, Self::Utility { ranges: true, .. } | Self::Sweep { ranges: true, .. })
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function())?;
        match self {
            Self::Risk { contributions, .. } => write!(f, ", contributions={contributions}")?,
            Self::ClassSizes => {}
            Self::Utility { k: None, .. } => {}
            Self::Utility { k: Some(k), .. } => write!(f, ", k={k}")?,
            Self::Sweep { k, .. } => write!(f, ", k={k:?}")?,
        }
        if let Self::Risk { population: Some(people), .. } | Self::Sweep { population: Some(people), .. } = self {
            write!(f, ", population={people}")?;
        }
        if self.ranges() {
            f.write_str(", ranges=true")?;
        }
        if self.by_order() { f.write_str(", by_order=true") } else { Ok(()) }
    }
}

/// Sets of columns and population, which several functions take.
const QUASI: (&str, &str) = (
    "quasi",
    "The columns by which people could be recognised: by default those that k_anonymize has published, or else all that are clear or have \
     equality tags.",
);
const RANGES: (&str, &str) = (
    "ranges",
    "Whether to tell how wide the classes of numbers are (NCP), and with that the loss of all quasi-identifiers together (GCP). It takes exact \
     comparisons of all rows, whose cost EXPLAIN tells.",
);
const POPULATION: (&str, &str) = (
    "population",
    "How many people the rows are a sample of: for journalists, and for who is unique among all of them.",
);

/// For docs/sql.md and `veil_functions()`.
pub(crate) fn documented() -> Vec<(String, Documentation)> {
    let risk = document(
        "Relations",
        "How likely people are found in a table, before or after it is anonymised: one row a measure, with what it means. Classes are rows with equal \
         values in the quasi-identifiers; suppressed rows are in none. The engine and P2 learn how many classes there are of every size, for all \
         quasi-identifiers and for all but each of them, and nothing else.",
        "risk(relation [, quasi => (a, b), population => n, contributions => true])",
        "SELECT measure, value FROM risk(anon, population => 100000);",
        &[
            ("relation", "A table, a view, a subquery in parentheses, or another function of this kind."),
            QUASI,
            POPULATION,
            ("contributions", "Whether to tell for each column how much lower the risk would be without it."),
        ],
    );
    let class_sizes = document(
        "Relations",
        "How many classes of rows that look alike there are of every size: what risk is computed from, for a histogram.",
        "class_sizes(relation [, quasi => (a, b)])",
        "SELECT * FROM class_sizes(anon);",
        &[("relation", "A table, a view, a subquery in parentheses, or another function of this kind."), QUASI],
    );
    let utility = document(
        "Relations",
        "What an anonymised table has lost: one row a measure and column, with what it means. Levels and leaves of categories, bits that they no \
         longer tell, squared errors of numbers (in percent), sizes of classes. Only the measures are opened, to the engine, and whether published \
         categories stand above the original ones: a column of which some do not is left out. On the way to them both servers learn how many classes \
         there are of every size. Numbers are measured on a grid of 32768 steps of their declared range, for up to 131072 rows; of those that vary by \
         less than a step, and of more rows, no loss is told. Rows belong together if they have the same cell of an encrypted column that both \
         tables share, or the same value of a clear one that has another in every row.",
        "utility(original, anonymised [, quasi => (a, b), k => 10, ranges => false, by_order => false])",
        "SELECT measure, column_name, value FROM utility(patients, anon);",
        &[
            ("original", "The table as it was: a table, a view, a subquery in parentheses."),
            ("anonymised", "What became of it, row by row."),
            QUASI,
            ("k", "The k that was asked for, to which the average class is compared (C_AVG)."),
            RANGES,
            (
                "by_order",
                "Whether rows belong together by their order, where no column that both tables share tells: only if both have the same rows in the \
                 same order. An ORDER BY at the end of a subquery is kept, and must leave no two rows equal.",
            ),
        ],
    );
    let sweep = document(
        "Relations",
        "Anonymises a table for several k and tells risk and utility of each, so that somebody can choose: one row a k. It takes as long as all these \
         runs of k_anonymize, whose other arguments it takes too. A k that is larger than the table has a row of NULLs.",
        "sweep(relation, quasi => (a, b) [, k => (2, 5, 10, 25, 50), population => n, ranges => false, rounds => 10, suppress => 0, ..])",
        "SELECT k, prosecutor_max, information_loss FROM sweep(patients, quasi => (age, zip), k => (5, 10, 25));",
        &[
            ("relation", "A table, a view, a subquery in parentheses."),
            ("quasi", "The columns by which people could be recognised."),
            ("k", "How many rows shall share their values, several times."),
            POPULATION,
            RANGES,
        ],
    );
    let summary = document(
        "Relations",
        "The runs of risk, class_sizes, utility and sweep in this session and what they cost: rounds, bytes, seconds, and a note where something was \
         not measured.",
        "assess_summary()",
        "SELECT function, rows, rounds, seconds, note FROM assess_summary();",
        &[],
    );
    [(RISK, risk), (CLASS_SIZES, class_sizes), (UTILITY, utility), (SWEEP, sweep), ("assess_summary", summary)]
        .map(|(name, documentation)| (name.to_owned(), documentation))
        .into()
}

/// Plans a call of `risk`.
pub(crate) fn plan_risk(mut call: RelationCall, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let question = Question::Risk {
        population: call.take_seed("population", context)?,
        contributions: call.take_flag("contributions", true, context)?,
    };
    let quasi = named(&mut call, context)?;
    let input = call.finish(&["quasi", "population", "contributions"])?;
    planned(question, quasi, vec![input])
}

/// Plans a call of `class_sizes`.
pub(crate) fn plan_class_sizes(
    mut call: RelationCall,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let quasi = named(&mut call, context)?;
    let input = call.finish(&["quasi"])?;
    planned(Question::ClassSizes, quasi, vec![input])
}

/// Plans a call of `utility`.
pub(crate) fn plan_utility(mut call: RelationCall, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let quasi = named(&mut call, context)?;
    let (k, ranges) = (call.take_optional_count("k", 1, context)?, call.take_flag("ranges", false, context)?);
    let by_order = call.take_flag("by_order", false, context)?;
    let Some(anonymised) = call.take_other() else {
        return plan_err!("{UTILITY} compares two tables, the original one first: {UTILITY}(patients, anon)");
    };
    let original = call.finish(&["quasi", "k", "ranges", "by_order"])?;
    planned(Question::Utility { k, ranges, by_order }, quasi, vec![original, anonymised])
}

/// Plans a call of `sweep`.
pub(crate) fn plan_sweep(mut call: RelationCall, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let (population, ranges) = (call.take_seed("population", context)?, call.take_flag("ranges", false, context)?);
    let k = call.take_counts("k", context)?.unwrap_or_else(|| vec![2, 5, 10, 25, 50]);
    if k.is_empty() || k.iter().any(|k| *k < 2) {
        return plan_err!("k of {SWEEP} takes whole numbers of at least 2: k => (2, 5, 10)");
    }
    let Some(quasi) = call.columns("quasi", context)? else {
        return plan_err!("{SWEEP} needs the columns by which people could be recognised: quasi => (a, b)");
    };
    let (original, anonymised) = k_anonymize::plan_each(call, &k, context)?;
    let inputs = [original].into_iter().chain(anonymised).collect();
    let quasi = quasi.into_iter().map(|column| column.name).collect();
    planned(Question::Sweep { k, population, ranges }, Some(quasi), inputs)
}

/// The columns that the call names.
fn named(call: &mut RelationCall, context: &mut dyn RelationPlannerContext) -> Result<Option<Vec<String>>> {
    match call.take_columns("quasi", context)? {
        Some(columns) if columns.is_empty() => plan_err!("quasi needs at least one column: quasi => (a, b)"),
        Some(columns) => Ok(Some(columns.into_iter().map(|column| column.name).collect())),
        None => Ok(None),
    }
}

fn planned(question: Question, quasi: Option<Vec<String>>, inputs: Vec<LogicalPlan>) -> Result<LogicalPlan> {
    let quasi = match quasi {
        Some(quasi) => quasi,
        None => table::default_quasi(question.function(), &inputs)?,
    };
    let node = AssessNode::try_new(question, quasi, inputs.into_iter().map(Arc::new).collect())?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}
