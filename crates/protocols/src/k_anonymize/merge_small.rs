//! Small clusters join the one with the nearest centre, one after the other (the paper's Cluster to Cluster).
//!
//! ```text
//!  for every small cluster c, in order:
//!    C_c, S_c for all clusters                                    `few_pick`, with what the merge before has to pick
//!    D_j = sum_l w_l C_jl (C_jl - 2 C_cl)                         `multiply`, `few_pairs`
//!    the nearest j among those that live, opened                  `few_select` (or `nearest`, if comparisons are exact), `open`
//!    C_j of S_j + S_c and both sizes                              `few_pick`, `lookup_long`, `multiply`, `few`, `few_pick`
//! ```
//! Centres and sums stay packed, as [`cluster_sums`](crate::cluster_sums) has them: a merge is a matter of a few ciphertexts, and of some 13 rounds and
//! the logarithm of the number of clusters. P1 learns which clusters join; P2 how many do.

use std::sync::Arc;

use veil_privacy::clusters::{CENTRE_FRACTION, CENTRE_OFFSET, reciprocal};
use veil_slots::{DEGREE, Factor, L0, L1, L2, Offset, Slots, plain};

use super::assign::{Metric, put_out};
use super::sizes::Size;
use crate::broadcast::broadcast;
use crate::cluster_sums::Sums;
use crate::few::truncate_half;
use crate::few_pairs::{Numbers, few_pairs};
use crate::few_pick::{Packing, Picks, few_pick, indicator};
use crate::few_select::few_select;
use crate::fold::refresh;
use crate::lists::together;
use crate::lookup_long::{Question, lookup_long};
use crate::multiply::multiply;
use crate::nearest::{Comparison, nearest};
use crate::open::{Aggregate, Purpose, open};
use crate::slot_sum::slot_sum;
use crate::truncate::{Dividend, Rounding};
use crate::{ProtocolError, Session, Tiles};

/// Clusters, packed; zero where one has joined another.
pub(super) struct Clusters<'a> {
    session: &'a Session,
    metric: Metric<'a>,
    packing: Packing,
    rows: usize,
    k: usize,
    numbers: Numbered<L1>,
    /// What P1 knows of the sizes; `None` of a cluster that is gone.
    sizes: Vec<Option<Size>>,
}

/// Centres, sums and sizes.
type Numbered<L> = [Vec<Slots<L>>; 3];

impl<'a> Clusters<'a> {
    /// From packed sums and centres. Clusters without a size are gone.
    pub(super) fn new(
        session: &'a Session,
        tiles: &Tiles,
        metric: Metric<'a>,
        k: usize,
        sums: &Sums,
        centres: &[Slots<L1>],
        sizes: Vec<Option<Size>>,
    ) -> Self {
        let packing = Packing { centres: tiles.centres(), columns: metric.weights.len() };
        let raise = |vectors: &[Slots<L0>]| vectors.iter().map(Slots::raised).collect::<Vec<Slots<L1>>>();
        let numbers = [centres.to_vec(), raise(&sums.sums), raise(&sums.counts)];
        Self { session, metric, packing, rows: tiles.rows(), k, numbers, sizes }
    }

    /// For every cluster the one that its rows end in: itself if it stays. Calls `merged` after every merge.
    pub(super) async fn merge_small(mut self, mut merged: impl FnMut()) -> Result<Vec<usize>, ProtocolError> {
        let mut receivers: Vec<usize> = (0..self.sizes.len()).collect();
        let (mut next, mut picked) = (self.first_small(0), None);
        while let Some((cluster, rows)) = next {
            let gone = match picked.take() {
                Some(picked) => picked,
                None => self.pick(&[cluster]).await?.pop().ok_or(ProtocolError::Cancelled)?,
            };
            self.remove(cluster, &gone);
            let receiver = self.nearest_to(&gone).await?;
            receivers[cluster] = receiver;
            self.sizes[receiver] = match self.sizes[receiver] {
                Some(Size::Small(before)) if before + rows < self.k => Some(Size::Small(before + rows)),
                _ => Some(Size::Large),
            };
            next = self.first_small(cluster + 1);
            // Where the last cluster went does not matter any more.
            if let Some((following, _)) = next {
                picked = Some(self.join(receiver, gone, rows, following).await?);
            }
            merged();
        }
        // A receiver may have gone later on. The chain ends, because what received was there then.
        let last = |mut cluster: usize| {
            while receivers[cluster] != cluster {
                cluster = receivers[cluster];
            }
            cluster
        };
        Ok((0..receivers.len()).map(last).collect())
    }

    /// The first small cluster from this one on, and its rows; none if no other is left.
    fn first_small(&self, from: usize) -> Option<(usize, usize)> {
        let mut clusters = self.sizes.iter().enumerate().skip(from);
        let small = clusters.find_map(|(at, size)| size.filter(|size| size.is_small()).map(|size| (at, size.rows())));
        small.filter(|_| self.sizes.iter().flatten().count() > 1)
    }

    /// One for a cluster, zero for all others, for each of the packed vectors.
    fn indicators(&self, cluster: usize) -> Vec<Factor> {
        (0..self.packing.vectors()).map(|vector| Factor::new(&indicator(self.packing, cluster, vector))).collect()
    }

    fn picks(&self, vectors: Vec<Slots<L2>>) -> Picks<L2> {
        Picks { vectors, centres: self.packing.centres, columns: self.packing.columns }
    }

    /// Numbers of some clusters, each for all clusters.
    async fn pick(&self, clusters: &[usize]) -> Result<Vec<Numbered<L0>>, ProtocolError> {
        let mut lists = Vec::with_capacity(3 * clusters.len());
        for cluster in clusters {
            let ones = self.indicators(*cluster);
            let own = self.numbers.iter().map(|vectors| vectors.iter().zip(&ones).map(|(v, one)| v.times(one)));
            lists.extend(own.map(|vectors| self.picks(vectors.collect())));
        }
        let mut picked = few_pick(self.session, lists).await?.into_iter();
        let mut next = || picked.next().ok_or(ProtocolError::Cancelled);
        clusters.iter().map(|_| Ok([next()?, next()?, next()?])).collect()
    }

    /// Takes a cluster out.
    fn remove(&mut self, cluster: usize, gone: &Numbered<L0>) {
        let ones = self.indicators(cluster);
        for (vectors, gone) in self.numbers.iter_mut().zip(gone) {
            let own = gone.iter().zip(&ones).map(|(gone, one)| gone.times(one));
            vectors.iter_mut().zip(own).for_each(|(vector, own)| vector.sub(&own));
        }
        self.sizes[cluster] = None;
    }

    /// The nearest live centre.
    async fn nearest_to(&self, [gone, ..]: &Numbered<L0>) -> Result<usize, ProtocolError> {
        let [centres, ..] = &self.numbers;
        let pairs = centres.iter().zip(gone).map(|(centres, own)| {
            let (mut own, mut difference) = (own.raised(), centres.clone());
            own.scale(-2);
            difference.add(&own);
            (centres.clone(), difference)
        });
        let mut products = multiply(self.session, pairs.collect()).await?;
        let weights = self.metric.weights;
        match weights.first() {
            Some(first) if weights.iter().all(|weight| weight == first) => {
                let weight = i32::try_from(*first).unwrap_or(i32::MAX);
                products.iter_mut().filter(|_| weight != 1).for_each(|product| product.scale(weight));
            }
            _ => products = self.weighed(products).await?,
        }
        let (bits, Packing { centres, columns }) = (self.metric.bits(), self.packing);
        let out = |cluster: usize| self.sizes.get(cluster).is_none_or(Option::is_none);
        let place = match self.metric.comparison {
            Comparison::Blinded => {
                let ring = few_pairs(self.session, Numbers { vectors: products, centres, columns }).await?;
                few_select(self.session, ring, centres, bits, out).await?
            }
            Comparison::Exact => self.exactly_nearest(products, bits, out).await?,
        };
        let aggregate = Aggregate { slots: place, count: 1, purpose: Purpose::ClusterFlags };
        let opened = open(self.session, vec![aggregate]).await?.concat();
        let receiver = opened.first().and_then(|place| usize::try_from(*place).ok());
        let live = |cluster: &usize| self.sizes.get(*cluster).is_some_and(Option::is_some);
        receiver
            .filter(live)
            .ok_or_else(|| ProtocolError::Malformed("the nearest cluster is none of those that are left".to_owned()))
    }

    /// Products of columns times their weights, which differ.
    async fn weighed(&self, products: Vec<Slots<L1>>) -> Result<Vec<Slots<L1>>, ProtocolError> {
        let weight = |slot: usize| u64::from(self.metric.weights[slot % self.packing.columns]);
        let weights = |vector: usize| {
            let slots = vector * DEGREE..self.packing.numbers().min((vector + 1) * DEGREE);
            Slots::clear(&slots.map(weight).collect::<Vec<_>>())
        };
        let pairs = products.into_iter().enumerate().map(|(vector, product)| (product, weights(vector)));
        multiply(self.session, pairs.collect()).await
    }

    /// The place of the nearest, in every slot: nobody learns anything.
    async fn exactly_nearest(
        &self,
        products: Vec<Slots<L1>>,
        bits: u32,
        out: impl Fn(usize) -> bool,
    ) -> Result<Slots<L1>, ProtocolError> {
        let tiles = Tiles::new(1, self.packing.centres);
        let columns = broadcast(self.session, &tiles, self.packing.columns, &products, 0..1).await?;
        let mut distance: Slots<L0> = Slots::clear(&[]);
        columns.iter().flatten().for_each(|column| distance.add(column));
        let mut chunks = vec![vec![distance.raised()]];
        put_out(&tiles, bits, out, &mut chunks);
        let chosen = nearest(self.session, &tiles, Comparison::Exact, bits, 0, chunks).await?.concat();
        let places = Factor::new(&(0..DEGREE as u64).collect::<Vec<_>>());
        let place = slot_sum(self.session, chosen.iter().map(|chosen| chosen.times(&places)).collect()).await?;
        place.first().map(Slots::raised).ok_or(ProtocolError::Cancelled)
    }

    /// Adds a cluster of so many rows to another, whose centre moves, and returns the numbers of the one that goes next. These are picked even
    /// if that is the other, whose numbers are at hand: P2 must not see whether it is.
    async fn join(
        &mut self,
        receiver: usize,
        gone: Numbered<L0>,
        rows: usize,
        following: usize,
    ) -> Result<Numbered<L0>, ProtocolError> {
        let mut picked = self.pick(&[receiver, following]).await?.into_iter();
        let mut next = || picked.next().ok_or(ProtocolError::Cancelled);
        let ([old, mut sums, mut counts], following_numbers) = (next()?, next()?);
        let [_, gone_sums, _] = gone;
        sums.iter_mut().zip(&gone_sums).for_each(|(sum, gone)| sum.add(gone));
        counts.iter_mut().for_each(|count| count.add_constant(rows as u64));
        let new = self.mean(&sums, &counts).await?;
        let joined = [new, sums, counts];
        let ones = self.indicators(receiver);
        let [centres, sums, counts] = &mut self.numbers;
        for (((centres, old), new), one) in centres.iter_mut().zip(&old).zip(&joined[0]).zip(&ones) {
            let mut moved = new.clone();
            moved.sub(old);
            centres.add(&moved.times(one));
        }
        sums.iter_mut().zip(&gone_sums).zip(&ones).for_each(|((sums, gone), one)| sums.add(&gone.times(one)));
        for (vector, counts) in counts.iter_mut().enumerate() {
            let more =
                indicator(self.packing, receiver, vector).iter().map(|one| one * rows as u64).collect::<Vec<_>>();
            counts.add_clear(&Offset::new(&more));
        }
        self.refresh().await?;
        Ok(if following == receiver { joined } else { following_numbers })
    }

    /// Noise adds up with the merges: before it is too much, numbers are made fresh. That tells nothing but how many merges there were.
    async fn refresh(&mut self) -> Result<(), ProtocolError> {
        let fresh = |slots: &Slots<L1>| slots.noise().times_clear::<L1>().scaled(2).checked_for_flooding().is_ok();
        if self.numbers.iter().flatten().all(fresh) {
            return Ok(());
        }
        let (vectors, lengths) = together(self.numbers.clone());
        self.numbers = lengths.each(refresh(self.session, vectors).await?)?;
        Ok(())
    }

    /// The centre of rows with these sums, as [`centres`](crate::centres) has it; for all clusters.
    async fn mean(&self, sums: &[Slots<L0>], counts: &[Slots<L0>]) -> Result<Vec<Slots<L0>>, ProtocolError> {
        let columns = self.packing.columns;
        let (Some(sum), Some(count)) = (sums.first(), counts.first()) else { return Err(ProtocolError::Cancelled) };
        let table: Arc<[u64]> = (0..=self.rows as u64).map(|rows| reciprocal(rows, CENTRE_FRACTION)).collect();
        let question = Question { slots: vec![count.raised()], centres: 1, columns, tables: vec![table] };
        let found = lookup_long(self.session, question).await?.concat();
        let reciprocal = found.first().ok_or(ProtocolError::Cancelled)?;
        let mut shifted = count.clone();
        shifted.scale(CENTRE_OFFSET as i32);
        shifted.add(sum);
        let products = multiply(self.session, vec![(shifted.raised(), reciprocal.raised())]).await?;
        let dividend = |slots| Dividend { slots, shift: CENTRE_FRACTION, rounding: Rounding::Nearest };
        // The first cluster's slots hold the mean, and all others nothing.
        let mut means = truncate_half(self.session, columns, products.into_iter().map(dividend).collect()).await?;
        means.resize_with(self.packing.vectors(), || Slots::clear(&[]));
        let picks = Picks { vectors: means, centres: self.packing.centres, columns };
        let mut spread = few_pick(self.session, vec![picks]).await?.concat();
        spread.iter_mut().for_each(|mean| mean.add_constant(plain::neg(CENTRE_OFFSET as u64)));
        Ok(spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parties;

    /// As much noise as hundreds of merges leave: too much to pick from, until all is fresh again.
    #[tokio::test(flavor = "multi_thread")]
    async fn many_merges_leave_room_for_another() {
        let mut parties = Parties::new(345);
        let zero = parties.keys.slot().seal(&[0; DEGREE], &mut parties.rng).expand().unwrap();
        let zero = zero.times(&Factor::new(&[1; DEGREE]));
        let mut noisy = |numbers: &[i64]| {
            let mut slots = parties.encrypt_signed(numbers);
            (0..600).for_each(|_| slots.add(&zero));
            vec![slots]
        };
        let numbers = [noisy(&[-5, 7]), noisy(&[-10, 21]), noisy(&[2, 3])];
        let mut clusters = Clusters {
            session: &parties.session,
            metric: Metric { weights: &[1], comparison: Comparison::Blinded },
            packing: Packing { centres: 2, columns: 1 },
            rows: 5,
            k: 3,
            numbers,
            sizes: vec![Some(Size::Small(2)), Some(Size::Large)],
        };
        let error = clusters.pick(&[1]).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, ProtocolError::Slots(_)), "{error}");
        clusters.refresh().await.unwrap();
        assert_eq!(parties.session.traffic().rounds(), 2, "one round, and one that was refused");
        let picked = clusters.pick(&[1]).await.unwrap().remove(0);
        for (picked, expected) in picked.iter().zip([7, 21, 3]) {
            assert_eq!(parties.open(&picked[0].raised())[..2], [expected; 2]);
        }
        // What is fresh stays as it is.
        clusters.refresh().await.unwrap();
        assert_eq!(parties.session.traffic().rounds(), 3);
    }
}
