//! Releases of a real desk, opened.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{Decimal128Type, Int64Type};
use support::{CSV, Form, House, Plan};
use veil_cells::{CellType, JointNoise, Mechanism};
use veil_owner::decrypt_batch;
use veil_protocols::ProtocolError;
use veil_protocols::release::masks::Masks;
use veil_recipient::{Opener, Received, RecipientError};
use veil_release::{MaskedWords, Party, ROW_KEY_LANES, ReleaseId, SEAL_INFO, SeenValues, associated, word_of};
use veil_slots::plain;

fn open(house: &House, sealed: &RecordBatch) -> Result<(RecordBatch, Received), RecipientError> {
    let mut opener = Opener::new(house.alice.clone()).with_owner(house.owner.public());
    let batches = opener.open(std::slice::from_ref(sealed))?;
    let received = opener.finish()?;
    Ok((concat_batches(&received.schema, &batches)?, received))
}

#[tokio::test]
async fn every_kind_arrives_as_its_owner_would_decrypt_it() {
    let house = House::new("");
    let batch = house.encrypted(CSV);
    let expected = decrypt_batch(&house.owner, &batch).unwrap();
    assert_eq!((expected.num_rows(), expected.num_columns()), (6, 11));
    for form in [Form::Cells, Form::Slots, Form::Dense] {
        let sealed = house.release(Plan { form, ..Plan::new(&batch) }).await.unwrap();
        // Header, two parcels, manifest.
        assert_eq!(sealed.num_rows(), 4);
        let (clear, received) = open(&house, &sealed).unwrap();
        assert_eq!(clear.columns(), expected.columns());
        let names = |batch: &RecordBatch| batch.schema().fields().iter().map(|f| f.name().clone()).collect::<Vec<_>>();
        assert_eq!(names(&clear), names(&expected));
        assert_eq!((received.rows, received.suppressed, received.owner_known), (6, 0, true));
        // Row by row, as it may come, with the schema known as early as can be.
        let mut opener = Opener::new(house.alice.clone());
        let mut parts = Vec::new();
        for row in 0..sealed.num_rows() {
            parts.extend(opener.open(&[sealed.slice(row, 1)]).unwrap());
            assert_eq!(opener.schema().unwrap().is_some(), row >= 1, "a clear column's type comes with a parcel");
        }
        assert_eq!(concat_batches(&received.schema, &parts).unwrap(), clear);
        assert!(!opener.finish().unwrap().owner_known);
    }
}

/// P2 adds up what it sealed, and signs for no other rows than it has counted; where the policy wants more, it seals nothing.
#[tokio::test]
async fn rows_are_what_was_sealed() {
    let house = House::new("");
    let batch = house.encrypted(CSV);
    let plan = Plan::new(&batch);
    let mut parcels = house.parcels(&plan);
    assert_eq!((parcels.len(), batch.num_rows()), (2, 6));
    parcels.pop();
    let refused = house.hand_over(&plan, parcels).await.unwrap_err();
    assert!(refused.to_string().contains("of other rows than were counted before it"), "{refused}");
    let house = House::new("min_rows = 9000");
    let batch = house.encrypted(CSV);
    let refused = house.release(Plan::new(&batch)).await.unwrap_err();
    assert!(refused.to_string().contains("6 rows are fewer than the 9000 that the policy wants"), "{refused}");
}

#[tokio::test]
async fn without_clear_columns_the_header_tells_the_schema() {
    let house = House::new("");
    let batch = house.encrypted("id,name\n1,a\n2,b\n");
    let sealed = house.release(Plan::new(&batch)).await.unwrap();
    let mut opener = Opener::new(house.alice.clone());
    assert_eq!(opener.open(&[sealed.slice(0, 1)]).unwrap().len(), 0);
    let schema = opener.schema().unwrap().unwrap();
    assert_eq!(schema, decrypt_batch(&house.owner, &batch).unwrap().schema());
}

#[tokio::test]
async fn a_release_without_rows_has_its_schema_from_the_manifest() {
    let house = House::new("");
    let batch = house.encrypted(CSV).slice(0, 0);
    let sealed = house.release(Plan::new(&batch)).await.unwrap();
    assert_eq!(sealed.num_rows(), 2);
    let (clear, received) = open(&house, &sealed).unwrap();
    let expected = decrypt_batch(&house.owner, &batch).unwrap();
    assert_eq!((clear.num_rows(), received.rows), (0, 0));
    assert_eq!(clear.columns(), expected.columns());
}

#[tokio::test]
async fn suppressed_rows_come_as_noise_and_are_left_out() {
    let house = House::new("");
    let batch = house.encrypted(CSV);
    let flag = vec![false, true, false, true, true, false];
    let keep: BooleanArray = flag.iter().map(|flag| Some(!flag)).collect();
    let expected = filter_record_batch(&decrypt_batch(&house.owner, &batch).unwrap(), &keep).unwrap();
    // With what P1 sees under the rows' keys, and as servers did it that knew no such keys.
    for (run, id) in [(1, [9; 16]), (0, [8; 16])] {
        let plan = Plan { form: Form::Slots, flag: Some(flag.clone()), run, id: ReleaseId(id), ..Plan::new(&batch) };
        let sealed = house.release(plan).await.unwrap();
        let (clear, received) = open(&house, &sealed).unwrap();
        assert_eq!(clear.columns(), expected.columns());
        assert_eq!((received.rows, received.suppressed), (3, 3));
        assert!(clear.schema().field_with_name("suppressed").is_err());
        // The servers know no number of them, and the manifest has all rows.
        assert_eq!(received.manifest.manifest.rows, 6);
    }
}

/// Another program than ours, with alice's key and all that came: it reads clear columns and NULLs of the rows that were released, and of no others.
#[tokio::test]
async fn clear_columns_of_suppressed_rows_are_not_readable() {
    let house = House::new("");
    let batch = house.encrypted(CSV);
    let flag = vec![false, true, false, true, true, false];
    let plan = Plan { form: Form::Slots, flag: Some(flag.clone()), parcel_rows: 6, ..Plan::new(&batch) };
    let sealed = house.release(plan).await.unwrap();
    let part = |column: usize, party: Party| {
        let part = sealed.column(column).as_binary::<i64>().value(1);
        house.alice.open(SEAL_INFO, &associated(ReleaseId([9; 16]), party, 1), part).unwrap()
    };
    let (from_p2, from_p1) = (part(1, Party::P2), part(2, Party::P1));
    for region in ["north", "south", "west", "east"] {
        assert!(!from_p1.windows(region.len()).any(|bytes| bytes == region.as_bytes()), "{region}");
    }
    let (values, seen) = (MaskedWords::parse(&from_p2).unwrap(), SeenValues::parse(&from_p1).unwrap());
    assert_eq!(seen.batch.num_columns(), 0, "nothing is in sight");
    let mut masks = Masks::new(*seen.seed);
    let mut keys = vec![[0; ROW_KEY_LANES]; 6];
    for (modulus, words) in &values.columns {
        // Those of the last column are the keys.
        let opened: Vec<u64> = words.iter().map(|word| plain::sub(word_of(*word), masks.next(*modulus))).collect();
        if opened.len() == 6 * ROW_KEY_LANES {
            keys.iter_mut()
                .enumerate()
                .for_each(|(row, key)| *key = std::array::from_fn(|lane| opened[6 * lane + row]));
        }
    }
    let hidden = seen.hidden.unwrap();
    let truth = batch.column_by_name("region").unwrap().as_string::<i32>();
    let place = batch.schema().index_of("region").unwrap();
    for (row, is_suppressed) in flag.into_iter().enumerate() {
        let opened = hidden.open(&keys, |other| other == row);
        let region = opened.as_ref().ok().and_then(|opened| opened.column_by_name(&format!("clear.{place}")));
        let same = region.is_some_and(|region| {
            let region = region.as_string::<i32>();
            region.is_valid(row) == truth.is_valid(row)
                && (!truth.is_valid(row) || region.value(row) == truth.value(row))
        });
        assert_eq!(same, !is_suppressed, "row {row}: {opened:?}");
    }
}

#[tokio::test]
async fn quotients_are_rounded_halves_away_from_zero() {
    let house = House::new("");
    let batch = house.encrypted("id\n7\n-7\n1000\n5\n");
    let sums = |name: &str, cell_type: &mut CellType| {
        assert_eq!(name, "id");
        cell_type.computed = true;
    };
    let plan = Plan { change: sums, divisors: [(0, vec![2, 2, 3, 1])].into(), ..Plan::new(&batch) };
    let (clear, _) = open(&house, &house.release(plan).await.unwrap()).unwrap();
    assert_eq!(clear.column(0).as_primitive::<Int64Type>().values(), &[4, -4, 333, 5]);
    // Nobody divides by zero.
    let id = ReleaseId([8; 16]);
    let plan = Plan { id, change: sums, divisors: [(0, vec![1, 0, 1, 1])].into(), ..Plan::new(&batch) };
    let error = open(&house, &house.release(plan).await.unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("parcel 1, column id: row 2: "), "{error}");
}

fn noised(name: &str, cell_type: &mut CellType) {
    if name == "cost" {
        cell_type.spent = 1_000_000;
        cell_type.computed = true;
        cell_type.awaits = vec![JointNoise { mechanism: Mechanism::Laplace, epsilon: 1_000_000 }];
    }
}

#[tokio::test]
async fn noise_of_p2_is_in_the_values_and_the_same_when_asked_again() {
    let house = House::new("epsilon = { cost = 1 }");
    let csv: String =
        ["cost,region\n".to_owned()].into_iter().chain((0..60).map(|row| format!("{},r{row}\n", 1000 + row))).collect();
    let batch = house.encrypted(&csv);
    let plan = || Plan { change: noised, parcel_rows: 25, ..Plan::new(&batch) };
    let first = house.release(plan()).await.unwrap();
    let again = house.release(plan()).await.unwrap();
    // Sealed anew, and the same inside.
    assert_ne!(first.column(1), again.column(1));
    let (one, received) = open(&house, &first).unwrap();
    let (two, _) = open(&house, &again).unwrap();
    assert_eq!(one, two);
    assert_eq!(received.manifest.manifest.spent["cost"], 1_000_000);
    let truth = decrypt_batch(&house.owner, &batch).unwrap();
    let cents = |batch: &RecordBatch| batch.column(0).as_primitive::<Decimal128Type>().values().to_vec();
    let noise: Vec<i128> = cents(&one).iter().zip(cents(&truth)).map(|(noised, true_)| noised - true_).collect();
    // The scale is 500000 cents: 50 zeros of 60 would be a wonder.
    assert!(noise.iter().filter(|noise| **noise == 0).count() < 10, "{noise:?}");
    assert!(noise.iter().any(|noise| *noise > 0) && noise.iter().any(|noise| *noise < 0), "{noise:?}");
    assert_eq!(one.column(1), truth.column(1));

    // Another release would spend more than there is.
    let other = Plan { id: ReleaseId([4; 16]), ..plan() };
    match house.release(other).await {
        Err(ProtocolError::Exhausted(why)) => assert!(why.contains("has spent 1 of 1"), "{why}"),
        other => panic!("{other:?}"),
    }
    // And without noise the column does not leave.
    match house.release(Plan { id: ReleaseId([5; 16]), ..Plan::new(&batch) }).await {
        Err(ProtocolError::Denied(why)) => assert!(why.contains("only with noise"), "{why}"),
        other => panic!("{other:?}"),
    }
}
