//! Refuses what encrypted columns cannot do, with a sentence that says what can be done instead.
//!
//! Cells of equal values differ, so comparing, sorting, grouping, joining or hashing them would not fail but give wrong
//! answers; and a cast or a function of text would show ciphertext as if it were data.

use datafusion::arrow::datatypes::Field;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction, WindowFunctionDefinition};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Distinct, DmlStatement, Expr, ExprSchemable, LogicalPlan, RecursiveQuery, WriteOp};
use datafusion::optimizer::AnalyzerRule;
use veil_udfs::{CellUdf, EncryptedField};

use crate::carry_types::CHOOSING_FUNCTIONS;
use crate::identifiers::IdentifiersNode;
use crate::k_anonymize::KAnonymizeNode;
use crate::release::ReleaseNode;
use crate::restore_type::RestoreType;

/// The rule.
#[derive(Debug)]
pub(crate) struct Guard;

impl AnalyzerRule for Guard {
    fn name(&self) -> &str {
        "veil_guard"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.apply_with_subqueries(|node| {
            check_node(node)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(plan)
    }
}

fn check_node(node: &LogicalPlan) -> Result<()> {
    let schema = merge_schema(&node.inputs());
    let refuse_all =
        |exprs: &[Expr], what: &str| exprs.iter().try_for_each(|expr| refuse_encrypted(expr, &schema, what));
    match node {
        LogicalPlan::Sort(sort) => {
            for sort in &sort.expr {
                refuse_encrypted(&sort.expr, &schema, "cannot be sorted by: ORDER BY a clear column")?;
            }
        }
        LogicalPlan::Aggregate(aggregate) => {
            for expr in &aggregate.group_expr {
                match expr {
                    Expr::GroupingSet(set) => {
                        set.distinct_expr()
                            .into_iter()
                            .try_for_each(|expr| refuse_encrypted(expr, &schema, GROUPED))?;
                    }
                    expr => refuse_encrypted(expr, &schema, GROUPED)?,
                }
            }
        }
        LogicalPlan::Distinct(Distinct::On(distinct)) => {
            refuse_all(&distinct.on_expr, GROUPED)?;
            let sorts = distinct.sort_expr.iter().flatten();
            sorts.into_iter().try_for_each(|sort| refuse_encrypted(&sort.expr, &schema, SORTED))?;
        }
        LogicalPlan::Filter(filter) if filter.predicate.is_volatile() && is_search(&filter.input) => {
            return plan_err!(
                "a random condition on the result of identifiers or k_anonymize would pick rows of the table that it reads: CREATE TABLE .. AS the \
                 result first"
            );
        }
        LogicalPlan::Dml(write) if matches!(write.op, WriteOp::Insert(_) | WriteOp::Update) => check_write(write)?,
        LogicalPlan::RecursiveQuery(query) => check_recursion(query)?,
        LogicalPlan::Distinct(Distinct::All(input)) => {
            for field in input.schema().fields() {
                if let Some(column) = EncryptedField::of(field)? {
                    return refuse(field.name(), &column, GROUPED);
                }
            }
        }
        LogicalPlan::Join(join) => {
            for (left, right) in &join.on {
                refuse_all(&[left.clone(), right.clone()], "cannot be joined on: join on a clear column")?;
            }
            refuse_other_rows(join.left.schema(), join.right.schema())?;
        }
        LogicalPlan::Copy(copy) => {
            let format = copy.file_type.get_ext();
            for field in copy.input.schema().fields() {
                if !matches!(format.as_str(), "parquet" | "arrow")
                    && let Some(column) = EncryptedField::of(field)?
                {
                    let what = format!("cannot be written to {format}: COPY .. TO a .parquet or .arrow file");
                    return refuse(field.name(), &column, &what);
                }
            }
        }
        _ => {}
    }
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            check_expr(expr, &schema)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(())
}

/// Whether conditions on this go below a search: DataFusion moves those that name no column below any node.
fn is_search(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Extension(extension) => {
            let node = extension.node.as_any();
            node.is::<IdentifiersNode>() || node.is::<KAnonymizeNode>() || node.is::<ReleaseNode>()
        }
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::Sort(_) => {
            plan.inputs().into_iter().any(is_search)
        }
        _ => false,
    }
}

const GROUPED: &str = "cannot be grouped by, since equal values are encrypted differently: GROUP BY a clear column, with enc_sum, \
                       enc_avg or enc_count of this one";
pub(crate) const COMPARED: &str = "cannot be compared: filter and join on clear columns";

fn check_expr(expr: &Expr, schema: &DFSchema) -> Result<()> {
    let refused =
        |children: &[&Expr], what: &str| children.iter().try_for_each(|child| refuse_encrypted(child, schema, what));
    match expr {
        Expr::BinaryExpr(binary) => refused(&[&binary.left, &binary.right], instead_of(&binary.op.to_string())),
        Expr::Like(like) | Expr::SimilarTo(like) => refused(&[&like.expr, &like.pattern], COMPARED),
        Expr::Between(between) => refused(&[&between.expr, &between.low, &between.high], COMPARED),
        Expr::InList(list) => {
            refused(&[&list.expr], COMPARED)?;
            list.list.iter().try_for_each(|item| refuse_encrypted(item, schema, COMPARED))
        }
        Expr::InSubquery(of) => {
            refused(&[&of.expr], COMPARED)?;
            refuse_columns(of.subquery.subquery.schema(), COMPARED)
        }
        Expr::SetComparison(of) => {
            refused(&[&of.expr], COMPARED)?;
            refuse_columns(of.subquery.subquery.schema(), COMPARED)
        }
        Expr::Not(of)
        | Expr::IsTrue(of)
        | Expr::IsFalse(of)
        | Expr::IsUnknown(of)
        | Expr::IsNotTrue(of)
        | Expr::IsNotFalse(of)
        | Expr::IsNotUnknown(of) => refused(&[of], COMPARED),
        Expr::Negative(of) => refused(&[of], "cannot be computed with in SQL: use enc_scale(column, -1)"),
        Expr::IsNull(of) | Expr::IsNotNull(of) => refuse_hidden_nulls(of, schema),
        Expr::Cast(cast) if !is_binary(cast.field.data_type()) => refused(&[&cast.expr], CAST),
        Expr::TryCast(cast) if !is_binary(cast.field.data_type()) => refused(&[&cast.expr], CAST),
        Expr::Case(case) => {
            case.expr.iter().try_for_each(|of| refuse_encrypted(of, schema, COMPARED))?;
            case.when_then_expr.iter().try_for_each(|(when, _)| refuse_encrypted(when, schema, COMPARED))
        }
        Expr::ScalarFunction(call) => {
            let name = call.name();
            if matches!(name, "coalesce" | "nvl2") {
                call.args.iter().take(1).try_for_each(|first| refuse_hidden_nulls(first, schema))?;
            }
            let ours = call.func.inner().is::<CellUdf>() || call.func.inner().is::<RestoreType>();
            if ours || CHOOSING_FUNCTIONS.contains(&name) || DESCRIBING_FUNCTIONS.contains(&name) {
                return Ok(());
            }
            let instead = match name {
                // They would take cells for texts.
                "nvl" | "ifnull" => "coalesce",
                _ => "mask_*, dp_* or enc_*, which veil_functions() lists",
            };
            let what = format!("is nothing that {name} understands: use {instead}");
            call.args.iter().try_for_each(|argument| refuse_encrypted(argument, schema, &what))
        }
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            let name = func.name();
            if name == "count" {
                params.args.iter().try_for_each(|argument| refuse_hidden_nulls(argument, schema))?;
            }
            let known = ["count", "first_value", "last_value", "enc_sum", "enc_avg", "enc_count"].contains(&name);
            let what = match (known, params.distinct) {
                (true, false) => None,
                (true, true) => Some(DISTINCT.to_owned()),
                (false, _) => Some(aggregate_instead_of(name)),
            };
            if let Some(what) = what {
                params.args.iter().try_for_each(|argument| refuse_encrypted(argument, schema, &what))?;
            }
            if ["first_value", "last_value"].contains(&name) {
                params.args.iter().try_for_each(|argument| refuse_moved(argument, schema))?;
            }
            params.order_by.iter().try_for_each(|sort| refuse_encrypted(&sort.expr, schema, SORTED))
        }
        Expr::WindowFunction(window) => check_window(window, schema),
        Expr::ScalarSubquery(query) => {
            let withheld = query.subquery.schema().fields().iter().map(|field| withheld(field));
            match withheld.collect::<Result<Vec<u64>>>()?.iter().all(|run| *run == 0) {
                true => Ok(()),
                false => plan_err!("{MOVED}"),
            }
        }
        _ => Ok(()),
    }
}

const CAST: &str = "cannot be cast: only the owner's keys turn cells into values";
const SORTED: &str = "cannot be sorted by: use a clear column";
const DISTINCT: &str = "cannot be told apart from its equals, which are encrypted differently: leave out DISTINCT";
const DESCRIBING_FUNCTIONS: [&str; 4] = ["arrow_typeof", "arrow_field", "arrow_metadata", "octet_length"];

fn check_window(window: &WindowFunction, schema: &DFSchema) -> Result<()> {
    let name = match &window.fun {
        WindowFunctionDefinition::AggregateUDF(function) => function.name(),
        WindowFunctionDefinition::WindowUDF(function) => function.name(),
    };
    let known = ["lag", "lead", "first_value", "last_value", "nth_value", "count"].contains(&name);
    let what = match (known, window.params.distinct, name) {
        (true, false, _) => None,
        (true, true, _) => Some(DISTINCT.to_owned()),
        (false, _, "enc_sum" | "enc_avg" | "enc_count") => {
            Some(format!("has no {name} over a window: GROUP BY a clear column"))
        }
        (false, ..) => Some(aggregate_instead_of(name)),
    };
    if let Some(what) = what {
        window.params.args.iter().try_for_each(|argument| refuse_encrypted(argument, schema, &what))?;
    }
    if name != "count" {
        window.params.args.iter().try_for_each(|argument| refuse_moved(argument, schema))?;
    }
    // What stands in for a missing row has to be a cell too.
    if let ("lag" | "lead", [of, _, default]) = (name, window.params.args.as_slice())
        && !is_null(default)
        && encrypted(default, schema)?.is_none()
    {
        refuse_encrypted(of, schema, "has no clear values to stand in for missing rows: leave out the default")?;
    }
    window.params.partition_by.iter().try_for_each(|expr| refuse_encrypted(expr, schema, GROUPED))?;
    window.params.order_by.iter().try_for_each(|sort| refuse_encrypted(&sort.expr, schema, SORTED))
}

/// A row that may be suppressed is hidden by its own flag: no value, and no flag, may come to stand in another row.
const MOVED: &str = "rows of this table may be suppressed, and their values cannot be moved to other rows: the flag of a row goes with its own values";

fn refuse_moved(argument: &Expr, schema: &DFSchema) -> Result<()> {
    match encrypted(argument, schema)?.is_some_and(|column| column.cell_type.withheld != 0) {
        true => plan_err!("{MOVED}"),
        false => Ok(()),
    }
}

/// The run that may have suppressed rows of a column; zero if there is none.
fn withheld(field: &Field) -> Result<u64> {
    Ok(EncryptedField::of(field)?.map_or(0, |column| column.cell_type.withheld))
}

/// Rows of one table beside other rows of it, which have flags of their own.
fn refuse_other_rows(left: &DFSchema, right: &DFSchema) -> Result<()> {
    let runs = |schema: &DFSchema| schema.fields().iter().map(|field| withheld(field)).collect::<Result<Vec<u64>>>();
    let (left, right) = (runs(left)?, runs(right)?);
    match left.iter().any(|run| *run != 0 && right.contains(run)) {
        true => plan_err!("{MOVED}"),
        false => Ok(()),
    }
}

fn aggregate_instead_of(name: &str) -> String {
    let instead = match name {
        "sum" => "use enc_sum",
        "avg" | "mean" => "use enc_avg",
        _ => "use enc_sum, enc_avg or enc_count",
    };
    format!("is nothing that {name} can aggregate: {instead}")
}

/// What to write in the place of an operator.
pub(crate) fn instead_of(operator: &str) -> &'static str {
    match operator {
        "+" => "cannot be computed with in SQL: use enc_add",
        "-" => "cannot be computed with in SQL: use enc_sub",
        "*" => "cannot be computed with in SQL: use enc_scale",
        "/" | "%" => "cannot be divided: enc_avg divides by a number of rows",
        "||" => "cannot be joined to other text: use mask_dictionary or mask_redact",
        _ => COMPARED,
    }
}

/// Rows of a table have one type: what is written into it must have that type, or be NULL.
fn check_write(write: &DmlStatement) -> Result<()> {
    let target = write.target.schema();
    for (at, (to, from)) in target.fields().iter().zip(write.input.schema().fields()).enumerate() {
        let null = matches!(write.input.as_ref(), LogicalPlan::Projection(of) if of.expr.get(at).is_some_and(is_null));
        let typed = |column: Option<EncryptedField>| column.map(|column| column.with_nullable(true));
        if !null && typed(EncryptedField::of(to)?) != typed(EncryptedField::of(from)?) {
            return plan_err!(
                "what is written into {}.{} is not encrypted like it, with the same keys, range and noise: use CREATE TABLE .. AS, which \
                 takes the types of its query",
                write.table_name,
                to.name()
            );
        }
    }
    Ok(())
}

/// A recursion has the types of its first part, whatever its rows come from later.
fn check_recursion(query: &RecursiveQuery) -> Result<()> {
    let (first, next) = (query.static_term.schema(), query.recursive_term.schema());
    let typed = |column: Option<EncryptedField>| column.map(|column| column.with_nullable(true));
    for (first, next) in first.fields().iter().zip(next.fields()) {
        if typed(EncryptedField::of(first)?) != typed(EncryptedField::of(next)?) {
            return plan_err!(
                "column {} of {} is not encrypted alike in all rounds of the recursion, with the same keys, range and noise: repeat only its own \
                 rows, and add others with UNION ALL",
                first.name(),
                query.name
            );
        }
    }
    Ok(())
}

fn refuse_columns(schema: &DFSchema, what: &str) -> Result<()> {
    schema.fields().iter().try_for_each(|field| match EncryptedField::of(field)? {
        Some(column) => refuse(field.name(), &column, what),
        None => Ok(()),
    })
}

/// A hidden NULL is a cell like any other, so that a question about NULLs would get a wrong answer.
fn refuse_hidden_nulls(expr: &Expr, schema: &DFSchema) -> Result<()> {
    match encrypted(expr, schema)? {
        Some(column) if column.hides_nulls() => refuse(
            &expr.to_string(),
            &column,
            "hides its NULLs, so that which rows are NULL cannot be asked: enc_count counts the others",
        ),
        _ => Ok(()),
    }
}

fn refuse_encrypted(expr: &Expr, schema: &DFSchema, what: &str) -> Result<()> {
    match encrypted(expr, schema)? {
        Some(column) => refuse(&expr.to_string(), &column, what),
        None => Ok(()),
    }
}

/// The sentence.
pub(crate) fn refuse<T>(name: &str, column: &EncryptedField, what: &str) -> Result<T> {
    plan_err!("{name} is encrypted ({}) and {what}", column.cell_type.kind)
}

/// The type of an expression, if it is encrypted. An expression that has no type yet is not.
pub(crate) fn encrypted(expr: &Expr, schema: &DFSchema) -> Result<Option<EncryptedField>> {
    match expr.to_field(schema) {
        Ok((_, field)) => EncryptedField::of(&field),
        Err(_) => Ok(None),
    }
}

/// Whether an expression is the constant NULL, of whatever type.
pub(crate) fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(cast) => is_null(&cast.expr),
        Expr::TryCast(cast) => is_null(&cast.expr),
        Expr::Alias(alias) => is_null(&alias.expr),
        _ => false,
    }
}

fn is_binary(data_type: &datafusion::arrow::datatypes::DataType) -> bool {
    use datafusion::arrow::datatypes::DataType;
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}
