//! What P2 is told of a query: its text, and nothing from which it learns what the engine drew.

use std::sync::{Arc, Mutex};

use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use veil_recipient::Opener;
use veilfusion::protocols::{Channel, Frame, Frames, Limits, Responder};

use super::release::Hospital;
use super::world::run;

/// Stands where secrets stand, and nowhere else.
const SECRET: &str = "7331009";

/// What stands for P2 to read.
const PLAIN: &str = "424243";

/// A way to P2 that keeps what is short enough to be a text: ciphertexts are not.
#[derive(Debug)]
struct Heard {
    p2: Arc<Responder>,
    messages: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Channel for Heard {
    fn exchange(&self, requests: Frames) -> Frames {
        let (p2, messages) = (self.p2.clone(), self.messages.clone());
        let answer = move |request: Result<Frame, _>| {
            let request = request?;
            if request.bytes() < 100_000 {
                let mut message = request.header.clone();
                let mut writer = StreamWriter::try_new(&mut message, &request.batch.schema()).unwrap();
                writer.write(&request.batch).unwrap();
                writer.finish().unwrap();
                drop(writer);
                messages.lock().unwrap().push(message);
            }
            p2.answer(request)
        };
        requests.map(answer).boxed()
    }

    fn limits(&self) -> Limits {
        self.p2.limits()
    }
}

fn count(messages: &[Vec<u8>], word: &str) -> usize {
    messages.iter().filter(|message| message.windows(word.len()).any(|bytes| bytes == word.as_bytes())).count()
}

/// However the call is written: P2, the manifest, and all messages on the way.
#[tokio::test(flavor = "multi_thread")]
async fn seeds_and_initial_rows_stay_with_the_engine() {
    let hospital = Hospital::new(940, 30, "columns = [\"age\", \"region\"]\nmin_k = 2\nk_columns = [\"age\"]").await;
    let p2 = hospital.responder("columns = [\"age\", \"region\"]\nmin_k = 2\nk_columns = [\"age\"]").await;
    let messages = Arc::new(Mutex::new(Vec::new()));
    hospital.world.veil.set_channel(Arc::new(Heard { p2, messages: messages.clone() })).await;
    let world = &hospital.world;
    world.run("CREATE TABLE few AS SELECT age, region FROM patients LIMIT 6").await.unwrap();
    let anon =
        |more: &str| format!("k_anonymize(few, comparison => 'blinded', k => 3, quasi => (age), rounds => 1, {more})");
    let seeded = anon(&format!("seed => {SECRET}"));
    world.run(&format!("CREATE VIEW seen AS SELECT * FROM {seeded}")).await.unwrap();
    let inner = format!("SELECT * FROM release({seeded}, recipient => 'alice')");
    world.run(&format!("CREATE VIEW sealed AS {inner}")).await.unwrap();
    let to_alice = "recipient => 'alice'";
    let hidden = anon("seed => ..");
    for (sql, told) in [
        (inner.clone(), format!("release({hidden}, {to_alice})")),
        (
            format!("SELECT * FROM release((SELECT * FROM {}), {to_alice})", anon(&format!("SEED => {SECRET}"))),
            format!("release((SELECT * FROM {}), {to_alice})", anon("SEED => ..")),
        ),
        (
            format!(
                "SELECT * FROM release((WITH a AS (SELECT /*+ {SECRET} */ age, suppressed /* {SECRET} */ FROM {} -- {SECRET}\n) \
                 SELECT * FROM a WHERE {PLAIN} > 1), {to_alice})",
                anon(&format!("\"seed\" => {SECRET}"))
            ),
            format!(
                "release((WITH a AS (SELECT age, suppressed FROM {}) SELECT * FROM a WHERE {PLAIN} > 1), {to_alice})",
                anon("\"seed\" => ..")
            ),
        ),
        (
            format!("WITH a AS (SELECT * FROM {seeded}) SELECT * FROM release((SELECT * FROM a), {to_alice})"),
            format!("release((SELECT * FROM a), {to_alice})"),
        ),
        (format!("SELECT * FROM release(seen, {to_alice})"), format!("release(seen, {to_alice})")),
        ("SELECT * FROM sealed".to_owned(), format!("release({hidden}, {to_alice})")),
        (
            format!(
                "SELECT * FROM release((SELECT age, region FROM few WHERE {SECRET} > (SELECT count(*) FROM {seeded})), {to_alice})"
            ),
            String::new(),
        ),
        (
            format!("SELECT * FROM release({}, {to_alice})", anon("init => 'rows', Init_Rows => (1, 4)")),
            format!("release({}, {to_alice})", anon("init => 'rows', Init_Rows => ..")),
        ),
    ] {
        messages.lock().unwrap().clear();
        let sealed = world.run(&sql).await;
        // A constant of a condition is P2's to read, as all of the text but secrets is.
        if told.is_empty() {
            let heard = messages.lock().unwrap();
            assert!(count(&heard, &format!("WHERE {SECRET} >")) > 0, "{sql}");
            assert_eq!(count(&heard, &format!("seed => {SECRET}")), 0, "{sql}");
            continue;
        }
        let mut opener = Opener::new(hospital.alice.clone()).with_owner(world.owner.public());
        opener.open(&[sealed.unwrap()]).unwrap();
        let manifest = opener.finish().unwrap().manifest.manifest;
        assert_eq!(manifest.query, told, "{sql}");
        let heard = messages.lock().unwrap();
        assert_eq!(count(&heard, SECRET), 0, "{sql}");
        // Once to apply, once in the manifest; JSON has quotes of its own.
        let text = serde_json::to_string(&told).unwrap();
        assert_eq!(count(&heard, text.trim_matches('"')), 2, "{sql}");
        assert_eq!(count(&heard, PLAIN) > 0, sql.contains(PLAIN), "{sql}");
    }
}

/// `SET veil.seed` is no part of a call, and of no message either.
#[tokio::test(flavor = "multi_thread")]
async fn the_seed_of_a_session_stays_with_the_engine() {
    let rules = "columns = [\"age\"]";
    let hospital = Hospital::new(941, 6, rules).await;
    let messages = Arc::new(Mutex::new(Vec::new()));
    let p2 = hospital.responder(rules).await;
    hospital.world.veil.set_channel(Arc::new(Heard { p2, messages: messages.clone() })).await;
    let context: &SessionContext = &hospital.world.context;
    run(context, &format!("SET veil.seed = {SECRET}")).await.unwrap();
    run(context, "SELECT * FROM release((SELECT age FROM patients), recipient => 'alice')").await.unwrap();
    let heard = messages.lock().unwrap();
    assert!(count(&heard, "SELECT age FROM patients") == 2 && count(&heard, SECRET) == 0);
}
