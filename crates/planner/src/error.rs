//! Errors of rounds as DataFusion's, with their types kept; and DataFusion's as sentences for people.

use datafusion::common::DataFusionError;
use datafusion::functions_aggregate::all_default_aggregate_functions;
use veil_protocols::ProtocolError;

/// Keeps the error itself: [`DataFusionError::External`] prints its sentence.
pub(crate) fn protocol(error: ProtocolError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// What went wrong, in one sentence: the cause, without the names of the rules that it came through, and what to use instead
/// where a function of DataFusion was called with an encrypted column.
pub fn explain_error(error: &DataFusionError) -> String {
    let root = error.find_root();
    let text = match root {
        DataFusionError::SQL(error, _) => error.to_string(),
        root => root.message().into_owned(),
    };
    let text = text.split(DataFusionError::BACK_TRACE_SEP).next().unwrap_or_default();
    let text = PREFIXES.iter().fold(text, |text, prefix| text.strip_prefix(prefix).unwrap_or(text));
    match mismatched_function(text) {
        Some(function) => instead_of(&function),
        None => text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// In the order in which they are put in front.
const PREFIXES: [&str; 7] = [
    "External error: ",
    "Error during planning: ",
    "Execution error: ",
    "Resources exhausted: ",
    "Schema error: ",
    "Invalid or Unsupported Configuration: ",
    "sql parser error: ",
];

/// The function that was called with cells and does not take them. DataFusion says so in a page of signatures.
fn mismatched_function(text: &str) -> Option<String> {
    let (_, call) = text.split_once("No function matches the given name and argument types '")?;
    let (call, _) = call.split_once("'.")?;
    let (name, arguments) = call.split_once('(')?;
    arguments.contains("Binary").then(|| name.to_owned())
}

fn instead_of(function: &str) -> String {
    let instead = match function {
        "sum" => "use enc_sum",
        "avg" => "use enc_avg",
        function if is_aggregate(function) => "use enc_sum, enc_avg or enc_count",
        _ => "use mask_*, dp_* or enc_*, which SELECT * FROM veil_functions() lists",
    };
    format!("{function} does not work on encrypted columns: {instead}")
}

fn is_aggregate(name: &str) -> bool {
    let known = all_default_aggregate_functions();
    known.iter().any(|function| function.name() == name || function.aliases().iter().any(|alias| alias == name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{BinaryArray, RecordBatch};
    use datafusion::arrow::datatypes::Schema;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;
    use veil_cells::{CellType, ColumnId, KeyId, Kind, Width};

    use super::*;
    use crate::{Veil, VeilSessionState};

    async fn explained(sql: &str) -> String {
        let state = SessionStateBuilder::new().with_veil(&Veil::default()).build();
        let context = SessionContext::new_with_state(state);
        let cell_type = CellType::new(Kind::Integer, Width::NARROWEST, 1, KeyId([1; 8]), ColumnId([2; 8]));
        let schema = Arc::new(Schema::new(vec![cell_type.field("age").unwrap()]));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(BinaryArray::from_opt_vec(vec![None]))]).unwrap();
        context.register_batch("t", batch).unwrap();
        let run = async { context.sql(sql).await?.collect().await };
        explain_error(&run.await.unwrap_err())
    }

    #[tokio::test]
    async fn functions_that_do_not_take_cells_name_those_that_do() {
        for (sql, sentence) in [
            ("SELECT sum(age) FROM t", "sum does not work on encrypted columns: use enc_sum"),
            ("SELECT avg(age) FROM t", "avg does not work on encrypted columns: use enc_avg"),
            (
                "SELECT stddev(age) FROM t",
                "stddev does not work on encrypted columns: use enc_sum, enc_avg or enc_count",
            ),
            (
                "SELECT median(age) FROM t",
                "median does not work on encrypted columns: use enc_sum, enc_avg or enc_count",
            ),
        ] {
            assert_eq!(explained(sql).await, sentence, "{sql}");
        }
        let listed =
            "does not work on encrypted columns: use mask_*, dp_* or enc_*, which SELECT * FROM veil_functions() lists";
        for function in ["abs", "upper", "sqrt", "date_trunc"] {
            let call =
                if function == "date_trunc" { "date_trunc('day', age)".to_owned() } else { format!("{function}(age)") };
            assert_eq!(explained(&format!("SELECT {call} FROM t")).await, format!("{function} {listed}"));
        }
    }

    #[tokio::test]
    async fn rules_and_prefixes_are_left_out() {
        for (sql, sentence) in [
            (
                "SELECT max(age) FROM t",
                "t.age is encrypted (integer) and is nothing that max can aggregate: use enc_sum, enc_avg or enc_count",
            ),
            (
                "SELECT * FROM t WHERE age > 3",
                "t.age is encrypted (integer) and cannot be compared: filter and join on clear columns",
            ),
            ("SELECT nonsense FROM t", "No field named nonsense. Valid fields are t.age."),
            ("SELECT * FROM nowhere", "table 'datafusion.public.nowhere' not found"),
            ("SELECT 1 +", "Expected: an expression, found: EOF"),
            ("SET veil.nothing = 1", "there is no setting veil.nothing: SHOW ALL lists those that there are"),
        ] {
            assert_eq!(explained(sql).await, sentence, "{sql}");
        }
    }

    #[test]
    fn errors_of_rounds_speak_for_themselves() {
        let error = protocol(ProtocolError::Cancelled).context("veil_rounds").context("another");
        assert_eq!(explain_error(&error), ProtocolError::Cancelled.to_string());
        let many = DataFusionError::Plan("first line\n\tsecond  line".to_owned());
        assert_eq!(explain_error(&many), "first line second line");
    }
}
