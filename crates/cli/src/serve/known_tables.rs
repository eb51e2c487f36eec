//! The tables and views that the server's operator and admins have made: what recipients may have released.

use std::sync::Arc;

use datafusion::catalog::{CatalogProviderList, TableProvider};
use datafusion::common::TableReference;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::{LogicalPlan, SubqueryAlias, TableScan, TableSource};
use datafusion::prelude::SessionContext;
use futures::FutureExt;
use veil_planner::with_types;

/// The catalogs of a session. `information_schema` is none of them, and what a table function makes stands in none.
#[derive(Debug)]
pub(super) struct KnownTables {
    catalogs: Arc<dyn CatalogProviderList>,
    default_catalog: String,
    default_schema: String,
}

impl KnownTables {
    /// Those of a session.
    pub(super) fn of(context: &SessionContext) -> Self {
        let state = context.state();
        let names = &state.config_options().catalog;
        let (default_catalog, default_schema) = (names.default_catalog.clone(), names.default_schema.clone());
        Self { catalogs: state.catalog_list().clone(), default_catalog, default_schema }
    }

    /// Whether a scan reads a table of a catalog. The name alone says nothing: a table function's rows may have any name.
    pub(super) fn has(&self, scan: &TableScan) -> bool {
        match (self.find(&scan.table_name), source_as_provider(&scan.source)) {
            (Some(known), Ok(read)) => Arc::ptr_eq(&known, &read),
            _ => false,
        }
    }

    /// Whether this is a view of a catalog as it is. DataFusion puts a view's own plan where its name stands, so that a subquery by the
    /// name of a view is told from it by the plan, and by the very tables that the plan reads.
    pub(super) fn is_view(&self, alias: &SubqueryAlias) -> bool {
        let Some(view) = self.find(&alias.alias) else { return false };
        let Some(plan) = view.get_logical_plan() else { return false };
        // Inside a release, columns have got the types that DataFusion drops.
        let typed = with_types(plan.clone().into_owned());
        is_same(&alias.input, &plan) || typed.is_ok_and(|typed| is_same(&alias.input, &typed))
    }

    /// A table that its catalog has at hand, as those of a server's session all are.
    fn find(&self, name: &TableReference) -> Option<Arc<dyn TableProvider>> {
        let name = name.clone().resolve(&self.default_catalog, &self.default_schema);
        let schema = self.catalogs.catalog(&name.catalog)?.schema(&name.schema)?;
        schema.table(&name.table).now_or_never()?.ok()?
    }
}

/// Whether two plans do the same to the same tables. Equal scans may read different tables: their equality is one of names. DataFusion
/// takes sorts out of subqueries where no LIMIT needs them, so that sorts are left out of both.
fn is_same(one: &LogicalPlan, other: &LogicalPlan) -> bool {
    let (Ok(of_one), Ok(of_other)) = (sources(one), sources(other)) else { return false };
    let (Ok(one), Ok(other)) = (without_sorts(one), without_sorts(other)) else { return false };
    let are_same = of_one.iter().zip(&of_other).all(|(one, other)| Arc::ptr_eq(one, other));
    one == other && of_one.len() == of_other.len() && are_same
}

fn without_sorts(plan: &LogicalPlan) -> Result<LogicalPlan> {
    let sorted = plan.clone().transform_down(|node| match node {
        LogicalPlan::Sort(sort) => Ok(Transformed::yes(Arc::unwrap_or_clone(sort.input))),
        node => Ok(Transformed::no(node)),
    })?;
    Ok(sorted.data)
}

/// The tables that a plan reads, in the order of its scans.
fn sources(plan: &LogicalPlan) -> Result<Vec<Arc<dyn TableSource>>> {
    let mut found = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            found.push(scan.source.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
