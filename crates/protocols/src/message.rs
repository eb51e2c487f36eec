//! Messages: rows of ciphertexts and clear numbers, as Arrow record batches.
//!
//! A protocol writes its message down once, with [`message!`]; schema, encoding and checked decoding follow from it. Ciphertexts
//! and lists are `LargeBinary` columns, clear numbers are `UInt32`. One row is one independent item of work.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeBinaryArray, RecordBatch, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use veil_slots::{Fresh, Inbound, OUTBOUND_BYTES, Outbound, SEEDED_BYTES, SeededSlots};

use crate::ProtocolError;

/// A row of a message.
pub trait Message: Send + 'static {
    /// The columns of the message.
    fn fields() -> Vec<(&'static str, DataType)>;

    /// Its Arrow schema.
    fn schema() -> SchemaRef {
        let fields = Self::fields().into_iter().map(|(name, data_type)| Field::new(name, data_type, false));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// A row that can be sent.
pub trait Sendable: Message + Sized {
    #[doc(hidden)]
    fn columns(rows: &[Self]) -> Vec<ArrayRef>;

    /// All rows as one batch.
    fn to_batch(rows: &[Self]) -> Result<RecordBatch, ProtocolError> {
        RecordBatch::try_new(Self::schema(), Self::columns(rows))
            .map_err(|error| ProtocolError::Internal(error.to_string()))
    }
}

/// A row that can be received.
pub trait Receive: Message + Sized {
    #[doc(hidden)]
    fn read(batch: &RecordBatch, row: usize) -> Result<Self, ProtocolError>;

    /// Checks a batch from outside: its columns, and that nothing is missing.
    fn check(batch: &RecordBatch) -> Result<(), ProtocolError> {
        let expected = Self::schema();
        let same = batch.schema_ref().fields().len() == expected.fields().len()
            && (batch.schema_ref().fields().iter().zip(expected.fields()))
                .all(|(found, field)| found.name() == field.name() && found.data_type() == field.data_type());
        if !same {
            return Err(ProtocolError::Malformed(format!(
                "its columns are {:?}, expected {:?}",
                names(batch.schema_ref()),
                names(&expected)
            )));
        }
        match batch.columns().iter().position(|column| column.null_count() > 0) {
            Some(at) => Err(ProtocolError::Malformed(format!("column {at} has a missing value"))),
            None => Ok(()),
        }
    }
}

fn names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect()
}

/// What a column of a message can hold.
pub trait Column: Send + 'static {
    /// Its Arrow type.
    const DATA_TYPE: DataType = DataType::LargeBinary;
}

/// A column that can be sent.
pub trait SendColumn: Column + Sized {
    /// One value a row.
    fn array<'a>(values: impl ExactSizeIterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;
}

/// A column that can be received.
pub trait ReceiveColumn: Column + Sized {
    /// The value of one row, checked. The array has the right type and no nulls.
    fn read(array: &dyn Array, row: usize) -> Result<Self, ProtocolError>;
}

fn binary<'a>(parts: impl ExactSizeIterator<Item = Vec<&'a [u8]>> + Clone) -> ArrayRef {
    let bytes = parts.clone().flatten().map(<[u8]>::len).sum();
    let mut builder = arrow::array::LargeBinaryBuilder::with_capacity(parts.len(), bytes);
    for row in parts {
        match row.as_slice() {
            [single] => builder.append_value(single),
            several => builder.append_value(several.concat()),
        }
    }
    Arc::new(builder.finish())
}

fn bytes_at(array: &dyn Array, row: usize) -> Result<&[u8], ProtocolError> {
    let array: &LargeBinaryArray = array.as_binary_opt().ok_or_else(|| malformed("a column has the wrong type"))?;
    if row < array.len() { Ok(array.value(row)) } else { Err(malformed("a row is missing")) }
}

fn malformed(why: &str) -> ProtocolError {
    ProtocolError::Malformed(why.to_owned())
}

impl Column for Outbound {}
impl Column for Inbound {}
impl Column for SeededSlots {}
impl Column for Fresh {}
impl Column for Vec<Outbound> {}
impl Column for Vec<Inbound> {}
impl Column for Vec<SeededSlots> {}
impl Column for Vec<Fresh> {}
impl Column for Vec<u8> {}
impl Column for Vec<u64> {}
impl Column for u32 {
    const DATA_TYPE: DataType = DataType::UInt32;
}

impl SendColumn for Outbound {
    fn array<'a>(values: impl ExactSizeIterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(LargeBinaryArray::from_iter_values(values.map(Outbound::as_bytes)))
    }
}

impl SendColumn for SeededSlots {
    fn array<'a>(values: impl ExactSizeIterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(LargeBinaryArray::from_iter_values(values.map(SeededSlots::as_bytes)))
    }
}

impl SendColumn for Vec<Outbound> {
    fn array<'a>(values: impl ExactSizeIterator<Item = &'a Self>) -> ArrayRef {
        let rows: Vec<Vec<&[u8]>> = values.map(|list| list.iter().map(Outbound::as_bytes).collect()).collect();
        binary(rows.into_iter())
    }
}

impl SendColumn for Vec<SeededSlots> {
    fn array<'a>(values: impl ExactSizeIterator<Item = &'a Self>) -> ArrayRef {
        let rows: Vec<Vec<&[u8]>> = values.map(|list| list.iter().map(SeededSlots::as_bytes).collect()).collect();
        binary(rows.into_iter())
    }
}

impl SendColumn for Vec<u8> {
    fn array<'a>(values: impl ExactSizeIterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(LargeBinaryArray::from_iter_values(values))
    }
}

impl SendColumn for Vec<u64> {
    fn array<'a>(values: impl ExactSizeIterator<Item = &'a Self>) -> ArrayRef {
        let bytes = |list: &Vec<u64>| list.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        Arc::new(LargeBinaryArray::from_iter_values(values.map(bytes)))
    }
}

impl SendColumn for u32 {
    fn array<'a>(values: impl ExactSizeIterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(values.copied()))
    }
}

impl ReceiveColumn for Inbound {
    fn read(array: &dyn Array, row: usize) -> Result<Self, ProtocolError> {
        Ok(Inbound::parse(bytes_at(array, row)?)?)
    }
}

impl ReceiveColumn for Fresh {
    fn read(array: &dyn Array, row: usize) -> Result<Self, ProtocolError> {
        Ok(Fresh::parse(bytes_at(array, row)?)?)
    }
}

impl ReceiveColumn for Vec<Inbound> {
    fn read(array: &dyn Array, row: usize) -> Result<Self, ProtocolError> {
        let bytes = bytes_at(array, row)?;
        if !bytes.len().is_multiple_of(OUTBOUND_BYTES) {
            return Err(malformed("a list of ciphertexts has the wrong length"));
        }
        bytes.chunks_exact(OUTBOUND_BYTES).map(|bytes| Ok(Inbound::parse(bytes)?)).collect()
    }
}

impl ReceiveColumn for Vec<Fresh> {
    fn read(array: &dyn Array, row: usize) -> Result<Self, ProtocolError> {
        let bytes = bytes_at(array, row)?;
        if !bytes.len().is_multiple_of(SEEDED_BYTES) {
            return Err(malformed("a list of ciphertexts has the wrong length"));
        }
        bytes.chunks_exact(SEEDED_BYTES).map(|bytes| Ok(Fresh::parse(bytes)?)).collect()
    }
}

impl ReceiveColumn for Vec<u8> {
    fn read(array: &dyn Array, row: usize) -> Result<Self, ProtocolError> {
        Ok(bytes_at(array, row)?.to_vec())
    }
}

impl ReceiveColumn for Vec<u64> {
    fn read(array: &dyn Array, row: usize) -> Result<Self, ProtocolError> {
        let (words, rest) = bytes_at(array, row)?.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(malformed("a list of numbers has the wrong length"));
        }
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }
}

impl ReceiveColumn for u32 {
    fn read(array: &dyn Array, row: usize) -> Result<Self, ProtocolError> {
        let array = array.as_primitive_opt::<UInt32Type>().ok_or_else(|| malformed("a column has the wrong type"))?;
        if row < array.len() { Ok(array.value(row)) } else { Err(malformed("a row is missing")) }
    }
}

/// Writes a message down: a struct whose fields are its columns. Its type parameter stands for ciphertexts, which have one type where
/// they are sent and another where they are received: queries go from [`Outbound`] to [`Inbound`], answers from
/// [`SeededSlots`] to [`Fresh`].
macro_rules! message {
    ($(#[$doc:meta])* $name:ident<$c:ident: $sent:ident => $received:ident> { $($(#[$field_doc:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<$c> { $($(#[$field_doc])* pub $field: $type,)+ }

        $crate::message::message!(@message $name, veil_slots::$sent, $c, $($field: $type,)+);
        $crate::message::message!(@message $name, veil_slots::$received, $c, $($field: $type,)+);

        impl $crate::message::Sendable for $name<veil_slots::$sent> {
            fn columns(rows: &[Self]) -> Vec<arrow::array::ArrayRef> {
                vec![$($crate::message::SendColumn::array(rows.iter().map(|row| &row.$field)),)+]
            }
        }

        impl $crate::message::Receive for $name<veil_slots::$received> {
            fn read(batch: &arrow::array::RecordBatch, row: usize) -> Result<Self, $crate::ProtocolError> {
                let mut columns = batch.columns().iter();
                Ok(Self { $($field: $crate::message::read_next(&mut columns, row)?,)+ })
            }
        }
    };
    (@message $name:ident, $ciphertext:ty, $c:ident, $($field:ident: $type:ty,)+) => {
        impl $crate::message::Message for $name<$ciphertext> {
            fn fields() -> Vec<(&'static str, arrow::datatypes::DataType)> {
                fn data_types<$c>() -> Vec<(&'static str, arrow::datatypes::DataType)>
                where $($type: $crate::message::Column,)+
                {
                    vec![$((stringify!($field), <$type as $crate::message::Column>::DATA_TYPE),)+]
                }
                data_types::<$ciphertext>()
            }
        }
    };
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)+ }

        impl $crate::message::Message for $name {
            fn fields() -> Vec<(&'static str, arrow::datatypes::DataType)> {
                vec![$((stringify!($field), <$type as $crate::message::Column>::DATA_TYPE),)+]
            }
        }

        impl $crate::message::Sendable for $name {
            fn columns(rows: &[Self]) -> Vec<arrow::array::ArrayRef> {
                vec![$($crate::message::SendColumn::array(rows.iter().map(|row| &row.$field)),)+]
            }
        }

        impl $crate::message::Receive for $name {
            fn read(batch: &arrow::array::RecordBatch, row: usize) -> Result<Self, $crate::ProtocolError> {
                let mut columns = batch.columns().iter();
                Ok(Self { $($field: $crate::message::read_next(&mut columns, row)?,)+ })
            }
        }
    };
}
pub(crate) use message;

#[doc(hidden)]
pub fn read_next<'a, C: ReceiveColumn>(
    columns: &mut impl Iterator<Item = &'a ArrayRef>,
    row: usize,
) -> Result<C, ProtocolError> {
    let column = columns.next().ok_or_else(|| malformed("a column is missing"))?;
    C::read(column.as_ref(), row)
}
