//! From a query to what a recipient opens: equal to what the owner decrypts, plus the noise of both servers.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, LargeBinaryArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::Int64Type;
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_keys::RecipientKey;
use veil_recipient::{Opener, Received};
use veil_release::testing::PERMISSIVE_ASK;
use veil_release::{
    HEADER_NUMBER, Header, Ledger, NoiseBy, Party, Policy, ReleaseDesk, ReleaseId, SEAL_INFO, associated, seal_to,
};
use veilfusion::protocols::{InProcess, Limits, Randomness, Responder};

use super::world::World;

mod sums;

/// A world whose P2 releases, and a recipient.
pub(super) struct Hospital {
    pub(super) world: World,
    pub(super) alice: RecipientKey,
}

pub(super) const DECLARATION: &str = r#"
[table]
name = "patients"
[column.name]
kind = "text"
max_length = 12
[column.age]
kind = "integer"
range = [0, 120]
identifier = true
[column.zip]
kind = "integer"
range = [0, 99999]
[column.cost]
kind = "decimal"
scale = 2
range = [0, 1000]
[column.smoker]
kind = "binary"
values = ["no", "yes"]
hide_nulls = true
[column.illness]
kind = "category"
hierarchy = "illness.csv"
[column.born]
kind = "date"
range = ["1900-01-01", "2020-12-31"]
[column.region]
kind = "clear"
"#;

const HIERARCHY: &str = "flu,infectious,*\nmeasles,infectious,*\nasthma,lung,*\ncopd,lung,*\n";

/// So many patients, of whom some values are missing.
pub(super) fn patients(rows: usize) -> String {
    let illnesses = ["flu", "measles", "asthma", "copd"];
    let mut csv = "name,age,zip,cost,smoker,illness,born,region\n".to_owned();
    for row in 0..rows {
        let cost = if row % 17 == 3 { String::new() } else { format!("{}.{:02}", row % 1000, row % 100) };
        let smoker = ["no", "yes", ""][row % 3];
        let born = format!("{}-{:02}-{:02}", 1930 + row % 80, 1 + row % 12, 1 + row % 28);
        let (age, zip) = (20 + row * 7 % 60, 10_000 + row * 131 % 80_000);
        let region = if row % 2 == 0 { "north" } else { "south" };
        csv += &format!("N{row}é,{age},{zip},{cost},{smoker},{},{born},{region}\n", illnesses[row % 4]);
    }
    csv
}

impl Hospital {
    /// With a policy's rules for alice.
    pub(super) async fn new(seed: u64, rows: usize, rules: &str) -> Self {
        let world = World::without_p2(seed).await;
        world.write("illness.csv", HIERARCHY);
        world.table("patients", &patients(rows), DECLARATION).await;
        let alice = RecipientKey::generate("alice", &mut StdRng::seed_from_u64(seed + 1)).unwrap();
        let hospital = Self { world, alice };
        hospital.allow(rules).await;
        let signer = Arc::new(hospital.world.owner.p1());
        hospital.world.veil.set_signer(hospital.world.owner.key_id(), signer).await;
        hospital
    }

    /// P2 starts anew with other rules, and its ledger as it was.
    pub(super) async fn allow(&self, rules: &str) {
        let responder = self.responder(rules).await;
        self.world.veil.set_channel(Arc::new(InProcess::new(responder))).await;
    }

    /// A P2 with these rules, and the ledger as it was.
    pub(super) async fn responder(&self, rules: &str) -> Arc<Responder> {
        let owner = &self.world.owner;
        let policy = self.policy("", rules);
        // The one before must let its ledger go.
        let closed = Responder::new(Arc::new(owner.p2()), Limits::default(), Randomness::os());
        self.world.veil.set_channel(Arc::new(InProcess::new(Arc::new(closed)))).await;
        let state = self.world.at("state");
        std::fs::create_dir_all(&state).unwrap();
        let desk = ReleaseDesk::new(policy, Ledger::open(&state).unwrap(), owner.p2());
        let responder = Responder::new(Arc::new(owner.p2()), Limits::default(), Randomness::os());
        Arc::new(responder.with_desk(Arc::new(desk)))
    }

    /// A policy with these rules for alice, and more words before them.
    pub(super) fn policy(&self, words: &str, rules: &str) -> Policy {
        let (key_set, key) = (self.world.owner.key_id(), self.alice.public());
        let text = format!(
            "[policy]\nkey_set = \"{key_set}\"\n{words}{PERMISSIVE_ASK}[recipient.alice]\nkey = \"{key}\"\n[[recipient.alice.allow]]\ntable = \"patients\"\n{rules}"
        );
        Policy::parse(&text).unwrap()
    }

    /// What alice opens of a query's release.
    pub(super) async fn released(&self, sql: &str) -> (RecordBatch, Received) {
        let sealed = self.world.run(&format!("SELECT * FROM release(({sql}), recipient => 'alice')")).await.unwrap();
        let mut opener = Opener::new(self.alice.clone()).with_owner(self.world.owner.public());
        let opened = opener.open(&[sealed]).unwrap();
        let received = opener.finish().unwrap();
        (concat_batches(&received.schema, &opened).unwrap(), received)
    }

    pub(super) async fn refused(&self, sql: &str) -> String {
        self.world.refusal(&format!("SELECT * FROM release(({sql}), recipient => 'alice')")).await
    }
}

const EVERYTHING: &str = r#"columns = ["name", "age", "zip", "cost", "smoker", "illness", "born", "region"]"#;

/// Columns by name, as texts.
pub(super) fn texts(batch: &RecordBatch) -> Vec<(String, Vec<String>)> {
    let print = |column: &Arc<dyn Array>| {
        let options = datafusion::arrow::util::display::FormatOptions::default().with_null("NULL");
        let shown = datafusion::arrow::util::display::ArrayFormatter::try_new(column, &options).unwrap();
        (0..column.len()).map(|row| shown.value(row).to_string()).collect()
    };
    let names = batch.schema_ref().fields().iter().map(|field| field.name().clone());
    names.zip(batch.columns().iter().map(print)).collect()
}

/// Every kind, NULLs and clear columns, more than one parcel: what the owner reads is what alice gets.
#[tokio::test(flavor = "multi_thread")]
async fn the_recipient_gets_what_the_owner_reads() {
    let hospital = Hospital::new(900, 9000, EVERYTHING).await;
    let sql =
        "SELECT name, age, zip, cost, smoker, illness, born, region FROM patients WHERE region = 'north' OR age >= 0"
            .replace(" OR age >= 0", " OR region = 'south'");
    let expected = hospital.world.reveal(&sql).await.unwrap();
    let (found, received) = hospital.released(&sql).await;
    assert_eq!(found.num_rows(), 9000);
    assert_eq!(texts(&found), texts(&expected));
    let manifest = &received.manifest.manifest;
    assert_eq!((manifest.rows, manifest.parcels, received.suppressed), (9000, 2, 0));
    assert_eq!(manifest.columns.len(), 8);
    assert_eq!(manifest.protocols.keys().collect::<Vec<_>>(), ["apply", "attest", "seal_parcel"]);
    assert!(manifest.query.starts_with("release((SELECT name, age"), "{}", manifest.query);
}

/// Rows arrive in the order of a query that has one (SQL gives that of a subquery up, unless it is cut), and no two columns under one name.
#[tokio::test(flavor = "multi_thread")]
async fn rows_arrive_in_order() {
    let hospital = Hospital::new(907, 500, EVERYTHING).await;
    hospital
        .world
        .run("CREATE TABLE numbered AS SELECT row_number() OVER () AS n, age, region FROM patients")
        .await
        .unwrap();
    hospital.allow(r#"columns = ["age", "region", "n"]"#).await;
    let sql = "SELECT n, age FROM numbered ORDER BY n DESC LIMIT 400";
    let (found, _) = hospital.released(sql).await;
    let expected: Vec<String> = (101..=500).rev().map(|n| n.to_string()).collect();
    assert_eq!(texts(&found)[0].1, expected);
    let twice = hospital.refused("SELECT a.age, b.age FROM numbered a JOIN numbered b ON a.n = b.n").await;
    assert!(twice.starts_with("the release would have two columns age"), "{twice}");
}

/// Who can seal to alice cannot change what her rows mean: the header is part of what both servers sign.
#[tokio::test(flavor = "multi_thread")]
async fn another_header_does_not_agree_with_the_manifest() {
    let hospital = Hospital::new(908, 20, EVERYTHING).await;
    let sealed =
        hospital.world.run("SELECT * FROM release((SELECT age FROM patients), recipient => 'alice')").await.unwrap();
    let release: ReleaseId = sealed.column(0).as_string::<i32>().value(0).parse().unwrap();
    let parts = sealed.column(2).as_binary::<i64>();
    let bound = associated(release, Party::P2, HEADER_NUMBER);
    let mut header = Header::parse(&hospital.alice.open(SEAL_INFO, &bound, parts.value(0)).unwrap()).unwrap();
    let (cell_type, note) = header.columns[0].encrypted.clone().unwrap();
    header.columns[0].encrypted = Some((veilfusion::cells::CellType { weight: 7, ..cell_type }, note));
    let mut rng = StdRng::seed_from_u64(3);
    let forged = seal_to(&hospital.alice.public(), SEAL_INFO, &bound, &header.to_bytes().unwrap(), &mut rng).unwrap();
    let parts = parts.iter().enumerate().map(|(row, part)| if row == 0 { Some(forged.as_slice()) } else { part });
    let mut columns = sealed.columns().to_vec();
    columns[2] = Arc::new(parts.collect::<LargeBinaryArray>());
    let mut opener = Opener::new(hospital.alice.clone());
    opener.open(&[RecordBatch::try_new(sealed.schema(), columns).unwrap()]).unwrap();
    assert!(opener.finish().unwrap_err().to_string().contains("header"));
}

/// As many rows as parcels have: no empty parcel, and nobody is lost.
#[tokio::test(flavor = "multi_thread")]
async fn parcels_may_be_full_to_the_last_row() {
    let hospital = Hospital::new(906, 8192, EVERYTHING).await;
    let sql = "SELECT age, region FROM patients";
    let expected = hospital.world.reveal(sql).await.unwrap();
    let (found, received) = hospital.released(sql).await;
    assert_eq!(texts(&found), texts(&expected));
    assert_eq!((received.rows, received.manifest.manifest.parcels), (8192, 1));
}

/// Masks and computed columns: rounded to the unit, as the owner's decryption does.
#[tokio::test(flavor = "multi_thread")]
async fn computed_columns_arrive_rounded() {
    let hospital = Hospital::new(901, 40, EVERYTHING).await;
    hospital
        .world
        .run(
            "CREATE TABLE masked AS SELECT mask_noise(zip, 0.1) AS zip, mask_shift(age, 3) AS age, enc_scale(age, -2) AS twice, \
             mask_redact(name, 'nobody') AS name FROM patients",
        )
        .await
        .unwrap();
    let expected = hospital.world.reveal("SELECT * FROM masked").await.unwrap();
    let (found, _) = hospital.released("SELECT * FROM masked").await;
    assert_eq!(texts(&found), texts(&expected));
}

/// How often a region stands in what P1 sealed.
async fn region_in_sight(hospital: &Hospital, sql: &str) -> usize {
    let sealed = hospital.world.run(&format!("SELECT * FROM release(({sql}), recipient => 'alice')")).await.unwrap();
    let release: ReleaseId = sealed.column(0).as_string::<i32>().value(0).parse().unwrap();
    let part = sealed.column(3).as_binary::<i64>().value(1);
    let opened = hospital.alice.open(SEAL_INFO, &associated(release, Party::P1, 1), part).unwrap();
    opened.windows(5).filter(|bytes| matches!(*bytes, b"north" | b"south")).count()
}

/// The recipient gets classes of k, suppressed rows stay out, and P2 has counted.
#[tokio::test(flavor = "multi_thread")]
async fn anonymised_rows_arrive_without_suppressed_ones() {
    let rules = r#"columns = ["name", "age", "illness", "cost", "region"]
min_k = 4
k_columns = ["age", "illness"]"#;
    let hospital = Hospital::new(902, 60, rules).await;
    hospital
        .world
        .run(
            "CREATE TABLE anon AS SELECT * FROM k_anonymize((SELECT name, age, illness, cost, region FROM patients), k => 4, comparison => 'blinded', quasi => (age, illness), \
             rounds => 2, suppress => 0.2, seed => 5)",
        )
        .await
        .unwrap();
    let expected = hospital.world.reveal("SELECT * FROM anon").await.unwrap();
    assert!(expected.num_rows() < 60, "somebody is suppressed");
    let (found, received) = hospital.released("SELECT * FROM anon").await;
    assert_eq!(texts(&found), texts(&expected));
    assert_eq!(received.suppressed as usize, 60 - expected.num_rows());
    let classes = received.manifest.manifest.classes.as_ref().unwrap();
    assert!(classes.required == 4 && classes.passed && classes.smallest >= Some(4), "{classes:?}");
    assert_eq!(received.manifest.manifest.suppressed, Some(received.suppressed));

    assert_eq!(
        region_in_sight(&hospital, "SELECT * FROM anon").await,
        0,
        "clear columns are under the keys of their rows"
    );
    hospital.allow(EVERYTHING).await;
    assert!(region_in_sight(&hospital, "SELECT age, region FROM patients").await > 0);
    hospital.allow(rules).await;

    let (nobody, received) = hospital.released("SELECT * FROM anon WHERE region = 'west'").await;
    assert_eq!((nobody.num_rows(), nobody.num_columns(), received.manifest.manifest.parcels), (0, 5, 0));
    let lost = hospital.refused("SELECT age, illness, cost, region FROM anon").await;
    assert!(lost.starts_with("some rows of age are suppressed, and the column that tells which is missing"), "{lost}");
    let long = "SELECT age, illness, suppressed, repeat(region, 1000) AS region FROM anon";
    let long = hospital.refused(long).await;
    assert!(long.starts_with("column region: clear values of 5") && long.contains("4092 are the most"), "{long}");
    let other = "CREATE TABLE other AS SELECT * FROM k_anonymize((SELECT cost, region FROM patients WHERE cost IS NOT NULL), k => 4, comparison => 'blinded', quasi => (cost), \
                 rounds => 1, suppress => 0.2, centres => 3, seed => 5)";
    hospital.world.run(other).await.unwrap();
    let joined = "FROM anon JOIN other ON anon.region = other.region";
    let lost = hospital.refused(&format!("SELECT anon.age, other.cost, other.suppressed {joined}")).await;
    assert!(lost.starts_with("some rows of age are suppressed, and the column that tells which is missing"), "{lost}");
    let both = format!("SELECT anon.age, anon.suppressed, other.cost, other.suppressed AS others {joined}");
    let both = hospital.refused(&both).await;
    assert!(both.starts_with("two columns tell which rows are suppressed, others is the second"), "{both}");
    let small = hospital.refused("SELECT age, illness, cost, region FROM patients").await;
    assert!(small.starts_with("some rows of the release share age, illness with fewer than 3 others"), "{small}");
}

/// Noise of both servers: the sum of the engine's, which the owner sees, and of P2's, which comes on top.
#[tokio::test(flavor = "multi_thread")]
async fn noise_of_both_servers_is_in_what_arrives() {
    let rules = r#"columns = ["age", "smoker", "illness"]
epsilon = { age = 3.0, smoker = 3.0, illness = 3.0 }"#;
    let hospital = Hospital::new(903, 400, rules).await;
    hospital
        .world
        .run(
            "CREATE TABLE noisy AS SELECT dp_laplace(age, 1.0) AS age, dp_binary(smoker, 1.0) AS smoker, dp_exponential(illness, 1.0) AS illness \
             FROM patients",
        )
        .await
        .unwrap();
    let engine = hospital.world.reveal("SELECT * FROM noisy").await.unwrap();
    let (found, received) = hospital.released("SELECT * FROM noisy").await;
    let ages = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    let added: Vec<i64> = ages(&found).iter().zip(ages(&engine)).map(|(found, engine)| found - engine).collect();
    // Laplace noise of scale 120: its mean size is 120, and hardly any is nothing.
    let size = added.iter().map(|noise| noise.unsigned_abs() as f64).sum::<f64>() / added.len() as f64;
    assert!((90.0..160.0).contains(&size), "{size}");
    let differ = |column: usize| {
        let (one, other) = (&texts(&found)[column].1, &texts(&engine)[column].1);
        one.iter().zip(other).filter(|(one, other)| one != other && *one != "NULL").count() as f64 / 400.0
    };
    // A flip has probability 1/(1 + e) = 0.27, of two rows in three; another illness than the drawn one is more likely.
    assert!((0.09..0.30).contains(&differ(1)), "{}", differ(1));
    assert!((0.35..0.85).contains(&differ(2)), "{}", differ(2));
    let nulls = texts(&found)[1].1.iter().filter(|text| *text == "NULL").count();
    assert_eq!(nulls, 133);
    assert!(received.manifest.manifest.columns.iter().all(|column| column.noise == NoiseBy::Both));
    assert!(received.manifest.manifest.protocols.contains_key("redraw"));

    // 3 is enough for three releases of 1.
    hospital.released("SELECT * FROM noisy").await;
    hospital.released("SELECT age FROM noisy").await;
    let spent = hospital.refused("SELECT age FROM noisy").await;
    assert!(spent.contains("age") && spent.contains("3 of 3"), "{spent}");
    hospital.released("SELECT illness FROM noisy").await;
    let without = hospital.refused("SELECT age FROM patients").await;
    assert!(without.contains("noise"), "{without}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_policy_does_not_allow_is_refused() {
    let hospital = Hospital::new(904, 30, "columns = [\"age\", \"cost\"]\nmin_rows = 20").await;
    let refused = hospital.refused("SELECT name FROM patients").await;
    assert!(refused.contains("name") && refused.contains("alice"), "{refused}");
    let refused = hospital.refused("SELECT age FROM patients LIMIT 5").await;
    assert_eq!(refused, "5 rows are fewer than the 20 that the policy wants in a release: ask for more");
    let bob = hospital.world.refusal("SELECT * FROM release((SELECT age FROM patients), recipient => 'bob')").await;
    assert!(bob.contains("bob"), "{bob}");
    let nobody = hospital.world.refusal("SELECT * FROM release((SELECT age FROM patients))").await;
    assert_eq!(nobody, "release needs recipient => 'alice'");
    let clear =
        hospital.world.refusal("SELECT * FROM release((SELECT region FROM patients), recipient => 'alice')").await;
    assert_eq!(clear, "no column of the table is encrypted: release is for encrypted tables");
    let few = hospital.refused("SELECT enc_avg(age) AS age FROM (SELECT * FROM patients LIMIT 19)").await;
    let sentence = "a sum or average of the release is of 19 rows that count the same in it, and the policy wants 20: group less finely";
    assert_eq!(few, sentence);
    let (average, _) = hospital.released("SELECT enc_avg(age) AS age FROM patients").await;
    assert_eq!(average.num_rows(), 1);

    let (found, _) = hospital.released("SELECT age, cost FROM patients").await;
    assert_eq!((found.num_rows(), found.num_columns()), (30, 2));
    let sealed =
        hospital.world.run("SELECT * FROM release((SELECT age FROM patients), recipient => 'alice')").await.unwrap();
    let other = RecipientKey::generate("alice", &mut StdRng::seed_from_u64(1)).unwrap();
    assert!(Opener::new(other).open(&[sealed]).is_err());

    let world = World::new(905).await;
    let desk = ReleaseDesk::new(None, Ledger::in_memory(), world.owner.p2());
    let closed = Responder::new(Arc::new(world.owner.p2()), Limits::default(), Randomness::os());
    world.veil.set_channel(Arc::new(InProcess::new(Arc::new(closed.with_desk(Arc::new(desk)))))).await;
    world.write("illness.csv", HIERARCHY);
    world.table("patients", &patients(3), DECLARATION).await;
    world.veil.set_signer(world.owner.key_id(), Arc::new(world.owner.p1())).await;
    let closed = world.refusal("SELECT * FROM release(patients, recipient => 'alice')").await;
    assert!(closed.starts_with("P2 releases nothing: start it with --policy and --state"), "{closed}");
}
