//! Few numbers, packed as centres are: up to a vector of them, and more where vectors are many.

use veil_protocols::few_pairs::{Numbers, few_pairs};
use veil_protocols::few_pick::{Picks, few_pick};
use veil_protocols::few_select::few_select;
use veil_slots::{DEGREE, L1, Slots, plain};

use crate::Parties;

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_of_one_centre_reach_all() {
    let mut parties = Parties::new(10);
    for (centres, columns) in [(1, 1), (2, 3), (31, 2), (32, 2), (33, 2), (64, 1), (65, 1), (64, 3), (43, 5)] {
        for picked in [0, centres / 2, centres - 1] {
            let numbers: Vec<u64> = (0..columns as u64).map(|column| 100 + column).collect();
            let mut packed = vec![0; centres * columns];
            packed[picked * columns..(picked + 1) * columns].copy_from_slice(&numbers);
            let vectors = parties.vectors(&packed);
            let picks =
                vec![Picks::<L1> { vectors: vectors.clone(), centres, columns }, Picks { vectors, centres, columns }];
            for spread in few_pick(&parties.session, picks).await.unwrap() {
                let raised: Vec<Slots<L1>> = spread.iter().map(Slots::raised).collect();
                assert_eq!(parties.open(&raised)[..packed.len()], numbers.repeat(centres), "{centres} of {columns}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_smallest_of_few_is_found() {
    let mut parties = Parties::new(11);
    for (centres, columns) in [(2, 1), (3, 2), (6, 1), (7, 3), (31, 1), (32, 1), (33, 2), (63, 1), (64, 1), (64, 3)] {
        let summands: Vec<i64> = parties.below(1000, centres * columns).iter().map(|x| *x as i64 - 500).collect();
        let sums: Vec<i64> = summands.chunks(columns).map(|of| of.iter().sum()).collect();
        let signed: Vec<u64> = summands.iter().map(|number| plain::from_signed(*number)).collect();
        let vectors = parties.vectors(&signed);
        for out in [usize::MAX, 0, centres - 1] {
            let ring = few_pairs(&parties.session, Numbers { vectors: vectors.clone(), centres, columns });
            let place = few_select(&parties.session, ring.await.unwrap(), centres, 20, |at| at == out).await.unwrap();
            let standing = (0..centres).filter(|at| *at != out);
            let expected = standing.min_by_key(|at| (sums[*at], *at)).unwrap() as u64;
            assert_eq!(parties.open(&[place])[0], expected, "{centres} of {columns} without {out}");
        }
        assert!(centres <= DEGREE);
    }
}
