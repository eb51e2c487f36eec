//! What the owner decrypts is what a clear computation gives.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Date32Array, TimestampSecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Date32Type, Decimal128Type, Field, Int64Type, Schema, TimeUnit};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionConfig;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::world::{World, run, session};

const ROWS: i64 = 300;

/// A generated row. Numbers are in steps of their column's unit.
struct Row {
    id: i64,
    region: &'static str,
    a: Option<i64>,
    b: Option<i64>,
    wage: Option<i64>,
    day: Option<i64>,
    minute: Option<i64>,
    member: Option<bool>,
    name: Option<&'static str>,
    city: Option<&'static str>,
}

const DECLARATION: &str = r#"
[table]
name = "t"
[column.id]
kind = "clear"
type = "Int64"
[column.region]
kind = "clear"
[column.a]
kind = "integer"
range = [-1000, 1000]
[column.b]
kind = "integer"
range = [-50, 50]
public_range = true
[column.wage]
kind = "decimal"
scale = 2
range = [-10000, 10000]
[column.day]
kind = "date"
range = ["1900-01-01", "2100-01-01"]
[column.minute]
kind = "timestamp"
unit = "minute"
range = ["1960-01-01T00:00:00", "2030-01-01T00:00:00"]
[column.member]
kind = "boolean"
[column.name]
kind = "text"
max_length = 10
[column.city]
kind = "category"
hierarchy = "city.csv"
[dictionary.names]
file = "names.txt"
pad_to = 8
"#;

const CITIES: [&str; 4] = ["Paris", "Lyon", "Rome", "Milan"];

impl Row {
    fn random(id: i64, rng: &mut StdRng) -> Self {
        fn maybe<T>(rng: &mut StdRng, draw: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
            let present = rng.random_bool(0.9);
            let drawn = draw(rng);
            present.then_some(drawn)
        }
        Self {
            id,
            region: ["north", "south", "west"][rng.random_range(0..3)],
            a: maybe(rng, |rng| rng.random_range(-1000..=1000)),
            b: maybe(rng, |rng| rng.random_range(-50..=50)),
            wage: maybe(rng, |rng| rng.random_range(-1_000_000..=1_000_000)),
            day: maybe(rng, |rng| rng.random_range(-25_567..=47_482)),
            minute: maybe(rng, |rng| rng.random_range(-5_000_000..=30_000_000)),
            member: maybe(rng, |rng| rng.random()),
            name: maybe(rng, |rng| ["Anna", "Bo", "Zoë"][rng.random_range(0..3)]),
            city: maybe(rng, |rng| CITIES[rng.random_range(0..4)]),
        }
    }

    fn csv(&self) -> String {
        fn text<T: ToString>(value: Option<T>) -> String {
            value.map_or_else(String::new, |value| value.to_string())
        }
        let wage = self.wage.map(|w| {
            let sign = if w < 0 { "-" } else { "" };
            format!("{sign}{}.{:02}", w.abs() / 100, w.abs() % 100)
        });
        let day = self.day.map(|day| printed(Arc::new(Date32Array::from(vec![day as i32]))));
        let minute = self.minute.map(|minute| printed(Arc::new(TimestampSecondArray::from(vec![minute * 60]))));
        let fields = [
            self.id.to_string(),
            self.region.to_owned(),
            text(self.a),
            text(self.b),
            text(wage),
            text(day),
            text(minute),
            text(self.member),
            text(self.name),
            text(self.city),
        ];
        fields.join(",")
    }
}

fn printed(one: ArrayRef) -> String {
    cast(&one, &DataType::Utf8).unwrap().as_string::<i32>().value(0).to_owned()
}

/// A world with the table `t` of random rows, in order of their numbers.
async fn generated(seed: u64) -> (World, Vec<Row>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let rows: Vec<Row> = (0..ROWS).map(|id| Row::random(id, &mut rng)).collect();
    let world = World::new(seed).await;
    world.write("city.csv", "Paris,France,*\nLyon,France,*\nRome,Italy,*\nMilan,Italy,*\n");
    world.write("names.txt", "Xaver\nYlva\nZeno\n");
    let lines: Vec<String> = rows.iter().map(Row::csv).collect();
    let csv = format!("id,region,a,b,wage,day,minute,member,name,city\n{}\n", lines.join("\n"));
    world.table("t", &csv, DECLARATION).await;
    (world, rows)
}

/// A decrypted column in steps of its unit.
fn steps(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    let column = batch.column_by_name(name).unwrap();
    match column.data_type() {
        DataType::Decimal128(..) => {
            column.as_primitive::<Decimal128Type>().iter().map(|v| v.map(|v| v as i64)).collect()
        }
        DataType::Date32 => column.as_primitive::<Date32Type>().iter().map(|day| day.map(i64::from)).collect(),
        DataType::Timestamp(..) => {
            let seconds = cast(column, &DataType::Timestamp(TimeUnit::Second, None)).unwrap();
            let seconds = cast(&seconds, &DataType::Int64).unwrap();
            seconds.as_primitive::<Int64Type>().iter().map(|s| s.map(|s| s.div_euclid(60))).collect()
        }
        _ => cast(column, &DataType::Int64).unwrap().as_primitive::<Int64Type>().iter().collect(),
    }
}

fn texts(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let column = cast(batch.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
    column.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
}

fn zip<A: Copy, B: Copy, C>(a: Option<A>, b: Option<B>, with: impl Fn(A, B) -> C) -> Option<C> {
    a.zip(b).map(|(a, b)| with(a, b))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_encrypted_is_what_is_decrypted() {
    let (world, rows) = generated(11).await;
    let batch = world.reveal("SELECT * FROM t ORDER BY id").await.unwrap();
    let expect = |name: &str, of: fn(&Row) -> Option<i64>| {
        assert_eq!(steps(&batch, name), rows.iter().map(of).collect::<Vec<_>>(), "{name}");
    };
    expect("id", |row| Some(row.id));
    expect("a", |row| row.a);
    expect("b", |row| row.b);
    expect("wage", |row| row.wage);
    expect("day", |row| row.day);
    expect("minute", |row| row.minute);
    expect("member", |row| row.member.map(i64::from));
    let named: Vec<Option<String>> = rows.iter().map(|row| row.name.map(str::to_owned)).collect();
    assert_eq!(texts(&batch, "name"), named);
    let cities: Vec<Option<String>> = rows.iter().map(|row| row.city.map(str::to_owned)).collect();
    assert_eq!(texts(&batch, "city"), cities);
}

#[tokio::test(flavor = "multi_thread")]
async fn shifts_and_arithmetic_are_exact() {
    let (world, rows) = generated(12).await;
    type Clear = fn(&Row) -> Option<i64>;
    let cases: [(&str, Clear); 19] = [
        ("mask_shift(a, -12345)", |row| row.a.map(|a| a - 12_345)),
        ("mask_shift(wage, 0.07)", |row| row.wage.map(|w| w + 7)),
        ("mask_shift(day, -400)", |row| row.day.map(|d| d - 400)),
        ("mask_shift(minute, 1441)", |row| row.minute.map(|m| m + 1441)),
        ("enc_add(a, b)", |row| zip(row.a, row.b, |a, b| a + b)),
        ("enc_add(b, 7)", |row| row.b.map(|b| b + 7)),
        ("enc_add(wage, wage)", |row| row.wage.map(|w| 2 * w)),
        ("enc_add(wage, -99.99)", |row| row.wage.map(|w| w - 9999)),
        ("enc_add(day, a)", |row| zip(row.day, row.a, |d, a| d + a)),
        ("enc_add(minute, b)", |row| zip(row.minute, row.b, |m, b| m + b)),
        ("enc_sub(a, b)", |row| zip(row.a, row.b, |a, b| a - b)),
        ("enc_sub(day, mask_shift(day, 3))", |row| row.day.map(|_| -3)),
        ("enc_sub(minute, b)", |row| zip(row.minute, row.b, |m, b| m - b)),
        ("enc_scale(a, -4095)", |row| row.a.map(|a| -4095 * a)),
        ("enc_scale(wage, 52)", |row| row.wage.map(|w| 52 * w)),
        ("enc_scale(b, 0)", |row| row.b.map(|_| 0)),
        ("enc_sub(enc_scale(enc_add(a, b), 3), a)", |row| zip(row.a, row.b, |a, b| 2 * a + 3 * b)),
        ("CASE WHEN id < 100 THEN a WHEN id < 200 THEN b ELSE enc_scale(a, 2) END", |row| match row.id {
            ..100 => row.a,
            100..200 => row.b,
            _ => row.a.map(|a| 2 * a),
        }),
        ("mask_shift(coalesce(a, b), 1)", |row| row.a.or(row.b).map(|x| x + 1)),
    ];
    for (sql, clear) in cases {
        let batch = world.reveal(&format!("SELECT {sql} AS x FROM t ORDER BY id")).await.unwrap();
        assert_eq!(steps(&batch, "x"), rows.iter().map(clear).collect::<Vec<_>>(), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_and_averages_are_those_of_exact_fractions() {
    let (world, rows) = generated(13).await;
    let sql = "SELECT region, enc_sum(a) AS sum_a, enc_sum(wage) AS sum_wage, enc_sum(member) AS sum_member, enc_avg(a) AS avg_a, \
               enc_avg(wage) AS avg_wage, enc_avg(member) AS avg_member, count(a) AS n FROM t GROUP BY region ORDER BY region";
    let batch = world.reveal(sql).await.unwrap();
    type Clear = fn(&Row) -> Option<i64>;
    let columns: [(&str, Clear); 3] =
        [("a", |row| row.a), ("wage", |row| row.wage), ("member", |row| row.member.map(i64::from))];
    for (name, clear) in columns {
        let mut groups: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for row in &rows {
            groups.entry(row.region).or_default().extend(clear(row));
        }
        let sums: Vec<Option<i64>> = groups.values().map(|group| Some(group.iter().sum())).collect();
        assert_eq!(steps(&batch, &format!("sum_{name}")), sums, "{name}");
        let averages = steps(&batch, &format!("avg_{name}"));
        for (average, group) in averages.into_iter().zip(groups.values()) {
            // Four places more, rounded to the nearest: no further than half a step from the fraction.
            let (count, sum) = (group.len() as i64, group.iter().sum::<i64>());
            let off = average.unwrap() * count - sum * 10_000;
            assert!(2 * off.abs() <= count, "{name}: {average:?} for {sum} / {count}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_factors_stay_within_the_fraction_and_differ() {
    let (world, rows) = generated(14).await;
    let batch = world.reveal("SELECT mask_noise(wage, 0.1) AS x FROM t ORDER BY id").await.unwrap();
    let mut factors = HashSet::new();
    for (row, blurred) in rows.iter().zip(steps(&batch, "x")) {
        assert_eq!(row.wage.is_some(), blurred.is_some());
        let Some((wage, blurred)) = row.wage.zip(blurred) else { continue };
        // Rounding to a cent is half a cent.
        let off = (blurred - wage).abs() as f64;
        assert!(off <= 0.1 * wage.abs() as f64 + 0.5, "{wage} became {blurred}");
        if wage.abs() > 100_000 {
            factors.insert((128.0 * blurred as f64 / wage as f64).round() as i64);
        }
    }
    assert!(factors.len() > 15, "{factors:?}");
    assert!(factors.iter().all(|factor| (116..=140).contains(factor)), "{factors:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dictionaries_give_their_entries_and_nothing_else() {
    let (world, rows) = generated(15).await;
    let batch = world.reveal("SELECT mask_dictionary(name, 'names') AS x FROM t ORDER BY id").await.unwrap();
    let replaced = texts(&batch, "x");
    assert!(rows.iter().zip(&replaced).all(|(row, text)| row.name.is_some() == text.is_some()));
    let found: HashSet<String> = replaced.into_iter().flatten().collect();
    assert_eq!(found, ["Xaver", "Ylva", "Zeno"].map(str::to_owned).into());
}

#[tokio::test(flavor = "multi_thread")]
async fn random_values_fill_their_range_and_stay_within() {
    let (world, rows) = generated(16).await;
    let sql = "SELECT mask_random(a, 10, 19) AS a, mask_random(b) AS b, mask_random(wage, -0.01, 0.01) AS wage, \
               mask_random(day, '2024-02-28', '2024-03-01') AS day, mask_random(member) AS member, mask_random(city) AS city, \
               mask_random(name) AS name FROM t ORDER BY id";
    let batch = world.reveal(sql).await.unwrap();
    let distinct = |name: &str| steps(&batch, name).into_iter().flatten().collect::<HashSet<i64>>();
    assert_eq!(distinct("a"), (10..=19).collect());
    let b = distinct("b");
    assert!(b.len() > 70 && b.iter().all(|value| (-50..=50).contains(value)), "{b:?}");
    assert_eq!(distinct("wage"), [-1, 0, 1].into());
    assert_eq!(distinct("day").len(), 3);
    assert_eq!(distinct("member"), [0, 1].into());
    let cities: HashSet<String> = texts(&batch, "city").into_iter().flatten().collect();
    assert_eq!(cities, CITIES.map(str::to_owned).into());
    let names: Vec<String> = texts(&batch, "name").into_iter().flatten().collect();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    assert!(names.iter().all(|name| name.len() >= 10 && name.bytes().all(|byte| byte.is_ascii_alphanumeric())));
    type Present = fn(&Row) -> bool;
    let columns: [(&str, Present); 4] = [
        ("a", |row| row.a.is_some()),
        ("wage", |row| row.wage.is_some()),
        ("day", |row| row.day.is_some()),
        ("member", |row| row.member.is_some()),
    ];
    for (name, present) in columns {
        let found: Vec<bool> = steps(&batch, name).iter().map(Option::is_some).collect();
        assert_eq!(found, rows.iter().map(present).collect::<Vec<_>>(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_functions_nest() {
    let (world, rows) = generated(17).await;
    // The noise of epsilon 1000 is a step or two.
    let sql = "SELECT dp_laplace(mask_shift(dp_laplace(a, 1000), 100), 1000) AS x, \
               dp_laplace(mask_random(a, 500, 500), 1) AS y, \
               mask_shift(dp_geometric(mask_shift(b, 10), 1000), -10) AS z, \
               CASE WHEN id < 150 THEN dp_laplace(a, 0.1) ELSE a END AS c FROM t ORDER BY id";
    let batch = world.reveal(sql).await.unwrap();
    for (row, x) in rows.iter().zip(steps(&batch, "x")) {
        assert_eq!(row.a.is_some(), x.is_some());
        assert!(zip(row.a, x, |a, x| (x - a - 100).abs() < 200).unwrap_or(true), "{:?} became {x:?}", row.a);
    }
    let noised = rows.iter().zip(steps(&batch, "x")).filter(|(row, x)| row.a.map(|a| a + 100) != *x).count();
    assert!(noised > 150, "{noised}");
    assert_eq!(steps(&batch, "y"), rows.iter().map(|row| row.a.map(|_| 500)).collect::<Vec<_>>());
    for (row, z) in rows.iter().zip(steps(&batch, "z")) {
        assert!(zip(row.b, z, |b, z| (z - b).abs() < 10).unwrap_or(true), "{:?} became {z:?}", row.b);
    }
    let (first, rest): (Vec<_>, Vec<_>) = rows.iter().zip(steps(&batch, "c")).partition(|(row, _)| row.id < 150);
    assert!(rest.iter().all(|(row, c)| row.a == *c));
    assert!(first.iter().filter(|(row, c)| row.a.is_some() && row.a != *c).count() > 120);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_calls_draw_twice() {
    let (world, _) = generated(18).await;
    for call in ["dp_laplace(a, 1)", "dp_laplace(b, 1)", "dp_geometric(a, 1)", "mask_noise(wage, 0.5)"] {
        let batch = world.reveal(&format!("SELECT {call} AS x, {call} AS y FROM t ORDER BY id")).await.unwrap();
        let (x, y) = (steps(&batch, "x"), steps(&batch, "y"));
        let different = x.iter().zip(&y).filter(|(x, y)| x != y).count();
        assert!(different > 200, "{call}: {different} rows differ");
    }
}

/// However a query is written, one call in it draws once for a row.
#[tokio::test(flavor = "multi_thread")]
async fn one_call_is_drawn_once() {
    let (world, rows) = generated(19).await;
    for (number, call) in ["dp_laplace(a, 1)", "dp_laplace(b, 1)", "mask_random(a, 0, 1000)", "mask_noise(wage, 0.5)"]
        .into_iter()
        .enumerate()
    {
        let drawn = format!("(SELECT id, region, {call} AS x FROM t)");
        world.run(&format!("CREATE VIEW v{number} AS SELECT id, region, {call} AS x FROM t")).await.unwrap();
        for (query, count) in [
            (format!("SELECT x, x AS y FROM {drawn} ORDER BY id"), ROWS),
            (format!("SELECT x, x AS y FROM v{number} ORDER BY id"), ROWS),
            (format!("WITH n AS {drawn} SELECT x, x AS y FROM n"), ROWS),
            (format!("SELECT x, x AS y FROM {drawn} WHERE id >= 100 ORDER BY region, id"), ROWS - 100),
            (format!("SELECT x, x AS y FROM {drawn} WHERE x IS NOT NULL OR id < 0 OR x IS NULL"), ROWS),
            (format!("SELECT x, x AS y FROM {drawn} ORDER BY id DESC LIMIT 50"), 50),
            (format!("SELECT x, mask_shift(x, 0) AS y FROM {drawn}"), ROWS),
            (format!("SELECT x, enc_sub(enc_add(x, x), x) AS y FROM {drawn}"), ROWS),
            (format!("SELECT n.x, n.x AS y FROM {drawn} n JOIN t ON n.id = t.id"), ROWS),
            (format!("SELECT x, CASE WHEN id < 100 THEN x ELSE x END AS y FROM {drawn}"), ROWS),
            (format!("SELECT x, first_value(x) OVER (PARTITION BY id) AS y FROM {drawn}"), ROWS),
            (format!("SELECT x, x AS y FROM (SELECT x FROM {drawn} UNION ALL SELECT x FROM {drawn})"), 2 * ROWS),
        ] {
            let batch = match world.reveal(&query).await {
                Ok(batch) => batch,
                Err(error) => panic!("{query}: {error}"),
            };
            assert_eq!(batch.num_rows() as i64, count, "{query}");
            assert_eq!(steps(&batch, "x"), steps(&batch, "y"), "{query}");
        }
    }
    // What is stored is drawn, and sums of it are sums of what was drawn.
    world.run("CREATE TABLE kept AS SELECT id, dp_laplace(a, 1) AS x FROM t").await.unwrap();
    let drawn: i64 = steps(&world.reveal("SELECT x FROM kept").await.unwrap(), "x").into_iter().flatten().sum();
    let sum = world.reveal("SELECT enc_sum(x) AS x FROM kept").await.unwrap();
    assert_eq!(steps(&sum, "x"), [Some(drawn)]);
    let near: i64 = rows.iter().filter_map(|row| row.a).sum();
    let noised = world.reveal("SELECT enc_sum(dp_laplace(a, 1000)) AS x FROM t").await.unwrap();
    assert!((steps(&noised, "x")[0].unwrap() - near).abs() < 2000);
}

/// A common table expression or a view that is named twice is two texts, and draws twice; a table draws once.
#[tokio::test(flavor = "multi_thread")]
async fn a_cte_that_is_used_twice_draws_twice_and_a_table_once() {
    let (world, _) = generated(20).await;
    let both = "SELECT one.x, two.x AS y FROM n one JOIN n two ON one.id = two.id ORDER BY one.id";
    let cte = format!("WITH n AS (SELECT id, dp_laplace(a, 1) AS x FROM t) {both}");
    let batch = world.reveal(&cte).await.unwrap();
    assert_ne!(steps(&batch, "x"), steps(&batch, "y"));
    world.run("CREATE VIEW n AS SELECT id, dp_laplace(a, 1) AS x FROM t").await.unwrap();
    let batch = world.reveal(both).await.unwrap();
    assert_ne!(steps(&batch, "x"), steps(&batch, "y"));
    world.run("DROP VIEW n").await.unwrap();
    world.run("CREATE TABLE n AS SELECT id, dp_laplace(a, 1) AS x FROM t").await.unwrap();
    let batch = world.reveal(both).await.unwrap();
    assert_eq!(steps(&batch, "x"), steps(&batch, "y"));
}

/// Platforms that embed DataFusion have other layouts of bytes than our reader of Parquet.
#[tokio::test(flavor = "multi_thread")]
async fn other_layouts_of_bytes_work_alike() {
    let (world, rows) = generated(21).await;
    let batch = world.run("SELECT id, region, a, b, wage, name, city, member FROM t").await.unwrap();
    for layout in [DataType::LargeBinary, DataType::BinaryView] {
        let columns = batch.columns().iter().map(|column| match column.data_type() {
            DataType::Binary => cast(column, &layout).unwrap(),
            _ => column.clone(),
        });
        let columns: Vec<ArrayRef> = columns.collect();
        let cells = batch.schema();
        let fields = cells.fields().iter().zip(&columns);
        let fields = fields.map(|(field, column)| Field::clone(field).with_data_type(column.data_type().clone()));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(schema.clone(), columns).unwrap();
        let context = session(&world.veil, SessionConfig::new());
        let table = MemTable::try_new(schema, vec![vec![batch]]).unwrap();
        context.register_table("m", Arc::new(table)).unwrap();
        let reveal = async |sql: &str| match run(&context, sql).await {
            Ok(batch) => world.decrypted(&batch).unwrap(),
            Err(error) => panic!("{layout}: {sql}: {error}"),
        };
        type Clear = fn(&Row) -> Option<i64>;
        let cases: [(&str, Clear); 9] = [
            ("a", |row| row.a),
            ("mask_shift(a, 3)", |row| row.a.map(|a| a + 3)),
            ("enc_add(a, b)", |row| zip(row.a, row.b, |a, b| a + b)),
            ("enc_scale(enc_sub(wage, 0.5), -2)", |row| row.wage.map(|w| 100 - 2 * w)),
            ("CASE WHEN id < 100 THEN a ELSE b END", |row| if row.id < 100 { row.a } else { row.b }),
            ("coalesce(a, b)", |row| row.a.or(row.b)),
            ("mask_random(a, 7, 7)", |row| row.a.map(|_| 7)),
            ("mask_redact(a, 5)", |row| row.a.map(|_| 5)),
            ("dp_binary(member, 1000)", |row| row.member.map(i64::from)),
        ];
        for (sql, clear) in cases {
            let batch = reveal(&format!("SELECT {sql} AS x FROM m ORDER BY id")).await;
            assert_eq!(steps(&batch, "x"), rows.iter().map(clear).collect::<Vec<_>>(), "{layout}: {sql}");
        }
        let batch =
            reveal("SELECT dp_exponential(city, 1000) AS x, mask_dictionary(name, 'names') AS y FROM m ORDER BY id")
                .await;
        let cities: Vec<Option<String>> = rows.iter().map(|row| row.city.map(str::to_owned)).collect();
        assert_eq!(texts(&batch, "x"), cities, "{layout}");
        let batch = reveal("SELECT enc_sum(a) AS x, enc_sum(dp_laplace(b, 1000)) AS y FROM m").await;
        assert_eq!(steps(&batch, "x"), [Some(rows.iter().filter_map(|row| row.a).sum())], "{layout}");
        let batch = reveal("SELECT id, x FROM (SELECT id, a AS x FROM m UNION ALL SELECT id + 1000, mask_shift(a, 1) FROM m) ORDER BY id").await;
        let twice = rows.iter().map(|row| row.a).chain(rows.iter().map(|row| row.a.map(|a| a + 1)));
        assert_eq!(steps(&batch, "x"), twice.collect::<Vec<_>>(), "{layout}");
        let batch = reveal("SELECT lag(a) OVER (ORDER BY id) AS x FROM m ORDER BY id LIMIT 2").await;
        assert_eq!(steps(&batch, "x"), [None, rows[0].a], "{layout}");
        let refused = run(&context, "SELECT arrow_cast(a, 'Binary') FROM m").await.unwrap_err().to_string();
        assert!(refused.contains("is nothing that arrow_cast understands"), "{refused}");
    }
}
