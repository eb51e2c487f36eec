//! Sums and averages of many rows: what arrives is what the owner decrypts.

use super::*;

impl Hospital {
    /// Releases a table as it is, and compares; the parts of a table come in any order.
    async fn arrives(&self, table: &str) -> (RecordBatch, Received) {
        let sql = format!("SELECT * FROM {table}");
        let expected = self.world.reveal(&sql).await.unwrap();
        let (found, received) = self.released(&sql).await;
        assert_eq!(rows(&found), rows(&expected));
        (found, received)
    }

    async fn create(&self, sql: &str) {
        self.world.run(sql).await.unwrap();
    }
}

/// Rows as texts with the names of their columns, sorted.
fn rows(batch: &RecordBatch) -> Vec<Vec<(String, String)>> {
    let columns = texts(batch);
    let row = |row: usize| columns.iter().map(|(name, texts)| (name.clone(), texts[row].clone())).collect();
    let mut rows: Vec<Vec<(String, String)>> = (0..batch.num_rows()).map(row).collect();
    rows.sort();
    rows
}

/// Beside clear columns, with groups of many rows, of a few, of one, and of none that has a value.
#[tokio::test(flavor = "multi_thread")]
async fn groups_arrive_as_the_owner_reads_them() {
    let columns = r#"columns = ["age", "zip", "cost", "smoker", "region", "n"]"#;
    let hospital = Hospital::new(920, 6000, columns).await;
    let sums = "enc_sum(cost) AS cost, enc_avg(age) AS age, enc_avg(cost) AS mean, enc_count(smoker) AS smoker, enc_sum(smoker) AS smokers";
    hospital
        .create(&format!("CREATE TABLE sums AS SELECT region, count(*) AS n, {sums} FROM patients GROUP BY region"))
        .await;
    let (found, received) = hospital.arrives("sums").await;
    assert_eq!((found.num_rows(), found.num_columns()), (2, 7));
    // By hand: of three rows one is no smoker, one is, and one is not known; every other row is in the north.
    let found = texts(&found);
    let of = |name: &str| found.iter().find(|(other, _)| other == name).unwrap().1.clone();
    assert_eq!((of("smoker"), of("smokers")), (vec!["2000".to_owned(); 2], vec!["1000".to_owned(); 2]));
    let north = of("region").iter().position(|region| region == "north").unwrap();
    let ages: u32 = (0..6000).step_by(2).map(|row| 20 + row * 7 % 60).sum();
    assert_eq!(of("age")[north], format!("{:.4}", f64::from(ages) / 3000.0));
    assert_eq!(received.manifest.manifest.protocols["seal_parcel"], 3);

    // No row is in two of them.
    hospital
        .create("CREATE TABLE numbered AS SELECT row_number() OVER (PARTITION BY cost IS NULL) AS i, * FROM patients")
        .await;
    let some = |which: &str, rows: &str| {
        format!("SELECT '{which}' AS region, enc_sum(cost) AS cost, enc_avg(age) AS age FROM numbered WHERE {rows}")
    };
    let few = [
        some("few", "cost IS NOT NULL AND i BETWEEN 2 AND 6"),
        some("one", "cost IS NOT NULL AND i = 1"),
        some("none", "cost IS NULL AND i <= 40"),
        some("all", "cost IS NOT NULL AND i > 6"),
    ]
    .join(" UNION ALL ");
    hospital.create(&format!("CREATE TABLE few AS {few}")).await;
    let (found, _) = hospital.arrives("few").await;
    assert_eq!(texts(&found)[1].1.iter().filter(|cost| *cost == "NULL").count(), 1);
}

/// More sums than a parcel takes; and beside them columns as they are, and sums of two.
#[tokio::test(flavor = "multi_thread")]
async fn many_sums_take_several_parcels_and_mix_with_others() {
    let columns = r#"columns = ["age", "zip", "cost", "smoker", "illness", "name", "region", "n"]"#;
    let hospital = Hospital::new(921, 2400, columns).await;
    hospital.create("CREATE TABLE numbered AS SELECT row_number() OVER () AS n, * FROM patients").await;
    hospital
        .create("CREATE TABLE sums AS SELECT n % 600 AS n, enc_sum(cost) AS cost, enc_avg(zip) AS zip FROM numbered GROUP BY n % 600")
        .await;
    let (_, received) = hospital.arrives("sums").await;
    // Two sums a row, 512 a parcel.
    assert_eq!((received.rows, received.manifest.manifest.parcels), (600, 3));

    let mixed = "SELECT p.n, p.age, p.name, p.illness, p.smoker, enc_add(p.age, p.zip) AS two, s.cost, s.zip, p.region FROM numbered p JOIN sums s ON p.n = s.n";
    hospital.create(&format!("CREATE TABLE mixed AS {mixed}")).await;
    let (_, received) = hospital.arrives("mixed").await;
    assert_eq!((received.rows, received.manifest.manifest.parcels), (599, 3));
    assert!(received.manifest.manifest.protocols.contains_key("lift"));
}

/// What P2 cannot add noise to, round, count or hide is refused.
#[tokio::test(flavor = "multi_thread")]
async fn sums_keep_to_the_policy() {
    let rules = "columns = [\"age\", \"zip\", \"cost\", \"region\"]\nepsilon = { cost = 5.0 }\nmin_k = 3\nk_columns = [\"age\"]";
    let hospital = Hospital::new(922, 60, rules).await;
    let noised = hospital
        .refused("SELECT enc_sum(cost) AS cost FROM (SELECT dp_laplace(cost, 1.0) AS cost FROM patients)")
        .await;
    assert!(noised.starts_with("cost is computed from values that await P2's noise"), "{noised}");
    let without = hospital.refused("SELECT enc_sum(cost) AS cost FROM patients").await;
    assert!(without.contains("column cost only with noise"), "{without}");
    let alike = hospital.refused("SELECT region, enc_avg(age) AS age FROM patients GROUP BY region").await;
    assert!(alike.starts_with("the policy wants rows that share age, which is a sum or average"), "{alike}");
    let masked =
        hospital.refused("SELECT enc_sum(zip) AS zip FROM (SELECT mask_noise(zip, 0.1) AS zip FROM patients)").await;
    assert!(masked.starts_with("zip has places below its unit and may have more than 32 bits"), "{masked}");

    // Noise of P1 alone is in the sum already, and spends what the values have spent.
    hospital.create("SET veil.noise = 'single'").await;
    hospital
        .create("CREATE TABLE single AS SELECT enc_sum(cost) AS cost FROM (SELECT dp_laplace(cost, 1.0) AS cost FROM patients)")
        .await;
    let (_, received) = hospital.arrives("single").await;
    assert_eq!(received.manifest.manifest.spent["cost"], 1_000_000);
    assert_eq!(received.manifest.manifest.columns[0].noise, NoiseBy::P1);
}

/// Suppressed rows are in no sum that leaves, and no sum leaves beside them.
#[tokio::test(flavor = "multi_thread")]
async fn sums_and_suppressed_rows_do_not_mix() {
    let hospital = Hospital::new(923, 40, EVERYTHING).await;
    hospital
        .create(
            "CREATE TABLE anon AS SELECT * FROM k_anonymize((SELECT age, smoker, cost, region FROM patients), k => 4, comparison => 'blinded', quasi => (age), rounds => 1, \
             suppress => 0.2, seed => 5)",
        )
        .await;
    for sum in ["enc_sum(age) AS age", "enc_avg(age) AS age", "enc_count(smoker) AS smoker", "enc_sum(cost) AS cost"] {
        let refused = hospital.refused(&format!("SELECT {sum} FROM anon")).await;
        assert!(refused.contains("are suppressed, and the column that tells which is missing"), "{sum}: {refused}");
    }
    hospital.create("CREATE TABLE sums AS SELECT region, enc_sum(zip) AS zip FROM patients GROUP BY region").await;
    let joined = "SELECT anon.age, anon.suppressed, sums.zip FROM anon JOIN sums ON anon.region = sums.region";
    let refused = hospital.refused(joined).await;
    assert!(
        refused.starts_with("zip is a sum or average, or may have more than 32 bits, and rows beside it"),
        "{refused}"
    );
}
