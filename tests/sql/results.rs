//! What the owner decrypts is what a clear computation gives.

use super::world::World;

const DECLARATION: &str = r#"
[table]
name = "people"
[column.name]
kind = "text"
max_length = 12
[column.age]
kind = "integer"
range = [0, 120]
identifier = true
[column.wage]
kind = "decimal"
scale = 2
range = [0, 250000]
[column.born]
kind = "date"
range = ["1900-01-01", "2020-12-31"]
public_range = true
[column.smoker]
kind = "binary"
values = ["no", "yes"]
[column.city]
kind = "category"
hierarchy = "city.csv"
[column.region]
kind = "clear"
[column.id]
kind = "clear"
type = "Int64"
[dictionary.names]
file = "names.txt"
pad_to = 16
"#;

const ROWS: &str = "\
name,age,wage,born,smoker,city,region,id
Anna,39,1000.50,1980-05-01,no,Paris,north,1
Bert,,2000.00,1975-01-31,yes,Rome,south,2
Cleo,41,0.00,1999-12-31,no,Lyon,south,3
Dora,120,250000.00,1900-01-01,,Rome,north,4
";

pub(crate) async fn people(seed: u64) -> World {
    let world = World::new(seed).await;
    world.write("city.csv", "Paris,France,*\nLyon,France,*\nRome,Italy,*\n");
    world.write("names.txt", "Xaver\nYlva\nZeno\n");
    world.table("people", ROWS, DECLARATION).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn shifting_and_arithmetic_are_exact() {
    let world = people(1).await;
    let shown = world
        .shown(
            "SELECT id, mask_shift(age, -3) AS a, mask_shift(wage, 0.25) AS w, enc_add(age, age) AS twice, enc_sub(wage, wage) AS zero, \
             enc_scale(age, 7) AS seven, mask_shift(born, 30) AS born FROM people ORDER BY id",
        )
        .await;
    println!("{shown}");
    let shown = world
        .shown("SELECT region, enc_sum(age) AS s, enc_avg(wage) AS a, count(age) AS n FROM people GROUP BY region ORDER BY region")
        .await;
    println!("{shown}");
    let shown = world
        .shown("SELECT id, mask_dictionary(name, 'names') n, mask_redact(name, 'gone') r, mask_redact(city) c, mask_noise(wage, 0.1) w, mask_random(age, 10, 20) x, mask_random(name) y, mask_random(city) z FROM people ORDER BY id")
        .await;
    println!("{shown}");
    let shown = world
        .shown("SELECT id, dp_laplace(age, 1) l, dp_geometric(born, 1) g, dp_laplace(wage, 2) w, dp_binary(smoker, 1) b, dp_exponential(city, 1) e, dp_randomized_response(city, 5) r, dp_laplace(mask_shift(dp_laplace(age, 100),1), 100) nested, CASE WHEN id < 3 THEN dp_laplace(age, 100) ELSE age END c FROM people ORDER BY id")
        .await;
    println!("{shown}");
    for sql in [
        "SELECT * FROM people WHERE age > 30",
        "SELECT age + 1 FROM people",
        "SELECT * FROM people ORDER BY age",
        "SELECT age, count(*) FROM people GROUP BY age",
        "SELECT DISTINCT age FROM people",
        "SELECT CAST(age AS INT) FROM people",
        "SELECT md5(name) FROM people",
        "SELECT upper(name) FROM people",
        "SELECT sum(age) FROM people",
        "SELECT max(age) FROM people",
        "SELECT * FROM people WHERE name LIKE 'A%'",
        "SELECT * FROM people WHERE age IN (1,2)",
        "SELECT * FROM people WHERE age BETWEEN 1 AND 2",
        "SELECT * FROM people a JOIN people b ON a.age = b.age",
        "SELECT * FROM people a JOIN people b USING (age)",
        "SELECT mask_shift(region, 3) FROM people",
        "SELECT mask_shift(name, 3) FROM people",
        "SELECT mask_shift(age, 0.5) FROM people",
        "SELECT dp_laplace(age, 0) FROM people",
        "SELECT dp_laplace(age, -1) FROM people",
        "SELECT dp_laplace(age) FROM people",
        "SELECT dp_laplace(city, 1) FROM people",
        "SELECT dp_laplace(enc_scale(age, 2), 1) FROM people",
        "SELECT CASE WHEN id = 1 THEN age ELSE wage END FROM people",
    ] {
        println!("{sql}\n   {}", world.refusal(sql).await);
    }
    println!(
        "{}",
        world
            .shown("EXPLAIN SELECT dp_laplace(mask_shift(age,1), 1) a FROM people WHERE region = 'north' LIMIT 1")
            .await
    );
}
