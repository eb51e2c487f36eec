//! Generalisation hierarchies of categories.
//!
//! A hierarchy is a tree whose leaves all have the same depth, written as ARX writes it: one row a leaf, the
//! leaf first, its ancestors behind it, the root last. Level 0 holds the leaves. Nodes of a level are
//! numbered depth first, so that the leaves below any node are neighbours.
//!
//! Every node gets a number, its **representative**: the position of its first leaf on a line, scaled so that the
//! leaves span the same interval in every hierarchy (min-max). Figure 2 of Kesarwani et al. puts separate
//! paths far apart so that the nearest node of a level is the ancestor; here the ancestors are encrypted beside the
//! leaf, and positions only matter as distances.

use std::collections::HashMap;

/// A tree of labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Leaves first, root last; each level in depth-first order.
    levels: Vec<Vec<Node>>,
    /// From a leaf's label to its number.
    leaves: HashMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    label: String,
    /// In the level above; the root's is itself.
    parent: usize,
    /// The first leaf below it, and how many there are.
    first_leaf: usize,
    leaf_count: usize,
}

/// A node: its level and its number in that level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId {
    /// Zero for leaves.
    pub level: usize,
    /// Depth-first.
    pub number: usize,
}

/// How far apart neighbouring leaves lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// All neighbours at the same distance.
    #[default]
    Even,
    /// Neighbours at the level of their common ancestor: cousins lie further apart than siblings.
    Apart,
}

/// Why rows are not a hierarchy. Rows count from one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HierarchyError {
    /// No rows.
    #[error("it has no rows; write one row a leaf: leaf, ancestors, root")]
    Empty,
    /// Rows of different lengths.
    #[error("row {row} has {found} levels and row 1 has {expected}; give every leaf a path of the same length")]
    Ragged {
        /// The row.
        row: usize,
        /// Fields of the first row.
        expected: usize,
        /// Fields of this row.
        found: usize,
    },
    /// A leaf with nothing above it.
    #[error("row 1 has {0} field(s); a path needs at least a leaf and the root")]
    TooFlat(usize),
    /// A leaf twice.
    #[error("row {row} repeats the leaf `{leaf}`; keep one row a leaf")]
    RepeatedLeaf {
        /// The row.
        row: usize,
        /// The label.
        leaf: String,
    },
    /// A node with two parents.
    #[error(
        "row {row}: `{label}` on level {level} lies below `{found}` here and below `{expected}` before; a tree gives it one parent"
    )]
    TwoParents {
        /// The row.
        row: usize,
        /// The node's level.
        level: usize,
        /// The node's label.
        label: String,
        /// The parent of an earlier row.
        expected: String,
        /// The parent of this row.
        found: String,
    },
    /// Several roots.
    #[error("row {row} ends in `{found}` and row 1 in `{expected}`; all paths must end in one root")]
    TwoRoots {
        /// The row.
        row: usize,
        /// The first row's root.
        expected: String,
        /// This row's root.
        found: String,
    },
    /// More leaves than representatives.
    #[error("it has {0} leaves, more than numbers of 24 bits can tell apart")]
    TooLarge(usize),
}

impl Hierarchy {
    /// From rows of labels, leaf first, root last.
    pub fn from_rows(rows: &[Vec<String>]) -> Result<Self, HierarchyError> {
        let first = rows.first().ok_or(HierarchyError::Empty)?;
        let depth = first.len();
        if depth < 2 {
            return Err(HierarchyError::TooFlat(depth));
        }
        // Children by parent, in order of appearance, from the root down.
        let mut parents: Vec<HashMap<&str, &str>> = vec![HashMap::new(); depth - 1];
        let mut children: Vec<HashMap<&str, Vec<&str>>> = vec![HashMap::new(); depth];
        for (number, row) in rows.iter().enumerate() {
            check_row(first, row, number + 1)?;
            for (level, pair) in row.windows(2).enumerate() {
                let [label, parent] = [pair[0].as_str(), pair[1].as_str()];
                match parents[level].insert(label, parent) {
                    None => children[level + 1].entry(parent).or_default().push(label),
                    Some(_) if level == 0 => {
                        return Err(HierarchyError::RepeatedLeaf { row: number + 1, leaf: label.to_owned() });
                    }
                    Some(before) if before != parent => {
                        return Err(HierarchyError::TwoParents {
                            row: number + 1,
                            level,
                            label: label.to_owned(),
                            expected: before.to_owned(),
                            found: parent.to_owned(),
                        });
                    }
                    Some(_) => {}
                }
            }
        }
        let root = first[depth - 1].as_str();
        let mut levels = vec![vec![Node { label: root.to_owned(), parent: 0, first_leaf: 0, leaf_count: 0 }]];
        for level in (1..depth).rev() {
            let above = &levels[levels.len() - 1];
            let below = above.iter().enumerate().flat_map(|(parent, node)| {
                let labels = children[level].get(node.label.as_str()).into_iter().flatten();
                labels.map(move |label| Node { label: (*label).to_owned(), parent, first_leaf: 0, leaf_count: 0 })
            });
            levels.push(below.collect());
        }
        levels.reverse();
        count_leaves(&mut levels);
        let leaves = levels[0].iter().enumerate().map(|(number, leaf)| (leaf.label.clone(), number)).collect();
        Ok(Self { levels, leaves })
    }

    /// Leaves directly below the root `*`.
    pub fn flat<S: AsRef<str>>(labels: &[S]) -> Result<Self, HierarchyError> {
        let rows: Vec<_> = labels.iter().map(|label| vec![label.as_ref().to_owned(), "*".to_owned()]).collect();
        Self::from_rows(&rows)
    }

    /// The rows again, leaf first, in depth-first order.
    pub fn rows(&self) -> impl Iterator<Item = Vec<&str>> {
        (0..self.leaf_count())
            .map(|leaf| (0..self.level_count()).filter_map(|level| self.label(self.ancestor(leaf, level)?)).collect())
    }

    /// Levels, leaves and root included.
    pub fn level_count(&self) -> usize {
        self.levels.len()
    }

    /// Leaves.
    pub fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// The leaf of a label.
    pub fn leaf(&self, label: &str) -> Option<usize> {
        self.leaves.get(label).copied()
    }

    /// A leaf's ancestor on a level; on level 0 the leaf itself.
    pub fn ancestor(&self, leaf: usize, level: usize) -> Option<NodeId> {
        self.levels.get(level)?;
        let number = self.levels.iter().take(level).try_fold(leaf, |at, nodes| Some(nodes.get(at)?.parent))?;
        Some(NodeId { level, number })
    }

    /// A node's label.
    pub fn label(&self, node: NodeId) -> Option<&str> {
        Some(&self.levels.get(node.level)?.get(node.number)?.label)
    }

    /// Leaves below a node.
    pub fn leaves_below(&self, node: NodeId) -> Option<usize> {
        Some(self.levels.get(node.level)?.get(node.number)?.leaf_count)
    }

    /// The lowest node above two leaves, and so above all leaves between them; for one leaf twice, the leaf.
    pub fn common_ancestor(&self, one: usize, other: usize) -> Option<NodeId> {
        let known = one.max(other) < self.leaf_count();
        known.then(|| self.ancestor(one, self.common_level(one, other)))?
    }

    /// The numbers that stand for the nodes.
    pub fn representatives(&self, spacing: Spacing) -> Result<Representatives, HierarchyError> {
        let mut position = 0u64;
        let mut positions = vec![0u64];
        for leaf in 1..self.leaf_count() {
            position += match spacing {
                Spacing::Even => 1,
                Spacing::Apart => self.common_level(leaf - 1, leaf) as u64,
            };
            positions.push(position);
        }
        let bits = if position < 1 << 15 { 16 } else { 24 };
        let span = (1u64 << (bits - 1)) - 1;
        if position > span {
            return Err(HierarchyError::TooLarge(self.leaf_count()));
        }
        // Rounded to nearest; steps are at least span / position >= 1, so no two leaves coincide.
        let scaled = |at: u64| (at * span + position / 2).checked_div(position).unwrap_or(0);
        let of_node = |node: &Node| scaled(positions[node.first_leaf]) as i64;
        let numbers: Vec<Vec<i64>> = self.levels.iter().map(|nodes| nodes.iter().map(of_node).collect()).collect();
        Ok(Representatives { bits, numbers })
    }

    /// The lowest level on which two leaves have the same ancestor.
    fn common_level(&self, one: usize, other: usize) -> usize {
        let same = |level: &usize| self.ancestor(one, *level) == self.ancestor(other, *level);
        (0..self.level_count()).find(same).unwrap_or(self.level_count() - 1)
    }
}

/// Numbers of the nodes of a hierarchy, rising along each level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Representatives {
    bits: u8,
    numbers: Vec<Vec<i64>>,
}

impl Representatives {
    /// Bits of a signed number that holds each of them: 16, or 24 for more than 32,768 leaves.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// The number of a node.
    pub fn of(&self, node: NodeId) -> Option<i64> {
        self.numbers.get(node.level)?.get(node.number).copied()
    }

    /// The node of a number.
    pub fn node(&self, level: usize, representative: i64) -> Option<NodeId> {
        let number = self.numbers.get(level)?.binary_search(&representative).ok()?;
        Some(NodeId { level, number })
    }
}

fn check_row(first: &[String], row: &[String], number: usize) -> Result<(), HierarchyError> {
    if row.len() != first.len() {
        return Err(HierarchyError::Ragged { row: number, expected: first.len(), found: row.len() });
    }
    match (first.last(), row.last()) {
        (Some(expected), Some(found)) if expected != found => {
            Err(HierarchyError::TwoRoots { row: number, expected: expected.clone(), found: found.clone() })
        }
        _ => Ok(()),
    }
}

fn count_leaves(levels: &mut [Vec<Node>]) {
    for (number, leaf) in levels[0].iter_mut().enumerate() {
        (leaf.first_leaf, leaf.leaf_count) = (number, 1);
    }
    for level in 1..levels.len() {
        let (below, above) = levels.split_at_mut(level);
        let (below, above) = (&below[level - 1], &mut above[0]);
        for child in below.iter().rev() {
            let parent = &mut above[child.parent];
            parent.first_leaf = child.first_leaf;
            parent.leaf_count += child.leaf_count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<Vec<String>> {
        text.lines().map(|line| line.trim().split(',').map(str::to_owned).collect()).collect()
    }

    fn education() -> Hierarchy {
        // Rows in an order that is not depth first.
        let text = "Bachelors,Undergraduate,Higher,*\n\
                    11th,High School,Secondary,*\n\
                    Masters,Graduate,Higher,*\n\
                    Some-college,Undergraduate,Higher,*\n\
                    9th,High School,Secondary,*";
        Hierarchy::from_rows(&rows(text)).unwrap()
    }

    #[test]
    fn siblings_become_neighbours() {
        let tree = education();
        let leaves: Vec<_> = tree.rows().map(|row| row[0].to_owned()).collect();
        assert_eq!(leaves, ["Bachelors", "Some-college", "Masters", "11th", "9th"]);
        assert_eq!((tree.level_count(), tree.leaf_count()), (4, 5));
        assert_eq!(tree.leaf("Masters"), Some(2));
        assert_eq!(tree.leaf("PhD"), None);
        let higher = tree.ancestor(2, 2).unwrap();
        assert_eq!((tree.label(higher), tree.leaves_below(higher)), (Some("Higher"), Some(3)));
        assert_eq!(tree.leaves_below(NodeId { level: 3, number: 0 }), Some(5));
        assert_eq!(tree.ancestor(2, 4), None);
        assert_eq!(tree.ancestor(5, 1), None);
    }

    #[test]
    fn leaves_meet_in_their_lowest_common_ancestor() {
        let tree = education();
        let meet = |one, other| tree.label(tree.common_ancestor(one, other)?);
        assert_eq!(
            [meet(2, 2), meet(0, 1), meet(1, 0)],
            [Some("Masters"), Some("Undergraduate"), Some("Undergraduate")]
        );
        assert_eq!([meet(0, 2), meet(3, 4), meet(2, 3)], [Some("Higher"), Some("High School"), Some("*")]);
        assert_eq!((tree.common_ancestor(0, 5), tree.common_ancestor(5, 5)), (None, None));
    }

    #[test]
    fn representatives_span_the_same_interval() {
        let even = education().representatives(Spacing::Even).unwrap();
        let leaves: Vec<_> = (0..5).map(|number| even.of(NodeId { level: 0, number }).unwrap()).collect();
        assert_eq!(leaves, [0, 8192, 16384, 24575, 32767]);
        let apart = education().representatives(Spacing::Apart).unwrap();
        let leaves: Vec<_> = (0..5).map(|number| apart.of(NodeId { level: 0, number }).unwrap()).collect();
        // Steps 1, 2, 3, 1 of 7: siblings, cousins, other halves of the tree, siblings.
        assert_eq!(leaves, [0, 4681, 14043, 28086, 32767]);
        assert_eq!(apart.of(NodeId { level: 2, number: 1 }), Some(28086));
    }

    #[test]
    fn every_representative_names_its_node() {
        for spacing in [Spacing::Even, Spacing::Apart] {
            let tree = education();
            let numbers = tree.representatives(spacing).unwrap();
            for leaf in 0..tree.leaf_count() {
                for level in 0..tree.level_count() {
                    let node = tree.ancestor(leaf, level).unwrap();
                    assert_eq!(numbers.node(level, numbers.of(node).unwrap()), Some(node));
                }
            }
            assert_eq!(numbers.node(0, 1), None);
        }
    }

    #[test]
    fn large_hierarchies_widen() {
        let labels: Vec<String> = (0..40_000).map(|i| i.to_string()).collect();
        let numbers = Hierarchy::flat(&labels).unwrap().representatives(Spacing::Even).unwrap();
        assert_eq!(numbers.bits(), 24);
        let all: Vec<_> = (0..40_000).map(|number| numbers.of(NodeId { level: 0, number }).unwrap()).collect();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_single_leaf_is_a_tree() {
        let tree = Hierarchy::flat(&["only"]).unwrap();
        assert_eq!(tree.representatives(Spacing::Even).unwrap().of(NodeId { level: 0, number: 0 }), Some(0));
    }

    #[test]
    fn what_is_not_a_tree_is_named() {
        let refused = |text: &str| Hierarchy::from_rows(&rows(text)).unwrap_err();
        assert_eq!(Hierarchy::from_rows(&[]), Err(HierarchyError::Empty));
        assert_eq!(refused("a"), HierarchyError::TooFlat(1));
        assert_eq!(refused("a,*\nb,x,*"), HierarchyError::Ragged { row: 2, expected: 2, found: 3 });
        assert_eq!(refused("a,*\na,*"), HierarchyError::RepeatedLeaf { row: 2, leaf: "a".into() });
        assert_eq!(
            refused("a,x,*\nb,*,any"),
            HierarchyError::TwoRoots { row: 2, expected: "*".into(), found: "any".into() }
        );
        let two = refused("a,x,north,*\nb,x,south,*");
        assert!(matches!(&two, HierarchyError::TwoParents { row: 2, level: 1, .. }), "{two}");
        assert!(two.to_string().contains("`south`"), "{two}");
    }
}
