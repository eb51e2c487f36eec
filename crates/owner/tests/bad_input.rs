//! Bad input gets one clear sentence, and nothing is written.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod files;

use std::fs;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Date64Array, Int8Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::Schema;
use files::Folder;

const DECLARATION: &str = r#"
[table]
name = "t"
[column.name]
kind = "text"
max_length = 6
[column.age]
kind = "integer"
range = [0, 120]
[column.city]
kind = "category"
values = ["Paris", "Rome"]
"#;

const ROWS: &str = "name,age,city\nAnna,39,Paris\nBert,40,Rome\n";

fn folder() -> Folder {
    Folder::new(&[("t.toml", DECLARATION), ("t.csv", ROWS)])
}

#[track_caller]
fn assert_refused(folder: &Folder, expected: &str) {
    let error = folder.encrypt("t.csv", "t.toml", "out.veil.parquet").unwrap_err().to_string();
    assert!(error.contains(expected), "\n found: {error}\n not:   {expected}");
    assert!(!error.contains('\n') && !folder.at("out.veil.parquet").exists());
}

#[test]
fn bad_values_are_named_with_file_row_column_and_remedy() {
    for (good, bad, expected) in [
        (
            "40",
            "130",
            "t.csv: row 2, column age: `130` is outside the declared range [0, 120]; correct it or widen `range`",
        ),
        ("40", "x", "row 2, column age: `x` is not a whole number"),
        ("Anna", "Annabella", "row 1, column name: `Annabella` has 9 bytes and max_length is 6; shorten it"),
        ("Rome", "Oslo", "row 2, column city: `Oslo` is not a leaf of the hierarchy; add it there or correct it"),
        ("name,age,city", "name,age,town", "the declared column `city` is missing"),
        ("name,age,city\n", "name,age,city,zip\n", "the column `zip` is not declared; add [column.zip]"),
        ("name,age,city", "age,age,city", "the column `age` appears twice"),
        ("40,Rome", "40,Rome,7", "t.csv: "),
        (ROWS, "", "it has no header line"),
    ] {
        let folder = folder();
        folder.write("t.csv", &ROWS.replacen(good, bad, 1));
        assert_refused(&folder, expected);
    }
}

#[test]
fn a_row_number_counts_across_batches() {
    let folder = folder();
    let rows: String = (0..70_000).map(|row| format!("A,{},Rome\n", if row == 69_999 { 121 } else { 1 })).collect();
    folder.write("t.csv", &format!("name,age,city\n{rows}"));
    assert_refused(&folder, "row 70000, column age: `121`");
}

#[test]
fn hierarchies_that_are_no_trees_are_named() {
    let folder = folder();
    folder.write("t.toml", &DECLARATION.replace("values = [\"Paris\", \"Rome\"]", "hierarchy = \"city.csv\""));
    for (hierarchy, expected) in [
        ("Paris,France,*\nRome,France,Earth\n", "city.csv: the hierarchy is not a tree: row 2 ends in `Earth`"),
        ("Paris;West;*;*\nRome;West;South;*\n", "row 2: `West` on level 1 lies below `South` here"),
        ("Paris,*\nParis,*\n", "row 2 repeats the leaf `Paris`"),
        ("Paris,*\nRome,South,*\n", "city.csv: "),
        ("", "city.csv: "),
    ] {
        folder.write("city.csv", hierarchy);
        assert_refused(&folder, expected);
    }
    folder.write("city.csv", "Paris;France;*\nRome;Italy;*\n");
    folder.encrypt("t.csv", "t.toml", "out.veil.parquet").unwrap();
}

#[test]
fn endings_tell_the_format() {
    let folder = folder();
    let error = folder.encrypt("t.csv", "t.toml", "out.csv").unwrap_err().to_string();
    assert!(
        error.ends_with("out.csv: an encrypted file is Parquet or Arrow; use the ending .parquet or .arrow"),
        "{error}"
    );
    folder.write("t.xlsx", "");
    let error = folder.encrypt("t.xlsx", "t.toml", "out.parquet").unwrap_err().to_string();
    assert!(error.contains("the ending tells the format"), "{error}");
    let error = folder.encrypt("absent.csv", "t.toml", "out.parquet").unwrap_err().to_string();
    assert!(error.contains("absent.csv: No such file"), "{error}");
}

#[test]
fn another_owners_key_is_refused() {
    let (folder, stranger) = (folder(), folder());
    folder.encrypt("t.csv", "t.toml", "out.veil.parquet").unwrap();
    fs::copy(folder.at("out.veil.parquet"), stranger.at("out.veil.parquet")).unwrap();
    let error = stranger.decrypt("out.veil.parquet", "back.csv").unwrap_err().to_string();
    assert!(error.contains("column name: wrong key: expected key"), "{error}");
    assert!(!stranger.at("back.csv").exists());
    let error = stranger.decrypt("t.csv", "back.csv").unwrap_err().to_string();
    assert!(error.contains("an encrypted file is Parquet or Arrow"), "{error}");
}

/// Wherever a file ends or is damaged, the tools answer with an error or with true values, and never panic.
#[test]
fn damaged_files_never_panic_and_never_lie() {
    let folder = Folder::repeatable(&[("t.toml", DECLARATION), ("t.csv", ROWS)]);
    for encrypted in ["out.veil.parquet", "out.veil.arrow"] {
        folder.encrypt_repeatably("t.csv", "t.toml", encrypted).unwrap();
        let bytes = fs::read(folder.at(encrypted)).unwrap();
        let damaged = format!("damaged.{}", &encrypted[4..]);
        let mut refused = 0;
        let ends = (0..bytes.len()).step_by(211).map(|at| bytes[..at].to_vec());
        let flips = (0..bytes.len()).step_by(97).map(|at| {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            flipped
        });
        for (at, content) in ends.chain(flips).enumerate() {
            fs::write(folder.at(&damaged), content).unwrap();
            let back = format!("{encrypted}.{at}.csv");
            match folder.decrypt(&damaged, &back) {
                Ok(_) => {
                    // Names and NULLs are the container's and not authenticated; values are, each in its place.
                    let back = fs::read_to_string(folder.at(&back)).unwrap();
                    for (found, expected) in back.lines().zip(ROWS.lines()).skip(1) {
                        let mut pairs = found.split(',').zip(expected.split(','));
                        let true_or_null = pairs.all(|(found, expected)| found.is_empty() || found == expected);
                        assert!(true_or_null, "variant {at}: {found} instead of {expected}");
                    }
                }
                Err(_) => refused += 1,
            }
            let _ = veil_owner::inspect_file(&folder.at(&damaged), &veil_owner::unwatched);
        }
        assert!(refused > 50, "{refused} variants of {encrypted} were refused");
    }
}

/// What DataFusion does without `with_veil`: the cells are there, the metadata is gone.
#[test]
fn cells_that_lost_their_type_are_named() {
    let folder = folder();
    folder.encrypt("t.csv", "t.toml", "out.veil.arrow").unwrap();
    let batch = folder.read("out.veil.arrow");
    // All columns but the first have lost it.
    let schema = batch.schema();
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(at, field)| match at {
            0 => field.as_ref().clone(),
            _ => field.as_ref().clone().with_metadata(Default::default()),
        })
        .collect();
    let one_left = RecordBatch::try_new(Arc::new(Schema::new(fields)), batch.columns().to_vec()).unwrap();
    folder.write_arrow("lost.arrow", &one_left);
    let error = folder.decrypt("lost.arrow", "back.csv").unwrap_err().to_string();
    // Columns are decrypted side by side: any of them may be the first to be found.
    assert!(error.contains(" holds cells but lost its type"), "{error}");
}

/// The public type is a hint; what decides how a message is read is sealed.
#[test]
fn a_changed_type_is_refused() {
    let folder = folder();
    folder.encrypt("t.csv", "t.toml", "out.veil.arrow").unwrap();
    let batch = folder.read("out.veil.arrow");
    let schema = batch.schema();
    let changed = schema.fields().iter().map(|field| {
        let mut metadata = field.metadata().clone();
        let json = metadata.get_mut("ARROW:extension:metadata").unwrap();
        *json = json.replace("\"kind\":\"integer\"", "\"kind\":\"decimal\",\"scale\":1");
        field.as_ref().clone().with_metadata(metadata)
    });
    let changed = Arc::new(Schema::new(changed.collect::<Vec<_>>()));
    folder.write_arrow("changed.arrow", &RecordBatch::try_new(changed, batch.columns().to_vec()).unwrap());
    let error = folder.decrypt("changed.arrow", "back.csv").unwrap_err().to_string();
    assert!(error.contains("column age: its public type is not the one that it was encrypted with"), "{error}");
}

#[test]
fn a_plain_file_is_not_decrypted() {
    let folder = folder();
    let batch = RecordBatch::try_from_iter([("age", Arc::new(Int64Array::from(vec![1])) as ArrayRef)]);
    folder.write_parquet("plain.parquet", &batch.unwrap());
    let error = folder.decrypt("plain.parquet", "back.csv").unwrap_err().to_string();
    assert!(error.contains("no column is encrypted"), "{error}");
}

/// A value that a cast would quietly turn into NULL is an error.
#[test]
fn typed_values_that_do_not_fit_are_named() {
    let folder = folder();
    let name: ArrayRef = Arc::new(StringArray::from(vec!["Anna", "Bert"]));
    let city: ArrayRef = Arc::new(StringArray::from(vec!["Rome", "Rome"]));
    let age: ArrayRef = Arc::new(UInt64Array::from(vec![39, u64::MAX]));
    let batch = RecordBatch::try_from_iter([("name", name), ("age", age), ("city", city.clone())]).unwrap();
    folder.write_arrow("wide.arrow", &batch);
    let error = folder.encrypt("wide.arrow", "t.toml", "out.veil.parquet").unwrap_err().to_string();
    assert!(error.contains("row 2, column age: `18446744073709551615` (UInt64) cannot be read as Int64"), "{error}");

    let age: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let bytes: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"a", b"b"]));
    let batch = RecordBatch::try_from_iter([("name", bytes), ("age", age), ("city", city)]).unwrap();
    folder.write_arrow("bytes.arrow", &batch);
    let error = folder.encrypt("bytes.arrow", "t.toml", "out.veil.parquet").unwrap_err().to_string();
    assert!(error.contains("column name: values of type Binary cannot be encrypted; declare the column as"), "{error}");

    let declaration =
        "[table]\nname = \"t\"\n[column.day]\nkind = \"date\"\nrange = [\"1960-01-01\", \"1980-01-01\"]\n";
    folder.write("t.toml", declaration);
    let day: ArrayRef = Arc::new(Date64Array::from(vec![86_400_000, 86_400_001]));
    folder.write_arrow("day.arrow", &RecordBatch::try_from_iter([("day", day)]).unwrap());
    let error = folder.encrypt("day.arrow", "t.toml", "out.veil.parquet").unwrap_err().to_string();
    assert!(error.contains("row 2, column day:") && error.contains("is not a whole day"), "{error}");
}

/// A number that has grown beyond the type it came in is an error, not a NULL.
#[test]
fn results_that_outgrow_their_type_are_named() {
    let folder = folder();
    folder.write("n.toml", "[table]\nname = \"n\"\n[column.n]\nkind = \"integer\"\nrange = [0, 127]\n");
    let numbers: ArrayRef = Arc::new(Int8Array::from(vec![1, 120]));
    folder.write_arrow("n.arrow", &RecordBatch::try_from_iter([("n", numbers)]).unwrap());
    folder.encrypt("n.arrow", "n.toml", "n.veil.arrow").unwrap();
    let batch = folder.read("n.veil.arrow");
    let moved = |by| {
        let cells = veil_cells::CellArray::try_new(batch.column(0)).unwrap();
        let column = Arc::new(veil_cells::add_constant(cells, by).unwrap()) as ArrayRef;
        folder.write_arrow("moved.arrow", &RecordBatch::try_new(batch.schema(), vec![column]).unwrap());
        let back = format!("{by}.csv");
        folder.decrypt("moved.arrow", &back).map(|_| fs::read_to_string(folder.at(&back)).unwrap())
    };
    assert_eq!(moved(7).unwrap(), "n\n8\n127\n");
    let error = moved(8).unwrap_err().to_string();
    assert!(error.contains("column n: ") && error.contains("128"), "{error}");
}

#[test]
fn dictionaries_that_do_not_fit_are_named() {
    let folder = folder();
    folder.write("t.toml", &format!("{DECLARATION}[dictionary.long]\nfile = \"long.txt\"\n"));
    for length in [1519, 1530, 1536, 1542] {
        folder.write("long.txt", &"x".repeat(length));
        assert_refused(&folder, &format!("long.txt: an entry has {length} bytes, and 1518 fit"));
    }
}
