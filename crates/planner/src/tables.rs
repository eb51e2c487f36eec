//! Reads what travels with encrypted files: dictionaries and zeros.

use std::io::Cursor;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::ipc::reader::FileReader;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::common::{DFSchema, plan_err};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::Result;
use datafusion::logical_expr::CreateExternalTable;
use datafusion::object_store::{ObjectStore, ObjectStoreExt, path::Path};
use futures::TryStreamExt;
use veil_cells::{CellError, CellType, SideTables, caught};
use veil_udfs::VeilContext;

/// Arrow files are read whole to find their footer; larger ones are taken to have no side tables.
const LARGEST_ARROW_FILE: u64 = 1 << 28;

/// DataFusion's factory of tables on Parquet or Arrow files, which also remembers what travels with them.
#[derive(Debug)]
pub(crate) struct VeilTableFactory {
    inner: Arc<dyn TableProviderFactory>,
    context: VeilContext,
}

impl VeilTableFactory {
    pub(crate) fn new(inner: Arc<dyn TableProviderFactory>, context: VeilContext) -> Self {
        Self { inner, context }
    }
}

impl VeilTableFactory {
    /// Columns that a statement declares have no type of ours: cells would be bytes.
    async fn refuse_declared_cells(&self, state: &dyn Session, command: &CreateExternalTable) -> Result<()> {
        let found = CreateExternalTable { schema: Arc::new(DFSchema::empty()), ..command.clone() };
        let found = self.inner.create(state, &found).await?.schema();
        let declared = |name: &str| command.schema.fields().iter().any(|field| field.name() == name);
        match found
            .fields()
            .iter()
            .find(|field| declared(field.name()) && !matches!(CellType::of_field(field), Ok(None)))
        {
            Some(field) => plan_err!(
                "{} is encrypted, and a declared type would make bytes of it: leave out the list of columns",
                field.name()
            ),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl TableProviderFactory for VeilTableFactory {
    async fn create(&self, state: &dyn Session, command: &CreateExternalTable) -> Result<Arc<dyn TableProvider>> {
        if !command.schema.fields().is_empty() {
            self.refuse_declared_cells(state, command).await?;
        }
        let table = self.inner.create(state, command).await?;
        for location in &command.locations {
            add_side_tables_of(&self.context, state, command.name.table(), location).await?;
        }
        Ok(table)
    }
}

/// Remembers what travels with the files at a location, under the name of a table. `CREATE EXTERNAL TABLE` does this by itself.
pub async fn add_side_tables_of(context: &VeilContext, state: &dyn Session, table: &str, location: &str) -> Result<()> {
    let url = ListingTableUrl::parse(location)?;
    let store = state.runtime_env().object_store(&url)?;
    let files: Vec<_> = url.list_all_files(state, store.as_ref(), "").await?.try_collect().await?;
    for file in files {
        let side = read(store.as_ref(), &file.location, file.size).await?;
        context.add_side_tables(table, &side)?;
    }
    Ok(())
}

async fn read(store: &dyn ObjectStore, path: &Path, size: u64) -> Result<SideTables> {
    let external = |error: CellError| datafusion::common::DataFusionError::External(Box::new(error));
    let head = store.get_range(path, 0..size.min(SideTables::PARQUET_HEAD)).await?;
    if head.starts_with(b"PAR1") {
        return match SideTables::parquet_section(&head).map_err(external)? {
            Some(section) if section.end <= size => {
                let bytes = store.get_range(path, section).await?;
                guarded(path, || SideTables::from_bytes(&bytes)).map_err(external)
            }
            Some(_) => Err(external(CellError::Malformed(format!("the side tables of {path} are cut off")))),
            None => Ok(SideTables::default()),
        };
    }
    if head.starts_with(b"ARROW1") && size <= LARGEST_ARROW_FILE {
        let bytes = store.get(path).await?.bytes().await?;
        let metadata =
            caught(|| FileReader::try_new(Cursor::new(bytes), None).map(|file| file.custom_metadata().clone()));
        return match metadata {
            Ok(Ok(metadata)) => match metadata.get(SideTables::IPC_METADATA_KEY) {
                Some(text) => guarded(path, || SideTables::from_ipc_metadata(text)).map_err(external),
                None => Ok(SideTables::default()),
            },
            // The table itself will say what is wrong with the file.
            _ => Ok(SideTables::default()),
        };
    }
    Ok(SideTables::default())
}

/// Arrow's reader may panic on bytes that were made to.
fn guarded(path: &Path, read: impl FnOnce() -> Result<SideTables, CellError>) -> Result<SideTables, CellError> {
    caught(read).unwrap_or_else(|_| Err(CellError::Malformed(format!("the side tables of {path} are damaged"))))
}
