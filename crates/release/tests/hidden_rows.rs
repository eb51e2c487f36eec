//! Rows under their keys, as a program of somebody else uses them: every type comes back as it was, and what cannot is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Decimal128Array, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray, Int64Array, ListArray,
    RecordBatch, StringArray, StringViewArray, StructArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int8Type, Int32Type};
use veil_release::{HiddenRows, ReleaseError, RowKey};

fn keys(rows: u64) -> Vec<RowKey> {
    (0..rows).map(|row| [row, row + 1, row + 2]).collect()
}

fn clear_columns() -> RecordBatch {
    let inner: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some(""), Some("d")]));
    let place = StructArray::from(vec![(Arc::new(Field::new("town", DataType::Utf8, true)), inner)]);
    let columns: [(&str, ArrayRef); 7] = [
        (
            "text",
            Arc::new(StringViewArray::from(vec![Some("short"), Some("longer than twelve bytes"), None, Some("")])),
        ),
        ("label", Arc::new(DictionaryArray::<Int8Type>::from_iter([Some("x"), None, Some("y"), Some("x")]))),
        ("price", Arc::new(Decimal128Array::from(vec![Some(-1), Some(0), None, Some(i128::MAX)]))),
        ("when", Arc::new(TimestampMicrosecondArray::from(vec![1, -1, 0, 2]).with_timezone("+01:00"))),
        ("place", Arc::new(place)),
        (
            "list",
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
                Some(vec![Some(1)]),
                None,
                Some(vec![]),
                Some(vec![None]),
            ])),
        ),
        ("bytes", Arc::new(FixedSizeBinaryArray::try_from_iter([b"ab", b"cd", b"ef", b"gh"].into_iter()).unwrap())),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn kept_rows_come_back_in_their_types_and_others_as_nulls() {
    let batch = clear_columns();
    let hidden = HiddenRows::seal(&batch, &keys(4)).unwrap();
    let opened = hidden.open(&keys(4), |_| true).unwrap();
    for (name, at) in batch.schema().fields().iter().map(|field| field.name()).zip(0..) {
        assert_eq!(opened.column(at), batch.column(at), "{name}");
    }
    // Keys of rows that are not kept are noise; those rows are not even tried.
    let mut noise = keys(4);
    noise[1] = [7, 7, 7];
    let opened = hidden.open(&noise, |row| row != 1).unwrap();
    for at in 0..batch.num_columns() {
        assert!(opened.column(at).is_null(1));
        assert_eq!(opened.column(at).slice(2, 2).as_ref(), batch.column(at).slice(2, 2).as_ref());
    }
    let none = hidden.open(&noise, |_| false).unwrap();
    assert!(none.num_rows() == 4 && none.columns().iter().all(|column| column.null_count() == 4));
    assert_eq!(none.schema().field(1).data_type(), batch.schema().field(1).data_type());
    // With a wrong key there is a sentence, or at least nothing of the row.
    if let Ok(opened) = hidden.open(&noise, |_| true) {
        assert_ne!(opened.column(0).slice(1, 1).as_ref(), batch.column(0).slice(1, 1).as_ref());
    }
}

#[test]
fn what_cannot_be_hidden_is_refused_by_name() {
    let item = Arc::new(Field::new_list_field(DataType::Int64, true));
    let pairs: ArrayRef = Arc::new(FixedSizeListArray::new(item, 1, Arc::new(Int64Array::from(vec![1, 2])), None));
    let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(4096), String::new()]));
    let age: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    for (other, says) in [(pairs, "cannot be hidden for rows"), (long, "leave out or encrypt long texts")] {
        let batch = RecordBatch::try_from_iter([("age", age.clone()), ("other", other)]).unwrap();
        match HiddenRows::seal(&batch, &keys(2)) {
            Err(ReleaseError::Column { column, why }) => {
                assert!(column == "other" && why.contains(says), "{column}: {why}")
            }
            other => panic!("{:?}", other.map(|hidden| hidden.len())),
        }
    }
    let batch = RecordBatch::try_from_iter([("age", age)]).unwrap();
    assert!(HiddenRows::seal(&batch, &keys(3)).is_err(), "a key without a row");
}
