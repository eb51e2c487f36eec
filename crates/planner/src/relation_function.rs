//! Functions in FROM that take a relation and named arguments: `identifiers((SELECT ..), k => 5)`.
//!
//! DataFusion's table functions take constants alone, so these are planned through its hook for relations. The relation is a
//! table, a view, a common table expression, a subquery in parentheses, or another such function.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::CatalogProviderList;
use datafusion::common::{Column, DFSchema, ScalarValue, TableReference, plan_datafusion_err, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr as SqlExpr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, TableFactor,
    TableFunctionArgs, Value,
};
use futures::FutureExt;

use crate::kept_sort::{is_set, keep_sorts};
use crate::told_text::told_call;
use crate::{assess, identifiers, k_anonymize, release};

/// Plans a call of a function.
type Plan = fn(RelationCall, &mut dyn RelationPlannerContext) -> Result<LogicalPlan>;

/// All functions.
const FUNCTIONS: [(&str, Plan); 7] = [
    (identifiers::NAME, identifiers::plan),
    (k_anonymize::NAME, k_anonymize::plan),
    (release::NAME, release::plan),
    (assess::RISK, assess::plan_risk),
    (assess::CLASS_SIZES, assess::plan_class_sizes),
    (assess::UTILITY, assess::plan_utility),
    (assess::SWEEP, assess::plan_sweep),
];

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
        let function = match &relation {
            TableFactor::Table { name, args: Some(_), with_ordinality: false, sample: None, .. }
            | TableFactor::Function { name, .. } => function(name, context),
            _ => None,
        };
        match (function, relation) {
            (Some(plan), TableFactor::Table { name, alias, args: Some(args), .. }) => {
                let call = RelationCall::read(name.to_string(), args.args, &self.catalogs, context)?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan(call, context)?, alias))))
            }
            // DataFusion would drop the names of the arguments.
            (Some(_), TableFactor::Function { name, .. }) => {
                plan_err!("{name} is not correlated with other relations: leave out LATERAL")
            }
            (_, other) => Ok(RelationPlanning::Original(Box::new(other))),
        }
    }
}

fn function(name: &ObjectName, context: &dyn RelationPlannerContext) -> Option<Plan> {
    let [part] = name.0.as_slice() else { return None };
    let name = context.normalize_ident(part.as_ident()?.clone());
    FUNCTIONS.iter().find(|(function, _)| *function == name).map(|(_, plan)| *plan)
}

/// A call: its relation, and its named arguments until they are taken.
pub(crate) struct RelationCall {
    function: String,
    /// The call as others are told.
    told: String,
    pub(crate) input: LogicalPlan,
    /// A second relation, where there is one.
    other: Option<LogicalPlan>,
    arguments: Vec<(String, SqlExpr)>,
}

impl RelationCall {
    fn read(
        function: String,
        mut arguments: Vec<FunctionArg>,
        catalogs: &Arc<dyn CatalogProviderList>,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Self> {
        let told = told_call(&function, &arguments);
        if function.eq_ignore_ascii_case(assess::UTILITY) && is_set(&arguments, "by_order") {
            keep_sorts(&mut arguments);
        }
        let (mut input, mut second) = (None, None);
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
                FunctionArg::Unnamed(FunctionArgExpr::Expr(relation))
                    if second.is_none() && named.is_empty() && function.eq_ignore_ascii_case(assess::UTILITY) =>
                {
                    second = Some(plan_input(&function, relation, catalogs, context)?);
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
            Some(input) => Ok(Self { function, told, input, other: second, arguments: named }),
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
        self.take_number(name, least, default, context).map(|value| value.unwrap_or(default))
    }

    /// The same, without a default.
    pub(crate) fn take_optional_count(
        &mut self,
        name: &str,
        least: u32,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Option<u32>> {
        self.take_number(name, least, least, context)
    }

    fn take_number(
        &mut self,
        name: &str,
        least: u32,
        example: u32,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Option<u32>> {
        let Some(value) = self.take_constant(name, context)? else { return Ok(None) };
        let value = whole(&value).and_then(|value| u32::try_from(value).ok());
        let refused = || {
            plan_datafusion_err!(
                "{name} of {} is a whole number of at least {least}: {name} => {example}",
                self.function
            )
        };
        value.filter(|value| *value >= least).map(Some).ok_or_else(refused)
    }

    /// Any whole number that is not negative.
    pub(crate) fn take_seed(&mut self, name: &str, context: &mut dyn RelationPlannerContext) -> Result<Option<u64>> {
        let Some(value) = self.take_constant(name, context)? else { return Ok(None) };
        let refused = || plan_datafusion_err!("{name} of {} is a whole number: {name} => 7", self.function);
        whole(&value).map(Some).ok_or_else(refused)
    }

    /// Whole numbers: `(1, 2)`, `[1, 2]`, or one alone.
    pub(crate) fn take_counts(
        &mut self,
        name: &str,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Option<Vec<u32>>> {
        let Some(parts) = self.take_list(name) else { return Ok(None) };
        let mut counts = Vec::with_capacity(parts.len());
        for part in parts {
            let value = match context.sql_to_expr(part, &DFSchema::empty()) {
                Ok(Expr::Literal(value, _)) => whole(&value).and_then(|value| u32::try_from(value).ok()),
                _ => None,
            };
            match value {
                Some(value) => counts.push(value),
                None => return plan_err!("{name} of {} takes whole numbers: {name} => (0, 7)", self.function),
            }
        }
        Ok(Some(counts))
    }

    /// A part of one: at least 0 and less than 1.
    pub(crate) fn take_share(&mut self, name: &str, context: &mut dyn RelationPlannerContext) -> Result<Option<f64>> {
        let Some(value) = self.take_constant(name, context)? else { return Ok(None) };
        match number(&value).filter(|share| (0.0..1.0).contains(share)) {
            Some(share) => Ok(Some(share)),
            None => {
                plan_err!("{name} of {} is a share of all rows, from 0 to less than 1: {name} => 0.05", self.function)
            }
        }
    }

    /// Numbers of columns of the input: `(a = 2, b = 0.5)`, or `{a: 2}` where the dialect has it.
    pub(crate) fn take_weights(
        &mut self,
        name: &str,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Vec<(Column, f64)>> {
        let pairs: Vec<Option<(SqlExpr, SqlExpr)>> = match self.take(name) {
            None => return Ok(Vec::new()),
            Some(SqlExpr::Dictionary(fields)) => {
                fields.into_iter().map(|field| Some((SqlExpr::Identifier(field.key), *field.value))).collect()
            }
            Some(other) => list(other)
                .into_iter()
                .map(|part| match part {
                    SqlExpr::BinaryOp { left, op: BinaryOperator::Eq, right } => Some((*left, *right)),
                    _ => None,
                })
                .collect(),
        };
        let refused =
            || plan_datafusion_err!("{name} of {} gives columns numbers: {name} => (a = 2, b = 0.5)", self.function);
        let mut weights: Vec<(Column, f64)> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let (column, value) = pair.ok_or_else(refused)?;
            let Expr::Column(column) = context.sql_to_expr(column, self.input.schema())? else { return Err(refused()) };
            let value = match context.sql_to_expr(value, &DFSchema::empty()) {
                Ok(Expr::Literal(value, _)) => number(&value).ok_or_else(refused)?,
                _ => return Err(refused()),
            };
            if weights.iter().any(|(other, _)| *other == column) {
                return plan_err!("{name} of {} names {} twice: leave one out", self.function, column.name);
            }
            weights.push((column, value));
        }
        Ok(weights)
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

    /// The call as others are told: without the secrets of the engine that are in it.
    pub(crate) fn told(&self) -> String {
        self.told.clone()
    }

    /// A text, which must be there.
    pub(crate) fn take_text(
        &mut self,
        name: &str,
        example: &str,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<String> {
        match self.take_constant(name, context)? {
            Some(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text))) if !text.is_empty() => Ok(text),
            _ => plan_err!("{} needs {name} => '{example}'", self.function),
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

    /// One of these, by its name.
    pub(crate) fn take_choice<T: Copy>(&mut self, name: &str, choices: &[(&'static str, T)]) -> Result<Option<T>> {
        let words: Vec<&'static str> = choices.iter().map(|(word, _)| *word).collect();
        let word = self.take_word(name, &words)?;
        Ok(choices.iter().find(|(choice, _)| Some(*choice) == word).map(|(_, value)| *value))
    }

    fn take_list(&mut self, name: &str) -> Option<Vec<SqlExpr>> {
        self.take(name).map(list)
    }

    /// Columns of the input: `(a, b)`, `[a, b]`, or one alone.
    pub(crate) fn take_columns(
        &mut self,
        name: &str,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Option<Vec<Column>>> {
        let Some(parts) = self.take_list(name) else { return Ok(None) };
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

    /// The same, left for another to take.
    pub(crate) fn columns(
        &mut self,
        name: &str,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<Option<Vec<Column>>> {
        let arguments = self.arguments.clone();
        let columns = self.take_columns(name, context);
        self.arguments = arguments;
        columns
    }

    /// The second relation.
    pub(crate) fn take_other(&mut self) -> Option<LogicalPlan> {
        self.other.take()
    }

    /// The relation, if nothing is left.
    pub(crate) fn finish(self, known: &[&str]) -> Result<LogicalPlan> {
        match self.arguments.first() {
            None => Ok(self.input),
            Some((name, _)) => plan_err!("{} has no argument {name}: it takes {}", self.function, known.join(", ")),
        }
    }
}

/// `(a, b)`, `[a, b]`, or one alone.
fn list(value: SqlExpr) -> Vec<SqlExpr> {
    match value {
        SqlExpr::Tuple(parts) => parts,
        SqlExpr::Array(array) => array.elem,
        SqlExpr::Nested(part) => vec![*part],
        part => vec![part],
    }
}

/// A whole number that is not negative.
fn whole(value: &ScalarValue) -> Option<u64> {
    match value {
        ScalarValue::Int64(Some(value)) => u64::try_from(*value).ok(),
        ScalarValue::UInt64(value) => *value,
        _ => None,
    }
}

fn number(value: &ScalarValue) -> Option<f64> {
    match value.cast_to(&DataType::Float64) {
        Ok(ScalarValue::Float64(number)) if value.data_type().is_numeric() => number,
        _ => None,
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
