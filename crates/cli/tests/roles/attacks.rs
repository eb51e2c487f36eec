//! What recipients may not write. Every statement here runs as a steward, or as the caller of before roles.

use super::{Client, Place, released};

/// Queries that have no place in a recipient's release, with what the refusal names.
const QUERIES: &[(&str, &str)] = &[
    // Rows that are made, so that one person is in many.
    ("SELECT age, region FROM (SELECT * FROM people LIMIT 300), generate_series(1, 10)", "generate_series()"),
    ("SELECT age FROM people, range(1, 10) AS people2", "range()"),
    ("SELECT p.age FROM people p JOIN generate_series(1, 10) AS s(n) ON true", "generate_series()"),
    ("SELECT age FROM people, (VALUES (1), (2)) AS v(n)", "rows that are written into it"),
    ("SELECT age FROM people, (SELECT 1 AS n UNION ALL SELECT 2)", "rows that are written into it"),
    ("SELECT age FROM people CROSS JOIN unnest([1, 2, 3]) AS u(n)", "unnest"),
    ("SELECT age, unnest([1, 2, 3]) AS n FROM people", "unnest"),
    (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT age FROM people, n",
        "recursive",
    ),
    ("SELECT age FROM people, identifiers_summary()", "identifiers_summary()"),
    ("SELECT age FROM people, veil_functions()", "veil_functions()"),
    // Functions that are on no list, wherever a function can stand.
    ("SELECT age FROM people WHERE random() < 0.5", "the function random"),
    ("SELECT age FROM people WHERE RANDOM() < 0.5", "the function random"),
    ("SELECT age FROM people WHERE \"random\"() < 0.5", "the function random"),
    ("SELECT age FROM people WHERE region = 'north' OR /* random() */ \"random\" /* */ ( ) < 2", "the function random"),
    ("SELECT age FROM people ORDER BY random() LIMIT 3", "the function random"),
    ("SELECT a.age FROM people a JOIN people b ON a.region = b.region AND random() < 0.5", "the function random"),
    ("SELECT enc_sum(age) AS age FROM people GROUP BY random() < 0.5", "the function random"),
    ("SELECT region, enc_sum(age) AS age FROM people GROUP BY region HAVING random() < 0.5", "the function random"),
    ("SELECT enc_sum(age) FILTER (WHERE random() < 0.5) AS age FROM people", "the function random"),
    ("SELECT age FROM people WHERE region IN (SELECT region FROM people WHERE random() < 0.5)", "the function random"),
    (
        "SELECT age FROM people p WHERE EXISTS (SELECT 1 FROM people q WHERE q.region = p.region AND random() < 0.5)",
        "the function random",
    ),
    ("SELECT age FROM people WHERE 0 < (SELECT count(*) FROM people WHERE random() < 0.5)", "the function random"),
    (
        "SELECT age FROM people WHERE region = ANY (SELECT region FROM people WHERE random() < 0.5)",
        "the function random",
    ),
    ("WITH some AS (SELECT * FROM people WHERE random() < 0.5) SELECT age FROM some", "the function random"),
    (
        "SELECT age FROM people WHERE CASE WHEN random() < 0.5 THEN true ELSE region = 'north' END",
        "the function random",
    ),
    ("SELECT age FROM people WHERE region LIKE concat('n', uuid())", "the function uuid"),
    ("SELECT age FROM people WHERE region BETWEEN 'a' AND arrow_typeof(age)", "the function arrow_typeof"),
    ("SELECT age FROM people WHERE now() > '2020-01-01'", "the function now"),
    ("SELECT age FROM people WHERE current_date > '2020-01-01'", "the function current_date"),
    ("SELECT age FROM people WHERE version() LIKE '%'", "the function version"),
    ("SELECT age FROM people WHERE region IN (arrow_cast('north', 'Utf8'))", "the function arrow_cast"),
    ("SELECT age FROM people WHERE length(array_to_string([region], ',')) > 1", "the function"),
    ("SELECT age FROM people WHERE octet_length(region) > 1", "the function octet_length"),
    (
        "SELECT age FROM (SELECT age, row_number() OVER (ORDER BY region) AS n FROM people) WHERE n = 1",
        "window function",
    ),
    (
        "SELECT age FROM (SELECT age, count(*) OVER (PARTITION BY region) AS n FROM people) WHERE n = 1",
        "window function",
    ),
    ("SELECT array_agg(region) AS region, enc_sum(age) AS age FROM people", "the function array_agg"),
    ("SELECT region, enc_sum(age) AS age FROM people GROUP BY ROLLUP (region)", "grouping sets"),
    // Questions.
    ("SELECT age FROM people, class_sizes(people, quasi => (age))", "questions about tables"),
    (
        "SELECT age FROM people WHERE 1 = (SELECT count(*) FROM class_sizes((SELECT * FROM people WHERE region = 'north'), quasi => (age)))",
        "questions about tables",
    ),
    ("SELECT age FROM people, risk(people, quasi => (age))", "questions about tables"),
    ("SELECT age FROM people, identifiers(people, k => 2)", "questions about tables"),
    (
        "SELECT age FROM people WHERE 0 < (SELECT max(loss) FROM (SELECT 1.0 AS loss FROM utility(people, people)))",
        "questions about tables",
    ),
    ("SELECT age FROM people, sweep(people, quasi => (age), k => (2))", "questions about tables"),
    (
        "SELECT * FROM k_anonymize((SELECT age, region FROM people), k => 2, quasi => (age), seed => 1, comparison => 'exact')",
        "seed",
    ),
    (
        "SELECT * FROM k_anonymize((SELECT age FROM people), k => 2, quasi => (age), init => 'rows', init_rows => (0, 1))",
        "init_rows",
    ),
    ("SELECT * FROM k_anonymize((SELECT age FROM people), k => 2, quasi => (age), comparison => 'blinded')", "blinded"),
    // Queries by the names of views that admins made.
    (
        "SELECT age FROM (SELECT age, region, illness AS ill FROM people WHERE random() >= 0) AS draws",
        "the function random",
    ),
    (
        "WITH draws AS (SELECT age, region, illness AS ill FROM people WHERE random() >= 0) SELECT age FROM draws",
        "the function random",
    ),
    ("SELECT age FROM (SELECT * FROM draws WHERE random() < 0.5) AS draws", "the function random"),
    ("SELECT age FROM (SELECT * FROM draws ORDER BY random() LIMIT 1) AS draws", "the function random"),
    ("SELECT age FROM (SELECT age FROM people, generate_series(1, 1000)) AS repeats", "generate_series()"),
    // The catalog.
    ("SELECT age FROM people, information_schema.tables", "information_schema.tables"),
    (
        "SELECT age FROM people WHERE region IN (SELECT column_name FROM information_schema.columns)",
        "information_schema.columns",
    ),
    // Columns under the name or the id of another.
    ("SELECT age, illness AS region FROM people", "people.illness"),
    ("SELECT age, ill AS region FROM draws", "draws.ill"),
    ("SELECT age, region FROM (SELECT age, illness AS region FROM people)", "people.illness"),
    ("SELECT age, upper(illness) AS region FROM people", "people.illness"),
    ("SELECT age, concat(region, illness) AS region FROM people", "people.illness, people.region"),
    ("SELECT age, CASE WHEN illness = 'flu' THEN 'a' ELSE 'b' END AS region FROM people", "people.illness"),
    (
        "SELECT region, max(illness) AS illness, max(illness) AS top, enc_sum(age) AS age FROM people GROUP BY region",
        "people.illness",
    ),
    ("SELECT age, region FROM people UNION ALL SELECT age, illness FROM people", "people.illness, people.region"),
    ("SELECT p.age, r.region FROM people p JOIN regions r ON p.region = r.region", "regions.region"),
    ("SELECT age IS NULL AS region, age FROM people", "people.age"),
    ("SELECT enc_add(enc_scale(age, 0), wage) AS age FROM people", "people.age, people.wage"),
    ("SELECT enc_sub(age, wage) AS age FROM people", "people.age, people.wage"),
    ("SELECT CASE WHEN region = 'nowhere' THEN age ELSE wage END AS age FROM people", "people.wage"),
    ("SELECT CASE WHEN illness = 'flu' THEN age END AS age FROM people", "people.illness"),
    ("SELECT coalesce(age, wage) AS age FROM people", "people.wage"),
    ("SELECT age FROM people WHERE false UNION ALL SELECT wage FROM people", "people.wage"),
    ("SELECT age, (SELECT max(illness) FROM people) AS region FROM people", "a subquery among its columns"),
    // Clear values of one person beside encrypted ones of many.
    (
        "SELECT b.age, a.region FROM people a CROSS JOIN (SELECT region AS other FROM people LIMIT 10) c LEFT JOIN people b ON a.illness = b.illness",
        "or of the same one read again",
    ),
    ("SELECT a.region, b.age, a.age AS own FROM people a CROSS JOIN people b", "or of the same one read again"),
    (
        "SELECT age, region FROM people UNION ALL SELECT b.age, a.region FROM people a JOIN people b ON a.illness = b.illness",
        "or of the same one read again",
    ),
    // A column that shows in how another is made alike.
    (
        "SELECT age FROM k_anonymize((SELECT age, wage FROM people), k => 2, quasi => (wage, age), weights => (wage = 30), rounds => 1)",
        "makes rows alike by wage",
    ),
    (
        "SELECT suppressed, age FROM k_anonymize((SELECT age, wage FROM people), k => 2, quasi => (age, wage), rounds => 1, suppress => 0.5)",
        "makes rows alike by wage",
    ),
    // Releases in releases.
    ("SELECT p.age FROM people p, release(people, recipient => 'alice')", "another release"),
    (
        "SELECT age FROM people WHERE 0 < (SELECT count(*) FROM release(people, recipient => 'alice'))",
        "another release",
    ),
];

/// Statements that are no release, or more than one, or are no question at all.
const STATEMENTS: &[&str] = &[
    "SELECT age, region FROM people",
    "SELECT count(*) FROM people",
    "SELECT 1",
    "SELECT * FROM class_sizes(people, quasi => (age))",
    "SELECT * FROM risk(people, quasi => (age))",
    "SELECT * FROM identifiers(people, k => 2)",
    "SELECT * FROM information_schema.columns",
    "SELECT * FROM veil_functions()",
    "SELECT * FROM identifiers_summary()",
    "SHOW TABLES",
    "SHOW ALL",
    "SHOW COLUMNS FROM people",
    "DESCRIBE people",
    "EXPLAIN SELECT * FROM people",
    "EXPLAIN SELECT * FROM release(people, recipient => 'alice')",
    "EXPLAIN ANALYZE SELECT * FROM release(people, recipient => 'alice')",
    "EXPLAIN VERBOSE SELECT age FROM people",
    "SELECT count(*) FROM release((SELECT age FROM people), recipient => 'alice')",
    "SELECT number + 1 FROM release((SELECT age FROM people), recipient => 'alice')",
    "SELECT * FROM release((SELECT age FROM people), recipient => 'alice') WHERE number = 1",
    "SELECT * FROM release((SELECT age FROM people), recipient => 'alice') LIMIT 1",
    "SELECT * FROM release((SELECT age FROM people), recipient => 'alice') ORDER BY number",
    "SELECT * FROM release((SELECT age FROM people), recipient => 'alice'), people",
    "SELECT (SELECT count(*) FROM people), number FROM release((SELECT age FROM people), recipient => 'alice')",
    "SELECT * FROM release((SELECT age FROM people), recipient => 'alice') UNION ALL \
     SELECT * FROM release((SELECT age FROM people), recipient => 'alice')",
    "SELECT * FROM release((SELECT age FROM people), recipient => 'bob')",
    "SELECT * FROM RELEASE((SELECT age FROM people), \"recipient\" => 'bob')",
    "SELECT * FROM release((SELECT age FROM people), recipient => 'ALICE')",
    "SELECT * FROM release((SELECT age FROM people), recipient => ' alice')",
    "WITH r AS (SELECT * FROM release((SELECT age FROM people), recipient => 'bob')) SELECT * FROM r",
];

/// Statements that change something, which stewards may not run either.
const CHANGES: &[&str] = &[
    "SET veil.noise = 'single'",
    "RESET veil.noise",
    "CREATE VIEW mine AS SELECT * FROM people",
    "CREATE TABLE mine AS SELECT * FROM release((SELECT age FROM people), recipient => 'alice')",
    "CREATE EXTERNAL TABLE mine STORED AS CSV LOCATION 'people.csv'",
    "DROP TABLE people",
    "INSERT INTO regions SELECT * FROM regions",
    "COPY (SELECT * FROM people) TO 'stolen.parquet'",
    "COPY (SELECT * FROM release((SELECT age FROM people), recipient => 'alice')) TO 'mine.parquet'",
    "EXPLAIN ANALYZE COPY (SELECT region FROM people) TO 'stolen.csv'",
    "PREPARE p AS SELECT * FROM release((SELECT age FROM people), recipient => 'alice')",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_gets_nothing_but_its_own_release() {
    let place = Place::new();
    let [_p2, mut p1] = place.servers();
    let (mut alice, mut erin, mut root) =
        (Client::of(&p1, "alice").await, Client::of(&p1, "erin").await, Client::of(&p1, "root").await);
    for (query, names) in QUERIES {
        let sql = released(query);
        let sentence = Client::denial(query, alice.plan(sql.clone()).await);
        assert!(sentence.contains(names), "{query}: {sentence}");
        // It is the role that alice is refused for, and no mistake in the query.
        let as_steward = erin.plan(sql).await;
        assert!(as_steward.is_ok(), "a steward may: {query}: {}", as_steward.unwrap_err());
    }
    for sql in STATEMENTS {
        Client::denial(sql, alice.plan(sql.to_string()).await);
        assert!(erin.plan(sql.to_string()).await.is_ok(), "a steward may: {sql}");
    }
    for sql in CHANGES {
        for client in [&mut alice, &mut erin] {
            let sentence = Client::denial(sql, client.plan(sql.to_string()).await);
            assert!(sentence.contains("`admin`"), "{sentence}");
        }
        assert!(root.plan(sql.to_string()).await.is_ok(), "an admin may: {sql}");
    }
    assert!(!place.at("stolen.csv").exists() && !place.at("stolen.parquet").exists());

    let log = p1.end();
    for words in ["caller=\"alice\" role=recipient kind=Denied", "caller=\"erin\" role=steward kind=Denied"] {
        assert!(log.contains(words), "{words} in {log}");
    }
    for secret in ["SELECT", "north", "random", "class_sizes", "alice-token"] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}

/// A query that uses each of its parts twice is as many nodes as two to their number; one that is too deep is refused as well.
#[tokio::test(flavor = "multi_thread")]
async fn queries_without_end_are_refused() {
    let place = Place::new();
    let [_p2, p1] = place.servers();
    let mut alice = Client::of(&p1, "alice").await;
    let mut doubled = "WITH a0 AS (SELECT age, region FROM people)".to_owned();
    for part in 1..=11 {
        let before = part - 1;
        doubled +=
            &format!(", a{part} AS (SELECT age, region FROM a{before} UNION ALL SELECT age, region FROM a{before})");
    }
    let deep =
        (1..300).fold("SELECT p0.age FROM people p0".to_owned(), |query, join| format!("{query}, people p{join}"));
    for query in [format!("{doubled} SELECT * FROM a11"), deep] {
        let refused = Client::denial(&query, alice.plan(released(&query)).await);
        assert!(refused.contains("more than 4096 parts, or 256 in one another"), "{refused}");
    }
    let few = doubled.split(", a4 AS").next().unwrap();
    assert!(alice.plan(released(&format!("{few} SELECT * FROM a3"))).await.is_ok());
}
