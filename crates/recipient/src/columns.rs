//! What the header says about columns: how messages become values, and the schema of the result.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use veil_cells::{CellError, CellType};
use veil_keys::KeyError;
use veil_owner::{ColumnCodec, ColumnNote, suppressed};
use veil_release::{Header, HeaderColumn};

use crate::RecipientError;

/// The columns of a release.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) names: Vec<String>,
    /// For every encrypted column how it is decoded.
    pub(crate) codecs: Vec<Option<ColumnCodec>>,
    /// Which columns tell the rows that are suppressed.
    pub(crate) flags: Vec<usize>,
}

impl Columns {
    /// Of a header.
    pub(crate) fn new(header: Header) -> Result<Self, RecipientError> {
        let (mut names, mut codecs) = (Vec::new(), Vec::new());
        for HeaderColumn { name, encrypted } in header.columns {
            let codec = encrypted.map(|(cell_type, note)| codec(&name, &cell_type, note)).transpose();
            let codec = codec.map_err(|source| RecipientError::Column { number: 0, column: name.clone(), source })?;
            names.push(name);
            codecs.push(codec);
        }
        let flags = suppressed::flags(&codecs);
        Ok(Self { names, codecs, flags })
    }

    /// The fields of all columns, flags included, once the types of clear columns are known.
    pub(crate) fn all(&self, clear: impl Fn(usize) -> Option<DataType>) -> Option<SchemaRef> {
        let fields = self.names.iter().zip(&self.codecs).enumerate().map(|(place, (name, codec))| match codec {
            Some(codec) => Some(codec.clear_field(name)),
            None => Some(Field::new(name, clear(place)?, true)),
        });
        Some(Arc::new(Schema::new(fields.collect::<Option<Vec<_>>>()?)))
    }

    /// The fields that the recipient gets.
    pub(crate) fn kept(&self, all: &Schema) -> Result<SchemaRef, RecipientError> {
        Ok(Arc::new(suppressed::without_flags(all, &self.flags)?))
    }
}

/// As a field, the type is checked as a file's is: whoever sealed the header may be anybody until the manifest says who.
fn codec(name: &str, cell_type: &CellType, note: serde_json::Value) -> Result<ColumnCodec, KeyError> {
    let checked = CellType::of_field(&cell_type.field(name)?)?;
    let wrong = |text: &str| CellError::NotACellColumn(text.to_owned());
    let checked = checked.ok_or_else(|| wrong("its type is none"))?;
    if checked.fraction_bits > 0 {
        return Err(wrong("it has places below its unit").into());
    }
    let note: ColumnNote = serde_json::from_value(note).map_err(|_| wrong("the owner's note about it is damaged"))?;
    ColumnCodec::of_note(CellType { tag: false, ..checked }, note)
}
