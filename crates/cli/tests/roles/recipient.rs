//! What recipients need, and what they are told: releases of their own, and nothing of what stands in tables.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{CommandGetCatalogs, CommandGetDbSchemas, CommandGetTables, ProstMessageExt};
use arrow_flight::{FlightDescriptor, SchemaResult};
use futures::TryStreamExt;
use prost::Message;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::{Client, Place, names, released, ticket, token};

/// Queries that recipients may have released.
const QUERIES: &[&str] = &[
    "SELECT age, region FROM people",
    "SELECT * FROM (SELECT age, region FROM people WHERE region = 'north' ORDER BY region LIMIT 3)",
    "SELECT mask_shift(age, 3) AS age, region FROM people WHERE lower(trim(region)) IN ('north', 'south') AND illness <> 'flu'",
    "SELECT dp_laplace(age, 1.0) AS age FROM people WHERE region LIKE 'n%' OR substr(region, 1, 1) = 's'",
    "SELECT age AS years, upper(region) AS region FROM people",
    "SELECT region, enc_sum(age) AS age, count(*) AS n FROM people GROUP BY region HAVING count(*) > 0",
    "SELECT enc_avg(age) AS age FROM people",
    "SELECT p.age, p.region FROM people p JOIN regions r ON p.region = r.region AND p.illness = r.illness",
    "SELECT age FROM people WHERE region IN (SELECT region FROM regions WHERE illness = 'flu')",
    "SELECT age FROM people p WHERE EXISTS (SELECT 1 FROM regions r WHERE r.region = p.region)",
    "SELECT age, region FROM people WHERE region = 'north' UNION ALL SELECT age, region FROM people WHERE region = 'south'",
    "WITH north AS (SELECT * FROM people WHERE region = 'north') SELECT age, coalesce(region, 'none') AS region FROM north",
    "SELECT CASE WHEN age IS NULL THEN NULL ELSE age END AS age FROM people",
    "SELECT enc_add(age, 1) AS age, CAST(region AS VARCHAR) AS region FROM \"people\"",
    "SELECT age, 'clinic' AS source FROM people",
    "SELECT age FROM datafusion.public.people",
    "SELECT * FROM k_anonymize((SELECT age, region FROM people), k => 2, quasi => (age), rounds => 1, comparison => 'exact')",
    // Views that an admin made, with what a recipient may not write.
    "SELECT age, region FROM draws",
    "SELECT d.age, ill FROM draws AS d",
    "SELECT age FROM repeats",
    "SELECT mixed AS age, region FROM \"Sorted\"",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_has_its_own_rows_released() {
    let place = Place::new();
    let [_p2, p1] = place.servers();
    let mut alice = Client::of(&p1, "alice").await;
    for query in QUERIES {
        let planned = alice.plan(released(query)).await;
        assert!(planned.is_ok(), "{query}: {}", planned.unwrap_err().message());
    }
    for sql in [
        "SELECT * FROM release(people, recipient => 'alice')",
        "select RELEASE, \"number\", from_p1, from_p2, manifest from Release(people, \"recipient\" => 'alice') as parts",
        "WITH mine AS (SELECT age, region FROM people) SELECT * FROM release(mine, recipient => 'alice')",
        "SELECT * FROM (SELECT * FROM release((SELECT age FROM draws), recipient => 'alice')) AS all_of_it",
    ] {
        let planned = alice.plan(sql).await;
        assert!(planned.is_ok(), "{sql}: {}", planned.unwrap_err().message());
    }
    // Another caller for the same recipient, and another recipient.
    assert!(Client::of(&p1, "desk").await.plan(released("SELECT age FROM people")).await.is_ok());
    let as_bob = Client::of(&p1, "bob").await.plan(released("SELECT age FROM people")).await;
    assert!(Client::denial("bob", as_bob).contains("released to bob for this caller"));

    // The commands of recipients, with a token that has no role in the file.
    let fetch = ["fetch", "--from", &p1.url, "--key", "alice/recipient.key", "--owner", "keys/owner.pub"];
    let fetch = |token: &str, sql: &str, file: &str| {
        [&fetch[..], &["--token-file", token, "--sql", sql, "-o", file]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let succeed = |arguments: Vec<String>| place.succeed(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let fail = |arguments: Vec<String>| place.fail(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    succeed(fetch("alice-token", "SELECT mask_shift(age, 3) AS age, region FROM people", "out.csv"));
    let read = |file: &str| std::fs::read_to_string(place.at(file)).unwrap();
    assert_eq!(read("out.csv"), "age,region\n42,north\n,south\n44,south\n43,north\n");
    succeed(fetch("alice-token", "SELECT * FROM release((SELECT age FROM draws), recipient => 'alice')", "view.csv"));
    assert_eq!(read("view.csv"), "age\n39\n\"\"\n41\n40\n");
    // P2 has its own word, for what the policy does not allow.
    let refused = fail(fetch("alice-token", "SELECT wage FROM people", "no.csv"));
    assert!(refused.contains("no rule allows recipient alice to receive column wage"), "{refused}");
    let refused = fail(fetch("alice-token", "SELECT mixed AS age FROM \"Sorted\"", "no.csv"));
    assert!(refused.contains("no rule allows recipient alice to receive column age"), "{refused}");
    // bob's token with alice's key: P1 releases nothing to alice for bob.
    let refused = fail(fetch("bob-token", "SELECT age FROM people", "no.csv"));
    assert!(refused.contains("released to bob for this caller"), "{refused}");
    assert!(!place.at("no.csv").exists());

    let gateway = ["gateway", "--from", &p1.url, "--token-file", "alice-token", "--listen", "127.0.0.1:0", "-q"];
    let gateway = place.start(&[&gateway[..], &["--key", "alice/recipient.key", "--owner", "keys/owner.pub"]].concat());
    let channel = Endpoint::from_shared(gateway.url.clone()).unwrap().connect().await.unwrap();
    let mut client: FlightSqlServiceClient<Channel> = FlightSqlServiceClient::new(channel);
    let info = client.execute("SELECT age FROM people WHERE region = 'north'".to_owned(), None).await.unwrap();
    let rows: Vec<_> = client.do_get(ticket(info)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().values(), &[39, 40]);
    let tables = client.get_tables(CommandGetTables::default()).await.unwrap();
    let tables: Vec<_> = client.do_get(ticket(tables)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(names(&tables, "table_name"), [""; 0]);
}

/// What the catalog and the types of statements tell.
#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_sees_no_table_and_no_type() {
    let place = Place::new();
    let [_p2, p1] = place.servers();
    let (mut alice, mut erin) = (Client::of(&p1, "alice").await, Client::of(&p1, "erin").await);
    let commands = [
        (CommandGetCatalogs {}.as_any().encode_to_vec(), "catalog_name"),
        (CommandGetDbSchemas::default().as_any().encode_to_vec(), "db_schema_name"),
        (CommandGetTables { include_schema: true, ..Default::default() }.as_any().encode_to_vec(), "table_name"),
    ];
    for (command, column) in commands {
        let (own, others) = (alice.plan(command.clone()).await.unwrap(), erin.plan(command).await.unwrap());
        assert_eq!(names(&alice.rows(ticket(own)).await.unwrap(), column), [""; 0], "{column}");
        assert!(!names(&erin.rows(ticket(others)).await.unwrap(), column).is_empty(), "{column}");
    }
    // A release tells its own columns where it is opened, sealed in its header.
    let descriptor = || FlightDescriptor::new_cmd(released("SELECT age, region FROM people"));
    let request = alice.request(descriptor());
    let schema: SchemaResult = alice.inner.get_schema(request).await.unwrap().into_inner();
    let schema = arrow::datatypes::Schema::try_from(&schema).unwrap();
    let columns: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
    assert_eq!(columns, ["release", "number", "from_p2", "from_p1", "manifest"]);
    let request = alice.request(FlightDescriptor::new_cmd("SELECT age FROM people"));
    assert_eq!(alice.inner.get_schema(request).await.unwrap_err().code(), Code::PermissionDenied);

    // Prepared statements are statements, when they are made and when they are executed.
    let channel = Endpoint::from_shared(p1.url.clone()).unwrap().connect().await.unwrap();
    let mut client = FlightSqlServiceClient::new_from_inner(FlightServiceClient::new(channel));
    client.set_token(token("alice"));
    let refused = client.prepare("SELECT age FROM people".to_owned(), None).await.unwrap_err().to_string();
    assert!(refused.contains("asks nothing else"), "{refused}");
    let mut prepared = client.prepare(released("SELECT age FROM people"), None).await.unwrap();
    assert_eq!(prepared.dataset_schema().unwrap().fields().len(), 5);
    assert!(prepared.execute().await.is_ok());
    let refused = client.execute_update("DROP TABLE people".to_owned(), None).await.unwrap_err().to_string();
    assert!(refused.contains("`admin`"), "{refused}");
}

/// A sentence about an error quotes nothing that the caller did not write.
#[tokio::test(flavor = "multi_thread")]
async fn errors_tell_a_recipient_no_names_and_no_values() {
    let place = Place::new();
    let [_p2, p1] = place.servers();
    let (mut alice, mut erin) = (Client::of(&p1, "alice").await, Client::of(&p1, "erin").await);
    let sql = released("SELECT agee FROM people");
    let told = alice.plan(sql.clone()).await.unwrap_err();
    assert_eq!(
        (told.code(), told.message()),
        (Code::InvalidArgument, "there is no column agee where the query looks for it")
    );
    assert!(erin.plan(sql).await.unwrap_err().message().contains("people.illness"), "a steward sees the columns");

    let sql = released("SELECT age FROM people WHERE CAST(illness AS INT) > 0");
    let told = alice.ask(&sql).await.unwrap_err();
    assert!(told.message().contains("why is told to stewards and admins only"), "{told}");
    let of_data = ["flu", "asthma", "measles"];
    assert!(!of_data.iter().any(|value| told.message().contains(value)), "{told}");
    let told = erin.ask(&sql).await.unwrap_err();
    assert!(of_data.iter().any(|value| told.message().contains(value)), "a steward sees clear columns: {told}");
}

/// Tickets are for the callers they were given to, of whatever role, and of the same recipient too.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_for_the_caller_who_asked() {
    let place = Place::new();
    let [_p2, p1] = place.servers();
    let mut alice = Client::of(&p1, "alice").await;
    let given = ticket(alice.plan(released("SELECT age FROM people")).await.unwrap());
    for other in ["bob", "desk", "erin", "root"] {
        let refused = Client::of(&p1, other).await.rows(given.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{other}: {refused}");
    }
    // The header, one parcel, and the manifest; and the same again, since the release has run once.
    for _ in 0..2 {
        let parts = alice.rows(given.clone()).await.unwrap();
        assert_eq!(parts.iter().map(|batch| batch.num_rows()).sum::<usize>(), 3);
        assert_eq!(parts[0].schema().field(0).name(), "release");
    }
    let refused = Client::of(&p1, "bob").await.rows(given).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

/// Without tokens everybody on this machine is a steward: asks, releases to anybody, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_on_this_machine_is_a_steward() {
    let place = Place::new();
    let serve = [&super::SERVE[..], &["--embedded-p2", "keys/p2.keys", "-q"]].concat();
    let p1 = Arc::new(place.start(&serve));
    let mut local = Client::nobody(&p1).await;
    let counted = local.ask("SELECT count(*) FROM people").await.unwrap();
    assert_eq!(counted[0].column(0).as_primitive::<Int64Type>().values(), &[4]);
    for recipient in ["alice", "bob"] {
        let sql =
            format!("SELECT * FROM release((SELECT age FROM people WHERE random() >= 0), recipient => '{recipient}')");
        assert!(local.plan(sql).await.is_ok());
    }
    let refused = Client::denial("SET", local.plan("SET veil.noise = 'single'").await);
    assert!(refused.contains("`admin`"), "{refused}");
}
