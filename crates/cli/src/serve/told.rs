//! Errors of the engine as answers: one sentence, whose fault it is, and for recipients nothing of what stands in tables.
//!
//! DataFusion's own sentences quote what they are about: `Cannot cast string 'Anna' to value of Int64 type` has a value of a column
//! that the policy may not allow, and `Valid fields are ..` the names of all columns. A recipient is told neither.

use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use tokio::task::JoinError;
use veil_cells::CellError;
use veil_flight_p2::status_of;
use veil_flight_sql::{AnswerError, Kind, Role};
use veil_owner::OwnerError;
use veil_planner::explain_error;
use veil_protocols::ProtocolError;
use veil_release::ReleaseError;

/// How errors are told to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// As they are.
    Fully,
    /// Without names of columns and values of rows that the caller did not write.
    ToRecipient,
}

impl Told {
    /// To callers of this role.
    pub(super) fn to(role: &Role) -> Self {
        if role.may_ask() { Self::Fully } else { Self::ToRecipient }
    }

    /// An error of a statement that is planned: no row has been looked at.
    pub(super) fn planning(self, error: &DataFusionError) -> AnswerError {
        let told = explained(error);
        match (self, error.find_root()) {
            (Self::Fully, _) => told,
            (_, DataFusionError::SchemaError(schema, _)) => match schema.as_ref() {
                SchemaError::FieldNotFound { field, .. } => {
                    let column = field.quoted_flat_name();
                    AnswerError::new(Kind::Invalid, format!("there is no column {column} where the query looks for it"))
                }
                _ => told,
            },
            // Of files there are paths.
            _ if told.kind == Kind::Internal => hidden(Kind::Internal),
            _ => told,
        }
    }

    /// An error of a statement that runs.
    pub(super) fn running(self, error: &DataFusionError) -> AnswerError {
        let told = explained(error);
        match self == Self::Fully || speaks_for_itself(error) {
            true => told,
            false => hidden(told.kind),
        }
    }
}

/// Sentences of ours, which quote no values.
fn speaks_for_itself(error: &DataFusionError) -> bool {
    if task_of(error).is_some() {
        return true;
    }
    match error.find_root() {
        DataFusionError::External(inner) => {
            inner.is::<ProtocolError>()
                || inner.is::<CellError>()
                || inner.is::<OwnerError>()
                || inner.is::<ReleaseError>()
        }
        DataFusionError::ResourcesExhausted(_) => true,
        _ => false,
    }
}

fn hidden(kind: Kind) -> AnswerError {
    let sentence = "the engine could not run the statement on the rows that it found, and why is told to stewards and admins only: ask \
                    one of them to run it";
    AnswerError::new(kind, sentence)
}

/// The task of P1's own that broke off, if it was that.
fn task_of(error: &DataFusionError) -> Option<&JoinError> {
    match error.find_root() {
        DataFusionError::ExecutionJoin(failed) => Some(failed),
        DataFusionError::External(inner) => inner.downcast_ref(),
        _ => None,
    }
}

/// One sentence, and whose fault it is.
fn explained(error: &DataFusionError) -> AnswerError {
    if let Some(failed) = task_of(error) {
        return match failed.is_cancelled() {
            true => AnswerError::new(Kind::Unavailable, "P1 is stopping; ask again when it is back"),
            false => AnswerError::new(Kind::Internal, "a worker of P1 failed; its log says more"),
        };
    }
    let kind = match error.find_root() {
        DataFusionError::External(inner) => match inner.downcast_ref::<ProtocolError>() {
            Some(error) => AnswerError::of_status(&status_of(error)).kind,
            None if inner.downcast_ref::<OwnerError>().is_some() => Kind::Precondition,
            None => Kind::Invalid,
        },
        DataFusionError::NotImplemented(_) => Kind::Unsupported,
        DataFusionError::ResourcesExhausted(_) => Kind::Exhausted,
        DataFusionError::Internal(_) | DataFusionError::IoError(_) | DataFusionError::ObjectStore(_) => Kind::Internal,
        _ => Kind::Invalid,
    };
    AnswerError::new(kind, explain_error(error))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::error::ArrowError;

    use super::*;

    /// A caller may ask again what an ending server did not do, and is not to blame for what a broken one did.
    #[tokio::test]
    async fn tasks_that_break_off_are_not_the_callers_fault() {
        let stopped = tokio::spawn(std::future::pending::<()>());
        stopped.abort();
        let failed = tokio::task::spawn_blocking(|| std::panic::resume_unwind(Box::new(())));
        let stopped = DataFusionError::External(Box::new(stopped.await.unwrap_err()));
        let failed = DataFusionError::ExecutionJoin(Box::new(failed.await.unwrap_err()));
        for told in [Told::Fully, Told::ToRecipient] {
            assert_eq!(told.running(&stopped).kind, Kind::Unavailable);
            let failed = told.running(&failed);
            assert_eq!(
                (failed.kind, failed.sentence.as_str()),
                (Kind::Internal, "a worker of P1 failed; its log says more")
            );
        }
    }

    #[test]
    fn recipients_are_told_no_values() {
        let quoted = "Cannot cast string 'Anna' to value of Int64 type".to_owned();
        for error in [
            DataFusionError::ArrowError(Box::new(ArrowError::CastError(quoted.clone())), None),
            DataFusionError::Execution(quoted.clone()),
            DataFusionError::Plan(quoted.clone()).context("a rule"),
            DataFusionError::External(Box::new(ArrowError::CastError(quoted.clone()))),
            DataFusionError::Internal(quoted),
        ] {
            assert!(Told::Fully.running(&error).sentence.contains("Anna"), "{error}");
            let told = Told::ToRecipient.running(&error).sentence;
            assert!(!told.contains("Anna") && told.contains("ask one of them to run it"), "{told}");
        }
        let denied = DataFusionError::External(Box::new(ProtocolError::Denied("no rule allows it".to_owned())));
        let told = Told::ToRecipient.running(&denied);
        assert!(told.kind == Kind::Denied && told.sentence.contains("no rule allows it"), "{told}");
    }
}
