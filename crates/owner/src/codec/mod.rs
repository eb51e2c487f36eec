//! Between a column's values and the messages in its cells.
//!
//! A codec is made from a declaration to encrypt, or from an encrypted field and its sealed note to decrypt. Values come in as
//! any Arrow type that prints as the declaration expects; they go out in the type they came in, or in the natural one of
//! their kind if they came from CSV.

mod category;
mod number;
#[cfg(test)]
mod round_trip;
mod text;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{CastOptions, can_cast_types, cast, cast_with_options};
use arrow::datatypes::{DataType, Date64Type, Field, Int64Type};
use arrow::util::display::array_value_to_string;
use veil_cells::{
    CONSTANTS_METADATA_KEY, CategoryShape, CellError, CellType, ColumnConstants, Kind, Nulls, SEALED_METADATA_KEY,
    SHAPE_METADATA_KEY, Width,
};
use veil_keys::{ColumnTagger, DecryptedColumn, KeyError, OwnerKeys, SealKey, encrypt_constants};

use self::category::CategoryCodec;
pub use self::number::{NumberFormat, NumberKind};
pub(crate) use self::text::TextCodec;
use crate::column_note::ColumnNote;
use crate::declaration::{ColumnDeclaration, ColumnKind};

/// Translates one column.
#[derive(Clone, Debug)]
pub struct ColumnCodec {
    cell_type: CellType,
    note: ColumnNote,
    values: Values,
    constants: Option<ColumnConstants>,
    shape: Option<CategoryShape>,
    tagger: Option<ColumnTagger>,
}

#[derive(Clone, Debug)]
enum Values {
    Number { format: NumberFormat, low: i64, high: i64 },
    Binary([String; 2]),
    Text(TextCodec),
    Category(CategoryCodec),
}

/// Messages of a column, row by row, and which rows are Arrow nulls.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) messages: Vec<i64>,
    pub(crate) nulls: Option<NullBuffer>,
}

/// A value that its declaration does not allow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadValue {
    /// In the array, from zero.
    pub(crate) row: usize,
    pub(crate) value: String,
    pub(crate) why: String,
}

impl ColumnCodec {
    /// For encrypting a declared column; `None` if it stays clear. `source` is the input's type, if the input has types.
    pub fn declared(
        keys: &OwnerKeys,
        table: &str,
        name: &str,
        declaration: &ColumnDeclaration,
        source: Option<&DataType>,
    ) -> Result<Option<Self>, KeyError> {
        if let Some(source) = source.filter(|source| !is_encodable(source)) {
            let text = format!("values of type {source} cannot be encrypted; declare the column as kind = \"clear\"");
            return match declaration.kind {
                ColumnKind::Clear(_) => Ok(None),
                _ => Err(CellError::Unsupported(text).into()),
            };
        }
        let mut note = ColumnNote::default().with_source(source);
        let mut cell_type = CellType {
            nulls: if declaration.hide_nulls { Nulls::Hidden } else { Nulls::Public },
            tag: declaration.identifier,
            weight: declaration.weight,
            ..CellType::new(Kind::Integer, Width::FULL, 1, keys.key_id(), keys.column_id(table, name))
        };
        let (mut bounds, mut shape) = (None, None);
        let values = match &declaration.kind {
            ColumnKind::Clear(_) => return Ok(None),
            ColumnKind::Number { format, low, high } => {
                cell_type.kind = format.kind();
                cell_type.scale = format.scale();
                cell_type.unit = format.unit();
                cell_type.bounds = declaration.public_range.then_some((*low, *high));
                bounds = Some((*low, *high));
                Values::Number { format: *format, low: *low, high: *high }
            }
            ColumnKind::Binary(labels) => {
                cell_type.kind = Kind::Binary;
                note = note.with_labels(labels);
                bounds = Some((0, 1));
                Values::Binary(labels.clone())
            }
            ColumnKind::Text(max_length) => {
                let text = TextCodec::new(*max_length);
                (cell_type.kind, cell_type.lanes) = (Kind::Text, text.lanes());
                Values::Text(text)
            }
            ColumnKind::Category(hierarchy, spacing) => {
                let category = CategoryCodec::new(hierarchy.clone(), *spacing)?;
                (cell_type.kind, cell_type.lanes) = (Kind::Category, category.lanes());
                cell_type.width = category.width()?;
                note = note.with_hierarchy(hierarchy, *spacing);
                shape = category.shape().filter(|_| !declaration.hide_shape);
                Values::Category(category)
            }
        };
        let mut constants = None;
        if let Some((low, high)) = bounds {
            cell_type.width = Width::of_range(low, high).ok_or(CellError::MessageOverflow)?;
            constants = Some(encrypt_constants(keys, &cell_type, low, high)?);
        }
        let tagger = declaration.identifier.then(|| keys.tag().column(table, name));
        let note = note.with_type(&cell_type);
        Ok(Some(Self { cell_type, note, values, constants, shape, tagger }))
    }

    /// For decrypting a field; `None` if it is clear.
    pub fn of_field(keys: &OwnerKeys, field: &Field) -> Result<Option<Self>, KeyError> {
        let Some(cell_type) = CellType::of_field(field)? else {
            return Ok(None);
        };
        if cell_type.key != keys.key_id() {
            return Err(CellError::WrongKey { expected: keys.key_id(), found: cell_type.key }.into());
        }
        let note = ColumnNote::open(keys.seal(), &cell_type, field)?;
        Self::of_note(cell_type, note).map(Some)
    }

    /// For decoding messages of a type, with the owner's note about the column.
    pub fn of_note(cell_type: CellType, note: ColumnNote) -> Result<Self, KeyError> {
        if !note.agrees_with(&cell_type) {
            let text = "its public type is not the one that it was encrypted with".to_owned();
            return Err(CellError::NotACellColumn(text).into());
        }
        let missing = |what: &str| CellError::NotACellColumn(format!("its {what} did not travel with it"));
        let values = match cell_type.kind {
            Kind::Text => Values::Text(TextCodec::of_lanes(cell_type.lanes)),
            Kind::Binary => Values::Binary(note.labels.clone().ok_or_else(|| missing("labels"))?),
            Kind::Category => {
                let (hierarchy, spacing) = note.hierarchy().ok_or_else(|| missing("hierarchy"))?;
                Values::Category(CategoryCodec::new(hierarchy.into(), spacing)?)
            }
            _ => Values::Number { format: NumberFormat::of_type(&cell_type), low: i64::MIN, high: i64::MAX },
        };
        Ok(Self { cell_type, note, values, constants: None, shape: None, tagger: None })
    }

    /// The column's public type.
    pub fn cell_type(&self) -> &CellType {
        &self.cell_type
    }

    /// The field of the encrypted column, with its sealed note and encrypted constants.
    pub fn encrypted_field(&self, seal: &SealKey, name: &str) -> Result<Field, KeyError> {
        let mut field = self.cell_type.field(name)?;
        let mut metadata = field.metadata().clone();
        metadata.insert(SEALED_METADATA_KEY.to_owned(), self.note.seal(seal, &self.cell_type)?);
        if let Some(constants) = &self.constants {
            metadata.insert(CONSTANTS_METADATA_KEY.to_owned(), constants.to_metadata());
        }
        if let Some(shape) = &self.shape {
            metadata.insert(SHAPE_METADATA_KEY.to_owned(), shape.to_metadata());
        }
        field.set_metadata(metadata);
        Ok(field)
    }

    /// The field of the decrypted column.
    pub fn clear_field(&self, name: &str) -> Field {
        Field::new(name, self.source().unwrap_or_else(|| self.natural_type()), true)
    }

    /// Values into messages.
    pub(crate) fn encode(&self, array: &ArrayRef) -> Result<Encoded, BadValue> {
        let lanes = self.cell_type.cell_lanes();
        let mut messages = Vec::with_capacity(array.len() * lanes.total());
        let at = |row: usize, value: &dyn ToString| {
            let value = value.to_string();
            move |why| BadValue { row, value, why }
        };
        // Whole numbers need no detour through text.
        let integers = match &self.values {
            Values::Number { format, .. } if array.data_type().is_integer() && format.is_integer() => {
                Some(cast_all(array, &DataType::Int64)?)
            }
            _ => None,
        };
        let texts = match (&integers, array.data_type()) {
            (Some(_), _) => StringArray::new_null(0),
            // Arrow prints it with a time of day, which a date has not.
            (None, DataType::Date64) => print_all(&whole_days(array)?)?,
            (None, _) => print_all(array)?,
        };
        for row in 0..array.len() {
            let start = messages.len();
            let is_null = match &integers {
                Some(integers) => integers.is_null(row),
                None => texts.is_null(row),
            };
            if is_null {
                messages.resize(start + usize::from(lanes.value), 0);
                messages.extend(lanes.nulls.then_some(1));
                messages.extend(self.tagger.as_ref().map(|tagger| tagger.null_tag() as i64));
                continue;
            }
            let tag = match &integers {
                Some(integers) => {
                    let value = integers.as_primitive::<Int64Type>().value(row);
                    messages.push(self.within(value).map_err(at(row, &value))?);
                    self.tag(&value.to_le_bytes())
                }
                None => {
                    let text = texts.value(row);
                    self.encode_text(text, &mut messages).map_err(at(row, &text))?;
                    match self.values {
                        Values::Number { .. } => self.tag(&messages[start].to_le_bytes()),
                        _ => self.tag(text.as_bytes()),
                    }
                }
            };
            messages.extend(lanes.nulls.then_some(0));
            messages.extend(tag);
        }
        let nulls = (self.cell_type.nulls == Nulls::Public).then(|| array.logical_nulls()).flatten();
        Ok(Encoded { messages, nulls: nulls.filter(|nulls| nulls.null_count() > 0) })
    }

    /// Messages into values. They have the lanes of the type, without tags.
    pub fn decode(&self, column: DecryptedColumn) -> Result<ArrayRef, KeyError> {
        let value_lanes = usize::from(self.cell_type.lanes);
        let hidden = (self.cell_type.nulls == Nulls::Hidden).then(|| {
            let present = column.messages.chunks_exact(column.lanes).map(|row| row[value_lanes] == 0);
            NullBuffer::new(BooleanBuffer::from_iter(present))
        });
        let nulls = NullBuffer::union(column.nulls.as_ref(), hidden.as_ref());
        if let Values::Number { format, .. } = &self.values
            && (column.lanes, self.cell_type.fraction_bits) == (1, 0)
        {
            return self.in_source_type(format.array(column.messages, nulls, self.source().as_ref())?);
        }
        let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let rows = column.messages.chunks_exact(column.lanes).map(|row| &row[..value_lanes]);
        let labels = |decode: &dyn Fn(&[i64]) -> Result<String, CellError>| -> Result<ArrayRef, KeyError> {
            let values = rows.clone().enumerate().map(|(row, lanes)| match is_null(row) {
                true => Ok(None),
                false => decode(lanes).map(Some).map_err(|source| KeyError::Row { row, source }),
            });
            Ok(Arc::new(values.collect::<Result<StringArray, _>>()?))
        };
        let array = match &self.values {
            Values::Number { format, .. } => {
                let fraction_bits = self.cell_type.fraction_bits;
                let half = if fraction_bits == 0 { 0 } else { 1 << (fraction_bits - 1) };
                let numbers = rows.map(|lanes| (lanes[0] + half) >> fraction_bits).collect();
                format.array(numbers, nulls.clone(), self.source().as_ref())?
            }
            Values::Binary(names) => {
                labels(&|lanes| match usize::try_from(lanes[0]).ok().and_then(|at| names.get(at)) {
                    Some(name) => Ok(name.clone()),
                    None => Err(no_value(self.cell_type.kind)),
                })?
            }
            Values::Text(text) => labels(&|lanes| text.decode(lanes))?,
            Values::Category(category) => labels(&|lanes| category.decode(lanes).map(str::to_owned))?,
        };
        self.in_source_type(array)
    }

    fn in_source_type(&self, array: ArrayRef) -> Result<ArrayRef, KeyError> {
        match self.source() {
            Some(source) if source != *array.data_type() => Ok(cast_back(&array, &source)?),
            _ => Ok(array),
        }
    }

    /// The type that values came in, if they fit it: a number that was computed may not.
    fn source(&self) -> Option<DataType> {
        let computed = self.cell_type.computed && matches!(self.values, Values::Number { .. });
        self.note.source().filter(|_| !computed)
    }

    fn natural_type(&self) -> DataType {
        match &self.values {
            Values::Number { format, .. } => format.natural_type(),
            _ => DataType::Utf8,
        }
    }

    fn encode_text(&self, value: &str, messages: &mut Vec<i64>) -> Result<(), String> {
        match &self.values {
            Values::Number { format, .. } => messages.push(format.parse(value).and_then(|number| self.within(number))?),
            Values::Binary(labels) => match labels.iter().position(|label| label == value) {
                Some(at) => messages.push(at as i64),
                None => {
                    return Err(format!("is neither `{}` nor `{}`; correct it or `values`", labels[0], labels[1]));
                }
            },
            Values::Text(text) => text.encode(value, messages)?,
            Values::Category(category) => category.encode(value, messages)?,
        }
        Ok(())
    }

    fn within(&self, number: i64) -> Result<i64, String> {
        match &self.values {
            Values::Number { format, low, high } if !(*low..=*high).contains(&number) => Err(format!(
                "is outside the declared range [{}, {}]; correct it or widen `range`",
                format.print(*low),
                format.print(*high)
            )),
            _ => Ok(number),
        }
    }

    fn tag(&self, value: &[u8]) -> Option<i64> {
        self.tagger.as_ref().map(|tagger| tagger.tag(value) as i64)
    }
}

/// Whether values of a type have a text that the kinds read, and can be had back from it. Bytes have none.
pub(crate) fn is_encodable(data_type: &DataType) -> bool {
    let value: &DataType = match data_type {
        DataType::Dictionary(_, value) => value,
        other => other,
    };
    let is_scalar = value.is_numeric() || value.is_temporal() || value.is_string() || *value == DataType::Boolean;
    is_scalar && can_cast_types(data_type, &DataType::Utf8) && can_cast_types(&DataType::Utf8, data_type)
}

/// The values in another type, or the first that has no place there.
fn cast_all(array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, BadValue> {
    let bad = |row: usize| BadValue {
        row,
        value: array_value_to_string(array, row).unwrap_or_default(),
        why: format!(
            "({}) cannot be read as {data_type}; correct it or declare the column otherwise",
            array.data_type()
        ),
    };
    let result = cast(array, data_type).map_err(|_| bad(0))?;
    let before = array.logical_nulls();
    let was_null = |row: &usize| before.as_ref().is_some_and(|nulls| nulls.is_null(*row));
    match (0..array.len()).find(|row| result.is_null(*row) && !was_null(row)) {
        Some(row) => Err(bad(row)),
        None => Ok(result),
    }
}

/// Values as Arrow prints them.
fn print_all(array: &ArrayRef) -> Result<StringArray, BadValue> {
    Ok(cast_all(array, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// Dates in milliseconds as dates in days.
fn whole_days(array: &ArrayRef) -> Result<ArrayRef, BadValue> {
    const DAY: i64 = 86_400_000;
    let values = array.as_primitive::<Date64Type>();
    match (0..values.len()).find(|row| values.is_valid(*row) && values.value(*row) % DAY != 0) {
        Some(row) => Err(BadValue {
            row,
            value: array_value_to_string(array, row).unwrap_or_default(),
            why: "is not a whole day; declare the column as a timestamp".to_owned(),
        }),
        None => cast_all(array, &DataType::Date32),
    }
}

/// Values in the type they came in, all of them.
fn cast_back(array: &ArrayRef, source: &DataType) -> Result<ArrayRef, CellError> {
    let options = CastOptions { safe: false, ..Default::default() };
    Ok(cast_with_options(array, source, &options)?)
}

/// A message that stands for no value of its column.
fn no_value(kind: Kind) -> CellError {
    CellError::Malformed(format!("it decrypts to no value of its {kind} column"))
}
