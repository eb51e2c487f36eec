//! Which columns identify people: what the search over ciphertexts finds is what GROUP BY finds in clear.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{CsvReadOptions, SessionContext};
use futures::StreamExt;
use veilfusion::VeilSessionState;

use super::world::{World, run};

/// Name, age, gender and ZIP code of seven people: the example table of the paper.
const PAPER: &str = "\
id,name,age,gender,zip
1,John,18,Male,13122
2,Peter,18,Male,13122
3,Mark,19,Male,13122
4,Steven,19,Male,13122
5,Jack,18,Male,13121
6,Paul,20,Male,13121
7,Andrew,20,Male,13121
";

const PAPER_DECLARATION: &str = r#"
[table]
name = "paper"
[column.id]
kind = "clear"
type = "Int64"
[column.name]
kind = "text"
max_length = 12
identifier = true
[column.age]
kind = "integer"
range = [0, 120]
identifier = true
[column.gender]
kind = "binary"
values = ["Female", "Male"]
identifier = true
[column.zip]
kind = "integer"
range = [0, 99999]
identifier = true
"#;

/// A minimal identifier and the rows at risk.
type Found = (Vec<String>, Option<i64>);

/// The rows of a result.
fn found(batch: &RecordBatch) -> Vec<Found> {
    let columns = batch.column_by_name("columns").unwrap().as_list::<i32>();
    let sizes = batch.column_by_name("size").unwrap().as_primitive::<Int64Type>();
    let kinds = batch.column_by_name("kind").unwrap().as_string::<i32>();
    let at_risk = batch.column_by_name("rows_at_risk").unwrap().as_primitive::<Int64Type>();
    let row = |row: usize| {
        let names: Vec<String> =
            columns.value(row).as_string::<i32>().iter().map(|name| name.unwrap().to_owned()).collect();
        assert_eq!(sizes.value(row), names.len() as i64);
        assert_eq!(kinds.value(row), if names.len() == 1 { "direct" } else { "quasi" });
        (names, at_risk.is_valid(row).then(|| at_risk.value(row)))
    };
    (0..batch.num_rows()).map(row).collect()
}

/// The same from a clear table, with SQL alone: every set of columns, none pruned. One answer for each k.
async fn in_clear(
    context: &SessionContext,
    table: &str,
    columns: &[&str],
    ks: &[u32],
    max_size: usize,
) -> Vec<Vec<Found>> {
    let mut sets: Vec<Vec<usize>> = (1..1usize << columns.len())
        .map(|bits| (0..columns.len()).filter(|column| bits >> column & 1 == 1).collect())
        .collect();
    sets.retain(|set: &Vec<usize>| set.len() <= max_size);
    sets.sort_by_key(|set| (set.len(), set.clone()));
    let mut minimal: Vec<Vec<(Vec<usize>, i64)>> = vec![Vec::new(); ks.len()];
    for set in sets {
        let names: Vec<String> = set.iter().map(|column| format!("\"{}\"", columns[*column])).collect();
        let names = names.join(", ");
        let of_k = |k: &u32| {
            let small = format!("SELECT n FROM classes WHERE n < {k}");
            format!("(SELECT coalesce(sum(n), 0) FROM ({small})) AS \"{k}\"")
        };
        let sums: Vec<String> = ks.iter().map(of_k).collect();
        let classes = format!("SELECT count(*) AS n FROM {table} GROUP BY {names}");
        let batch = run(context, &classes).await.unwrap();
        let classes = SessionContext::new();
        classes.register_batch("classes", batch).unwrap();
        let batch = run(&classes, &format!("SELECT {}", sums.join(", "))).await.unwrap();
        for (at, minimal) in minimal.iter_mut().enumerate() {
            let rows = batch.column(at).as_primitive::<Int64Type>().value(0);
            let is_minimal = !minimal.iter().any(|(other, _)| other.iter().all(|column| set.contains(column)));
            // What includes an identifier identifies too.
            assert!(is_minimal || rows > 0);
            if rows > 0 && is_minimal {
                minimal.push((set.clone(), rows));
            }
        }
    }
    let name = |set: Vec<usize>| set.into_iter().map(|column| columns[column].to_owned()).collect();
    let found =
        |minimal: Vec<(Vec<usize>, i64)>| minimal.into_iter().map(|(set, rows)| (name(set), Some(rows))).collect();
    minimal.into_iter().map(found).collect()
}

async fn clear_table(name: &str, file: &Path) -> SessionContext {
    let context = SessionContext::new();
    context.register_csv(name, file.to_str().unwrap(), CsvReadOptions::new()).await.unwrap();
    context
}

fn named(sets: &[&[&str]]) -> Vec<Found> {
    sets.iter().map(|set| (set.iter().map(|name| (*name).to_owned()).collect(), None)).collect()
}

/// All ways to ask the same.
const METHODS: [&str; 4] = [
    "shuffle => true",
    "shuffle => false",
    "method => 'pairwise', shuffle => true",
    "method => 'pairwise', shuffle => false",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_papers_example_by_every_method() {
    let world = World::new(90).await;
    world.table("paper", PAPER, PAPER_DECLARATION).await;
    for method in METHODS {
        let ask = async |arguments: &str| {
            let sql =
                format!("SELECT * FROM identifiers(paper, columns => (name, age, gender, zip), {arguments}, {method})");
            found(&world.run(&sql).await.unwrap())
        };
        // Every name is unique, and Jack alone is 18 in 13121.
        assert_eq!(ask("k => 2").await, named(&[&["name"], &["age", "zip"]]), "{method}");
        let at_risk = ask("k => 2, rows_at_risk => true").await;
        assert_eq!(at_risk.iter().map(|(_, rows)| *rows).collect::<Vec<_>>(), [Some(7), Some(1)], "{method}");
        // Two people are 19 and two are 20.
        assert_eq!(ask("k => 3").await, named(&[&["name"], &["age"]]), "{method}");
        assert_eq!(ask("k => 4").await, named(&[&["name"], &["age"], &["zip"]]), "{method}");
        // Nobody is fewer than one, and seven are fewer than eight.
        assert_eq!(ask("k => 1").await, named(&[]), "{method}");
        assert_eq!(ask("k => 8").await, named(&[&["name"], &["age"], &["gender"], &["zip"]]), "{method}");
        assert_eq!(ask("k => 2, max_size => 1").await, named(&[&["name"]]), "{method}");
    }
}

/// Rows that look like people: correlated columns of different sizes, NULLs, a clear column.
fn people(rows: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut draw = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // The smaller the likelier.
        let uniform = state >> 11;
        (uniform % bound) * (uniform / bound % bound) / bound
    };
    let mut csv = String::from("id,region,age,job,city,married,income\n");
    for id in 0..rows {
        let (region, age, job, city) = (draw(9), 17 + draw(60), draw(15), draw(40));
        let job = if draw(20) == 1 { String::new() } else { format!("job {job}") };
        let income = (20 + draw(30) + age / 4) * 1000;
        csv += &format!(
            "{id},r{region},{age},{job},{},{},{income}\n",
            10_000 + 7 * city,
            ["no", "yes"][draw(3).min(1) as usize]
        );
    }
    csv
}

const PEOPLE: &str = r#"
[table]
name = "people"
[column.id]
kind = "clear"
type = "Int64"
[column.region]
kind = "clear"
[column.age]
kind = "integer"
range = [0, 120]
identifier = true
[column.job]
kind = "text"
max_length = 12
identifier = true
[column.city]
kind = "integer"
range = [0, 99999]
identifier = true
[column.married]
kind = "binary"
values = ["no", "yes"]
identifier = true
[column.income]
kind = "integer"
range = [0, 1000000]
identifier = true
"#;

const PEOPLE_COLUMNS: [&str; 6] = ["region", "age", "job", "city", "married", "income"];

/// Over several vectors, with a clear column and NULLs of two kinds.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_people_as_group_by_has_it() {
    let world = World::new(91).await;
    world.table("people", &people(9_000), PEOPLE).await;
    let clear = clear_table("people", &world.at("people.csv")).await;
    for (k, max_size) in [(2, 6), (5, 3), (50, 6)] {
        let expected = in_clear(&clear, "people", &PEOPLE_COLUMNS, &[k], max_size).await.remove(0);
        assert!(expected.iter().any(|(set, _)| set.len() > 1) && !expected.is_empty(), "{expected:?}");
        for shuffle in [false, true] {
            let sql = format!(
                "SELECT * FROM identifiers((SELECT * FROM people), k => {k}, max_size => {max_size}, shuffle => {shuffle}, \
                 columns => ({}), rows_at_risk => true)",
                PEOPLE_COLUMNS.join(", ")
            );
            assert_eq!(found(&world.run(&sql).await.unwrap()), expected, "{sql}");
        }
    }
}

/// Hidden NULLs have a tag of their own; visible ones get a label.
#[tokio::test(flavor = "multi_thread")]
async fn a_null_equals_a_null() {
    let world = World::new(92).await;
    let csv = "a,b,c\n1,x,\n1,x,\n,x,7\n,,7\n2,,8\n2,,8\n";
    for hidden in [false, true] {
        let name = if hidden { "hidden" } else { "visible" };
        let declaration = format!(
            "[table]\nname = \"{name}\"\nhide_nulls = {hidden}\n[column.a]\nkind = \"integer\"\nrange = [0, 9]\nidentifier = true\n\
             [column.b]\nkind = \"text\"\nmax_length = 6\nidentifier = true\n[column.c]\nkind = \"clear\"\ntype = \"Int64\"\n"
        );
        world.table(name, csv, &declaration).await;
        for method in METHODS {
            let sql = format!("SELECT * FROM identifiers({name}, k => 2, rows_at_risk => true, {method})");
            // Every value of a, of b and of c is there twice at least, NULL among them. Rows 3 and 4 differ in b alone.
            let expected =
                vec![(vec!["a".to_owned(), "b".to_owned()], Some(2)), (vec!["b".to_owned(), "c".to_owned()], Some(2))];
            assert_eq!(found(&world.run(&sql).await.unwrap()), expected, "{sql}");
        }
    }
}

/// Columns that were computed have no tags: their values are compared.
#[tokio::test(flavor = "multi_thread")]
async fn computed_columns_are_compared_by_their_values() {
    let world = World::new(93).await;
    let paper = PAPER_DECLARATION.replace("[column.gender]", "[dictionary.all]\nfile = \"all.txt\"\n[column.gender]");
    world.write("all.txt", "Anonymous\n");
    world.table("paper", PAPER, &paper).await;
    let masked = "(SELECT mask_dictionary(name, 'all') AS name, mask_shift(age, 3) AS age, enc_scale(zip, 2) AS zip, gender FROM paper)";
    for method in ["shuffle => true", "method => 'pairwise'", "method => 'pairwise', shuffle => false"] {
        let sql = format!("SELECT * FROM identifiers({masked}, k => 2, columns => (name, age, zip, gender), {method})");
        assert_eq!(found(&world.run(&sql).await.unwrap()), named(&[&["age", "zip"]]), "{method}");
        // A text that has no tag, and differs.
        let sql = format!(
            "SELECT * FROM identifiers((SELECT mask_redact(gender, 1) AS gender, name FROM (SELECT gender, mask_random(name) AS name FROM paper)), \
             k => 2, columns => (gender, name), {method})"
        );
        assert_eq!(found(&world.run(&sql).await.unwrap()), named(&[&["name"]]), "{method}");
    }
    let refused =
        world.refusal(&format!("SELECT * FROM identifiers({masked}, columns => (age), shuffle => false)")).await;
    assert_eq!(
        refused,
        "age has no equality tag, since it was computed or not declared with identifier = true: leave out shuffle => false, or use \
         method => 'pairwise'; both compare values"
    );
    // By default columns without tags are left out.
    world.veil.take_notes();
    let batch = world.run(&format!("SELECT * FROM identifiers({masked}, k => 8)")).await.unwrap();
    assert_eq!(found(&batch), named(&[&["gender"]]));
    let note =
        "without equality tags, so not looked at: name, age, zip; name them in columns => (..) to compare their values";
    assert_eq!(world.veil.take_notes(), [note]);
}

/// Places below the unit are rounded away at a release, so that they tell nobody apart.
#[tokio::test(flavor = "multi_thread")]
async fn fractions_of_the_unit_do_not_tell_rows_apart() {
    let world = World::new(94).await;
    let declaration = "[table]\nname = \"t\"\n[column.id]\nkind = \"clear\"\ntype = \"Int64\"\n[column.a]\nkind = \"integer\"\nrange = [-2, 2]\n";
    let csv: String = (0..60).map(|id| format!("{id},{}\n", ["-1", "0", "1"][id % 3])).collect();
    world.table("t", &format!("id,a\n{csv}"), declaration).await;
    // At most an eighth away from its value, each rounds back to it.
    let sql = "SELECT * FROM identifiers((SELECT mask_noise(a, 0.125) AS a FROM t), k => 20, columns => (a), rows_at_risk => true)";
    assert_eq!(found(&world.run(sql).await.unwrap()), []);
    let sql = sql.replace("k => 20", "k => 21");
    assert_eq!(found(&world.run(&sql).await.unwrap()), [(vec!["a".to_owned()], Some(60))]);
}

/// Clear columns alone need no P2, and no rows need no answer.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_encrypted_nothing_asked() {
    let world = World::without_p2(95).await;
    world.table("paper", PAPER, PAPER_DECLARATION).await;
    let clear = world.run("SELECT * FROM identifiers((SELECT id, id % 2 AS odd FROM paper), k => 2)").await.unwrap();
    assert_eq!(found(&clear), named(&[&["id"]]));
    let empty = world.run("SELECT * FROM identifiers((SELECT * FROM paper WHERE id > 7))").await.unwrap();
    assert_eq!(found(&empty), []);
    let refused = world.refusal("SELECT * FROM identifiers(paper)").await;
    assert!(refused.starts_with("this query needs rounds with P2, and no P2 is known"), "{refused}");
}

/// A relation as any other, from a relation as any other.
#[tokio::test(flavor = "multi_thread")]
async fn it_composes() {
    let world = World::new(96).await;
    world.table("paper", PAPER, PAPER_DECLARATION).await;
    world.run("CREATE VIEW men AS SELECT * FROM paper WHERE id <= 4").await.unwrap();
    for (sql, rows) in [
        ("SELECT unnest(columns) AS c FROM identifiers(men, k => 2) WHERE kind = 'direct'", 2),
        ("SELECT array_to_string(columns, ' and ') FROM identifiers(paper, k => 2) WHERE array_has(columns, 'zip')", 1),
        ("SELECT columns[1] AS c FROM identifiers(paper, k => 2) WHERE size = 2", 1),
        ("WITH young AS (SELECT name, age FROM paper WHERE id < 3) SELECT * FROM identifiers(young, k => 2)", 1),
        ("SELECT kind, count(*) FROM identifiers('paper', k => 2) GROUP BY kind", 2),
        ("SELECT i.size FROM identifiers(paper, k => 2) AS i JOIN paper ON paper.id = i.size", 3),
        ("SELECT * FROM identifiers(identifiers(paper, k => 2), k => 9, columns => (kind))", 1),
        ("SELECT * FROM identifiers(datafusion.public.paper, K => 2, COLUMNS => [Name, paper.age])", 1),
        ("SELECT * FROM IDENTIFIERS(paper, k := 2, columns => name)", 1),
        ("SELECT * FROM (SELECT * FROM identifiers(paper, k => 2) ORDER BY size DESC LIMIT 1)", 1),
    ] {
        assert_eq!(world.run(sql).await.unwrap().num_rows(), rows, "{sql}");
    }
}

/// Pairs of people: both ages have the same tags, and (18, 19) is not (19, 18).
#[tokio::test(flavor = "multi_thread")]
async fn a_column_can_be_compared_beside_itself() {
    let world = World::new(101).await;
    world.table("paper", PAPER, PAPER_DECLARATION).await;
    world.table("again", PAPER, PAPER_DECLARATION).await;
    // A second encryption of the table: every row counts once.
    let pairs = "(SELECT a.age AS one, b.age AS other FROM paper a, again b WHERE a.id + b.id = 6)";
    // 18 18, 18 19, 19 19 .. by ids 1 5, 2 4, 3 3, 4 2, 5 1.
    for method in [METHODS[0], METHODS[2], METHODS[3]] {
        let sql = format!("SELECT * FROM identifiers({pairs}, k => 2, rows_at_risk => true, {method})");
        let expected = vec![(vec!["one".to_owned(), "other".to_owned()], Some(3))];
        assert_eq!(found(&world.run(&sql).await.unwrap()), expected, "{method}");
    }
    let refused = world.refusal(&format!("SELECT * FROM identifiers({pairs}, shuffle => false)")).await;
    let expected = "one and other are the same column of the owner's: leave one out, or leave out shuffle => false";
    assert_eq!(refused, expected);
}

/// The log of searches, and the note of one that was cut.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_search_did_is_told() {
    let world = World::new(97).await;
    world.table("paper", PAPER, PAPER_DECLARATION).await;
    let columns = "columns => (age, gender, zip)";
    world.run(&format!("SELECT * FROM identifiers(paper, k => 2, {columns}, max_size => 1)")).await.unwrap();
    world.run(&format!("SELECT * FROM identifiers(paper, k => 2, {columns}, shuffle => false)")).await.unwrap();
    let notes = world.veil.take_notes();
    let note = "sets of more than 1 columns were not looked at, and some of those may identify: ask with max_size => 2";
    assert_eq!(notes, [note]);
    assert!(world.veil.take_notes().is_empty());
    let analyzed = format!("EXPLAIN ANALYZE SELECT * FROM identifiers(paper, k => 2, {columns}, shuffle => false)");
    let analyzed = world.run(&analyzed).await.unwrap();
    let plan = analyzed.column(1).as_string::<i32>().value(0);
    for counter in ["subsets_checked=7", "subsets_known=7", "rounds=3", "output_rows=1", "p2_sent_bytes="] {
        assert!(plan.contains(counter), "{plan}");
    }
    let [first, second, _] = world.veil.searches().try_into().unwrap();
    assert_eq!((first.checked, first.pruned, first.rows, first.identifiers, first.cut), (4, 0, 7, 0, true));
    // Three columns with a probe of all, then three pairs.
    assert_eq!((second.checked, second.pruned, second.identifiers, second.cut), (7, 0, 1, false));
    assert_eq!(second.rounds, 3);
    // The census, lift_tags, relabel of the columns and of the sets, one of shuffle, count_classes.
    assert_eq!(first.rounds, 6);
    assert!(first.bytes_sent > 500_000 && second.bytes_sent < 10_000);
    let sql = "SELECT run, k, method, shuffle, identifiers, checked, pruned, rounds, note FROM identifiers_summary() ORDER BY run";
    let batch = world.run(sql).await.unwrap();
    assert_eq!(batch.num_rows(), 3);
    assert_eq!(batch.column_by_name("note").unwrap().as_string::<i32>().value(0), note);
    assert!(batch.column_by_name("note").unwrap().is_null(1));
    assert_eq!(batch.column_by_name("rounds").unwrap().as_primitive::<Int64Type>().value(1), 3);
}

/// A search that nobody waits for any more ends, and P2 goes on answering others.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_can_be_given_up() {
    let world = World::new(98).await;
    world.table("people", &people(9_000), PEOPLE).await;
    let frame = world.context.sql("SELECT * FROM identifiers(people, k => 5)").await.unwrap();
    let tasks = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await.unwrap();
    let mut stream = datafusion::physical_plan::execute_stream(plan.clone(), tasks).unwrap();
    let rounds = || plan_metric(plan.as_ref(), "subsets_known").unwrap_or_default();
    // Until the first level is under way.
    while rounds() == 0 {
        tokio::select! {
            batch = stream.next() => panic!("ended early: {batch:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(stream);
    assert!(world.veil.searches().is_empty());
    let sql = "SELECT * FROM identifiers(people, k => 5, columns => (married), shuffle => false)";
    assert_eq!(found(&world.run(sql).await.unwrap()), []);
    assert_eq!(world.veil.searches().len(), 1);
}

fn plan_metric(plan: &dyn datafusion::physical_plan::ExecutionPlan, name: &str) -> Option<usize> {
    let own = plan.metrics().and_then(|metrics| metrics.sum_by_name(name)).map(|value| value.as_usize());
    own.or_else(|| plan.children().into_iter().find_map(|child| plan_metric(child.as_ref(), name)))
}

/// A search keeps within the memory of its session.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded() {
    let world = World::new(99).await;
    world.table("people", &people(9_000), PEOPLE).await;
    let runtime = RuntimeEnvBuilder::new().with_memory_limit(10 << 20, 1.0).build_arc().unwrap();
    let state = SessionStateBuilder::new().with_runtime_env(runtime).with_veil(&world.veil).build();
    let context = SessionContext::new_with_state(state);
    let location = world.at("people.veil.parquet");
    let sql = format!("CREATE EXTERNAL TABLE people STORED AS PARQUET LOCATION '{}'", location.display());
    run(&context, &sql).await.unwrap();
    let error = run(&context, "SELECT * FROM identifiers(people)").await.unwrap_err();
    assert!(error.to_string().contains("VeilIdentifiersExec"), "{error}");
    assert!(world.veil.searches().is_empty());
}

/// The reference table of the literature, if it is at hand.
#[tokio::test(flavor = "multi_thread")]
async fn adult_as_group_by_has_it() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/adult.csv");
    if !file.exists() {
        eprintln!("skipped: there is no adult.csv beside the project");
        return;
    }
    let columns = ["age", "workclass", "education", "marital-status", "occupation", "race", "sex", "native-country"];
    let mut declaration = String::from("[table]\nname = \"adult\"\n");
    for column in columns {
        let kind =
            if column == "age" { "kind = \"integer\"\nrange = [0, 120]" } else { "kind = \"text\"\nmax_length = 30" };
        declaration += &format!("[column.{column}]\n{kind}\nidentifier = true\n");
    }
    let world = World::new(100).await;
    let clear = clear_table("adult", &file).await;
    let names: Vec<String> = columns.iter().map(|column| format!("\"{column}\"")).collect();
    let names = names.join(", ");
    let csv = world.at("adult8.csv");
    let copy = format!(
        "COPY (SELECT {names} FROM adult) TO '{}' STORED AS CSV OPTIONS ('format.has_header' 'true')",
        csv.display()
    );
    run(&clear, &copy).await.unwrap();
    let text = std::fs::read_to_string(&csv).unwrap();
    world.table("adult", &text, &declaration).await;
    let ks = [2, 5, 50];
    let expected = in_clear(&clear, "adult", &columns, &ks, 8).await;
    for (at, shuffle) in [(0, false), (1, false), (2, false), (1, true)] {
        let (k, expected) = (ks[at], &expected[at]);
        let sql = format!(
            "SELECT * FROM identifiers(adult, k => {k}, max_size => 8, rows_at_risk => true, shuffle => {shuffle})"
        );
        assert_eq!(found(&world.run(&sql).await.unwrap()), *expected, "{sql}");
    }
}
