//! What is compared of a column: tags where there are any, else values; of a clear column labels that P1 makes up.

use std::collections::HashMap;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{Field, FieldRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::plan_err;
use datafusion::error::Result;
use rand::CryptoRng;
use veil_cells::{CellType, ColumnId, KeyId, Kind};
use veil_protocols::identifiers::{Column, Values};
use veil_protocols::lift;
use veil_slots::plain;
use veil_udfs::EncryptedField;

use super::{Comparison, Question};

/// How a column takes part.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// By equality tags: those of this column of the owner's.
    Tags(KeyId, ColumnId),
    /// By its encrypted values.
    Values(KeyId, Values),
    /// P1 sees it.
    Clear(FieldRef),
}

impl Source {
    pub(super) fn of(field: &FieldRef, question: &Question) -> Result<Self> {
        Self::compared(field, question.comparison == Comparison::Tags && !question.shuffle)
    }

    fn compared(field: &FieldRef, only_tags: bool) -> Result<Self> {
        let name = field.name();
        if CellType::is_only_named_in(field) {
            return plan_err!(
                "{name} is encrypted and has lost its type: read it through a session built with `with_veil`"
            );
        }
        let Some(encrypted) = EncryptedField::of(field)? else { return Ok(Self::Clear(field.clone())) };
        if encrypted.cell_type.tag {
            return Ok(Self::Tags(encrypted.cell_type.key, encrypted.cell_type.column));
        }
        if only_tags {
            return plan_err!(
                "{name} has no equality tag, since it was computed or not declared with identifier = true: leave out shuffle => false, \
                 or use method => 'pairwise'; both compare values"
            );
        }
        Ok(Self::Values(encrypted.cell_type.key, values(name, &encrypted)?))
    }

    /// As it takes part where labels are shuffled.
    pub(crate) fn shuffled(field: &FieldRef) -> Result<Self> {
        Self::compared(field, false)
    }

    /// As it takes part where rows are alike if their values are: classes of k_anonymize that publish the same are one.
    pub(crate) fn published(field: &FieldRef) -> Result<Self> {
        match EncryptedField::of(field)? {
            Some(encrypted) if encrypted.cell_type.tag && encrypted.cell_type.computed => {
                Ok(Self::Values(encrypted.cell_type.key, values(field.name(), &encrypted)?))
            }
            _ => Self::shuffled(field),
        }
    }

    /// Whose keys it is encrypted with.
    pub(crate) fn key(&self) -> Option<KeyId> {
        match self {
            Self::Tags(key, _) | Self::Values(key, _) => Some(*key),
            Self::Clear(_) => None,
        }
    }

    /// Vectors that it takes for every 8192 rows.
    pub(crate) fn lanes(&self) -> usize {
        match self {
            Self::Tags(..) => 1,
            Self::Values(_, values) => values.lanes,
            Self::Clear(_) => 0,
        }
    }

    /// The column as rounds take it.
    pub(crate) fn column(&self, array: ArrayRef, rng: &mut impl CryptoRng) -> Result<Column> {
        Ok(match self {
            Self::Tags(..) => Column::Tags(array),
            Self::Values(_, values) => Column::Values(array, *values),
            Self::Clear(field) => Column::Clear(labels(field, array, rng)?),
        })
    }
}

/// Which lanes hold the value, and how wide they are.
fn values(name: &str, encrypted: &EncryptedField) -> Result<Values> {
    let cell_type = &encrypted.cell_type;
    if cell_type.places > 0 {
        return plan_err!("{name} is an average and cannot be compared: compare what it was computed from");
    }
    if encrypted.hides_nulls() {
        return plan_err!(
            "{name} hides its NULLs and has no equality tag, so that its values cannot be compared: declare it with identifier = true"
        );
    }
    let bits = cell_type.width.bits();
    if bits > lift::MAX_WIDTH && cell_type.kind != Kind::Text {
        return plan_err!(
            "{name} may have numbers of more than {} bits, too large to be compared: compare what it was computed from",
            lift::MAX_WIDTH
        );
    }
    Ok(Values { lanes: cell_type.lanes.into(), bits, fraction_bits: cell_type.fraction_bits.into() })
}

/// A random number for every distinct value; a NULL equals a NULL.
fn labels(field: &Field, array: ArrayRef, rng: &mut impl CryptoRng) -> Result<Vec<u64>> {
    let converter = RowConverter::new(vec![SortField::new(field.data_type().clone())])?;
    let rows = converter.convert_columns(&[array])?;
    let mut known: HashMap<&[u8], u64> = HashMap::new();
    let mut labels = Vec::with_capacity(rows.num_rows());
    for row in 0..rows.num_rows() {
        let value = rows.row(row).data();
        labels.push(*known.entry(value).or_insert_with(|| plain::uniform(rng)));
    }
    Ok(labels)
}
