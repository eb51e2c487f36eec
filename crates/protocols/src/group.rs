//! Rows of a class next to each other, in an order that P2 alone knows: the largest class first, suppressed rows last.
//!
//! ```text
//!  P1: a uniform      labels, zero for rows that are suppressed; x + a, which stage  -->  y = x + a
//!                     <--  e_v[i] = [i takes from i xor v] for every v of this stage;  y[i xor v(i)]                  P2
//!  P1: x[i xor v(i)] = y[i xor v(i)]  -  sum_v e_v[i] a[i xor v]
//! ```
//! [`shuffle`](mod@crate::shuffle) with the parties exchanged: P2 routes the order that it wants through the same network, and P1 does not see the
//! switches. P2 keeps nothing between rounds, so it gets the labels with every stage and finds the same order in them.
//!
//! Labels must be of a secret function and in a secret order of P1's, as for [`size_histogram`](crate::size_histogram). Then P2 learns the sizes of
//! the classes. Who knows these knows where each class lies; which row is where nobody knows: P1 does not know what P2 did, nor P2 what P1 did before.

use std::collections::HashMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{CryptoRng, SeedableRng};
use rayon::prelude::*;
use veil_slots::{DEGREE, Factor, Fresh, Inbound, KeyHolder, L1, Offset, Outbound, SeededSlots, Slots, plain};
use zeroize::Zeroizing;

use crate::arrange::{self, PLACE_BITS};
use crate::count_classes::{self, Labels};
use crate::message::message;
use crate::shuffle::routing::Routes;
use crate::shuffle::stages::{Network, Stage};
use crate::{Asker, Layout, Leakage, Opens, Protocol, ProtocolError, Session, Workload};

/// The protocol.
#[derive(Debug)]
pub struct Group;

/// The longest list: sixteen vectors.
pub const MAX_ROWS: usize = 16 * DEGREE;

/// The most vectors that are moved at once, all columns together.
const MAX_MOVED: usize = 64;

message! {
    /// Labels, and what is to be moved.
    Query<C: Outbound => Inbound> {
        /// Labels of the rows, the same in every stage.
        labels: Vec<C>,
        /// `x + a` of every column, as many vectors each as there are of labels.
        masked: Vec<C>,
        /// How many rows there are.
        rows: u32,
        /// Which stage of the network.
        stage: u32,
    }
}

message! {
    /// What P2 did.
    Answer<C: SeededSlots => Fresh> {
        /// For every way to move but the first, one a vector: one where it is taken.
        switches: Vec<C>,
        /// The masked vectors, moved.
        moved: Vec<C>,
    }
}

/// A stage, and how lists lie.
struct Shape {
    layout: Layout,
    network: Network,
    stage: Stage,
    /// Bits of a place by which the stage moves.
    bits: Vec<u8>,
}

impl Shape {
    /// Of numbers from outside. Says what is wrong with them.
    fn checked(rows: usize, stage: usize, labels: usize, masked: usize) -> Result<Self, String> {
        let layout = Layout::new(rows);
        if rows == 0 || rows > MAX_ROWS || labels != layout.vectors_per_list() {
            return Err(format!("{labels} vectors do not hold the labels of {rows} rows"));
        }
        if masked == 0 || masked > MAX_MOVED.max(labels) || !masked.is_multiple_of(labels) {
            return Err(format!("{masked} vectors are no columns of {rows} rows that can be moved at once"));
        }
        let network = Network::new(layout.bits());
        let Some(stage) = network.stages.get(stage).cloned() else {
            return Err(format!("{rows} rows are grouped in {} stages, and there is no {stage}", network.stages.len()));
        };
        let between = stage.vector_bits.iter().map(|bit| bit + PLACE_BITS);
        let bits = stage.bits.iter().copied().chain(between).collect();
        Ok(Self { layout, network, stage, bits })
    }

    fn slots(&self) -> usize {
        self.layout.vectors_per_list() * DEGREE
    }

    /// How many ways there are to move.
    fn ways(&self) -> usize {
        1 << self.bits.len()
    }
}

impl Workload for Query<Inbound> {
    fn answer_ciphertexts(&self) -> Result<usize, ProtocolError> {
        let (labels, masked) = (self.labels.len(), self.masked.len());
        let shape = Shape::checked(self.rows as usize, self.stage as usize, labels, masked);
        let shape = shape.map_err(ProtocolError::Malformed)?;
        Ok((shape.ways() - 1) * labels + masked)
    }
}

/// For every place the place whose row it takes: classes by size, the largest first, suppressed rows (of label zero) behind them.
fn grouped_order(labels: &[u64], slots: usize) -> Vec<u32> {
    let mut sizes: HashMap<u64, usize> = HashMap::new();
    labels.iter().for_each(|label| *sizes.entry(*label).or_default() += 1);
    let mut rows: Vec<u32> = (0..labels.len() as u32).collect();
    let key = |row: &u32| {
        let label = labels.get(*row as usize).copied().unwrap_or_default();
        (label == 0, std::cmp::Reverse(sizes.get(&label).copied().unwrap_or_default()), label)
    };
    rows.sort_by_cached_key(key);
    rows.extend(labels.len() as u32..slots as u32);
    rows
}

impl Protocol for Group {
    const NAME: &'static str = "group";
    const VERSION: u16 = 1;
    const SUMMARY: &'static str = "rows of a class next to each other, in an order of P2's";
    const LEAKAGE: Leakage =
        Leakage { p1: "nothing", p2: "the sizes of the classes and how many rows are suppressed, in a secret order" };
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
        let rows = query.rows as usize;
        let shape = Shape::checked(rows, query.stage as usize, query.labels.len(), query.masked.len());
        let shape = shape.map_err(ProtocolError::Malformed)?;
        let all = |vectors: Vec<Inbound>| {
            let opened: Vec<_> = vectors.into_par_iter().map(|vector| holder.open(vector)).collect();
            let mut values = Zeroizing::new(Vec::with_capacity(opened.len() * DEGREE));
            opened.iter().for_each(|opened| values.extend_from_slice(opened));
            values
        };
        let (labels, masked) = (all(query.labels), all(query.masked));
        let order = grouped_order(labels.get(..rows).unwrap_or_default(), shape.slots());
        let routes = Routes::new(order, shape.network.order.clone());
        let layers = shape.stage.between.start..shape.stage.within.end;
        let sources: Vec<usize> = (0..shape.slots()).map(|place| routes.source(&layers, place)).collect();
        let way = |(place, source): (usize, &usize)| usize::from(arrange::number(&shape.bits, place ^ source));
        let ways: Vec<usize> = sources.iter().enumerate().map(way).collect();
        let mut vectors: Vec<Zeroizing<Vec<u64>>> = Vec::new();
        for way in 1..shape.ways() {
            let taken = |ways: &[usize]| Zeroizing::new(ways.iter().map(|taken| u64::from(*taken == way)).collect());
            vectors.extend(ways.chunks(DEGREE).map(taken));
        }
        let switches = vectors.len();
        for column in masked.chunks(shape.slots()) {
            let moved = |sources: &[usize]| {
                let of = |source: &usize| column.get(*source).copied().unwrap_or_default();
                Zeroizing::new(sources.iter().map(of).collect::<Vec<u64>>())
            };
            vectors.extend(sources.chunks(DEGREE).map(moved));
        }
        let work: Vec<_> = vectors.into_iter().map(|values| (values, StdRng::from_rng(&mut rng))).collect();
        let seal = |(values, mut rng): (Zeroizing<Vec<u64>>, StdRng)| holder.seal(&values, &mut rng);
        let mut switched: Vec<SeededSlots> = work.into_par_iter().map(seal).collect();
        let moved = switched.split_off(switches);
        Ok(Answer { switches: switched, moved })
    }
}

/// Columns on their way through a stage.
pub struct Part {
    /// Labels of the rows.
    pub labels: Arc<Vec<Slots<L1>>>,
    /// What is moved.
    pub columns: Vec<Vec<Slots<L1>>>,
    /// How many rows there are.
    pub rows: usize,
    /// Which stage.
    pub stage: usize,
}

/// What P1 remembers: the mask of every column.
pub struct Asked {
    masks: Vec<Zeroizing<Vec<u64>>>,
    shape: Shape,
}

/// P1 masks what is moved, and hides what is no row behind the labels.
pub fn ask(part: Part, asker: &mut Asker<'_>) -> Result<(Asked, Query<Outbound>), ProtocolError> {
    let Part { labels, columns, rows, stage } = part;
    let shape = Shape::checked(rows, stage, labels.len(), columns.iter().map(Vec::len).sum());
    let shape = shape.map_err(ProtocolError::Misuse)?;
    let mut masked = Vec::with_capacity(columns.len() * labels.len());
    let mut masks = Vec::with_capacity(columns.len());
    for column in &columns {
        let mask = Zeroizing::new(plain::uniform_vec(shape.slots(), &mut asker.rng));
        for (slots, mask) in column.iter().zip(mask.chunks(DEGREE)) {
            masked.push(asker.send(slots, mask)?);
        }
        masks.push(mask);
    }
    let lists = count_classes::Layout { rows, block: shape.layout.block() };
    let labels = lists.send(&Labels { vectors: labels.to_vec(), lists: 1 }, asker)?;
    let query = Query { labels, masked, rows: rows as u32, stage: stage as u32 };
    Ok((Asked { masks, shape }, query))
}

/// P1 takes off the masks as P2 moved them, without seeing how.
pub fn finish(asked: Asked, answer: Answer<Fresh>) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let Asked { masks, shape } = asked;
    let (vectors, ways) = (shape.layout.vectors_per_list(), shape.ways());
    let (switches, found) = (answer.switches, answer.moved.len());
    if switches.len() != (ways - 1) * vectors || found != masks.len() * vectors {
        return Err(ProtocolError::Malformed(format!("{} switches and {found} moved vectors", switches.len())));
    }
    let work: Vec<(usize, Fresh)> = answer.moved.into_iter().enumerate().collect();
    let unmask = |(at, moved): (usize, Fresh)| {
        let mask = masks.get(at / vectors).ok_or(ProtocolError::Cancelled)?;
        let vector = at % vectors;
        let places = vector * DEGREE..(vector + 1) * DEGREE;
        let at_place = |place: usize| mask.get(place).copied().unwrap_or_default();
        let own: Vec<u64> = places.clone().map(at_place).collect();
        let factor = |way: usize| {
            let offset = arrange::offset(&shape.bits, way);
            // Minus what comes from there, and plus what would have come from here.
            let difference = |place: usize| plain::sub(at_place(place), at_place(place ^ offset));
            Factor::new(&places.clone().map(difference).collect::<Vec<_>>())
        };
        let factors: Vec<Factor> = (1..ways).map(factor).collect();
        let taken = (0..ways - 1).filter_map(|way| switches.get(way * vectors + vector));
        let mut slots = moved.raised();
        slots.sub_clear(&Offset::new(&own));
        if let Some(others) = Slots::dot(taken.zip(&factors)) {
            slots.add(&others);
        }
        Ok(slots)
    };
    let moved: Vec<Slots<L1>> = work.into_par_iter().map(unmask).collect::<Result<_, ProtocolError>>()?;
    Ok(moved.chunks(vectors).map(<[_]>::to_vec).collect())
}

/// Brings rows of a class together, in every column alike. Labels and columns are in the same order, which P2 must not know.
pub async fn group(
    session: &Session,
    rows: usize,
    labels: Vec<Slots<L1>>,
    mut columns: Vec<Vec<Slots<L1>>>,
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let (labels, layout) = (Arc::new(labels), Layout::new(rows));
    if rows > MAX_ROWS {
        return Err(ProtocolError::Misuse(format!("{rows} rows are more than the {MAX_ROWS} that can be grouped")));
    }
    let at_once = (MAX_MOVED / layout.vectors_per_list()).max(1);
    for stage in 0..layout.rounds() {
        let mut parts = Vec::new();
        while !columns.is_empty() {
            let rest = columns.split_off(at_once.min(columns.len()));
            parts.push(Part { labels: labels.clone(), columns, rows, stage });
            columns = rest;
        }
        // More than a batch: one at a time.
        columns = session.round::<Group, _, _, _>(parts, usize::MAX, ask, finish).await?.concat();
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    #[test]
    fn large_classes_come_first_and_suppressed_rows_last() {
        let order = grouped_order(&[5, 0, 9, 5, 7, 0, 7, 5], 10);
        let labels: Vec<u64> = order[..8].iter().map(|row| [5, 0, 9, 5, 7, 0, 7, 5][*row as usize]).collect();
        assert_eq!(labels, [5, 5, 5, 7, 7, 9, 0, 0]);
        assert_eq!(order[8..], [8, 9]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rows_of_a_class_come_together_in_every_column() {
        let mut parties = Parties::new(670);
        for rows in [1usize, 2, 7, 1000, 20_000] {
            let vectors = Layout::new(rows).vectors_per_list();
            let label = |row: usize| (row * row % 11) as u64 * u64::from(row % 13 != 4);
            let labels: Vec<u64> = (0..vectors * DEGREE).map(label).collect();
            let values: Vec<u64> = (0..vectors * DEGREE).map(|row| row as u64 * 7 + 3).collect();
            let seal = |parties: &mut Parties, values: &[u64]| -> Vec<Slots<L1>> {
                values.chunks(DEGREE).map(|values| parties.encrypt(values)).collect()
            };
            let (sealed, own) = (seal(&mut parties, &labels), seal(&mut parties, &values));
            let columns = vec![own, sealed.clone()];
            let moved = group(&parties.session, rows, sealed, columns).await.unwrap();
            let opened = |column: &[Slots<L1>]| -> Vec<u64> {
                column.iter().flat_map(|slots| parties.open(slots)).take(rows).collect()
            };
            let (moved, with) = (opened(&moved[0]), opened(&moved[1]));
            let order = grouped_order(&labels[..rows], rows);
            assert!(order.iter().zip(&moved).all(|(row, value)| values[*row as usize] == *value), "{rows} rows");
            assert!(order.iter().zip(&with).all(|(row, label)| labels[*row as usize] == *label), "{rows} rows");
        }
    }

    #[test]
    fn shapes_that_do_not_exist_are_refused() {
        for (rows, stage, labels, masked) in [
            (0, 0, 1, 1),
            (MAX_ROWS + 1, 0, 32, 32),
            (9, 0, 2, 2),
            (20_000, 0, 4, 6),
            (9, 9, 1, 1),
            (9, 0, 1, 0),
            (9, 0, 1, 65),
        ] {
            assert!(Shape::checked(rows, stage, labels, masked).is_err(), "{rows} {stage} {labels} {masked}");
        }
        assert!(Shape::checked(20_000, 0, 4, 8).is_ok());
    }
}
