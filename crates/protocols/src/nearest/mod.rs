//! Which centre is nearest to every row: a tournament, and who won it.
//!
//! ```text
//!  up:    tile against tile, (0, 1), (2, 3), ..          `compare_and_select` a stage, until one tile a chunk is left
//!         in it, block against block, bit by bit         `arrange`: the lower block gets the upper one;  `compare_and_select`
//!  down:  who won, to all blocks that took part          `arrange`, three bits at a time
//!         a slot won all stages of blocks                `and`, three bits at a time
//!         I of a pair of tiles:  I_a = I w,  I_b = I - I_a                                                  `and` a stage
//! ```
//! With `G` tiles a chunk, and `J` bits for its blocks that hold a centre, that takes `2 log2 G + 2 J + J / 3 + log3 (J + 1)` rounds, each
//! rounded up, for all chunks together. A stage of tiles takes a comparison and a product for every tile but one: 2 ciphertexts up and
//! 6 down, 54 and 162 bytes a slot. Stages of blocks are for one vector alone: 2 up and 5 down each, and the way back, for eight blocks
//! 11 up and 39 down in all. Exact comparisons are those of [`compare_exact`](crate::compare_exact) and a product.
//!
//! Its messages are those of the protocols it is made of, so it has no entry of its own in the catalog. Exact comparisons tell nobody
//! anything; blinded ones tell P2 what [`compare_and_select`](crate::compare_and_select) does, about differences of distances, of all of
//! which it can work out the rows. Each difference is compared in one slot, never in several, which would undo the blur of even that one:
//! of two blocks the upper one leaves the tournament, and its slots compare zero with zero.

mod blocks;

use std::ops::Range;

use rayon::prelude::*;
use veil_slots::{DEGREE, L1, Offset, Slots, plain};

use self::blocks::{between_blocks, everywhere};
use crate::arrange::PLACE_BITS;
use crate::compare_and_select::{self, Selected};
use crate::lists::together;
use crate::{ProtocolError, Session, Tiles, and, compare_exact, multiply};

/// How distances are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Fast: P2 sees blurred magnitudes of differences, row by row, and can work out from those of a run what is compared.
    Blinded,
    /// Nobody learns anything.
    #[default]
    Exact,
}

/// For every chunk, of those from `first` on, its tiles again: one in the slot of a row and its nearest centre, the lowest among equals; zero in all others,
/// those without a row or centre too. Distances are within `-2^(bits - 1)` and `2^(bits - 1)`, both excluded, and zero where there is no
/// row: P2 knows these slots, so they must not compare anything that it should not see.
pub async fn nearest(
    session: &Session,
    tiles: &Tiles,
    comparison: Comparison,
    bits: u32,
    first: usize,
    chunks: Vec<Vec<Slots<L1>>>,
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    check(tiles, comparison, bits, first, &chunks)?;
    let of = first..first + chunks.len();
    let mut standing = with_losers(tiles, bits, chunks);
    let mut stages = Vec::new();
    while standing.iter().any(|tiles| tiles.len() > 1) {
        stages.push(between_tiles(session, comparison, bits, &mut standing).await?);
    }
    let mut won = Vec::new();
    for (stage, bit) in block_bits(tiles).enumerate() {
        let (minima, winners) = between_blocks(session, comparison, bits, (stage, bit), standing.concat()).await?;
        standing = vec![minima];
        won.extend(winners);
    }
    let won = everywhere(session, block(tiles).ilog2() as u8, won).await?;
    let mut chosen = of_all_blocks(session, tiles, of, won).await?;
    for winners in stages.into_iter().rev() {
        chosen = divided(session, chosen, winners).await?;
    }
    Ok(chosen)
}

/// Checks what the caller asks for.
fn check(
    tiles: &Tiles,
    comparison: Comparison,
    bits: u32,
    first: usize,
    chunks: &[Vec<Slots<L1>>],
) -> Result<(), ProtocolError> {
    let most = match comparison {
        Comparison::Blinded => compare_and_select::MAX_BITS,
        Comparison::Exact => compare_exact::MAX_BITS,
    };
    if !(1..=most).contains(&bits) {
        let text = format!("the nearest centre is found by differences of 1 to {most} bits, not of {bits}");
        return Err(ProtocolError::Misuse(text));
    }
    let (expected, groups) = (tiles.chunks(), tiles.groups());
    if groups == 0 || first.saturating_add(chunks.len()) > expected || chunks.iter().any(|chunk| chunk.len() != groups)
    {
        let text =
            format!("the nearest centre is found in up to {expected} chunks of {groups} tiles, and of one at least");
        return Err(ProtocolError::Misuse(text));
    }
    Ok(())
}

/// Slots of a block.
fn block(tiles: &Tiles) -> usize {
    DEGREE / tiles.centres_per_tile()
}

/// The bits of a place by which blocks with a centre differ.
fn block_bits(tiles: &Tiles) -> impl Iterator<Item = u8> {
    let used = tiles.centres().div_ceil(tiles.groups().max(1)).max(1);
    let lowest = block(tiles).ilog2() as u8;
    (lowest..PLACE_BITS).take(used.next_power_of_two().ilog2() as usize)
}

/// Slots without a centre get a distance that every other is below.
fn with_losers(tiles: &Tiles, bits: u32, mut chunks: Vec<Vec<Slots<L1>>>) -> Vec<Vec<Slots<L1>>> {
    let block = block(tiles);
    for group in 0..tiles.groups() {
        if (0..DEGREE).step_by(block).all(|slot| tiles.centre_of(group, slot).is_some()) {
            continue;
        }
        let lost = |slot| if tiles.centre_of(group, slot).is_some() { 0 } else { 1 << (bits - 1) };
        let lost = Offset::new(&(0..DEGREE).map(lost).collect::<Vec<_>>());
        chunks.iter_mut().filter_map(|chunk| chunk.get_mut(group)).for_each(|tile| tile.add_clear(&lost));
    }
    chunks
}

/// The smaller of each pair, and whether it was the first, which wins a tie.
async fn select(
    session: &Session,
    comparison: Comparison,
    bits: u32,
    pairs: Vec<(Slots<L1>, Slots<L1>)>,
) -> Result<Vec<Selected>, ProtocolError> {
    if comparison == Comparison::Blinded {
        let pairs = pairs.into_iter().map(|(a, b)| compare_and_select::Pair { a, b, bits });
        return compare_and_select::compare_and_select(session, pairs.collect()).await;
    }
    let strict = |(a, b): &(Slots<L1>, Slots<L1>)| {
        // A <= B is A - 1 < B.
        let mut a = a.clone();
        a.add_constant(plain::neg(1));
        compare_exact::Pair { a, b: b.clone(), bits }
    };
    let first = compare_exact::compare_exact(session, pairs.iter().map(strict).collect()).await?;
    let factors = first.iter().zip(&pairs).map(|(first, (a, b))| {
        let mut difference = a.clone();
        difference.sub(b);
        (first.clone(), difference)
    });
    let products = multiply::multiply(session, factors.collect()).await?;
    let selected = products.into_iter().zip(first).zip(pairs).map(|((mut min, first), (_, b))| {
        min.add(&b);
        Selected { min, first }
    });
    Ok(selected.collect())
}

/// One stage between tiles, of all chunks: those that stand, and for every chunk who won its pairs. A last one without a partner stays.
async fn between_tiles(
    session: &Session,
    comparison: Comparison,
    bits: u32,
    standing: &mut [Vec<Slots<L1>>],
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let pairs_of = |tiles: &Vec<Slots<L1>>| -> Vec<(Slots<L1>, Slots<L1>)> {
        tiles.as_chunks::<2>().0.iter().map(|[a, b]| (a.clone(), b.clone())).collect()
    };
    let (pairs, lengths) = together(standing.iter().map(pairs_of));
    let selected = lengths.apart(select(session, comparison, bits, pairs).await?)?;
    let of_chunk = |(tiles, selected): (&mut Vec<Slots<L1>>, Vec<Selected>)| {
        let last = if tiles.len() % 2 == 1 { tiles.pop() } else { None };
        let (minima, winners): (Vec<_>, Vec<_>) = selected.into_iter().map(|made| (made.min, made.first)).unzip();
        *tiles = minima.into_iter().chain(last).collect();
        winners
    };
    Ok(standing.iter_mut().zip(selected).map(of_chunk).collect())
}

/// For every chunk, one where a slot has a row and won every stage between blocks. These are for tables of a single chunk.
async fn of_all_blocks(
    session: &Session,
    tiles: &Tiles,
    chunks: Range<usize>,
    won: Vec<Slots<L1>>,
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    // Blocks that took no part in any stage have won none.
    let end = block(tiles) << won.len();
    let present = |chunk: usize| {
        let bit = |slot| u64::from(slot < end && tiles.row_of(chunk, slot).is_some());
        vec![Slots::clear(&(0..DEGREE).map(bit).collect::<Vec<_>>())]
    };
    let mut bits: Vec<Vec<Slots<L1>>> = chunks.into_par_iter().map(present).collect();
    if let Some(bits) = bits.first_mut() {
        bits.extend(won);
    }
    while bits.iter().any(|bits| bits.len() > 1) {
        let groups_of = |bits: &Vec<Slots<L1>>| -> Vec<Vec<Slots<L1>>> {
            bits.chunks(and::MAX_BITS).filter(|group| group.len() > 1).map(<[_]>::to_vec).collect()
        };
        let mut products = and::and(session, bits.iter().flat_map(groups_of).collect()).await?.into_iter();
        for bits in &mut bits {
            let fold = |group: &[Slots<L1>]| match group {
                [single] => Some(single.clone()),
                _ => products.next(),
            };
            *bits = bits.chunks(and::MAX_BITS).filter_map(fold).collect();
        }
    }
    Ok(bits)
}

/// What was chosen among winners, as what was chosen among those that they won against: `I_a = I w` and `I_b = I - I_a`.
async fn divided(
    session: &Session,
    chosen: Vec<Vec<Slots<L1>>>,
    winners: Vec<Vec<Slots<L1>>>,
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let of_chunk = |(chosen, winners): (&Vec<Slots<L1>>, &Vec<Slots<L1>>)| -> Vec<Vec<Slots<L1>>> {
        chosen.iter().zip(winners).map(|(chosen, first)| vec![chosen.clone(), first.clone()]).collect()
    };
    let pairs = chosen.iter().zip(&winners).flat_map(of_chunk).collect();
    let mut products = and::and(session, pairs).await?.into_iter();
    let divide = |(chosen, winners): (Vec<Slots<L1>>, Vec<Slots<L1>>)| {
        let mut made = Vec::with_capacity(2 * chosen.len());
        for (number, mut second) in chosen.into_iter().enumerate() {
            // A last one without a partner stays as it is.
            if number < winners.len() {
                let first = products.next().ok_or(ProtocolError::Cancelled)?;
                second.sub(&first);
                made.push(first);
            }
            made.push(second);
        }
        Ok(made)
    };
    chosen.into_iter().zip(winners).map(divide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distances::example::Example;
    use crate::testing::Parties;

    /// The tiles against a search in the clear.
    async fn expect(parties: &mut Parties, example: &Example, comparison: Comparison, bits: u32) {
        let (tiles, measured) = (example.tiles, example.measured(parties).await);
        let before = parties.session.traffic().rounds();
        let found = nearest(&parties.session, &tiles, comparison, bits, 0, measured).await.unwrap();
        if comparison == Comparison::Blinded {
            let (tile_stages, block_stages) = (tiles.groups().next_power_of_two().ilog2(), block_bits(&tiles).count());
            let products = (0..).find(|rounds| 3usize.pow(*rounds) > block_stages).unwrap();
            let blocks = 2 * block_stages + block_stages.div_ceil(3);
            let rounds = 2 * u64::from(tile_stages) + blocks as u64 + u64::from(products);
            assert_eq!(parties.session.traffic().rounds() - before, rounds);
        }
        let centres = 0..example.centres.len();
        let nearest_of =
            |row: usize| centres.clone().min_by_key(|centre| (example.distance(row, *centre), *centre)).unwrap();
        let expected: Vec<usize> = (0..example.rows.len()).map(nearest_of).collect();
        assert_eq!(found.len(), tiles.chunks());
        for (chunk, found) in found.iter().enumerate() {
            assert_eq!(found.len(), tiles.groups());
            for (group, found) in found.iter().enumerate() {
                let is_nearest = |slot| match (tiles.row_of(chunk, slot), tiles.centre_of(group, slot)) {
                    (Some(row), Some(centre)) => u64::from(expected[row] == centre),
                    _ => 0,
                };
                let expected: Vec<u64> = (0..DEGREE).map(is_nearest).collect();
                assert_eq!(parties.open(found), expected, "tile {group} of chunk {chunk}");
            }
        }
    }

    /// Small numbers, so that there are ties everywhere; and the last centre is the first one again.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_nearest_centre_is_found_and_the_lowest_wins_a_tie() {
        let mut parties = Parties::new(75);
        for shape in
            [(3, 2, 1), (5, 3, 2), (100, 7, 3), (1000, 33, 2), (9000, 5, 2), (1, 1, 1), (9000, 1, 1), (2, 60, 1)]
        {
            let example = Example::new(&mut parties, shape, 3);
            expect(&mut parties, &example, Comparison::Blinded, 9).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn equal_centres_all_lose_to_the_first() {
        let mut parties = Parties::new(76);
        let mut example = Example::new(&mut parties, (1000, 33, 2), 1 << 15);
        let first = example.centres[0].clone();
        example.centres.fill(first);
        expect(&mut parties, &example, Comparison::Blinded, compare_and_select::MAX_BITS).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn large_numbers_are_compared_exactly() {
        let mut parties = Parties::new(77);
        let example = Example::new(&mut parties, (1000, 33, 2), 1 << 15);
        expect(&mut parties, &example, Comparison::Blinded, compare_and_select::MAX_BITS).await;
        for (shape, bound, bits) in [((3, 2, 1), 1 << 15, 33), ((5, 3, 2), 3, 9), ((5000, 3, 1), 2, 6)] {
            let example = Example::new(&mut parties, shape, bound);
            expect(&mut parties, &example, Comparison::Exact, bits).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn impossible_questions_are_refused() {
        let mut parties = Parties::new(78);
        let (slots, tiles) = (parties.encrypt(&[1]), Tiles::new(5, 3));
        let ask = async |comparison, bits, chunks| {
            nearest(&parties.session, &tiles, comparison, bits, 0, chunks).await.unwrap_err().to_string()
        };
        let start = "the nearest centre is found";
        let text = ask(Comparison::Blinded, 38, vec![vec![slots.clone()]]).await;
        assert_eq!(text, format!("{start} by differences of 1 to 37 bits, not of 38"));
        let text = ask(Comparison::Exact, 0, vec![vec![slots.clone()]]).await;
        assert_eq!(text, format!("{start} by differences of 1 to 46 bits, not of 0"));
        for chunks in [vec![vec![]], vec![vec![slots.clone()]; 2], vec![vec![slots; 2]]] {
            let text = ask(Comparison::Blinded, 20, chunks).await;
            assert_eq!(text, format!("{start} in up to 1 chunks of 1 tiles, and of one at least"));
        }
    }
}
