//! Categories: one lane a level of the hierarchy, each with the representative of the value's ancestor there.
//!
//! A generalised value has -1 in the lanes below its level, so the lowest lane that is not -1 names it.

use std::sync::Arc;

use veil_cells::{CategoryShape, CellError, Kind, Width};
use veil_privacy::{Hierarchy, Representatives, Spacing};

/// The lane of a level that a value has been generalised beyond.
const GENERALISED: i64 = -1;

/// Between labels and lanes.
#[derive(Clone, Debug)]
pub(crate) struct CategoryCodec {
    hierarchy: Arc<Hierarchy>,
    representatives: Representatives,
    /// The lanes of each leaf, one behind the other.
    lanes: Vec<i64>,
}

impl CategoryCodec {
    pub(crate) fn new(hierarchy: Arc<Hierarchy>, spacing: Spacing) -> Result<Self, CellError> {
        let refused = |error: veil_privacy::HierarchyError| CellError::Unsupported(error.to_string());
        let representatives = hierarchy.representatives(spacing).map_err(refused)?;
        let levels = hierarchy.level_count();
        let lanes = (0..hierarchy.leaf_count())
            .flat_map(|leaf| (0..levels).map(move |level| (leaf, level)))
            .filter_map(|(leaf, level)| representatives.of(hierarchy.ancestor(leaf, level)?))
            .collect();
        Ok(Self { hierarchy, representatives, lanes })
    }

    /// The numbers of the leaves and their ancestors, if they are few enough to travel along.
    pub(crate) fn shape(&self) -> Option<CategoryShape> {
        CategoryShape::new(self.lanes.chunks_exact(self.hierarchy.level_count()).map(<[i64]>::to_vec).collect())
    }

    pub(crate) fn lanes(&self) -> u8 {
        self.hierarchy.level_count() as u8
    }

    pub(crate) fn width(&self) -> Result<Width, CellError> {
        Width::try_from(self.representatives.bits())
    }

    /// Appends the lanes; the error completes the sentence "`value` ...".
    pub(crate) fn encode(&self, label: &str, messages: &mut Vec<i64>) -> Result<(), String> {
        let leaf = self.hierarchy.leaf(label).ok_or("is not a leaf of the hierarchy; add it there or correct it")?;
        let levels = self.hierarchy.level_count();
        messages.extend_from_slice(&self.lanes[leaf * levels..][..levels]);
        Ok(())
    }

    pub(crate) fn decode(&self, lanes: &[i64]) -> Result<&str, CellError> {
        lanes
            .iter()
            .enumerate()
            .find(|(_, lane)| **lane != GENERALISED)
            .and_then(|(level, lane)| self.representatives.node(level, *lane))
            .and_then(|node| self.hierarchy.label(node))
            .ok_or_else(|| super::no_value(Kind::Category))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codec() -> CategoryCodec {
        let rows = [["Paris", "France", "*"], ["Lyon", "France", "*"], ["Rome", "Italy", "*"]];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        CategoryCodec::new(Arc::new(Hierarchy::from_rows(&rows).unwrap()), Spacing::Even).unwrap()
    }

    #[test]
    fn a_leaf_carries_its_ancestors() {
        let mut lanes = Vec::new();
        codec().encode("Lyon", &mut lanes).unwrap();
        assert_eq!(lanes, [16384, 0, 0]);
        assert_eq!(codec().decode(&lanes).unwrap(), "Lyon");
        assert!(codec().encode("Oslo", &mut lanes).unwrap_err().contains("not a leaf"));
    }

    #[test]
    fn generalised_values_show_their_ancestor() {
        assert_eq!(codec().decode(&[GENERALISED, 32767, 0]).unwrap(), "Italy");
        assert_eq!(codec().decode(&[GENERALISED, GENERALISED, 0]).unwrap(), "*");
        assert!(codec().decode(&[GENERALISED; 3]).is_err());
        assert!(codec().decode(&[5, 0, 0]).is_err());
    }
}
