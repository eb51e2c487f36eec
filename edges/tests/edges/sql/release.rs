//! What a recipient opens, with classes that P2 has counted.

use std::sync::Arc;

use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_keys::RecipientKey;
use veil_recipient::{Opener, Received};
use veil_release::testing::PERMISSIVE_ASK;
use veil_release::{Ledger, PARCEL_ROWS, Policy, ReleaseDesk};
use veilfusion::protocols::{InProcess, Limits, Randomness, Responder};

use super::people::{add_people, partitioned};
use super::world::World;
use crate::EDGES;

/// A world whose P2 releases, and a recipient.
struct Hospital {
    world: World,
    alice: RecipientKey,
}

impl Hospital {
    /// With rules for alice about some tables.
    async fn new(seed: u64, tables: &[String], rules: &str) -> Self {
        let world = World::without_p2(seed).await;
        let alice = RecipientKey::generate("alice", &mut StdRng::seed_from_u64(seed + 1)).unwrap();
        let owner = &world.owner;
        let allow = |table: &String| format!("[[recipient.alice.allow]]\ntable = \"{table}\"\n{rules}\n");
        let text = format!(
            "[policy]\nkey_set = \"{}\"\n{PERMISSIVE_ASK}[recipient.alice]\nkey = \"{}\"\n{}",
            owner.key_id(),
            alice.public(),
            tables.iter().map(allow).collect::<String>()
        );
        let state = world.at("state");
        std::fs::create_dir_all(&state).unwrap();
        let desk = ReleaseDesk::new(Policy::parse(&text).unwrap(), Ledger::open(&state).unwrap(), owner.p2());
        let responder = Responder::new(Arc::new(owner.p2()), Limits::default(), Randomness::os());
        let responder = responder.with_desk(Arc::new(desk));
        world.veil.set_channel(Arc::new(InProcess::new(Arc::new(responder)))).await;
        world.veil.set_signer(owner.key_id(), Arc::new(owner.p1())).await;
        Self { world, alice }
    }

    /// What alice opens of a query's release.
    async fn released(&self, sql: &str) -> (RecordBatch, Received) {
        let release = format!("SELECT * FROM release(({sql}), recipient => 'alice')");
        let sealed = self.world.run(&release).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut opener = Opener::new(self.alice.clone()).with_owner(self.world.owner.public());
        let opened = opener.open(&[sealed]).unwrap();
        let received = opener.finish().unwrap();
        (concat_batches(&received.schema, &opened).unwrap(), received)
    }
}

/// Rows as texts, in an order of their own.
fn rows_of(batch: &RecordBatch) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<ArrayFormatter<'_>> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref() as &dyn Array, &options).unwrap())
        .collect();
    let mut rows: Vec<Vec<String>> =
        (0..batch.num_rows()).map(|row| columns.iter().map(|column| column.value(row).to_string()).collect()).collect();
    rows.sort_unstable();
    rows
}

fn names(sizes: &[usize]) -> Vec<String> {
    sizes.iter().map(|rows| format!("people_{rows}")).collect()
}

/// Every kind of column, NULLs, and a column that goes through slots.
#[tokio::test(flavor = "multi_thread")]
async fn the_recipient_gets_what_the_owner_reads() {
    let rules = r#"columns = ["id", "age", "job", "zip", "illness", "region", "married"]"#;
    let hospital = Hospital::new(10, &names(&EDGES), rules).await;
    for rows in EDGES {
        add_people(&hospital.world, rows).await;
        let sql =
            format!("SELECT id, age, job, mask_noise(zip, 0.01) AS zip, illness, region, married FROM people_{rows}");
        hospital.world.run(&format!("CREATE TABLE masked_{rows} AS {sql}")).await.unwrap();
        let sql = format!("SELECT * FROM masked_{rows}");
        let expected = hospital.world.reveal(&sql).await.unwrap();
        let (found, received) = hospital.released(&sql).await;
        assert_eq!(rows_of(&found), rows_of(&expected), "{rows} rows");
        let parcels = received.manifest.manifest.parcels as usize;
        assert_eq!((received.rows as usize, parcels), (rows, rows.div_ceil(PARCEL_ROWS)));
    }
}

/// Classes of k leave, with suppressed rows taken out; one class that is smaller keeps the release from beginning.
#[tokio::test(flavor = "multi_thread")]
async fn classes_of_k_leave_and_smaller_ones_do_not() {
    let sizes = [31, 32, 33, 63, 64, 65, 129, 193, 321];
    let rules = "columns = [\"id\", \"age\", \"zip\", \"illness\", \"region\", \"job\"]\nmin_k = 4\nk_columns = [\"age\", \"zip\", \"illness\"]";
    let hospital = Hospital::new(11, &names(&sizes), rules).await;
    let world = &hospital.world;
    for rows in sizes {
        add_people(world, rows).await;
        let suppress = if rows % 2 == 0 { 0.0 } else { 0.3 };
        let [whole, parts] = partitioned(rows);
        world
            .run(&format!(
                "CREATE TABLE anon_{rows} AS SELECT * FROM k_anonymize({parts}, k => 4, quasi => (age, zip, illness), rounds => 2, centres => 7, \
                 suppress => {suppress}, seed => 3, comparison => 'blinded', drop => (married))"
            ))
            .await
            .unwrap();
        let sql = format!("SELECT * FROM anon_{rows}");
        let expected = world.reveal(&sql).await.unwrap();
        let (found, received) = hospital.released(&sql).await;
        assert_eq!(rows_of(&found), rows_of(&expected), "{rows} rows");
        assert_eq!(received.suppressed as usize, rows - expected.num_rows(), "{rows} rows");
        let classes = received.manifest.manifest.classes.as_ref().unwrap();
        assert!(classes.passed && classes.smallest >= Some(4), "{rows} rows: {classes:?}");
        // The last of the people is like nobody else, whatever columns are told of.
        for columns in ["age, zip, illness", "age, zip", "zip", "age"] {
            let release = format!("SELECT * FROM release((SELECT {columns} FROM {whole}), recipient => 'alice')");
            let refused = world.refusal(&release).await;
            assert!(refused.starts_with("some rows of the release share"), "{rows} rows, {columns}: {refused}");
        }
    }
}
