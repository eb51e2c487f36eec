//! Classes get their values, and rows those of their classes (the paper's AnonymizeClusters).
//!
//! ```text
//!  numbers       x = lower + C D / 2^15, C the class's centre                     `cluster_sums`, `centres`, `multiply`, `truncate`
//!  categories    per level: A = sum a, B = sum r a, X = sum r, r uniform          `cluster_sums`, `fold`, `block_sums`
//!                all are equal iff n B = X A;  then the code is A / n             `multiply`, `zero_test`, `lookup_long`
//!                code, or -1 beyond                                               `multiply`
//!  rows          sum_j I_ij V_j;  tag of its class;  whether suppressed           `blend`
//!  cells                                                                          `lower`
//! ```
//! `n B - X A = n sum r_i (a_i - A / n)`: uniform, whatever the codes, unless all are equal. A class that mixes a code is so told from one
//! that does not with an error of `1/t`.

use std::sync::Arc;

use arrow::array::{Array, BinaryArray};
use arrow::compute::concat;
use veil_cells::{Lanes, Width};
use veil_privacy::clusters::GRID_BITS;
use veil_slots::{DEGREE, Factor, L0, L1, L2, Slots, plain};

use super::constants::Scale;
use super::coordinates::{Grid, clear_bounds};
use super::{Quasi, Values};
use crate::blend::blend;
use crate::block_sums::{Part, block_sums};
use crate::centres::centres;
use crate::cluster_sums::{Sums, cluster_sums};
use crate::few::{truncate_half, truncate_wide};
use crate::fold::refresh;
use crate::lists::together;
use crate::lookup_long::{Question, lookup_long};
use crate::lower::{self, lower};
use crate::multiply::multiply;
use crate::truncate::{Dividend, Rounding};
use crate::zero_test::zero_test;
use crate::{ProtocolError, Session, Tiles};

/// Keeps quotients of centres a little below zero from wrapping: `C D > -2^39`.
const BELOW: u64 = 1 << 39;

/// The rows of every class, and what they share.
pub(super) struct Classes<'a> {
    pub(super) session: &'a Session,
    pub(super) tiles: Tiles,
    pub(super) quasi: &'a [Quasi],
    pub(super) grid: &'a Grid,
    pub(super) assignment: &'a [Vec<Slots<L1>>],
}

/// For every chunk of rows and column, its vector.
type Chunks = Vec<Vec<Slots<L1>>>;

impl Classes<'_> {
    /// Cells for every column.
    pub(super) async fn publish(&self) -> Result<Vec<BinaryArray>, ProtocolError> {
        // None of these waits for the others.
        let (numbers, categories, tags) = futures::try_join!(self.numbers(), self.categories(), self.tags())?;
        let (mut number, mut category, mut lane) = (0, 0, 0);
        let mut published = Vec::with_capacity(self.quasi.len());
        for quasi in self.quasi {
            let (lanes, bits, magnitude): (Vec<Vec<Slots<L1>>>, u32, Option<u64>) = match &quasi.values {
                Values::Numbers { bits, .. } => {
                    number += 1;
                    (vec![column_of(&numbers, number - 1)?], *bits, Some(1 << (bits - 1)))
                }
                Values::Clear(values) => {
                    number += 1;
                    let width = width_of(values)?;
                    (vec![column_of(&numbers, number - 1)?], width.bits(), Some(width.magnitude()))
                }
                Values::Categories { levels, bits, .. } => {
                    let own = (lane..lane + levels.saturating_sub(1)).map(|lane| column_of(&categories, lane));
                    let mut lanes = own.collect::<Result<Vec<_>, _>>()?;
                    lane += levels.saturating_sub(1);
                    // The root is everybody's.
                    lanes.extend(self.grid.levels.get(category).and_then(|levels| levels.last()).cloned());
                    category += 1;
                    (lanes, *bits, None)
                }
            };
            let shape = Lanes { value: lanes.len() as u8, nulls: false, tag: true };
            let lanes: Vec<Vec<Slots<L1>>> = lanes.into_iter().chain([tags.concat()]).collect();
            published.push(self.cells(lanes, shape, bits, magnitude).await?);
        }
        Ok(published)
    }

    /// Lanes, each in chunks of rows, as cells.
    pub(super) async fn cells(
        &self,
        lanes: Vec<Vec<Slots<L1>>>,
        shape: Lanes,
        width: u32,
        magnitude: Option<u64>,
    ) -> Result<BinaryArray, ProtocolError> {
        let rows = self.tiles.rows();
        let chunk = |chunk: usize| lower::Rows {
            lanes: lanes.iter().filter_map(|lane| lane.get(chunk).cloned()).collect(),
            count: (rows - chunk * DEGREE).min(DEGREE),
            shape,
            width,
            magnitude,
            key_id: self.session.key_id(),
        };
        let cells = lower(self.session, (0..self.tiles.chunks()).map(chunk).collect()).await?;
        let parts: Vec<&dyn Array> = cells.iter().map(|cells| cells as &dyn Array).collect();
        let joined = concat(&parts).map_err(|error| ProtocolError::Misuse(error.to_string()))?;
        joined.as_any().downcast_ref::<BinaryArray>().cloned().ok_or(ProtocolError::Cancelled)
    }

    /// The numbers of every row's class, in the units of their columns.
    async fn numbers(&self) -> Result<Chunks, ProtocolError> {
        let scaled = self.grid.scales.iter().enumerate().filter_map(|(place, scale)| Some((place, scale.as_ref()?)));
        let (places, scales): (Vec<usize>, Vec<&Scale>) = scaled.unzip();
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let columns = places.len();
        let of_chunk = |chunk: &Vec<Slots<L1>>| places.iter().filter_map(|place| chunk.get(*place).cloned()).collect();
        let coordinates: Chunks = self.grid.coordinates.iter().map(of_chunk).collect();
        let sums = cluster_sums(self.session, &self.tiles, &coordinates, self.assignment).await?;
        let packed = sums.sums.len();
        let centres = centres(self.session, &self.tiles, columns, &sums, vec![Slots::clear(&[]); packed]).await?;
        let pairs = (0..)
            .zip(&centres)
            .map(|(vector, centre)| (centre.clone(), packed_scales(&scales, vector, |scale| &scale.range)));
        let mut products = multiply(self.session, pairs.collect()).await?;
        products.iter_mut().for_each(|product| product.add_constant(BELOW));
        let dividend = |slots| Dividend { slots, shift: GRID_BITS, rounding: Rounding::Nearest };
        let (used, dividends) =
            ((self.tiles.centres() * columns).min(DEGREE), products.into_iter().map(dividend).collect());
        // Centres are at most 2^15 and a little, so products with ranges below 2^31 are below t / 2, whatever was added to them, and others below 2^47 + 2^40.
        let mut values = match self.quasi.iter().all(is_narrow) {
            true => truncate_half(self.session, used, dividends).await?,
            false => truncate_wide(self.session, used, dividends).await?,
        };
        for (vector, value) in values.iter_mut().enumerate() {
            value.add_constant(plain::neg(BELOW >> GRID_BITS));
            value.add(&packed_scales(&scales, vector, |scale| &scale.lower));
        }
        blend(self.session, &self.tiles, columns, &values, self.assignment).await
    }

    /// The codes of every row's class, at all levels of all categories but their roots; -1 where the class has several.
    async fn categories(&self) -> Result<Chunks, ProtocolError> {
        let below_root = |levels: &Vec<Vec<Slots<L1>>>| levels.split_last().map(|(_, below)| below.to_vec());
        let lanes: Vec<Vec<Slots<L1>>> = self.grid.levels.iter().filter_map(below_root).flatten().collect();
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let columns = lanes.len();
        let of_chunk = |chunk: usize| lanes.iter().filter_map(|lane| lane.get(chunk).cloned()).collect();
        let codes: Chunks = (0..self.tiles.chunks()).map(of_chunk).collect();
        let sums = cluster_sums(self.session, &self.tiles, &codes, self.assignment).await?;
        let (weighted, weights) = self.weighted(&codes).await?;
        let inverses = self.inverses(columns, &sums).await?;
        let raised = |vectors: &[Slots<_>]| vectors.iter().map(Slots::raised).collect::<Vec<Slots<L1>>>();
        let (codes, counts) = (raised(&sums.sums), raised(&sums.counts));
        // n B - X A, and A / n.
        let pairs = [(&counts, &weighted), (&weights, &codes), (&codes, &inverses)];
        let (pairs, lengths) =
            together(pairs.map(|(one, other)| one.iter().cloned().zip(other.iter().cloned()).collect()));
        let [mut products, crossed, mut shared] = lengths.each(multiply(self.session, pairs).await?)?;
        products.iter_mut().zip(&crossed).for_each(|(product, crossed)| product.sub(crossed));
        let equal = zero_test(self.session, products).await?;
        shared.iter_mut().for_each(|code| code.add_constant(1));
        let values = multiply(self.session, equal.into_iter().zip(shared).collect()).await?;
        let mut blended = blend(self.session, &self.tiles, columns, &values, self.assignment).await?;
        blended.iter_mut().flatten().for_each(|code| code.add_constant(plain::neg(1)));
        Ok(blended)
    }

    /// Sums of codes times random numbers, and sums of these numbers in all columns alike.
    async fn weighted(&self, codes: &Chunks) -> Result<(Vec<Slots<L1>>, Vec<Slots<L1>>), ProtocolError> {
        let columns = codes.first().map_or(0, Vec::len);
        let mut rng = self.session.randomness().fork();
        let mut random: Vec<Vec<u64>> = Vec::with_capacity(codes.len());
        for chunk in 0..codes.len() {
            // A row has the same number in every block.
            let mut of_rows = plain::uniform_vec(DEGREE, &mut rng);
            let block = DEGREE / self.tiles.centres_per_tile();
            for slot in 0..DEGREE {
                of_rows[slot] = if self.tiles.row_of(chunk, slot).is_some() { of_rows[slot % block] } else { 0 };
            }
            random.push(of_rows);
        }
        let pair = |(codes, random): (&Vec<Slots<L1>>, &Vec<u64>)| {
            let random = Slots::clear(random);
            codes.iter().map(move |codes| (codes.clone(), random.clone())).collect::<Vec<_>>()
        };
        let (pairs, lengths) = together(codes.iter().zip(&random).map(pair));
        let products: Chunks = lengths.apart(multiply(self.session, pairs).await?)?;
        let Sums { sums: weighted, .. } = cluster_sums(self.session, &self.tiles, &products, self.assignment).await?;
        // A class of many clusters is a sum of many tiles, too noisy to be multiplied.
        let (tiles, lengths) = together(self.assignment.to_vec());
        let fresh = lengths.apart(refresh(self.session, tiles).await?)?;
        let mut parts: Vec<Part<L2>> = Vec::new();
        for (chunk, random) in fresh.iter().zip(&random) {
            let factor = Factor::new(random);
            for (group, tile) in chunk.iter().enumerate() {
                let slots = tile.times(&factor);
                match parts.get_mut(group) {
                    Some(part) => part.slots.add(&slots),
                    None => parts.push(Part { slots, group, column: None }),
                }
            }
        }
        let weights = block_sums(self.session, &self.tiles, columns, vec![parts]).await?.concat();
        Ok((weighted.iter().map(Slots::raised).collect(), weights.iter().map(Slots::raised).collect()))
    }

    /// `1 / n` modulo `t` of every class, in all columns alike.
    async fn inverses(&self, columns: usize, sums: &Sums) -> Result<Vec<Slots<L1>>, ProtocolError> {
        let mut inverses: Vec<u64> = (1..=self.tiles.rows() as u64).collect();
        plain::invert_all(&mut inverses);
        let table: Arc<[u64]> = [0].into_iter().chain(inverses).collect();
        let slots = sums.counts.iter().map(Slots::raised).collect();
        let question = Question { slots, centres: self.tiles.centres(), columns, tables: vec![table] };
        Ok(lookup_long(self.session, question).await?.concat().iter().map(Slots::raised).collect())
    }

    /// A random number for every class, to its rows.
    async fn tags(&self) -> Result<Chunks, ProtocolError> {
        let tags = plain::uniform_vec(self.tiles.centres(), &mut self.session.randomness().fork());
        let packed: Vec<Slots<L1>> = tags.chunks(DEGREE).map(Slots::clear).collect();
        blend(self.session, &self.tiles, 1, &packed, self.assignment).await
    }
}

/// A number of every column, packed as centres are.
fn packed_scales(scales: &[&Scale], vector: usize, number: impl Fn(&Scale) -> &Slots<L0>) -> Slots<L1> {
    let of_column = |column: usize| {
        let own = |slot: usize| u64::from((vector * DEGREE + slot) % scales.len() == column);
        Factor::new(&(0..DEGREE).map(own).collect::<Vec<_>>())
    };
    let indicators: Vec<Factor> = (0..scales.len()).map(of_column).collect();
    let numbers = scales.iter().map(|scale| number(scale));
    Slots::dot_any(numbers.zip(&indicators)).unwrap_or_else(|| Slots::clear(&[]))
}

fn column_of(chunks: &Chunks, column: usize) -> Result<Vec<Slots<L1>>, ProtocolError> {
    let column = chunks.iter().map(|chunk| chunk.get(column).cloned()).collect::<Option<Vec<_>>>();
    column.ok_or(ProtocolError::Cancelled)
}

/// Whether the range of a column is below `2^31`.
fn is_narrow(quasi: &Quasi) -> bool {
    match &quasi.values {
        Values::Numbers { bits, .. } => *bits < 32,
        Values::Clear(numbers) => {
            let (lower, upper) = clear_bounds(numbers);
            lower.abs_diff(upper) < 1 << 31
        }
        Values::Categories { .. } => true,
    }
}

/// The width of numbers that P1 sees.
pub(super) fn width_of(numbers: &[i64]) -> Result<Width, ProtocolError> {
    let (lower, upper) = clear_bounds(numbers);
    let wide = || ProtocolError::Misuse(format!("numbers from {lower} to {upper} are wider than 32 bits"));
    Width::of_range(lower, upper).ok_or_else(wide)
}
