//! k-anonymity of encrypted rows: the paper's secure k-anonymisation (Kesarwani et al., Algorithms 2 to 5), all of it between P1 and P2.
//!
//! ```text
//!  check          what is refused
//!  coordinates    cells become places on a grid
//!  assign         rounds of: every row to its nearest centre, and then centres to the means of their rows (`cluster_sums`, `centres`)
//!  settled        whether a round moved no centre
//!  sizes          which clusters are smaller than k
//!  merge_small    small clusters join others as a whole, or ..
//!  move_rows      .. row by row
//!  publish        every row gets the values of its class, as cells again
//!  cost           what a run takes
//! ```
//! It agrees to the last bit with the same algorithm in the clear, [`veil_privacy::clusters`], which its tests compare it with.
//!
//! P1 learns what [`Settings::leakage`] declares, each opened by [`open`](crate::open) with its purpose: whether a round moved a centre,
//! which clusters are smaller than k and how small, and which clusters join. P2 sees masked numbers; from how much there is to do it sees how
//! many rounds there were, how many clusters joined, and how many classes are left. With blinded comparisons it also sees blurred
//! differences of distances in the slots of rows, and can work out nearly all of the quasi-identifiers from them.

mod assign;
mod check;
pub(crate) mod constants;
pub(crate) mod coordinates;
pub(crate) mod cost;
mod merge_small;
mod move_rows;
mod publish;
mod settled;
mod sizes;

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray};
use veil_cells::{ColumnConstants, Lanes, Width};
use veil_privacy::clusters::{self, ClusterError, Reassignment, suppressed_clusters};
use veil_slots::{DEGREE, Factor, L1, Slots};

use self::assign::{Metric, assign};
use self::check::check;
use self::coordinates::{Grid, prepare};
pub use self::cost::{Cost, Shape};
use self::merge_small::Clusters;
pub use self::move_rows::MAX_POINTS;
use self::move_rows::Rows;
use self::publish::Classes;
use self::settled::settled;
use self::sizes::{Size, sizes};
use crate::blend::blend;
use crate::centres::centres;
use crate::cluster_sums::{Sums, cluster_sums};
use crate::merge::merge;
pub use crate::nearest::Comparison;
use crate::open::MAX_OPENED;
use crate::{ProtocolError, Session, Tiles};

/// The most centres: the sizes of as many clusters are opened at once.
pub const MAX_CENTRES: usize = MAX_OPENED as usize;

/// A column by which people could be recognised.
#[derive(Clone, Debug)]
pub struct Quasi {
    /// Its values.
    pub values: Values,
    /// How much it counts in distances: at least 1.
    pub weight: u32,
}

/// What a column holds. No row is NULL.
#[derive(Clone, Debug)]
pub enum Values {
    /// Encrypted numbers in `[-2^(bits-1), 2^(bits-1))`.
    Numbers {
        /// The cells, of one value lane.
        cells: ArrayRef,
        /// Their width.
        bits: u32,
        /// The ends of the scale.
        bounds: Bounds,
    },
    /// Encrypted leaves of a hierarchy: one lane a level, the leaf first and the root last.
    Categories {
        /// The cells.
        cells: ArrayRef,
        /// Value lanes of a cell.
        levels: usize,
        /// The width of a lane.
        bits: u32,
        /// Whether some may have been generalised before, so that lanes may be -1.
        generalised: bool,
    },
    /// Numbers that P1 sees, in `[-2^31, 2^31)`. They are scaled by the smallest and the largest.
    Clear(Arc<[i64]>),
}

/// The smallest and the largest number of a column.
#[derive(Clone, Debug)]
pub enum Bounds {
    /// Encrypted, with the reciprocal of their distance.
    Encrypted(Arc<ColumnConstants>),
    /// Declared public by the owner.
    Public(i64, i64),
}

/// What is asked for, and how it is found.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// k, rounds, suppression and strategy.
    pub clusters: clusters::Settings,
    /// How distances are compared.
    pub comparison: Comparison,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Cells become coordinates, and rows the first centres.
    Prepare,
    /// A round of clustering, of at most so many.
    Cluster {
        /// From one.
        round: usize,
        /// The most rounds.
        of: usize,
    },
    /// Which clusters are smaller than k.
    Sizes,
    /// Small clusters, or their rows, go to others.
    Reassign {
        /// Those that went.
        done: usize,
        /// All of them.
        of: usize,
    },
    /// Classes get their values, and rows those of their classes.
    Publish,
}

impl Phase {
    /// What phases are called, in the order of a run.
    pub const NAMES: [&str; 5] = ["prepare", "cluster", "sizes", "reassign", "publish"];

    /// Its place among them.
    pub fn place(&self) -> usize {
        match self {
            Self::Prepare => 0,
            Self::Cluster { .. } => 1,
            Self::Sizes => 2,
            Self::Reassign { .. } => 3,
            Self::Publish => 4,
        }
    }
}

/// The anonymised columns, and what P1 knows of how they came about.
#[derive(Clone, Debug)]
pub struct Anonymised {
    /// For every column its cells: as many value lanes as before (one for numbers), and an equality tag that all rows of a class share.
    pub columns: Vec<BinaryArray>,
    /// Cells of a number: one where the row is suppressed, zero elsewhere.
    pub suppressed: BinaryArray,
    /// What became of the clusters.
    pub outcome: Outcome,
    /// The sizes of the clusters of fewer than k rows, empty ones left out, the smallest first.
    pub small_sizes: Vec<usize>,
}

/// What P1 knows at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rounds of clustering.
    pub rounds_run: usize,
    /// Clusters with rows, after clustering.
    pub clusters: usize,
    /// Those of fewer than k rows.
    pub small_clusters: usize,
    /// Their rows.
    pub small_rows: usize,
    /// Small clusters that were suppressed.
    pub suppressed_clusters: usize,
    /// Their rows.
    pub suppressed_rows: usize,
    /// Classes of at least k rows.
    pub classes: usize,
}

/// Makes rows share their values with at least k - 1 others. The clusters begin at the `initial` rows.
pub async fn k_anonymize(
    session: &Session,
    rows: usize,
    quasi: Vec<Quasi>,
    initial: &[usize],
    settings: &Settings,
    progress: &(dyn Fn(Phase) + Send + Sync),
) -> Result<Anonymised, ProtocolError> {
    // Behind a pointer, so that all rounds are compiled here, and not again in every crate that awaits them.
    let run: Pin<Box<dyn Future<Output = _> + Send + '_>> =
        Box::pin(run(session, rows, quasi, initial, settings, progress));
    run.await
}

async fn run(
    session: &Session,
    rows: usize,
    quasi: Vec<Quasi>,
    initial: &[usize],
    settings: &Settings,
    progress: &(dyn Fn(Phase) + Send + Sync),
) -> Result<Anonymised, ProtocolError> {
    let weights: Vec<u32> = quasi.iter().map(|quasi| quasi.weight).collect();
    let metric = Metric { weights: &weights, comparison: settings.comparison };
    check(rows, &quasi, initial, settings, metric)?;
    progress(Phase::Prepare);
    let run = Run {
        session,
        tiles: Tiles::new(rows, initial.len()),
        metric,
        grid: prepare(session, rows, &quasi).await?,
        settings,
    };
    let clustering = run.cluster(initial, progress).await?;
    progress(Phase::Sizes);
    let k = settings.clusters.k;
    let sizes = sizes(session, &run.tiles, weights.len(), &clustering.sums, k).await?;
    let fate = Fate::of(rows, sizes, &settings.clusters)?;
    let (suppressed, rounds_run) = (run.suppressed(&fate, &clustering.assignment).await?, clustering.rounds_run);
    let Clustered { assignment, class_of, classes } = run.reassign(&fate, clustering, progress).await?;
    progress(Phase::Publish);
    let to = Tiles::new(rows, classes);
    let merged = merge(session, &run.tiles, &to, &class_of, &assignment).await?;
    drop(assignment);
    let classes_of_rows = Classes { session, tiles: to, quasi: &quasi, grid: &run.grid, assignment: &merged };
    let columns = classes_of_rows.publish().await?;
    let width = Width::NARROWEST;
    let suppressed =
        classes_of_rows.cells(vec![suppressed], Lanes::NUMBER, width.bits(), Some(width.magnitude())).await?;
    let outcome = Outcome { rounds_run, classes, ..fate.outcome() };
    Ok(Anonymised { columns, suppressed, outcome, small_sizes: fate.small_sizes() })
}

/// What the phases share.
struct Run<'a> {
    session: &'a Session,
    tiles: Tiles,
    metric: Metric<'a>,
    grid: Grid,
    settings: &'a Settings,
}

/// Rows in clusters of any size.
struct Clustering {
    assignment: Vec<Vec<Slots<L1>>>,
    sums: Sums,
    centres: Vec<Slots<L1>>,
    rounds_run: usize,
}

/// Rows in clusters, which become classes.
struct Clustered {
    assignment: Vec<Vec<Slots<L1>>>,
    /// The class of every cluster, if its rows are in one.
    class_of: Vec<Option<usize>>,
    classes: usize,
}

impl Run<'_> {
    /// Rounds of assigning rows to centres and moving the centres.
    async fn cluster(
        &self,
        initial: &[usize],
        progress: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<Clustering, ProtocolError> {
        let (session, tiles, metric) = (self.session, &self.tiles, self.metric);
        let coordinates = &self.grid.coordinates;
        // The first clusters have a row each, which P1 picks without telling P2 which.
        let mut assignment = first_rows(tiles, initial);
        let mut sums = cluster_sums(session, tiles, coordinates, &assignment).await?;
        let mut old: Vec<Slots<L1>> = sums.sums.iter().map(Slots::raised).collect();
        let clusters::Settings { rounds: of, early_stop, .. } = self.settings.clusters;
        for round in 1..=of {
            progress(Phase::Cluster { round, of });
            drop(assignment);
            assignment = assign(session, tiles, metric, coordinates, &old, |_| false).await?;
            sums = cluster_sums(session, tiles, coordinates, &assignment).await?;
            let new = centres(session, tiles, metric.weights.len(), &sums, old.clone()).await?;
            let ends = round == of || early_stop && settled(session, &old, &new).await?;
            old = new;
            if ends {
                return Ok(Clustering { assignment, sums, centres: old, rounds_run: round });
            }
        }
        Err(ProtocolError::Misuse(ClusterError::NoRounds.to_string()))
    }

    /// For every chunk, one where a row is suppressed.
    async fn suppressed(&self, fate: &Fate, assignment: &[Vec<Slots<L1>>]) -> Result<Vec<Slots<L1>>, ProtocolError> {
        // Whether any is must not show in what is asked.
        if self.settings.clusters.suppress == 0 {
            return Ok(vec![Slots::clear(&[]); self.tiles.chunks()]);
        }
        let bit = |cluster: usize| u64::from(fate.suppressed.contains(&cluster));
        let bits: Vec<u64> = (0..fate.sizes.len()).map(bit).collect();
        let packed: Vec<Slots<L1>> = bits.chunks(DEGREE).map(Slots::clear).collect();
        Ok(blend(self.session, &self.tiles, 1, &packed, assignment).await?.concat())
    }

    /// Rows of small clusters that are not suppressed go elsewhere.
    async fn reassign(
        &self,
        fate: &Fate,
        clustering: Clustering,
        progress: &(dyn Fn(Phase) + Send + Sync),
    ) -> Result<Clustered, ProtocolError> {
        let Clustering { assignment, sums, centres, .. } = clustering;
        let live = fate.live();
        let of = live.iter().flatten().filter(|size| size.is_small()).count();
        progress(Phase::Reassign { done: 0, of });
        let identity = |stays: &dyn Fn(usize) -> bool| {
            (0..live.len()).map(|cluster| stays(cluster).then_some(cluster)).collect::<Vec<_>>()
        };
        if of == 0 {
            let last = identity(&|cluster| live.get(cluster).is_some_and(Option::is_some));
            return Ok(numbered(assignment, &last));
        }
        if self.settings.clusters.strategy == Reassignment::ClusterToCluster {
            let clusters = Clusters::new(
                self.session,
                &self.tiles,
                self.metric,
                self.settings.clusters.k,
                &sums,
                &centres,
                live.clone(),
            );
            let mut done = 0;
            let receivers = clusters.merge_small(|| {
                done += 1;
                progress(Phase::Reassign { done, of });
            });
            let receivers = receivers.await?;
            let last = receivers.iter().zip(&live).map(|(receiver, size)| size.map(|_| *receiver));
            return Ok(numbered(assignment, &last.collect::<Vec<_>>()));
        }
        let stays = fate.receivers();
        let moves = live.iter().zip(&stays).map(|(size, stays)| size.is_some() && !stays).collect();
        let rows = Rows {
            session: self.session,
            tiles: self.tiles,
            metric: self.metric,
            coordinates: &self.grid.coordinates,
            assignment: &assignment,
            stays: stays.clone(),
            moves,
        };
        let moved = match self.settings.clusters.strategy {
            Reassignment::PointToPoint => rows.to_points().await?,
            _ => rows.to_clusters(&centres).await?,
        };
        progress(Phase::Reassign { done: of, of });
        Ok(numbered(moved, &identity(&|cluster| stays.get(cluster).copied().unwrap_or_default())))
    }
}

/// Tiles with one where a row is the first of a cluster. No secret of P2's.
fn first_rows(tiles: &Tiles, initial: &[usize]) -> Vec<Vec<Slots<L1>>> {
    let tile = |chunk: usize, group: usize| {
        let mut slots = vec![0; DEGREE];
        for (slot, bit) in slots.iter_mut().enumerate() {
            let pair = tiles.centre_of(group, slot).zip(tiles.row_of(chunk, slot));
            *bit = u64::from(pair.is_some_and(|(centre, row)| initial.get(centre) == Some(&row)));
        }
        Slots::clear(&slots)
    };
    let chunk = |chunk: usize| (0..tiles.groups()).map(|group| tile(chunk, group)).collect();
    (0..tiles.chunks()).map(chunk).collect()
}

/// One in a slot, zero in all others.
fn indicator(slot: usize) -> Factor {
    let mut one = vec![0; slot];
    one.push(1);
    Factor::new(&one)
}

/// Clusters that rows end in become classes, in their order.
fn numbered(assignment: Vec<Vec<Slots<L1>>>, last: &[Option<usize>]) -> Clustered {
    let mut ends: Vec<usize> = last.iter().flatten().copied().collect();
    ends.sort_unstable();
    ends.dedup();
    let class_of = last.iter().map(|end| ends.binary_search(&(*end)?).ok()).collect();
    Clustered { assignment, class_of, classes: ends.len() }
}

/// What P1 knows of the clusters, and what becomes of them.
struct Fate {
    sizes: Vec<Size>,
    /// Those that are suppressed.
    suppressed: Vec<usize>,
}

impl Fate {
    fn of(rows: usize, sizes: Vec<Size>, settings: &clusters::Settings) -> Result<Self, ProtocolError> {
        // Sizes of large clusters do not matter to who is suppressed, but their sum does: all but one count as k.
        let small: usize = sizes.iter().map(|size| size.rows()).sum();
        let large = sizes.iter().filter(|size| **size == Size::Large).count();
        let mut rest = rows.saturating_sub(small + large * settings.k);
        let known = |size: &Size| match size {
            Size::Small(rows) => *rows,
            Size::Large => settings.k + std::mem::take(&mut rest),
        };
        let known: Vec<usize> = sizes.iter().map(known).collect();
        let suppressed = suppressed_clusters(&known, settings.k, settings.suppress);
        let suppressed = suppressed.map_err(|error| ProtocolError::Misuse(error.to_string()))?;
        Ok(Self { sizes, suppressed })
    }

    /// The sizes of clusters that have rows and are not suppressed.
    fn live(&self) -> Vec<Option<Size>> {
        let live = |(cluster, size): (usize, &Size)| {
            (*size != Size::Small(0) && !self.suppressed.contains(&cluster)).then_some(*size)
        };
        self.sizes.iter().enumerate().map(live).collect()
    }

    /// Which clusters rows can go to one by one: the large ones, or else the largest.
    fn receivers(&self) -> Vec<bool> {
        let live = self.live();
        let is_large = |size: &Option<Size>| *size == Some(Size::Large);
        if live.iter().any(is_large) {
            return live.iter().map(is_large).collect();
        }
        let largest = live.iter().flatten().map(|size| size.rows()).max();
        let first = live.iter().position(|size| size.map(Size::rows) == largest);
        (0..live.len()).map(|cluster| Some(cluster) == first).collect()
    }

    /// Of those that have rows, the smallest first.
    fn small_sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.sizes.iter().filter(|size| size.is_small()).map(|size| size.rows()).collect();
        sizes.sort_unstable();
        sizes
    }

    fn outcome(&self) -> Outcome {
        let small = || self.sizes.iter().filter(|size| size.is_small());
        Outcome {
            clusters: self.sizes.iter().filter(|size| **size != Size::Small(0)).count(),
            small_clusters: small().count(),
            small_rows: small().map(|size| size.rows()).sum(),
            suppressed_clusters: self.suppressed.len(),
            suppressed_rows: self
                .suppressed
                .iter()
                .filter_map(|cluster| self.sizes.get(*cluster))
                .map(|size| size.rows())
                .sum(),
            ..Outcome::default()
        }
    }
}
