//! Sums and sizes of clusters, from which row belongs to which centre.
//!
//! ```text
//!  P1: m, R uniform             J = I + m  (tiles),  U = T + R  (columns)  -->
//!                                                                          <--  J,  U,  sums of J U,  sums of J, packed          P2
//!  P1: Y = m U + R J,  over all chunks
//!  `block_sums`:  sums of Y
//!  P1: sum I T = sum J U - sum Y + sum m R;   sum I = sum J - sum m
//! ```
//! `I` is one where a row belongs to a centre and zero elsewhere. Chunks add up before `block_sums`, so that its cost does not grow
//! with the rows.
//!
//! For `c` chunks of `g` tiles and `d` columns, in windows of sixteen tiles by eight columns: two rounds a window; in each window and
//! chunk as many ciphertexts up as it has tiles and columns, the same and two packed vectors down (27 bytes a slot each); then `g d`
//! up, once.

use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{Factor, Fresh, Inbound, KeyHolder, L0, L1, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::block_sums::{self, GROUP, Part, Shape};
use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Tiles, Workload};

/// The protocol.
#[derive(Debug)]
pub struct ClusterSums;

/// Columns of one row: with sixteen tiles, P1 holds 128 products of half a megabyte.
const COLUMNS: usize = 8;

message! {
    /// Masked tiles and columns of a chunk.
    Query<C: Outbound => Inbound> {
        /// `J = I + m`.
        tiles: Vec<C>,
        /// `U = T + R`.
        columns: Vec<C>,
        /// Which tile of the chunk is the first.
        first_tile: u32,
        /// Which column is the first; with column 0 the tiles themselves are added up too.
        first_column: u32,
        /// Rows of the chunk.
        rows: u32,
        /// Slots of a block.
        block: u32,
        /// How many centres there are.
        centres: u32,
        /// How many columns there are.
        of: u32,
    }
}

message! {
    /// All of them, fresh, and the sums of their products.
    Answer<C: SeededSlots => Fresh> {
        /// `J`.
        tiles: Vec<C>,
        /// `U`.
        columns: Vec<C>,
        /// Sums of `J U`, packed.
        sums: Vec<C>,
        /// Sums of `J`, packed, in all columns alike; with column 0 alone.
        counts: Vec<C>,
    }
}

impl Query<Inbound> {
    fn shape(&self) -> Result<Shape, ProtocolError> {
        let shape = Shape::checked([self.rows, self.block, self.centres, self.of]);
        let shape = shape.map_err(ProtocolError::Malformed)?;
        let within = |what: &str, first: u32, count: usize, most: usize, all: usize| {
            if !(1..=most).contains(&count) || (first as usize).saturating_add(count) > all {
                return Err(ProtocolError::Malformed(format!("no {count} {what} from {first} of {all}")));
            }
            Ok(())
        };
        within("tiles", self.first_tile, self.tiles.len(), GROUP, shape.groups())?;
        within("columns", self.first_column, self.columns.len(), COLUMNS, shape.columns())?;
        Ok(shape)
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let packed = self.shape()?.packed() * if self.first_column == 0 { 2 } else { 1 };
        Ok(self.tiles.len() + self.columns.len() + packed)
    }
}

impl Protocol for ClusterSums {
    const NAME: &'static str = "cluster_sums";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "sums and sizes of clusters of rows, packed";
    const LEAKAGE: Leakage = Leakage::NOTHING;
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        mut rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let shape = query.shape()?;
        let mut fresh = |masked: Vec<Inbound>| -> (Vec<Zeroizing<Vec<u64>>>, Vec<SeededSlots>) {
            let work: Vec<(Inbound, StdRng)> =
                masked.into_iter().map(|masked| (masked, StdRng::from_rng(&mut rng))).collect();
            let open_and_seal = |(masked, mut rng): (Inbound, StdRng)| {
                let values = holder.open(masked);
                let sealed = holder.seal(&values, &mut rng);
                (values, sealed)
            };
            work.into_par_iter().map(open_and_seal).unzip()
        };
        let ((tile_values, tiles), (column_values, columns)) = (fresh(query.tiles), fresh(query.columns));
        let (first_tile, first_column) = (query.first_tile as usize, query.first_column as usize);
        let products = Zeroizing::new(sums_of_products(shape, first_tile, first_column, &tile_values, &column_values));
        let sums = block_sums::seal(&products, holder, rng);
        let mut counts = Vec::new();
        if first_column == 0 {
            counts = block_sums::seal(&Zeroizing::new(sums_of_tiles(shape, first_tile, &tile_values)), holder, rng);
        }
        Ok(Answer { tiles, columns, sums, counts })
    }
}

/// The sums of all products of a tile and a column, packed. P2 takes them of what it opens, P1 of its masks.
fn sums_of_products<V: AsRef<[u64]>>(
    shape: Shape,
    first_tile: usize,
    first_column: usize,
    tiles: &[V],
    columns: &[V],
) -> Vec<u64> {
    let mut packed = shape.zeros();
    for (group, tile) in (first_tile..).zip(tiles) {
        for (column, values) in (first_column..).zip(columns) {
            shape.add_products(group, column, [tile.as_ref(), values.as_ref()], &mut packed);
        }
    }
    packed
}

/// The sums of tiles, packed.
fn sums_of_tiles<V: AsRef<[u64]>>(shape: Shape, first_tile: usize, tiles: &[V]) -> Vec<u64> {
    let mut packed = shape.zeros();
    for (group, tile) in (first_tile..).zip(tiles) {
        shape.add_sums(group, None, tile.as_ref(), &mut packed);
    }
    packed
}

/// Some tiles and columns of a chunk.
pub struct Item {
    tiles: Vec<Slots<L1>>,
    columns: Vec<Slots<L1>>,
    first_tile: usize,
    first_column: usize,
    shape: Shape,
}

/// What P1 remembers: its masks.
pub struct Asked {
    tile_masks: Vec<Vec<u64>>,
    column_masks: Vec<Vec<u64>>,
    first_tile: usize,
    first_column: usize,
    shape: Shape,
}

/// What is known of a chunk before the second round.
#[derive(Debug)]
pub struct Partial {
    /// `sum J U + sum m R`.
    sums: Vec<Slots<L0>>,
    /// `sum I`, if the first column was among the columns.
    counts: Vec<Slots<L0>>,
    /// `m U + R J` for every tile and column, zero in slots that are no row's.
    cross: Vec<Slots<L1>>,
}

/// P1 masks tiles and columns.
pub fn ask(item: Item, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Item { tiles, columns, first_tile, first_column, shape } = item;
    let (tiles, tile_masks) = block_sums::mask(tiles, asker)?;
    let (columns, column_masks) = block_sums::mask(columns, asker)?;
    let [rows, block, centres, of] = shape.numbers();
    let (tile, column) = (first_tile as u32, first_column as u32);
    let query = Query { tiles, columns, first_tile: tile, first_column: column, rows, block, centres, of };
    Ok((Asked { tile_masks, column_masks, first_tile, first_column, shape }, query))
}

/// P1 takes off what it can, and makes what the second round adds up.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Partial, ProtocolError> {
    let Asked { tile_masks, column_masks, first_tile, first_column, shape } = asked;
    if answer.tiles.len() != tile_masks.len() || answer.columns.len() != column_masks.len() {
        let found = format!("{} tiles and {} columns", answer.tiles.len(), answer.columns.len());
        let text = format!("{found} instead of {} and {}", tile_masks.len(), column_masks.len());
        return Err(ProtocolError::Malformed(text));
    }
    let mut clear = sums_of_products(shape, first_tile, first_column, &tile_masks, &column_masks);
    clear.iter_mut().for_each(|sum| *sum = plain::neg(*sum));
    let sums = block_sums::unmask(answer.sums, &clear)?;
    let clear = if first_column == 0 { sums_of_tiles(shape, first_tile, &tile_masks) } else { Vec::new() };
    let counts = block_sums::unmask(answer.counts, &clear)?;
    let factors = |masks: &[Vec<u64>]| -> Vec<Factor> {
        masks.par_iter().map(|mask| Factor::new(&shape.rows_of(mask))).collect()
    };
    let (tile_factors, column_factors) = (factors(&tile_masks), factors(&column_masks));
    let tiles: Vec<_> = answer.tiles.iter().zip(&tile_factors).collect();
    let columns: Vec<_> = answer.columns.iter().zip(&column_factors).collect();
    let cross = tiles.par_iter().flat_map_iter(|(tile, m)| {
        let of_column = move |(column, r): &(&Fresh, &Factor)| Slots::dot([(*column, *m), (*tile, *r)]);
        columns.iter().map(of_column)
    });
    let cross = cross.collect::<Option<Vec<_>>>().ok_or(ProtocolError::Cancelled)?;
    Ok(Partial { sums, counts, cross })
}

/// Packed sums and sizes of clusters: those of centre `j` and column `l` of `d` are in slot `j d + l`, counted through the vectors.
#[derive(Clone, Debug)]
pub struct Sums {
    /// The sum of each column over a cluster's rows.
    pub sums: Vec<Slots<L0>>,
    /// How many rows a cluster has, in each of its columns.
    pub counts: Vec<Slots<L0>>,
}

/// The sums of clusters: of the columns of each chunk, and for each chunk the tiles that say which row belongs to which centre. Slots
/// that are no row's may hold anything.
pub async fn cluster_sums(
    session: &Session,
    tiles: &Tiles,
    columns: &[Vec<Slots<L1>>],
    assignment: &[Vec<Slots<L1>>],
) -> Result<Sums, ProtocolError> {
    let (chunks, groups, of) = (tiles.chunks(), tiles.groups(), columns.first().map_or(0, Vec::len));
    let fits = columns.len() == chunks && columns.iter().all(|chunk| chunk.len() == of);
    if !fits || assignment.len() != chunks || assignment.iter().any(|chunk| chunk.len() != groups) {
        let text = format!("sums of clusters take {chunks} chunks of as many columns each, and of {groups} tiles");
        return Err(ProtocolError::Misuse(text));
    }
    let shapes = (0..chunks).map(|chunk| Shape::of(tiles, chunk, of)).collect::<Result<Vec<_>, _>>()?;
    let packed = shapes.first().map_or(0, |shape| shape.packed());
    let mut total = Sums { sums: vec![Slots::clear(&[]); packed], counts: vec![Slots::clear(&[]); packed] };
    for first_tile in (0..groups).step_by(GROUP) {
        for first_column in (0..of).step_by(COLUMNS) {
            let items = columns.iter().zip(assignment).zip(&shapes).map(|((columns, tiles), shape)| Item {
                tiles: tiles.iter().skip(first_tile).take(GROUP).cloned().collect(),
                columns: columns.iter().skip(first_column).take(COLUMNS).cloned().collect(),
                first_tile,
                first_column,
                shape: *shape,
            });
            let items: Vec<Item> = items.collect();
            window(session, tiles, of, items, &mut total).await?;
        }
    }
    Ok(total)
}

/// Adds what the same tiles and columns of all chunks contribute.
async fn window(
    session: &Session,
    tiles: &Tiles,
    of: usize,
    items: Vec<Item>,
    total: &mut Sums,
) -> Result<(), ProtocolError> {
    let Some(Item { tiles: first_tiles, columns, first_tile, first_column, .. }) = items.first() else {
        return Ok(());
    };
    let (first_tile, first_column) = (*first_tile, *first_column);
    let (tiles_here, columns_here) = (first_tiles.len(), columns.len());
    // Chunks are added as they come: all of them together would not fit in memory.
    let cross: Arc<Vec<Mutex<Slots<L1>>>> =
        Arc::new((0..tiles_here * columns_here).map(|_| Mutex::new(Slots::clear(&[]))).collect());
    let all_chunks = cross.clone();
    let finish_and_add = move |asked: Asked, answer: Answer<Fresh>| {
        let Partial { sums, counts, cross } = finish(asked, answer)?;
        for (total, cross) in all_chunks.iter().zip(&cross) {
            total.lock().unwrap_or_else(PoisonError::into_inner).add(cross);
        }
        Ok::<_, ProtocolError>((sums, counts))
    };
    let weight = tiles_here + columns_here + 2 * total.sums.len();
    let add = |total: &mut [Slots<L0>], partial: &[Slots<L0>]| {
        total.iter_mut().zip(partial).for_each(|(total, partial)| total.add(partial));
    };
    for (sums, counts) in session.round::<ClusterSums, _, _, _>(items, weight, ask, finish_and_add).await? {
        add(&mut total.sums, &sums);
        add(&mut total.counts, &counts);
    }
    let part = |(at, cross): (usize, &Mutex<Slots<L1>>)| Part {
        slots: cross.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        group: first_tile + at / columns_here,
        column: Some(first_column + at % columns_here),
    };
    let parts = cross.iter().enumerate().map(part).collect();
    for sums in block_sums::block_sums(session, tiles, of, vec![parts]).await? {
        total.sums.iter_mut().zip(&sums).for_each(|(total, sums)| total.sub(sums));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use veil_slots::DEGREE;

    use super::*;
    use crate::testing::Parties;

    /// A table, and which row belongs to which centre.
    pub(crate) struct Clusters {
        pub(crate) tiles: Tiles,
        pub(crate) columns: usize,
        /// Row by row.
        values: Vec<i64>,
        assignment: Vec<usize>,
    }

    impl Clusters {
        /// Rows with both ends of the range among them. The last centre has no rows if there are others; with `together` only the
        /// first has.
        pub(crate) fn new(rows: usize, centres: usize, columns: usize, together: bool, parties: &mut Parties) -> Self {
            let mut below = |bound: usize| plain::uniform_below(bound as u64, &mut parties.rng) as usize;
            let mut values: Vec<i64> = (0..rows * columns).map(|_| below(131_071) as i64 - 65_535).collect();
            values[..2.min(columns * rows)].copy_from_slice(&[-65_535, 65_535][..2.min(columns * rows)]);
            let used = if together { 1 } else { (centres - 1).max(1) };
            let assignment = (0..rows).map(|_| below(used)).collect();
            Self { tiles: Tiles::new(rows, centres), columns, values, assignment }
        }

        /// Encrypted columns and tiles, with any numbers where there is no row.
        pub(crate) fn encrypt(&self, parties: &mut Parties) -> [Vec<Vec<Slots<L1>>>; 2] {
            let tiles = self.tiles;
            let mut sealed = |chunk: usize, value: &dyn Fn(usize, usize) -> i64| {
                let mut vector = parties.numbers();
                for (slot, number) in vector.iter_mut().enumerate() {
                    if let Some(row) = tiles.row_of(chunk, slot) {
                        *number = plain::from_signed(value(row, slot));
                    }
                }
                parties.encrypt(&vector)
            };
            let columns = (0..tiles.chunks()).map(|chunk| {
                let column = |column| sealed(chunk, &|row, _| self.values[row * self.columns + column]);
                (0..self.columns).map(column).collect()
            });
            let columns = columns.collect();
            let assignment = (0..tiles.chunks()).map(|chunk| {
                let belongs = |row: usize, group, slot| tiles.centre_of(group, slot) == Some(self.assignment[row]);
                let tile = |group| sealed(chunk, &|row, slot| i64::from(belongs(row, group, slot)));
                (0..tiles.groups()).map(tile).collect()
            });
            [columns, assignment.collect()]
        }

        /// Sums and counts, packed and without the zeros at the end.
        pub(crate) fn expected(&self) -> [Vec<i64>; 2] {
            let mut sums = vec![0; self.tiles.centres() * self.columns];
            let mut counts = sums.clone();
            for (row, centre) in self.assignment.iter().enumerate() {
                for column in 0..self.columns {
                    sums[centre * self.columns + column] += self.values[row * self.columns + column];
                    counts[centre * self.columns + column] += 1;
                }
            }
            [sums, counts]
        }
    }

    /// What packed vectors hold: so many numbers, and zeros.
    pub(crate) fn opened(parties: &Parties, packed: &[Slots<L1>]) -> Vec<i64> {
        packed.iter().flat_map(|slots| parties.open(slots)).map(plain::centred).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sums_and_counts_are_exact() {
        let mut parties = Parties::new(310);
        for (rows, centres, columns) in [(3, 2, 1), (100, 7, 3), (1000, 33, 2), (9000, 5, 2), (4, 1, 9), (5000, 17, 1)]
        {
            let clusters = Clusters::new(rows, centres, columns, false, &mut parties);
            let [sealed, assignment] = clusters.encrypt(&mut parties);
            let found = cluster_sums(&parties.session, &clusters.tiles, &sealed, &assignment).await.unwrap();
            for (found, expected) in [found.sums, found.counts].iter().zip(clusters.expected()) {
                let found = opened(&parties, &found.iter().map(Slots::raised).collect::<Vec<_>>());
                assert_eq!(found[..expected.len()], expected, "{rows} rows, {centres} centres, {columns} columns");
                assert!(found.len() == DEGREE && found[expected.len()..].iter().all(|slot| *slot == 0));
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tables_of_the_wrong_shape_are_refused() {
        let mut parties = Parties::new(311);
        let slots = parties.encrypt(&[1]);
        let (one, none) = (vec![vec![slots.clone()]], vec![vec![]]);
        let long = Tiles::new(9000, 1);
        let short = Tiles::new(4, 1);
        for (tiles, columns, assignment) in [(short, &none, &one), (short, &one, &none), (long, &one, &one)] {
            let sums = cluster_sums(&parties.session, &tiles, columns, assignment).await;
            assert!(matches!(sums, Err(ProtocolError::Misuse(_))), "{tiles:?}");
        }
    }
}
