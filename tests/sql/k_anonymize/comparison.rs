//! How distances are compared: exactly, unless a query says otherwise; and who is told when it does.

use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use veilfusion::protocols::{InProcess, Randomness, Responder};

use super::behaviour::add_rows;
use crate::sql::world::World;

/// What P2 answers in blinded comparisons, and in nothing else.
const BLINDED: [&str; 2] = ["compare_and_select", "few_select"];

/// Two groups of four rows, and a row by itself; clusters begin in one group and at that row, so that a small one joins.
async fn world(seed: u64) -> (World, Arc<Responder>) {
    let world = World::without_p2(seed).await;
    let p2 = world.responder(Randomness::os());
    world.veil.set_channel(Arc::new(InProcess::new(p2.clone()))).await;
    add_rows(&world, &[0, 1, 2, 3, 500, 501, 502, 503, 1000]).await;
    (world, p2)
}

/// Batches of blinded comparisons that P2 has answered.
fn blinded(p2: &Responder) -> [u64; 2] {
    let batches = |name| p2.counters().snapshot().find(|(known, _)| *known == name).unwrap().1.batches;
    BLINDED.map(batches)
}

/// By P2's own counters, for every strategy: its leave is not asked, and nothing is blurred.
#[tokio::test(flavor = "multi_thread")]
async fn comparisons_are_exact_unless_a_query_says_otherwise() {
    let (world, p2) = world(230).await;
    for strategy in ["cluster_to_cluster", "point_to_cluster", "point_to_point"] {
        let call = |more: &str| {
            format!(
                "SELECT id, x FROM k_anonymize(places, k => 2, quasi => (x), rounds => 1, reassign => '{strategy}', init_rows => (0, 4, 8){more}) ORDER BY id"
            )
        };
        let before = blinded(&p2);
        let mut found = Vec::new();
        for sql in [call(""), call(", comparison => 'exact'"), call(", comparison => 'blinded'")] {
            let plan = world.run(&format!("EXPLAIN {sql}")).await.unwrap();
            let plan = pretty_format_batches(&[plan]).unwrap().to_string();
            let is_blinded = sql.contains("blinded");
            assert_eq!(plan.contains("comparison=exact"), !is_blinded, "{plan}");
            assert_eq!(plan.contains("work out nearly all quasi-identifiers"), is_blinded, "{plan}");
            assert_eq!(blinded(&p2), before, "before {sql}");
            found.push(world.reveal(&sql).await.unwrap());
            let warned = world.veil.take_warnings();
            assert_eq!(warned.len(), usize::from(is_blinded), "{warned:?}");
            assert!(warned.iter().all(|warning| warning.contains("the key holder can work out")), "{warned:?}");
        }
        let after = blinded(&p2);
        assert!(after[0] > before[0] || after[1] > before[1], "{strategy}: {after:?}");
        assert_eq!(after[1] > before[1], strategy == "cluster_to_cluster", "{strategy}: {after:?}");
        assert!(found.iter().all(|rows| rows == &found[0]), "{strategy}: {found:?}");
    }
}

/// A sweep is runs of k_anonymize, and warns once for all of them. Who takes no warnings finds them among the notes.
#[tokio::test(flavor = "multi_thread")]
async fn sweeps_compare_as_exactly() {
    let (world, p2) = world(231).await;
    let call = |more: &str| {
        format!("SELECT k, classes FROM sweep(places, quasi => (x), k => (2, 4), rounds => 1, seed => 3{more})")
    };
    let exact = world.run(&call("")).await.unwrap();
    assert_eq!(blinded(&p2), [0, 0]);
    assert!(world.veil.take_notes().iter().all(|note| !note.contains("key holder")));
    let same = world.run(&call(", comparison => 'blinded'")).await.unwrap();
    assert_eq!(same, exact);
    assert!(blinded(&p2)[0] > 0);
    let notes = world.veil.take_notes();
    assert_eq!(notes.iter().filter(|note| note.contains("the key holder can work out")).count(), 1, "{notes:?}");
    assert!(notes[0].contains("the key holder") && world.veil.take_warnings().is_empty());
}
