//! `k_anonymize(relation, k => 10, quasi => (..), ..)`: rows that share their quasi-identifiers with at least k - 1 others.
//!
//! ```text
//!  SQL ── mod ──> node ── exec ── run: collects the input, runs the rounds (protocols::k_anonymize), puts the results in their places
//!
//!  request   what is asked                           progress   how far a run is, and what each phase took
//!  columns   what becomes of each column             summary    k_anonymize_summary(): what became of past runs
//! ```

mod columns;
mod exec;
mod node;
mod progress;
mod request;
mod run;
mod summary;

use std::sync::Arc;

use datafusion::common::{Column, plan_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::{Documentation, Expr, Extension, LogicalPlan, LogicalPlanBuilder};
use veil_privacy::clusters::MILLION;
use veil_udfs::document;

pub(crate) use columns::Source;
pub use exec::KAnonymizeExec;
pub use node::KAnonymizeNode;
pub use progress::Progress;
pub use request::{Request, Start};
pub use summary::Anonymisation;

use self::request::{COMPARISONS, STRATEGIES};
use crate::relation_function::RelationCall;

/// The function's name.
pub(crate) const NAME: &str = "k_anonymize";

/// All arguments by name.
const ARGUMENTS: [&str; 13] = [
    "k",
    "quasi",
    "rounds",
    "suppress",
    "reassign",
    "comparison",
    "weights",
    "drop",
    "early_stop",
    "centres",
    "init",
    "init_rows",
    "seed",
];

/// Arguments that only the engine may know: who has them knows which row each cluster began at.
pub(crate) const SECRETS: [&str; 2] = ["init_rows", "seed"];

/// For docs/sql.md and `veil_functions()`.
pub(crate) fn documented() -> Vec<(String, Documentation)> {
    let k_anonymize = document(
        "Relations",
        "The table, with its quasi-identifiers changed so that every row shares them with at least k - 1 others. Rows are clustered over \
         ciphertexts (k-means, with as many clusters as can have k rows); clusters that stay smaller than k are suppressed or join others. \
         Numbers, dates and truth values become the mean of their class in the column's unit, to within a 65,536th of the column's range; categories the \
         lowest ancestor that all of the class have. All other columns stay as they are. One more column, suppressed, is true for rows that are not to be published: nobody sees which before \
         decryption, and veil decrypt leaves them out. The result is an encrypted table like any other: mask, add noise, COPY, or anonymise again, unless rows are suppressed. \
         Columns count alike, whatever their units, unless weights say otherwise. The engine learns which clusters are smaller than k and \
         how small, and what EXPLAIN lists beside; P2 sees masked numbers, but with comparison => 'blinded' it can work out nearly all \
         quasi-identifiers. EXPLAIN tells what a run may cost, SELECT * FROM k_anonymize_summary() what became of it.",
        "k_anonymize(relation, quasi => (a, b) [, k => 10, rounds => 10, suppress => 0.0, reassign => 'cluster_to_cluster', comparison => 'exact', \
         weights => (a = 2), drop => (c), early_stop => true, centres => n, init => 'random', init_rows => (0, 7), seed => n])",
        "CREATE TABLE anon AS SELECT * FROM k_anonymize((SELECT * FROM patients WHERE region = 'north'), k => 5, quasi => (age, zip), drop => (name));",
        &[
            ("relation", "A table, a view, a subquery in parentheses, or another function of this kind."),
            (
                "quasi",
                "The columns by which people could be recognised: encrypted numbers, dates, truth values and categories, and clear numbers and \
                 dates, which are encrypted in the result (and have no declared bounds there, which noise and another k_anonymize need). No value may be NULL.",
            ),
            ("k", "The least rows that share their quasi-identifiers; at least 2, and at most the rows of the table."),
            ("rounds", "The most rounds of clustering."),
            (
                "suppress",
                "The share of rows that may be suppressed, the smallest clusters first: 0.05 is a twentieth. What does not fit into it joins other \
                 clusters.",
            ),
            (
                "reassign",
                "Where small clusters go: 'cluster_to_cluster' as a whole to the one with the nearest centre, 'point_to_cluster' row by row to the \
                 nearest large cluster, 'point_to_point' row by row to the cluster of the nearest row of a large one (up to 4096 rows; \
                 with blinded comparisons P2 can then tell rows of small clusters from others).",
            ),
            (
                "comparison",
                "How distances are compared. 'exact', the default, shows P2 nothing. 'blinded' takes a fortieth of the time, and gives P2 the table: it shows blurred \
                 differences of distances, row by row, and from ten rounds over 5,000 rows of eight columns P2 works out seven columns up to scale and offset, and \
                 nearly all values exactly once it knows 100 rows. Each run with it leaves a warning. It is for tests, and for tables that P2 may read.",
            ),
            (
                "weights",
                "How much columns count in squared distances: (age = 2, zip = 0.5). One by default, or what the owner declared.",
            ),
            ("drop", "Columns to leave out of the result."),
            (
                "early_stop",
                "Whether to end clustering when a round moves no centre, which tells both servers after how many rounds that was.",
            ),
            ("centres", "How many clusters to begin with, instead of rows / k."),
            ("init", "Where clusters begin: 'random' rows, or 'rows' with init_rows. The engine knows which rows."),
            ("init_rows", "The rows to begin at, counted from 0: for tests."),
            ("seed", "Makes the random rows repeatable, for rows that come in the same order: for tests."),
        ],
    );
    let summary = document(
        "Relations",
        "The runs of k_anonymize in this session: clusters, classes, suppressed rows, rounds, bytes, seconds, and a note that says what would help \
         where classes are few.",
        "k_anonymize_summary()",
        "SELECT classes, average_class, suppressed_rows, seconds, note FROM k_anonymize_summary();",
        &[],
    );
    vec![(NAME.to_owned(), k_anonymize), ("k_anonymize_summary".to_owned(), summary)]
}

/// Plans a call.
pub(crate) fn plan(mut call: RelationCall, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
    let k = call.take_count("k", 2, 10, context)?;
    let (_, planned) = plan_each(call, &[k], context)?;
    planned.into_iter().next().ok_or_else(|| plan_datafusion_err!("{NAME} needs a k: k => 10"))
}

/// Plans a call for each of several k: the relation as it is, and what becomes of it.
pub(crate) fn plan_each(
    mut call: RelationCall,
    k: &[u32],
    context: &mut dyn RelationPlannerContext,
) -> Result<(LogicalPlan, Vec<LogicalPlan>)> {
    let request = Request {
        k: 0,
        rounds: call.take_count("rounds", 1, 10, context)?,
        early_stop: call.take_flag("early_stop", true, context)?,
        suppress: (call.take_share("suppress", context)?.unwrap_or(0.0) * f64::from(MILLION)).round() as u32,
        reassign: call.take_choice("reassign", &STRATEGIES)?.unwrap_or_default(),
        comparison: call.take_choice("comparison", &COMPARISONS)?.unwrap_or_default(),
        centres: call.take_optional_count("centres", 1, context)?,
        start: start(&mut call, context)?,
        run: 0,
    };
    let Some(quasi) = call.take_columns("quasi", context)? else {
        return plan_err!("{NAME} needs the columns by which people could be recognised: quasi => (a, b)");
    };
    if quasi.is_empty() {
        return plan_err!("{NAME} needs at least one column: quasi => (a, b)");
    }
    let weights = weights(&quasi, call.take_weights("weights", context)?)?;
    let dropped = call.take_columns("drop", context)?.unwrap_or_default();
    let input = without(call.finish(&ARGUMENTS)?, &dropped, &quasi)?;
    let quasi: Vec<Expr> = quasi.into_iter().map(Expr::Column).collect();
    let shared = Arc::new(input.clone());
    let planned = k.iter().map(|k| {
        // Below 2^53, which all readers of JSON take for a whole number.
        let request = Request { k: *k, run: rand::random_range(1..1 << 53), ..request.clone() };
        let node = KAnonymizeNode::try_new(shared.clone(), quasi.clone(), weights.clone(), request)?;
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
    });
    Ok((input, planned.collect::<Result<_>>()?))
}

/// Where clusters begin.
fn start(call: &mut RelationCall, context: &mut dyn RelationPlannerContext) -> Result<Start> {
    let (word, rows) = (call.take_word("init", &["random", "rows"])?, call.take_counts("init_rows", context)?);
    let seed = call.take_seed("seed", context)?;
    match (word, rows, seed) {
        (Some("rows"), None, _) => plan_err!("init => 'rows' needs init_rows => (0, 7, ..), counted from 0"),
        (Some("random"), Some(_), _) => plan_err!("init_rows needs init => 'rows', or leave it out"),
        (_, Some(_), Some(_)) => plan_err!("init_rows leaves nothing to a seed: leave one out"),
        (_, Some(rows), None) => Ok(Start::Rows(rows)),
        (_, None, seed) => Ok(Start::Random(seed)),
    }
}

/// For every quasi-identifier the weight that the query gives it, in thousandths.
fn weights(quasi: &[Column], given: Vec<(Column, f64)>) -> Result<Vec<Option<u32>>> {
    let mut weights = vec![None; quasi.len()];
    for (column, weight) in given {
        let Some(place) = quasi.iter().position(|quasi| *quasi == column) else {
            return plan_err!("weights name {}, which is not among quasi: add it there or leave it out", column.name);
        };
        let thousandths = (weight * 1000.0).round();
        if !(1.0..=1e6).contains(&thousandths) {
            return plan_err!("the weight of {} is {weight}: give it 0.001 to 1000", column.name);
        }
        weights[place] = Some(thousandths as u32);
    }
    Ok(weights)
}

/// The relation without some of its columns.
fn without(input: LogicalPlan, dropped: &[Column], quasi: &[Column]) -> Result<LogicalPlan> {
    if let Some(column) = dropped.iter().find(|column| quasi.contains(column)) {
        return plan_err!("{} is among quasi and drop: leave it out of one", column.name);
    }
    if dropped.is_empty() {
        return Ok(input);
    }
    let columns = input.schema().columns().into_iter().filter(|column| !dropped.contains(column));
    let columns: Vec<Expr> = columns.map(Expr::Column).collect();
    LogicalPlanBuilder::from(input).project(columns)?.build()
}
