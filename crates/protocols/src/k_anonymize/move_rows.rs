//! Rows of small clusters go to others one by one (the paper's Point to Cluster and Point to Point).
//!
//! ```text
//!  Point to Cluster    N = the nearest of the large centres, for every row          `distances`, `nearest`
//!                      I + f N,  f = 1 for rows that move                           `blend`, `and`
//!  Point to Point      M = the nearest row among those that stay, for every row     `distances`, `nearest`
//!                      c' = sum M c,  c = the cluster's number of a row             `blend`
//!                      c + f (c' - c),  and which cluster that is                   `multiply`, `zero_test`
//! ```
//! Rows that move are chosen as all others are, and a product picks: P1 does not learn which they are.

use veil_slots::{DEGREE, L1, Offset, Slots};

use super::assign::{Metric, assign, bits_for};
use crate::and::and;
use crate::blend::blend;
use crate::broadcast::broadcast;
use crate::distances::distances;
use crate::multiply::multiply;
use crate::nearest::nearest;
use crate::zero_test::zero_test;
use crate::{ProtocolError, Session, Tiles};

/// The most rows of a table whose rows are compared with each other: they share a vector with copies of themselves.
pub const MAX_POINTS: usize = DEGREE / 2;

/// Its square, times the weights of all columns, is farther than any row.
const FAR: i32 = 46_500;

/// Products under way at the same time.
const WINDOW: usize = 64;

/// Vectors whose digits are under way at the same time.
const TESTS: usize = 16;

/// Refuses tables that are too long to compare every row with every other.
pub(super) fn check(rows: usize) -> Result<(), ProtocolError> {
    if rows <= MAX_POINTS {
        return Ok(());
    }
    Err(ProtocolError::Misuse(format!(
        "point_to_point compares every row with every other, of up to {MAX_POINTS}, and there are {rows}: use point_to_cluster"
    )))
}

/// Bits of a comparison of rows, some of which are far away.
pub(super) fn bits(metric: Metric<'_>) -> u32 {
    let weights: u64 = metric.weights.iter().copied().map(u64::from).sum();
    bits_for(metric.largest().saturating_add(weights.saturating_mul(u64::from(FAR.unsigned_abs()).pow(2))))
}

/// A table in clusters.
pub(super) struct Rows<'a> {
    pub(super) session: &'a Session,
    pub(super) tiles: Tiles,
    pub(super) metric: Metric<'a>,
    pub(super) coordinates: &'a [Vec<Slots<L1>>],
    pub(super) assignment: &'a [Vec<Slots<L1>>],
    /// Clusters that stay, and take rows in.
    pub(super) stays: Vec<bool>,
    /// Clusters whose rows move.
    pub(super) moves: Vec<bool>,
}

impl Rows<'_> {
    /// Numbers of P1's, one a cluster and column, to the rows of the clusters.
    async fn of_rows(
        &self,
        columns: usize,
        number: impl Fn(usize, usize) -> u64,
    ) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
        let numbers = (0..self.tiles.centres()).flat_map(|cluster| (0..columns).map(move |column| (cluster, column)));
        let numbers: Vec<u64> = numbers.map(|(cluster, column)| number(cluster, column)).collect();
        let packed: Vec<Slots<L1>> = numbers.chunks(DEGREE).map(Slots::clear).collect();
        blend(self.session, &self.tiles, columns, &packed, self.assignment).await
    }

    fn bit(flags: &[bool], cluster: usize) -> u64 {
        u64::from(flags.get(cluster).copied().unwrap_or_default())
    }

    /// Each to the nearest centre of a cluster that stays. Clusters whose rows move keep theirs in the result too: whoever takes it
    /// leaves those out.
    pub(super) async fn to_clusters(&self, centres: &[Slots<L1>]) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
        let columns = self.metric.weights.len();
        let live = |slot: usize| Self::bit(&self.stays, slot / columns.max(1));
        let live =
            |vector: usize| Slots::clear(&(0..DEGREE).map(|slot| live(vector * DEGREE + slot)).collect::<Vec<_>>());
        let pairs = centres.iter().enumerate().map(|(vector, centres)| (centres.clone(), live(vector)));
        let centres = multiply(self.session, pairs.collect()).await?;
        let out = |cluster: usize| Self::bit(&self.stays, cluster) == 0;
        let near = assign(self.session, &self.tiles, self.metric, self.coordinates, &centres, out).await?;
        let moving = self.of_rows(1, |cluster, _| Self::bit(&self.moves, cluster)).await?;
        let mut assignment = self.assignment.to_vec();
        for ((chunk, near), moving) in assignment.iter_mut().zip(near).zip(moving) {
            let moving = moving.first().ok_or(ProtocolError::Cancelled)?;
            for (tiles, near) in chunk.chunks_mut(WINDOW).zip(near.chunks(WINDOW)) {
                let pairs = near.iter().map(|near| vec![moving.clone(), near.clone()]).collect();
                let taken = and(self.session, pairs).await?;
                tiles.iter_mut().zip(&taken).for_each(|(tile, taken)| tile.add(taken));
            }
        }
        Ok(assignment)
    }

    /// Each to the cluster of the nearest row that stays.
    pub(super) async fn to_points(&self) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
        let rows = self.tiles.rows();
        check(rows)?;
        // The number of its cluster, whether a row stays, and whether it moves.
        let known = self.of_rows(3, |cluster, column| match column {
            0 => cluster as u64 + 1,
            1 => Self::bit(&self.stays, cluster),
            _ => Self::bit(&self.moves, cluster),
        });
        let known = known.await?.concat();
        let [number, stays, moves] = known.as_slice() else { return Err(ProtocolError::Cancelled) };
        let nearest_row = self.nearest_rows(stays).await?;
        let pairs = Tiles::new(rows, rows);
        let theirs = blend(self.session, &pairs, 1, std::slice::from_ref(number), &[nearest_row]).await?.concat();
        let mut change = theirs.into_iter().next().ok_or(ProtocolError::Cancelled)?;
        change.sub(number);
        let mut number = number.clone();
        multiply(self.session, vec![(moves.clone(), change)]).await?.iter().for_each(|change| number.add(change));
        let mut chosen = Vec::with_capacity(self.tiles.groups());
        for first in (0..self.tiles.groups()).step_by(TESTS) {
            let difference = |group: usize| {
                // A slot without a cluster is compared with a number that no cluster has.
                let own = |slot| self.tiles.centre_of(group, slot).map_or(0, |cluster| cluster as u64 + 1);
                let mut difference = number.clone();
                difference.sub_clear(&Offset::new(&(0..DEGREE).map(own).collect::<Vec<_>>()));
                difference
            };
            let window = (first..(first + TESTS).min(self.tiles.groups())).map(difference).collect();
            chosen.extend(zero_test(self.session, window).await?);
        }
        Ok(vec![chosen])
    }

    /// For every row, tiles with one in the slot of the nearest row that stays.
    async fn nearest_rows(&self, stays: &Slots<L1>) -> Result<Vec<Slots<L1>>, ProtocolError> {
        let rows = self.tiles.rows();
        let pairs = Tiles::new(rows, rows);
        let weights: u32 = self.metric.weights.iter().sum();
        // One more coordinate: zero for rows that stay, far away for others, and zero for all rows as seen from them.
        let mut far = stays.clone();
        far.scale(-FAR);
        far.add_constant(FAR as u64);
        let (nowhere, mut measured) = (Slots::clear(&[]), Vec::new());
        let own = self.coordinates.first().map(Vec::as_slice).unwrap_or_default();
        let columns = own.iter().map(|column| (column, column)).zip(self.metric.weights);
        for ((from, to), weight) in columns.chain([((&nowhere, &far), &weights)]) {
            for first in (0..pairs.groups()).step_by(WINDOW) {
                let window = first..(first + WINDOW).min(pairs.groups());
                let (from, to) = (std::slice::from_ref(from), std::slice::from_ref(to));
                let spread = broadcast(self.session, &pairs, 1, to, window.clone()).await?;
                let part = distances(self.session, &pairs, &[*weight], 0, from, to, &spread, window).await?;
                for (group, part) in (first..).zip(part) {
                    match measured.get_mut(group) {
                        None => measured.push(part),
                        Some(sum) => Slots::add(sum, &part),
                    }
                }
            }
        }
        let bits = bits(self.metric);
        let chosen = nearest(self.session, &pairs, self.metric.comparison, bits, 0, vec![measured]).await?;
        Ok(chosen.concat())
    }
}
