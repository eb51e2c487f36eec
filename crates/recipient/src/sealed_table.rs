//! The rows that a release travels in: one a parcel, the header before them and the manifest after.
//!
//! ```text
//!  release   number   from_p2            from_p1            manifest
//!  its name  0        header, sealed     NULL               NULL
//!            1..=n    parcel, sealed     parcel, sealed     NULL
//!            n+1      NULL               NULL               JSON
//! ```
//! The name of the release may stand in the schema's metadata instead.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use veil_release::ReleaseId;

use crate::RecipientError;

/// The schema metadata that names the release.
pub const RELEASE_METADATA_KEY: &str = "veil.release";

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRow {
    /// Its number.
    pub number: u32,
    /// What it holds.
    pub part: SealedPart,
}

/// What a row holds. Its bytes are those of the batch that it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealedPart {
    /// The header, sealed by P2.
    Header(Buffer),
    /// A parcel.
    Parcel {
        /// P2's part.
        from_p2: Buffer,
        /// P1's part.
        from_p1: Buffer,
    },
    /// The manifest.
    Manifest(String),
}

/// The columns of the table, for a release.
pub fn sealed_schema(release: ReleaseId) -> SchemaRef {
    let fields = vec![
        Field::new("number", DataType::UInt32, false),
        Field::new("from_p2", DataType::LargeBinary, true),
        Field::new("from_p1", DataType::LargeBinary, true),
        Field::new("manifest", DataType::Utf8, true),
    ];
    let metadata = [(RELEASE_METADATA_KEY.to_owned(), release.to_string())].into();
    Arc::new(Schema::new(fields).with_metadata(metadata))
}

/// The release that a batch names, if it names one.
pub(crate) fn release_of(batch: &RecordBatch) -> Result<Option<ReleaseId>, RecipientError> {
    let parse = |text: &str| text.parse().map_err(RecipientError::Release);
    if let Some(text) = batch.schema_ref().metadata().get(RELEASE_METADATA_KEY) {
        return parse(text).map(Some);
    }
    if batch.num_rows() == 0 || batch.column_by_name("release").is_none() {
        return Ok(None);
    }
    let names = column(batch, "release", &DataType::Utf8)?;
    let mut names = names.as_string::<i32>().iter();
    let first = names.next().flatten();
    match names.all(|name| name == first) {
        true => first.map(parse).transpose(),
        false => Err(RecipientError::NoRelease("its rows are of several releases".to_owned())),
    }
}

/// The rows of a batch.
pub(crate) fn rows_of(batch: &RecordBatch) -> Result<Vec<SealedRow>, RecipientError> {
    let [number, from_p2, from_p1, manifest] = [
        ("number", DataType::UInt32),
        ("from_p2", DataType::LargeBinary),
        ("from_p1", DataType::LargeBinary),
        ("manifest", DataType::Utf8),
    ]
    .map(|(name, expected)| column(batch, name, &expected));
    let (number, from_p2, from_p1, manifest) = (number?, from_p2?, from_p1?, manifest?);
    let number = number.as_primitive::<UInt32Type>();
    let bytes = |column: &ArrayRef, row: usize| {
        let (values, offsets) = (column.as_binary::<i64>().values(), column.as_binary::<i64>().value_offsets());
        // Arrow has checked the offsets of an array that it made.
        let (from, to) = (*offsets.get(row)? as usize, *offsets.get(row + 1)? as usize);
        column.is_valid(row).then(|| values.slice_with_length(from, to - from))
    };
    let row_at = |row: usize| {
        let text = manifest.is_valid(row).then(|| manifest.as_string::<i32>().value(row).to_owned());
        let number = number.is_valid(row).then(|| number.value(row));
        let (number, part) = match (number, bytes(&from_p2, row), bytes(&from_p1, row), text) {
            (Some(0), Some(header), None, None) => (0, SealedPart::Header(header)),
            (Some(number @ 1..), Some(from_p2), Some(from_p1), None) => {
                (number, SealedPart::Parcel { from_p2, from_p1 })
            }
            (Some(number @ 1..), None, None, Some(text)) => (number, SealedPart::Manifest(text)),
            _ => return Err(RecipientError::NoRelease("a row is neither header nor parcel nor manifest".to_owned())),
        };
        Ok(SealedRow { number, part })
    };
    (0..batch.num_rows()).map(row_at).collect()
}

/// A column by its name. Tools between may have changed how it is laid out.
fn column(batch: &RecordBatch, name: &str, expected: &DataType) -> Result<ArrayRef, RecipientError> {
    let Some(column) = batch.column_by_name(name) else {
        return Err(RecipientError::NoRelease(format!("it has no column {name}")));
    };
    match column.data_type() == expected {
        true => Ok(column.clone()),
        false => cast(column, expected)
            .map_err(|_| RecipientError::NoRelease(format!("its column {name} is of type {}", column.data_type()))),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{LargeBinaryArray, StringArray, UInt32Array};

    use super::*;

    type Row<'a> = (u32, Option<&'a [u8]>, Option<&'a [u8]>, Option<&'a str>);

    fn batch(rows: &[Row<'_>]) -> RecordBatch {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows.iter().map(|row| Some(row.0)).collect::<UInt32Array>()),
            Arc::new(rows.iter().map(|row| row.1).collect::<LargeBinaryArray>()),
            Arc::new(rows.iter().map(|row| row.2).collect::<LargeBinaryArray>()),
            Arc::new(rows.iter().map(|row| row.3).collect::<StringArray>()),
        ];
        RecordBatch::try_new(sealed_schema(ReleaseId([7; 16])), columns).unwrap()
    }

    #[test]
    fn rows_are_told_apart() {
        let rows =
            batch(&[(0, Some(b"h"), None, None), (1, Some(b"2"), Some(b"1"), None), (2, None, None, Some("{}"))]);
        let expected = [
            SealedRow { number: 0, part: SealedPart::Header(b"h".into()) },
            SealedRow { number: 1, part: SealedPart::Parcel { from_p2: b"2".into(), from_p1: b"1".into() } },
            SealedRow { number: 2, part: SealedPart::Manifest("{}".to_owned()) },
        ];
        assert_eq!(rows_of(&rows).unwrap(), expected);
        assert_eq!(release_of(&rows).unwrap(), Some(ReleaseId([7; 16])));
        let views = cast(rows.column(1), &DataType::BinaryView).unwrap();
        let mut columns = rows.columns().to_vec();
        columns[1] = views;
        let names = ["number", "from_p2", "from_p1", "manifest"];
        assert_eq!(rows_of(&RecordBatch::try_from_iter(names.into_iter().zip(columns)).unwrap()).unwrap(), expected);
    }

    #[test]
    fn what_is_no_release_is_said() {
        let wrong: [Row<'_>; 5] = [
            (0, None, None, None),
            (0, Some(b"h"), Some(b"h"), None),
            (1, Some(b"2"), None, None),
            (1, None, Some(b"1"), Some("{}")),
            (0, None, None, Some("{}")),
        ];
        for row in wrong {
            let error = rows_of(&batch(&[row])).unwrap_err().to_string();
            assert!(error.starts_with("what came is no release: a row is neither"), "{row:?}: {error}");
        }
        let other = batch(&[]).project(&[0, 1, 2]).unwrap();
        assert!(rows_of(&other).unwrap_err().to_string().contains("it has no column manifest"));
        let named = |names: &[&str]| {
            let names: ArrayRef = Arc::new(StringArray::from(names.to_vec()));
            release_of(&RecordBatch::try_from_iter([("release", names)]).unwrap())
        };
        let name = ReleaseId([7; 16]).to_string();
        assert_eq!(named(&[&name, &name]).unwrap(), Some(ReleaseId([7; 16])));
        assert_eq!(named(&[]).unwrap(), None);
        assert!(named(&["no"]).is_err());
        assert!(named(&[&name, "other"]).unwrap_err().to_string().contains("of several releases"));
    }
}
