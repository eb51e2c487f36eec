//! What is measured of each column of an original and its anonymised table.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::plan_err;
use datafusion::error::Result;
use veil_cells::{CellType, Kind};
use veil_protocols::assess::{Frequencies, MAX_NODES, Numbers, Published, Shape};
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
    bits: u32,
    shape: Option<Arc<[Vec<i64>]>>,
    /// Whether both columns are of one hierarchy, the original one as the owner encrypted it.
    counts: bool,
}

/// A column as rounds take it.
pub(super) enum Measured {
    Numbers(Numbers),
    Categories(Published, Option<Frequencies>),
    Nothing(String),
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
            (ours.kind, ours.scale, ours.unit) == (theirs.kind, theirs.scale, theirs.unit)
        };
        if !same(&before, published) || after.hides_nulls() {
            return Ok(Self::Nothing("is of another kind after anonymising".to_owned()));
        }
        let noisy = published.spent > 0 && !matches!(published.kind, Kind::Boolean | Kind::Binary);
        if noisy || published.places > 0 || published.fraction_bits > 0 {
            return Ok(Self::Nothing("carries noise or a fraction, which may lie anywhere".to_owned()));
        }
        let bits = published.width.bits();
        match source {
            Source::Categories { levels, generalised, .. } => {
                let of_both =
                    |field: &EncryptedField| field.shape().map(|shape| shape.map(|shape| shape.codes().into()));
                let shape: Option<Arc<[Vec<i64>]>> = match of_both(&after)? {
                    Some(shape) => Some(shape),
                    // Codes of another column would lie outside of the hierarchy, which P2 would see.
                    None if before.column != published.column => None,
                    None => EncryptedField::of(original)?.map(|field| of_both(&field)).transpose()?.flatten(),
                };
                // Every code of a level is a candidate of a lookup, and so is that of none.
                let shape = shape.filter(|shape| codes(shape).into_iter().all(|codes| codes < MAX_DOMAIN));
                let counts = !generalised && before.column == published.column && published.spent == 0;
                Ok(Self::Categories(Category { levels, bits, shape, counts }))
            }
            _ if bits > lift::MAX_WIDTH => Ok(Self::Nothing("may have numbers of more than 32 bits".to_owned())),
            // What k_anonymize publishes has tags, what was masked has none.
            _ if published.computed && !published.tag => {
                Ok(Self::Nothing("was computed with after anonymising, and may lie beyond its bounds".to_owned()))
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
    /// What it adds to the cost of a run.
    pub(super) fn add_to(&self, shape: &mut Shape) {
        match &self.measure {
            Measure::Nothing(_) => {}
            Measure::Numbers(source, bits) => {
                shape.encrypted_bounds |= source.has_encrypted_bounds();
                shape.numbers.push(*bits);
            }
            Measure::Categories(category) => {
                shape.categories.push(category.below_root());
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
                let Category { levels, bits, shape, .. } = category;
                let column = |cells: &ArrayRef| {
                    let (cells, shape) = (cells.clone(), shape.clone());
                    Published { cells, levels: *levels, bits: *bits, shape }
                };
                let counted =
                    category.is_counted().then(|| Frequencies { original: column(before), published: column(after) });
                Measured::Categories(column(after), counted)
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
