//! The drafted declaration: what `veil init` makes of data, and that it encrypts that data as it stands.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod files;

use files::{Folder, assert_same_file};
use veil_owner::{DraftOptions, draft_declaration, unwatched};

const DATA: &str = "\
id,joined,visit,score,flag,answer,colour,note,mostly
1,2020-01-31,2020-01-31T10:00:00,1.5,true,no,red,first,1
2,2021-12-01,2020-02-01T11:00:00,-0.25,false,yes,blue,\"second, longer\",
3,2019-07-15,2020-02-01T12:00:00,3,true,no,red,third,3
4,2019-07-16,2020-02-02T13:00:00,4,true,yes,green,fourth,4
5,2019-07-16,2020-02-02T13:00:00,4.75,true,yes,red,fifth,5
6,2019-07-16,2020-02-02T13:00:00,4,true,yes,red,sixth,6
7,2019-07-16,2020-02-02T13:00:00,4,true,yes,red,seventh,7
8,2019-07-16,2020-02-02T13:00:00,4,true,yes,red,eighth,8
9,2019-07-16,2020-02-02T13:00:00,4,true,yes,blue,ninth,9
10,2019-07-16,2020-02-02T13:00:00,4,true,yes,blue,tenth,10
11,2019-07-16,2020-02-02T13:00:00,4,true,yes,blue,eleventh,11
12,2019-07-16,2020-02-02T13:00:00,4,true,yes,blue,twelfth,12
";

const DRAFT: &str = r#"
[table]
name = "visits"

[column.id]
kind = "integer"
range = [1, 12]
identifier = true

[column.joined]
kind = "date"
range = ["2019-07-15", "2021-12-01"]
identifier = true

[column.visit]
kind = "timestamp"
unit = "hour"
range = ["2020-01-31T10:00:00", "2020-02-02T13:00:00"]
identifier = true

[column.score]
kind = "decimal"
scale = 2
range = [-0.25, 4.75]
identifier = true

[column.flag]
kind = "boolean"
identifier = true

[column.answer]
kind = "binary"
values = ["no", "yes"]
identifier = true

[column.colour]
kind = "category"
values = ["blue", "green", "red"]
identifier = true

[column.note]
kind = "text"
max_length = 18
identifier = true

[column.mostly]
kind = "integer"
range = [1, 12]
identifier = true
hide_nulls = false  # 1 values are missing, which stays visible unless true
"#;

#[test]
fn kinds_ranges_and_categories_are_seen() {
    let folder = Folder::new(&[("visits.csv", DATA)]);
    let draft = draft_declaration(&folder.at("visits.csv"), &DraftOptions::default(), &unwatched).unwrap();
    let (comment, draft) = draft.split_once("\n\n").unwrap();
    assert!(comment.starts_with("# Drafted from visits.csv (12 rows)."), "{comment}");
    assert_eq!(draft.trim(), DRAFT.trim());
}

#[test]
fn a_draft_encrypts_its_data() {
    // Decimals come back with all their places.
    let data = DATA.replace(",1.5,", ",1.50,").replace(",3,true", ",3.00,true").replace(",4,true", ",4.00,true");
    let folder = Folder::new(&[("visits.csv", &data)]);
    let draft = draft_declaration(&folder.at("visits.csv"), &DraftOptions::default(), &unwatched).unwrap();
    folder.write("visits.toml", &draft);
    folder.encrypt("visits.csv", "visits.toml", "visits.veil.parquet").unwrap();
    folder.decrypt("visits.veil.parquet", "back.csv").unwrap();
    assert_same_file(&folder.at("visits.csv"), &folder.at("back.csv"));
}

#[test]
fn hierarchies_are_found_by_name_and_content() {
    let folder = Folder::new(&[
        ("visits.csv", DATA),
        ("my_colour.csv", "red,warm,*\nblue,cold,*\ngreen,cold,*\n"),
        ("answer.csv", "perhaps,*\n"),
        ("id.csv", "1,*\n"),
    ]);
    let at = folder.at("");
    let options = DraftOptions { hierarchies: Some(at.clone()), table: Some("v 1".to_owned()), folder: at };
    let draft = draft_declaration(&folder.at("visits.csv"), &options, &unwatched).unwrap();
    assert!(draft.contains("name = \"v 1\""), "{draft}");
    assert!(draft.contains("[column.colour]\nkind = \"category\"\nhierarchy = \"my_colour.csv\""), "{draft}");
    assert!(draft.contains("[column.answer]\nkind = \"binary\""), "{draft}");
    assert!(draft.contains("[column.id]\nkind = \"integer\""), "{draft}");
}

/// What would come back in another spelling is not taken for a number.
#[test]
fn codes_with_leading_zeros_are_labels() {
    let rows: String = (0..40).map(|row| format!("{:05},{}\n", row % 4, ["TRUE", "FALSE"][row % 2])).collect();
    let folder = Folder::new(&[("z.csv", &format!("zip,flag\n{rows}"))]);
    let draft = draft_declaration(&folder.at("z.csv"), &DraftOptions::default(), &unwatched).unwrap();
    assert!(draft.contains("kind = \"category\"\nvalues = [\"00000\", \"00001\", \"00002\", \"00003\"]"), "{draft}");
    assert!(draft.contains("kind = \"binary\"\nvalues = [\"FALSE\", \"TRUE\"]"), "{draft}");
    folder.write("z.toml", &draft);
    folder.encrypt("z.csv", "z.toml", "z.veil.parquet").unwrap();
    folder.decrypt("z.veil.parquet", "back.csv").unwrap();
    assert_same_file(&folder.at("z.csv"), &folder.at("back.csv"));
}

/// Cells and other bytes have no text to look at.
#[test]
fn encrypted_columns_stay_as_they_are() {
    let folder = Folder::new(&[("visits.csv", DATA)]);
    let draft = draft_declaration(&folder.at("visits.csv"), &DraftOptions::default(), &unwatched).unwrap();
    folder.write("visits.toml", &draft);
    folder.encrypt("visits.csv", "visits.toml", "visits.veil.arrow").unwrap();
    let again = draft_declaration(&folder.at("visits.veil.arrow"), &DraftOptions::default(), &unwatched).unwrap();
    assert_eq!(again.matches("kind = \"clear\"  # Binary cannot be encrypted").count(), 9, "{again}");
    folder.write("again.toml", &again);
    folder.encrypt("visits.veil.arrow", "again.toml", "copy.veil.arrow").unwrap();
    assert_eq!(folder.read("copy.veil.arrow"), folder.read("visits.veil.arrow"));
}

#[test]
fn wide_numbers_and_odd_names_become_text_and_quoted_keys() {
    let folder = Folder::new(&[("x.csv", "phone number,\"a\"\"b\"\n491701234567,1\n491701234568,2\n491701234569,3\n")]);
    let draft = draft_declaration(&folder.at("x.csv"), &DraftOptions::default(), &unwatched).unwrap();
    assert!(draft.contains("[column.\"phone number\"]\nkind = \"text\"\nmax_length = 12"), "{draft}");
    folder.write("x.toml", &draft);
    folder.encrypt("x.csv", "x.toml", "x.veil.arrow").unwrap();
}
