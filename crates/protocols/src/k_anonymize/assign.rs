//! Every row to its nearest centre (the paper's distances and ComputeMinIndex).

use veil_privacy::clusters::GRID_BITS;
use veil_slots::{DEGREE, L1, Offset, Slots};

use crate::broadcast::broadcast;
use crate::distances::distances;
use crate::nearest::{Comparison, nearest};
use crate::{ProtocolError, Session, Tiles};

/// Centres in tiles that P1 holds at the same time, in vectors of half a megabyte.
const SPREAD_VECTORS: usize = 128;

/// Tiles whose tournament is under way at the same time.
const TOURNAMENT_TILES: usize = 512;

/// How far a centre can lie outside the grid, however its mean was rounded.
const DRIFT: u64 = 64;

/// What is compared, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric<'a> {
    /// The weight of every column.
    pub(super) weights: &'a [u32],
    /// How distances are compared.
    pub(super) comparison: Comparison,
}

impl Metric<'_> {
    /// The largest absolute value of `sum_l w_l (C_l^2 - 2 T_l C_l)`.
    pub(super) fn largest(&self) -> u64 {
        let weights: u64 = self.weights.iter().copied().map(u64::from).sum();
        weights.saturating_mul(((1 << GRID_BITS) + DRIFT).pow(2))
    }

    /// Bits of a comparison.
    pub(super) fn bits(&self) -> u32 {
        bits_for(self.largest())
    }
}

/// Bits such that numbers of this magnitude are below `2^(bits - 1)`.
pub(super) fn bits_for(magnitude: u64) -> u32 {
    u64::BITS - magnitude.leading_zeros() + 1
}

/// For every chunk its tiles: one where the centre is the nearest of a row, the lowest among equals. Centres that are `out` must be
/// zero, and are nobody's.
pub(super) async fn assign(
    session: &Session,
    tiles: &Tiles,
    metric: Metric<'_>,
    coordinates: &[Vec<Slots<L1>>],
    centres: &[Slots<L1>],
    out: impl Fn(usize) -> bool,
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let (groups, columns) = (tiles.groups(), metric.weights.len());
    let window = (SPREAD_VECTORS / columns.max(1)).max(1);
    let mut measured: Vec<Vec<Slots<L1>>> = vec![Vec::with_capacity(groups); tiles.chunks()];
    for first in (0..groups).step_by(window) {
        let window = first..(first + window).min(groups);
        let spread = broadcast(session, tiles, columns, centres, window.clone()).await?;
        for (chunk, (rows, measured)) in coordinates.iter().zip(&mut measured).enumerate() {
            let found =
                distances(session, tiles, metric.weights, chunk, rows, centres, &spread, window.clone()).await?;
            measured.extend(found);
        }
    }
    let bits = metric.bits();
    put_out(tiles, bits, &out, &mut measured);
    let together = (TOURNAMENT_TILES / groups.max(1)).max(1);
    let mut chosen = Vec::with_capacity(tiles.chunks());
    let mut measured = measured.into_iter();
    while measured.len() > 0 {
        let chunks: Vec<Vec<Slots<L1>>> = measured.by_ref().take(together).collect();
        chosen.extend(nearest(session, tiles, metric.comparison, bits, chosen.len(), chunks).await?);
    }
    Ok(chosen)
}

/// Centres that are out get a distance that every other is below; not in slots without a row, which compare zeros.
pub(super) fn put_out(tiles: &Tiles, bits: u32, out: impl Fn(usize) -> bool, chunks: &mut [Vec<Slots<L1>>]) {
    for (chunk, measured) in chunks.iter_mut().enumerate() {
        for (group, tile) in measured.iter_mut().enumerate() {
            let lost = |slot| match (tiles.centre_of(group, slot), tiles.row_of(chunk, slot)) {
                (Some(centre), Some(_)) if out(centre) => 1 << (bits - 1),
                _ => 0,
            };
            let lost: Vec<u64> = (0..DEGREE).map(lost).collect();
            if lost.iter().any(|lost| *lost > 0) {
                tile.add_clear(&Offset::new(&lost));
            }
        }
    }
}
