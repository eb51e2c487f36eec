//! Small tables with a column of every kind.

use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_keys::OwnerKeys;

use super::world::World;

/// NULLs are public. The bounds of score and born are public too.
const PEOPLE: &str = r#"
[table]
name = "people"
[column.id]
kind = "clear"
type = "Int64"
[column.region]
kind = "clear"
[column.name]
kind = "text"
max_length = 12
[column.age]
kind = "integer"
range = [0, 120]
identifier = true
[column.score]
kind = "integer"
range = [-50, 50]
public_range = true
[column.wage]
kind = "decimal"
scale = 2
range = [0, 250000]
[column.born]
kind = "date"
range = ["1900-01-01", "2020-12-31"]
public_range = true
[column.seen]
kind = "timestamp"
unit = "minute"
range = ["2020-01-01T00:00:00", "2024-12-31T23:59:00"]
[column.member]
kind = "boolean"
[column.smoker]
kind = "binary"
values = ["no", "yes"]
[column.city]
kind = "category"
hierarchy = "city.csv"
[dictionary.names]
file = "names.txt"
pad_to = 16
"#;

const PEOPLE_ROWS: &str = "\
id,region,name,age,score,wage,born,seen,member,smoker,city
1,north,Anna,39,-50,1000.50,1980-05-01,2024-02-29T12:30:00,true,no,Paris
2,south,Bert,,7,2000.00,1975-01-31,2020-01-01T00:00:00,false,yes,Rome
3,south,Cleo,41,,0.00,1999-12-31,,true,,Lyon
4,north,,120,50,250000.00,1900-01-01,2024-12-31T23:59:00,,no,
5,west,,,,,,,,,
";

/// NULLs look like values.
const HIDDEN: &str = r#"
[table]
name = "hidden"
hide_nulls = true
[column.id]
kind = "clear"
type = "Int64"
[column.name]
kind = "text"
max_length = 12
[column.age]
kind = "integer"
range = [0, 120]
[column.score]
kind = "integer"
range = [-50, 50]
public_range = true
[column.wage]
kind = "decimal"
scale = 2
range = [0, 250000]
[column.member]
kind = "boolean"
[column.smoker]
kind = "binary"
values = ["no", "yes"]
[column.city]
kind = "category"
hierarchy = "city.csv"
[column.secret]
kind = "category"
hierarchy = "city.csv"
hide_shape = true
hide_nulls = false
"#;

const HIDDEN_ROWS: &str = "\
id,name,age,score,wage,member,smoker,city,secret
1,Anna,39,-50,1000.50,true,no,Paris,Rome
2,,,,,,,,
3,Cleo,41,50,0.25,false,yes,Rome,Lyon
";

/// Of another owner.
const STRANGERS: &str = r#"
[table]
name = "strangers"
[column.id]
kind = "clear"
type = "Int64"
[column.age]
kind = "integer"
range = [0, 120]
[column.score]
kind = "integer"
range = [-50, 50]
public_range = true
[column.name]
kind = "text"
max_length = 12
[column.city]
kind = "category"
hierarchy = "city.csv"
[column.smoker]
kind = "binary"
values = ["no", "yes"]
"#;

const STRANGERS_ROWS: &str = "\
id,age,score,name,city,smoker
1,50,1,Zoe,Rome,yes
";

/// Adds the tables people, hidden and strangers.
pub(crate) async fn add_tables(world: &World) {
    world.write("city.csv", "Paris,France,*\nLyon,France,*\nRome,Italy,*\n");
    world.write("names.txt", "Xaver\nYlva\nZeno\n");
    world.table("people", PEOPLE_ROWS, PEOPLE).await;
    // The same people, encrypted a second time: rows of another file, with the same columns and tags.
    world.table("again", PEOPLE_ROWS, PEOPLE.split_once("[dictionary").unwrap().0).await;
    world.table("hidden", HIDDEN_ROWS, HIDDEN).await;
    let stranger = OwnerKeys::generate(&mut StdRng::seed_from_u64(u64::MAX));
    world.table_under(&stranger, "strangers", STRANGERS_ROWS, STRANGERS).await;
}
