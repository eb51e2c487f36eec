//! A row is a person, and counts once: what legal SQL does to pass copies, constants and sums of few rows for people is refused.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;

use super::release::Hospital;

const COLUMNS: &str =
    r#"columns = ["name", "age", "zip", "cost", "smoker", "illness", "born", "region", "a", "b", "n"]"#;

/// What every copy is refused with.
const TWICE: &str = "hold the same row of an encrypted file";

async fn hospital(seed: u64, rows: usize, rules: &str) -> Hospital {
    Hospital::new(seed, rows, &format!("{COLUMNS}\n{rules}")).await
}

/// Copies of rows are no people, however they are made and whatever is done to them afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn copies_do_not_leave() {
    let hospital = hospital(930, 120, "min_k = 10\nk_columns = [\"age\", \"zip\"]").await;
    let copies = "(SELECT * FROM patients LIMIT 30) CROSS JOIN generate_series(1, 10)";
    let few = "(SELECT * FROM patients LIMIT 1) CROSS JOIN generate_series(1, 40)";
    for sql in [
        format!("SELECT born, zip FROM {copies}"),
        format!("SELECT mask_shift(age, 1) AS age, mask_noise(zip, 0.1) AS zip FROM {copies}"),
        format!("SELECT age, mask_random(zip, 1, 9) AS zip FROM {copies}"),
        format!("SELECT mask_random(zip, 1, 9) AS zip FROM {copies}"),
        format!("SELECT age, dp_laplace(cost, 5.0) AS cost FROM {few}"),
        format!("SELECT dp_laplace(age, 5.0) AS age FROM {few}"),
        format!("SELECT dp_exponential(illness, 1.0) AS illness FROM {few}"),
        format!("SELECT CASE WHEN value > 3 THEN age ELSE mask_shift(age, 2) END AS age FROM {copies}"),
        format!("SELECT coalesce(cost, cost) AS cost, age FROM {copies}"),
        format!("SELECT * FROM k_anonymize((SELECT age, zip FROM {few}), k => 10, quasi => (age, zip), rounds => 1)"),
        "SELECT age FROM patients UNION ALL SELECT age FROM patients".to_owned(),
        "SELECT illness FROM patients UNION ALL SELECT illness FROM patients WHERE age IS NOT NULL".to_owned(),
        "SELECT p.age, q.zip FROM patients p JOIN patients q ON p.region = q.region".to_owned(),
        "SELECT p.age FROM patients p JOIN (VALUES ('north'), ('north')) AS r(region) ON p.region = r.region"
            .to_owned(),
    ] {
        let refused = hospital.refused(&sql).await;
        assert!(refused.contains(TWICE), "{sql}\n{refused}");
    }
    // One person's several columns as rows of their own.
    let unpivoted = hospital.refused("SELECT age FROM patients UNION ALL SELECT zip AS age FROM patients").await;
    assert!(unpivoted.contains("is made of other columns in some rows"), "{unpivoted}");
    // What is not repeated leaves.
    hospital.allow(COLUMNS).await;
    let (found, _) = hospital.released("SELECT age, zip, mask_random(cost, 1, 2) AS cost FROM patients").await;
    assert_eq!(found.num_rows(), 120);
}

/// The same row in another table, in a file that was written and read again, and below what made it anew.
#[tokio::test(flavor = "multi_thread")]
async fn copies_are_known_in_files_and_tables() {
    let hospital = hospital(931, 60, "").await;
    let world = &hospital.world;
    let made = "SELECT dp_laplace(cost, 1.0) AS cost, mask_random(zip, 1, 9) AS zip, age, row_number() OVER () AS n, region FROM patients";
    let file = world.at("made.parquet");
    world.run(&format!("COPY ({made}) TO '{}'", file.display())).await.unwrap();
    world.create("written", &file).await;
    world.run(&format!("CREATE TABLE kept AS {made}")).await.unwrap();
    let (found, _) = hospital.released("SELECT cost, zip FROM written").await;
    assert_eq!(found.num_rows(), 60);
    for sql in [
        "SELECT cost FROM written UNION ALL SELECT cost FROM kept",
        "SELECT zip FROM written UNION ALL SELECT zip FROM kept",
        "SELECT zip FROM written UNION ALL SELECT age AS zip FROM patients",
        "SELECT cost FROM written CROSS JOIN generate_series(1, 2)",
        "SELECT w.cost FROM written w JOIN (SELECT n % 7 AS n FROM kept) k ON w.n = k.n",
    ] {
        let refused = hospital.refused(sql).await;
        assert!(refused.contains(TWICE), "{sql}\n{refused}");
    }
}

/// A sum is of as many rows as the policy wants, with even weights, and no row is in two of them.
#[tokio::test(flavor = "multi_thread")]
async fn sums_of_few_rows_do_not_leave() {
    let hospital = hospital(932, 400, "min_rows = 2").await;
    let world = &hospital.world;
    world.run("CREATE TABLE numbered AS SELECT row_number() OVER () AS n, * FROM patients").await.unwrap();
    let one = "(SELECT * FROM numbered WHERE n = 1)";
    let pair = |sum: &str| format!("SELECT {sum} FROM numbered WHERE n < 300 GROUP BY n % 2");
    for sum in [
        // One person, thirty-three times.
        format!("SELECT enc_sum(age) AS age FROM {one} CROSS JOIN generate_series(1, 33) UNION ALL SELECT enc_sum(age) FROM numbered WHERE n > 9"),
        format!("SELECT enc_avg(age) AS age FROM {one} UNION ALL SELECT enc_avg(age) FROM numbered WHERE n > 9"),
        // One that outweighs the others.
        pair("enc_sum(CASE WHEN n = 1 THEN enc_scale(age, 1000) ELSE age END) AS age"),
        pair("enc_sum(CASE WHEN n = 1 THEN zip ELSE age END) AS age"),
        // All others taken away again.
        "SELECT enc_sub(a.age, b.age) AS age FROM (SELECT n % 2 AS g, enc_sum(age) AS age FROM numbered GROUP BY n % 2) a JOIN \
         (SELECT n % 2 AS g, enc_sum(age) AS age FROM numbered WHERE n > 2 GROUP BY n % 2) b ON a.g = b.g"
            .to_owned(),
    ] {
        let refused = hospital.refused(&sum).await;
        assert!(refused.contains("is of 1 rows that count the same in it"), "{sum}\n{refused}");
    }
    for (sql, reason) in [
        ("SELECT enc_sum(age) AS age FROM numbered UNION ALL SELECT enc_sum(age) FROM numbered WHERE n > 9", TWICE),
        ("SELECT a.age, s.zip FROM numbered a CROSS JOIN (SELECT enc_sum(zip) AS zip FROM numbered) s", TWICE),
    ] {
        let refused = hospital.refused(sql).await;
        assert!(refused.contains(reason), "{sql}\n{refused}");
    }
    let (found, _) = hospital.released(&pair("enc_sum(age) AS age, enc_avg(enc_scale(zip, 3)) AS zip")).await;
    assert_eq!(found.num_rows(), 2);
}

/// A known value beside one that is not known would tell it.
#[tokio::test(flavor = "multi_thread")]
async fn constants_are_nobody() {
    let hospital = hospital(933, 60, "min_k = 5\nk_columns = [\"age\"]").await;
    let world = &hospital.world;
    world.run("CREATE TABLE numbered AS SELECT row_number() OVER () AS n, * FROM patients").await.unwrap();
    let beside = |other: &str| {
        format!("(SELECT CASE WHEN n = 1 THEN age ELSE {other} END AS age, zip FROM numbered WHERE n < 20)")
    };
    let union = "(SELECT age FROM numbered WHERE n = 1 UNION ALL SELECT mask_redact(age, 30) FROM numbered WHERE n BETWEEN 2 AND 9)";
    let rows = [
        beside("mask_redact(age, 30)"),
        beside("enc_scale(age, 0)"),
        beside("enc_sub(age, age)"),
        beside("mask_shift(enc_scale(age, 0), 30)"),
        beside("mask_random(age, 30, 30)"),
        union.to_owned(),
    ];
    for (at, made) in rows.iter().enumerate() {
        let rows = format!("made_{at}");
        world.run(&format!("CREATE TABLE {rows} AS SELECT * FROM {made}")).await.unwrap();
        for question in [
            format!("SELECT * FROM k_anonymize({rows}, k => 5, quasi => (age), rounds => 1)"),
            format!("SELECT * FROM risk({rows}, quasi => (age))"),
            format!("SELECT * FROM class_sizes({rows}, quasi => (age))"),
            format!("SELECT * FROM identifiers({rows}, k => 5, columns => (age))"),
            format!("SELECT * FROM sweep({rows}, k => (5), quasi => (age))"),
            format!("SELECT * FROM release({made}, recipient => 'alice')"),
        ] {
            let refused = world.refusal(&question).await;
            // What is computed has no bounds to scale distances by, and does not get so far.
            let is_refused = refused.contains("constants that the engine made")
                || question.contains("k_anonymize(") && refused.contains("was computed and has no bounds")
                || question.contains("sweep(") && refused.contains("was computed and has no bounds");
            assert!(is_refused, "{question}\n{refused}");
        }
    }
    // Another column is no better than a constant: its values are few.
    world.run(&format!("CREATE TABLE other AS SELECT * FROM {}", beside("zip"))).await.unwrap();
    for question in ["identifiers(other, k => 5, columns => (age))", "risk(other, quasi => (age))"] {
        let refused = world.refusal(&format!("SELECT * FROM {question}")).await;
        assert!(refused.contains("or of another one than it has its type from"), "{question}: {refused}");
    }
    // A column that is the same for everybody tells nothing, and is no obstacle.
    let alike = "(SELECT mask_redact(age, 30) AS age, zip FROM patients)";
    let sizes = world.run(&format!("SELECT * FROM class_sizes({alike}, quasi => (age, zip))")).await.unwrap();
    assert!(sizes.num_rows() > 0);
}

/// Questions about rows that are there twice are refused, and all others answered.
#[tokio::test(flavor = "multi_thread")]
async fn questions_count_rows_once() {
    let hospital = hospital(934, 40, "").await;
    let world = &hospital.world;
    let twice = "(SELECT p.* FROM patients p CROSS JOIN generate_series(1, 2))";
    let unpivoted = "unpivoted";
    world.run("CREATE TABLE unpivoted AS SELECT age FROM patients UNION ALL SELECT zip FROM patients").await.unwrap();
    for question in [
        format!("SELECT * FROM identifiers({twice}, k => 3, columns => (age, zip))"),
        format!("SELECT * FROM identifiers({twice}, k => 3, columns => (age), shuffle => false)"),
        format!("SELECT * FROM risk({twice}, quasi => (age))"),
        format!("SELECT * FROM class_sizes({unpivoted}, quasi => (age))"),
        format!("SELECT * FROM k_anonymize({unpivoted}, k => 2, quasi => (age), rounds => 1)"),
        format!("SELECT * FROM sweep({twice}, k => (2), quasi => (age))"),
        format!("SELECT * FROM utility({twice}, (SELECT * FROM patients), quasi => (age))"),
    ] {
        let refused = world.refusal(&question).await;
        let is_refused = refused.contains(TWICE)
            || question.contains("unpivoted") && refused.contains("or of another one than it has its type from")
            || question.contains("k_anonymize(unpivoted") && refused.contains("was computed and has no bounds");
        assert!(is_refused, "{question}\n{refused}");
    }
    let sizes = world.run("SELECT * FROM class_sizes(patients, quasi => (age))").await.unwrap();
    let (size, classes) = (sizes.column(0).as_primitive::<Int64Type>(), sizes.column(1).as_primitive::<Int64Type>());
    let rows: i64 = size.values().iter().zip(classes.values()).map(|(size, classes)| size * classes).sum();
    assert_eq!(rows, 40);
}

/// Values that were drawn, made anew or taken away again are nobody's, whatever they are added to.
#[tokio::test(flavor = "multi_thread")]
async fn made_up_values_pass_for_nobody() {
    let hospital = hospital(935, 120, "min_k = 10\nk_columns = [\"age\"]").await;
    let world = &hospital.world;
    world.run("CREATE TABLE numbered AS SELECT row_number() OVER () AS n, * FROM patients").await.unwrap();
    let beside = |own: &str, other: &str| {
        format!("SELECT {own} AS age FROM numbered WHERE n = 7 UNION ALL SELECT {other} FROM numbered WHERE n <> 7")
    };
    let constant = "enc_add(enc_sub(enc_add(age, mask_random(age, 0, 0)), age), 43)";
    let alone = "enc_sub(enc_add(enc_scale(age, 2), mask_random(age, 0, 0)), age)";
    // Two runs that come out alike, one taken from the other.
    for run in ["one", "other"] {
        let sql = format!(
            "CREATE TABLE {run} AS SELECT n, age FROM k_anonymize((SELECT n, age FROM numbered), k => 40, quasi => (age), rounds => 1, seed => 3, \
             comparison => 'blinded')"
        );
        world.run(&sql).await.unwrap();
    }
    let difference = "SELECT enc_sub(a.age, b.age) AS age FROM one a JOIN other b ON a.n = b.n";
    for (at, sql) in [beside(alone, constant), beside(constant, constant), difference.to_owned()].iter().enumerate() {
        world.run(&format!("CREATE TABLE made_{at} AS {sql}")).await.unwrap();
        for question in [
            format!("SELECT * FROM class_sizes(made_{at}, quasi => (age))"),
            format!("SELECT * FROM identifiers(made_{at}, k => 2, columns => (age))"),
            format!("SELECT * FROM release((SELECT * FROM made_{at}), recipient => 'alice')"),
        ] {
            let refused = world.refusal(&question).await;
            assert!(refused.contains("could be a constant"), "{question}\n{refused}");
        }
    }
    // Noise of rows that share a value says what the value is.
    for noisy in ["dp_laplace(age, 0.1)", "dp_geometric(age, 0.1)"] {
        let refused = world.refusal(&format!("SELECT {noisy} AS age FROM one")).await;
        assert!(refused.contains("the noise would average out"), "{noisy}: {refused}");
    }
}

/// A sum is of as many people as have something in it, alike, and no two sums of a row tell what lies between them.
#[tokio::test(flavor = "multi_thread")]
async fn sums_are_of_people() {
    let hospital = hospital(936, 120, "min_rows = 50").await;
    let world = &hospital.world;
    world.run("CREATE TABLE numbered AS SELECT row_number() OVER () AS n, * FROM patients").await.unwrap();
    world
        .run(
            "CREATE TABLE alike AS SELECT n, age FROM k_anonymize((SELECT n, age FROM numbered), k => 40, quasi => (age), rounds => 1, \
             comparison => 'blinded')",
        )
        .await
        .unwrap();
    let padded =
        "SELECT age AS x FROM numbered WHERE n = 7 UNION ALL SELECT mask_random(age, 0, 0) FROM numbered WHERE n <> 7";
    for sql in [
        format!("SELECT enc_sum(x) AS age FROM ({padded})"),
        format!("SELECT enc_avg(x) AS age FROM ({padded})"),
        "SELECT enc_sum(CASE WHEN n.n = 7 THEN n.age ELSE a.age END) AS age FROM numbered n JOIN alike a ON n.n = a.n".to_owned(),
        "SELECT enc_add(enc_scale(s.v, -1), c.v) AS smoker FROM (SELECT enc_sum(smoker) AS v FROM numbered WHERE n = 7) s CROSS JOIN \
         (SELECT enc_count(smoker) AS v FROM numbered WHERE n <> 7) c"
            .to_owned(),
    ] {
        let refused = hospital.refused(&sql).await;
        assert!(refused.contains("is of 1 rows that count the same in it"), "{sql}\n{refused}");
    }
    let refused = hospital.refused(&format!("SELECT x AS age FROM ({padded})")).await;
    assert_eq!(refused, "1 rows are fewer than the 50 that the policy wants in a release: ask for more");
    let pair = |rows: &str| {
        format!(
            "SELECT a.v AS age, b.v AS n FROM (SELECT enc_sum(age) AS v FROM numbered) a CROSS JOIN (SELECT enc_sum(age) AS v FROM numbered WHERE {rows}) b"
        )
    };
    for rows in ["n <> 7", "n < 60"] {
        let refused = hospital.refused(&pair(rows)).await;
        assert!(refused.contains("two sums of one column with some rows in common"), "{rows}: {refused}");
    }
    hospital.released("SELECT enc_sum(age) AS age, enc_avg(age) AS n, enc_sum(cost) AS cost FROM numbered").await;
}

/// Rules of the owner's are about columns, and a question about a computed one is a question about another.
#[tokio::test(flavor = "multi_thread")]
async fn questions_are_about_the_columns_that_they_name() {
    let hospital = hospital(937, 60, "").await;
    let world = &hospital.world;
    world.run("CREATE TABLE numbered AS SELECT row_number() OVER () AS n, * FROM patients").await.unwrap();
    for column in [
        "enc_add(enc_scale(age, 0), enc_scale(zip, 1))",
        "enc_add(age, zip)",
        "CASE WHEN region = 'nowhere' THEN age ELSE zip END",
        "coalesce(CASE WHEN n < 0 THEN age END, zip)",
    ] {
        world.run(&format!("CREATE TABLE asked AS SELECT {column} AS age FROM numbered")).await.unwrap();
        for question in ["class_sizes(asked, quasi => (age))", "identifiers(asked, k => 5, columns => (age))"] {
            let refused = world.refusal(&format!("SELECT * FROM {question}")).await;
            assert!(
                refused.contains("is made of several columns, or of another one"),
                "{column}, {question}: {refused}"
            );
        }
        world.run("DROP TABLE asked").await.unwrap();
    }
    // Half of the rows belong to one person, by a number that tells the others apart.
    let anonymised = "SELECT CASE WHEN n < 30 THEN 7 ELSE n END AS n, age FROM k_anonymize((SELECT n, age FROM numbered), k => 20, quasi => (age), rounds => 1, comparison => 'blinded')";
    let utility = format!("SELECT * FROM utility((SELECT n, age FROM numbered), ({anonymised}), quasi => (age))");
    let refused = world.refusal(&utility).await;
    let is_refused =
        refused.contains("that others belong to as well") || refused.contains("no column tells which rows");
    assert!(is_refused, "{refused}");
    let masked =
        world.run("SELECT * FROM class_sizes((SELECT mask_noise(age, 0.1) AS age FROM numbered), quasi => (age))");
    assert!(masked.await.is_ok(), "masking gives rows factors of their own, and no other column");
}
