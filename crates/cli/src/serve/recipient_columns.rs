//! The query of a recipient's release, node by node: what it may consist of, and what each of its columns is made of.
//!
//! The owner's policy speaks of columns. P2 knows an encrypted one by the id in its type, and a clear one by its name. A query could
//! compute with a column that the policy does not allow and give the result the id or the name of one that it does:
//! `enc_add(enc_scale(age, 0), wage)` has the id of `age`, and `illness AS region` the name of `region`. So a column of a recipient's
//! release is made of one column of a table: an encrypted one of those with its own id, a clear one of those with its own name, in a
//! table of which an encrypted column leaves beside it.
//!
//! P2 counts people by encrypted values, and P1 knows of no clear value whose it is. So where a clear column leaves, all columns are of one reading
//! of a table: beside columns of another table, or of another row of the same, copies of one person's clear values would pass for many people. And
//! rows that `k_anonymize` makes alike tell what it was told to make them alike by: that leaves, too, or is not used. Stewards and admins are
//! trusted with the rest, and so are views that admins make: their columns count as columns of a table.

use std::collections::BTreeSet;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, JoinType};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, Extension, Join, LogicalPlan, TableScan, Union};
use veil_cells::{CellType, ColumnId};
use veil_flight_sql::{AnswerError, Kind};
use veil_planner::{KAnonymizeNode, ReleaseNode, Start};
use veil_protocols::k_anonymize::Comparison;

use super::known_tables::KnownTables;
use super::recipient_expressions;
use super::roles::{denied, not_for_recipients};

/// The most nodes of a query. Common table expressions that use each other twice have as many as two to their number.
const MOST_NODES: usize = 4096;

/// How deep they may lie in one another.
const DEEPEST: usize = 256;

/// A column of a table that values are made of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    table: String,
    column: String,
    /// The id of an encrypted column.
    id: Option<ColumnId>,
    /// Which reading of the table: a query may read it several times.
    reading: usize,
}

type Origins = BTreeSet<Origin>;

/// Reads a query.
#[derive(Debug)]
pub(super) struct RecipientColumns<'a> {
    tables: &'a KnownTables,
    nodes: usize,
    depth: usize,
    readings: usize,
    /// What rows are made alike by.
    quasi: Vec<(String, Origins)>,
}

impl<'a> RecipientColumns<'a> {
    pub(super) fn new(tables: &'a KnownTables) -> Self {
        Self { tables, nodes: 0, depth: 0, readings: 0, quasi: Vec::new() }
    }

    /// Refuses a query that is not for recipients.
    pub(super) fn check(mut self, query: &LogicalPlan) -> Result<(), AnswerError> {
        let origins = self.read(query)?;
        let schema = query.schema();
        let columns: Vec<_> = schema.fields().iter().map(|field| (field.name(), id(field))).zip(&origins).collect();
        let is_encrypted = |((_, id), _): &&((&String, Option<ColumnId>), &Origins)| id.is_some();
        let released: BTreeSet<&String> =
            columns.iter().filter(is_encrypted).flat_map(|(_, origins)| *origins).map(|origin| &origin.table).collect();
        for ((name, id), origins) in &columns {
            let is_own = |origin: &Origin| match id {
                Some(_) => origin.id == *id,
                None => origin.column == **name && released.contains(&origin.table),
            };
            if !origins.iter().all(is_own) {
                return Err(not_own(name, id.is_some(), origins));
            }
        }
        let made_of: BTreeSet<&Origin> = origins.iter().flatten().collect();
        let readings: BTreeSet<usize> = made_of.iter().map(|origin| origin.reading).collect();
        let clear = columns.iter().find(|((_, id), origins)| id.is_none() && !origins.is_empty());
        if let Some(((name, _), _)) = clear.filter(|_| readings.len() > 1) {
            return Err(denied(format!(
                "column {name} is clear, and leaves beside columns of other tables, or of the same one read again: where a recipient's release has clear \
                 columns, all of its columns are of one table; only stewards and admins may release others, and an admin can put the join into a view that \
                 recipients may read"
            )));
        }
        match self.quasi.iter().find(|(_, origins)| !origins.iter().all(|origin| made_of.contains(origin))) {
            Some((name, _)) => Err(denied(format!(
                "k_anonymize makes rows alike by {name}, which does not leave with them: a recipient's release has all quasi columns, so that the policy is \
                 asked about each; only stewards and admins may leave some out"
            ))),
            None => Ok(()),
        }
    }

    /// What each column of a node is made of.
    fn read(&mut self, plan: &LogicalPlan) -> Result<Vec<Origins>, AnswerError> {
        (self.nodes, self.depth) = (self.nodes + 1, self.depth + 1);
        if self.nodes > MOST_NODES || self.depth > DEEPEST {
            return Err(not_for_recipients(&format!("more than {MOST_NODES} parts, or {DEEPEST} in one another")));
        }
        let origins = match plan {
            LogicalPlan::SubqueryAlias(alias) if self.tables.is_view(alias) => {
                columns_of(&alias.alias.to_string(), &alias.schema, self.reading())
            }
            plan => {
                for expr in plan.expressions() {
                    for subquery in recipient_expressions::check(&expr)? {
                        self.read(&subquery)?;
                    }
                }
                self.read_node(plan)?
            }
        };
        self.depth -= 1;
        match origins.len() == plan.schema().fields().len() {
            true => Ok(origins),
            false => Err(unreadable()),
        }
    }

    fn read_node(&mut self, plan: &LogicalPlan) -> Result<Vec<Origins>, AnswerError> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::SubqueryAlias(alias) => self.read(&alias.input),
            LogicalPlan::Filter(filter) => self.read(&filter.input),
            LogicalPlan::Sort(sort) => self.read(&sort.input),
            LogicalPlan::Limit(limit) => self.read(&limit.input),
            LogicalPlan::Distinct(Distinct::All(input)) => self.read(input),
            LogicalPlan::Distinct(Distinct::On(distinct)) => {
                let input = self.read(&distinct.input)?;
                made_of(&distinct.select_expr, distinct.input.schema(), &input)
            }
            LogicalPlan::Projection(projection) => {
                let input = self.read(&projection.input)?;
                made_of(&projection.expr, projection.input.schema(), &input)
            }
            LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. }) => {
                let origins = self.read(input)?;
                let exprs = [&group_expr[..], aggr_expr].concat();
                made_of(&exprs, input.schema(), &origins)
            }
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Extension(extension) => self.extension(extension),
            LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => {
                Err(not_for_recipients("rows that are written into it, and not read from tables"))
            }
            LogicalPlan::Window(_) => Err(not_for_recipients("window functions")),
            LogicalPlan::Unnest(_) => Err(not_for_recipients("unnest")),
            LogicalPlan::RecursiveQuery(_) => Err(not_for_recipients("a recursive query")),
            LogicalPlan::Subquery(_) => Err(not_for_recipients("a LATERAL relation")),
            _ => Err(not_for_recipients("anything but SELECT")),
        }
    }

    fn reading(&mut self) -> usize {
        self.readings += 1;
        self.readings
    }

    fn scan(&mut self, scan: &TableScan) -> Result<Vec<Origins>, AnswerError> {
        match self.tables.has(scan) {
            true => Ok(columns_of(&scan.table_name.to_string(), &scan.projected_schema, self.reading())),
            false => Err(not_for_recipients(&format!("{} in it, which is no table and no view", scan.table_name))),
        }
    }

    fn join(&mut self, join: &Join) -> Result<Vec<Origins>, AnswerError> {
        let (mut left, right) = (self.read(&join.left)?, self.read(&join.right)?);
        match join.join_type {
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                left.extend(right);
                Ok(left)
            }
            JoinType::LeftSemi | JoinType::LeftAnti => Ok(left),
            JoinType::RightSemi | JoinType::RightAnti => Ok(right),
            JoinType::LeftMark | JoinType::RightMark => Err(unreadable()),
        }
    }

    fn union(&mut self, union: &Union) -> Result<Vec<Origins>, AnswerError> {
        let mut all = vec![Origins::new(); union.schema.fields().len()];
        // Every row is of one of the inputs: together they are one reading, if each of them is.
        let together = self.reading();
        for input in &union.inputs {
            let mut columns = self.read(input)?;
            if columns.len() != all.len() {
                return Err(unreadable());
            }
            let readings: BTreeSet<usize> = columns.iter().flatten().map(|origin| origin.reading).collect();
            if readings.len() == 1 {
                let moved = |origin: &Origin| Origin { reading: together, ..origin.clone() };
                columns.iter_mut().for_each(|origins| *origins = origins.iter().map(moved).collect());
                self.quasi.iter_mut().for_each(|(_, origins)| {
                    if origins.iter().all(|origin| readings.contains(&origin.reading)) {
                        *origins = origins.iter().map(moved).collect();
                    }
                });
            }
            all.iter_mut().zip(columns).for_each(|(all, column)| all.extend(column));
        }
        Ok(all)
    }

    fn extension(&mut self, extension: &Extension) -> Result<Vec<Origins>, AnswerError> {
        let node = extension.node.as_any();
        if node.is::<ReleaseNode>() {
            return Err(not_for_recipients("another release in it"));
        }
        let Some(node) = node.downcast_ref::<KAnonymizeNode>() else {
            return Err(not_for_recipients("questions about tables, such as identifiers, risk or class_sizes"));
        };
        let request = node.request();
        if request.start != Start::Random(None) {
            return Err(not_for_recipients("seed or init_rows"));
        }
        if request.comparison == Comparison::Blinded {
            return Err(not_for_recipients("comparison => 'blinded', which tells P2 about rows"));
        }
        let input = self.read(node.input())?;
        for place in node.quasi() {
            let name = node.input().schema().fields().get(place).map(|field| field.name().clone());
            let (Some(name), Some(origins)) = (name, input.get(place)) else { return Err(unreadable()) };
            self.quasi.push((name, origins.clone()));
        }
        let columns = 0..extension.node.schema().fields().len();
        let origin = |column| node.source(column).map_or(Some(Origins::new()), |place| input.get(place).cloned());
        columns.map(origin).collect::<Option<_>>().ok_or_else(unreadable)
    }
}

/// The columns of a table, or of a view that counts as one.
fn columns_of(table: &str, schema: &DFSchema, reading: usize) -> Vec<Origins> {
    let origin = |field: &datafusion::arrow::datatypes::FieldRef| {
        let (table, column) = (table.to_owned(), field.name().clone());
        Origins::from([Origin { table, column, id: id(field), reading }])
    };
    schema.fields().iter().map(origin).collect()
}

/// The id of an encrypted column.
fn id(field: &datafusion::arrow::datatypes::FieldRef) -> Option<ColumnId> {
    CellType::of_field(field).ok().flatten().map(|cell_type| cell_type.column)
}

/// What expressions over a node with these columns are made of, conditions and orders in them included.
fn made_of(exprs: &[Expr], schema: &DFSchema, input: &[Origins]) -> Result<Vec<Origins>, AnswerError> {
    exprs.iter().map(|expr| made_of_one(expr, schema, input)).collect()
}

fn made_of_one(expr: &Expr, schema: &DFSchema, input: &[Origins]) -> Result<Origins, AnswerError> {
    let (mut origins, mut refused) = (Origins::new(), None);
    let walked = expr.apply(|part| {
        match part {
            Expr::Column(column) => {
                let place = schema.index_of_column(column)?;
                match input.get(place) {
                    Some(found) => origins.extend(found.iter().cloned()),
                    None => refused = Some(unreadable()),
                }
            }
            Expr::OuterReferenceColumn(..)
            | Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_)
            | Expr::ScalarSubquery(_) => {
                refused = Some(not_for_recipients("a subquery among its columns, though it may have one in WHERE"));
            }
            _ => {}
        }
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    match (refused, walked) {
        (Some(refused), _) => Err(refused),
        (None, Ok(_)) => Ok(origins),
        (None, Err(_)) => Err(unreadable()),
    }
}

/// A column that could be another one in disguise.
fn not_own(name: &str, is_encrypted: bool, origins: &Origins) -> AnswerError {
    let listed: Vec<String> = origins.iter().map(|origin| format!("{}.{}", origin.table, origin.column)).collect();
    let rule = match is_encrypted {
        true => "an encrypted column of a recipient's release is made of one encrypted column",
        false => {
            "a clear column of a recipient's release is made of one clear column, has its name, and leaves beside an encrypted one \
             of its table"
        }
    };
    denied(format!(
        "column {name} is made of {}, and {rule}: only stewards and admins may release others, and an admin can put it into a view that \
         recipients may read",
        listed.join(", ")
    ))
}

/// A plan that is not what it was when this was written.
fn unreadable() -> AnswerError {
    AnswerError::new(Kind::Internal, "the plan of the statement cannot be looked through: ask a steward to release it")
}
