//! How much published categories no longer tell: non-uniform entropy (Gionis, Tassa 2009), from counts alone.
//!
//! ```text
//!  F(leaf)      rows of every leaf in the original column                            `lookup`, `slot_sum`
//!  F(v)         of every node: sums of these
//!  n(v)         rows that are published as v: those that have its code, without those that have a child's
//!  log F(v)                                                                          `lookup_long`
//!  A            sum n(v) log F(v) - sum F(leaf) log F(leaf)                          `multiply`, `slot_sum`
//!  B            the same if every row were published as the root
//!  A / B        in 2^-20, opened to P1                                               `ratio`, `open`
//! ```
//! Rows need not be in the same order in both tables. A suppressed row counts as the root. What is published must stand above what was there, see
//! [`ancestors`](super::ancestors): anything else may gain bits.

use std::collections::BTreeMap;
use std::sync::Arc;

use veil_privacy::utility::{log2_fixed, most_bits};
use veil_slots::{Factor, L0, L1, PLAIN_MODULUS, Slots, plain};

use super::generalisation::{Published, lane};
use super::ratio::{Fractions, MAX_NUMBERS, block_of, ratio};
use super::{opened, packed};
use crate::lookup::{Question, Table, lookup};
use crate::lookup_long::{self, lookup_long};
use crate::multiply::multiply;
use crate::slot_sum::slot_sum;
use crate::{ProtocolError, Session};

/// The most nodes of a hierarchy: every one of a level is counted apart, which takes the square of their number.
pub const MAX_NODES: usize = 256;

/// A column of categories, and what was published of it.
#[derive(Clone, Debug)]
pub struct Frequencies {
    /// The original column.
    pub original: Published,
    /// The published one, of the same hierarchy.
    pub published: Published,
}

/// The nodes of a hierarchy, each at a place.
struct Nodes {
    /// For every level, the places of its codes.
    places: Vec<BTreeMap<i64, usize>>,
    /// For every node but the root the place of its parent.
    parents: Vec<Option<usize>>,
}

impl Nodes {
    fn of(shape: &[Vec<i64>]) -> Self {
        let levels = shape.first().map_or(0, Vec::len);
        let (mut places, mut parents) = (vec![BTreeMap::new(); levels], Vec::new());
        for (level, places) in places.iter_mut().enumerate() {
            for code in shape.iter().filter_map(|leaf| leaf.get(level)) {
                if !places.contains_key(code) {
                    places.insert(*code, parents.len());
                    parents.push(None);
                }
            }
        }
        for leaf in shape {
            for (level, [below, above]) in leaf.array_windows().enumerate() {
                let place = |level: usize, code: &i64| places.get(level).and_then(|of| of.get(code)).copied();
                if let Some(parent) = place(level, below).and_then(|place| parents.get_mut(place)) {
                    *parent = place(level + 1, above);
                }
            }
        }
        Self { places, parents }
    }

    fn count(&self) -> usize {
        self.parents.len()
    }

    /// A node and all above it.
    fn path(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |node| self.parents.get(*node).copied().flatten())
    }
}

/// What every column no longer tells, in units of `2^-20` of all that it told.
pub async fn entropy(
    session: &Session,
    columns: &[Frequencies],
    done: &(dyn Fn(usize) + Send + Sync),
) -> Result<Vec<u64>, ProtocolError> {
    let mut found = Vec::with_capacity(columns.len());
    for columns in columns.chunks(MAX_NUMBERS) {
        let (mut numerators, mut denominators, mut bits) = (Vec::new(), Vec::new(), 0);
        for column in columns {
            let (lost, all) = lost(session, column).await?;
            numerators.push(lost);
            denominators.push(all);
            bits = bits.max(most_bits(column.original.cells.len() as u64));
            done(1);
        }
        let (numerators, denominators) = (packed(&numerators, 1), packed(&denominators, 1));
        let fractions = Fractions { block: block_of(columns.len()), numerators, denominators, bits, least: 0 };
        found.extend(opened(session, ratio(session, fractions).await?, columns.len()).await?);
    }
    let number = |found: i64| u64::try_from(found).map_err(|_| ProtocolError::Malformed(format!("a ratio is {found}")));
    found.into_iter().map(number).collect()
}

/// What a column lost and what it could have lost, each in every slot.
async fn lost(session: &Session, column: &Frequencies) -> Result<(Slots<L0>, Slots<L0>), ProtocolError> {
    let Frequencies { original, published } = column;
    let rows = original.cells.len();
    let Some(shape) = original.shape.as_ref().filter(|_| published.cells.len() == rows && rows > 0) else {
        return Err(ProtocolError::Misuse(
            "entropy takes two columns of as many rows and a known hierarchy".to_owned(),
        ));
    };
    let nodes = Nodes::of(shape);
    if nodes.count() > MAX_NODES {
        let text = format!("a hierarchy of {} nodes is too large for entropy, which takes {MAX_NODES}", nodes.count());
        return Err(ProtocolError::Misuse(text));
    }
    let places = nodes.places.first().into_iter().flatten();
    let leaves: Vec<(usize, Slots<L0>)> =
        places.map(|(_, place)| *place).zip(counts(session, original, &nodes, 0).await?).collect();
    let own = weighted(leaves.iter().map(|(place, count)| (count, vec![(*place, 1)])));
    let with_ancestors =
        leaves.iter().map(|(place, count)| (count, nodes.path(*place).map(|node| (node, 1)).collect()));
    let frequencies = weighted(with_ancestors);
    let mut below_root = Vec::new();
    for (level, places) in nodes.places.iter().enumerate().take(nodes.places.len().saturating_sub(1)) {
        below_root.extend(places.values().copied().zip(counts(session, published, &nodes, level).await?));
    }
    // Whoever has a child's code is not published as its parent.
    let minus_one = PLAIN_MODULUS - 1;
    let exact = below_root.iter().map(|(place, count)| {
        let parent = nodes.parents.get(*place).copied().flatten().map(|parent| (parent, minus_one));
        (count, [(*place, 1)].into_iter().chain(parent).collect())
    });
    let mut exact = weighted(exact);
    let mut root = vec![0; nodes.count().saturating_sub(1)];
    root.push(rows as u64);
    exact.add(&Slots::clear(&root));
    let table: Arc<[u64]> = (0..=rows as u64).map(log2_fixed).collect();
    let question =
        lookup_long::Question { slots: vec![frequencies], centres: nodes.count(), columns: 1, tables: vec![table] };
    let logs = lookup_long(session, question).await?.concat().pop().ok_or(ProtocolError::Cancelled)?.raised();
    let products = multiply(session, vec![(exact, logs.clone()), (own, logs)]).await?;
    let sums = slot_sum(session, products).await?;
    let [mut lost, told] = <[Slots<L0>; 2]>::try_from(sums).map_err(|_| ProtocolError::Cancelled)?;
    lost.sub(&told);
    let all = plain::mul(rows as u64, log2_fixed(rows as u64));
    let mut most = told;
    most.scale(-1);
    most.add_constant(all);
    Ok((lost, most))
}

/// How many rows have each code of a level, in the order of the codes, in every slot.
async fn counts(
    session: &Session,
    column: &Published,
    nodes: &Nodes,
    level: usize,
) -> Result<Vec<Slots<L0>>, ProtocolError> {
    let codes: Vec<i64> = nodes.places.get(level).into_iter().flatten().map(|(code, _)| *code).collect();
    let domain: Arc<[u64]> =
        [PLAIN_MODULUS - 1].into_iter().chain(codes.iter().map(|code| plain::from_signed(*code))).collect();
    let is_code = |code: usize| Table::Shared((0..domain.len()).map(|of| u64::from(of == code + 1)).collect());
    let tables: Vec<Table> = (0..codes.len()).map(is_code).collect();
    let mut sums: Vec<Slots<L1>> = vec![Slots::clear(&[]); codes.len()];
    // One vector at a time: each has as many answers as there are codes.
    for slots in lane(session, column, level).await? {
        let question = Question { slots, domain: domain.clone(), tables: tables.clone() };
        let found = lookup(session, vec![question]).await?.pop().ok_or(ProtocolError::Cancelled)?;
        sums.iter_mut().zip(&found).for_each(|(sum, found)| sum.add(found));
    }
    slot_sum(session, sums).await
}

/// Numbers that are in every slot, each times its weights at their places.
fn weighted<'a>(numbers: impl Iterator<Item = (&'a Slots<L0>, Vec<(usize, u64)>)>) -> Slots<L1> {
    let weigh = |(number, weights): (&'a Slots<L0>, Vec<(usize, u64)>)| {
        let mut factor = vec![0; weights.iter().map(|(place, _)| place + 1).max().unwrap_or(0)];
        for (place, weight) in weights {
            if let Some(slot) = factor.get_mut(place) {
                *slot = weight;
            }
        }
        (number, Factor::new(&factor))
    };
    let weighed: Vec<(&Slots<L0>, Factor)> = numbers.map(weigh).collect();
    Slots::dot_any(weighed.iter().map(|(number, factor)| (*number, factor))).unwrap_or_else(|| Slots::clear(&[]))
}

#[cfg(test)]
mod tests {
    use veil_privacy::utility::EntropyLoss;

    use super::super::generalisation::tests::{cells, rows, shape};
    use super::*;
    use crate::testing::Parties;

    #[tokio::test(flavor = "multi_thread")]
    async fn entropy_is_that_of_the_clear_columns() {
        let mut parties = Parties::new(650);
        for count in [11, 8200] {
            let published = rows(count);
            let original: Vec<Vec<i64>> = (0..count).map(|row| shape()[row % 5].clone()).collect();
            let column = |cells| Published { cells, levels: 3, bits: 8, shape: Some(shape().into()) };
            let original_column = column(cells(&mut parties, &original));
            let frequencies = |published| Frequencies { original: original_column.clone(), published };
            let columns = [
                frequencies(column(cells(&mut parties, &published))),
                frequencies(original_column.clone()),
                frequencies(column(cells(&mut parties, &vec![vec![-1, -1, 0]; count]))),
            ];
            let found = entropy(&parties.session, &columns, &|_| ()).await.unwrap();
            let beneath = |level: usize, code: i64| original.iter().filter(|row| row[level] == code).count() as u64;
            let leaves: Vec<u64> = shape().iter().map(|leaf| beneath(0, leaf[0])).collect();
            let nodes = published.iter().map(|row| {
                let level = row.iter().position(|lane| *lane != -1).unwrap();
                (1, beneath(level, row[level]))
            });
            let expected = EntropyLoss::of(&leaves, nodes, 0).unwrap();
            assert_eq!(found[0], expected.steps(count as u64));
            assert_eq!(found[1], 0);
            assert!((1 << 20) - found[2] <= 1, "{}", found[2]);
        }
    }
}
