//! An owner, an engine and a key holder, for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_keys::OwnerKeys;
use veil_owner::{Declaration, Output, decrypt_batch, encrypt_file, unwatched};
use veil_release::testing::permissive_desk;
use veilfusion::protocols::{InProcess, Limits, Randomness, Responder};
use veilfusion::{Veil, VeilSessionState};

/// Both parties in one process, and the owner beside them.
pub(crate) struct World {
    folder: tempfile::TempDir,
    pub(crate) owner: OwnerKeys,
    pub(crate) veil: Veil,
    pub(crate) context: SessionContext,
}

impl World {
    /// With keys from a seed, P2 in the same process, and no table.
    pub(crate) async fn new(seed: u64) -> Self {
        let world = Self::without_p2(seed).await;
        world.answer_with(Randomness::os()).await;
        world
    }

    /// The same, and all randomness repeats.
    pub(crate) async fn repeatable(seed: u64) -> Self {
        let world = Self::without_p2(seed).await;
        world.answer_with(Randomness::fixed(seed)).await;
        world.run(&format!("SET veil.seed = {seed}")).await.unwrap();
        world
    }

    /// With keys and no P2.
    pub(crate) async fn without_p2(seed: u64) -> Self {
        let owner = OwnerKeys::generate(&mut StdRng::seed_from_u64(seed));
        let veil = Veil::default();
        veil.add_key(owner.key_id(), owner.p1().public_key().clone()).await;
        let config = SessionConfig::new().with_target_partitions(2).with_information_schema(true);
        let context = session(&veil, config);
        Self { folder: tempfile::tempdir().unwrap(), owner, veil, context }
    }

    async fn answer_with(&self, randomness: Randomness) {
        self.veil.set_channel(Arc::new(InProcess::new(self.responder(randomness)))).await;
    }

    /// A P2 with the owner's keys.
    pub(crate) fn responder(&self, randomness: Randomness) -> Arc<Responder> {
        let desk = permissive_desk(self.owner.key_id(), self.owner.p2());
        Arc::new(Responder::new(Arc::new(self.owner.p2()), Limits::default(), randomness).with_desk(Arc::new(desk)))
    }

    /// The folder of the world's files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
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
        let file = self.file_under(owner, name, csv, declaration);
        self.create(name, &file).await;
    }

    /// An encrypted file without a table.
    pub(crate) fn file_under(&self, owner: &OwnerKeys, name: &str, csv: &str, declaration: &str) -> PathBuf {
        let (input, output) = (self.at(&format!("{name}.csv")), self.at(&format!("{name}.veil.parquet")));
        std::fs::write(&input, csv).unwrap();
        let declaration = Declaration::parse(declaration, &self.at("declaration.toml")).unwrap();
        let to = Output { path: output.clone(), force: true };
        encrypt_file(&input, &declaration, owner, &to, &mut veil_keys::os_rng(), &unwatched).unwrap();
        output
    }

    /// A table on a file.
    pub(crate) async fn create(&self, name: &str, file: &Path) {
        let sql = format!("CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{}'", file.display());
        self.context.sql(&sql).await.unwrap();
    }

    /// Runs a query.
    pub(crate) async fn run(&self, sql: &str) -> Result<RecordBatch> {
        run(&self.context, sql).await
    }

    /// Runs a query and decrypts its result as the owner would.
    pub(crate) async fn reveal(&self, sql: &str) -> Result<RecordBatch> {
        self.decrypted(&self.run(sql).await?)
    }

    /// What the owner reads.
    pub(crate) fn decrypted(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        decrypt_batch(&self.owner, batch).map_err(|error| DataFusionError::External(Box::new(error)))
    }

    /// The sentence with which a query is refused.
    pub(crate) async fn refusal(&self, sql: &str) -> String {
        sentence(&self.run(sql).await.unwrap_err())
    }
}

/// A session of these settings.
pub(crate) fn session(veil: &Veil, config: SessionConfig) -> SessionContext {
    SessionContext::new_with_state(SessionStateBuilder::new().with_config(config).with_veil(veil).build())
}

/// Runs a query in a session.
pub(crate) async fn run(context: &SessionContext, sql: &str) -> Result<RecordBatch> {
    let frame = context.sql(sql).await?;
    let schema = Arc::new(frame.schema().as_arrow().clone());
    let batches = frame.collect().await?;
    let schema = batches.first().map_or(schema, RecordBatch::schema);
    Ok(concat_batches(&schema, &batches)?)
}

/// The sentence at the root of an error, without the names of rules and kinds of errors around it.
pub(crate) fn sentence(error: &DataFusionError) -> String {
    let text = match error.find_root() {
        DataFusionError::Plan(text) | DataFusionError::Execution(text) | DataFusionError::Configuration(text) => {
            text.clone()
        }
        DataFusionError::External(error) => error.to_string(),
        other => other.strip_backtrace(),
    };
    let text = text.split(DataFusionError::BACK_TRACE_SEP).next().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
