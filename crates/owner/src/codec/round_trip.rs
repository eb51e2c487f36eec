//! Values of every kind through cells and back: the ends of random ranges, and random values between.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_cells::CellArray;
use veil_keys::{OwnerKeys, decrypt_column, encrypt_column};

use super::{ColumnCodec, NumberFormat, NumberKind};
use crate::Declaration;

static KEYS: LazyLock<OwnerKeys> = LazyLock::new(|| OwnerKeys::generate(&mut StdRng::seed_from_u64(21)));

/// Encrypts and decrypts a column, stored in each of Arrow's binary layouts.
fn through_cells(column: &str, values: &[Option<String>]) -> Result<Vec<Option<String>>, TestCaseError> {
    let text = format!("[table]\nname = \"t\"\n[column.c]\n{column}\n");
    let declaration =
        Declaration::parse(&text, Path::new("t.toml")).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let codec = ColumnCodec::declared(&KEYS, "t", "c", &declaration.columns["c"], None).unwrap().unwrap();
    let array: ArrayRef = Arc::new(values.iter().cloned().collect::<StringArray>());
    let encoded = codec.encode(&array).map_err(|bad| TestCaseError::fail(format!("{bad:?}")))?;
    let mut rng = StdRng::seed_from_u64(22);
    let cells = encrypt_column(&KEYS, codec.cell_type(), &encoded.messages, encoded.nulls.as_ref(), &mut rng).unwrap();
    let field = codec.encrypted_field(KEYS.seal(), "c").unwrap();
    let reader = ColumnCodec::of_field(&KEYS, &field).unwrap().unwrap();
    let mut printed = Vec::new();
    for layout in [DataType::Binary, DataType::LargeBinary, DataType::BinaryView] {
        let stored = cast(&cells, &layout).unwrap();
        let stored = CellArray::try_new(&stored).unwrap();
        let messages = decrypt_column(KEYS.cell(), KEYS.key_id(), reader.cell_type(), stored).unwrap();
        let decoded = cast(&reader.decode(messages).unwrap(), &DataType::Utf8).unwrap();
        printed.push(decoded.as_string::<i32>().iter().map(|value| value.map(str::to_owned)).collect::<Vec<_>>());
        prop_assert_eq!(decoded.len(), values.len());
    }
    prop_assert!(printed.windows(2).all(|pair| pair[0] == pair[1]));
    Ok(printed.remove(0))
}

/// The ends of a range, values between, and a NULL.
fn ends_and_between(low: i64, high: i64, between: &[u64]) -> Vec<Option<i64>> {
    let span = high.abs_diff(low) + 1;
    let inside = between.iter().map(|value| Some(low + (value % span) as i64));
    [Some(low), Some(high), None].into_iter().chain(inside).collect()
}

fn check_numbers(kind: NumberKind, options: &str, low: i64, high: i64, between: &[u64]) -> Result<(), TestCaseError> {
    let format = NumberFormat(kind);
    let print = |number: i64| format.print(number);
    let values: Vec<Option<String>> = ends_and_between(low, high, between).into_iter().map(|n| n.map(print)).collect();
    for more in
        ["", "identifier = true", "hide_nulls = true", "hide_nulls = true\nidentifier = true\npublic_range = true"]
    {
        let column = format!("{options}\nrange = [\"{}\", \"{}\"]\n{more}", print(low), print(high));
        prop_assert_eq!(&through_cells(&column, &values)?, &values, "{}", column);
    }
    Ok(())
}

fn ordered(one: i64, other: i64) -> (i64, i64) {
    (one.min(other), one.max(other))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn integers(one in any::<i32>(), other in any::<i32>(), between in prop::collection::vec(any::<u64>(), 0..20)) {
        let (low, high) = ordered(one.into(), other.into());
        check_numbers(NumberKind::Integer, "kind = \"integer\"", low, high, &between)?;
    }

    #[test]
    fn decimals(scale in 0u8..=9, one in any::<i32>(), other in any::<i32>(), between in prop::collection::vec(any::<u64>(), 0..20)) {
        let (low, high) = ordered(one.into(), other.into());
        check_numbers(NumberKind::Decimal(scale), &format!("kind = \"decimal\"\nscale = {scale}"), low, high, &between)?;
    }

    #[test]
    fn dates(one in -719_000i64..2_900_000, other in -719_000i64..2_900_000, between in prop::collection::vec(any::<u64>(), 0..20)) {
        let (low, high) = ordered(one, other);
        check_numbers(NumberKind::Date, "kind = \"date\"", low, high, &between)?;
    }

    #[test]
    fn timestamps(one in any::<i32>(), other in any::<i32>(), between in prop::collection::vec(any::<u64>(), 0..20)) {
        let (low, high) = ordered(one.into(), other.into());
        check_numbers(NumberKind::Timestamp(Default::default()), "kind = \"timestamp\"", low, high, &between)?;
        let hours = |second: i64| second / 3600;
        let unit = NumberKind::Timestamp(veil_cells::TimeUnit::Hour);
        check_numbers(unit, "kind = \"timestamp\"\nunit = \"hour\"", hours(low), hours(high), &between)?;
    }

    #[test]
    fn texts(values in prop::collection::vec(prop::option::of("\\PC{0,12}"), 1..20), nulls in any::<bool>()) {
        let values: Vec<Option<String>> = values.into_iter().chain([Some(String::new())]).collect();
        let column = format!("kind = \"text\"\nmax_length = 48\nidentifier = true\nhide_nulls = {nulls}");
        prop_assert_eq!(&through_cells(&column, &values)?, &values);
    }

    #[test]
    fn labels(labels in prop::collection::btree_set("[a-zé ]{1,9}", 2..40), picks in prop::collection::vec(any::<prop::sample::Index>(), 1..30)) {
        let labels: Vec<String> = labels.into_iter().collect();
        let values: Vec<Option<String>> = picks.iter().map(|pick| Some(pick.get(&labels).clone())).chain([None]).collect();
        let column = format!("values = {labels:?}\nidentifier = true");
        for spacing in ["even", "apart"] {
            let column = format!("kind = \"category\"\nspacing = \"{spacing}\"\n{column}");
            prop_assert_eq!(&through_cells(&column, &values)?, &values);
        }
        let two: Vec<Option<String>> = values.into_iter().filter(|value| value.as_ref().is_none_or(|value| labels[..2].contains(value))).collect();
        let column = format!("kind = \"binary\"\nvalues = {:?}\nhide_nulls = true", &labels[..2]);
        prop_assert_eq!(&through_cells(&column, &two)?, &two);
    }
}

#[test]
fn truth_values() {
    let values = [Some("true".to_owned()), None, Some("false".to_owned())];
    for more in ["", "identifier = true", "hide_nulls = true"] {
        assert_eq!(through_cells(&format!("kind = \"boolean\"\n{more}"), &values).unwrap(), values);
    }
}
