//! Rows and centres in tiles: which centre is nearest, sums, means, and what rows get of their centres.

use std::sync::Arc;

use veil_privacy::clusters::centre_coordinate;
use veil_protocols::Tiles;
use veil_protocols::blend::blend;
use veil_protocols::block_sums::{Part, block_sums};
use veil_protocols::broadcast::broadcast;
use veil_protocols::centres::centres;
use veil_protocols::cluster_sums::cluster_sums;
use veil_protocols::distances::distances;
use veil_protocols::lookup_long::{Question, lookup_long};
use veil_protocols::merge::merge;
use veil_protocols::nearest::{Comparison, nearest};
use veil_slots::{DEGREE, L0, L1, Slots, plain};

use crate::Parties;

/// Rows, centres, columns: lists that share a vector, fill one, and take several; centres that fill a packed vector, or two.
const SHAPES: [(usize, usize, usize); 14] = [
    (1, 1, 1),
    (2, 3, 2),
    (31, 5, 3),
    (32, 2, 1),
    (33, 4, 2),
    (63, 3, 2),
    (64, 5, 1),
    (65, 3, 2),
    (129, 7, 3),
    (193, 2, 2),
    (321, 3, 1),
    (5, 63, 1),
    (40, 33, 2),
    (70, 22, 3),
];

/// A table, its centres, and which row belongs to which.
struct Example {
    tiles: Tiles,
    columns: usize,
    rows: Vec<Vec<i64>>,
    centres: Vec<Vec<i64>>,
    of_row: Vec<Option<usize>>,
}

impl Example {
    fn new(parties: &mut Parties, (rows, centres, columns): (usize, usize, usize)) -> Self {
        let mut draw = |count: usize| -> Vec<Vec<i64>> {
            (0..count).map(|_| parties.below(1001, columns).iter().map(|x| *x as i64 - 500).collect()).collect()
        };
        let (tiles, table, places) = (Tiles::new(rows, centres), draw(rows), draw(centres));
        let of_row = parties.below(centres as u64 + 1, rows).into_iter().map(|at| at as usize);
        let of_row = of_row.map(|centre| (centre < centres).then_some(centre)).collect();
        Self { tiles, columns, rows: table, centres: places, of_row }
    }

    /// What belongs to a slot of a tile.
    fn slots(&self, chunk: usize, group: usize, of: impl Fn(usize, usize) -> u64) -> Vec<u64> {
        let number = |slot: usize| {
            let pair = self.tiles.row_of(chunk, slot).zip(self.tiles.centre_of(group, slot));
            pair.map_or(0, |(row, centre)| of(row, centre))
        };
        (0..DEGREE).map(number).collect()
    }

    /// For every chunk its tiles.
    fn tiled(&self, parties: &mut Parties, of: impl Fn(usize, usize) -> u64) -> Vec<Vec<Slots<L1>>> {
        let tile = |chunk, group, parties: &mut Parties| parties.seal(&self.slots(chunk, group, &of));
        let chunk =
            |chunk, parties: &mut Parties| (0..self.tiles.groups()).map(|group| tile(chunk, group, parties)).collect();
        (0..self.tiles.chunks()).map(|at| chunk(at, parties)).collect()
    }

    fn assignment(&self, parties: &mut Parties) -> Vec<Vec<Slots<L1>>> {
        self.tiled(parties, |row, centre| u64::from(self.of_row[row] == Some(centre)))
    }

    /// For every chunk the columns of the rows, repeated in every block; something else behind the rows.
    fn table(&self, parties: &mut Parties) -> Vec<Vec<Slots<L1>>> {
        let column = |chunk: usize, column: usize, parties: &mut Parties| {
            let number =
                |slot| self.tiles.row_of(chunk, slot).map_or(77, |row| plain::from_signed(self.rows[row][column]));
            parties.seal(&(0..DEGREE).map(number).collect::<Vec<_>>())
        };
        let chunk = |chunk, parties: &mut Parties| (0..self.columns).map(|at| column(chunk, at, parties)).collect();
        (0..self.tiles.chunks()).map(|at| chunk(at, parties)).collect()
    }

    fn packed(&self, parties: &mut Parties) -> Vec<Slots<L1>> {
        let signed: Vec<u64> = self.centres.iter().flatten().map(|number| plain::from_signed(*number)).collect();
        parties.vectors(&signed)
    }
}

fn raised(vectors: &[Slots<L0>]) -> Vec<Slots<L1>> {
    vectors.iter().map(Slots::raised).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_finds_its_nearest_centre() {
    let mut parties = Parties::new(40);
    for shape in SHAPES {
        let example = Example::new(&mut parties, shape);
        let (tiles, columns) = (&example.tiles, example.columns);
        let (table, packed) = (example.table(&mut parties), example.packed(&mut parties));
        let weights: Vec<u32> = (1..=columns as u32).collect();
        let session = &parties.session;
        let distance = |row: usize, centre: usize| -> i64 {
            let pairs = example.rows[row].iter().zip(&example.centres[centre]).zip(&weights);
            pairs.map(|((t, c), w)| i64::from(*w) * (c * c - 2 * t * c)).sum()
        };
        let spread = broadcast(session, tiles, columns, &packed, 0..tiles.groups()).await.unwrap();
        for (group, spread) in spread.iter().enumerate() {
            for (column, slots) in raised(spread).iter().enumerate() {
                let number =
                    |slot| tiles.centre_of(group, slot).map_or(0, |at| plain::from_signed(example.centres[at][column]));
                assert_eq!(
                    parties.open(std::slice::from_ref(slots)),
                    (0..DEGREE).map(number).collect::<Vec<_>>(),
                    "{shape:?}"
                );
            }
        }
        let mut measured = Vec::new();
        for (chunk, rows) in table.iter().enumerate() {
            let found = distances(session, tiles, &weights, chunk, rows, &packed, &spread, 0..tiles.groups());
            let found = found.await.unwrap();
            for (group, slots) in found.iter().enumerate() {
                let expected = example.slots(chunk, group, |row, centre| plain::from_signed(distance(row, centre)));
                assert_eq!(parties.open(std::slice::from_ref(slots)), expected, "{shape:?}");
            }
            measured.push(found);
        }
        let closest = |row: usize| (0..shape.1).min_by_key(|centre| (distance(row, *centre), *centre)).unwrap();
        for comparison in [Comparison::Blinded, Comparison::Exact] {
            let chosen = nearest(session, tiles, comparison, 26, 0, measured.clone()).await.unwrap();
            for (chunk, tiles) in chosen.iter().enumerate() {
                for (group, slots) in tiles.iter().enumerate() {
                    let expected = example.slots(chunk, group, |row, centre| u64::from(closest(row) == centre));
                    assert_eq!(parties.open(std::slice::from_ref(slots)), expected, "{shape:?}, {comparison:?}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_have_the_sums_and_means_of_their_rows() {
    let mut parties = Parties::new(41);
    for shape in SHAPES {
        let example = Example::new(&mut parties, shape);
        let (tiles, columns) = (&example.tiles, example.columns);
        let (table, assignment) = (example.table(&mut parties), example.assignment(&mut parties));
        let old = example.packed(&mut parties);
        let session = &parties.session;
        let sums = cluster_sums(session, tiles, &table, &assignment).await.unwrap();
        let (of_row, table) = (&example.of_row, &example.rows);
        let members = |centre: usize| (0..shape.0).filter(move |row| of_row[*row] == Some(centre));
        let sum = |centre: usize, column: usize| members(centre).map(|row| table[row][column]).sum::<i64>();
        let numbers = || (0..shape.1).flat_map(|centre| (0..columns).map(move |column| (centre, column)));
        let expected: Vec<i64> = numbers().map(|(centre, column)| sum(centre, column)).collect();
        assert_eq!(parties.open_signed(&raised(&sums.sums))[..expected.len()], expected, "{shape:?}");
        let counts: Vec<i64> = numbers().map(|(centre, _)| members(centre).count() as i64).collect();
        assert_eq!(parties.open_signed(&raised(&sums.counts))[..counts.len()], counts, "{shape:?}");

        let made = centres(session, tiles, columns, &sums, old).await.unwrap();
        let mean = |(centre, column): (usize, usize)| {
            let mean = centre_coordinate(sum(centre, column), members(centre).count() as u64);
            mean.unwrap_or(example.centres[centre][column])
        };
        let expected: Vec<i64> = numbers().map(mean).collect();
        assert_eq!(parties.open_signed(&made)[..expected.len()], expected, "{shape:?}");

        // A function of every size, over a range as long as there are rows.
        let table: Arc<[u64]> = (0..=shape.0 as u64).map(|size| size * size + 1).collect();
        let question = Question { slots: raised(&sums.counts), centres: shape.1, columns, tables: vec![table] };
        let found = lookup_long(session, question).await.unwrap().concat();
        let expected: Vec<i64> = counts.iter().map(|size| size * size + 1).collect();
        assert_eq!(parties.open_signed(&raised(&found))[..expected.len()], expected, "{shape:?}");
    }
}

/// Tiles of one chunk: rows of every block added up, in a column or in all of them.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_have_the_sums_of_their_rows() {
    let mut parties = Parties::new(42);
    for shape in SHAPES.into_iter().filter(|(rows, ..)| *rows <= DEGREE) {
        let example = Example::new(&mut parties, shape);
        let (tiles, columns) = (&example.tiles, example.columns);
        let value = |row: usize, centre: usize| (row * 31 + centre * 7) as u64 % 1000;
        let tile = |group: usize, column: Option<usize>, parties: &mut Parties| {
            let mut values = example.slots(0, group, value);
            // What is no row does not count.
            (0..DEGREE).filter(|slot| tiles.row_of(0, *slot).is_none()).for_each(|slot| values[slot] = 99);
            Part::<L1> { slots: parties.seal(&values), group, column }
        };
        let to_all: Vec<Part> = (0..tiles.groups()).map(|group| tile(group, None, &mut parties)).collect();
        let to_last: Vec<Part> =
            (0..tiles.groups()).map(|group| tile(group, Some(columns - 1), &mut parties)).collect();
        let sums = block_sums(&parties.session, tiles, columns, vec![to_all, to_last]).await.unwrap();
        let sum = |centre: usize| (0..shape.0).map(|row| value(row, centre)).sum::<u64>();
        for (at, found) in sums.iter().enumerate() {
            let number =
                |place: usize| if at == 0 || place % columns == columns - 1 { sum(place / columns) } else { 0 };
            let expected: Vec<u64> = (0..shape.1 * columns).map(number).collect();
            assert_eq!(parties.open(&raised(found))[..expected.len()], expected, "{shape:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_get_the_numbers_of_their_centres_and_of_their_classes() {
    let mut parties = Parties::new(43);
    for shape in SHAPES {
        let example = Example::new(&mut parties, shape);
        let (assignment, packed) = (example.assignment(&mut parties), example.packed(&mut parties));
        let blended = blend(&parties.session, &example.tiles, example.columns, &packed, &assignment).await.unwrap();
        let check = |parties: &Parties, blended: &[Vec<Slots<L1>>], number: &dyn Fn(usize, usize) -> i64| {
            assert_eq!(blended.len(), example.tiles.chunks());
            for (chunk, columns) in blended.iter().enumerate() {
                for (column, slots) in columns.iter().enumerate() {
                    let of_slot = |slot| example.tiles.row_of(chunk, slot).map_or(0, |row| number(row, column));
                    let expected: Vec<i64> = (0..DEGREE).map(of_slot).collect();
                    assert_eq!(parties.open_signed(std::slice::from_ref(slots)), expected, "{shape:?}");
                }
            }
        };
        check(&parties, &blended, &|row, column| {
            example.of_row[row].map_or(0, |centre| example.centres[centre][column])
        });

        // Every second cluster goes nowhere if it is of a kind; others join in threes.
        let classes = shape.1.div_ceil(3);
        let class_of: Vec<Option<usize>> =
            (0..shape.1).map(|cluster| (cluster % 5 != 4).then_some(cluster / 3)).collect();
        let to = Tiles::new(shape.0, classes);
        let merged = merge(&parties.session, &example.tiles, &to, &class_of, &assignment).await.unwrap();
        let numbers: Vec<u64> = (0..classes as u64).map(|class| class + 10).collect();
        let packed = parties.vectors(&numbers);
        let blended = blend(&parties.session, &to, 1, &packed, &merged).await.unwrap();
        let of_class =
            |row: usize| example.of_row[row].and_then(|cluster| class_of[cluster]).map_or(0, |class| class as i64 + 10);
        check(&parties, &blended, &|row, _| of_class(row));
    }
}
