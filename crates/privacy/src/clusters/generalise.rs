//! One value a class: the centre of its numbers, the common ancestor of its categories (the paper's AnonymizeClusters).

use super::centres::Totals;
use super::{Classes, ClusterError, Points};
use crate::{Hierarchy, NodeId};

/// The centre of every class, class by class: the mean of its rows, rounded as those of clusters are.
pub fn class_centres(classes: &Classes, points: &Points) -> Result<Vec<i64>, ClusterError> {
    check_length(classes, points.rows())?;
    let totals = Totals::of(points, classes.classes.len(), classes.of_rows.iter().copied());
    let mut centres = vec![0; classes.classes.len() * points.columns()];
    (0..classes.classes.len()).for_each(|class| totals.recompute(class, &mut centres));
    Ok(centres)
}

/// The lowest common ancestor of every class, of a column of leaves of a hierarchy, one a row.
pub fn class_ancestors(
    classes: &Classes,
    column: &[usize],
    hierarchy: &Hierarchy,
) -> Result<Vec<NodeId>, ClusterError> {
    check_length(classes, column.len())?;
    let leaves = hierarchy.leaf_count();
    if let Some((row, leaf)) = column.iter().copied().enumerate().find(|(_, leaf)| *leaf >= leaves) {
        return Err(ClusterError::UnknownLeaf { row, leaf, leaves });
    }
    // Leaves are numbered depth first, so what lies above the first and the last lies above all.
    let mut ends = vec![(leaves - 1, 0); classes.classes.len()];
    for (class, leaf) in classes.of_rows.iter().zip(column) {
        if let Some((first, last)) = class.and_then(|class| ends.get_mut(class)) {
            (*first, *last) = ((*first).min(*leaf), (*last).max(*leaf));
        }
    }
    let root = NodeId { level: hierarchy.level_count() - 1, number: 0 };
    Ok(ends.into_iter().map(|(first, last)| hierarchy.common_ancestor(first, last).unwrap_or(root)).collect())
}

fn check_length(classes: &Classes, found: usize) -> Result<(), ClusterError> {
    let expected = classes.of_rows.len();
    if found == expected { Ok(()) } else { Err(ClusterError::WrongLength { expected, found }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Class;
    use super::*;

    fn classes() -> Classes {
        let classes = vec![Class { cluster: 0, rows: 2 }, Class { cluster: 3, rows: 3 }];
        Classes { classes, of_rows: vec![Some(1), Some(0), None, Some(1), Some(0), Some(1)] }
    }

    #[test]
    fn a_class_gets_the_mean_of_its_rows() {
        let rows = vec![18, 5, 40, -1, 99, 7, 20, 5, 45, -1, 21, 5];
        let points = Points::new(rows, vec![1, 1]).unwrap();
        // 42.5 goes up, 19.67 too; who is suppressed does not count.
        assert_eq!(class_centres(&classes(), &points).unwrap(), [43, -1, 20, 5]);
        let short = Points::new(vec![1], vec![1]).unwrap();
        let refused = class_centres(&classes(), &short).unwrap_err();
        assert_eq!(refused, ClusterError::WrongLength { expected: 6, found: 1 });
    }

    #[test]
    fn a_class_gets_the_lowest_node_above_its_categories() {
        let rows = ["a,x,*", "b,x,*", "c,x,*", "d,y,*"].map(|row| row.split(',').map(str::to_owned).collect());
        let tree = Hierarchy::from_rows(&rows).unwrap();
        let labels = |column: &[usize]| -> Vec<String> {
            let nodes = class_ancestors(&classes(), column, &tree).unwrap();
            nodes.into_iter().map(|node| tree.label(node).unwrap().to_owned()).collect()
        };
        assert_eq!(labels(&[1, 3, 0, 1, 3, 1]), ["d", "b"]);
        assert_eq!(labels(&[0, 3, 3, 2, 0, 1]), ["*", "x"]);
        let refused = class_ancestors(&classes(), &[0, 0, 0, 4, 0, 0], &tree).unwrap_err();
        assert_eq!(refused, ClusterError::UnknownLeaf { row: 3, leaf: 4, leaves: 4 });
    }

    proptest! {
        /// The paper's chain of pairs comes to the same node.
        #[test]
        fn the_ends_of_a_class_suffice(leaves in proptest::collection::vec(0usize..12, 1..8)) {
            let path = |leaf: usize| [leaf.to_string(), format!("a{}", leaf / 2), format!("b{}", leaf / 4), "*".into()].to_vec();
            let tree = Hierarchy::from_rows(&(0..12).map(path).collect::<Vec<_>>()).unwrap();
            let level = (0..4).find(|level| leaves.iter().all(|leaf| tree.ancestor(*leaf, *level) == tree.ancestor(leaves[0], *level)));
            let all = Classes { classes: vec![Class { cluster: 0, rows: leaves.len() }], of_rows: vec![Some(0); leaves.len()] };
            let expected = tree.ancestor(leaves[0], level.unwrap()).unwrap();
            prop_assert_eq!(class_ancestors(&all, &leaves, &tree).unwrap(), [expected]);
        }
    }
}
