//! What is measured of each column of an original and its anonymised table.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::plan_err;
use datafusion::error::Result;
use veil_cells::{CellType, Kind};
use veil_protocols::assess::{Frequencies, MAX_NODES, MAX_ROWS, Numbers, Published, Shape};
use veil_protocols::lift;
use veil_protocols::lookup::MAX_DOMAIN;
use veil_udfs::EncryptedField;

use super::align::{Shared, shared_columns};
use super::table::place;
use crate::k_anonymize::Source;

/// The columns of both tables.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    /// The quasi-identifiers.
    pub(super) columns: Vec<Pair>,
    /// Columns that may tell which rows belong together.
    pub(super) shared: Vec<Shared>,
}

/// A column of both tables.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// Its name.
    pub(super) name: String,
    original: usize,
    anonymised: usize,
    measure: Measure,
}

/// How it is measured.
#[derive(Clone, Debug)]
enum Measure {
    /// As numbers, published in so many bits.
    Numbers(Source, u32),
    /// As categories.
    Categories(Category),
    /// Not at all, and why.
    Nothing(String),
}

#[derive(Clone, Debug)]
struct Category {
    levels: usize,
    /// Of the original's lanes and the published ones'.
    bits: [u32; 2],
    shape: Option<Arc<[Vec<i64>]>>,
    /// Whether both columns are of one hierarchy, so that one can be held against the other.
    held: bool,
    /// Whether the original one is as the owner encrypted it, too.
    counts: bool,
}

/// A column as rounds take it.
pub(super) enum Measured {
    Numbers(Numbers),
    Categories(Categories),
    Nothing(String),
}

/// A column of categories as rounds take it.
pub(super) struct Categories {
    pub(super) published: Published,
    /// With the original one, if it is held against that.
    pub(super) both: Option<Frequencies>,
    /// Whether its frequencies are counted.
    pub(super) is_counted: bool,
}

impl Pairs {
    pub(super) fn of(function: &str, original: &[FieldRef], anonymised: &[FieldRef], quasi: &[String]) -> Result<Self> {
        let mut columns = Vec::with_capacity(quasi.len());
        for name in quasi {
            let (ours, theirs) = (place(function, original, name)?, place(function, anonymised, name)?);
            let (Some(before), Some(after)) = (original.get(ours), anonymised.get(theirs)) else {
                return plan_err!("{function} finds no column {name}");
            };
            let measure = Measure::of(before, after)?;
            columns.push(Pair { name: name.clone(), original: ours, anonymised: theirs, measure });
        }
        Ok(Self { columns, shared: shared_columns(original, anonymised, quasi)? })
    }
}

impl Measure {
    fn of(original: &FieldRef, anonymised: &FieldRef) -> Result<Self> {
        let Some(after) = EncryptedField::of(anonymised)? else {
            return Ok(Self::Nothing("is not encrypted after anonymising".to_owned()));
        };
        let (source, before) = match Source::of(original) {
            Ok(found) => found,
            Err(_) => return Ok(Self::Nothing("is neither numbers with bounds nor categories".to_owned())),
        };
        let published = &after.cell_type;
        let same = |ours: &CellType, theirs: &CellType| {
            (ours.kind, ours.scale, ours.unit, ours.lanes) == (theirs.kind, theirs.scale, theirs.unit, theirs.lanes)
        };
        if !same(&before, published) || after.hides_nulls() {
            return Ok(Self::Nothing("is of another kind after anonymising".to_owned()));
        }
        let noisy = published.spent > 0 && !matches!(published.kind, Kind::Boolean | Kind::Binary);
        if noisy || published.places > 0 || published.fraction_bits > 0 {
            return Ok(Self::Nothing("carries noise or a fraction, which may lie anywhere".to_owned()));
        }
        let (bits, encrypted) = (published.width.bits(), EncryptedField::of(original)?);
        match source {
            Source::Categories { levels, generalised, .. } => {
                let of_both =
                    |field: &EncryptedField| field.shape().map(|shape| shape.map(|shape| shape.codes().into()));
                let shape: Option<Arc<[Vec<i64>]>> = match of_both(&after)? {
                    Some(shape) => Some(shape),
                    // Codes of another column would lie outside of the hierarchy, which P2 would see.
                    None if before.column != published.column => None,
                    None => encrypted.map(|field| of_both(&field)).transpose()?.flatten(),
                };
                // Every code of a level is a candidate of a lookup, and so is that of none.
                let shape = shape.filter(|shape| codes(shape).into_iter().all(|codes| codes < MAX_DOMAIN));
                let held = before.column == published.column;
                let bits = [before.width.bits(), bits];
                Ok(Self::Categories(Category { levels, bits, shape, held, counts: held && !generalised }))
            }
            _ if bits > lift::MAX_WIDTH => Ok(Self::Nothing("may have numbers of more than 32 bits".to_owned())),
            // What k_anonymize publishes has tags, what was masked has none.
            _ if published.computed && !published.tag => {
                Ok(Self::Nothing("was computed with after anonymising, and may lie beyond its bounds".to_owned()))
            }
            // Numbers beyond the original's bounds have no place on the grid. k_anonymize keeps bounds, and clear columns have none.
            _ if encrypted.is_some_and(|before| !before.has_bounds_of(&after)) => {
                Ok(Self::Nothing("has other bounds after anonymising".to_owned()))
            }
            source => Ok(Self::Numbers(source, bits)),
        }
    }
}

impl Category {
    /// Whether its frequencies are counted, for entropy.
    fn is_counted(&self) -> bool {
        let nodes = self.shape.as_ref().map_or(usize::MAX, |shape| codes(shape).iter().sum());
        self.counts && nodes <= MAX_NODES
    }

    /// How many codes every level below the root has; zero if nobody knows.
    fn below_root(&self) -> Vec<usize> {
        let levels = self.levels.saturating_sub(1);
        match &self.shape {
            Some(shape) => codes(shape).into_iter().take(levels).collect(),
            None => vec![0; levels],
        }
    }
}

impl Pair {
    /// Whether it is of numbers, which are not measured of more than [`MAX_ROWS`] rows.
    pub(super) fn is_of_numbers(&self) -> bool {
        matches!(self.measure, Measure::Numbers(..))
    }

    /// What it adds to the cost of a run.
    pub(super) fn add_to(&self, shape: &mut Shape) {
        match &self.measure {
            Measure::Nothing(_) => {}
            Measure::Numbers(..) if shape.rows > MAX_ROWS => {}
            Measure::Numbers(source, bits) => {
                shape.encrypted_bounds |= source.has_encrypted_bounds();
                shape.numbers.push(*bits);
            }
            Measure::Categories(category) => {
                shape.categories.push(category.below_root());
                if category.held {
                    shape.held.push(category.below_root());
                }
                if category.is_counted() {
                    shape.counted.push(category.below_root());
                }
            }
        }
    }

    /// The column of both tables, whose rows belong together.
    pub(super) fn measured(&self, original: &RecordBatch, anonymised: &RecordBatch) -> Result<Measured> {
        let (before, after) = (original.column(self.original), anonymised.column(self.anonymised));
        let has_nulls = |array: &ArrayRef| array.logical_null_count() > 0;
        if has_nulls(before) || has_nulls(after) {
            return Ok(Measured::Nothing("has NULLs".to_owned()));
        }
        Ok(match &self.measure {
            Measure::Nothing(why) => Measured::Nothing(why.clone()),
            Measure::Numbers(source, bits) => {
                let original = source.values(&self.name, before.clone())?;
                Measured::Numbers(Numbers { original, published: after.clone(), bits: *bits })
            }
            Measure::Categories(category) => {
                let Category { levels, bits: [ours, theirs], shape, held, .. } = category;
                let column = |cells: &ArrayRef, bits: u32| {
                    let (cells, shape) = (cells.clone(), shape.clone());
                    Published { cells, levels: *levels, bits, shape }
                };
                let published = column(after, *theirs);
                let both = held.then(|| Frequencies { original: column(before, *ours), published: published.clone() });
                Measured::Categories(Categories { published, both, is_counted: category.is_counted() })
            }
        })
    }
}

/// How many codes every level of a hierarchy has, the root included.
fn codes(shape: &[Vec<i64>]) -> Vec<usize> {
    let levels = shape.first().map_or(0, Vec::len);
    let of_level = |level: usize| {
        let mut codes: Vec<i64> = shape.iter().filter_map(|leaf| leaf.get(level).copied()).collect();
        codes.sort_unstable();
        codes.dedup();
        codes.len()
    };
    (0..levels).map(of_level).collect()
}
