//! The Arrow extension type `veil.cell`.
//!
//! An encrypted column is an Arrow `Binary`, `LargeBinary` or `BinaryView` field whose extension metadata
//! is a small JSON object: only what the untrusted engine must know to plan. The header inside each cell
//! is the truth; this is a hint that readers check against it.

use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;
use arrow_schema::extension::ExtensionType;
use serde::{Deserialize, Serialize};

use crate::{CellError, ColumnId, KeyId, Lanes};

/// The version of the metadata that this program writes.
pub const TYPE_VERSION: u8 = 2;

/// The version since which tags are numbers modulo [`TAG_MODULUS`](crate::TAG_MODULUS).
const FIRST_TAG_VERSION: u8 = 2;

/// The most binary places below the unit.
const MAX_FRACTION_BITS: u32 = 40;

/// Field metadata: what only key holders may read about a column (labels, hierarchy, original type),
/// sealed and in base64.
pub const SEALED_METADATA_KEY: &str = "veil.sealed";

/// What a column's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A whole number.
    Integer,
    /// A number with a fixed count of decimal places.
    Decimal,
    /// Days.
    Date,
    /// Seconds, minutes or hours.
    Timestamp,
    /// True or false.
    Boolean,
    /// One of two labels.
    Binary,
    /// UTF-8, padded to a fixed length.
    Text,
    /// A leaf of a generalisation hierarchy, one lane a level.
    Category,
}

impl Kind {
    /// Whether cells of this kind can be added and scaled.
    pub fn is_number(self) -> bool {
        !matches!(self, Self::Text | Self::Category)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Integer => "integer",
            Self::Decimal => "decimal",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::Boolean => "boolean",
            Self::Binary => "binary",
            Self::Text => "text",
            Self::Category => "category",
        })
    }
}

/// The step of a timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// One second.
    #[default]
    Second,
    /// Sixty seconds.
    Minute,
    /// 3600 seconds.
    Hour,
}

impl TimeUnit {
    /// Its length.
    pub fn seconds(self) -> i64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        }
    }
}

/// What a column is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Its values are data.
    #[default]
    Data,
    /// It is true for rows that are not to be published. Whoever decrypts leaves these out, and the column with them.
    Suppressed,
}

/// Whether the engine can see which rows are NULL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nulls {
    /// A NULL is an Arrow null.
    #[default]
    Public,
    /// A NULL is a cell like any other.
    Hidden,
}

/// Bits of a message lane, in steps so coarse that they say little about the data. A number of width `w` lies
/// in `[-2^(w-1), 2^(w-1))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Width(u8);

impl Width {
    const NUMBERS: [u8; 5] = [8, 12, 16, 24, 32];

    /// The fewest bits.
    pub const NARROWEST: Self = Self(8);

    /// A whole lane: text.
    pub const FULL: Self = Self(48);

    /// The smallest width whose numbers include both.
    pub fn of_range(low: i64, high: i64) -> Option<Self> {
        Self::NUMBERS.map(Self).into_iter().find(|width| width.contains(low) && width.contains(high))
    }

    /// Its bits.
    pub fn bits(self) -> u32 {
        self.0.into()
    }

    /// Whether a number has this width.
    pub fn contains(self, number: i64) -> bool {
        let half = 1i64 << (self.0 - 1);
        (-half..half).contains(&number)
    }

    /// The largest absolute value.
    pub fn magnitude(self) -> u64 {
        (1u64 << (self.0 - 1)).min(crate::parameters::MAX_MAGNITUDE)
    }
}

impl From<Width> for u8 {
    fn from(width: Width) -> Self {
        width.0
    }
}

impl TryFrom<u8> for Width {
    type Error = CellError;

    fn try_from(bits: u8) -> Result<Self, CellError> {
        match bits {
            8 | 12 | 16 | 24 | 32 | 48 => Ok(Self(bits)),
            _ => Err(CellError::Malformed(format!("{bits} bits is not a width of a lane (8, 12, 16, 24, 32 or 48)"))),
        }
    }
}

/// How noise was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// Laplace noise in steps of the unit.
    Laplace,
    /// Two-sided geometric noise.
    Geometric,
    /// A truth value, flipped at times.
    Binary,
    /// A category, replaced by a similar one: levels of the hierarchy count.
    ExponentialHierarchy,
    /// A category, replaced by a similar one: places in the order of leaves count.
    ExponentialOrder,
    /// A category, replaced by a similar one: all others are alike.
    ExponentialEquality,
    /// A category, replaced by any other at times.
    RandomizedResponse,
}

/// Noise of P1 that P2 repeats independently at the release: whoever knows the one does not know the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JointNoise {
    /// How it is drawn.
    pub mechanism: Mechanism,
    /// Its epsilon, in millionths.
    pub epsilon: u64,
}

/// The public type of an encrypted column.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellType {
    /// The version of this object.
    pub version: u8,
    /// What the values are.
    pub kind: Kind,
    /// Bits of a value lane.
    pub width: Width,
    /// Decimal places of a decimal.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scale: u8,
    /// The step of a timestamp.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unit: TimeUnit,
    /// Binary places below the unit, which a decryption rounds away.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fraction_bits: u8,
    /// Lanes of the value.
    pub lanes: u8,
    /// How NULLs are kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub nulls: Nulls,
    /// What the column is for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub role: Role,
    /// The run in which rows were suppressed, or zero: the column of that role and run, which must not be lost, tells which rows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub withheld: u64,
    /// Whether there is an equality tag.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tag: bool,
    /// Smallest and largest value, where the owner declared them public.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bounds: Option<(i64, i64)>,
    /// Weight of the column in distances, in thousandths.
    #[serde(default = "one_thousand", skip_serializing_if = "is_one_thousand")]
    pub weight: u32,
    /// Decimal places that a quotient is rounded to; part of the scale.
    #[serde(default, skip_serializing_if = "is_default")]
    pub places: u8,
    /// Whether values were computed: they may lie outside of the owner's type, and hidden NULLs need not be zero.
    #[serde(default, skip_serializing_if = "is_default")]
    pub computed: bool,
    /// Differential privacy spent on the column so far, in millionths of epsilon.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spent: u64,
    /// Whether some values may have no noise, though others have: what is spent is the most that any has.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mixed: bool,
    /// Noise that P2 still has to add when the column is released.
    #[serde(default, skip_serializing_if = "is_default")]
    pub awaits: Vec<JointNoise>,
    /// The key set.
    pub key: KeyId,
    /// The column's name under that key set.
    pub column: ColumnId,
}

impl CellType {
    /// A column of this kind: public NULLs, no tag, everything else at its default.
    pub fn new(kind: Kind, width: Width, lanes: u8, key: KeyId, column: ColumnId) -> Self {
        Self {
            version: TYPE_VERSION,
            kind,
            width,
            scale: 0,
            unit: TimeUnit::default(),
            fraction_bits: 0,
            lanes,
            nulls: Nulls::default(),
            role: Role::default(),
            withheld: 0,
            tag: false,
            bounds: None,
            weight: one_thousand(),
            places: 0,
            computed: false,
            spent: 0,
            mixed: false,
            awaits: Vec::new(),
            key,
            column,
        }
    }

    /// In which runs rows of a column were suppressed that is made of two: one number for both, whichever comes first.
    pub fn withheld_in(ours: u64, theirs: u64) -> u64 {
        match (ours.min(theirs), ours.max(theirs)) {
            (0, run) => run,
            (one, other) if one == other => one,
            // FNV-1a of both, within what JSON's readers take for whole numbers.
            (one, other) => {
                let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                let hash = [one, other].into_iter().flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, step);
                (hash >> 12).max(1)
            }
        }
    }

    /// Whether every value has noise.
    pub fn is_noised(&self) -> bool {
        self.spent > 0 && !self.mixed
    }

    /// Whether a column that is made of two has values with noise and others without.
    pub fn mixes_noise(ours: &Self, theirs: &Self) -> bool {
        (ours.spent > 0 || theirs.spent > 0) && !(ours.is_noised() && theirs.is_noised())
    }

    /// The lanes that every cell of the column has when it is fresh.
    pub fn cell_lanes(&self) -> Lanes {
        Lanes { value: self.lanes, nulls: self.nulls == Nulls::Hidden, tag: self.tag }
    }

    /// Reads the type of a field: `None` if the field is not an encrypted column.
    pub fn of_field(field: &Field) -> Result<Option<Self>, CellError> {
        if field.extension_type_name() != Some(Self::NAME) {
            return Ok(None);
        }
        let read = Self::deserialize_metadata(field.extension_type_metadata())
            .and_then(|cell_type| Self::try_new(field.data_type(), cell_type));
        match read {
            Ok(cell_type) => Ok(Some(cell_type)),
            Err(ArrowError::ExternalError(error)) => match error.downcast::<CellError>() {
                Ok(error) => Err(*error),
                Err(error) => Err(ArrowError::ExternalError(error).into()),
            },
            Err(error) => Err(CellError::NotACellColumn(format!("column {}: {error}", field.name()))),
        }
    }

    /// Whether a field is called an encrypted column and does not say of what type.
    pub fn is_only_named_in(field: &Field) -> bool {
        field.extension_type_name() == Some(Self::NAME) && field.extension_type_metadata().is_none()
    }

    /// The field of a column of this type.
    pub fn field(&self, name: &str) -> Result<Field, CellError> {
        let mut field = Field::new(name, DataType::Binary, self.nulls == Nulls::Public);
        field.try_with_extension_type(self.clone())?;
        Ok(field)
    }
}

impl ExtensionType for CellType {
    const NAME: &'static str = "veil.cell";

    type Metadata = Self;

    fn metadata(&self) -> &Self {
        self
    }

    fn serialize_metadata(&self) -> Option<String> {
        serde_json::to_string(self).ok()
    }

    fn deserialize_metadata(metadata: Option<&str>) -> Result<Self, ArrowError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u8,
        }
        let text = metadata.ok_or_else(|| ArrowError::InvalidArgumentError("veil.cell without metadata".to_owned()))?;
        let refused =
            |error| ArrowError::InvalidArgumentError(format!("veil.cell metadata is not understood: {error}"));
        let Versioned { version } = serde_json::from_str(text).map_err(refused)?;
        if version > TYPE_VERSION {
            let what = "the column's type";
            return Err(CellError::FromTheFuture { what, found: version, supported: TYPE_VERSION }.into());
        }
        let read: Self = serde_json::from_str(text).map_err(refused)?;
        // Tags were other numbers once, and would compare wrongly.
        match read.version < FIRST_TAG_VERSION && read.tag {
            true => {
                Err(refused(serde::de::Error::custom("its equality tags are of an older kind; encrypt the file again")))
            }
            false => Ok(read),
        }
    }

    fn supports_data_type(&self, data_type: &DataType) -> Result<(), ArrowError> {
        match data_type {
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Ok(()),
            other => Err(ArrowError::InvalidArgumentError(format!(
                "veil.cell is stored as Binary, LargeBinary or BinaryView, not {other}"
            ))),
        }
    }

    fn try_new(data_type: &DataType, metadata: Self) -> Result<Self, ArrowError> {
        metadata.supports_data_type(data_type)?;
        if !metadata.cell_lanes().is_valid() || metadata.kind.is_number() && metadata.lanes != 1 {
            let text = format!("a {} column cannot have {} value lanes", metadata.kind, metadata.lanes);
            return Err(ArrowError::InvalidArgumentError(text));
        }
        if u32::from(metadata.fraction_bits) > MAX_FRACTION_BITS {
            let text = format!("a column cannot have {} binary places", metadata.fraction_bits);
            return Err(ArrowError::InvalidArgumentError(text));
        }
        Ok(metadata)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn one_thousand() -> u32 {
    1000
}

fn is_one_thousand(weight: &u32) -> bool {
    *weight == 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age() -> CellType {
        let width = Width::of_range(0, 120).unwrap();
        CellType { tag: true, ..CellType::new(Kind::Integer, width, 1, KeyId([0xab; 8]), ColumnId([0xcd; 8])) }
    }

    #[test]
    fn the_metadata_is_pinned() {
        let json = r#"{"version":2,"kind":"integer","width":8,"lanes":1,"tag":true,"key":"abababababababab","column":"cdcdcdcdcdcdcdcd"}"#;
        assert_eq!(age().serialize_metadata().unwrap(), json);
        assert_eq!(CellType::deserialize_metadata(Some(json)).unwrap(), age());
    }

    #[test]
    fn fields_carry_the_type() {
        for data_type in [DataType::Binary, DataType::LargeBinary, DataType::BinaryView] {
            let field = age().field("age").unwrap().with_data_type(data_type);
            assert_eq!(CellType::of_field(&field).unwrap(), Some(age()));
        }
        assert_eq!(CellType::of_field(&Field::new("plain", DataType::Binary, true)).unwrap(), None);
        let wrong = age().field("age").unwrap().with_data_type(DataType::Utf8);
        assert!(CellType::of_field(&wrong).is_err());
    }

    #[test]
    fn a_column_is_noised_if_all_of_its_values_are() {
        let (raw, noised) = (age(), CellType { spent: 5, ..age() });
        let mixed = CellType { mixed: true, ..noised.clone() };
        assert!(noised.is_noised() && !raw.is_noised() && !mixed.is_noised());
        assert!(!CellType::mixes_noise(&raw, &raw) && !CellType::mixes_noise(&noised, &noised));
        for other in [&raw, &mixed] {
            assert!(CellType::mixes_noise(&noised, other) && CellType::mixes_noise(other, &noised));
        }
        assert!(CellType::mixes_noise(&mixed, &raw));
        let json = mixed.serialize_metadata().unwrap();
        assert!(json.contains(r#""spent":5,"mixed":true"#), "{json}");
        assert_eq!(CellType::deserialize_metadata(Some(&json)).unwrap(), mixed);
    }

    #[test]
    fn unknown_and_future_metadata_is_refused() {
        let json = age().serialize_metadata().unwrap();
        let future = json.replace("\"version\":2", "\"version\":3,\"shape\":3");
        let mut field = age().field("age").unwrap();
        let mut metadata = field.metadata().clone();
        metadata.insert("ARROW:extension:metadata".to_owned(), future);
        field.set_metadata(metadata);
        let error = CellType::of_field(&field).unwrap_err();
        assert!(matches!(error, CellError::FromTheFuture { found: 3, .. }), "{error}");
        // Version 1 is read, but for tags.
        let old = json.replace("\"version\":2", "\"version\":1");
        let error = CellType::deserialize_metadata(Some(&old)).unwrap_err().to_string();
        assert!(error.contains("its equality tags are of an older kind; encrypt the file again"), "{error}");
        assert!(CellType::deserialize_metadata(Some(&old.replace(",\"tag\":true", ""))).is_ok());
        for (good, bad) in [
            ("integer", "complex"),
            ("\"width\":8", "\"width\":9"),
            ("\"lanes\":1", "\"lanes\":2"),
            ("\"tag\"", "\"gat\""),
            ("\"lanes\":1", "\"fraction_bits\":41,\"lanes\":1"),
        ] {
            let json = json.replace(good, bad);
            let read =
                CellType::deserialize_metadata(Some(&json)).and_then(|t| CellType::try_new(&DataType::Binary, t));
            assert!(read.is_err(), "{json}");
        }
    }

    #[test]
    fn widths_are_the_next_step() {
        let bits = |low, high| Width::of_range(low, high).map(Width::bits);
        assert_eq!(bits(0, 120), Some(8));
        assert_eq!(bits(0, 128), Some(12));
        assert_eq!(bits(-128, 127), Some(8));
        assert_eq!(bits(0, 25_000_000), Some(32));
        assert_eq!(bits(i64::from(i32::MIN), i64::from(i32::MAX)), Some(32));
        assert_eq!(bits(0, 1 << 31), None);
    }
}
