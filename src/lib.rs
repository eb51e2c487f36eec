//! Veilfusion: anonymise data that stays encrypted, in SQL, on Apache Arrow and DataFusion.
//!
//! This is the engine's side, for platforms that embed DataFusion. It masks, adds noise to, filters, joins and computes on
//! encrypted columns, in rounds with a key holder where it must, and knows no secret key: the data owner's tools are the command
//! `veil` and the crate `veil-owner`.
//!
//! Both servers in one process, which protects nothing and is good for trying out:
//! ```
//! use std::sync::Arc;
//!
//! use datafusion::execution::SessionStateBuilder;
//! use datafusion::prelude::*;
//! use veil_keys::{OwnerKeys, os_rng};
//! use veil_owner::{Declaration, Output, decrypt_batch, encrypt_file, unwatched};
//! use veilfusion::protocols::{InProcess, Limits, Randomness, Responder};
//! use veilfusion::{Veil, VeilSessionState};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The owner makes keys and encrypts a file.
//! let folder = tempfile::tempdir()?;
//! let [csv, declared, file] = ["wages.csv", "wages.toml", "wages.veil.parquet"].map(|name| folder.path().join(name));
//! std::fs::write(&csv, "name,wage\nada,5200\nbob,3100\n")?;
//! let text = "[table]\nname = \"wages\"\n[column.name]\nkind = \"clear\"\n[column.wage]\nkind = \"integer\"\nrange = [0, 9999]";
//! let (declaration, owner) = (Declaration::parse(text, &declared)?, OwnerKeys::generate(&mut os_rng()));
//! encrypt_file(&csv, &declaration, &owner, &Output { path: file.clone(), force: false }, &mut os_rng(), &unwatched)?;
//!
//! // The engine has a public key and a way to P2. With a P2 elsewhere: veil.set_remote(ClientConfig::new("https://p2.example:7722")).
//! let p2 = Responder::new(Arc::new(owner.p2()), Limits::default(), Randomness::os());
//! let veil = Veil::default();
//! veil.add_key(owner.key_id(), owner.p1().public_key().clone()).await;
//! veil.set_channel(Arc::new(InProcess::new(Arc::new(p2)))).await;
//! let context = SessionContext::new_with_state(SessionStateBuilder::new().with_veil(&veil).build());
//! context.sql(&format!("CREATE EXTERNAL TABLE wages STORED AS PARQUET LOCATION '{}'", file.display())).await?;
//!
//! // Any query, on cells that stay encrypted. The owner alone reads what comes out.
//! let raised = context.sql("SELECT mask_shift(wage, 100) AS wage FROM wages WHERE name = 'ada'").await?.collect().await?;
//! let noised = context.sql("SELECT dp_laplace(wage, 1.0) AS wage FROM wages").await?.collect().await?;
//! let clear = decrypt_batch(&owner, &raised[0])?;
//! assert_eq!(datafusion::arrow::util::display::array_value_to_string(clear.column(0), 0)?, "5300");
//! assert_eq!(noised.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
//! # Ok(())
//! # }
//! ```

pub use veil_cells as cells;
pub use veil_flight_p2 as flight_p2;
pub use veil_planner::{
    Anonymisation, KAnonymizeExec, Phase, Progress, Search, Veil, VeilSessionConfig, VeilSessionState, veiled,
};
pub use veil_protocols as protocols;
pub use veil_udfs as functions;
