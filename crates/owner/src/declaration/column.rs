//! One `[column.NAME]` section, checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use veil_cells::{MAX_LANES, TimeUnit, Width};
use veil_privacy::{Hierarchy, Spacing};

use super::{ColumnDeclaration, ColumnKind, MAX_TEXT};
use crate::OwnerError;
use crate::codec::{NumberFormat, NumberKind};
use crate::hierarchy_file::read_hierarchy;

/// The section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawColumn {
    kind: RawKind,
    identifier: Option<bool>,
    hide_nulls: Option<bool>,
    range: Option<[toml::Value; 2]>,
    public_range: Option<bool>,
    scale: Option<u8>,
    unit: Option<TimeUnit>,
    values: Option<Vec<String>>,
    max_length: Option<usize>,
    hierarchy: Option<PathBuf>,
    spacing: Option<RawSpacing>,
    hide_shape: Option<bool>,
    weight: Option<f64>,
    r#type: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum RawKind {
    Clear,
    Integer,
    Decimal,
    Date,
    Timestamp,
    Boolean,
    Binary,
    Text,
    Category,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawSpacing {
    Even,
    Apart,
}

/// What is wrong with a section.
pub(super) enum Fault {
    Here(String),
    Attachment(OwnerError),
}

fn fault<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Here(what.into()))
}

impl RawColumn {
    /// What the section says, or what is wrong with it.
    pub(super) fn check(mut self, folder: &Path, hide_nulls: bool) -> Result<ColumnDeclaration, Fault> {
        self.refuse_foreign_keys()?;
        let kind = match self.kind {
            RawKind::Clear => self.clear()?,
            RawKind::Integer | RawKind::Decimal | RawKind::Date | RawKind::Timestamp | RawKind::Boolean => {
                self.number()?
            }
            RawKind::Binary => self.binary()?,
            RawKind::Text => match self.max_length {
                Some(length) if (1..=MAX_TEXT).contains(&length) => ColumnKind::Text(length),
                _ => return fault(format!("a text needs max_length, from 1 to {MAX_TEXT} bytes")),
            },
            RawKind::Category => self.category(folder)?,
        };
        let weight = self.weight.unwrap_or(1.0);
        if !(0.001..=1000.0).contains(&weight) {
            return fault(format!("weight is {weight}, and may be from 0.001 to 1000"));
        }
        Ok(ColumnDeclaration {
            kind,
            identifier: self.identifier.unwrap_or(false),
            hide_nulls: self.hide_nulls.unwrap_or(hide_nulls),
            public_range: self.public_range.unwrap_or(false),
            hide_shape: self.hide_shape.unwrap_or(false),
            weight: (weight * 1000.0).round() as u32,
        })
    }

    /// A key that means nothing for this kind is a misunderstanding worth an error.
    fn refuse_foreign_keys(&self) -> Result<(), Fault> {
        use RawKind::*;
        let numbers = [Integer, Decimal, Date, Timestamp];
        let given = [
            (
                "identifier",
                self.identifier.is_some(),
                &[Integer, Decimal, Date, Timestamp, Boolean, Binary, Text, Category][..],
            ),
            (
                "hide_nulls",
                self.hide_nulls.is_some(),
                &[Integer, Decimal, Date, Timestamp, Boolean, Binary, Text, Category],
            ),
            ("range", self.range.is_some(), &numbers),
            ("public_range", self.public_range.is_some(), &numbers),
            ("scale", self.scale.is_some(), &[Decimal]),
            ("unit", self.unit.is_some(), &[Timestamp]),
            ("values", self.values.is_some(), &[Binary, Category]),
            ("max_length", self.max_length.is_some(), &[Text]),
            ("hierarchy", self.hierarchy.is_some(), &[Category]),
            ("spacing", self.spacing.is_some(), &[Category]),
            ("hide_shape", self.hide_shape.is_some(), &[Category]),
            ("type", self.r#type.is_some(), &[Clear]),
            ("weight", self.weight.is_some(), &[Integer, Decimal, Date, Timestamp, Boolean, Binary, Category]),
        ];
        match given.iter().find(|(_, given, kinds)| *given && !kinds.contains(&self.kind)) {
            None => Ok(()),
            Some((key, _, kinds)) => {
                let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind:?}").to_lowercase()).collect();
                let kind = format!("{:?}", self.kind).to_lowercase();
                fault(format!("`{key}` means nothing for kind {kind}; it belongs to {}", kinds.join(", ")))
            }
        }
    }

    fn clear(&self) -> Result<ColumnKind, Fault> {
        let name = self.r#type.as_deref().unwrap_or("Utf8");
        match name.parse() {
            Ok(data_type) => Ok(ColumnKind::Clear(data_type)),
            Err(_) => fault(format!(
                "type `{name}` is not an Arrow type; use one such as Utf8, Int64, Float64, Date32, Boolean"
            )),
        }
    }

    fn number(&self) -> Result<ColumnKind, Fault> {
        let kind = match self.kind {
            RawKind::Integer => NumberKind::Integer,
            RawKind::Decimal => match self.scale {
                Some(scale @ 0..=9) => NumberKind::Decimal(scale),
                _ => return fault("a decimal needs scale, its decimal places, from 0 to 9"),
            },
            RawKind::Date => NumberKind::Date,
            RawKind::Timestamp => NumberKind::Timestamp(self.unit.unwrap_or_default()),
            _ => {
                return Ok(ColumnKind::Number { format: NumberFormat(NumberKind::Boolean), low: 0, high: 1 });
            }
        };
        let format = NumberFormat(kind);
        let Some([low, high]) = &self.range else {
            return fault("it needs range = [smallest, largest]; the range itself is encrypted");
        };
        let bound = |value: &toml::Value| {
            let text = match value {
                toml::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            format.parse(&text).map_err(|why| Fault::Here(format!("range: `{text}` {why}")))
        };
        let (low, high) = (bound(low)?, bound(high)?);
        if low > high {
            return fault(format!("range: {} lies above {}", format.print(low), format.print(high)));
        }
        if Width::of_range(low, high).is_none() {
            return fault(match kind {
                NumberKind::Decimal(_) => "range is beyond 32 bits after scaling; use a smaller scale or range",
                NumberKind::Timestamp(_) => "range is beyond 32 bits; use unit = \"minute\" or \"hour\"",
                _ => "range is beyond 32 bits; use a smaller range, or kind text for a number that is only a name",
            });
        }
        Ok(ColumnKind::Number { format, low, high })
    }

    fn binary(&mut self) -> Result<ColumnKind, Fault> {
        match self.values.take().map(<[String; 2]>::try_from) {
            Some(Ok(labels)) if labels[0] != labels[1] => Ok(ColumnKind::Binary(labels)),
            _ => fault("a binary column needs values = [\"one\", \"other\"], two different labels"),
        }
    }

    fn category(&mut self, folder: &Path) -> Result<ColumnKind, Fault> {
        let spacing = match self.spacing {
            Some(RawSpacing::Apart) => Spacing::Apart,
            Some(RawSpacing::Even) | None => Spacing::Even,
        };
        let hierarchy = match (&self.hierarchy, &self.values) {
            (Some(file), None) => read_hierarchy(&folder.join(file)).map_err(Fault::Attachment)?,
            (None, Some(values)) => Hierarchy::flat(values).map_err(|error| Fault::Here(format!("values: {error}")))?,
            _ => return fault("a category needs either hierarchy = \"file.csv\" or values = [..]"),
        };
        if hierarchy.level_count() > MAX_LANES - 2 {
            return fault(format!("a hierarchy has at most {} levels", MAX_LANES - 2));
        }
        hierarchy.representatives(spacing).map_err(|error| Fault::Here(format!("hierarchy: {error}")))?;
        Ok(ColumnKind::Category(Arc::new(hierarchy), spacing))
    }
}
