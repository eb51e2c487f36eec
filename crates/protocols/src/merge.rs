//! Clusters become classes: which row belongs to which class, from which cluster it belongs to and a map that P1 alone knows.
//!
//! ```text
//!  rows >  4096     I'_q = sum of I_j over the clusters j of class q                                      P1, no round
//!  rows <= 4096     `arrange`: every tile with its blocks exchanged in all ways, three bits at a time
//!                   I'_q = sum over tiles and exchanges that bring a cluster of class q to the block of q          P1
//! ```
//! In short tables a cluster and its class lie in different blocks, so blocks have to move. P2 exchanges the blocks of a masked tile in
//! every way that the places of clusters and classes allow, whichever P1 takes. For the `b` bits of these places a tile takes
//! `2^b` ciphertexts down and a seventh more, and an eighth of these up, in `b / 3` rounds, rounded up. There are no more than six bits if there are no more clusters than rows. Deeper
//! tables are possible and take memory: half a megabyte for each of `2^(b - 3)` vectors.
//!
//! Its messages are those of [`arrange`](crate::arrange), so it has no entry of its own in the catalog, and nobody learns anything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use veil_slots::{DEGREE, Factor, Fresh, L0, L1, Offset, Outbound, Slots, plain};

use crate::arrange::{self, Arrange, MAX_BITS};
use crate::{Asker, ProtocolError, Session, Tiles};

/// Exchanged tiles that P1 holds at once, of half a megabyte each.
const HELD: usize = 64;

/// The tiles of `to`: one where a row belongs to a cluster of a class. Cluster `j` belongs to class `class_of[j]`, or to none. Both have
/// the same rows; slots that are no row's or no class's are zero, but in tables of more than 4096 rows they are sums of what was there.
///
/// Noise adds up with the clusters of a class: what is made of hundreds can be sent, and multiplied after [`refresh`](crate::fold::refresh).
pub async fn merge(
    session: &Session,
    tiles: &Tiles,
    to: &Tiles,
    class_of: &[Option<usize>],
    assignment: &[Vec<Slots<L1>>],
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    check(tiles, to, class_of, assignment)?;
    if tiles.centres_per_tile() == 1 {
        return Ok(assignment.iter().map(|chunk| added(to, class_of, chunk)).collect());
    }
    let moves: Vec<Vec<Move>> = (0..tiles.groups()).map(|group| moves(tiles, to, class_of, group)).collect();
    let stages = stages(tiles, to);
    let merged: Arc<Vec<Mutex<Slots<L1>>>> =
        Arc::new((0..to.groups()).map(|_| Mutex::new(Slots::clear(&[]))).collect());
    // Tables in blocks have one chunk.
    let clusters: Vec<_> = assignment.iter().flatten().zip(moves).collect();
    let before_last = stages.split_last().map_or(0, |(_, before)| before.iter().flatten().count());
    for clusters in clusters.chunks((HELD >> before_last).max(1)) {
        let whole = clusters.iter().map(|(slots, moves)| Exchanged {
            slots: (*slots).clone(),
            offset: 0,
            moves: moves.as_slice().into(),
        });
        exchange(session, *to, &stages, whole.collect(), &merged).await?;
    }
    let take = |slots: &Mutex<Slots<L1>>| slots.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(vec![merged.iter().map(take).collect()])
}

/// Checks what the caller asks for.
fn check(
    tiles: &Tiles,
    to: &Tiles,
    class_of: &[Option<usize>],
    assignment: &[Vec<Slots<L1>>],
) -> Result<(), ProtocolError> {
    let (chunks, groups) = (tiles.chunks(), tiles.groups());
    let fits = assignment.len() == chunks && assignment.iter().all(|chunk| chunk.len() == groups);
    if !fits || to.rows() != tiles.rows() {
        let text = format!("clusters become classes in {chunks} chunks of {groups} tiles, and of the same rows");
        return Err(ProtocolError::Misuse(text));
    }
    let (found, clusters, classes) = (class_of.len(), tiles.centres(), to.centres());
    if found != clusters || class_of.iter().flatten().any(|class| *class >= classes) {
        let text = format!("{clusters} clusters need as many of {classes} classes or none, and there are {found}");
        return Err(ProtocolError::Misuse(text));
    }
    Ok(())
}

/// One cluster a tile: the tiles of a chunk added up.
fn added(to: &Tiles, class_of: &[Option<usize>], clusters: &[Slots<L1>]) -> Vec<Slots<L1>> {
    let mut classes: Vec<Option<Slots<L1>>> = vec![None; to.groups()];
    for (cluster, class) in clusters.iter().zip(class_of) {
        match class.and_then(|class| classes.get_mut(class)) {
            Some(Some(sum)) => sum.add(cluster),
            Some(first) => *first = Some(cluster.clone()),
            None => {}
        }
    }
    classes.into_iter().map(|sum| sum.unwrap_or_else(|| Slots::clear(&[]))).collect()
}

/// Slots of a block.
fn block(tiles: &Tiles) -> usize {
    DEGREE / tiles.centres_per_tile()
}

/// Bits of places by which blocks of clusters and of classes differ, in the rounds in which tiles are arranged by them: the first one
/// takes what is left over, as those after it are multiplied by it.
fn stages(tiles: &Tiles, to: &Tiles) -> Vec<Vec<u8>> {
    let used = |tiles: &Tiles| tiles.centres().div_ceil(tiles.groups().max(1));
    let count = used(tiles).max(used(to)).next_power_of_two().ilog2() as u8;
    let lowest = block(tiles).ilog2() as u8;
    // A vector is arranged by one bit at least.
    let bits: Vec<u8> = (lowest..lowest + count.max(1)).collect();
    let (first, others) = bits.split_at(bits.len() % MAX_BITS);
    [first].into_iter().filter(|first| !first.is_empty()).chain(others.chunks(MAX_BITS)).map(<[_]>::to_vec).collect()
}

/// Where a cluster of a tile goes.
#[derive(Clone, Copy, Debug)]
struct Move {
    /// By which bits its place and its class's differ.
    offset: usize,
    /// The tile of its class.
    group: usize,
    /// The first slot of its class's block.
    start: usize,
}

/// Where the clusters of a tile go.
fn moves(tiles: &Tiles, to: &Tiles, class_of: &[Option<usize>], group: usize) -> Vec<Move> {
    let classes = to.groups().max(1);
    let of_block = |from: usize| {
        let class = *class_of.get(tiles.centre_of(group, from)?)?;
        let (group, start) = (class? % classes, class? / classes * block(to));
        Some(Move { offset: from ^ start, group, start })
    };
    (0..DEGREE).step_by(block(tiles)).filter_map(of_block).collect()
}

/// A tile whose blocks were exchanged.
struct Exchanged {
    slots: Slots<L1>,
    /// By which bits of their places.
    offset: usize,
    /// Where its clusters go.
    moves: Arc<[Move]>,
}

/// What P1 remembers: its mask, and where clusters go.
struct Asked {
    mask: Vec<u64>,
    offset: usize,
    moves: Arc<[Move]>,
}

/// P1 masks a tile.
fn ask(
    exchanged: Exchanged,
    bits: &[u8],
    asker: &mut Asker<'_>,
) -> Result<(Asked, arrange::Query<Outbound>), ProtocolError> {
    let Exchanged { slots, offset, moves } = exchanged;
    let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
    let masked = asker.send(&slots, &mask)?;
    Ok((Asked { mask, offset, moves }, arrange::Query { masked, bits: bits.to_vec() }))
}

/// All exchanges of these tiles, stage by stage; the last one adds them to the classes.
async fn exchange(
    session: &Session,
    to: Tiles,
    stages: &[Vec<u8>],
    mut tiles: Vec<Exchanged>,
    merged: &Arc<Vec<Mutex<Slots<L1>>>>,
) -> Result<(), ProtocolError> {
    let Some((last, before)) = stages.split_last() else { return Ok(()) };
    let weight = 1 << MAX_BITS;
    for bits in before {
        let (asked, answered) = (bits.clone(), bits.clone());
        let ask = move |tile, asker: &mut Asker<'_>| ask(tile, &asked, asker);
        let finish = move |asked, answer| all_exchanges(asked, &answered, answer);
        tiles = session.round::<Arrange, _, _, _>(tiles, weight, ask, finish).await?.into_iter().flatten().collect();
    }
    let (asked, answered, merged) = (last.clone(), last.clone(), merged.clone());
    let ask = move |tile, asker: &mut Asker<'_>| ask(tile, &asked, asker);
    let finish = move |asked, answer| add_exchanges(&asked, &answered, answer, &to, &merged);
    session.round::<Arrange, _, _, _>(tiles, weight, ask, finish).await.map(|_| ())
}

/// Refuses an answer that does not fit the question.
fn checked(bits: &[u8], answer: arrange::Answer<Fresh>) -> Result<Vec<Fresh>, ProtocolError> {
    let (found, expected) = (answer.arranged.len(), 1 << bits.len());
    match found == expected {
        true => Ok(answer.arranged),
        false => Err(ProtocolError::Malformed(format!("{found} arrangements instead of {expected}"))),
    }
}

/// P1 takes the mask off every exchange.
fn all_exchanges(asked: Asked, bits: &[u8], answer: arrange::Answer<Fresh>) -> Result<Vec<Exchanged>, ProtocolError> {
    let Asked { mask, offset, moves } = asked;
    let exchanged = |(number, fresh): (usize, Fresh)| {
        let by = arrange::offset(bits, number);
        let mut slots: Slots<L0> = fresh.into();
        // The mask has a number for every slot, and bits were checked to stay within a vector.
        slots.sub_clear(&Offset::new(&(0..DEGREE).map(|slot| mask[slot ^ by]).collect::<Vec<_>>()));
        Exchanged { slots: slots.raised(), offset: offset | by, moves: moves.clone() }
    };
    Ok(checked(bits, answer)?.into_iter().enumerate().map(exchanged).collect())
}

/// P1 adds to every class the clusters that an exchange brought to its block.
fn add_exchanges(
    asked: &Asked,
    bits: &[u8],
    answer: arrange::Answer<Fresh>,
    to: &Tiles,
    merged: &[Mutex<Slots<L1>>],
) -> Result<(), ProtocolError> {
    let exchanges = checked(bits, answer)?;
    let brought =
        asked.moves.iter().filter(|to| to.offset & !arrange::offset(bits, exchanges.len() - 1) == asked.offset);
    let mut of_tile: BTreeMap<usize, Vec<Move>> = BTreeMap::new();
    brought.for_each(|to| of_tile.entry(to.group).or_default().push(*to));
    for (group, brought) in of_tile {
        let mut mask = vec![0; DEGREE];
        let mut picked: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for Move { offset, start, .. } in brought {
            let number = usize::from(arrange::number(bits, offset));
            let by = arrange::offset(bits, number);
            let picked = picked.entry(number).or_insert_with(|| vec![0; DEGREE]);
            for slot in start..start + to.rows() {
                // Blocks lie within a vector, exchanged or not.
                picked[slot] = 1;
                mask[slot] = plain::add(mask[slot], asked.mask[slot ^ by]);
            }
        }
        let factors: Vec<(usize, Factor)> = picked.iter().map(|(number, ones)| (*number, Factor::new(ones))).collect();
        let terms = factors.iter().filter_map(|(number, factor)| Some((exchanges.get(*number)?, factor)));
        let mut sum = Slots::dot(terms).ok_or(ProtocolError::Cancelled)?;
        sum.sub_clear(&Offset::new(&mask));
        if let Some(merged) = merged.get(group) {
            merged.lock().unwrap_or_else(PoisonError::into_inner).add(&sum);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    /// Clusters of rows, and a map to so many classes: as many to none as there are to a class.
    struct Example {
        tiles: Tiles,
        to: Tiles,
        of_row: Vec<usize>,
        class_of: Vec<Option<usize>>,
    }

    impl Example {
        fn new(parties: &mut Parties, (rows, clusters, classes): (usize, usize, usize)) -> Self {
            let mut below = |bound: usize| plain::uniform_below(bound as u64, &mut parties.rng) as usize;
            let of_row = (0..rows).map(|_| below(clusters)).collect();
            let class_of = (0..clusters).map(|_| Some(below(classes + 1)).filter(|class| *class < classes)).collect();
            Self { tiles: Tiles::new(rows, clusters), to: Tiles::new(rows, classes), of_row, class_of }
        }

        /// The tiles of clusters, with anything where there is no centre, and in blocks where there is no row.
        fn encrypt(&self, parties: &mut Parties) -> Vec<Vec<Slots<L1>>> {
            let mut tile = |chunk: usize, group: usize| {
                let mut values = parties.numbers();
                for (slot, value) in values.iter_mut().enumerate() {
                    match (self.tiles.row_of(chunk, slot), self.tiles.centre_of(group, slot)) {
                        (Some(row), Some(centre)) => *value = u64::from(self.of_row[row] == centre),
                        _ if self.tiles.centres_per_tile() == 1 => *value = 0,
                        _ => {}
                    }
                }
                parties.encrypt(&values)
            };
            let (chunks, groups) = (0..self.tiles.chunks(), 0..self.tiles.groups());
            chunks.map(|chunk| groups.clone().map(|group| tile(chunk, group)).collect()).collect()
        }

        /// Merges, and compares with the clear.
        async fn expect(&self, parties: &mut Parties) {
            let assignment = self.encrypt(parties);
            let merged = merge(&parties.session, &self.tiles, &self.to, &self.class_of, &assignment).await.unwrap();
            assert_eq!(merged.len(), self.to.chunks());
            for (chunk, merged) in merged.iter().enumerate() {
                assert_eq!(merged.len(), self.to.groups());
                for (group, merged) in merged.iter().enumerate() {
                    let belongs = |slot| match (self.to.row_of(chunk, slot), self.to.centre_of(group, slot)) {
                        (Some(row), Some(class)) => u64::from(self.class_of[self.of_row[row]] == Some(class)),
                        _ => 0,
                    };
                    let expected: Vec<u64> = (0..DEGREE).map(belongs).collect();
                    assert!(parties.open(merged) == expected, "tile {group}, {:?} to {:?}", self.tiles, self.to);
                    merged.noise().times_clear::<L1>().checked_for_flooding().unwrap();
                }
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_go_where_their_clusters_go() {
        let mut parties = Parties::new(340);
        // In place, in blocks of one, two and three rounds, more classes than clusters, one of each, no class at all.
        let shapes = [(3, 2, 1), (100, 7, 3), (1000, 33, 9), (9000, 5, 2), (3000, 10, 4), (300, 40, 12), (100, 60, 20)];
        for shape in shapes.into_iter().chain([(2, 90, 100), (5, 3, 9), (1, 1, 1), (100, 7, 0), (5000, 3, 0)]) {
            Example::new(&mut parties, shape).expect(&mut parties).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn all_clusters_stay_or_become_one_or_none() {
        let mut parties = Parties::new(341);
        for (rows, clusters) in [(3, 2), (100, 7), (1000, 33), (9000, 5)] {
            let mut example = Example::new(&mut parties, (rows, clusters, clusters));
            for class_of in [|cluster| Some(cluster), |_| Some(1), |_| None] {
                example.class_of = (0..clusters).map(class_of).collect();
                example.expect(&mut parties).await;
            }
        }
    }

    /// What is asked depends on the numbers of clusters and classes alone.
    #[tokio::test(flavor = "multi_thread")]
    async fn rounds_are_as_few_as_the_places_allow() {
        let mut parties = Parties::new(342);
        for (rows, clusters, classes, rounds) in
            [(5000, 9, 2, 0), (3000, 9, 2, 1), (1000, 33, 2, 1), (300, 40, 2, 2), (100, 64, 2, 2), (100, 3, 64, 2)]
        {
            let example = Example::new(&mut parties, (rows, clusters, classes));
            let before = [parties.session.traffic().rounds(), parties.session.traffic().bytes_up()];
            example.expect(&mut parties).await;
            let after = [parties.session.traffic().rounds(), parties.session.traffic().bytes_up()];
            assert_eq!(after[0] - before[0], rounds, "{rows} rows, {clusters} clusters");
            let nothing = Example { class_of: vec![None; clusters], ..example };
            nothing.expect(&mut parties).await;
            assert_eq!(parties.session.traffic().bytes_up() - after[1], after[1] - before[1]);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn maps_of_the_wrong_shape_are_refused() {
        let mut parties = Parties::new(343);
        let tile = parties.encrypt(&[1]);
        let ask = async |rows, class_of: &[Option<usize>], assignment: &[Vec<Slots<L1>>]| {
            let (tiles, to) = (Tiles::new(9, 3), Tiles::new(rows, 2));
            merge(&parties.session, &tiles, &to, class_of, assignment).await.unwrap_err().to_string()
        };
        let one = vec![vec![tile.clone()]];
        let text = "clusters become classes in 1 chunks of 1 tiles, and of the same rows";
        assert_eq!(ask(8, &[None; 3], &one).await, text);
        assert_eq!(ask(9, &[None; 3], &[]).await, text);
        assert_eq!(ask(9, &[None; 3], &[vec![tile.clone(); 2]]).await, text);
        let text = "3 clusters need as many of 2 classes or none, and there are";
        assert_eq!(ask(9, &[None; 4], &one).await, format!("{text} 4"));
        assert_eq!(ask(9, &[None, Some(1), Some(2)], &one).await, format!("{text} 3"));
    }
}
