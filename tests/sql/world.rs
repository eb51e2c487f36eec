//! An owner, an engine and a key holder, for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_keys::OwnerKeys;
use veil_owner::{Declaration, Output, decrypt_batch, encrypt_file, unwatched};
use veilfusion::protocols::{InProcess, Limits, Randomness, Responder};
use veilfusion::{Veil, VeilSessionState};

/// Both parties in one process, and the owner beside them.
pub(crate) struct World {
    folder: tempfile::TempDir,
    pub(crate) owner: OwnerKeys,
    pub(crate) context: SessionContext,
}

impl World {
    /// With keys from a seed, P2 in the same process, and no table.
    pub(crate) async fn new(seed: u64) -> Self {
        let owner = OwnerKeys::generate(&mut StdRng::seed_from_u64(seed));
        let veil = Veil::default();
        veil.add_key(owner.key_id(), owner.p1().public_key().clone()).await;
        let responder = Responder::new(Arc::new(owner.p2()), Limits::default(), Randomness::os());
        veil.set_channel(Arc::new(InProcess::new(Arc::new(responder)))).await;
        Self { folder: tempfile::tempdir().unwrap(), owner, context: session(&veil) }
    }

    /// A file in the world's folder.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.at(name), text).unwrap();
    }

    /// Encrypts a CSV text and makes a table of it.
    pub(crate) async fn table(&self, name: &str, csv: &str, declaration: &str) {
        self.table_under(&self.owner, name, csv, declaration).await;
    }

    /// The same, of another owner.
    pub(crate) async fn table_under(&self, owner: &OwnerKeys, name: &str, csv: &str, declaration: &str) {
        let (input, output) = (self.at(&format!("{name}.csv")), self.at(&format!("{name}.veil.parquet")));
        std::fs::write(&input, csv).unwrap();
        let declaration = Declaration::parse(declaration, &self.at("declaration.toml")).unwrap();
        let to = Output { path: output.clone(), force: true };
        encrypt_file(&input, &declaration, owner, &to, &mut veil_keys::os_rng(), &unwatched).unwrap();
        self.create(name, &output).await;
    }

    /// A table on a file.
    pub(crate) async fn create(&self, name: &str, file: &Path) {
        let sql = format!("CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{}'", file.display());
        self.context.sql(&sql).await.unwrap();
    }

    /// Runs a query.
    pub(crate) async fn run(&self, sql: &str) -> Result<RecordBatch> {
        let frame = self.context.sql(sql).await?;
        let schema = Arc::new(frame.schema().as_arrow().clone());
        let batches = frame.collect().await?;
        let schema = batches.first().map_or(schema, RecordBatch::schema);
        Ok(concat_batches(&schema, &batches)?)
    }

    /// Runs a query and decrypts its result as the owner would.
    pub(crate) async fn reveal(&self, sql: &str) -> Result<RecordBatch> {
        let batch = self.run(sql).await?;
        Ok(decrypt_batch(&self.owner, &batch).unwrap())
    }

    /// The decrypted result as text.
    pub(crate) async fn shown(&self, sql: &str) -> String {
        let batch = self.reveal(sql).await.unwrap();
        pretty_format_batches(&[batch]).unwrap().to_string()
    }

    /// The sentence with which a query is refused.
    pub(crate) async fn refusal(&self, sql: &str) -> String {
        self.run(sql).await.unwrap_err().strip_backtrace()
    }
}

fn session(veil: &Veil) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(2);
    SessionContext::new_with_state(SessionStateBuilder::new().with_config(config).with_veil(veil).build())
}
