//! DataFusion reads, filters, joins and copies encrypted columns; the owner decrypts what comes out.

use std::path::{Path, PathBuf};

use datafusion::prelude::{SessionConfig, SessionContext};
use veil_keys::{OwnerKeys, os_rng};
use veil_owner::{Declaration, Output, decrypt_file, encrypt_file, unwatched};
use veilfusion::VeilSessionConfig;
use veilfusion::cells::{CellType, Kind, SideTables};

const DECLARATION: &str = r#"
[table]
name = "people"
[column.name]
kind = "text"
max_length = 12
identifier = true
[column.age]
kind = "integer"
range = [0, 120]
[column.city]
kind = "category"
values = ["Paris", "Rome"]
[column.region]
kind = "clear"
[column.number]
kind = "clear"
type = "Int64"
"#;

const ROWS: &str = "name,age,city,region,number\nAnna,39,Paris,north,1\nBert,,Rome,south,2\nCleo,41,Paris,south,3\n";

struct Fixture {
    folder: tempfile::TempDir,
    keys: OwnerKeys,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("people.csv"), ROWS).unwrap();
        Self { folder, keys: OwnerKeys::generate(&mut os_rng()) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn encrypt(&self, name: &str) -> String {
        let declaration = Declaration::parse(DECLARATION, Path::new("people.toml")).unwrap();
        let output = Output { path: self.at(name), force: false };
        encrypt_file(&self.at("people.csv"), &declaration, &self.keys, &output, &mut os_rng(), &unwatched).unwrap();
        self.at(name).to_str().unwrap().to_owned()
    }

    fn decrypt(&self, name: &str) -> String {
        let output = Output { path: self.at("back.csv"), force: true };
        decrypt_file(&self.at(name), &self.keys, &output, &unwatched).unwrap();
        std::fs::read_to_string(self.at("back.csv")).unwrap()
    }
}

async fn run(context: &SessionContext, sql: &str) -> Vec<datafusion::arrow::array::RecordBatch> {
    context.sql(sql).await.unwrap().collect().await.unwrap()
}

fn veil_context() -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_veil())
}

#[tokio::test]
async fn the_type_survives_both_readers() {
    let fixture = Fixture::new();
    for (name, format) in [("people.veil.parquet", "PARQUET"), ("people.veil.arrow", "ARROW")] {
        let context = veil_context();
        let location = fixture.encrypt(name);
        run(&context, &format!("CREATE EXTERNAL TABLE people STORED AS {format} LOCATION '{location}'")).await;
        let frame = context.sql("SELECT age, city FROM (SELECT * FROM people) WHERE region = 'south'").await.unwrap();
        let schema = frame.schema().as_arrow().clone();
        for (at, kind) in [Kind::Integer, Kind::Category].into_iter().enumerate() {
            let cell_type = CellType::of_field(schema.field(at)).unwrap().unwrap();
            assert_eq!((cell_type.kind, cell_type.key), (kind, fixture.keys.key_id()), "{format}");
        }
        let batches = frame.collect().await.unwrap();
        let cell_type = CellType::of_field(batches[0].schema().field(0)).unwrap().unwrap();
        assert_eq!(cell_type.kind, Kind::Integer);
        assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
    }
}

/// Why the setting is needed: without it DataFusion reads the cells and forgets what they are.
#[tokio::test]
async fn without_the_setting_the_type_is_lost() {
    let fixture = Fixture::new();
    let context = SessionContext::new();
    let location = fixture.encrypt("people.veil.parquet");
    run(&context, &format!("CREATE EXTERNAL TABLE people STORED AS PARQUET LOCATION '{location}'")).await;
    let frame = context.sql("SELECT age FROM people").await.unwrap();
    assert_eq!(CellType::of_field(frame.schema().as_arrow().field(0)).unwrap(), None);
}

#[tokio::test]
async fn sql_results_decrypt() {
    let fixture = Fixture::new();
    let context = veil_context();
    let location = fixture.encrypt("people.veil.parquet");
    run(&context, &format!("CREATE EXTERNAL TABLE people STORED AS PARQUET LOCATION '{location}'")).await;
    let copy = fixture.at("copy.parquet");
    let sql = format!(
        "COPY (SELECT a.name, b.age, a.city, b.number FROM people a JOIN people b ON a.number = b.number + 1 \
         WHERE b.region <> 'west' ORDER BY a.number DESC) TO '{}' STORED AS PARQUET",
        copy.to_str().unwrap()
    );
    run(&context, &sql).await;
    assert_eq!(fixture.decrypt("copy.parquet"), "name,age,city,number\nCleo,,Paris,2\nBert,39,Rome,1\n");
}

/// Files encrypted one by one make one table.
#[tokio::test]
async fn a_folder_of_files_is_a_table() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.at("people")).unwrap();
    for name in ["people/1.parquet", "people/2.parquet"] {
        fixture.encrypt(name);
    }
    let context = veil_context();
    let location = fixture.at("people/");
    run(&context, &format!("CREATE EXTERNAL TABLE people STORED AS PARQUET LOCATION '{}'", location.to_str().unwrap()))
        .await;
    let copy = fixture.at("all.parquet");
    let sql = format!("COPY (SELECT * FROM people WHERE number = 3) TO '{}' STORED AS PARQUET", copy.to_str().unwrap());
    run(&context, &sql).await;
    let expected = "name,age,city,region,number\nCleo,41,Paris,south,3\nCleo,41,Paris,south,3\n";
    assert_eq!(fixture.decrypt("all.parquet"), expected);
}

/// Bytes before the first row group are the file's own business.
#[tokio::test]
async fn side_tables_do_not_disturb_other_readers() {
    let fixture = Fixture::new();
    let location = fixture.encrypt("people.veil.parquet");
    let side = SideTables::read_parquet(&mut std::fs::File::open(&location).unwrap()).unwrap();
    assert_eq!(side.get(SideTables::ZEROS).unwrap().num_rows(), 4096);
    let context = SessionContext::new();
    context.register_parquet("people", &location, Default::default()).await.unwrap();
    let batches = run(&context, "SELECT region, count(*) FROM people GROUP BY region").await;
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
}
