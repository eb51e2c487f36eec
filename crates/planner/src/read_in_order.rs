//! Reads rows as they are stored, where their order matters.
//!
//! k_anonymize returns rows in the order in which it gets them, and `utility(.., by_order => true)` compares two tables row by row. DataFusion keeps no order that a query
//! does not ask for: it deals rows out to cores, lets these take files from each other, and merges what comes first. So below these two operators
//!
//! ```text
//!  CoalescePartitions            VeilInOrder (nothing if there is one partition)
//!    Filter                        Filter
//!      Repartition: RoundRobin       (gone)
//!        DataSource                  DataSource, files in their order
//! ```
//!
//! What DataFusion says keeps the order of its input stays, and a sort has an order of its own: for a comparison by order `VeilUniqueOrder` above it refuses rows that the sort
//! takes for equal, since these come in any order. Anything else, such as a join, has none: k_anonymize takes its rows as they come, a comparison by order is refused.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::plan_err;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning, replace_children_if_necessary};

use crate::assess::AssessExec;
use crate::in_order_exec::InOrderExec;
use crate::k_anonymize::KAnonymizeExec;
use crate::kept_sort::fetched;
use crate::unique_order_exec::UniqueOrderExec;

/// The rule. It comes last: others would deal rows out again.
#[derive(Debug)]
pub(crate) struct ReadInOrder;

impl PhysicalOptimizerRule for ReadInOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(put_in_order)?.data)
    }

    fn name(&self) -> &str {
        "veil_read_in_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn put_in_order(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let by_order = node.downcast_ref::<AssessExec>().is_some_and(AssessExec::is_by_order);
    if !by_order && !node.is::<KAnonymizeExec>() {
        return Ok(Transformed::no(node));
    }
    let mut inputs = Vec::new();
    for input in node.children() {
        match in_order(input, by_order)? {
            Order::Kept(input) => inputs.push(input),
            Order::Lost(operator) if by_order => {
                return plan_err!(
                    "rows come through {operator}, which keeps no order, so that tables cannot be compared by it: make a table of them first (CREATE \
                     TABLE .. AS SELECT ..) and anonymise that one, or keep a column that tells which rows belong together"
                );
            }
            Order::Lost(_) => return Ok(Transformed::no(node)),
        }
    }
    Ok(Transformed::yes(replace_children_if_necessary(node, inputs)?))
}

/// What became of the order in which rows are stored.
enum Order {
    /// This plan keeps it.
    Kept(Arc<dyn ExecutionPlan>),
    /// This operator does not.
    Lost(String),
}

/// The plan that gives the same rows in the order in which they are stored; in one that is the same each time, if that matters.
fn in_order(plan: &Arc<dyn ExecutionPlan>, by_order: bool) -> Result<Order> {
    let children = plan.children();
    let is_one = plan.output_partitioning().partition_count() == 1;
    if children.is_empty() {
        return Ok(Order::Kept(plan.with_preserve_order(true).unwrap_or_else(|| plan.clone())));
    }
    if plan.is::<InOrderExec>() || plan.is::<UniqueOrderExec>() {
        return Ok(Order::Kept(plan.clone()));
    }
    if let Some(order) = sorted_by(plan).filter(|_| is_one) {
        return Ok(Order::Kept(if by_order { told_apart(plan, order)? } else { plan.clone() }));
    }
    let dealt_out = plan.downcast_ref::<RepartitionExec>();
    let is_kept = match dealt_out {
        Some(dealt_out) => matches!(dealt_out.partitioning(), Partitioning::RoundRobinBatch(_)),
        None => {
            let is_passed_on = children.len() == 1 && plan.maintains_input_order() == [true];
            is_passed_on || plan.is::<CoalescePartitionsExec>() || plan.is::<UnionExec>() || plan.is::<KAnonymizeExec>()
        }
    };
    if !is_kept {
        return Ok(Order::Lost(plan.name().to_owned()));
    }
    let mut inputs = Vec::with_capacity(children.len());
    for child in children {
        match in_order(child, by_order)? {
            Order::Kept(input) => inputs.push(input),
            lost @ Order::Lost(_) => return Ok(lost),
        }
    }
    let merged = plan.downcast_ref::<CoalescePartitionsExec>();
    Ok(Order::Kept(match (inputs.pop(), merged) {
        (Some(input), _) if dealt_out.is_some() => input,
        (Some(input), Some(merged)) => one_after_the_other(input, merged.fetch()),
        (last, _) => {
            inputs.extend(last);
            replace_children_if_necessary(plan.clone(), inputs)?
        }
    }))
}

/// A plan whose sorts stay, and tell their rows apart. DataFusion drops a sort that no operator above it asks for, so this is done before its rules.
pub(crate) fn keeping_sorts(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let kept = plan.transform_down(|node| match sorted_by(&node) {
        Some(order) => Ok(Transformed::new(told_apart(&node, order)?, true, TreeNodeRecursion::Jump)),
        None => Ok(Transformed::no(node)),
    })?;
    Ok(kept.data)
}

/// What a plan sorts its rows by.
fn sorted_by(plan: &Arc<dyn ExecutionPlan>) -> Option<&LexOrdering> {
    let sort = plan.downcast_ref::<SortExec>().map(SortExec::expr);
    sort.or_else(|| plan.downcast_ref::<SortPreservingMergeExec>().map(SortPreservingMergeExec::expr))
}

/// The rows of a sort, none of which equals the next one.
fn told_apart(plan: &Arc<dyn ExecutionPlan>, order: &LexOrdering) -> Result<Arc<dyn ExecutionPlan>> {
    let fetch = fetched(plan.fetch());
    let input = if plan.fetch().is_some() { with_one_more(plan)? } else { plan.clone() };
    Ok(Arc::new(UniqueOrderExec::new(input, order.clone(), fetch)))
}

/// A sort, and those that it merges, that ends one row later.
fn with_one_more(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let fetch = fetched(plan.fetch()).map(|rows| rows.saturating_add(1));
    let merges = plan.is::<SortPreservingMergeExec>();
    let longer = plan.with_fetch(fetch).unwrap_or_else(|| plan.clone());
    if !merges {
        return Ok(longer);
    }
    let child = |child: &Arc<dyn ExecutionPlan>| match sorted_by(child) {
        Some(_) => with_one_more(child),
        None => Ok(child.clone()),
    };
    let children = longer.children().into_iter().map(child).collect::<Result<Vec<_>>>()?;
    replace_children_if_necessary(longer, children)
}

/// What merging partitions gives, in their order.
fn one_after_the_other(input: Arc<dyn ExecutionPlan>, fetch: Option<usize>) -> Arc<dyn ExecutionPlan> {
    let merged = match input.output_partitioning().partition_count() {
        1 => input,
        _ => Arc::new(InOrderExec::new(input)),
    };
    match fetch {
        Some(_) => Arc::new(GlobalLimitExec::new(merged, 0, fetch)),
        None => merged,
    }
}
