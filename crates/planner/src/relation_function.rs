//! Functions in FROM that take a relation and named arguments: `identifiers((SELECT ..), k => 5)`.
//!
//! DataFusion's table functions take constants alone, so these are planned through its hook for relations. The relation is a
//! table, a view, a common table expression, a subquery in parentheses, or another such function.

use std::sync::Arc;

use datafusion::catalog::CatalogProviderList;
use datafusion::common::{Column, DFSchema, ScalarValue, TableReference, plan_datafusion_err, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, TableFactor,
    TableFunctionArgs, Value,
};
use futures::FutureExt;

use crate::identifiers;

/// Plans the functions.
#[derive(Debug)]
pub(crate) struct RelationFunctions {
    catalogs: Arc<dyn CatalogProviderList>,
}

impl RelationFunctions {
    pub(crate) fn new(catalogs: Arc<dyn CatalogProviderList>) -> Self {
        Self { catalogs }
    }
}

impl RelationPlanner for RelationFunctions {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (name, alias, arguments) = match relation {
            TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, sample: None, .. }
                if is_function(&name, context) =>
            {
                (name, alias, args.args)
            }
            // DataFusion would drop the names of the arguments.
            TableFactor::Function { name, .. } if is_function(&name, context) => {
                return plan_err!("{name} is not correlated with other relations: leave out LATERAL");
            }
            other => return Ok(RelationPlanning::Original(Box::new(other))),
        };
        let call = RelationCall::read(name.to_string(), arguments, &self.catalogs, context)?;
        let plan = identifiers::plan(call, context)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

fn is_function(name: &ObjectName, context: &dyn RelationPlannerContext) -> bool {
    match name.0.as_slice() {
        [part] => part.as_ident().is_some_and(|name| context.normalize_ident(name.clone()) == identifiers::NAME),
        _ => false,
    }
}

/// A call: its relation, and its named arguments until they are taken.
pub(crate) struct RelationCall {
    function: String,
    pub(crate) input: LogicalPlan,
    arguments: Vec<(String, SqlExpr)>,
}

impl RelationCall {
    fn read(
        function: String,
        arguments: Vec<FunctionArg>,
        catalogs: &Arc<dyn CatalogProviderList>,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Self> {
        let mut input = None;
        let mut named: Vec<(String, SqlExpr)> = Vec::new();
        for argument in arguments {
            match argument {
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. }
                | FunctionArg::ExprNamed {
                    name: SqlExpr::Identifier(name), arg: FunctionArgExpr::Expr(value), ..
                } => {
                    let name = context.normalize_ident(name);
                    if named.iter().any(|(other, _)| *other == name) {
                        return plan_err!("{function} has {name} twice: leave one out");
                    }
                    named.push((name, value));
                }
                FunctionArg::Unnamed(FunctionArgExpr::Expr(relation)) if input.is_none() && named.is_empty() => {
                    input = Some(plan_input(&function, relation, catalogs, context)?);
                }
                other => {
                    return plan_err!(
                        "{function} does not take {other}: give it a table or a subquery in parentheses, then arguments by name, as in \
                         {function}((SELECT ..), k => 5)"
                    );
                }
            }
        }
        match input {
            Some(input) => Ok(Self { function, input, arguments: named }),
            None => plan_err!("{function} needs a table or a subquery in parentheses first: {function}(table, k => 5)"),
        }
    }

    fn take(&mut self, name: &str) -> Option<SqlExpr> {
        let at = self.arguments.iter().position(|(other, _)| other == name)?;
        Some(self.arguments.swap_remove(at).1)
    }

    fn take_constant(&mut self, name: &str, context: &mut dyn RelationPlannerContext) -> Result<Option<ScalarValue>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let text = value.to_string();
        match context.sql_to_expr(value, &DFSchema::empty()) {
            Ok(Expr::Literal(value, _)) => Ok(Some(value)),
            _ => plan_err!("{} is {text} in {}, which is not a constant: write one", name, self.function),
        }
    }

    /// A whole number of at least `least`.
    pub(crate) fn take_count(
        &mut self,
        name: &str,
        least: u32,
        default: u32,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<u32> {
        let value = match self.take_constant(name, context)? {
            None => return Ok(default),
            Some(ScalarValue::Int64(Some(value))) => u32::try_from(value).ok(),
            Some(ScalarValue::UInt64(Some(value))) => u32::try_from(value).ok(),
            Some(_) => None,
        };
        value.filter(|value| *value >= least).ok_or_else(|| {
            plan_datafusion_err!(
                "{name} of {} is a whole number of at least {least}: {name} => {default}",
                self.function
            )
        })
    }

    /// True or false.
    pub(crate) fn take_flag(
        &mut self,
        name: &str,
        default: bool,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<bool> {
        match self.take_constant(name, context)? {
            None => Ok(default),
            Some(ScalarValue::Boolean(Some(value))) => Ok(value),
            Some(_) => plan_err!("{name} of {} is true or false: {name} => {default}", self.function),
        }
    }

    /// One of these words, in quotes or without.
    pub(crate) fn take_word(&mut self, name: &str, words: &[&'static str]) -> Result<Option<&'static str>> {
        let text = match self.take(name) {
            None => return Ok(None),
            Some(SqlExpr::Identifier(word)) => word.value,
            Some(SqlExpr::Value(value)) => value.value.into_string().unwrap_or_default(),
            Some(other) => other.to_string(),
        };
        match words.iter().find(|word| word.eq_ignore_ascii_case(&text)) {
            Some(word) => Ok(Some(word)),
            None => {
                let choices: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
                plan_err!("{name} of {} is {}, not '{text}'", self.function, choices.join(" or "))
            }
        }
    }

    /// Columns of the input: `(a, b)`, `[a, b]`, or one alone.
    pub(crate) fn take_columns(
        &mut self,
        name: &str,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Option<Vec<Column>>> {
        let parts = match self.take(name) {
            None => return Ok(None),
            Some(SqlExpr::Tuple(parts)) => parts,
            Some(SqlExpr::Array(array)) => array.elem,
            Some(SqlExpr::Nested(part)) => vec![*part],
            Some(part) => vec![part],
        };
        let mut columns = Vec::with_capacity(parts.len());
        for part in parts {
            let text = part.to_string();
            match context.sql_to_expr(part, self.input.schema())? {
                Expr::Column(column) if columns.contains(&column) => {
                    return plan_err!("{name} of {} names {text} twice: leave one out", self.function);
                }
                Expr::Column(column) => columns.push(column),
                _ => {
                    return plan_err!(
                        "{name} of {} takes names of columns, and {text} is none: compute it in a subquery and name the result",
                        self.function
                    );
                }
            }
        }
        Ok(Some(columns))
    }

    /// The relation, if nothing is left.
    pub(crate) fn finish(self, known: &[&str]) -> Result<LogicalPlan> {
        match self.arguments.first() {
            None => Ok(self.input),
            Some((name, _)) => plan_err!("{} has no argument {name}: it takes {}", self.function, known.join(", ")),
        }
    }
}

fn plan_input(
    function: &str,
    relation: SqlExpr,
    catalogs: &Arc<dyn CatalogProviderList>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let name = match relation {
        SqlExpr::Subquery(subquery) => {
            return context.plan(TableFactor::Derived { lateral: false, subquery, alias: None, sample: None });
        }
        SqlExpr::Function(call) => {
            let FunctionArguments::List(list) = call.args else {
                return plan_err!("{function} needs a table or a subquery in parentheses, not {}", call.name);
            };
            let args = TableFunctionArgs { args: list.args, settings: None };
            return context.plan(table(call.name, Some(args)));
        }
        SqlExpr::Identifier(name) => vec![name],
        SqlExpr::CompoundIdentifier(names) => names,
        SqlExpr::Value(value) => match value.value {
            // As DataFusion reads names in texts: quotes within keep the case.
            Value::SingleQuotedString(name) => {
                let parts = TableReference::parse_str(&name).to_vec();
                parts.into_iter().map(|part| Ident::with_quote('"', part)).collect()
            }
            other => return plan_err!("{function} needs a table or a subquery in parentheses, not {other}"),
        },
        other => return plan_err!("{function} needs a table or a subquery in parentheses, not {other}"),
    };
    let name = ObjectName::from(name);
    let reference = context.object_name_to_table_reference(name.clone())?;
    match context.plan(table(name, None)) {
        Ok(plan) => Ok(plan),
        // DataFusion fetches the tables of a query before it plans, and takes the name for one of a column.
        Err(error) => from_catalogs(reference, catalogs, context)?.ok_or(error),
    }
}

fn table(name: ObjectName, args: Option<TableFunctionArgs>) -> TableFactor {
    TableFactor::Table {
        name,
        alias: None,
        args,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// A table that its catalog has at hand. Others are reached by a subquery, whose tables DataFusion fetches.
fn from_catalogs(
    reference: TableReference,
    catalogs: &Arc<dyn CatalogProviderList>,
    context: &dyn RelationPlannerContext,
) -> Result<Option<LogicalPlan>> {
    let defaults = &context.context_provider().options().catalog;
    let resolved = reference.clone().resolve(&defaults.default_catalog, &defaults.default_schema);
    let schema = catalogs.catalog(&resolved.catalog).and_then(|catalog| catalog.schema(&resolved.schema));
    let Some(schema) = schema else { return Ok(None) };
    match schema.table(&resolved.table).now_or_never() {
        Some(Ok(Some(provider))) => {
            LogicalPlanBuilder::scan(reference, provider_as_source(provider), None)?.build().map(Some)
        }
        Some(Ok(None)) => Ok(None),
        Some(Err(error)) => Err(error),
        None => {
            plan_err!("{reference} takes time to be looked up: write it as a subquery, (SELECT * FROM {reference})")
        }
    }
}
