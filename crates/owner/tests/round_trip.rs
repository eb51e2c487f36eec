//! Files in, encrypted files out, and the same values back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod files;

use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType, Field, Schema};
use files::{Folder, assert_same_file};
use veil_owner::{Declaration, OwnerError, unwatched};

const EVERY_KIND: &str = r#"
[table]
name = "people"

[column.name]
kind = "text"
max_length = 12
identifier = true

[column.age]
kind = "integer"
range = [-128, 127]
identifier = true

[column.salary]
kind = "decimal"
scale = 2
range = ["-21474836.48", "21474836.47"]

[column.born]
kind = "date"
range = ["0001-01-01", "9999-12-31"]

[column.seen]
kind = "timestamp"
range = ["1901-12-13T20:45:52", "2038-01-19T03:14:07"]

[column.member]
kind = "boolean"
identifier = true

[column.smoker]
kind = "binary"
values = ["no", "yes"]

[column.city]
kind = "category"
hierarchy = "city.csv"
identifier = true

[column.region]
kind = "clear"
"#;

const CITIES: &str = "Paris,France,*\nLyon,France,*\nRome,Italy,*\n";

/// Both ends of every range, empty fields, quotes, other scripts.
const PEOPLE: &str = "\
name,age,salary,born,seen,member,smoker,city,region
Anna,-128,-21474836.48,0001-01-01,1901-12-13T20:45:52,true,no,Paris,north
Zoë,127,21474836.47,9999-12-31,2038-01-19T03:14:07,false,yes,Rome,south
\"a,\"\"b\"\"\",0,0.00,1970-01-01,1970-01-01T00:00:00,true,yes,Lyon,\"x, y\"
,,,,,,,,
東京東京,1,-0.01,1969-12-31,1969-12-31T23:59:59,false,no,Paris,west
";

fn folder() -> Folder {
    Folder::new(&[("people.toml", EVERY_KIND), ("city.csv", CITIES), ("people.csv", PEOPLE)])
}

#[test]
fn csv_comes_back_to_the_byte() {
    let folder = folder();
    for encrypted in ["people.veil.parquet", "people.veil.arrow"] {
        folder.encrypt("people.csv", "people.toml", encrypted).unwrap();
        let back = format!("{encrypted}.csv");
        folder.decrypt(encrypted, &back).unwrap();
        assert_same_file(&folder.at("people.csv"), &folder.at(&back));
    }
}

#[test]
fn hidden_nulls_come_back_and_do_not_show() {
    let folder = folder();
    let declaration = EVERY_KIND.replace("name = \"people\"", "name = \"people\"\nhide_nulls = true");
    folder.write("hidden.toml", &declaration);
    folder.encrypt("people.csv", "hidden.toml", "people.veil.parquet").unwrap();
    for column in folder.inspect("people.veil.parquet").columns.iter().filter(|column| column.encrypted) {
        assert_eq!(column.nulls, 0, "{}", column.name);
    }
    folder.decrypt("people.veil.parquet", "back.csv").unwrap();
    assert_same_file(&folder.at("people.csv"), &folder.at("back.csv"));
}

/// Typed input keeps its types, down to time zones and dictionaries.
#[test]
fn typed_files_come_back_in_their_types() {
    let folder = folder();
    let cities = StringDictionaryBuilder::<arrow::datatypes::Int32Type>::new();
    let cities = [Some("Rome"), None, Some("Lyon")].into_iter().fold(cities, |mut builder, city| {
        builder.append_option(city);
        builder
    });
    let mut cities = cities;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("name", Arc::new(LargeStringArray::from(vec![Some("Anna"), None, Some("")]))),
        ("age", Arc::new(Int8Array::from(vec![Some(-128), Some(127), None]))),
        ("salary", Arc::new(Float64Array::from(vec![Some(0.1), Some(-2.5), None]))),
        ("born", Arc::new(Date64Array::from(vec![Some(0), Some(86_400_000), None]))),
        (
            "seen",
            Arc::new(
                TimestampMicrosecondArray::from(vec![Some(1_000_000), None, Some(-5_000_000)])
                    .with_timezone("Europe/Paris"),
            ),
        ),
        ("member", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("smoker", Arc::new(StringViewArray::from(vec![Some("yes"), Some("no"), None]))),
        ("city", Arc::new(cities.finish())),
        ("region", Arc::new(UInt16Array::from(vec![1, 2, 3]))),
    ];
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect()).unwrap();
    folder.write_arrow("typed.arrow", &batch);
    folder.write_parquet("typed.parquet", &batch);
    for (input, encrypted, back) in [
        ("typed.arrow", "a.veil.parquet", "a.back.arrow"),
        ("typed.arrow", "b.veil.arrow", "b.back.parquet"),
        ("typed.parquet", "c.veil.arrow", "c.back.arrow"),
    ] {
        folder.encrypt(input, "people.toml", encrypted).unwrap();
        folder.decrypt(encrypted, back).unwrap();
        let back = folder.read(back);
        assert_eq!(back.columns(), batch.columns(), "{input} through {encrypted}");
    }
}

#[test]
fn several_batches_keep_their_order() {
    let folder = folder();
    let rows: String = (0..100_000).map(|i| format!("{},{}\n", i % 1000, i)).collect();
    folder.write("many.csv", &format!("value,row\n{rows}"));
    folder.write("many.toml", "[table]\nname = \"many\"\n[column.value]\nkind = \"integer\"\nrange = [0, 999]\n[column.row]\nkind = \"clear\"\ntype = \"Int64\"\n");
    for encrypted in ["many.veil.parquet", "many.veil.arrow"] {
        folder.encrypt("many.csv", "many.toml", encrypted).unwrap();
        let back = format!("{encrypted}.csv");
        folder.decrypt(encrypted, &back).unwrap();
        assert_same_file(&folder.at("many.csv"), &folder.at(&back));
    }
    let inspection = folder.inspect("many.veil.parquet");
    assert_eq!((inspection.rows, inspection.columns[0].chunks), (100_000, 25));
}

#[test]
fn an_empty_table_is_a_table() {
    let folder = folder();
    let header = PEOPLE.lines().next().unwrap().to_owned() + "\n";
    folder.write("empty.csv", &header);
    folder.encrypt("empty.csv", "people.toml", "empty.veil.parquet").unwrap();
    folder.decrypt("empty.veil.parquet", "back.parquet").unwrap();
    assert_eq!(folder.inspect("empty.veil.parquet").rows, 0);
}

/// Two files of one table have the same schema, metadata included, and no cell in common.
#[test]
fn files_of_one_table_fit_together() {
    let folder = folder();
    folder.encrypt("people.csv", "people.toml", "one.veil.arrow").unwrap();
    folder.encrypt("people.csv", "people.toml", "two.veil.arrow").unwrap();
    let (one, two) = (folder.read("one.veil.arrow"), folder.read("two.veil.arrow"));
    assert_eq!(one.schema(), two.schema());
    let name = |batch: &RecordBatch| batch.column(0).as_binary::<i32>().value(0).to_vec();
    assert_ne!(name(&one), name(&two));
}

#[test]
fn side_tables_travel_along() {
    let folder = folder();
    folder.write("names.txt", "Ada\nGrace\n\nBarbara-Henriette\n");
    let declaration = EVERY_KIND.replace("name = \"people\"", "name = \"people\"\nzero_pool = 5000")
        + "[dictionary.names]\nfile = \"names.txt\"\npad_to = 64\n";
    folder.write("side.toml", &declaration);
    for encrypted in ["side.veil.parquet", "side.veil.arrow"] {
        folder.encrypt("people.csv", "side.toml", encrypted).unwrap();
        let tables = folder.inspect(encrypted).side_tables;
        let tables: Vec<(&str, usize)> = tables.iter().map(|table| (table.name.as_str(), table.entries)).collect();
        assert_eq!(tables, [("dictionary.names", 64), ("zeros", 5000)]);
        let names = folder.decrypt_side_table(encrypted, "dictionary.names");
        assert!(names.iter().all(|name| ["Ada", "Grace", "Barbara-Henriette"].contains(&name.as_str())), "{names:?}");
        assert!(["Ada", "Grace", "Barbara-Henriette"].iter().all(|name| names.iter().any(|n| n == name)));
    }
    folder.write("side.toml", &declaration.replace("pad_to = 64", "pad_to = 2"));
    let error = folder.encrypt("people.csv", "side.toml", "no.veil.parquet").unwrap_err();
    assert!(error.to_string().ends_with("it has 3 entries, more than pad_to = 2"), "{error}");
}

#[test]
fn adult_comes_back_to_the_byte() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !data.join("adult.csv").exists() {
        eprintln!("skipped: adult.csv is not at hand");
        return;
    }
    let folder = folder();
    let options = veil_owner::DraftOptions { hierarchies: Some(data.join("hierarchies")), ..Default::default() };
    let draft = veil_owner::draft_declaration(&data.join("adult.csv"), &options, &unwatched).unwrap();
    assert_eq!(draft.matches("hierarchy = ").count(), 8, "{draft}");
    folder.write("adult.toml", &draft);
    let (keys, output) = (folder.keys(), folder.output("adult.veil.parquet"));
    let declaration = Declaration::load(&folder.at("adult.toml")).unwrap();
    let summary = veil_owner::encrypt_file(
        &data.join("adult.csv"),
        &declaration,
        &keys,
        &output,
        &mut veil_keys::os_rng(),
        &unwatched,
    );
    assert_eq!(summary.unwrap().rows, 30_162);
    folder.decrypt("adult.veil.parquet", "back.csv").unwrap();
    assert_same_file(&data.join("adult.csv"), &folder.at("back.csv"));
    for column in folder.inspect("adult.veil.parquet").columns {
        if column.kind == "integer" {
            assert!(column.arrow_bytes <= 64.0 && column.parquet_bytes.unwrap() <= 32.0, "{column:?}");
        }
    }
}

#[test]
fn nothing_is_overwritten_unasked_and_nothing_half_written_stays() {
    let folder = folder();
    folder.write("out.veil.parquet", "precious");
    let error = folder.encrypt("people.csv", "people.toml", "out.veil.parquet").unwrap_err();
    assert!(matches!(error, OwnerError::Exists(_)), "{error}");
    assert_eq!(std::fs::read_to_string(folder.at("out.veil.parquet")).unwrap(), "precious");

    let before = folder.names();
    folder.write("people.csv", &PEOPLE.replace("127", "128"));
    folder.encrypt("people.csv", "people.toml", "new.veil.parquet").unwrap_err();
    assert_eq!(folder.names(), before);
}

#[test]
fn a_cancelled_run_leaves_nothing() {
    let folder = folder();
    let before = folder.names();
    let declaration = Declaration::load(&folder.at("people.toml")).unwrap();
    let output = folder.output("people.veil.parquet");
    let stop = |_| std::ops::ControlFlow::Break(());
    let keys = folder.keys();
    let cancelled = veil_owner::encrypt_file(
        &folder.at("people.csv"),
        &declaration,
        &keys,
        &output,
        &mut veil_keys::os_rng(),
        &stop,
    );
    assert!(matches!(cancelled, Err(OwnerError::Cancelled)), "{cancelled:?}");
    assert_eq!(folder.names(), before);
}

#[test]
fn clear_columns_take_their_declared_type() {
    let folder = folder();
    let declaration = EVERY_KIND.replace("kind = \"clear\"", "kind = \"clear\"\ntype = \"Int64\"");
    folder.write("people.toml", &declaration);
    let error = folder.encrypt("people.csv", "people.toml", "no.veil.arrow").unwrap_err().to_string();
    assert!(error.contains("row 1, column region: `north` is not of the declared type Int64"), "{error}");
    for (at, region) in ["north", "south", "\"x, y\"", "west"].iter().enumerate() {
        let text = std::fs::read_to_string(folder.at("people.csv")).unwrap();
        folder.write("people.csv", &text.replace(region, &at.to_string()));
    }
    folder.encrypt("people.csv", "people.toml", "typed.veil.arrow").unwrap();
    let region = folder.read("typed.veil.arrow");
    assert_eq!(region.column_by_name("region").unwrap().data_type(), &DataType::Int64);
}
