//! Session settings under which encrypted columns keep their type.

use datafusion::prelude::SessionConfig;

/// Prepares a session for encrypted columns.
pub trait VeilSessionConfig {
    /// Keeps the metadata of Parquet fields, which DataFusion otherwise drops and with it the type `veil.cell`; and reads
    /// cells as `Binary`, which computes faster than `BinaryView`.
    #[must_use]
    fn with_veil(self) -> Self;
}

impl VeilSessionConfig for SessionConfig {
    fn with_veil(mut self) -> Self {
        let parquet = &mut self.options_mut().execution.parquet;
        parquet.skip_metadata = false;
        parquet.schema_force_view_types = false;
        self
    }
}
