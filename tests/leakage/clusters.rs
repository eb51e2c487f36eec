//! Rows, centres and sums of clusters.

use super::*;

/// Rows and centres are masked, and masked anew for every question about them.
#[tokio::test(flavor = "multi_thread")]
async fn rows_and_centres_are_uniform_whatever_they_hold() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(250 + seed as u64);
        let tiles = Tiles::new(DEGREE, 2 * DEGREE);
        let (packed, rows) = (parties.constant(value, 4), parties.constant(value, 2));
        let centres = broadcast(&parties.session, &tiles, 2, &packed, 0..17).await.unwrap();
        let transcript = parties.transcript();
        // Eight tiles a question.
        assert_eq!(transcript.len(), 3 * 4);
        let all_uniform = |what: &str, transcript: &[Vec<u64>]| {
            assert_uniform(what, transcript.concat(), PLAIN_MODULUS);
            let between = transcript.array_windows().flat_map(|[a, b]| a.iter().zip(b));
            assert_uniform(what, between.map(|(a, b)| plain::sub(*b, *a)), PLAIN_MODULUS);
        };
        all_uniform("broadcast", &transcript);

        distances(&parties.session, &tiles, &[1, 2], 0, &rows, &packed, &centres, 0..17).await.unwrap();
        let transcript = parties.transcript();
        // Sixteen tiles a question.
        assert_eq!(transcript.len(), 2 * (2 + 4));
        all_uniform("distances", &transcript);
    }
}

/// Sums of clusters: tiles and columns, and then their products, are uniform whatever they hold.
#[tokio::test(flavor = "multi_thread")]
async fn sums_of_clusters_show_uniform_numbers() {
    for (seed, value) in CHOSEN.into_iter().enumerate() {
        let mut parties = Parties::new(900 + seed as u64);
        let (columns, assignment) = (parties.constant(value, 2), parties.constant(value, 3));
        let tiles = Tiles::new(1000, 24);
        cluster_sums(&parties.session, &tiles, &[columns], &[assignment]).await.unwrap();
        let transcript = parties.transcript();
        // Three tiles and two columns, then one vector for each pair of them.
        assert_eq!(transcript.len(), 5 + 6);
        assert_uniform("tiles and columns", transcript[..5].concat(), PLAIN_MODULUS);
        assert_uniform("block_sums", transcript[5..].concat(), PLAIN_MODULUS);
        // Vectors that hold the same are masked independently: their differences are uniform too.
        let difference = |[a, b]: &[Vec<u64>; 2]| a.iter().zip(b).map(|(a, b)| plain::sub(*a, *b)).collect::<Vec<_>>();
        let differences = transcript.as_chunks::<2>().0.iter().map(difference).collect::<Vec<_>>();
        assert_uniform("differences", differences.concat(), PLAIN_MODULUS);
    }
}
