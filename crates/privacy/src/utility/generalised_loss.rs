//! Generalised loss: how many of the leaves a published category stands for (Iyengar 2002; NCP of Xu et al. 2006).
//!
//! ```text
//! NCP(v) = (leaves(v) - 1) / (L - 1)          0 for a leaf, 1 for the root and for a suppressed row
//! loss   = (1/N) sum over rows of NCP
//! ```
//! The engine knows a hierarchy by its codes: for every leaf the numbers of its ancestors, leaf first, root last. A published row has
//! a lane for each level, -1 at the levels below its node. The leaves of its node add up over the lanes, each looked up by itself:
//!
//! ```text
//! D_h(x)    = leaves(x) - leaves(parent(x))
//! leaves(v) = L + sum over levels h below the root of D_h(x_h), 0 where x_h = -1
//! ```

use std::collections::BTreeMap;

/// What stands in a lane below the published node.
const ABSENT: i64 = -1;

/// Why codes are no hierarchy. Leaves and levels count from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Nothing to look up.
    #[error("the hierarchy has no leaves: give every leaf the codes of its levels")]
    Empty,
    /// Paths of different lengths.
    #[error("leaf {leaf} has {found} levels and leaf 0 has {expected}: give every leaf a path of the same length")]
    Ragged {
        /// The leaf.
        leaf: usize,
        /// Levels of the first leaf.
        expected: usize,
        /// Levels of this one.
        found: usize,
    },
    /// A code that means no node.
    #[error("leaf {leaf} has the code {code} at level {level}: codes of nodes are 0 or more")]
    Negative {
        /// The leaf.
        leaf: usize,
        /// The level.
        level: usize,
        /// The code.
        code: i64,
    },
    /// A node with two parents, or two roots.
    #[error(
        "the code {code} at level {level} lies below two nodes: a tree gives it one parent, and all paths one root"
    )]
    TwoParents {
        /// The level.
        level: usize,
        /// The code.
        code: i64,
    },
    /// A leaf twice.
    #[error("leaf {leaf} repeats the code {code}: give every leaf a code of its own")]
    RepeatedLeaf {
        /// The leaf.
        leaf: usize,
        /// Its code.
        code: i64,
    },
}

/// The leaves of a hierarchy's nodes, as sums over levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTables {
    /// For each level, root included, the leaves below every code.
    leaves: Vec<BTreeMap<i64, i64>>,
    /// For each level below the root, D by code.
    differences: Vec<BTreeMap<i64, i64>>,
    /// Leaf by leaf.
    codes: Vec<Vec<i64>>,
}

impl NodeTables {
    /// From the codes of every leaf, leaf first, root last.
    pub fn of(codes: &[Vec<i64>]) -> Result<Self, ShapeError> {
        let levels = codes.first().map_or(0, Vec::len);
        if levels == 0 {
            return Err(ShapeError::Empty);
        }
        let mut leaves = vec![BTreeMap::new(); levels];
        let mut parents: Vec<BTreeMap<i64, i64>> = vec![BTreeMap::new(); levels];
        for (leaf, path) in codes.iter().enumerate() {
            if path.len() != levels {
                return Err(ShapeError::Ragged { leaf, expected: levels, found: path.len() });
            }
            if let Some((level, code)) = path.iter().copied().enumerate().find(|(_, code)| *code < 0) {
                return Err(ShapeError::Negative { leaf, level, code });
            }
            // Above the root stands nothing, the same for all.
            let above = path.iter().copied().skip(1).chain([ABSENT]);
            for (level, (code, parent)) in path.iter().copied().zip(above).enumerate() {
                if *parents[level].entry(code).or_insert(parent) != parent {
                    return Err(ShapeError::TwoParents { level, code });
                }
                *leaves[level].entry(code).or_insert(0) += 1;
            }
            if leaves[0].len() <= leaf {
                return Err(ShapeError::RepeatedLeaf { leaf, code: path[0] });
            }
        }
        if let Some(code) = leaves[levels - 1].keys().nth(1).copied() {
            return Err(ShapeError::TwoParents { level: levels - 1, code });
        }
        let below = |level: usize, code: i64| leaves[level].get(&code).copied().unwrap_or(0);
        let difference = |level: usize, code: i64, parent: i64| below(level, code) - below(level + 1, parent);
        let differences = parents.iter().take(levels - 1).enumerate().map(|(level, parents)| {
            parents.iter().map(|(code, parent)| (*code, difference(level, *code, *parent))).collect()
        });
        let differences = differences.collect();
        Ok(Self { leaves, differences, codes: codes.to_vec() })
    }

    /// Levels, leaves and root included.
    pub fn levels(&self) -> usize {
        self.leaves.len()
    }

    /// Leaves of the hierarchy, L.
    pub fn leaf_count(&self) -> i64 {
        self.codes.len() as i64
    }

    /// D by code, for a level below the root, codes rising.
    pub fn differences(&self, level: usize) -> Option<&BTreeMap<i64, i64>> {
        self.differences.get(level)
    }

    /// Leaves below every code of a level, root included, codes rising.
    pub fn leaves(&self, level: usize) -> Option<&BTreeMap<i64, i64>> {
        self.leaves.get(level)
    }

    /// The leaves below the node that a row of lanes publishes. The lane of the root may be missing. Nothing for a code that is none.
    pub fn leaves_of(&self, lanes: &[i64]) -> Option<i64> {
        let lanes = self.differences.iter().zip(lanes).filter(|(_, code)| **code != ABSENT);
        lanes
            .map(|(table, code)| table.get(code))
            .try_fold(self.leaf_count(), |sum, difference| Some(sum + difference?))
    }

    /// The level and the code of the node that a row of lanes publishes; the root if all lanes below it are absent.
    pub fn node_of(&self, lanes: &[i64]) -> Option<(usize, i64)> {
        let root = self.levels() - 1;
        let below = lanes.iter().copied().take(root).enumerate().find(|(_, code)| *code != ABSENT);
        let (level, code) = below.or_else(|| Some((root, *self.leaves[root].keys().next()?)))?;
        self.leaves[level].contains_key(&code).then_some((level, code))
    }

    /// What the leaves have, added up for every node: by level, then by code. Nothing unless there is one number a leaf.
    pub fn sums(&self, of_leaves: &[u64]) -> Option<Vec<BTreeMap<i64, u64>>> {
        let mut sums = vec![BTreeMap::new(); self.levels()];
        for (path, number) in self.codes.iter().zip(of_leaves) {
            path.iter().zip(&mut sums).for_each(|(code, sums)| *sums.entry(*code).or_insert(0) += number);
        }
        (of_leaves.len() == self.codes.len()).then_some(sums)
    }

    /// The mean loss of a column, from the leaves of all published nodes together. Zero for no rows.
    pub fn loss(&self, leaves_of_published: u64, published: u64, suppressed: u64) -> f64 {
        let (rows, most) = (published as f64 + suppressed as f64, (self.leaf_count() - 1) as f64);
        let lost = leaves_of_published.saturating_sub(published) as f64;
        // A hierarchy of one leaf loses nothing by publishing it.
        let lost = if most > 0.0 { lost / most } else { 0.0 };
        if rows > 0.0 { (lost + suppressed as f64) / rows } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Hierarchy, Spacing};

    /// Five leaves, two nodes of three and two of them.
    fn codes() -> Vec<Vec<i64>> {
        vec![vec![0, 0, 0], vec![10, 0, 0], vec![20, 0, 0], vec![30, 30, 0], vec![40, 30, 0]]
    }

    #[test]
    fn by_hand() {
        let tables = NodeTables::of(&codes()).unwrap();
        assert_eq!((tables.levels(), tables.leaf_count()), (3, 5));
        assert_eq!(Vec::from_iter(tables.differences(0).unwrap().values().copied()), [-2, -2, -2, -1, -1]);
        assert_eq!(Vec::from_iter(tables.differences(1).unwrap()), [(&0, &-2), (&30, &-3)]);
        assert_eq!(tables.differences(2), None);
        assert_eq!(Vec::from_iter(tables.leaves(1).unwrap()), [(&0, &3), (&30, &2)]);
        let rows = [[20, 0, 0], [-1, 30, 0], [-1, 0, 0], [-1, -1, 0]];
        assert_eq!(rows.map(|row| tables.leaves_of(&row)), [Some(1), Some(2), Some(3), Some(5)]);
        assert_eq!(rows.map(|row| tables.node_of(&row)), [Some((0, 20)), Some((1, 30)), Some((1, 0)), Some((2, 0))]);
        assert_eq!(
            (tables.leaves_of(&[-1, 30]), tables.leaves_of(&[7, 0, 0]), tables.node_of(&[7, 0, 0])),
            (Some(2), None, None)
        );
        // (0 + 1/4 + 2/4 + 1 + 1 suppressed) / 5.
        assert_eq!(tables.loss(1 + 2 + 3 + 5, 4, 1), 0.55);
        assert_eq!((tables.loss(0, 0, 0), tables.loss(0, 0, 3), tables.loss(6, 6, 0)), (0.0, 1.0, 0.0));
        let sums = tables.sums(&[1, 2, 3, 4, 5]).unwrap();
        assert_eq!(Vec::from_iter(&sums[1]), [(&0, &6), (&30, &9)]);
        assert_eq!((sums[2].get(&0), tables.sums(&[1])), (Some(&15), None));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let refused =
            |codes: &[&[i64]]| NodeTables::of(&codes.iter().map(|path| path.to_vec()).collect::<Vec<_>>()).unwrap_err();
        assert_eq!(refused(&[]), ShapeError::Empty);
        assert_eq!(refused(&[&[]]), ShapeError::Empty);
        assert_eq!(refused(&[&[0, 0], &[1]]), ShapeError::Ragged { leaf: 1, expected: 2, found: 1 });
        assert_eq!(refused(&[&[0, 0], &[-1, 0]]), ShapeError::Negative { leaf: 1, level: 0, code: -1 });
        assert_eq!(refused(&[&[0, 0], &[1, 1]]), ShapeError::TwoParents { level: 1, code: 1 });
        assert_eq!(refused(&[&[0, 0, 0], &[1, 1, 0], &[0, 1, 0]]), ShapeError::TwoParents { level: 0, code: 0 });
        assert_eq!(refused(&[&[0, 0], &[0, 0]]), ShapeError::RepeatedLeaf { leaf: 1, code: 0 });
        assert_eq!(NodeTables::of(&[vec![0, 0]]).unwrap().loss(2, 2, 0), 0.0);
    }

    proptest! {
        /// Lanes come to what the tree itself counts.
        #[test]
        fn lanes_add_up_to_leaves(branches in proptest::collection::vec((0u8..3, 0u8..3), 1..30), apart in any::<bool>()) {
            let path = |(leaf, (high, low)): (usize, &(u8, u8))| vec![leaf.to_string(), format!("{high}{low}"), high.to_string(), "*".into()];
            let tree = Hierarchy::from_rows(&branches.iter().enumerate().map(path).collect::<Vec<_>>()).unwrap();
            let numbers = tree.representatives(if apart { Spacing::Apart } else { Spacing::Even }).unwrap();
            let node = |leaf: usize, level: usize| tree.ancestor(leaf, level).unwrap();
            let codes: Vec<Vec<i64>> = (0..tree.leaf_count()).map(|leaf| (0..4).map(|level| numbers.of(node(leaf, level)).unwrap()).collect()).collect();
            let tables = NodeTables::of(&codes).unwrap();
            for (leaf, path) in codes.iter().enumerate() {
                for level in 0..4 {
                    let lanes: Vec<i64> = path.iter().enumerate().map(|(at, code)| if at < level { -1 } else { *code }).collect();
                    let expected = tree.leaves_below(node(leaf, level)).unwrap() as i64;
                    prop_assert_eq!(tables.leaves_of(&lanes), Some(expected));
                    prop_assert_eq!(tables.node_of(&lanes), Some((level, path[level])));
                    prop_assert_eq!(tables.leaves(level).unwrap()[&path[level]], expected);
                }
            }
        }
    }
}
