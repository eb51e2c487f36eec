//! What only key holders may read about a column: labels, hierarchy, the type it had. JSON, sealed into the field's
//! metadata, so that it follows the column through projections and copies.

use arrow::datatypes::{DataType, Field};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use veil_cells::{CellType, Kind, SEALED_METADATA_KEY, TimeUnit};
use veil_keys::{KeyError, SealKey};
use veil_privacy::{Hierarchy, Spacing};

/// The note.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnNote {
    /// How messages become values. Repeats the public type, which nothing authenticates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meaning: Option<(Kind, u8, TimeUnit)>,
    /// The Arrow type of the input, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// Labels of a binary column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<[String; 2]>,
    /// Paths of a category, leaf first, root last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hierarchy: Vec<Vec<String>>,
    /// Whether its leaves lie apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    apart: bool,
}

impl ColumnNote {
    /// Remembers how messages become values.
    pub fn with_type(mut self, cell_type: &CellType) -> Self {
        self.meaning = Some(meaning(cell_type));
        self
    }

    /// Whether a public type is the one that the column was encrypted with.
    pub fn agrees_with(&self, cell_type: &CellType) -> bool {
        self.meaning.is_none_or(|expected| expected == meaning(cell_type))
    }

    /// Remembers the type of the input.
    pub fn with_source(mut self, source: Option<&DataType>) -> Self {
        self.source = source.map(DataType::to_string);
        self
    }

    /// Remembers the two labels.
    pub fn with_labels(mut self, labels: &[String; 2]) -> Self {
        self.labels = Some(labels.clone());
        self
    }

    /// Remembers the hierarchy.
    pub fn with_hierarchy(mut self, hierarchy: &Hierarchy, spacing: Spacing) -> Self {
        self.hierarchy = hierarchy.rows().map(|row| row.into_iter().map(str::to_owned).collect()).collect();
        self.apart = spacing == Spacing::Apart;
        self
    }

    /// The type of the input.
    pub fn source(&self) -> Option<DataType> {
        self.source.as_deref().and_then(|source| source.parse().ok())
    }

    /// The hierarchy, if the column is a category.
    pub fn hierarchy(&self) -> Option<(Hierarchy, Spacing)> {
        let spacing = if self.apart { Spacing::Apart } else { Spacing::Even };
        Some((Hierarchy::from_rows(&self.hierarchy).ok()?, spacing))
    }

    /// The text for the field's metadata.
    pub fn seal(&self, key: &SealKey, cell_type: &CellType) -> Result<String, KeyError> {
        let note = serde_json::to_vec(self).map_err(|_| KeyError::Unsealable(cell_type.column))?;
        Ok(STANDARD.encode(key.seal(cell_type.key, cell_type.column, &note)?))
    }

    /// Opens the note in a field's metadata; a field without one has an empty note.
    pub fn open(key: &SealKey, cell_type: &CellType, field: &Field) -> Result<Self, KeyError> {
        let Some(text) = field.metadata().get(SEALED_METADATA_KEY) else {
            return Ok(Self::default());
        };
        let unsealable = || KeyError::Unsealable(cell_type.column);
        let sealed = STANDARD.decode(text).map_err(|_| unsealable())?;
        let note = key.open(cell_type.key, cell_type.column, &sealed)?;
        serde_json::from_slice(&note).map_err(|_| unsealable())
    }
}

fn meaning(cell_type: &CellType) -> (Kind, u8, TimeUnit) {
    (cell_type.kind, cell_type.scale, cell_type.unit)
}
