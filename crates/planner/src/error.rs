//! Errors of rounds as DataFusion's, with their types kept.

use datafusion::common::DataFusionError;
use veil_protocols::ProtocolError;

/// Keeps the error itself: [`DataFusionError::External`] prints its sentence.
pub(crate) fn protocol(error: ProtocolError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
