//! The sum of the rows of every centre, packed.
//!
//! ```text
//!  P1: rho uniform              y + rho  for many tiles  -->
//!                                                        <--  sums of every block's rows, packed          P2
//!  P1: minus the sums of rho
//! ```
//! A tile holds the rows of several centres in blocks ([`Tiles`]); slots of a block beyond the rows are left out. The number of
//! centre `j` and column `l` of `d` is in slot `j d + l`, counted through the packed vectors. A tile's sums go to one column, or to
//! all columns alike. Slots that nobody asked for are zero.
//!
//! One ciphertext up a tile, and one packed vector down for up to sixteen tiles: 27 bytes a slot, 29 with the answer.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{DEGREE, Fresh, Inbound, KeyHolder, L0, L1, Level, Offset, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::message::message;
use crate::{Asker, Leakage, Opens, Protocol, ProtocolError, Session, Tiles, Workload};

/// The protocol.
#[derive(Debug)]
pub struct BlockSums;

/// Tiles of one row.
pub(crate) const GROUP: usize = 16;

/// Packed vectors of an answer: centres times columns are at most 131072.
pub const MAX_PACKED: usize = 16;

/// Stands for all columns.
const ALL_COLUMNS: u64 = u64::MAX;

message! {
    /// Masked tiles, and where their sums go.
    Query<C: Outbound => Inbound> {
        /// `y + rho`.
        masked: Vec<C>,
        /// For every tile, which of its chunk it is.
        groups: Vec<u64>,
        /// For every tile, the column of its sums; the largest number for all columns.
        columns: Vec<u64>,
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
    /// The masked sums.
    Answer<C: SeededSlots => Fresh> {
        /// Packed.
        sums: Vec<C>,
    }
}

/// How the tiles of a chunk lie, and how numbers are packed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    rows: usize,
    block: usize,
    centres: usize,
    columns: usize,
}

impl Shape {
    /// Of numbers from outside. Says what is wrong with them.
    pub(crate) fn checked([rows, block, centres, columns]: [u32; 4]) -> Result<Self, String> {
        let most = (MAX_PACKED * DEGREE) as u64;
        let fits = block.is_power_of_two() && block as usize <= DEGREE && rows <= block;
        if !fits || !(1..=most).contains(&(u64::from(centres) * u64::from(columns))) {
            let packed = format!("{centres} centres of {columns} columns");
            return Err(format!("no sums of {rows} rows in blocks of {block} for {packed}"));
        }
        let [rows, block, centres, columns] = [rows, block, centres, columns].map(|number| number as usize);
        Ok(Self { rows, block, centres, columns })
    }

    /// Of a chunk.
    pub(crate) fn of(tiles: &Tiles, chunk: usize, columns: usize) -> Result<Self, ProtocolError> {
        let rows = tiles.rows().saturating_sub(chunk.saturating_mul(DEGREE)).min(DEGREE);
        let numbers = [rows, DEGREE / tiles.centres_per_tile(), tiles.centres(), columns];
        // What is too large for the wire is too large for a vector.
        Self::checked(numbers.map(|number| u32::try_from(number).unwrap_or(u32::MAX))).map_err(ProtocolError::Misuse)
    }

    /// As it crosses the wire: rows, block, centres, columns.
    pub(crate) fn numbers(self) -> [u32; 4] {
        [self.rows, self.block, self.centres, self.columns].map(|number| number as u32)
    }

    /// Tiles of a chunk.
    pub(crate) fn groups(self) -> usize {
        self.centres.div_ceil(DEGREE / self.block)
    }

    /// Columns of a centre.
    pub(crate) fn columns(self) -> usize {
        self.columns
    }

    /// Packed vectors.
    pub(crate) fn packed(self) -> usize {
        (self.centres * self.columns).div_ceil(DEGREE)
    }

    /// Packed numbers: all zero.
    pub(crate) fn zeros(self) -> Vec<u64> {
        vec![0; self.packed() * DEGREE]
    }

    /// Adds the sum of each block's rows.
    pub(crate) fn add_sums(self, group: usize, column: Option<usize>, values: &[u64], packed: &mut [u64]) {
        let sum = |rows: Range<usize>| {
            values.get(rows).unwrap_or_default().iter().fold(0, |sum, value| plain::add(sum, *value))
        };
        self.add_blocks(group, column, packed, sum);
    }

    /// Adds, for each block, the sum of two vectors' products over the rows.
    pub(crate) fn add_products(self, group: usize, column: usize, [x, y]: [&[u64]; 2], packed: &mut [u64]) {
        let sum = |rows: Range<usize>| {
            let rows = x.get(rows.clone()).unwrap_or_default().iter().zip(y.get(rows).unwrap_or_default());
            rows.fold(0, |sum, (x, y)| plain::add(sum, plain::mul(*x, *y)))
        };
        self.add_blocks(group, Some(column), packed, sum);
    }

    /// Adds to each centre of a tile what its rows, given by their slots, amount to.
    fn add_blocks(self, group: usize, column: Option<usize>, packed: &mut [u64], amount: impl Fn(Range<usize>) -> u64) {
        let own = packed.chunks_exact_mut(self.columns).take(self.centres).skip(group).step_by(self.groups().max(1));
        for (own, start) in own.zip((0..DEGREE).step_by(self.block)) {
            let amount = amount(start..start + self.rows);
            let own = match column {
                Some(column) => own.get_mut(column..=column).unwrap_or_default(),
                None => own,
            };
            own.iter_mut().for_each(|slot| *slot = plain::add(*slot, amount));
        }
    }

    /// The same vector with zero in all slots that are no row's.
    pub(crate) fn rows_of(self, values: &[u64]) -> Vec<u64> {
        let mut rows = values.to_vec();
        rows.chunks_mut(self.block).for_each(|block| block.iter_mut().skip(self.rows).for_each(|slot| *slot = 0));
        rows
    }
}

/// P2 encrypts packed numbers.
pub(crate) fn seal(packed: &[u64], holder: &dyn KeyHolder, mut rng: &mut dyn CryptoRng) -> Vec<SeededSlots> {
    let work: Vec<(&[u64], StdRng)> =
        packed.chunks(DEGREE).map(|vector| (vector, StdRng::from_rng(&mut rng))).collect();
    work.into_par_iter().map(|(vector, mut rng)| holder.seal(vector, &mut rng)).collect()
}

/// P1 masks vectors, every slot of each.
pub(crate) fn mask<L: Level>(
    vectors: Vec<Slots<L>>,
    asker: &mut Asker<'_>,
) -> Result<(Vec<Outbound>, Vec<Vec<u64>>), ProtocolError> {
    let work: Vec<(Slots<L>, Asker<'_>)> = vectors.into_iter().map(|vector| (vector, asker.fork())).collect();
    let masked = |(vector, mut asker): (Slots<L>, Asker<'_>)| {
        let mask = plain::uniform_vec(DEGREE, &mut asker.rng);
        Ok::<_, ProtocolError>((asker.send(&vector, &mask)?, mask))
    };
    let masked: Vec<(Outbound, Vec<u64>)> = work.into_par_iter().map(masked).collect::<Result<_, ProtocolError>>()?;
    Ok(masked.into_iter().unzip())
}

/// P1 takes packed sums of masks off packed replies.
pub(crate) fn unmask(replies: Vec<Fresh>, masks: &[u64]) -> Result<Vec<Slots<L0>>, ProtocolError> {
    if replies.len() * DEGREE != masks.len() {
        let text = format!("{} packed vectors instead of {}", replies.len(), masks.len() / DEGREE);
        return Err(ProtocolError::Malformed(text));
    }
    let unmask = |(reply, masks): (Fresh, &[u64])| {
        let mut slots: Slots<L0> = reply.into();
        slots.sub_clear(&Offset::new(masks));
        slots
    };
    Ok(replies.into_iter().zip(masks.chunks_exact(DEGREE)).map(unmask).collect())
}

impl Query<Inbound> {
    fn shape(&self) -> Result<Shape, ProtocolError> {
        let malformed = |why: String| Err(ProtocolError::Malformed(why));
        let shape = Shape::checked([self.rows, self.block, self.centres, self.of]);
        let shape = shape.map_err(ProtocolError::Malformed)?;
        let (tiles, groups, columns) = (self.masked.len(), self.groups.len(), self.columns.len());
        if !(1..=GROUP).contains(&tiles) || groups != tiles || columns != tiles {
            return malformed(format!("{groups} groups and {columns} columns for {tiles} of 1 to {GROUP} tiles"));
        }
        if let Some(group) = self.groups.iter().find(|group| **group >= shape.groups() as u64) {
            return malformed(format!("no tile {group} of {}", shape.groups()));
        }
        let is_column = |column: &u64| *column == ALL_COLUMNS || *column < shape.columns as u64;
        match self.columns.iter().find(|column| !is_column(column)) {
            Some(column) => malformed(format!("no column {column} of {}", shape.columns)),
            None => Ok(shape),
        }
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        self.shape().map(Shape::packed)
    }
}

impl Protocol for BlockSums {
    const NAME: &'static str = "block_sums";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "the sums of the blocks of vectors, packed";
    const LEAKAGE: Leakage = Leakage::NOTHING;
    const OPENS: Opens = Opens::NOTHING;
    type Query = Query<Outbound>;
    type Received = Query<Inbound>;
    type Answer = Answer<SeededSlots>;
    type Reply = Answer<Fresh>;

    fn answer(
        query: Query<Inbound>,
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
    ) -> Result<Answer<SeededSlots>, ProtocolError> {
        let shape = query.shape()?;
        let opened: Vec<_> = query.masked.into_par_iter().map(|masked| holder.open(masked)).collect();
        let mut packed = Zeroizing::new(shape.zeros());
        for ((values, group), column) in opened.iter().zip(&query.groups).zip(&query.columns) {
            let column = (*column != ALL_COLUMNS).then_some(*column as usize);
            shape.add_sums(*group as usize, column, values, &mut packed);
        }
        Ok(Answer { sums: seal(&packed, holder, rng) })
    }
}

/// A vector, and where its sums go.
#[derive(Clone, Debug)]
pub struct Part<L: Level = L1> {
    /// `y`, as a tile. Where tiles of several chunks were added up, zero in slots that were no row's.
    pub slots: Slots<L>,
    /// Which tile of its chunk it is.
    pub group: usize,
    /// The column of its sums, or none for all columns alike.
    pub column: Option<usize>,
}

/// Up to sixteen parts.
pub struct Request<L: Level> {
    parts: Vec<Part<L>>,
    shape: Shape,
}

/// What P1 remembers: the sums of its masks, packed.
pub struct Asked(Vec<u64>);

/// P1 masks every slot.
pub fn ask<L: Level>(request: Request<L>, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Request { parts, shape } = request;
    let places: Vec<(usize, Option<usize>)> = parts.iter().map(|part| (part.group, part.column)).collect();
    let (masked, masks) = mask(parts.into_iter().map(|part| part.slots).collect(), asker)?;
    let mut sums = shape.zeros();
    for ((group, column), mask) in places.iter().zip(&masks) {
        shape.add_sums(*group, *column, mask, &mut sums);
    }
    let groups = places.iter().map(|(group, _)| *group as u64).collect();
    let columns = places.iter().map(|(_, column)| column.map_or(ALL_COLUMNS, |column| column as u64)).collect();
    let [rows, block, centres, of] = shape.numbers();
    Ok((Asked(sums), Query { masked, groups, columns, rows, block, centres, of }))
}

/// P1 takes the masks' sums off.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Vec<Slots<L0>>, ProtocolError> {
    unmask(answer.sums, &asked.0)
}

/// One round for many lists of tiles: for each list its packed sums, those of different tiles added up.
pub async fn block_sums<L: Level>(
    session: &Session,
    tiles: &Tiles,
    columns: usize,
    lists: Vec<Vec<Part<L>>>,
) -> Result<Vec<Vec<Slots<L0>>>, ProtocolError> {
    let shape = Shape::of(tiles, 0, columns)?;
    let mut sums: Vec<Vec<Slots<L0>>> = vec![vec![Slots::clear(&[]); shape.packed()]; lists.len()];
    let is_outside =
        |part: &&Part<L>| part.group >= shape.groups() || part.column.is_some_and(|column| column >= columns);
    if let Some(Part { group, column, .. }) = lists.iter().flatten().find(is_outside) {
        return Err(ProtocolError::Misuse(format!("no tile {group} or column {column:?} of {tiles:?}")));
    }
    let (mut requests, mut owners) = (Vec::new(), Vec::new());
    for (list, parts) in lists.into_iter().enumerate() {
        for parts in parts.chunks(GROUP) {
            requests.push(Request { parts: parts.to_vec(), shape });
            owners.push(list);
        }
    }
    let most = requests.iter().map(|request| request.parts.len()).max().unwrap_or(1);
    let partial = session.round::<BlockSums, _, _, _>(requests, most.max(shape.packed()), ask, finish).await?;
    for (list, partial) in owners.into_iter().zip(partial) {
        sums[list].iter_mut().zip(&partial).for_each(|(sum, partial)| sum.add(partial));
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn sums_go_to_their_slots_and_padding_is_left_out() {
        let mut parties = Parties::new(300);
        for (rows, centres, columns) in [(3, 5, 2), (1000, 33, 3), (8192, 2, 5000), (4000, 1, 1)] {
            let tiles = Tiles::new(rows, centres);
            let values = parties.numbers();
            let slots = parties.encrypt(&values);
            let group = tiles.groups() - 1;
            let part = |column| Part { slots: slots.clone(), group, column };
            let lists = vec![vec![part(Some(columns - 1))], vec![part(None); 17], vec![]];
            let sums = block_sums(&parties.session, &tiles, columns, lists).await.unwrap();
            let mut expected = [(); 3].map(|()| vec![0; sums[0].len() * DEGREE]);
            for slot in (0..DEGREE).filter(|slot| tiles.row_of(0, *slot).is_some()) {
                let Some(centre) = tiles.centre_of(group, slot) else { continue };
                let last = centre * columns + columns - 1;
                expected[0][last] = plain::add(expected[0][last], values[slot]);
                for packed in &mut expected[1][centre * columns..=last] {
                    *packed = plain::add(*packed, plain::mul(17, values[slot]));
                }
            }
            for (sums, expected) in sums.iter().zip(expected) {
                let opened: Vec<u64> = sums.iter().flat_map(|sums| parties.open(&sums.raised())).collect();
                assert!(opened == expected, "{rows} rows, {centres} centres, {columns} columns");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tiles_that_do_not_exist_are_refused() {
        let mut parties = Parties::new(301);
        let slots = parties.encrypt(&[7]);
        for (centres, columns, group, column) in
            [(2, 1, 1, None), (2, 1, 0, Some(1)), (0, 1, 0, None), (1, 131_073, 0, None)]
        {
            let part = Part { slots: slots.clone(), group, column };
            let sums = block_sums(&parties.session, &Tiles::new(3, centres), columns, vec![vec![part]]).await;
            assert!(matches!(sums, Err(ProtocolError::Misuse(_))), "{centres} centres, {columns} columns");
        }
        assert!(Shape::checked([9, 8, 1, 1]).is_err() && Shape::checked([3, 6, 1, 1]).is_err());
        assert!(Shape::checked([3, 16384, 1, 1]).is_err() && Shape::checked([3, 4, u32::MAX, u32::MAX]).is_err());
    }
}
