//! `veil_functions()`: every function with its syntax, what it does, and an example.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::catalog::{MemTable, TableFunction, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::Documentation;
use veil_udfs::{aggregate_functions, scalar_functions};

use crate::{Veil, assess, identifiers, k_anonymize, release};

/// The table function.
#[derive(Debug)]
pub(crate) struct VeilFunctions(Veil);

impl VeilFunctions {
    pub(crate) fn table_function(veil: &Veil) -> Arc<TableFunction> {
        Arc::new(TableFunction::new("veil_functions".to_owned(), Arc::new(Self(veil.clone()))))
    }
}

impl TableFunctionImpl for VeilFunctions {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        if !args.exprs().is_empty() {
            return plan_err!("veil_functions takes no arguments: SELECT * FROM veil_functions()");
        }
        let batch = function_table(&self.0)?;
        Ok(Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]])?))
    }
}

/// Every function with its documentation: those of rows, of groups, and of relations.
pub fn documented(veil: &Veil) -> Vec<(String, Documentation)> {
    let scalars = scalar_functions(veil.context());
    let aggregates = aggregate_functions();
    let of_rows = scalars.iter().map(|function| (function.name(), function.documentation()));
    let of_groups = aggregates.iter().map(|function| (function.name(), function.documentation()));
    let known = of_rows.chain(of_groups);
    let known = known.filter_map(|(name, documentation)| Some((name.to_owned(), documentation?.clone())));
    let relations = [identifiers::documented(), k_anonymize::documented(), assess::documented(), release::documented()];
    known.chain(relations.into_iter().flatten()).collect()
}

/// Name, section, syntax, description and example of every function.
pub fn function_table(veil: &Veil) -> Result<RecordBatch> {
    let documented = documented(veil);
    let column = |of: fn(&str, &Documentation) -> String| -> ArrayRef {
        Arc::new(documented.iter().map(|(name, docs)| Some(of(name, docs))).collect::<StringArray>())
    };
    Ok(RecordBatch::try_from_iter([
        ("name", column(|name, _| name.to_owned())),
        ("section", column(|_, docs| docs.doc_section.label.to_owned())),
        ("syntax", column(|_, docs| docs.syntax_example.clone())),
        ("description", column(|_, docs| docs.description.clone())),
        ("example", column(|_, docs| docs.sql_example.clone().unwrap_or_default())),
    ])?)
}
