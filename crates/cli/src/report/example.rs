//! Findings to test pages with, as a hostile owner of column names would like them.

use std::collections::BTreeMap;

use veil_cells::KeyId;
use veil_release::{ClassCheck, Digest, MANIFEST_VERSION, Manifest, ManifestColumn, NoiseBy, ReleaseId, VerifyingKey};

use super::findings::{
    Both, ColumnFinding, Findings, Learned, Measure, Paper, RunCost, SizeCount, SweepPoint, SweepSettings, TableFile,
    Treatment, VERSION,
};

/// A name that is markup.
pub(super) const HOSTILE: &str = "<script>alert('x')</script>&\"";

fn table(measures: &[(&str, f64)]) -> Vec<Measure> {
    let of = |(name, value): &(&str, f64)| Measure {
        measure: (*name).to_owned(),
        column: None,
        value: Some(*value),
        meaning: format!("what {name} means"),
    };
    measures.iter().map(of).collect()
}

fn column(measure: &str, column: &str, value: f64) -> Measure {
    let meaning = format!("what {measure} means");
    Measure { measure: measure.to_owned(), column: Some(column.to_owned()), value: Some(value), meaning }
}

fn treated(name: &str, kind: &str, treatment: Treatment) -> ColumnFinding {
    ColumnFinding {
        name: name.to_owned(),
        kind: kind.to_owned(),
        encrypted: treatment != Treatment::Clear,
        treatment,
        was: (!matches!(treatment, Treatment::Clear | Treatment::Flag | Treatment::Dropped)).then(|| name.to_owned()),
        perhaps_in: Vec::new(),
        epsilon: None,
        awaits: Vec::new(),
    }
}

fn sizes(counts: &[(u64, u64)]) -> Vec<SizeCount> {
    counts.iter().map(|(size, classes)| SizeCount { size: *size, classes: *classes }).collect()
}

fn point(k: u64, loss: f64, risk: f64) -> SweepPoint {
    let measures = [
        ("classes", 200.0 / k as f64),
        ("smallest_class", k as f64),
        ("prosecutor_max", risk),
        ("prosecutor_average", risk / 2.0),
        ("information_loss", loss),
        ("generalised_loss", loss / 80.0),
    ];
    SweepPoint { k, measures: measures.map(|(name, value)| (name.to_owned(), Some(value))).into() }
}

/// A thousand rows of which nineteen are held back.
pub(super) fn findings() -> Findings {
    let quasi = ["born", "sex", HOSTILE].map(str::to_owned);
    let mut utility = table(&[("discernibility", 20_000.0), ("information_loss", 3.12), ("generalised_loss", 0.25)]);
    utility.push(column("information_loss", "born", 4.2));
    utility.push(column("information_loss", "sex", 2.08));
    utility.push(column("generalised_loss", HOSTILE, 0.25));
    let mut before = table(&[
        ("rows", 1000.0),
        ("suppressed_rows", 0.0),
        ("smallest_class", 1.0),
        ("prosecutor_max", 1.0),
        ("prosecutor_average", 0.93),
        ("share_below_2", 0.9),
        ("share_below_5", 1.0),
        ("share_below_10", 1.0),
        ("journalist_max", 0.0125),
        ("uniques", 0.4),
    ]);
    before.push(column("contribution", "born", 0.8));
    let after = table(&[
        ("rows", 981.0),
        ("suppressed_rows", 19.0),
        ("smallest_class", 10.0),
        ("prosecutor_max", 0.1),
        ("prosecutor_average", 0.00001),
        ("share_below_2", 0.0),
        ("share_below_5", 0.0),
        ("share_below_10", 0.0),
        ("journalist_max", 0.00125),
    ]);
    let noised = ColumnFinding {
        epsilon: Some(0.5),
        awaits: vec!["Laplace".to_owned()],
        ..treated("cost", "decimal", Treatment::Noised)
    };
    Findings {
        version: VERSION,
        title: format!("Patients of the north {HOSTILE}"),
        created: "2026-11-18T01:02:03Z".to_owned(),
        software: "veil 0.1.0".to_owned(),
        embedded: true,
        original: TableFile { file: "patients.veil.parquet".to_owned(), rows: 1000, bytes: 2_000_000 },
        anonymised: TableFile { file: "anon.veil.parquet".to_owned(), rows: 1000, bytes: 400_000 },
        quasi: quasi.into(),
        population: Some(80_000),
        columns: vec![
            treated("born", "date", Treatment::KAnonymised),
            treated("sex", "binary", Treatment::KAnonymised),
            treated(HOSTILE, "category", Treatment::KAnonymised),
            noised,
            treated("notes", "text", Treatment::Unchanged),
            treated("region", "Utf8", Treatment::Clear),
            treated("suppressed", "boolean", Treatment::Flag),
            treated("name", "text", Treatment::Dropped),
        ],
        risk: Both { before, after },
        class_sizes: Both {
            before: sizes(&[(1, 900), (2, 35), (5, 6)]),
            after: sizes(&[(10, 20), (17, 30), (30, 3), (181, 1)]),
        },
        utility,
        sweep: vec![
            point(2, 1.0, 0.5),
            point(5, 2.0, 0.2),
            point(10, 3.2, 0.1),
            point(25, 7.5, 0.04),
            point(50, 12.0, 0.02),
        ],
        sweep_settings: Some(SweepSettings { rounds: 10, suppress: 0.0 }),
        leakage: vec![Learned {
            from: vec!["risk(original)".to_owned(), "risk(anonymised)".to_owned()],
            p1: "how many classes there are of every size".to_owned(),
            p2: "the same sizes, in no order".to_owned(),
        }],
        runs: vec![
            RunCost {
                asked: "risk(original)".to_owned(),
                rows: 1000,
                rounds: 31,
                bytes_sent: 4 << 20,
                bytes_received: 9 << 20,
                seconds: 0.61,
            },
            RunCost {
                asked: "risk(anonymised)".to_owned(),
                rows: 1000,
                rounds: 29,
                bytes_sent: 2 << 20,
                bytes_received: 8 << 20,
                seconds: 0.49,
            },
        ],
        notes: vec![format!("{HOSTILE} has NULLs and was not measured")],
        manifest: Some(paper()),
    }
}

/// A manifest that nobody signed.
fn paper() -> Paper {
    let columns = [
        ("born", "date", 0, NoiseBy::Nobody),
        (HOSTILE, "category", 0, NoiseBy::Nobody),
        ("cost", "decimal", 500_000, NoiseBy::Both),
        ("notes", "text", 0, NoiseBy::Nobody),
    ];
    let columns = columns.map(|(name, kind, epsilon, noise)| ManifestColumn {
        name: name.to_owned(),
        kind: kind.to_owned(),
        encrypted: true,
        epsilon,
        noise,
    });
    let manifest = Manifest {
        version: MANIFEST_VERSION,
        release: ReleaseId([9; 16]),
        key_set: KeyId([7; 8]),
        owner: owner(),
        recipient: "alice".to_owned(),
        query: "SELECT * FROM anon -- </section><script>".to_owned(),
        created: "2026-11-18T01:02:03Z".to_owned(),
        software: BTreeMap::from([("p1".to_owned(), "veil 0.1.0".to_owned())]),
        protocols: BTreeMap::from([("apply".to_owned(), 1)]),
        columns: columns.into(),
        rows: 1000,
        parcels: 1,
        classes: Some(ClassCheck { required: 10, columns: vec!["born".to_owned()], passed: true, smallest: Some(10) }),
        suppressed: Some(19),
        spent: BTreeMap::from([("cost".to_owned(), 500_000), (HOSTILE.to_owned(), 1)]),
        leakage: vec!["P2 sees the number of rows <b>".to_owned()],
        header: Digest::of(b"header"),
        digests: BTreeMap::new(),
    };
    Paper { file: "out.manifest.json".to_owned(), refused: None, manifest }
}

/// The base point of the curve is as good a key as any.
fn owner() -> VerifyingKey {
    let mut bytes = [0x66; 32];
    bytes[0] = 0x58;
    VerifyingKey::from_bytes(&bytes).unwrap()
}
