//! Rows in a secret order, which P1 alone knows.
//!
//! ```text
//!  P1: a uniform order of every list, routed through a Benes network; its layers are fused into stages
//!  for each stage: exchanges between vectors by P1 itself, then one round of `arrange` for all vectors
//! ```
//! A network over `2^B` places has `2B - 1` layers, each of one bit `b` of a place: every place keeps its row or exchanges it with
//! the place that differs in `b`. A list in four vectors takes 11 rounds; every vector goes to P2 11 times and comes back in
//! 48 arrangements. P2 sees uniform vectors, and the same bits whatever the order is.

pub(crate) mod routing;
pub(crate) mod stages;

use std::sync::Arc;

use rand::rngs::StdRng;
use rayon::prelude::*;
use veil_slots::{DEGREE, L1, Slots, plain};

use self::routing::Routes;
use self::stages::{Network, Stage};
use crate::arrange::{self, Arrange, PLACE_BITS, Picks};
use crate::channel::blocking;
use crate::lists::together;
use crate::{Asker, Layout, ProtocolError, Session};

/// The longest list, so that few vectors are exchanged in one stage.
const MAX_BITS: u32 = 28;

/// Whether lists that share a vector are reordered alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orders {
    /// Each has an order of its own.
    Independent,
    /// All of one vector have the same order, as columns of a table do.
    Alike,
}

/// Reorders every list uniformly at random. A group is the vectors of one list, or one vector with the lists that share it; groups have
/// orders of their own. The first [`Layout::rows`] places of a list are reordered among themselves; the others stay.
pub async fn shuffle(
    session: &Session,
    layout: Layout,
    orders: Orders,
    groups: Vec<Vec<Slots<L1>>>,
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let order = |_: &Vec<_>| {
        let rng = session.randomness().fork();
        move || uniform_order(layout, orders, rng)
    };
    let order_of_groups = groups.iter().map(order).collect();
    reorder(session, layout, groups, order_of_groups).await
}

/// The same with one order for all groups, as columns of a table.
pub(crate) async fn shuffle_alike(
    session: &Session,
    layout: Layout,
    groups: Vec<Vec<Slots<L1>>>,
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let order = Arc::new(uniform_order(layout, Orders::Alike, session.randomness().fork()));
    let orders = groups.iter().map(|_| {
        let order = order.clone();
        move || order.to_vec()
    });
    let orders = orders.collect();
    reorder(session, layout, groups, orders).await
}

/// Reorders every group as given: the row of place `order[i]` ends at place `i`. Orders are made one by one and kept as switches, which
/// are smaller.
pub(crate) async fn reorder(
    session: &Session,
    layout: Layout,
    mut groups: Vec<Vec<Slots<L1>>>,
    orders: Vec<impl FnOnce() -> Vec<u32> + Send + 'static>,
) -> Result<Vec<Vec<Slots<L1>>>, ProtocolError> {
    let vectors = layout.vectors_per_list();
    if let Some(group) = groups.iter().find(|group| group.len() != vectors) {
        let found = group.len();
        return Err(ProtocolError::Misuse(format!("lists take groups of {vectors} vectors, and one has {found}")));
    }
    if layout.bits() > MAX_BITS {
        return Err(ProtocolError::Misuse(format!("lists of more than 2^{MAX_BITS} rows cannot be reordered")));
    }
    let Network { order, stages } = Network::new(layout.bits());
    if stages.is_empty() || groups.is_empty() {
        return Ok(groups);
    }
    let route = move || -> Vec<Arc<Routes>> {
        orders.into_par_iter().map(|source| Arc::new(Routes::new(source(), order.clone()))).collect()
    };
    let routes = blocking(route).await?;
    for stage in stages {
        let (items, lengths) = together(groups.iter().zip(&routes).map(|(group, routes)| items(group, routes, &stage)));
        // What follows needs no vector but those of the items, and less of them with every batch.
        groups.clear();
        let weight = 1 << stage.bits.len();
        let ask = move |item: Item, asker: &mut Asker<'_>| arrange::ask(item.picks(&stage), asker);
        groups = lengths.apart(session.round::<Arrange, _, _, _>(items, weight, ask, arrange::finish).await?)?;
    }
    Ok(groups)
}

/// A vector to be made in a stage.
struct Item {
    /// What it is made of: the vector in its place, and those that it may exchange rows with.
    vectors: Vec<Slots<L1>>,
    routes: Arc<Routes>,
    /// The place of its first slot.
    first: usize,
}

/// The vectors of a group that a stage makes.
fn items(group: &[Slots<L1>], routes: &Arc<Routes>, stage: &Stage) -> Vec<Item> {
    let item = |number: usize| {
        let others = (0..1 << stage.vector_bits.len()).map(|other| number ^ arrange::offset(&stage.vector_bits, other));
        let vectors = others.filter_map(|number| group.get(number).cloned()).collect();
        Item { vectors, routes: routes.clone(), first: number * DEGREE }
    };
    (0..group.len()).map(item).collect()
}

impl Item {
    fn picks(self, stage: &Stage) -> Picks {
        let places = self.first..self.first + DEGREE;
        let vector = places.clone().map(|place| {
            let moved = place ^ self.routes.source(&stage.between, place);
            arrange::number(&stage.vector_bits, moved >> PLACE_BITS)
        });
        let arrangement = places.map(|place| {
            let moved = place ^ self.routes.source(&stage.within, place);
            arrange::number(&stage.bits, moved)
        });
        let (vector, arrangement) = (vector.collect(), arrangement.collect());
        Picks { vectors: self.vectors, vector, bits: stage.bits.clone(), arrangement }
    }
}

/// For every place of a group the place whose row it takes, uniformly among the rows of its list.
fn uniform_order(layout: Layout, orders: Orders, mut rng: StdRng) -> Vec<u32> {
    let mut order: Vec<u32> = (0..(layout.vectors_per_list() * DEGREE) as u32).collect();
    let mut draw = |list: &mut [u32]| {
        // Fisher and Yates: the last of the rows that are left is any of them.
        for last in (1..layout.rows()).rev() {
            list.swap(last, plain::uniform_below(last as u64 + 1, &mut rng) as usize);
        }
    };
    let (first, others) = order.split_at_mut(layout.block());
    draw(first);
    for list in others.chunks_exact_mut(layout.block()) {
        match orders {
            Orders::Independent => draw(list),
            Orders::Alike => {
                let start = list.first().copied().unwrap_or_default();
                list.iter_mut().zip(&*first).for_each(|(place, from)| *place = start + from);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::testing::Parties;

    /// Groups that hold their places' numbers, and what they hold after.
    async fn reordered(parties: &mut Parties, layout: Layout, orders: &[Vec<u32>]) -> Vec<Vec<u64>> {
        let vector =
            |number: usize| (number * DEGREE..(number + 1) * DEGREE).map(|place| place as u64).collect::<Vec<_>>();
        let group: Vec<_> = (0..layout.vectors_per_list()).map(|number| parties.encrypt(&vector(number))).collect();
        let made = orders.iter().cloned().map(|order| move || order).collect();
        let groups = reorder(&parties.session, layout, vec![group; orders.len()], made).await.unwrap();
        groups.iter().map(|group| group.iter().flat_map(|vector| parties.open(vector)).collect()).collect()
    }

    /// Uniform orders of so many groups.
    fn drawn(layout: Layout, orders: Orders, groups: u64) -> Vec<Vec<u32>> {
        (0..groups).map(|seed| uniform_order(layout, orders, StdRng::seed_from_u64(seed))).collect()
    }

    fn is_order_of_rows(order: &[u32], layout: Layout) -> bool {
        order.chunks_exact(layout.block()).zip((0u32..).step_by(layout.block())).all(|(list, start)| {
            let (rows, others) = list.split_at(layout.rows());
            let mut rows = rows.to_vec();
            rows.sort_unstable();
            rows.into_iter().eq((start..).take(layout.rows()))
                && others.iter().copied().eq((start + layout.rows() as u32..).take(others.len()))
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lists_of_every_length_end_in_the_order_drawn() {
        let mut parties = Parties::new(63);
        for rows in [0, 1, 2, 3, 5, 1000, 4096, 8192, 8193, 30162] {
            let layout = Layout::new(rows);
            let shared = if layout.lists_per_vector() > 1 { 2 } else { 1 };
            for orders in [Orders::Independent, Orders::Alike].into_iter().take(shared) {
                let drawn = drawn(layout, orders, 1);
                assert!(is_order_of_rows(&drawn[0], layout), "{rows} rows, {orders:?}");
                let before = parties.session.traffic().rounds();
                let made = reordered(&mut parties, layout, &drawn).await;
                assert!(made[0].iter().zip(&drawn[0]).all(|(value, from)| *value == u64::from(*from)), "{rows} rows");
                assert_eq!(parties.session.traffic().rounds() - before, layout.rounds() as u64);
            }
        }
    }

    /// In clear, for lists so long that several exchanges between vectors share a stage.
    #[test]
    fn the_picks_of_all_stages_make_the_order() {
        for bits in [13, 15, 20] {
            let layout = Layout::new(1 << bits);
            let (order, Network { order: of_bits, stages }) =
                (drawn(layout, Orders::Independent, 1).remove(0), Network::new(bits));
            let routes = Arc::new(Routes::new(order.clone(), of_bits));
            let mut rows: Vec<u32> = (0..1 << bits).collect();
            for stage in &stages {
                let vector = |number: usize| {
                    let item = Item { vectors: Vec::new(), routes: routes.clone(), first: number * DEGREE };
                    let picks = item.picks(stage);
                    let sent: Vec<u32> = (picks.vector.iter().enumerate())
                        .map(|(place, pick)| {
                            (number ^ arrange::offset(&stage.vector_bits, (*pick).into())) * DEGREE + place
                        })
                        .map(|place| rows[place])
                        .collect();
                    let from = |(place, pick): (usize, &u8)| sent[place ^ arrange::offset(&stage.bits, (*pick).into())];
                    picks.arrangement.iter().enumerate().map(from).collect::<Vec<_>>()
                };
                rows = (0..layout.vectors_per_list()).into_par_iter().flat_map_iter(vector).collect();
            }
            assert_eq!(rows, order, "{bits} bits");
        }
    }

    /// Lists of eight, each another permutation, and groups beside each other.
    #[tokio::test(flavor = "multi_thread")]
    async fn known_orders_of_eight_rows() {
        let mut parties = Parties::new(64);
        let order = |list: [u32; 8]| (0..DEGREE as u32).map(|place| place & !7 | list[place as usize & 7]).collect();
        let known =
            [[0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0], [1, 2, 3, 4, 5, 6, 7, 0], [0, 4, 2, 6, 1, 5, 3, 7]];
        let orders: Vec<Vec<u32>> = known.into_iter().map(order).collect();
        let made = reordered(&mut parties, Layout::new(8), &orders).await;
        for (made, order) in made.iter().zip(&orders) {
            assert!(made.iter().zip(order).all(|(value, from)| *value == u64::from(*from)));
        }
        assert_eq!(made.len(), 4);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_shuffle_moves_rows_among_themselves_and_can_be_repeated() {
        let run = async |orders: Orders| {
            let mut parties = Parties::new(65);
            let values: Vec<u64> = (0..DEGREE as u64).collect();
            let groups = vec![vec![parties.encrypt(&values)]; 2];
            let groups = shuffle(&parties.session, Layout::new(5), orders, groups).await.unwrap();
            groups.iter().map(|group| parties.open(&group[0]).iter().map(|value| *value as u32).collect()).collect()
        };
        let independent: Vec<Vec<u32>> = run(Orders::Independent).await;
        assert_eq!(run(Orders::Independent).await, independent);
        let alike = run(Orders::Alike).await;
        assert!(independent.iter().chain(&alike).all(|order| is_order_of_rows(order, Layout::new(5))));
        let lists = |order: &[u32]| {
            let mut lists: Vec<Vec<u32>> =
                order.chunks_exact(8).map(|list| list.iter().map(|place| place % 8).collect()).collect();
            lists.sort_unstable();
            lists.dedup();
            lists.len()
        };
        assert_eq!(
            independent.iter().map(|order| lists(order)).collect::<Vec<_>>(),
            [120, 120],
            "all orders of five rows"
        );
        assert_eq!(alike.iter().map(|order| lists(order)).collect::<Vec<_>>(), [1, 1]);
        assert_ne!(alike[0], alike[1], "groups have orders of their own");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn groups_that_do_not_fit_are_refused() {
        let mut parties = Parties::new(66);
        let vector = parties.encrypt(&[1]);
        let outcome = async |rows: usize, group: Vec<Slots<L1>>| {
            shuffle(&parties.session, Layout::new(rows), Orders::Independent, vec![group]).await
        };
        let error = outcome(8193, vec![vector.clone()]).await.unwrap_err();
        assert_eq!(error.to_string(), "lists take groups of 2 vectors, and one has 1");
        let error = outcome((1 << 28) + 1, vec![vector; 1 << 16]).await.unwrap_err();
        assert_eq!(error.to_string(), "lists of more than 2^28 rows cannot be reordered");
        assert!(shuffle(&parties.session, Layout::new(9), Orders::Alike, Vec::new()).await.unwrap().is_empty());
    }
}
