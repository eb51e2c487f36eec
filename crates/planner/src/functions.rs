//! `veil_functions()`: every function with its syntax, what it does, and an example.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::catalog::{MemTable, TableFunction, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::Documentation;
use veil_udfs::{aggregate_functions, scalar_functions};

use crate::Veil;

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

/// Name, section, syntax, description and example of every function.
pub fn function_table(veil: &Veil) -> Result<RecordBatch> {
    let scalars = scalar_functions(veil.context());
    let aggregates = aggregate_functions();
    let documented = scalars.iter().filter_map(|function| Some((function.name(), function.documentation()?)));
    let documented = documented.chain(aggregates.iter().filter_map(|f| Some((f.name(), f.documentation()?))));
    let documented: Vec<(&str, &Documentation)> = documented.collect();
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
