use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

const STRATEGIES: [Reassignment; 3] =
    [Reassignment::ClusterToCluster, Reassignment::PointToCluster, Reassignment::PointToPoint];

fn line(values: &[i64]) -> Points {
    Points::new(values.to_vec(), vec![1]).unwrap()
}

fn settings(k: usize) -> Settings {
    Settings { k, rounds: 10, early_stop: true, suppress: 0, strategy: Reassignment::default() }
}

#[test]
fn centres_settle() {
    let points = line(&[0, 2, 10, 12]);
    // The first round leaves 0 alone, and moves the other centre from 2 to 8; the second one gives 2 to the first.
    let first = cluster(&points, &[0, 1], 1, true).unwrap();
    assert_eq!((first.assignment, first.centres, first.sizes), (vec![0, 1, 1, 1], vec![0, 8], vec![1, 3]));
    let settled = cluster(&points, &[0, 1], 10, true).unwrap();
    assert_eq!((&settled.assignment, &settled.centres, settled.rounds_run), (&vec![0, 0, 1, 1], &vec![1, 11], 3));
    let to_the_end = cluster(&points, &[0, 1], 10, false).unwrap();
    assert_eq!(to_the_end, Clustering { rounds_run: 10, ..settled });
}

#[test]
fn duplicates_leave_clusters_empty() {
    let points = line(&[5; 6]);
    let clustering = cluster(&points, &[3, 1, 2], 10, true).unwrap();
    assert_eq!((clustering.sizes, clustering.centres), (vec![6, 0, 0], vec![5, 5, 5]));
    let (classes, summary) = anonymise(&points, &[3, 1, 2], &settings(2)).unwrap();
    assert_eq!(classes, Classes { classes: vec![Class { cluster: 0, rows: 6 }], of_rows: vec![Some(0); 6] });
    // Empty clusters are neither clusters nor small.
    assert_eq!((summary.clusters, summary.small_clusters, summary.rounds_run), (1, 0, 1));
}

#[test]
fn all_rows_can_be_one_class() {
    let points = line(&[0, 1, 100]);
    for (strategy, initial) in
        STRATEGIES.into_iter().flat_map(|strategy| [(strategy, vec![1]), (strategy, vec![2, 0, 1])])
    {
        // Nothing is suppressed: two rows would be no class.
        let settings = Settings { strategy, suppress: MILLION, ..settings(3) };
        let (classes, summary) = anonymise(&points, &initial, &settings).unwrap();
        assert_eq!(
            (classes.of_rows, summary.smallest, summary.suppressed_rows),
            (vec![Some(0); 3], 3, 0),
            "{strategy:?}"
        );
    }
    // More than half of the rows a class is one class too.
    assert_eq!((cluster_count(5, 3), cluster_count(6, 3)), (Ok(1), Ok(2)));
    let (classes, _) = anonymise(&line(&[0, 1, 2, 50, 51]), &[0, 4], &settings(3)).unwrap();
    assert_eq!(classes.classes, [Class { cluster: 0, rows: 5 }]);
}

#[test]
fn an_outlier_is_suppressed_or_taken_in() {
    let points = line(&[0, 1, 2, 3, 10_000]);
    let with = |suppress| anonymise(&points, &[4, 0], &Settings { suppress, ..settings(2) }).unwrap();
    let (classes, summary) = with(200_000);
    assert_eq!(classes.of_rows, [Some(0), Some(0), Some(0), Some(0), None]);
    assert_eq!(classes.classes, [Class { cluster: 1, rows: 4 }]);
    assert_eq!((summary.suppressed_clusters, summary.suppressed_rows, summary.moved_rows), (1, 1, 0));
    assert_eq!(class_centres(&classes, &points).unwrap(), [2]);
    let (classes, summary) = with(199_999);
    assert_eq!(classes.of_rows, [Some(0); 5]);
    let expected = Summary {
        rounds_run: 2,
        clusters: 2,
        small_clusters: 1,
        small_rows: 1,
        suppressed_clusters: 0,
        suppressed_rows: 0,
        moved_rows: 1,
        smallest: 5,
        largest: 5,
    };
    assert_eq!(summary, expected);
    assert_eq!(class_centres(&classes, &points).unwrap(), [2001]);
}

#[test]
fn what_cannot_be_done_is_named() {
    let points = line(&[1, 2, 3]);
    let refused = |initial: &[usize], settings: Settings| anonymise(&points, initial, &settings).unwrap_err();
    assert_eq!(refused(&[0], settings(4)), ClusterError::ImpossibleK { k: 4, rows: 3 });
    assert_eq!(refused(&[0], settings(0)), ClusterError::ImpossibleK { k: 0, rows: 3 });
    assert_eq!(refused(&[0], Settings { rounds: 0, ..settings(1) }), ClusterError::NoRounds);
    assert_eq!(
        refused(&[0], Settings { suppress: MILLION + 1, ..settings(1) }),
        ClusterError::ShareTooLarge(1_000_001)
    );
    assert_eq!(refused(&[], settings(1)), ClusterError::WrongCentres { centres: 0, rows: 3 });
    assert_eq!(refused(&[0, 1, 2, 0], settings(1)), ClusterError::WrongCentres { centres: 4, rows: 3 });
    assert_eq!(refused(&[0, 3], settings(1)), ClusterError::UnknownRow { row: 3, rows: 3 });
    assert_eq!(refused(&[1, 1], settings(1)), ClusterError::RepeatedRow(1));
    let error = refused(&[0], settings(4)).to_string();
    assert_eq!(error, "k = 4 asks for classes larger than the table of 3 rows: ask for 1 to 3");
}

#[test]
fn centres_are_drawn_without_replacement() {
    let mut rng = StdRng::seed_from_u64(7);
    let mut all = draw_centres(20, 20, &mut rng).unwrap();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..20));
    let mut drawn = [0; 5];
    for _ in 0..1000 {
        draw_centres(5, 2, &mut rng).unwrap().into_iter().for_each(|row| drawn[row] += 1);
    }
    // 400 each; the standard deviation is 15.5.
    assert!(drawn.iter().all(|times| (300..500).contains(times)), "{drawn:?}");
    for (rows, centres) in [(3, 0), (3, 4), (0, 0)] {
        assert_eq!(draw_centres(rows, centres, &mut rng), Err(ClusterError::WrongCentres { centres, rows }));
    }
}

proptest! {
    /// Few distinct values, so that ties and duplicates are the rule.
    #[test]
    fn classes_are_large_enough_and_few_rows_are_suppressed(
        values in proptest::collection::vec(-8i64..9, 2..80), k in 1usize..12, centres in 1usize..20, suppress in 0..=MILLION,
        strategy in proptest::sample::select(&STRATEGIES), seed: u64, rounds in 1usize..8,
    ) {
        let values = values[..values.len() / 2 * 2].to_vec();
        let points = Points::new(values, vec![1, 3]).unwrap();
        let rows = points.rows();
        let (k, centres) = (k.min(rows), centres.min(rows));
        let initial = draw_centres(rows, centres, &mut StdRng::seed_from_u64(seed)).unwrap();
        let settings = Settings { k, rounds, early_stop: true, suppress, strategy };
        let (classes, summary) = anonymise(&points, &initial, &settings).unwrap();
        prop_assert!(!classes.classes.is_empty() && classes.classes.iter().all(|class| class.rows >= k));
        for (number, class) in classes.classes.iter().enumerate() {
            prop_assert_eq!(classes.of_rows.iter().filter(|of| **of == Some(number)).count(), class.rows);
        }
        let suppressed = classes.of_rows.iter().filter(|class| class.is_none()).count();
        prop_assert_eq!(suppressed, summary.suppressed_rows);
        prop_assert!(suppressed as u64 * 1_000_000 <= rows as u64 * u64::from(suppress));
        // Again, and with rounds that change nothing: the same.
        let again = anonymise(&points, &initial, &Settings { early_stop: false, ..settings }).unwrap();
        prop_assert_eq!((again.0, Summary { rounds_run: summary.rounds_run, ..again.1 }), (classes, summary));
    }

    /// Rows that no one moves are where clustering put them, and rows that move go to a nearest point.
    #[test]
    fn rows_of_large_clusters_stay(
        values in proptest::collection::vec(-30i64..31, 4..60), k in 1usize..10, seed: u64,
        strategy in proptest::sample::select(&STRATEGIES[1..]),
    ) {
        let points = line(&values);
        let k = k.min(values.len());
        let initial = draw_centres(values.len(), cluster_count(values.len(), k).unwrap(), &mut StdRng::seed_from_u64(seed)).unwrap();
        let clustering = cluster(&points, &initial, 4, true).unwrap();
        let before: Vec<_> = clustering.assignment.iter().copied().map(Some).collect();
        let after = reassign(&points, &clustering.centres, &before, k, strategy).unwrap();
        let large = |cluster: usize| clustering.sizes[cluster] >= k;
        prop_assume!((0..clustering.sizes.len()).any(large));
        for (row, (before, after)) in clustering.assignment.iter().zip(&after).enumerate() {
            let after = after.unwrap();
            if large(*before) {
                prop_assert_eq!(*before, after);
                continue;
            }
            let away = |cluster: usize| match strategy {
                Reassignment::PointToCluster => (clustering.centres[cluster] - values[row]).abs(),
                _ => {
                    let of_cluster = values.iter().zip(&clustering.assignment).filter(|(_, of)| **of == cluster);
                    of_cluster.map(|(value, _)| (value - values[row]).abs()).min().unwrap()
                }
            };
            prop_assert!((0..clustering.sizes.len()).filter(|other| large(*other)).all(|other| away(after) <= away(other)));
        }
    }
}
