//! What P2 insists on: rows, classes, noise, and the policy that a release began under.

use std::sync::{Arc, Mutex};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt32Type;
use futures::StreamExt;
use veil_release::{Ledger, NoiseBy, Policy, ReleaseDesk};
use veilfusion::protocols::{Channel, Frame, Frames, Limits, ProtocolError, Randomness, Responder};

use super::release::{DECLARATION, Hospital, patients, texts};
use super::world::sentence;

/// The numbers of the parts that a release gives, and how it ends. An error may come before parts that were under way.
async fn parts(hospital: &Hospital, sql: &str) -> (Vec<u32>, Option<String>) {
    let sql = format!("SELECT * FROM release(({sql}), recipient => 'alice')");
    let mut rows = hospital.world.context.sql(&sql).await.unwrap().execute_stream().await.unwrap();
    let mut numbers = Vec::new();
    while let Some(batch) = rows.next().await {
        match batch {
            Ok(batch) => numbers.extend(batch.column(1).as_primitive::<UInt32Type>().values()),
            Err(error) => return (numbers, Some(sentence(&error))),
        }
    }
    (numbers, None)
}

/// More rows than a parcel has are known to P2 before the first leaves, and too few of them leave nothing.
#[tokio::test(flavor = "multi_thread")]
async fn many_rows_are_insisted_on_before_the_first_leaves() {
    let hospital = Hospital::new(920, 20_000, "columns = [\"age\", \"region\"]\nmin_rows = 17000").await;
    let (found, received) = hospital.released("SELECT age, region FROM patients").await;
    assert_eq!((found.num_rows(), received.manifest.manifest.parcels), (20_000, 3));
    assert_eq!(hospital.released("SELECT age FROM patients LIMIT 17000").await.1.rows, 17_000);
    for rows in [16_999, 16_384, 5] {
        let (numbers, refused) = parts(&hospital, &format!("SELECT age FROM patients LIMIT {rows}")).await;
        let expected = format!("{rows} rows are fewer than the 17000 that the policy wants in a release: ask for more");
        assert_eq!((numbers, refused), (Vec::new(), Some(expected)), "not even a header");
    }
    // Up to a parcel, rows are not gathered: P2 looks at the first.
    hospital.allow("columns = [\"age\"]\nmin_rows = 8000").await;
    let (numbers, refused) = parts(&hospital, "SELECT age FROM patients LIMIT 7999").await;
    assert!(numbers.len() <= 1 && refused.unwrap().starts_with("7999 rows are fewer than the 8000"));
    assert_eq!(parts(&hospital, "SELECT age FROM patients LIMIT 8000").await, (vec![0, 1, 2], None));
    let (numbers, refused) = parts(&hospital, "SELECT age FROM patients WHERE region = 'west'").await;
    assert!(numbers.len() <= 1 && refused.unwrap().starts_with("0 rows are fewer than the 8000"));
}

/// Where P2 counts classes it knows who is suppressed, and these do not count.
#[tokio::test(flavor = "multi_thread")]
async fn suppressed_rows_are_no_rows_where_classes_are_counted() {
    let rules = |rows: usize| format!("columns = [\"age\"]\nmin_k = 4\nmin_rows = {rows}");
    let hospital = Hospital::new(921, 60, &rules(1)).await;
    let anon = "CREATE TABLE anon AS SELECT * FROM k_anonymize((SELECT age FROM patients), k => 4, comparison => 'blinded', quasi => (age), rounds => 2, suppress => 0.2, \
                seed => 5)";
    hospital.world.run(anon).await.unwrap();
    let (found, received) = hospital.released("SELECT * FROM anon").await;
    let (left, manifest) = (found.num_rows(), &received.manifest.manifest);
    assert!(left < 60 && manifest.rows == 60 && manifest.suppressed == Some(60 - left as u64), "{manifest:?}");
    hospital.allow(&rules(left)).await;
    hospital.released("SELECT * FROM anon").await;
    hospital.allow(&rules(left + 1)).await;
    let refused = hospital.refused("SELECT * FROM anon").await;
    assert!(refused.starts_with(&format!("{left} rows are fewer than the {}", left + 1)), "{refused}");
}

/// P2 counts classes of columns that P1 sees, too: by themselves, with others, and without suppressed rows.
#[tokio::test(flavor = "multi_thread")]
async fn classes_of_clear_columns_are_counted() {
    let rules = |k: u32| format!("columns = [\"age\", \"zip\", \"region\"]\nmin_k = {k}\nk_columns = [\"region\"]");
    let hospital = Hospital::new(922, 31, &rules(15)).await;
    let sql = "SELECT age, region FROM patients";
    let (found, received) = hospital.released(sql).await;
    let classes = received.manifest.manifest.classes.as_ref().unwrap();
    // 16 in the north, 15 in the south.
    assert_eq!(
        (found.num_rows(), classes.smallest, classes.columns.as_slice()),
        (31, Some(15), &["region".to_owned()][..])
    );
    hospital.allow(&rules(16)).await;
    let refused = hospital.refused(sql).await;
    assert!(refused.starts_with("some rows of the release share region with fewer than 15 others"), "{refused}");
    let north = "SELECT age, region FROM patients WHERE region = 'north'";
    assert_eq!(hospital.released(north).await.1.manifest.manifest.classes.as_ref().unwrap().smallest, Some(16));
    // A NULL is like any other NULL.
    let nulls = "SELECT age, CASE WHEN region = 'north' THEN region END AS region FROM patients";
    assert!(hospital.refused(nulls).await.contains("share region with fewer than 15 others"));
    // None of the named columns: nothing to count.
    assert_eq!(hospital.released("SELECT age FROM patients").await.1.manifest.manifest.classes, None);

    let anon = "CREATE TABLE anon AS SELECT * FROM k_anonymize((SELECT age, region FROM patients), k => 4, comparison => 'blinded', quasi => (age), rounds => 2, suppress => 0.2, \
                seed => 5)";
    hospital.world.run(anon).await.unwrap();
    let expected = hospital.world.reveal("SELECT * FROM anon").await.unwrap();
    let regions = texts(&expected).into_iter().find(|(name, _)| name == "region").unwrap().1;
    let north = regions.iter().filter(|region| *region == "north").count();
    let smallest = north.min(expected.num_rows() - north);
    assert!(expected.num_rows() < 31, "somebody is suppressed");
    hospital.allow(&rules(2)).await;
    let (_, received) = hospital.released("SELECT * FROM anon").await;
    let manifest = &received.manifest.manifest;
    assert_eq!(manifest.classes.as_ref().unwrap().smallest, Some(smallest as u64));
    assert_eq!(manifest.suppressed, Some(31 - expected.num_rows() as u64));
}

/// A column has noise if all of its values have, however they came together.
#[tokio::test(flavor = "multi_thread")]
async fn values_without_noise_among_others_are_refused() {
    let hospital = Hospital::new(923, 40, "columns = [\"age\"]\nepsilon = { age = 100.0 }").await;
    for (mode, by) in [("single", NoiseBy::P1), ("joint", NoiseBy::Both)] {
        hospital.allow("columns = [\"age\"]\nepsilon = { age = 100.0 }").await;
        hospital.world.run(&format!("SET veil.noise = '{mode}'")).await.unwrap();
        let noisy = format!(
            "CREATE TABLE {mode} AS SELECT age AS raw, dp_laplace(age, 1.0) AS one, dp_laplace(age, 2.0) AS two, region FROM patients"
        );
        hospital.world.run(&noisy).await.unwrap();
        let case = |then: &str, other: &str| {
            format!("SELECT CASE WHEN region = 'north' THEN {then} ELSE {other} END AS age FROM {mode}")
        };
        for sql in [
            case("one", "raw"),
            case("raw", "one"),
            format!(
                "SELECT CASE WHEN region = 'north' THEN one WHEN region = 'x' THEN raw ELSE two END AS age FROM {mode}"
            ),
            format!("SELECT coalesce(CASE WHEN region = 'north' THEN one END, raw) AS age FROM {mode}"),
            format!("SELECT one AS age FROM {mode} UNION ALL SELECT raw FROM {mode}"),
            format!("SELECT raw AS age FROM {mode} UNION ALL SELECT one FROM {mode}"),
            format!("SELECT enc_add(enc_scale(raw, 1000), one) AS age FROM {mode}"),
            format!("SELECT enc_sub(one, raw) AS age FROM {mode}"),
        ] {
            let refused = hospital.refused(&sql).await;
            // What awaits noise of P2 is not added to anything.
            let sentence = match mode == "joint" && sql.contains("enc_") {
                true => "age is computed from values that await P2's noise",
                false => "column age only with noise, and some of its values have none",
            };
            assert!(refused.contains(sentence), "{sql}: {refused}");
        }
        // A recursion would take the type of its first part for all.
        let recursion = |next: &str| {
            format!(
                "CREATE TABLE again AS WITH RECURSIVE t AS (SELECT one AS age, 1 AS n FROM {mode} UNION ALL SELECT {next}, t.n + 1 FROM t \
                 CROSS JOIN {mode} s WHERE t.n < 2) SELECT age FROM t WHERE n = 1"
            )
        };
        let refused = hospital.world.refusal(&recursion("s.raw")).await;
        assert!(
            refused.starts_with("column age of t is not encrypted alike in all rounds of the recursion"),
            "{refused}"
        );
        hospital.world.run(&recursion("s.one")).await.unwrap();
        hospital.released("SELECT age FROM again").await;
        hospital.world.run("DROP TABLE again").await.unwrap();
        // The most that any value has is what all cost; noise on top of a mix is noise of all.
        for (sql, spent) in [
            (case("one", "two"), 2_000_000),
            (case("one", "NULL"), 1_000_000),
            (
                format!(
                    "SELECT one AS age FROM {mode} WHERE region = 'north' UNION ALL SELECT two FROM {mode} WHERE region = 'south'"
                ),
                2_000_000,
            ),
            (format!("SELECT dp_laplace(age, 0.5) AS age FROM ({})", case("one", "raw")), 1_500_000),
        ] {
            let (_, received) = hospital.released(&sql).await;
            let manifest = &received.manifest.manifest;
            assert_eq!((manifest.spent.get("age"), manifest.columns[0].noise), (Some(&spent), by), "{sql}");
        }
        // Where noise is not asked for, a mix leaves, and does not pass for noised.
        hospital.allow("columns = [\"age\"]").await;
        let (_, received) = hospital.released(&case("one", "raw")).await;
        let column = &received.manifest.manifest.columns[0];
        assert_eq!((column.epsilon, column.noise), (0, NoiseBy::Nobody));
    }
}

/// Seconds since 1970.
type Clock = fn() -> u64;

/// A P2 that is another one after its first answer of a protocol.
struct Restarted {
    before: Arc<Responder>,
    after: Arc<Responder>,
    at: &'static str,
    done: Arc<Mutex<bool>>,
}

impl std::fmt::Debug for Restarted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Restarted({})", self.at)
    }
}

impl Channel for Restarted {
    fn exchange(&self, requests: Frames) -> Frames {
        let (before, after, at, done) = (self.before.clone(), self.after.clone(), self.at, self.done.clone());
        let answer = move |request: Result<Frame, ProtocolError>| {
            let request = request?;
            let (header, _) = request.clone().open()?;
            let mut done = done.lock().unwrap();
            let answer = if *done { after.answer(request) } else { before.answer(request) };
            *done |= header.protocol == at;
            answer
        };
        requests.map(answer).boxed()
    }

    fn limits(&self) -> Limits {
        self.before.limits()
    }
}

impl Hospital {
    /// P2 is started again in the middle of releases, with another policy or at another time.
    async fn restart(&self, at: &'static str, before: (Policy, Clock), after: (Policy, Clock)) {
        let owner = &self.world.owner;
        let responder = |name: &str, (policy, now): (Policy, Clock)| {
            let ledger = Ledger::open(&self.world.at(&format!("{name}-{at}-{}", rand::random::<u64>()))).unwrap();
            let desk = ReleaseDesk::new(policy, ledger, owner.p2()).with_clock(now);
            let responder = Responder::new(Arc::new(owner.p2()), Limits::default(), Randomness::os());
            Arc::new(responder.with_desk(Arc::new(desk)))
        };
        let (before, after) = (responder("before", before), responder("after", after));
        self.world.veil.set_channel(Arc::new(Restarted { before, after, at, done: Arc::default() })).await;
    }
}

/// A permit is good under the policy that it was granted under, at every step; the same policy again changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_policy_ends_what_began_under_another() {
    let rules = "columns = [\"age\", \"zip\"]\nmin_k = 2\nk_columns = [\"zip\"]\n";
    let hospital = Hospital::new(924, 20, rules).await;
    hospital.world.table("again", &patients(20), DECLARATION).await;
    let sql = "SELECT age, zip FROM patients UNION ALL SELECT age, zip FROM again";
    let now: Clock = || 1_790_000_000;
    for (at, most) in [("apply", 1), ("check_classes", 1), ("seal_parcel", 2)] {
        let [same, again] = ["", ""].map(|words| hospital.policy(words, rules));
        hospital.restart(at, (same, now), (again, now)).await;
        assert_eq!(parts(&hospital, sql).await, (vec![0, 1, 2], None), "{at}");
        // Even one that allows more: what it allows, it allows from the beginning.
        for other in ["columns = [\"age\"]", "columns = [\"age\", \"zip\", \"cost\"]"] {
            let [old, new] = [rules, other].map(|rules| hospital.policy("", rules));
            hospital.restart(at, (old, now), (new, now)).await;
            let changed = "the policy has changed since this release began: begin it again".to_owned();
            let (numbers, refused) = parts(&hospital, sql).await;
            assert_eq!(refused, Some(changed), "{at}");
            assert!(numbers.len() <= most, "{at}: {numbers:?}");
        }
    }
}

/// A permit ends with the policy, with the recipient's permission, and after a day, also in the middle of a release.
#[tokio::test(flavor = "multi_thread")]
async fn what_ends_in_the_middle_of_a_release_ends_it() {
    let rules = "columns = [\"age\"]";
    let hospital = Hospital::new(925, 20, rules).await;
    // `date -u -d 2026-09-22 +%s`: the second after the last day.
    let [before, last, end, next_day]: [Clock; 4] =
        [|| 1_790_000_000, || 1_790_035_199, || 1_790_035_200, || 1_790_086_400];
    let ending = "expires = \"2026-09-21\"\n";
    for at in ["apply", "seal_parcel"] {
        let policy = |words: &str, more: &str| hospital.policy(words, &format!("{rules}{more}"));
        hospital.restart(at, (policy(ending, ""), before), (policy(ending, ""), last)).await;
        assert_eq!(parts(&hospital, "SELECT age FROM patients").await.1, None, "{at}");
        for (words, now) in [(ending, end), ("", next_day)] {
            hospital.restart(at, (policy(words, ""), before), (policy(words, ""), now)).await;
            let (numbers, ended) = parts(&hospital, "SELECT age FROM patients").await;
            assert!(ended.unwrap().ends_with(" has ended: begin the release again"), "{at}");
            assert!(numbers.len() <= if at == "apply" { 1 } else { 2 }, "{at}: {numbers:?}");
            // Begun again, it is the policy that ended, or nothing.
            let (_, again) = parts(&hospital, "SELECT age FROM patients").await;
            match words {
                "" => assert_eq!(again, None),
                _ => {
                    assert_eq!(again.unwrap(), "the policy ended at 2026-09-22 00:00 UTC; the owner can sign a new one")
                }
            }
        }
    }
}
